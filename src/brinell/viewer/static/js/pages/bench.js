// The bench that live and stored answers share: changes on the left, images and slider in the middle, answers on the right.
import { html, useEffect, useKeys, useMemo, useState } from "../lib.js";
import { Lines, Legend, seriesColour, colours } from "../chart.js";
import { Files, linesSvg, toCsv } from "../files.js";
import { BoxLegend } from "../boxes.js";
import { patch } from "../route.js";
import { Choice, CopyButton, Icon, Loading, Picture, Verdict, firstName, percent } from "../ui.js";

const nearest = (values, value) => values.reduce((best, one, index) => (Math.abs(one - value) < Math.abs(values[best] - value) ? index : best), 0);

// The first value away from the clean image, in either direction, at which a model is broken; null if none is.
export function firstBreak(values, broken, neutral) {
  const order = values.map((_, index) => index).sort((a, b) => Math.abs(values[a] - neutral) - Math.abs(values[b] - neutral));
  const found = order.find((index) => broken[index]);
  return found === undefined ? null : found;
}

export function Bench({ changes, change, kinds, track, value, setValue, answers, pictures, step, extra, actions, notes, theme, ranks, images, busy, place }) {
  const [held, setHeld] = useState(false);
  const [boxed, setBoxed] = useState(true);
  const move = (by) => setValue(Math.min(track.high, Math.max(track.low, Math.round((value + by * step) / step) * step)));
  const keys = {
    ArrowUp: () => move(track.stride || 1), ArrowDown: () => move(-(track.stride || 1)),
    ArrowLeft: () => images && images(-1), ArrowRight: () => images && images(1),
    " ": () => setHeld(true), b: () => actions.find && actions.find(),
  };
  useKeys(keys);
  useKeyUp(" ", () => setHeld(false));
  const marks = useMemo(() => track.models.map((one, number) => {
    const first = firstBreak(track.values, one.broken, track.neutral);
    return first === null ? null : { value: track.values[first], colour: seriesColour(number), index: first, model: one.model };
  }).filter(Boolean), [track, theme]);
  const series = useMemo(() => track.models.map((one) => ({ label: one.model, values: one.probability })), [track, theme]);
  const broken = answers.some((one) => one.broken);
  const measure = pictures.marks ? "Best score of the right class" : pictures.pixels ? "Share of pixels of the right class" : "Probability of the right class";
  return html`<div class="bench">
    <${Changes} changes=${changes} kinds=${kinds} change=${change} ranks=${ranks} actions=${actions} />
    <section class="stage" aria-label="Image">
      <div class="pair">
        <figure><figcaption>clean</figcaption><${Picture} src=${pictures.clean} alt="the clean image" marks=${boxed ? pictures.cleanMarks : null} /></figure>
        <figure class=${broken ? "bad" : ""}><figcaption>${held ? "clean (Space is held)" : pictures.caption || "changed"}</figcaption>
          <${Picture} src=${held ? pictures.clean : pictures.changed} alt=${`the image under ${change.title}, ${pictures.caption || ""}`} className=${`changed ${place ? "aim" : ""}`} marks=${!boxed ? null : held ? pictures.cleanMarks : pictures.marks}
            ...${place ? { onPointerDown: place, onPointerMove: (event) => event.buttons && place(event) } : {}} /></figure>
      </div>
      ${pictures.boxProblem && html`<p class="small muted">${pictures.boxProblem}</p>`}
      ${pictures.marks && html`<div class="box-line"><label class="inline"><input type="checkbox" checked=${boxed} onChange=${() => setBoxed(!boxed)} /> Boxes</label>${boxed && html`<${BoxLegend} lists=${[pictures.cleanMarks, pictures.marks]} />`}</div>`}
      <div class="slider">
        <label for="level"><strong>${change.title}</strong> <output>${pictures.caption}</output></label>
        <div class="track">
          <input id="level" type="range" min=${track.low} max=${track.high} step=${step} value=${value} aria-valuetext=${pictures.caption}
            onInput=${(event) => setValue(Number(event.target.value))}
            onKeyDown=${(event) => { if (["ArrowUp", "ArrowDown", "ArrowLeft", "ArrowRight"].includes(event.key)) event.preventDefault(); }} />
          ${marks.map((mark) => html`<span class="tick" key=${mark.model} title=${`${mark.model} breaks here`}
            style=${{ left: `${(100 * (mark.value - track.low)) / (track.high - track.low)}%`, background: mark.colour }}></span>`)}
        </div>
        ${extra}
        <div class="actions">
          ${actions.find && html`<button class="primary" disabled=${busy} onClick=${actions.find}><${Icon} name="target" /> Find the breaking point</button>`}
          <button disabled=${value === track.neutral} onClick=${() => setValue(track.neutral)}>Reset</button>
          ${actions.save && html`<a class="button" href=${actions.save.href} download=${actions.save.name}><${Icon} name="save" /> Save image</a>`}
          <span class="copies"><span class="small muted">Copy as</span>${actions.copies.map(([label, text]) => html`<${CopyButton} key=${label} label=${label} text=${text} icon=${label === "Link" ? "link" : "copy"} />`)}</span>
        </div>
        ${notes && html`<p class="small" role="status">${notes}</p>`}
      </div>
    </section>
    <section class="answers" aria-label="Answers">
      ${answers.map((one, number) => html`<${Answer} key=${one.model} answer=${one} colour=${seriesColour(number)} see=${answers.length > 1 ? actions.see : null} seen=${one.model === pictures.model} />`)}
      <div class="card">
        <h3 class="with-files">${measure} ${track.values.length > 1 && html`<${Files} name=${`curve-${change.name.replace(/\W+/g, "-")}`}
          csv=${() => toCsv([track.axis, "amount", ...track.models.flatMap((one) => [`${one.model} probability`, `${one.model} broken`])], track.values.map((at, row) => [at, track.captions[row], ...track.models.flatMap((one) => [one.probability[row], one.broken[row]])]))}
          drawing=${() => linesSvg({ title: `${change.title}: ${measure.toLowerCase()}`, xLabel: track.axis, x: track.values, marks, series: series.map((one, number) => ({ ...one, colour: seriesColour(number) })) })} />`}</h3>
        ${series.length > 1 && html`<${Legend} items=${series.map((one, number) => ({ label: one.label, colour: seriesColour(number) }))} />`}
        ${track.values.length < 2 ? html`<${Loading} what="Asking at every level" />` : html`<${Lines} x=${track.values} series=${series} at=${value} marks=${marks} theme=${theme} xLabel=${track.axis} range=${[0, 1]}
          text=${`${measure} as ${change.title} grows`} onPick=${(where) => setValue(track.values[nearest(track.values, where)])} />`}
        <p class="small muted">${marks.length ? marks.map((mark) => `${mark.model} breaks at ${track.captions[mark.index]}`).join("; ") : track.models.length ? "Nothing breaks along this range." : ""}</p>
      </div>
    </section>
  </div>`;
}

