// Maps: a model's answers over the places of a photograph. Zoom, hover, and see what the model saw there.
import { html, useAsync, useEffect, useKeys, useMemo, useRef, useSelectedInSight, useState } from "../lib.js";
import { getJson, path } from "../api.js";
import { colours } from "../chart.js";
import { loadDigest, loadHeadline, loadRuns, photograph, pictured, replay, thumbnail } from "../data.js";
import { patch } from "../route.js";
import { Choice, Empty, Loaded, Picture, Thumb, Verdict, firstName, percent, shortName } from "../ui.js";

const STRIP = 40; // thumbnails
const VIRIDIS = ["#440154", "#482878", "#3e4989", "#31688e", "#26828e", "#1f9e89", "#35b779", "#6ece58", "#b5de2b", "#fde725"]; // matplotlib's, which everyone can order

export function Maps({ params, site, theme }) {
  const loaded = useAsync(async (signal, progress) => {
    const runs = (await loadRuns()).filter((run) => !run.problem && run.images);
    const run = params.run || runs[0]?.id;
    return run ? { runs, run, digest: await loadDigest(run, progress), headline: await loadHeadline(run, progress) } : null;
  }, [params.run]);
  const outdated = loaded.loading && params.run && loaded.data?.run !== params.run;
  return html`<${Loaded} state=${outdated ? { progress: loaded.progress } : loaded} what="Reading the run">${(data) => (data ? html`<${Page} ...${data} params=${params} site=${site} theme=${theme} />`
    : html`<${Empty} title="No runs here yet"><p>Make one with <code>brinell demo</code>.</p><//>`)}<//>`;
}

