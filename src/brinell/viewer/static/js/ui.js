// Small parts that all pages use.
import { html, useState, useRef, useEffect } from "./lib.js";
import { whyNot } from "./api.js";
import { Boxes } from "./boxes.js";

export const percent = (share, digits = 0) => (share === null || share === undefined || Number.isNaN(share) ? "–" : `${(100 * share).toFixed(digits)} %`);
export const count = (number, noun) => `${number.toLocaleString("en")} ${noun}${number === 1 ? "" : "s"}`;
export const shortName = (name) => (name || "").split("/").pop().replace(/\.(png|jpe?g|webp|bmp|tiff?)$/i, "");
// "tench, Tinca tinca" is "tench": the first name of a class with several
export const firstName = (name) => (name || "").split(",")[0];
export const clock = (seconds) => {
  const whole = Math.round(seconds);
  const parts = [Math.floor(whole / 3600), Math.floor(whole / 60) % 60, whole % 60];
  return parts[0] ? `${parts[0]} h ${parts[1]} min` : parts[1] ? `${parts[1]} min ${parts[2]} s` : `${parts[2]} s`;
};

export const Icon = ({ name }) => html`<svg class="icon" viewBox="0 0 16 16" aria-hidden="true"><path d=${ICONS[name]} /></svg>`;
const ICONS = {
  check: "M3 8.5l3.2 3.2L13 4.8",
  cross: "M4 4l8 8M12 4l-8 8",
  sun: "M8 1v2M8 13v2M1 8h2M13 8h2M3 3l1.4 1.4M11.6 11.6L13 13M3 13l1.4-1.4M11.6 4.4L13 3M8 5a3 3 0 1 1 0 6a3 3 0 0 1 0-6",
  moon: "M13 9.6A5.6 5.6 0 0 1 6.4 3a5.4 5.4 0 1 0 6.6 6.6z",
  copy: "M6 5h7v9H6zM4 11H3V2h7v1",
  save: "M8 2v8M4.8 7L8 10.2 11.2 7M3 13.5h10",
  link: "M6.6 9.4l2.8-2.8M7 4.5l1.3-1.3a2.7 2.7 0 0 1 3.8 3.8l-1.3 1.3M9 11.5l-1.3 1.3a2.7 2.7 0 0 1-3.8-3.8l1.3-1.3",
  target: "M8 2.5a5.5 5.5 0 1 1 0 11a5.5 5.5 0 0 1 0-11M8 6a2 2 0 1 1 0 4a2 2 0 0 1 0-4M8 0v3M8 13v3M0 8h3M13 8h3",
  upload: "M8 11V3M4.8 6L8 2.8 11.2 6M3 13.5h10",
  play: "M5 3.5v9l7-4.5z",
  close: "M4 4l8 8M12 4l-8 8",
  search: "M7 2.5a4.5 4.5 0 1 1 0 9a4.5 4.5 0 0 1 0-9M10.4 10.4L14 14",
  eye: "M1.5 8S4 3.5 8 3.5 14.5 8 14.5 8 12 12.5 8 12.5 1.5 8 1.5 8M8 6a2 2 0 1 1 0 4a2 2 0 0 1 0-4",
  left: "M10 3L5 8l5 5",
  right: "M6 3l5 5-5 5",
  help: "M5.6 6a2.4 2.4 0 1 1 3.4 2.2c-.7.3-1 .8-1 1.6M8 12.2v.3",
};

export const Loading = ({ what = "Loading", share }) => html`<div class="state" role="status">
  <span class="spinner" aria-hidden="true"></span> ${what}${share !== undefined && share !== null ? ` ${Math.round(100 * share)} %` : "…"}
</div>`;

export const Failed = ({ error, retry }) => html`<div class="state failed" role="alert">
  <${Icon} name="cross" /> <span>${error.message.charAt(0).toUpperCase()}${error.message.slice(1)}</span>
  ${retry && html`<button onClick=${retry}>Try again</button>`}
</div>`;

