// The bench with models that answer now.
import { html, useAsync, useEffect, useLatest, useMemo, useState } from "../lib.js";
import { getJson, path, post } from "../api.js";
import { loadCells, share } from "../data.js";
import { patch } from "../route.js";
import { Failed, Loading } from "../ui.js";
import { Bench, firstBreak, imageKeys } from "./bench.js";

const same = (a, b) => Math.abs(a - b) < 1e-9;

export function LiveBench({ run, digest, image, params, theme, models, opened, all }) {
  const names = opened.map((one) => one.model);
  const lead = opened.find((one) => one.model === params.see) || opened[0];
  const photo = useAsync(async () => (params.photo ? { photo: params.photo } : post("original", { run, image })), [run, image, params.photo]);
  const id = photo.data && !photo.loading ? photo.data.photo : null;
  const changes = useAsync(async () => (id ? getJson(path("live", "changes", lead.model, `${id}.json`)) : undefined), [id, lead.model]);
  if (photo.error) return html`<${Failed} error=${photo.error} />`;
  if (changes.error) return html`<${Failed} error=${changes.error} />`;
  if (!id || !changes.data) return html`<${Loading} what="Preparing the photograph" />`;
  return html`<${Turning} key=${`${id} ${names}`} run=${run} digest=${digest} image=${image} params=${params} theme=${theme} models=${models} opened=${opened} lead=${lead} photo=${id} changes=${changes.data} size=${photo.data} all=${all} />`;
}