function useKeyUp(key, call) {
  useEffect(() => {
    const listen = (event) => { if (event.key === key) call(); };
    document.addEventListener("keyup", listen);
    return () => document.removeEventListener("keyup", listen);
  }, []);
}

function Changes({ changes, kinds, change, ranks, actions }) {
  const sorted = (list) => (actions.sorted ? [...list].sort((a, b) => (ranks[a.id] ?? 2) - (ranks[b.id] ?? 2)) : list);
  return html`<nav class="changes" aria-label="Changes">
    <div class="changes-head">
      <${Choice} label="Change" hideLabel=${true} value=${change.id} options=${changes.map((one) => [one.id, one.title])} onChange=${(value) => actions.choose(value)} />
      ${actions.rank && html`<button class="quiet" disabled=${actions.ranking !== null} onClick=${actions.rank}>${actions.ranking === null ? "What breaks it first?" : `Trying ${actions.ranking} …`}</button>`}
    </div>
    ${(actions.sorted ? [null] : kinds).map((kind) => html`<div key=${kind}>
      ${kind && html`<h2>${kind}</h2>`}
      <ul>${sorted(changes.filter((one) => kind === null || one.kind === kind)).map((one) => html`<li key=${one.id}>
        <button aria-current=${one.id === change.id ? "true" : null} onClick=${() => actions.choose(one.id)}>
          <span class="clip" title=${one.title}>${one.title}</span>
          ${ranks[one.id] !== undefined && html`<span class="rank" title=${ranks[one.id] === null ? "not tested" : ranks[one.id] > 1 ? "survives the whole range" : `breaks at ${percent(ranks[one.id])} of the range`}>
            <span class="meter tiny"><span class=${ranks[one.id] > 1 ? "whole" : ""} style=${{ width: `${100 * Math.min(1, ranks[one.id] ?? 0)}%` }}></span></span>
            <span class="num">${ranks[one.id] === null ? "–" : ranks[one.id] > 1 ? "holds" : percent(ranks[one.id])}</span></span>`}
        </button></li>`)}</ul>
    </div>`)}
  </nav>`;
}

function Answer({ answer, colour, see, seen }) {
  return html`<div class=${`card answer ${answer.broken ? "bad" : ""}`}>
    <h3><span class="dot" style=${{ background: colour }}></span><span class="clip">${answer.model}</span>
      ${answer.broken === null ? html`<span class="spinner"></span>` : html`<${Verdict} broken=${answer.broken}>${answer.broken ? "broken" : "holds"}<//>`}</h3>
    <ol class="bars" aria-label=${`Top classes of ${answer.model}`}>${answer.top.map(([name, probability]) => html`<li key=${name} class=${name === answer.label ? "right" : ""}>
      <span class="clip" title=${name}>${name === answer.label ? html`<${Icon} name="check" />` : null}${firstName(name)}</span>
      <span class="bar"><span style=${{ width: `${100 * (probability ?? 0)}%` }}></span></span>
      <span class="num">${probability === null ? "" : percent(probability, probability > 0.995 || probability < 0.1 ? 1 : 0)}</span></li>`)}</ol>
    <p class="small muted answer-foot"><span class="clip">${!answer.label ? "" : answer.given ? "label" : "clean answer"}${answer.label && `: ${firstName(answer.label)}`}${answer.mse !== null && answer.mse !== undefined ? ` · MSE ${Number(answer.mse).toPrecision(2)}` : ""}</span>
      ${see && html`<button class="quiet see" aria-pressed=${seen} title="The pictures show what this model sees" onClick=${() => see(answer.model)}><${Icon} name="eye" /> ${seen ? "shown" : "show its view"}</button>`}</p>
  </div>`;
}

export const imageKeys = (all, image) => (by) => patch({ image: all[(all.indexOf(image) + by + all.length) % all.length], photo: null }, { push: true });
export { colours };
