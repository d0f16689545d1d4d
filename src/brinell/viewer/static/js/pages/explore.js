// Explore: images by operators, coloured by what breaks them first. A brush anywhere filters everywhere.
import { html, useAsync, useEffect, useKeys, useMemo, useRef, useState } from "../lib.js";
import { describeCode, hardnessOfImages, loadCells, loadDigest, loadRun, loadRuns, share, thumbnail } from "../data.js";
import { binOf, extremesOf, readBrushes, select, valueBin, writeBrushes } from "../heat.js";
import { Files, toCsv } from "../files.js";
import { href, patch } from "../route.js";
import { Choice, Empty, Icon, Loaded, Segments, Thumb, count, firstName, percent, shortName } from "../ui.js";
import { Panels } from "./panels.js";
import { Sequence } from "./sequence.js";

const ROW = 36; // pixels

export function Explore({ params, site, theme }) {
  const loaded = useAsync(async (signal, progress) => {
    const runs = (await loadRuns()).filter((run) => !run.problem && run.images);
    const run = params.run || runs[0]?.id;
    if (!run) return null;
    const [facts, digest] = await Promise.all([loadRun(run), loadDigest(run, progress)]);
    const model = digest.models.includes(params.model) ? params.model : digest.models[0];
    return { runs, run, facts, digest, model, cells: await loadCells(run, digest, model) };
  }, [params.run, params.model]);
  const outdated = loaded.loading && params.run && loaded.data?.run !== params.run;
  return html`<${Loaded} state=${outdated ? { progress: loaded.progress } : loaded} what="Reading the run">${(data) => (data
    ? html`<${Table} ...${data} params=${params} site=${site} theme=${theme} />`
    : html`<${Empty} title="No runs here yet"><p>Make one with <code>brinell demo</code>.</p><//>`)}<//>`;
}

