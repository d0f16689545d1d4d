// Compare two models, of one run or of two: what was lost and gained, operator by operator and image by image.
import { html, useAsync, useMemo, useState } from "../lib.js";
import { getJson, path } from "../api.js";
import { loadCells, loadDigest, loadRuns, share, thumbnail } from "../data.js";
import { Files, toCsv } from "../files.js";
import { href, patch } from "../route.js";
import { Choice, Empty, Icon, Loaded, Thumb, count, firstName, percent } from "../ui.js";

const SHOWN = 24; // images in each list

export function Compare({ params }) {
  const loaded = useAsync(async () => (await loadRuns()).filter((run) => !run.problem && run.images), []);
  return html`<${Loaded} state=${loaded} what="Looking for runs">${(runs) => {
    const a = runs.find((run) => run.id === (params.a || params.run)) || runs[0];
    const b = runs.find((run) => run.id === params.b) || a;
    if (!a || (a === b && a.models.length < 2)) return html`<${Empty} title="Nothing to compare"><p>Compare two runs on the same images, or a run of two models or more:</p>
      <pre><code>brinell run --model NEW --model OLD --data photos/</code></pre><//>`;
    const names = (run) => run.models.map((model) => model.name);
    const old = names(a).includes(params.old) ? params.old : names(a)[0];
    const wanted = names(b).includes(params.new) ? params.new : a === b ? names(b).find((name) => name !== old) : names(b).includes(old) ? old : names(b)[0];
    return html`<${Page} runs=${runs} a=${a} b=${b} old=${old} wanted=${wanted} />`;
  }}<//>`;
}

