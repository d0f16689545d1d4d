// One image under one operator: clean next to changed, flicker, difference, saliency, masks, and distances, row by row.
import { html, useAsync, useEffect, useKeys, useRef, useState } from "../lib.js";
import { path } from "../api.js";
import { cleanInput, loadSequence, photograph, replay } from "../data.js";
import { BoxLegend, useBoxes } from "../boxes.js";
import { href, patch } from "../route.js";
import { CopyButton, Icon, Loaded, Picture, Segments, Verdict, firstName, percent, shortName } from "../ui.js";

const MODES = [["pair", "Side by side"], ["flicker", "Flicker"], ["difference", "Difference"], ["saliency", "Saliency"]];
const MASKS = ["masks", "Masks"]; // of segmenters
const BOOST = 4; // of differences

export function Sequence({ run, facts, digest, model, column, image, params, site, step }) {
  // with what it is of: the last one stays until the next one has arrived
  const loaded = useAsync(async (signal) => ({ run, model, column, image, sequence: await loadSequence(run, model, column, image, signal) }), [run, model, column.operator, column.lens, image]);
  const at = digest.position.get(image);
  const panel = useRef(null);
  useEffect(() => {
    const before = document.activeElement; // goes on from there when the panel closes
    panel.current.focus();
    return () => before?.isConnected && before.focus({ preventScroll: true });
  }, []);
  return html`<aside class="drawer" ref=${panel} tabindex="-1" role="dialog" aria-label=${`${column.title}: ${shortName(digest.images.name[at])}`}>
    <div class="drawer-head"><h2><span class="clip">${column.title}</span> <span class="muted clip">${firstName(digest.images.labels[digest.images.label[at]])} · ${shortName(digest.images.name[at])}</span></h2>
      <button class="round" aria-label="Previous image" onClick=${() => step(-1)}><${Icon} name="left" /></button>
      <button class="round" aria-label="Next image" onClick=${() => step(1)}><${Icon} name="right" /></button>
      <button class="round" aria-label="Close" onClick=${() => patch({ col: null, image: null, at: null })}><${Icon} name="close" /></button></div>
    <${Loaded} state=${loaded} what="Reading rows">${(found) => html`<${Shown} key=${`${found.image} ${found.column.operator}`} ...${found} facts=${facts} params=${params} site=${site} />`}<//>
  </aside>`;
}

function Shown({ run, facts, model, column, image, sequence, params, site }) {
  const { points, clean } = sequence;
  const first = points.findIndex((point) => point.correct === false);
  const given = params.at === undefined || params.at === null ? (first >= 0 ? first : points.length - 1) : Number(params.at) - 1;
  const index = Math.max(0, Math.min(points.length - 1, given));
  const move = (next) => patch({ at: Math.max(1, Math.min(points.length, next + 1)) });
  const [mode, setMode] = useState("pair");
  const [opacity, setOpacity] = useState(0.6);
  const [boxed, setBoxed] = useState(true);
  useKeys({ ArrowUp: () => move(index + 1), ArrowDown: () => move(index - 1) });
  const boxes = useBoxes({ run, facts, site, model, column, image, point: points[index] });
  if (!points.length) return html`<div class="state">${clean.correct === false ? `${model} is wrong about the clean image (${firstName(clean.prediction)}), so nothing was searched.` : "No change broke this image, so there is no row to show."}</div>
    <${Picture} src=${photograph(run, image)} alt="the original" />`;
  const point = points[index];
  const sources = {
    clean: point.counterpart ? replay(run, model, column, image, point.counterpart) : cleanInput(run, model, image),
    changed: replay(run, model, column, image, point.key),
  };
  const broken = point.correct === false;
  const marks = boxed && boxes.marks ? boxes.marks : {};
  const over = (what) => [path("runs", run, what, model, image, "clean.webp"), path("runs", run, what, model, column.lens, column.operator, image, `${point.key}.webp`)];
  const layers = { saliency: over("saliency"), masks: over("masks") };
  return html`
    <div class="drawer-tools"><${Segments} label="View" value=${mode} options=${sequence.masks ? [...MODES, MASKS] : MODES} onChange=${setMode} />
      ${(mode === "saliency" || mode === "masks") && html`<label class="inline">Opacity <input type="range" min="0" max="1" step="0.05" value=${opacity} onInput=${(event) => setOpacity(Number(event.target.value))} /></label>`}
      ${boxes.marks && html`<label class="inline"><input type="checkbox" checked=${boxed} onChange=${() => setBoxed(!boxed)} /> Boxes</label>`}</div>
    <${View} mode=${mode} sources=${sources} marks=${marks} opacity=${opacity} broken=${broken} live=${site.live}
      maps=${layers[mode] || []} />
    ${marks.changed && html`<${BoxLegend} lists=${[marks.clean, marks.changed]} />`}
    ${boxes.problem && html`<p class="small muted">${boxes.problem}</p>`}
    <div class="points" role="group" aria-label="Rows from weak to strong">${points.map((one, number) => html`<button key=${number} class=${`point ${one.correct === false ? "bad" : "good"}`} aria-pressed=${number === index}
      aria-label=${`${captionOf(one)}: ${one.correct === false ? "broken" : "right"}`} title=${`${captionOf(one)}: ${firstName(one.prediction)}`} onClick=${() => move(number)}></button>`)}</div>
    <p><strong>${captionOf(point)}</strong> <${Verdict} broken=${broken}>${broken ? "broken" : "holds"}<//></p>
    <table class="facts"><tbody>
      ${typeof point.iou === "number" && html`<tr><th scope="row">mean IoU</th><td>${point.iou.toFixed(2)}</td></tr>`}
      <tr><th scope="row">clean</th><td>${firstName(clean.prediction)}${clean.confidence === null ? "" : `, ${percent(clean.confidence)}`}</td></tr>
      <tr><th scope="row">changed</th><td>${point.prediction === null ? "–" : `${firstName(point.prediction)}${point.confidence === null ? "" : `, ${percent(point.confidence)}`}`}${point.cause ? ` (${point.cause})` : ""}</td></tr>
      <tr><th scope="row">${sequence.masks ? "share of pixels" : "right class"}</th><td>${firstName(clean.label)}${point.probability === null ? "" : `: ${percent(point.probability, 1)}, rank ${(point.rank ?? 0) + 1}`}</td></tr>
      ${Object.entries(point.distances).map(([name, value]) => html`<tr key=${name}><th scope="row">${DISTANCES[name] || name}</th><td>${name === "changed" ? percent(value, 1) : value >= 1000 ? Math.round(value).toLocaleString("en") : Number(value).toPrecision(3)}</td></tr>`)}
    </tbody></table>
    <p class="actions"><a class="button" href=${href("break", { run, image, change: site.live ? column.operator : `${column.lens}/${column.operator}`, at: site.live && point.parameters.length === 1 ? point.parameters[0] : index + 1 })}>Break it</a>
      <a class="button" href=${replay(run, model, column, image, point.key, "png")} download=${`${image}-${point.key}.png`}><${Icon} name="save" /> Save image</a><${CopyButton} label="Link" icon="link" text=${() => location.href} /></p>`;
}