function Table({ runs, run, facts, digest, model, cells, params, site, theme }) {
  const brushes = useMemo(() => readBrushes(params.f), [params.f]);
  const label = params.label === undefined ? null : digest.images.labels.indexOf(params.label);
  const all = useMemo(() => digest.columns.map((_, number) => number), [digest]);
  const hardness = useMemo(() => hardnessOfImages(digest, cells, all), [digest, cells]);
  const images = useMemo(() => select(digest, cells, { brushes, label, text: params.q }), [digest, cells, params.f, label, params.q]);
  const sorted = useMemo(() => order(digest, cells, hardness, images, params.sort || "fragile"), [images, params.sort, hardness]);
  const brush = (column, range) => {
    const next = { ...brushes };
    if (range) next[column] = range; else delete next[column];
    patch({ f: writeBrushes(next) }, { push: true });
  };
  const brushed = Object.keys(brushes).length > 0 || label !== null || params.q;
  const column = params.col === undefined ? null : digest.columns[Number(params.col)];
  const step = (by) => {
    const at = sorted.indexOf(digest.position.get(params.image));
    patch({ image: digest.images.id[sorted[(at + by + sorted.length) % sorted.length]] });
  };
  useKeys(column ? { Escape: () => patch({ col: null, image: null, at: null }), ArrowLeft: () => step(-1), ArrowRight: () => step(1) } : {});
  return html`<div class="page wide">
    <div class="toolbar">
      <h1>Explore</h1>
      <label class="search"><${Icon} name="search" /><span class="hidden">Search images and classes</span>
        <input type="search" placeholder="Search images and classes" value=${params.q || ""} onInput=${(event) => patch({ q: event.target.value })} /></label>
      <${Choice} label="Run" value=${run} options=${runs.map((one) => [one.id, one.id])} onChange=${(value) => patch({ run: value, model: null, f: null, label: null, col: null, image: null, q: null }, { push: true })} />
      ${digest.models.length > 1 && html`<${Choice} label="Model" value=${model} options=${digest.models.map((name) => [name, name])} onChange=${(value) => patch({ model: value }, { push: true })} />`}
      <${Choice} label="Sort" value=${params.sort || "fragile"} options=${sorts(digest)} onChange=${(value) => patch({ sort: value })} />
      <${Segments} label="Colour by" value=${params.colour || "first"} options=${[["first", "First failure"], ["value", "Measure"]]} onChange=${(value) => patch({ colour: value })} />
    </div>
    <div class="explore">
      <section class="card grid-card" aria-label="Images by operators">
        <p class="grid-head" role="status"><strong id="selected">${count(images.length, "image")}</strong>${brushed ? html` of ${digest.count.toLocaleString("en")} <button class="quiet" onClick=${() => patch({ f: null, label: null, q: null }, { push: true })}><${Icon} name="close" /> Clear selection</button>` : html`<span class="small muted">Click a cell to see its sequence; brush a chart to select.</span>`} <${Files} name=${`${run}-first-failures`} csv=${() => gridCsv(digest, cells, sorted)} /></p>
        ${images.length ? html`<${Grid} run=${run} digest=${digest} cells=${cells} images=${sorted} hardness=${hardness} params=${params} brushes=${brushes} />`
          : html`<${Empty} title="No image matches"><p>Take a brush away, or search for something else.</p><//>`}
        <${Scale} colour=${params.colour || "first"} />
      </section>
      <${Panels} digest=${digest} cells=${cells} hardness=${hardness} images=${images} brushes=${brushes} brush=${brush} label=${params.label} run=${run} model=${model} />
    </div>
    ${column && digest.position.has(params.image) && html`<${Sequence} run=${run} facts=${facts} digest=${digest} model=${model} column=${column} image=${params.image} params=${params} site=${site} theme=${theme} step=${step} />`}
  </div>`;
}

// First failures as shares of the range (1: survives; empty: wrong when clean or not tested), and the measure of each lens.
const gridCsv = (digest, cells, images) => toCsv(["image", "name", "label", ...digest.columns.flatMap((column) => [`${column.lens} ${column.operator} first failure`, `${column.lens} ${column.operator} ${column.measure || "measure"}`])],
  images.map((image) => [digest.images.id[image], digest.images.name[image], digest.images.labels[digest.images.label[image]], ...digest.columns.flatMap((_, column) => [share(digest, cells.first[column * digest.count + image]), cells.value[column * digest.count + image]])]));

const sorts = (digest) => [["fragile", "Breaks most easily"], ["hard", "Hardest to break"], ["name", "Name"], ["label", "Class"], ...digest.columns.map((column, number) => [`c${number}`, `First failure: ${column.title}`])];

function order(digest, cells, hardness, images, sort) {
  const last = (value) => (Number.isNaN(value) ? 9 : value);
  const by = {
    fragile: (a, b) => last(hardness[a]) - last(hardness[b]),
    hard: (a, b) => last(-hardness[a]) - last(-hardness[b]),
    name: (a, b) => digest.images.name[a].localeCompare(digest.images.name[b]),
    label: (a, b) => digest.images.label[a] - digest.images.label[b],
  };
  const column = /^c\d+$/.test(sort) ? Number(sort.slice(1)) * digest.count : null;
  return [...images].sort(column === null ? by[sort] || by.fragile : (a, b) => cells.first[column + a] - cells.first[column + b]);
}

// Rows that are in sight, in a box as tall as all of them: 50,000 images scroll like 50.
function Grid({ run, digest, cells, images, hardness, params, brushes }) {
  const box = useRef(null);
  const [top, setTop] = useState(0);
  const [height, setHeight] = useState(560);
  useEffect(() => {
    const measure = () => setHeight(Math.max(240, Math.min(innerHeight - 385, 900)));
    measure();
    addEventListener("resize", measure);
    return () => removeEventListener("resize", measure);
  }, []);
  const [cursor, setCursor] = useState(null); // row and column that arrow keys have reached
  const walk = (event) => {
    const by = { ArrowUp: [-1, 0], ArrowDown: [1, 0], ArrowLeft: [0, -1], ArrowRight: [0, 1] }[event.key];
    if (!by) return;
    event.preventDefault();
    event.stopPropagation();
    const within = (value, end) => Math.max(0, Math.min(end - 1, value));
    const next = cursor ? [within(cursor[0] + by[0], images.length), within(cursor[1] + by[1], digest.columns.length)] : [Math.ceil(top / ROW), 0];
    const [above, below] = [next[0] * ROW, (next[0] + 1) * ROW - height];
    box.current.scrollTop = Math.min(above, Math.max(below, box.current.scrollTop));
    setCursor(next);
  };
  useEffect(() => { if (cursor) box.current.querySelector(`[data-cell="${cursor.join("-")}"]`)?.focus({ preventScroll: true }); }, [cursor]);
  const extremes = useMemo(() => (params.colour === "value" ? extremesOf(digest, cells) : null), [params.colour, cells]);
  const start = Math.max(0, Math.floor(top / ROW) - 4);
  const shown = images.slice(start, start + Math.ceil(height / ROW) + 8);
  const template = { gridTemplateColumns: `minmax(8.5rem, 1fr) 2.9rem repeat(${digest.columns.length}, minmax(1.3rem, 2.4rem))` };
  return html`<div class="grid-scroll">
    <div class="grid-titles" style=${template}><span></span><span class="tilt"><span>survives</span></span>${digest.columns.map((column, number) => html`
      <button key=${number} class=${`tilt ${brushes[number] ? "on" : ""} ${number && digest.columns[number - 1].lens !== column.lens ? "edge" : ""}`} title=${`${column.lens}: ${column.title}. Click to sort.`} onClick=${() => patch({ sort: `c${number}` })}><span>${column.title}</span></button>`)}</div>
    <div class="grid-body" ref=${box} tabindex="0" role="region" aria-label="Images" style=${{ height: `${Math.min(height, images.length * ROW + 2)}px` }} onScroll=${(event) => setTop(event.target.scrollTop)} onKeyDown=${walk}>
      <div style=${{ height: `${images.length * ROW}px`, position: "relative" }}>
        ${shown.map((image, number) => html`<div class="grid-row" key=${image} style=${{ ...template, top: `${(start + number) * ROW}px` }}>
          <a class="who" href=${href("break", { run, image: digest.images.id[image] })} title=${`${digest.images.name[image]} (${digest.images.labels[digest.images.label[image]]})`}>
            <${Thumb} src=${thumbnail(run, digest.images.id[image])} size=${32} /><span class="clip">${firstName(digest.images.labels[digest.images.label[image]]) || shortName(digest.images.name[image])}</span></a>
          <span class="num small muted">${Number.isNaN(hardness[image]) ? "–" : percent(hardness[image])}</span>
          ${digest.columns.map((column, at) => html`<${Cell} key=${at} digest=${digest} column=${column} at=${at} row=${start + number} image=${image} code=${cells.first[at * digest.count + image]} value=${cells.value[at * digest.count + image]}
            extremes=${extremes && extremes[at]} open=${params.image === digest.images.id[image] && Number(params.col) === at} />`)}
        </div>`)}
      </div>
    </div></div>`;
}

function Cell({ digest, column, at, row, image, code, value, extremes, open }) {
  const bin = extremes ? valueBin(column, value, extremes) : binOf(digest, code);
  const wrong = code === digest.codes.wrong;
  const said = extremes && !Number.isNaN(value) ? `${column.what}: ${column.points ? percent(value, 1) : value.toPrecision(3)}` : describeCode(digest, code);
  const edge = at && digest.columns[at - 1].lens !== column.lens;
  return html`<button class=${`cell ${bin < 0 ? (wrong ? "wrong" : "none") : `h${bin}`} ${edge ? "edge" : ""}`} aria-label=${`${shortName(digest.images.name[image])}, ${column.title}: ${said}`} title=${`${column.title}: ${said}`}
    aria-pressed=${open} tabindex="-1" data-cell=${`${row}-${at}`} onClick=${() => patch({ image: digest.images.id[image], col: at, at: null }, { push: true })}></button>`;
}

const Scale = ({ colour }) => html`<p class="scale small muted"><span>${colour === "first" ? "breaks at once" : "worst"}</span>
  ${Array.from({ length: 11 }, (_, bin) => html`<span key=${bin} class=${`cell h${bin}`}></span>`)}<span>${colour === "first" ? "survives the whole range" : "best"}</span>
  <span class="both"><span class="cell wrong"></span>wrong when clean</span><span class="both"><span class="cell none"></span>not tested</span></p>`;