function Page({ runs, a, b, old, wanted }) {
  const subjects = runs.flatMap((run) => run.models.map((model) => [`${run.id}\n${model.name}`, runs.length > 1 ? `${model.name} (${run.id})` : model.name]));
  const figures = useAsync((signal) => getJson(path("compare", a.id, old, b.id, `${wanted}.json`), { signal }), [a.id, b.id, old, wanted]);
  const cells = useAsync(async () => {
    const [one, two] = await Promise.all([loadDigest(a.id), loadDigest(b.id)]);
    return { a: a.id, b: b.id, old, wanted, one, two, before: await loadCells(a.id, one, old), after: await loadCells(b.id, two, wanted) };
  }, [a.id, b.id, old, wanted]);
  return html`<div class="page wide">
    <div class="toolbar"><h1>Compare</h1>
      <${Choice} label="Old" value=${`${a.id}\n${old}`} options=${subjects} onChange=${(value) => patch({ a: value.split("\n")[0], old: value.split("\n")[1] }, { push: true })} />
      <button class="quiet" aria-label="Swap" title="Swap" onClick=${() => patch({ a: b.id, old: wanted, b: a.id, new: old }, { push: true })}>⇄</button>
      <${Choice} label="New" value=${`${b.id}\n${wanted}`} options=${subjects} onChange=${(value) => patch({ b: value.split("\n")[0], new: value.split("\n")[1] }, { push: true })} /></div>
    <div class="compare">
      <section class="card" aria-label="Figures">${figures.error ? html`<p class="note">${figures.error.status === 404 ? "These two were not compared when the bundle was written." : figures.error.message}</p>` : html`<${Loaded} state=${figures} what="Comparing">${(found) => html`<${Figures} found=${found} />`}<//>`}</section>
      <${Loaded} state=${cells} what="Reading rows">${(data) => html`<${Changes} ...${data} />`}<//>
    </div></div>`;
}

function Figures({ found }) {
  return html`<h2>${found.title}</h2><ul class="small says">${found.verdict.split(/(?<=\.) (?=[A-Z])/).map((sentence) => html`<li key=${sentence}>${sentence}</li>`)}</ul><p class="small muted">${count(found.images, "image")} in both.${found.notes.map((note) => ` ${note.charAt(0).toUpperCase()}${note.slice(1)}.`).join("")}</p>
    ${found.measures.map((measure) => html`<${Deltas} key=${measure.name} measure=${measure} />`)}`;
}

const COLUMNS = [["operator", (delta) => delta.title], ["old", (delta) => parseFloat(delta.old)], ["new", (delta) => parseFloat(delta.new)], ["change", (delta) => delta.gain ?? 0], ["− / +", (delta) => delta.better - delta.worse], ["verdict", (delta) => delta.verdict]];

function Deltas({ measure }) {
  const [sort, setSort] = useState(null); // [column, downwards]
  const order = (a, b) => { const [x, y] = [a, b].map(COLUMNS[sort[0]][1]); return (sort[1] ? -1 : 1) * (typeof x === "string" ? x.localeCompare(y) : (x || 0) - (y || 0)); };
  const shown = sort ? [...measure.deltas].sort(order) : measure.deltas;
  const state = (number) => (sort && sort[0] === number ? (sort[1] ? "descending" : "ascending") : "none");
  return html`<div><h3 class="with-files">${measure.what} <${Files} name=${`compare-${measure.name.replace(/\W+/g, "-")}`} csv=${() => toCsv(["operator", "old", "new", "change", "images worse", "images better", "verdict"], measure.deltas.map((delta) => [delta.title, delta.old, delta.new, delta.change, delta.worse, delta.better, delta.verdict]))} /></h3>
    <div class="table-scroll" tabindex="0" role="region" aria-label=${measure.what}><table class="deltas"><thead><tr>${COLUMNS.map(([name], number) => html`<th key=${name} scope="col" aria-sort=${state(number)}><button class="quiet sort" title=${name === "− / +" ? "images that are worse or better; click to sort" : "click to sort"} onClick=${() => setSort(state(number) === "descending" ? null : [number, state(number) === "ascending"])}>${name}${{ ascending: " ↑", descending: " ↓", none: "" }[state(number)]}</button></th>`)}</tr></thead>
      <tbody>${shown.map((delta) => html`<tr key=${delta.operator}><th scope="row">${delta.title}</th><td>${delta.old}</td><td>${delta.new}</td><td>${delta.change}</td><td>${delta.worse} / ${delta.better}</td>
        <td><span class=${`verdict ${delta.verdict === "better" ? "good" : delta.verdict === "worse" ? "bad" : "plain"}`}>${delta.verdict === "better" ? html`<${Icon} name="check" />` : delta.verdict === "worse" ? html`<${Icon} name="cross" />` : null}${delta.verdict}</span></td></tr>`)}</tbody></table></div></div>`;
}

// The difference of the share of each range that an image survives, over the operators that both have.
export function differences(one, two, before, after) {
  const columns = one.columns.map((column, number) => ({ column, here: number, there: two.columns.findIndex((other) => other.lens === column.lens && other.operator === column.operator) })).filter((each) => each.there >= 0);
  const images = [];
  one.images.id.forEach((id, position) => {
    const other = two.position.get(id);
    if (other === undefined) return;
    const cells = columns.map(({ here, there }) => {
      const [was, is] = [share(one, before.first[here * one.count + position]), share(two, after.first[there * two.count + other])];
      return was === null || is === null ? null : is - was;
    });
    const known = cells.filter((cell) => cell !== null);
    if (known.length) images.push({ id, position, cells, mean: known.reduce((sum, cell) => sum + cell, 0) / known.length });
  });
  return { columns: columns.map((each) => each.column), images };
}

function Changes({ one, two, before, after, a, b, old, wanted }) {
  const { columns, images } = useMemo(() => differences(one, two, before, after), [before, after]);
  const sorted = useMemo(() => [...images].sort((x, y) => x.mean - y.mean), [images]);
  if (!images.length) return html`<section class="card" aria-label="Images"><h2>Image by image</h2><p class="muted">No image was tested under the same change in both.</p></section>`;
  const lost = sorted.filter((image) => image.mean < -0.005);
  const gained = sorted.filter((image) => image.mean > 0.005).reverse();
  const list = (title, shown) => html`<div class="card"><h2>${title}: ${count(shown.length, "image")}</h2>
    ${shown.length ? html`<div class="table-scroll" tabindex="0" role="region" aria-label=${title}><ul class="changes-list">${shown.slice(0, SHOWN).map((image) => html`<li key=${image.id}>
      <a class="who" href=${href("break", { run: a, image: image.id, ...(a === b ? { models: `${old},${wanted}` } : {}) })}><${Thumb} src=${thumbnail(a, image.id)} size=${32} /><span class="clip">${firstName(one.images.labels[one.images.label[image.position]])}</span></a>
      <span class="num">${image.mean > 0 ? "+" : "−"}${percent(Math.abs(image.mean))}</span>
      <span class="ribbon">${image.cells.map((cell, number) => html`<span key=${number} class=${`cell d${cell === null ? "n" : Math.round(4 * Math.max(-1, Math.min(1, cell))) + 4}`} title=${`${columns[number].title}: ${cell === null ? "not tested by both" : `${cell > 0 ? "+" : ""}${Math.round(100 * cell)} points of the range`}`}></span>`)}</span></li>`)}</ul></div>` : html`<p class="muted">None.</p>`}
    ${shown.length > SHOWN && html`<p class="small muted">and ${(shown.length - SHOWN).toLocaleString("en")} more</p>`}</div>`;
  return html`<section class="panels" aria-label="Images">${list("Lost", lost)}${list("Gained", gained)}
    <p class="scale small muted"><span>breaks earlier</span>${[0, 1, 2, 3, 4, 5, 6, 7, 8].map((step) => html`<span key=${step} class=${`cell d${step}`}></span>`)}<span>holds longer</span><span>one cell per operator: ${columns.map((column) => column.title).join(", ")}</span></p></section>`;
}
