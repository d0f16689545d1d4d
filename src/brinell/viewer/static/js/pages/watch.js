// Watch a run in progress: units of work, rate, time left, and figures as they fill in.
import { html, useEffect, useState, useAsync } from "../lib.js";
import { forget, getJson, path } from "../api.js";
import { loadHeadline, loadRuns } from "../data.js";
import { href, patch } from "../route.js";
import { Choice, Empty, Failed, Loaded, Loading, clock, count } from "../ui.js";

const EVERY = 2000; // milliseconds

export function Watch({ params, site }) {
  const loaded = useAsync(async () => (await loadRuns()).filter((run) => !run.problem), []);
  return html`<${Loaded} state=${loaded} what="Looking for runs">${(runs) => {
    const run = runs.find((one) => one.id === params.run) || runs.find((one) => !one.finished) || runs[0];
    if (!run) return html`<${Empty} title="No runs here yet"><p>Start one in a terminal, and this page follows it.</p><//>`;
    return html`<div class="page"><div class="toolbar"><h1>Watch</h1><${Choice} label="Run" value=${run.id} options=${runs.map((one) => [one.id, `${one.id}${one.finished ? "" : " (in progress)"}`])} onChange=${(value) => patch({ run: value }, { push: true })} /></div>
      <${Following} key=${run.id} run=${run.id} bundle=${site.bundle} /></div>`;
  }}<//>`;
}

function Following({ run, bundle }) {
  const [state, setState] = useState(null);
  const [headline, setHeadline] = useState(null);
  const [error, setError] = useState(null);
  useEffect(() => {
    let current = true;
    let timer;
    const look = async () => {
      try {
        const found = await getJson(path("runs", run, "watch.json"));
        if (!current) return;
        setState(found);
        setError(null);
        if (found.units) {
          forget(path("runs", run, ""));
          setHeadline(await loadHeadline(run));
        }
        if (!found.finished && !bundle) timer = setTimeout(look, EVERY);
      } catch (problem) {
        if (current) { setError(problem); timer = setTimeout(look, 3 * EVERY); }
      }
    };
    look();
    return () => { current = false; clearTimeout(timer); };
  }, [run]);
  if (error && !state) return html`<${Failed} error=${error} />`;
  if (!state) return html`<${Loading} what="Looking at the run" />`;
  const total = state.jobs.reduce((sum, job) => sum + (job.total || job.done), 0);
  return html`<div class="watch">
    <section class="card" aria-label="Progress">
      <h2>${state.finished ? "Finished" : stage(state)}</h2>
      <p class="tiles">
        <span><strong>${state.images === null ? "–" : state.images.toLocaleString("en")}</strong> images</span>
        <span><strong>${state.units}</strong>${total > state.units ? ` of ${total}` : ""} units of work</span>
        ${!state.finished && html`<span><strong>${state.per_minute === null ? "–" : state.per_minute < 10 ? state.per_minute.toFixed(1) : Math.round(state.per_minute)}</strong> units/min</span>
        <span><strong>${state.seconds_left === null ? "–" : clock(state.seconds_left)}</strong> ${state.lenses_left ? `left of what has begun; ${count(state.lenses_left, "job")} to come` : "left"}</span>`}</p>
      ${!state.finished && state.idle > 300 && html`<p class="note">Nothing was written for ${clock(state.idle)}. If the run was interrupted, rerun its command to resume.</p>`}
      <ul class="jobs">${state.jobs.map((job) => html`<li key=${`${job.lens} ${job.model}`}><span class="clip">${job.lens}</span><span class="clip muted">${job.model}</span>
        <span class="meter" role="progressbar" aria-label=${`${job.lens}, ${job.model}`} aria-valuemin="0" aria-valuemax=${job.total || job.done || 1} aria-valuenow=${job.done}><span style=${{ width: `${job.total ? (100 * job.done) / job.total : state.finished && job.done ? 100 : 0}%` }}></span></span>
        <span class="num small">${job.done}${job.total ? ` / ${job.total}` : ""}</span></li>`)}</ul>
      <p class="links"><a href=${href("explore", { run })}>Explore what is there</a><a href=${href("break", { run })}>Break it</a></p>
    </section>
    <section class="card" aria-label="Figures so far"><h2>Hardness ${state.finished ? "" : "so far"}</h2>
      ${headline ? headline.map((one) => html`<div key=${one.model} class="so-far"><h3>${one.model}</h3>${one.hardness.map((each) => html`<div class="meter-row" key=${each.lens}><span class="clip">${each.lens}</span><span class="meter"><span style=${{ width: `${each.value}%` }}></span></span><span class="num">${each.value.toFixed(0)}</span><span class="small muted">${count(each.images, "image")}</span></div>`)}</div>`)
        : state.units ? html`<${Loading} what="Reading rows" />` : html`<p class="muted">Figures appear when the first unit of work is written.</p>`}</section></div>`;
}

const stage = (state) => (state.images === null ? "Reading images" : !state.answered ? "Asking about clean images" : "In progress");