const DISTANCES = { mse: "MSE", mae: "MAE", l1: "L1", l2: "L2", linf: "L∞", l0: "L0", changed: "pixels changed" };
const captionOf = (point) => [point.level !== null ? `level ${point.level}` : null, point.text || point.parameters.map((one) => Number(one.toPrecision(4))).join(", ")].filter(Boolean).join(": ");

function View({ mode, sources, marks, opacity, broken, maps, live }) {
  if (mode === "flicker") return html`<${Flicker} sources=${sources} marks=${marks} broken=${broken} />`;
  if (mode === "difference") return html`<div class="pair"><figure class=${broken ? "bad" : ""}><figcaption>changed</figcaption><${Picture} src=${sources.changed} alt="the changed image" marks=${marks.changed} /></figure>
    <figure><figcaption>difference, ${BOOST} times</figcaption><${Difference} sources=${sources} /></figure></div>`;
  if ((mode === "saliency" || mode === "masks") && !live) return html`<p class="note">Saliency maps and masks need the model: open the run with <code>brinell view</code>.</p>`;
  const over = (map) => (map ? html`<${Picture} src=${map} alt=${mode === "masks" ? "classes of pixels" : "saliency map"} className="over" style=${{ opacity }} />` : null);
  return html`<div class="pair">
    <figure><figcaption>clean</figcaption><div class="stack"><${Picture} src=${sources.clean} alt="the clean image" marks=${marks.clean} />${over(maps[0])}</div></figure>
    <figure class=${broken ? "bad" : ""}><figcaption>changed</figcaption><div class="stack"><${Picture} src=${sources.changed} alt="the changed image" marks=${marks.changed} />${over(maps[1])}</div></figure></div>`;
}

function Flicker({ sources, marks, broken }) {
  const [clean, setClean] = useState(true);
  useEffect(() => { const timer = setInterval(() => setClean((before) => !before), 450); return () => clearInterval(timer); }, []);
  return html`<div class="pair one"><figure class=${broken && !clean ? "bad" : ""}><figcaption>${clean ? "clean" : "changed"}</figcaption>
    <div class="stack"><${Picture} src=${sources.clean} alt="the clean image" marks=${marks.clean} /><${Picture} src=${sources.changed} alt="the changed image" marks=${marks.changed} className="over" style=${{ visibility: clean ? "hidden" : "visible" }} /></div></figure></div>`;
}

function Difference({ sources }) {
  const canvas = useRef(null);
  const [problem, setProblem] = useState(false);
  useEffect(() => {
    let current = true;
    const load = (source) => new Promise((done, failed) => { const image = new Image(); image.onload = () => done(image); image.onerror = failed; image.src = source; });
    Promise.all([load(sources.clean), load(sources.changed)]).then(([clean, changed]) => {
      if (!current || !canvas.current) return;
      const { naturalWidth: width, naturalHeight: height } = changed;
      const pixels = (image) => {
        const part = new OffscreenCanvas(width, height).getContext("2d");
        part.drawImage(image, 0, 0, width, height);
        return part.getImageData(0, 0, width, height);
      };
      const [a, b] = [pixels(clean), pixels(changed)];
      for (let at = 0; at < a.data.length; at += 1) if (at % 4 < 3) a.data[at] = Math.min(255, BOOST * Math.abs(a.data[at] - b.data[at]));
      canvas.current.width = width;
      canvas.current.height = height;
      canvas.current.getContext("2d").putImageData(a, 0, 0);
      setProblem(false);
    }).catch(() => current && setProblem(true));
    return () => { current = false; };
  }, [sources.clean, sources.changed]);
  return html`<div class="picture" role="img" aria-label="difference between the clean and the changed image">${problem ? html`<span>not available</span>` : html`<canvas ref=${canvas}></canvas>`}</div>`;
}