function Turning({ run, digest, image, params, theme, models, opened, lead, photo, changes, size, all }) {
  const names = opened.map((one) => one.model);
  const change = changes.find((one) => one.id === params.change) || changes[0];
  const starts = change.sliders.map((slider) => (slider.neutral === null ? slider.start : slider.neutral));
  const given = params.p ? params.p.split("_").map(Number) : [];
  const base = given.length === starts.length && given.every(Number.isFinite) ? given : starts;
  const turned = change.sliders.findIndex((slider) => slider.neutral !== null);
  const axis = Math.min(change.sliders.length - 1, params.axis === undefined ? turned : Number(params.axis) || 0);
  const slider = change.sliders[axis];
  const parameters = base.map((value, number) => (number === axis && params.at !== undefined && params.at !== null ? Number(params.at) : value));
  const value = parameters[axis];
  const others = parameters.map((one, number) => (number === axis ? 0 : one)).join("_");
  const [point, setPoint] = useState(null);
  const [ranks, setRanks] = useState({});
  const [ranking, setRanking] = useState(null);
  const [notes, setNotes] = useState(null);
  const [busy, setBusy] = useState(false);
  const sweep = useAsync((signal) => post("sweep", { photo, change: change.id, parameters, axis, models: names }, { signal }), [photo, change.id, axis, others, names.join()]);
  const ready = sweep.data && sweep.data.values.length && !sweep.loading ? sweep.data : null;
  const ask = useLatest(async (request) => {
    try { setPoint({ key: request.key, ...(await post("sweep", { ...request, values: [request.value] })) }); } catch (error) { setNotes(error.message); }
  });
  const key = `${change.id} ${axis} ${others} ${value}`;
  const index = ready ? ready.values.findIndex((one) => same(one, value)) : -1;
  useEffect(() => { if (index < 0) ask({ photo, change: change.id, parameters, axis, models: names, value, key }); }, [ready, key]);
  useEffect(() => setNotes(null), [change.id, photo]);
  useEffect(() => {  // what the run has measured about this image, until everything is tried live
    if (!digest || params.photo) return;
    loadCells(run, digest, digest.models.includes(names[0]) ? names[0] : digest.models[0]).then((cells) => {
      const at = digest.position.get(image);
      const known = {};
      digest.columns.forEach((column, number) => {
        const one = share(digest, cells.first[number * digest.count + at]);
        if (changes.some((each) => each.id === column.operator)) known[column.operator] = one === 1 ? 2 : one;
      });
      setRanks((before) => ({ ...known, ...before }));
    });
  }, [image, photo]);
  const track = useMemo(() => ({
    ...(ready || { values: [], captions: [], models: [] }), low: slider.low, high: slider.high, neutral: slider.neutral ?? slider.low, axis: slider.name.replace(/_/g, " "),
    stride: ready ? Math.max(1, Math.round((ready.values[1] - ready.values[0]) / slider.step)) : 1,
  }), [ready, change.id, axis]);
  const exact = index < 0 && point && point.key === key;
  const answers = useMemo(() => {
    if (!ready && !exact) return point && point.models.length === names.length ? point.models.map((one) => describe(one, 0)) : names.map((model) => ({ model, top: [], broken: null, label: "" }));
    const source = exact ? point : ready;
    const near = exact ? 0 : index >= 0 ? index : ready.values.reduce((best, one, number) => (Math.abs(one - value) < Math.abs(ready.values[best] - value) ? number : best), 0);
    return source.models.map((one) => describe(one, near));
  }, [ready, point, key]);
  const caption = exact ? point.captions[0] : index >= 0 && ready ? ready.captions[index] : "";
  const url = (values, kind) => path("live", "images", lead.model, photo, change.id, `${values.join("_")}.${kind}`);
  const clean = change.sliders.map((one) => (one.neutral === null ? one.start : one.neutral));
  const setValue = (next) => patch({ at: Number(next.toFixed(6)) });
  const choose = (next) => patch({ change: next, at: null, p: null, axis: null }, { push: true });
  const find = async () => {
    setBusy(true);
    try { setNotes(await findBreak({ photo, change, names, ready, track, axis, setValue })); } catch (error) { setNotes(error.message); }
    setBusy(false);
  };
  const rank = async () => {
    for (const one of changes) {
      setRanking(one.title);
      try { const first = await firstOf(photo, one, names.slice(0, 1)); setRanks((before) => ({ ...before, [one.id]: first })); } catch (error) { setNotes(error.message); break; }
    }
    setRanking(null);
    patch({ sorted: 1 });
  };
  const actions = {
    choose, find, rank, ranking, see: (model) => patch({ see: model === names[0] ? null : model }), sorted: Boolean(params.sorted),
    save: { href: url(parameters, "png"), name: `${change.name}-${parameters.join("_")}.png` },
    copies: copies({ photo, change, parameters, lead: lead.model, file: params.photoName || (digest && image ? digest.images.name[digest.position.get(image)] : null) }),
  };
  const seen = answers.find((one) => one.model === lead.model);
  const boxes = lead.detector && seen ? { cleanMarks: seen.cleanMarks || [], marks: seen.marks || [] } : {};
  const extra = html`<${Extra} change=${change} axis=${axis} parameters=${parameters} models=${models} names=${names} />`;
  return html`${sweep.error && html`<${Failed} error=${sweep.error} />`}
    <${Bench} changes=${changes} kinds=${[...new Set(changes.map((one) => one.kind))]} change=${change} track=${track} value=${value} setValue=${setValue} step=${slider.step} answers=${answers}
      pictures=${{ clean: url(clean, "webp"), changed: url(parameters, "webp"), caption, model: lead.model, pixels: lead.segmenter, ...boxes }} extra=${extra} actions=${actions} notes=${notes} theme=${theme} ranks=${ranks}
      images=${digest && image ? imageKeys(all, image) : null} busy=${busy} place=${placing(change, lead, size, parameters)} />`;
}

const describe = (one, at) => ({ model: one.model, label: one.label, given: one.given, top: one.top[at], broken: one.broken[at], mse: one.mse && one.mse[at], marks: one.marks[at], cleanMarks: one.clean_marks });

