// All runs: what they tested, how hard their models are, and where to go from there.
import { html, useState, useEffect, useMemo, useAsync } from "../lib.js";
import { go, href, patch } from "../route.js";
import { loadHeadline, loadRuns, thumbnail } from "../data.js";
import { Choice, Empty, Icon, Loaded, Thumb, clock, count } from "../ui.js";

const SORTS = { newest: "Newest first", name: "Name", images: "Most images", hardest: "Hardest model first" };

export function Start({ params, site }) {
  const runs = useAsync(loadRuns, []);
  return html`<${Loaded} state=${runs} what="Looking for runs">${(found) => (found.length
    ? html`<${List} runs=${found} params=${params} />`
    : html`<${NoRuns} site=${site} />`)}<//>`;
}

const NoRuns = ({ site }) => html`<${Empty} title="No runs here yet">
  <p>A run tests models on images. Make the first one, then reload this page:</p>
  <pre><code>brinell demo</code></pre>
  <p>or open a folder that holds runs: <code>brinell view FOLDER</code>.</p>
  ${site.live && html`<p>You can also <a href="#/break">break a photograph live</a>, if the viewer was started with <code>--model</code>.</p>`}
<//>`;

function List({ runs, params }) {
  const [headlines, setHeadlines] = useState({});
  const [chosen, setChosen] = useState([]);
  const text = (params.q || "").toLowerCase();
  const sort = params.sort || "newest";
  useEffect(() => {
    let current = true;
    (async () => {
      for (const run of runs.filter((one) => !one.problem)) {
        if (!current) return;
        try {
          const headline = await loadHeadline(run.id);
          if (current) setHeadlines((before) => ({ ...before, [run.id]: headline }));
        } catch (error) {
          if (current) setHeadlines((before) => ({ ...before, [run.id]: Object.assign([], { problem: error.message }) }));
        }
      }
    })();
    return () => { current = false; };
  }, [runs]);
  const shown = useMemo(() => {
    const words = (run) => [run.id, run.folder, run.data, ...(run.lenses || []), ...(run.models || []).map((model) => model.name)].join(" ").toLowerCase();
    const mean = (list) => (list.length ? list.reduce((sum, one) => sum + one.value, 0) / list.length : -1);
    const best = (run) => Math.max(-1, ...(headlines[run.id] || []).map((one) => mean(one.hardness)));
    const by = {
      newest: (a, b) => (b.created || "").localeCompare(a.created || ""),
      name: (a, b) => a.id.localeCompare(b.id),
      images: (a, b) => (b.images || 0) - (a.images || 0),
      hardest: (a, b) => best(b) - best(a),
    };
    return runs.filter((run) => words(run).includes(text)).sort(by[sort] || by.newest);
  }, [runs, text, sort, headlines]);
  const toggle = (id) => setChosen(chosen.includes(id) ? chosen.filter((one) => one !== id) : [...chosen, id].slice(-2));
  return html`<div class="page">
    <div class="toolbar">
      <h1>Runs</h1>
      <label class="search"><${Icon} name="search" /><span class="hidden">Filter runs</span>
        <input type="search" placeholder="Filter by name, model, data or lens" value=${params.q || ""} onInput=${(event) => patch({ q: event.target.value })} /></label>
      <${Choice} label="Sort" value=${sort} options=${Object.entries(SORTS)} onChange=${(value) => patch({ sort: value })} />
      ${runs.length > 1 && html`<button class="primary" disabled=${chosen.length !== 2} onClick=${() => go("compare", { a: chosen[0], b: chosen[1] })}>Compare ${chosen.length === 2 ? "the two" : "two runs"}</button>`}
    </div>
    ${shown.length ? html`<ul class="runs">${shown.map((run) => html`<${Card} key=${run.id} run=${run} headline=${headlines[run.id]} chosen=${chosen.includes(run.id)} toggle=${runs.length > 1 ? () => toggle(run.id) : null} />`)}</ul>`
      : html`<${Empty} title="No run matches"><p>${count(runs.length, "run")} in all. <button onClick=${() => patch({ q: "" })}>Show all</button></p><//>`}
  </div>`;
}

function Card({ run, headline, chosen, toggle }) {
  if (run.problem) return html`<li class="card run problem"><div class="run-text"><h2>${run.id}</h2><p class="failed">${run.problem}</p></div></li>`;
  const open = run.finished ? "explore" : "watch";
  const image = headline && headline.find((one) => one.image)?.image;
  return html`<li class="card run">
    <${Thumb} src=${image && thumbnail(run.id, image)} size=${96} />
    <div class="run-text">
      <h2><a href=${href(open, { run: run.id })}>${run.id}</a> ${!run.finished && html`<span class="tag warn">in progress</span>`}</h2>
      <p class="muted">${run.data} · ${run.images === null ? "no images yet" : count(run.images, "image")} · ${(run.created || "").slice(0, 16)}${run.seconds ? ` · ${clock(run.seconds)}` : ""}</p>
      <p class="tags">${run.lenses.map((lens) => html`<span class="tag" key=${lens}>${lens}</span>`)}</p>
      <p class="links"><a href=${href("explore", { run: run.id })}>Explore</a><a href=${href("break", { run: run.id })}>Break it</a><a href=${href("maps", { run: run.id })}>Maps</a>${run.models.length > 1 && html`<a href=${href("compare", { a: run.id })}>Compare its models</a>`}</p>
    </div>
    <${Headline} run=${run} headline=${headline} />
    ${toggle && html`<label class="pick"><input type="checkbox" checked=${chosen} onChange=${toggle} /> <span>compare</span></label>`}
  </li>`;
}

// Hardness of every model, a bar for each lens.
function Headline({ run, headline }) {
  if (!headline) return html`<div class="headline muted">${run.models.map((model) => html`<div class="meter-row" key=${model.name}><span class="clip">${model.name}</span><span class="small">reading rows …</span></div>`)}</div>`;
  if (headline.problem) return html`<div class="headline failed small" role="alert">${headline.problem}</div>`;
  return html`<div class="headline">
    ${headline.map((one) => html`<div class="meter-row" key=${one.model}>
      <span class="clip" title=${one.model}>${one.model}</span>
      <span class="lens-bars" role="img" aria-label=${`hardness: ${one.hardness.map((each) => `${each.lens} ${each.value.toFixed(0)}`).join(", ")}`}>${one.hardness.map((each) => html`<span key=${each.lens} title=${`${each.lens}: hardness ${each.value.toFixed(0)} of 100, over ${each.images} images`}>
        <span class="meter"><span style=${{ width: `${each.value}%` }}></span></span><span class="lens-name"><span class="clip">${each.lens}</span> <strong>${each.value.toFixed(0)}</strong></span></span>`)}</span>
      <span class="small muted clip">${one.weakest ? html`breaks most easily under <a href=${href("explore", { run: run.id, model: one.model, image: one.weakest.image, col: one.weakest.column })} aria-label=${`See what ${one.weakest.title} does to ${one.model}`}>${one.weakest.title}: see it</a>` : "no image was tested"}</span>
    </div>`)}</div>`;
}