function Page({ runs, run, digest, headline, params, site, theme }) {
  const all = pictured(site, run, digest);
  const model = digest.models.includes(params.model) ? params.model : digest.models[0];
  const fragile = headline.find((one) => one.model === model)?.image;
  const image = digest.position.has(params.image) ? params.image : all.includes(fragile) ? fragile : all[0];
  const found = useAsync(async (signal) => ({ run, model, image, data: await getJson(path("runs", run, "maps", model, `${image}.json`), { signal }) }), [run, model, image]);
  const at = Math.max(0, all.indexOf(image));
  const step = (by) => patch({ image: all[(at + by + all.length) % all.length] }, { push: true });
  useKeys({ ArrowLeft: () => step(-1), ArrowRight: () => step(1) });
  const start = Math.max(0, Math.min(at - STRIP / 2, all.length - STRIP));
  const list = useSelectedInSight(image);
  return html`<div class="page wide">
    <div class="toolbar"><h1>Maps</h1>
      <${Choice} label="Run" value=${run} options=${runs.map((one) => [one.id, one.id])} onChange=${(value) => patch({ run: value, image: null, model: null }, { push: true })} />
      ${digest.models.length > 1 && html`<${Choice} label="Model" value=${model} options=${digest.models.map((name) => [name, name])} onChange=${(value) => patch({ model: value }, { push: true })} />`}</div>
    <div class="strip" ref=${list} role="listbox" aria-label="Images of the run" tabindex="0">${all.slice(start, start + STRIP).map((id) => html`<button key=${id} role="option" tabindex="-1" aria-selected=${id === image}
      aria-label=${shortName(digest.images.name[digest.position.get(id)])} onClick=${() => patch({ image: id }, { push: true })}><${Thumb} src=${thumbnail(run, id)} size=${52} /></button>`)}</div>
    <${Loaded} state=${found} what="Reading maps">${(of) => (of.data.maps.length ? html`<${Overlay} key=${`${of.image} ${of.model}`} ...${of} params=${params} theme=${theme} />`
      : html`<${Empty} title="This image has no maps"><p>Lenses that ask about places store them. ${digest.columns.length ? "This run has none, or left this image out." : ""}</p><p>Try <code>brinell run --preset quick --lens NAME</code> with a lens from <code>brinell ls lenses</code>.</p><//>`)}<//>
  </div>`;
}

function Overlay({ run, model, image, data, params, theme }) {
  const kinds = [...new Set(data.maps.map((map) => map.lens))];
  const kind = kinds.includes(params.lens) ? params.lens : kinds[0];
  const maps = useMemo(() => data.maps.filter((map) => map.lens === kind).sort((a, b) => a.size - b.size), [data, kind]);
  const index = Math.min(maps.length - 1, Math.max(0, Number(params.size) || 0));
  const map = maps[index];
  const layer = map.layers.find((one) => one.name === params.layer) || map.layers[0];
  const [opacity, setOpacity] = useState(0.55);
  const [place, setPlace] = useState(null);
  const column = { lens: map.lens, operator: map.operator };
  const key = place && keyOf(map, place);
  return html`<div class="maps" style=${{ "--tall": `calc((100vh - 21rem) * ${data.width / data.height})` }}>
    <section class="card" aria-label="Map">
      <div class="drawer-tools">
        ${kinds.length > 1 && html`<${Choice} label="Lens" value=${kind} options=${kinds.map((one) => [one, one])} onChange=${(value) => patch({ lens: value, size: null, layer: null })} />`}
        <${Choice} label="Map" value=${layer.name} options=${map.layers.map((one) => [one.name, one.name])} onChange=${(value) => patch({ layer: value })} />
        ${maps.length > 1 && html`<label class="inline">Size <input type="range" min="0" max=${maps.length - 1} step="1" value=${index} aria-valuetext=${map.title} onInput=${(event) => { setPlace(null); patch({ size: event.target.value }); }} /></label>`}
        <label class="inline">Opacity <input type="range" min="0" max="1" step="0.05" value=${opacity} onInput=${(event) => setOpacity(Number(event.target.value))} /></label>
      </div>
      <p class="muted small">${map.title}</p>
      <${Canvas} source=${photograph(run, image)} data=${data} map=${map} layer=${layer} opacity=${opacity} place=${place} setPlace=${setPlace} theme=${theme} />
      <ul class="legend">${layer.words.map((word, number) => html`<li key=${word}><span class="patch" style=${{ background: shade(layer, number) }}></span>${word}</li>`)}</ul>
      <p class="small muted">Scroll to zoom, drag to move, double-click to reset; arrow keys move over the map when it has the focus.</p>
    </section>
    <section class="card" aria-label="What the model saw">
      ${place ? html`<h2>What ${model} saw</h2><${Picture} src=${replay(run, model, column, image, key)} alt="the model input at this place" />
        <p><strong>${firstName(data.classes[map.predictions[place[1]][place[0]]]) || "–"}</strong> <${Verdict} broken=${map.layers[0].values[place[1]][place[0]] === 0}>${map.layers[0].words[map.layers[0].values[place[1]][place[0]]] || "–"}<//></p>
        <table class="facts"><tbody><tr><th scope="row">right class</th><td>${firstName(data.clean.label)}</td></tr>
          <tr><th scope="row">its probability</th><td>${percent(map.confidences[place[1]][place[0]], 1)}</td></tr>
          <tr><th scope="row">${layer.name}</th><td>${layer.words[layer.values[place[1]][place[0]]] || "–"}</td></tr>
          <tr><th scope="row">centre</th><td>${Math.round(map.xs[place[0]])}, ${Math.round(map.ys[place[1]])} px</td></tr></tbody></table>`
        : html`<h2>What the model saw</h2><p class="muted">Move over the map: the crop or variant at that place, and the answer to it, appear here.</p>
          <table class="facts"><tbody><tr><th scope="row">clean</th><td>${firstName(data.clean.prediction)}, ${percent(data.clean.confidence)}</td></tr><tr><th scope="row">right class</th><td>${firstName(data.clean.label)}</td></tr></tbody></table>`}
    </section></div>`;
}

const keyOf = (map, [column, row]) => {
  const own = { x: map.xs[column], y: map.ys[row], left: map.xs[column] - map.extent / 2, top: map.ys[row] - map.extent / 2 };
  return map.parameters.map((part) => (typeof part === "string" ? own[part] : part)).join("_");
};

// Two or three words are told apart by hue; steps go from dark to light.
function shade(layer, number) {
  if (layer.words.length === 2) return colours(number ? "--held" : "--heat-0");
  if (layer.words.length === 3) return [colours("--void"), colours("--heat-0"), colours("--series-1")][number];
  return VIRIDIS[Math.round((number / (layer.words.length - 1)) * (VIRIDIS.length - 1))];
}

function Canvas({ source, data, map, layer, opacity, place, setPlace, theme }) {
  const canvas = useRef(null);
  const picture = useRef(null);
  const [ready, setReady] = useState(false);
  const [view, setView] = useState({ zoom: 1, x: 0, y: 0 });
  const drag = useRef(null);
  useEffect(() => {
    const loading = new Image();
    loading.onload = () => { picture.current = loading; setReady(true); };
    loading.onerror = () => { picture.current = null; setReady(true); };
    loading.src = source;
  }, [source]);
  const [wide, tall] = [Math.max(1, median(map.xs)), Math.max(1, median(map.ys))];
  useEffect(() => {
    const node = canvas.current;
    const ratio = devicePixelRatio || 1;
    const width = node.clientWidth;
    const height = Math.round((width * data.height) / data.width);
    node.width = width * ratio;
    node.height = height * ratio;
    const context = node.getContext("2d");
    const scale = (width / data.width) * view.zoom * ratio;
    context.setTransform(scale, 0, 0, scale, view.x * ratio, view.y * ratio);
    context.imageSmoothingEnabled = view.zoom < 4;
    if (picture.current) context.drawImage(picture.current, 0, 0, data.width, data.height);
    context.globalAlpha = opacity;
    layer.values.forEach((row, down) => row.forEach((value, across) => {
      if (value === null) return;
      context.fillStyle = shade(layer, value);
      context.fillRect(map.xs[across] - wide / 2, map.ys[down] - tall / 2, wide, tall);
    }));
    context.globalAlpha = 1;
    if (place) {
      const half = map.extent / 2;
      context.lineWidth = 2.5 / scale * ratio;
      context.strokeStyle = "#fff";
      context.strokeRect(map.xs[place[0]] - half, map.ys[place[1]] - half, map.extent, map.extent);
      context.lineWidth = 1 / scale * ratio;
      context.strokeStyle = "#000";
      context.strokeRect(map.xs[place[0]] - half, map.ys[place[1]] - half, map.extent, map.extent);
    }
  }, [ready, map, layer, opacity, place, view, theme, source]);
  const at = (event) => {
    const bounds = canvas.current.getBoundingClientRect();
    const scale = (bounds.width / data.width) * view.zoom;
    const [x, y] = [(event.clientX - bounds.left - view.x) / scale, (event.clientY - bounds.top - view.y) / scale];
    const [column, row] = [nearest(map.xs, x), nearest(map.ys, y)];
    return Math.abs(map.xs[column] - x) <= wide && Math.abs(map.ys[row] - y) <= tall ? [column, row] : null;
  };
  const wheel = (event) => {
    event.preventDefault();
    const bounds = canvas.current.getBoundingClientRect();
    const [x, y] = [event.clientX - bounds.left, event.clientY - bounds.top];
    setView((before) => {
      const zoom = Math.min(24, Math.max(1, before.zoom * Math.exp(-event.deltaY / 400)));
      const factor = zoom / before.zoom;
      return zoom === 1 ? { zoom, x: 0, y: 0 } : { zoom, x: x - (x - before.x) * factor, y: y - (y - before.y) * factor };
    });
  };
  useEffect(() => { canvas.current.addEventListener("wheel", wheel, { passive: false }); const node = canvas.current; return () => node.removeEventListener("wheel", wheel); }, []);
  const keys = (event) => {
    const by = { ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, -1], ArrowDown: [0, 1] }[event.key];
    if (!by) return;
    event.preventDefault();
    event.stopPropagation();
    const [column, row] = place || [0, 0];
    setPlace([Math.min(map.xs.length - 1, Math.max(0, column + by[0])), Math.min(map.ys.length - 1, Math.max(0, row + by[1]))]);
  };
  return html`<canvas class="map" ref=${canvas} tabindex="0" role="img" aria-label=${`${layer.name}: ${map.title}`} onKeyDown=${keys}
    onPointerDown=${(event) => { drag.current = { x: event.clientX - view.x, y: event.clientY - view.y }; const found = at(event); if (found) setPlace(found); }}
    onPointerUp=${() => { drag.current = null; }} onPointerLeave=${() => { drag.current = null; }} onDblClick=${() => setView({ zoom: 1, x: 0, y: 0 })}
    onPointerMove=${(event) => {
      if (drag.current && view.zoom > 1) { setView({ ...view, x: event.clientX - drag.current.x, y: event.clientY - drag.current.y }); return; }
      const found = at(event);
      if (found && (!place || found[0] !== place[0] || found[1] !== place[1])) setPlace(found);
    }}></canvas>`;
}

const nearest = (values, value) => values.reduce((best, one, index) => (Math.abs(one - value) < Math.abs(values[best] - value) ? index : best), 0);
const median = (values) => { const gaps = values.slice(1).map((value, index) => value - values[index]).sort((a, b) => a - b); return gaps[Math.floor(gaps.length / 2)] || 32; };
