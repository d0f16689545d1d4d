// Figures as files: rows as CSV, charts as SVG.
import { html } from "./lib.js";
import { saveBlob } from "./api.js";
import { Icon } from "./ui.js";

const cell = (value) => { const text = value === null || value === undefined || Number.isNaN(value) ? "" : String(value); return /[",\n]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text; };
// A text that a spreadsheet would run as a formula begins with a quotation mark instead.
const safe = (value) => (typeof value === "string" && /^[=+\-@\t]/.test(value) && Number.isNaN(Number(value)) ? `'${value}` : value);
export const toCsv = (head, rows) => [head, ...rows].map((row) => row.map((value) => cell(safe(value))).join(",")).join("\n") + "\n";

const words = (text) => String(text).replaceAll("&", "&amp;").replaceAll("<", "&lt;").replaceAll('"', "&quot;");
const svg = (width, height, parts) => `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 ${width} ${height}" width="${width}" height="${height}" font-family="system-ui, sans-serif" font-size="12" fill="#15181e"><rect width="${width}" height="${height}" fill="#fff"/>${parts.join("")}</svg>`;

// Curves over [0, 1]: `series` is [{label, colour, values}], and `marks` are vertical lines [{value, colour}].
export function linesSvg({ title, xLabel, x, series, marks = [] }) {
  const [left, top, wide, tall] = [46, 30 + 16 * series.length, 520, 260];
  const [low, high] = [Math.min(...x), Math.max(...x)];
  const at = (value) => left + (wide * (value - low)) / (high - low || 1);
  const parts = [`<text x="${left}" y="18" font-weight="600">${words(title)}</text>`];
  series.forEach((one, number) => parts.push(`<path d="M${left} ${32 + 16 * number}h20" stroke="${one.colour}" stroke-width="2"/><text x="${left + 26}" y="${36 + 16 * number}">${words(one.label)}</text>`));
  [0, 0.25, 0.5, 0.75, 1].forEach((share) => parts.push(`<path d="M${left} ${top + tall * (1 - share)}h${wide}" stroke="#dde1e8"/><text x="${left - 6}" y="${top + tall * (1 - share) + 4}" text-anchor="end">${100 * share} %</text>`));
  [low, (low + high) / 2, high].forEach((value) => parts.push(`<text x="${at(value)}" y="${top + tall + 16}" text-anchor="middle">${Number(value.toPrecision(3))}</text>`));
  parts.push(`<text x="${left + wide / 2}" y="${top + tall + 34}" text-anchor="middle">${words(xLabel)}</text>`);
  marks.forEach((mark) => parts.push(`<path d="M${at(mark.value)} ${top}v${tall}" stroke="${mark.colour}" stroke-dasharray="3 3"/>`));
  series.forEach((one) => {
    const points = one.values.map((value, number) => (value === null ? null : `${at(x[number]).toFixed(1)} ${(top + tall * (1 - value)).toFixed(1)}`)).filter(Boolean);
    parts.push(`<path d="M${points.join("L")}" fill="none" stroke="${one.colour}" stroke-width="2"/>`);
  });
  return svg(left + wide + 20, top + tall + 46, parts);
}

// Small bar charts in a grid: `charts` is [{title, note, bars: [{all, some, colour}]}].
export function barsSvg({ title, charts, across = 3 }) {
  const [wide, tall] = [190, 92];
  const parts = [`<text x="12" y="20" font-weight="600">${words(title)}</text>`];
  charts.forEach(({ title: name, note, bars }, number) => {
    const [left, top] = [12 + (wide + 14) * (number % across), 34 + (tall + 12) * Math.floor(number / across)];
    const most = Math.max(1, ...bars.map((bar) => bar.all)), step = wide / bars.length;
    parts.push(`<text x="${left}" y="${top + 10}">${words(name.length > 19 ? `${name.slice(0, 18)}…` : name)}</text><text x="${left + wide}" y="${top + 10}" text-anchor="end" fill="#59606e">${words(note)}</text><path d="M${left} ${top + tall}h${wide}" stroke="#c3c9d4"/>`);
    bars.forEach((bar, index) => ["all", "some"].forEach((kind) => {
      const height = ((tall - 20) * bar[kind]) / most;
      if (height) parts.push(`<rect x="${(left + step * index + 1).toFixed(1)}" y="${(top + tall - height).toFixed(1)}" width="${(step - 2).toFixed(1)}" height="${height.toFixed(1)}" fill="${kind === "all" ? "#dde1e8" : bar.colour}"/>`);
    }));
  });
  return svg(across * (wide + 14) + 10, 46 + (tall + 12) * Math.ceil(charts.length / across), parts);
}

// Buttons that save a figure; `csv` and `drawing` make its content when they are pressed.
export const Files = ({ name, csv, drawing }) => html`<span class="files">
  ${csv && html`<button class="quiet" aria-label=${`Save ${name} as CSV`} onClick=${() => saveBlob(new Blob([csv()], { type: "text/csv" }), `${name}.csv`)}><${Icon} name="save" /> CSV</button>`}
  ${drawing && html`<button class="quiet" aria-label=${`Save ${name} as SVG`} onClick=${() => saveBlob(new Blob([drawing()], { type: "image/svg+xml" }), `${name}.svg`)}><${Icon} name="save" /> SVG</button>`}</span>`;
