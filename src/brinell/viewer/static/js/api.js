// Requests. Stored content is at the same paths on the server and in a bundle; live answers come from the server alone.
export const escape = (text) => [...new TextEncoder().encode(text)].map((byte) => {
  const letter = String.fromCharCode(byte);
  return /[A-Za-z0-9._-]/.test(letter) ? letter : "~" + byte.toString(16).toUpperCase().padStart(2, "0");
}).join("");

export const path = (...parts) => "api/" + parts.map((part) => escape(String(part))).join("/");

export class Problem extends Error {
  constructor(message, status) { super(message); this.status = status; }
}

async function send(url, options) {
  let response;
  try {
    response = await fetch(url, options);
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new Problem("The viewer doesn't respond. Is `brinell view` still running?", 0);
  }
  if (response.ok) return response;
  let message = response.status === 404 ? "This is not stored here." : `The viewer answered ${response.status}.`;
  try { message = (await response.json()).error || message; } catch (error) { /* a plain web server's own page */ }
  throw new Problem(message, response.status);
}

// Why a picture couldn't be loaded, which its element doesn't say.
export const whyNot = (url) => send(url).then(() => "Reload the page to see it.", (problem) => problem.message);

const wait = (milliseconds) => new Promise((done) => setTimeout(done, milliseconds));

// Plain data; while the server computes it, `progress` is called with the share that is done.
export async function getJson(url, { signal, progress } = {}) {
  for (;;) {
    const response = await send(url, { signal });
    const content = await response.json();
    if (response.status !== 202) return content;
    if (progress) progress(content.progress);
    await wait(300);
  }
}

export async function getBytes(url, { signal, progress } = {}) {
  for (;;) {
    const response = await send(url, { signal });
    if (response.status !== 202) return response.arrayBuffer();
    const content = await response.json();
    if (progress) progress(content.progress);
    await wait(300);
  }
}

export async function post(what, content, { signal } = {}) {
  const raw = content instanceof Blob;
  const response = await send(`api/live/${what}`, {
    method: "POST",
    headers: { "X-Brinell": "1", "Content-Type": raw ? "application/octet-stream" : "application/json" },
    body: raw ? content : JSON.stringify(content),
    signal,
  });
  return response.json();
}

const cached = new Map();
// The same for what doesn't change: requested once.
export function once(url, get = getJson, options = {}) {
  if (!cached.has(url)) {
    const promise = get(url, { progress: options.progress });
    cached.set(url, promise);
    promise.catch(() => cached.delete(url));
  }
  return cached.get(url);
}
export const forget = (start) => [...cached.keys()].filter((key) => key.startsWith(start)).forEach((key) => cached.delete(key));

export function saveBlob(blob, name) {
  const link = document.createElement("a");
  link.href = URL.createObjectURL(blob);
  link.download = name;
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 10000);
}
