// Break it: a photograph, a slider, and what models say. Live where a model can be opened, from stored rows otherwise.
import { html, useAsync, useRef, useSelectedInSight, useState } from "../lib.js";
import { getJson, path, post } from "../api.js";
import { loadDigest, loadRun, loadRuns, pictured, thumbnail } from "../data.js";
import { patch } from "../route.js";
import { Choice, Empty, Icon, Loaded, Loading, Thumb, shortName } from "../ui.js";
import { LiveBench } from "./break_live.js";
import { StoredBench } from "./break_stored.js";

const MANY = 60; // thumbnails in the strip

export function Break({ params, site, theme }) {
  const setting = useAsync(async () => {
    const runs = (await loadRuns()).filter((run) => !run.problem && run.images);
    const models = site.live ? await getJson(path("live", "models.json")) : [];
    return { runs, models };
  }, []);
  return html`<${Loaded} state=${setting} what="Looking for runs and models">${({ runs, models }) => {
    const run = params.run || (params.photo || !runs.length ? null : runs[0].id);
    if (!run && !models.length) return html`<${Nothing} />`;
    return html`<${Workbench} key=${run} run=${run} runs=${runs} models=${models} params=${params} site=${site} theme=${theme} />`;
  }}<//>`;
}

const Nothing = () => html`<${Empty} title="Nothing to break yet">
  <p>Start the viewer with a model, and drop in a photograph:</p><pre><code>brinell view --model efficientnet_lite0</code></pre>
  <p>or make a run first: <code>brinell demo</code>.</p><//>`;

function Workbench({ run, runs, models, params, site, theme }) {
  const loaded = useAsync(async (signal, progress) => {
    if (!run) return {};
    const [facts, digest] = await Promise.all([loadRun(run), loadDigest(run, progress)]);
    return { facts, digest };
  }, [run]);
  const [problem, setProblem] = useState(null);
  const [dropping, setDropping] = useState(false);
  const take = async (file) => {
    if (!file) return;
    setProblem(null);
    if (!site.live) { setProblem("Your own photographs need a model: run `brinell view` with the run's folder, or with --model."); return; }
    try {
      const photo = await post("photo", file);
      patch({ photo: photo.photo, photoName: file.name, image: null }, { push: true });
    } catch (error) { setProblem(error.message); }
  };
  const drop = {
    onDragOver: (event) => { event.preventDefault(); setDropping(true); },
    onDragLeave: (event) => { if (!event.currentTarget.contains(event.relatedTarget)) setDropping(false); },
    onDrop: (event) => { event.preventDefault(); setDropping(false); take(event.dataTransfer.files[0]); },
  };
  if (loaded.error || loaded.data === undefined) return html`<${Loaded} state=${loaded} what="Reading the run">${() => null}<//>`;
  const { facts, digest } = loaded.data;
  const image = params.photo ? null : params.image || (digest && pictured(site, run, digest)[0]);
  return html`<div class=${`page wide ${dropping ? "dropping" : ""}`} ...${drop}>
    <div class="toolbar">
      <h1>Break it</h1>
      ${runs.length > 0 && html`<${Choice} label="Run" value=${run || ""} options=${[...(run ? [] : [["", "none"]]), ...runs.map((one) => [one.id, one.id])]}
        onChange=${(value) => patch({ run: value, image: null, photo: null, models: null, change: null, at: null, p: null }, { push: true })} />`}
      <${Upload} take=${take} />
      ${problem && html`<span class="failed" role="alert">${problem}</span>`}
    </div>
    ${digest && html`<${Strip} run=${run} digest=${digest} all=${pictured(site, run, digest)} image=${image} photo=${params.photo} />`}
    <${Mode} run=${run} facts=${facts} digest=${digest} image=${image} models=${models} params=${params} site=${site} theme=${theme} />
    ${dropping && html`<div class="drop-note"><${Icon} name="upload" /> Drop the photograph to break it</div>`}
  </div>`;
}

function Upload({ take }) {
  const field = useRef(null);
  return html`<button onClick=${() => field.current.click()}><${Icon} name="upload" /> Your photograph</button>
    <input ref=${field} class="hidden" type="file" accept="image/*" aria-label="Your photograph" tabindex="-1" onChange=${(event) => take(event.target.files[0])} />`;
}

function Strip({ run, digest, all, image, photo }) {
  const at = Math.max(0, all.indexOf(image));
  const start = Math.max(0, Math.min(at - MANY / 2, all.length - MANY));
  const { name, label, labels } = digest.images;
  const list = useSelectedInSight(photo || image);
  const shown = all.slice(start, start + MANY).map((id) => [id, digest.position.get(id)]);
  return html`<div class="strip" ref=${list} role="listbox" aria-label="Images of the run" tabindex="0">${shown.map(([id, number]) => html`
    <button key=${id} role="option" aria-selected=${!photo && id === image} title=${`${name[number]} (${labels[label[number]]})`} aria-label=${shortName(name[number])} tabindex="-1"
      onClick=${() => patch({ image: id, photo: null, at: null }, { push: true })}><${Thumb} src=${thumbnail(run, id)} size=${52} /></button>`)}
    ${all.length > MANY && html`<span class="muted small">${(at + 1).toLocaleString("en")} of ${all.length.toLocaleString("en")}</span>`}
  </div>`;
}

// Live if a model opens, else stored; the reason why not is shown.
function Mode({ run, facts, digest, image, models, params, site, theme }) {
  const own = facts ? facts.models.map((model) => model.name) : [];
  const names = models.map((model) => model.name);
  const wanted = (params.models ? params.models.split(",") : own.length ? own.slice(0, 3) : names.slice(0, 1)).filter((name) => names.includes(name));
  const stored = params.mode === "stored" || !site.live || !wanted.length;
  const opened = useAsync(async () => {
    if (stored) return [];
    const found = [];
    for (const model of wanted) found.push(await post("open", { model }));
    return found;
  }, [stored, wanted.join()]);
  if (!stored && (opened.data === undefined || opened.loading)) return opened.error
    ? html`<${Loaded} state=${opened} />` : html`<${Loading} what=${`Opening ${wanted.join(" and ")}`} />`;
  const usable = (opened.data || []).filter((one) => !one.problem);
  const problems = (opened.data || []).filter((one) => one.problem);
  const common = { run, facts, digest, image, params, site, theme, all: digest && pictured(site, run, digest) };
  const why = stored ? (site.live ? null : "This page is served without models, so it shows stored answers. For live ones: brinell view RUN") : problems.map((one) => one.problem).join(" ");
  return html`${(problems.length > 0 || (stored && why)) && html`<p class="note" role="status">${why}</p>`}
    ${usable.length ? html`<${LiveBench} ...${common} models=${models} opened=${usable} />`
      : digest && image ? html`<${StoredBench} ...${common} />` : html`<${Empty} title="No model could be opened"><p>${why}</p><//>`}`;
}