// The knob, or whichever lens searches over this change; without one, the first break of the sweep, which has every level.
async function findBreak({ photo, change, names, ready, track, axis, setValue }) {
  const found = await post("break", { photo, change: change.id, models: names });
  const parts = [];
  let best = null;
  ready.models.forEach((one) => {
    const searched = found[one.model];
    const first = firstBreak(ready.values, one.broken, track.neutral);
    const hit = searched && searched.parameters && searched.parameters.length === change.sliders.length
      ? { value: searched.parameters[axis], caption: searched.caption }
      : !searched && first !== null ? { value: ready.values[first], caption: ready.captions[first] } : null;
    const cost = searched ? ` (${searched.queries} queries)` : "";
    parts.push(hit ? `${one.model} breaks at ${hit.caption}${cost}` : `${one.model} survives${cost}`);
    if (hit && (best === null || Math.abs(hit.value - track.neutral) < Math.abs(best - track.neutral))) best = hit.value;
  });
  if (best !== null) setValue(best);
  return parts.join("; ");
}

// The share of its range at which a change first breaks a model: 2 if it never does.
async function firstOf(photo, change, models) {
  const axis = change.sliders.findIndex((slider) => slider.neutral !== null);
  const parameters = change.sliders.map((slider) => (slider.neutral === null ? slider.start : slider.neutral));
  const found = await post("sweep", { photo, change: change.id, parameters, axis, models });
  const { neutral, low, high } = change.sliders[axis];
  const first = firstBreak(found.values, found.models[0].broken, neutral);
  return first === null ? 2 : Math.abs(found.values[first] - neutral) / Math.max(high - neutral, neutral - low);
}

function copies({ photo, change, parameters, lead, file }) {
  const recipe = async (kind) => (await getJson(path("live", "recipes", lead, photo, change.id, `${parameters.join("_")}.json`)))[kind].replaceAll("photo.jpg", file || "photo.jpg");
  return [
    ["Command", () => recipe("command")],
    ["Python", () => recipe("python")],
    ["Link", () => location.href],
  ];
}

// Spots and windows are placed by a click on the image: from the model input back to the original.
function placing(change, model, size, parameters) {
  const at = ["_x", "_y"].map((end) => change.sliders.findIndex((slider) => slider.neutral === null && slider.name.endsWith(end)));
  if (at.includes(-1) || !size.width) return null;
  return (event) => {
    const bounds = event.currentTarget.getBoundingClientRect();
    const shares = [(event.clientX - bounds.left) / bounds.width, (event.clientY - bounds.top) / bounds.height];
    const [, height, width] = model.input;
    const scale = model.short_side ? model.short_side / Math.min(size.width, size.height) : null;
    const original = [size.width, size.height].map((side, number) => {
      const input = number ? height : width;
      return scale ? (shares[number] * input + (side * scale - input) / 2) / scale : shares[number] * side;
    });
    const next = [...parameters];
    at.forEach((where, number) => { next[where] = Math.round(Math.min(change.sliders[where].high, Math.max(0, original[number]))); });
    patch({ p: next.join("_") });
  };
}

function Extra({ change, axis, parameters, models, names }) {
  const turn = (number, value) => { const next = [...parameters]; next[number] = value; patch({ p: next.join("_") }); };
  return html`${change.sliders.length > 1 && html`<div class="more-sliders">${change.sliders.map((slider, number) => number !== axis && html`<label key=${slider.name}>
      <span>${slider.name.replace(/_/g, " ")}</span>
      <input type="range" min=${slider.low} max=${slider.high} step=${slider.step} value=${parameters[number]} onInput=${(event) => turn(number, Number(event.target.value))} />
      <output class="num">${Number(parameters[number].toPrecision(3))}</output>
      <button class="quiet" title="Draw the curve along this parameter" onClick=${() => patch({ axis: number, at: parameters[number], p: parameters.join("_") })}>sweep</button></label>`)}</div>`}
    ${models.length > 1 && html`<fieldset class="models"><legend>Models</legend>${models.map((model) => html`<label key=${model.name} title=${model.source}>
      <input type="checkbox" checked=${names.includes(model.name)} disabled=${names.length === 1 && names[0] === model.name}
        onChange=${() => patch({ models: (names.includes(model.name) ? names.filter((name) => name !== model.name) : [...names, model.name]).join(",") })} /> ${model.name}</label>`)}</fieldset>`}`;
}
