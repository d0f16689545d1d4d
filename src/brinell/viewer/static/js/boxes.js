// Boxes of detectors over pictures: kinds differ in colour, line and text, as in reports (marks.py).
import { html, useAsync, useRef, useSize } from "./lib.js";
import { getJson, path } from "./api.js";

const MEANINGS = { found: "found", lost: "lost", weak: "score below the threshold", changed: "found as another class", new: "found only in the changed image" };

const TEXT = 11; // pixels on the screen

// `width` and `height` are those of the picture, whose scale the boxes share.
export function Boxes({ marks, width, height }) {
  const box = useRef(null);
  const shown = useSize(box);
  const scale = shown.width ? Math.min(shown.width / width, shown.height / height) : 1;
  const text = Math.min(TEXT / scale, Math.max(width, height) / 12);
  const areas = marks.map(({ box: [left, top, right, bottom] }) => clip([left * width, top * height, right * width, bottom * height], width, height));
  const taken = [];
  const labels = marks.map((mark, number) => { const place = placeLabel(areas[number], [mark.text.length * text * 0.56 + text * 0.5, text * 1.3], width, height, taken); taken.push(place); return place; });
  return html`<svg class="boxes" ref=${box} viewBox=${`0 0 ${width} ${height}`} role="img" aria-label=${marks.length ? `boxes: ${marks.map((mark) => mark.text).join("; ")}` : "no boxes"}>
    ${marks.map((mark, number) => { const [left, top, right, bottom] = areas[number]; return html`<g key=${`box ${number}`} class=${`mark ${mark.kind}`}>
      <rect class="halo" x=${left} y=${top} width=${right - left} height=${bottom - top} /><rect class="edge-line" x=${left} y=${top} width=${right - left} height=${bottom - top} /></g>`; })}
    ${marks.map((mark, number) => { const [left, top, right, bottom] = labels[number]; return html`<g key=${`label ${number}`} class=${`mark ${mark.kind}`}>
      <rect class="plate" x=${left} y=${top} width=${right - left} height=${bottom - top} /><text x=${left + text * 0.25} y=${bottom - text * 0.32} font-size=${text} textLength=${right - left - text * 0.5} lengthAdjust="spacingAndGlyphs">${mark.text}</text></g>`; })}
  </svg>`;
}

// What the kinds of boxes in some lists of marks mean.
export function BoxLegend({ lists }) {
  const kinds = Object.keys(MEANINGS).filter((kind) => lists.some((marks) => marks.some((mark) => mark.kind === kind)));
  return kinds.length ? html`<ul class="legend box-legend" aria-label="Boxes">${kinds.map((kind) => html`<li key=${kind}><svg class="key" viewBox="0 0 26 12" aria-hidden="true"><g class=${`mark ${kind}`}><rect class="edge-line" x="2" y="2" width="22" height="8" /></g></svg>${MEANINGS[kind]}</li>`)}</ul>` : null;
}

// A detector's boxes on the picture of a row and on the one it is compared with; null where there are none to ask for.
export function useBoxes({ run, facts, site, model, column, image, point }) {
  const detector = facts.models.find((one) => one.name === model)?.detector;
  const known = detector && point && (site.live || site.boxed?.[run]?.includes(model));
  const found = useAsync((signal) => (known ? getJson(path("runs", run, "boxes", model, column.lens, column.operator, image, point.counterpart || "clean", `${point.key}.json`), { signal }) : null),
    [run, model, column.lens, column.operator, image, known && point.key]);
  return { marks: known && !found.loading ? found.data : null, problem: detector && point && (found.error ? found.error.message : known ? null : "Boxes need the detector: open the run with brinell view.") };
}

const clip = ([left, top, right, bottom], width, height) => {
  const inside = (value, most) => Math.min(Math.max(value, 0), most);
  return [inside(left, width - 2), inside(top, height - 2), Math.max(inside(right, width), inside(left, width - 2) + 2), Math.max(inside(bottom, height), inside(top, height - 2) + 2)];
};

// Above its box, inside it or below it, where the fewest other labels are.
function placeLabel([left, top, right, bottom], [wide, tall], width, height, taken) {
  const tries = [top - tall, top, bottom - tall, bottom, top + tall, top + 2 * tall].flatMap((y) => [[left, y], [right - wide, y]]);
  const places = tries.map(([x, y]) => {
    const [from, above] = [Math.min(Math.max(x, 0), Math.max(width - wide, 0)), Math.min(Math.max(y, 0), Math.max(height - tall, 0))];
    return [from, above, from + wide, above + tall];
  });
  const overlap = (one, two) => Math.max(0, Math.min(one[2], two[2]) - Math.max(one[0], two[0])) * Math.max(0, Math.min(one[3], two[3]) - Math.max(one[1], two[1]));
  const cost = (place) => taken.reduce((sum, other) => sum + overlap(place, other), 0);
  return places.reduce((best, place) => (cost(place) < cost(best) ? place : best));
}
