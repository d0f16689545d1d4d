// The charts next to the grid: first failures by operator, classes, and what each lens says.
import { html, useAsync, useMemo, useState } from "../lib.js";
import { loadFindings } from "../data.js";
import { BINS, classes, histogram } from "../heat.js";
import { colours } from "../chart.js";
import { Files, barsSvg, toCsv } from "../files.js";
import { patch } from "../route.js";
import { CopyButton, Icon, firstName, percent } from "../ui.js";

const MOST = 12; // classes

export function Panels({ digest, cells, hardness, images, brushes, brush, label, run, model }) {
  const everything = useMemo(() => digest.images.id.map((_, number) => number), [digest]);
  const whole = useMemo(() => digest.columns.map((_, column) => histogram(digest, cells, column, everything)), [digest, cells]);
  const chosen = useMemo(() => digest.columns.map((_, column) => histogram(digest, cells, column, images)), [digest, cells, images]);
  const lenses = [...new Set(digest.columns.map((column) => column.lens))];
  return html`<section class="panels" aria-label="Figures">
    ${lenses.map((lens) => html`<div class="card" key=${lens}><h2>${lens} <${Files} name=${`${run}-${lens}-first-failures`} ...${figureOf(digest, lens, whole, chosen)} /></h2>
      <div class="histograms">${digest.columns.map((column, number) => column.lens === lens && html`<${Histogram} key=${number} column=${column} number=${number} whole=${whole[number]} chosen=${chosen[number]} range=${brushes[number]} brush=${brush} />`)}</div>
      <${Says} run=${run} lens=${lens} model=${model} /></div>`)}
    <${ClassTable} digest=${digest} hardness=${hardness} images=${images} label=${label} />
    <p class="actions"><${CopyButton} label="Image ids" text=${() => images.map((image) => digest.images.id[image]).join("\n")} /><${CopyButton} label="Link" icon="link" text=${() => location.href} /></p>
  </section>`;
}

const binName = (bin) => (bin === BINS ? "survive" : `break at ${(100 * bin) / BINS} to ${(100 * (bin + 1)) / BINS} %`);

// The histograms of a lens as files: all images in grey, selected ones in colour.
function figureOf(digest, lens, whole, chosen) {
  const own = digest.columns.map((_, number) => number).filter((number) => digest.columns[number].lens === lens);
  const colour = (bin) => colours(bin === BINS ? "--held" : `--heat-${Math.min(5, Math.round(bin / 2))}`);
  return {
    csv: () => toCsv(["operator", "first failure", "images", "selected"], own.flatMap((number) => whole[number].map((all, bin) => [digest.columns[number].title, binName(bin), all, chosen[number][bin]]))),
    drawing: () => barsSvg({ title: `${lens}: images by first failure`, charts: own.map((number) => ({ title: digest.columns[number].title, note: shareBroken(chosen[number]), bars: whole[number].map((all, bin) => ({ all, some: chosen[number][bin], colour: colour(bin) })) })) }),
  };
}

function shareBroken(counts) {
  const broken = counts.slice(0, BINS).reduce((sum, one) => sum + one, 0), tested = broken + counts[BINS];
  return tested ? `${percent(broken / tested)} break` : "–";
}

function Says({ run, lens, model }) {
  const found = useAsync(() => loadFindings(run), [run]);
  const verdict = found.data && found.data.find((one) => one.lens === lens)?.verdicts.find((one) => one.model === model)?.verdict;
  return verdict ? html`<p class="small muted">${verdict}</p>` : null;
}

// Bars of how many images break in each tenth of the range, and how many hold. Drag over bars to select images.
function Histogram({ column, number, whole, chosen, range, brush }) {
  const [drag, setDrag] = useState(null);
  const most = Math.max(1, ...whole);
  const active = drag ? [Math.min(...drag), Math.max(...drag)] : range;
  const end = () => {
    if (!drag) return;
    const next = [Math.min(...drag), Math.max(...drag)];
    setDrag(null);
    brush(number, range && range[0] === next[0] && range[1] === next[1] ? null : next);
  };
  return html`<div class=${`histogram ${range ? "on" : ""}`}>
    <div class="histogram-head"><span class="clip" title=${column.title}>${column.title}</span><span class="num muted">${shareBroken(chosen)}</span>
      ${range && html`<button class="quiet tiny" aria-label=${`Remove the brush on ${column.title}`} onClick=${() => brush(number, null)}><${Icon} name="close" /></button>`}</div>
    <div class="histogram-bars" role="group" aria-label=${`Images by first failure under ${column.title}`} onPointerLeave=${end} onPointerUp=${end}>
      ${whole.map((total, bin) => html`<button key=${bin} class=${`bin ${bin === BINS ? "last" : ""} ${active && (bin < active[0] || bin > active[1]) ? "off" : ""}`}
        aria-label=${`${binName(bin)}: ${chosen[bin]} of ${total}`} title=${`${bin === BINS ? "survive" : `break at ${(100 * bin) / BINS}–${(100 * (bin + 1)) / BINS} % of the range`}: ${chosen[bin]} of ${total} images`}
        onPointerDown=${(event) => { event.currentTarget.releasePointerCapture?.(event.pointerId); setDrag([bin, bin]); }} onPointerEnter=${() => drag && setDrag([drag[0], bin])}
        onClick=${(event) => { if (event.detail === 0) brush(number, [bin, bin]); }}>
        <span class="all" style=${{ height: `${(100 * total) / most}%` }}></span><span class=${`some h${bin}`} style=${{ height: `${(100 * chosen[bin]) / most}%` }}></span></button>`)}
    </div></div>`;
}

function ClassTable({ digest, hardness, images, label }) {
  const [hard, setHard] = useState(false);
  const found = useMemo(() => classes(digest, hardness, images).sort((a, b) => (hard ? (b.hardness ?? -1) - (a.hardness ?? -1) : (a.hardness ?? 2) - (b.hardness ?? 2))), [images, hardness, hard]);
  if (digest.images.labels.length < 2) return null;
  return html`<div class="card"><h2>Classes <button class="quiet" onClick=${() => setHard(!hard)}>${hard ? "hardest first" : "most fragile first"}</button></h2>
    <ul class="class-list">${found.slice(0, MOST).map((one) => html`<li key=${one.label}>
      <button aria-pressed=${label === digest.images.labels[one.label]} onClick=${() => patch({ label: label === digest.images.labels[one.label] ? null : digest.images.labels[one.label] }, { push: true })}>
        <span class="clip" title=${digest.images.labels[one.label]}>${firstName(digest.images.labels[one.label]) || "no label"}</span><span class="num muted small">${one.images}</span>
        <span class="meter"><span style=${{ width: `${100 * (one.hardness ?? 0)}%` }}></span></span><span class="num">${percent(one.hardness)}</span></button></li>`)}</ul>
    ${found.length > MOST && html`<p class="small muted">and ${found.length - MOST} more classes</p>`}</div>`;
}