export const Empty = ({ title, children }) => html`<div class="empty"><h2>${title}</h2>${children}</div>`;

// Shows a loaded value, or that it is loading, or why it can't be loaded.
export function Loaded({ state, what, children }) {
  if (state.error) return html`<${Failed} error=${state.error} /><p class="state"><a href="#/runs">All runs</a></p>`;
  if (state.data === undefined) return html`<${Loading} what=${what} share=${state.progress} />`;
  return children(state.data);
}

export function Choice({ label, value, options, onChange, hideLabel }) {
  return html`<label class="choice"><span class=${hideLabel ? "hidden" : "choice-label"}>${label}</span>
    <select value=${value} onChange=${(event) => onChange(event.target.value)}>
      ${options.map(([key, text]) => html`<option key=${key} value=${key} selected=${key === value}>${text}</option>`)}
    </select></label>`;
}

export function Segments({ label, value, options, onChange }) {
  return html`<div class="segments" role="group" aria-label=${label}>
    ${options.map(([key, text]) => html`<button key=${key} aria-pressed=${key === value} onClick=${() => onChange(key)}>${text}</button>`)}
  </div>`;
}

export function CopyButton({ text, label, icon = "copy" }) {
  const [done, setDone] = useState(false);
  const timer = useRef();
  useEffect(() => () => clearTimeout(timer.current), []);
  const copy = async () => {
    const value = typeof text === "function" ? await text() : text;
    try { await navigator.clipboard.writeText(value); } catch (error) {
      const area = document.createElement("textarea");
      area.value = value;
      document.body.append(area);
      area.select();
      document.execCommand("copy");
      area.remove();
    }
    setDone(true);
    clearTimeout(timer.current);
    timer.current = setTimeout(() => setDone(false), 1600);
  };
  return html`<button class="quiet" onClick=${copy}><${Icon} name=${done ? "check" : icon} /> ${done ? "Copied" : label}</button>`;
}

export const Verdict = ({ broken, children }) => html`<span class=${`verdict ${broken ? "bad" : "good"}`}>
  <${Icon} name=${broken ? "cross" : "check"} /> ${children}</span>`;

// A picture that stays until the next one has arrived, so that a slider doesn't flicker. `marks`: boxes of a detector.
export function Picture({ src, alt, className = "", marks, ...rest }) {
  const [shown, setShown] = useState(null);
  const [failed, setFailed] = useState(null); // the reason
  useEffect(() => {
    if (!src) return undefined;
    let current = true;
    const image = new Image();
    image.onload = () => { if (current) { setShown({ src, width: image.naturalWidth, height: image.naturalHeight }); setFailed(null); } };
    image.onerror = async () => { const reason = await whyNot(src); if (current) { setFailed(reason); setShown(null); } };
    image.src = src;
    return () => { current = false; };
  }, [src]);
  if (failed) return html`<div class=${`picture missing ${className}`} role="img" aria-label=${`${alt}: not available`}>
    <span>No image here. ${failed.charAt(0).toUpperCase()}${failed.slice(1)}</span></div>`;
  return html`<div class=${`picture ${className}`} ...${rest}>${shown ? html`<img src=${shown.src} alt=${alt} />${marks && html`<${Boxes} marks=${marks} width=${shown.width} height=${shown.height} />`}` : html`<span class="spinner"></span>`}</div>`;
}

export function Thumb({ src, alt = "", size = 40 }) {
  const [failed, setFailed] = useState(false);
  useEffect(() => setFailed(false), [src]);
  return failed || !src
    ? html`<span class="thumb none" aria-hidden="true" style=${{ width: `${size}px`, height: `${size}px` }}></span>`
    : html`<img class="thumb" src=${src} alt=${alt} width=${size} height=${size} loading="lazy" onError=${() => setFailed(true)} />`;
}
