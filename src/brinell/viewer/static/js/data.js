// Runs and their digests, loaded once.
import { getBytes, getJson, once, path } from "./api.js";

export const loadSite = () => once(path("site.json"));
// The images of a run that can be looked at: all of them, or those that a bundle has pictures of.
export const pictured = (site, run, digest) => site.pictured?.[run] || digest.images.id;
export const loadRuns = (signal) => getJson(path("runs.json"), { signal });
export const loadRun = (run) => once(path("runs", run, "run.json"));
export const loadHeadline = (run, progress) => once(path("runs", run, "headline.json"), getJson, { progress });
export const loadFindings = (run) => once(path("runs", run, "findings.json"));
export const thumbnail = (run, image) => path("runs", run, "thumbnails", `${image}.webp`);
export const photograph = (run, image) => path("runs", run, "originals", `${image}.webp`);
export const cleanInput = (run, model, image, kind = "webp") => path("runs", run, "inputs", model, `${image}.${kind}`);
export const replay = (run, model, column, image, key, kind = "webp") =>
  path("runs", run, "replays", model, column.lens, column.operator, image, `${key}.${kind}`);
export const loadSequence = (run, model, column, image, signal) =>
  getJson(path("runs", run, "sequences", model, column.lens, column.operator, `${image}.json`), { signal });

// A digest with typed arrays by model: `first` and `value`, both (columns × images).
export async function loadDigest(run, progress) {
  const digest = await once(path("runs", run, "digest.json"), getJson, { progress });
  digest.count = digest.images.id.length;
  if (!digest.position) digest.position = new Map(digest.images.id.map((image, number) => [image, number]));
  if (!digest.cells) digest.cells = {};
  return digest;
}

export async function loadCells(run, digest, model) {
  if (!digest.cells[model]) {
    const buffer = await once(path("runs", run, "cells", `${model}.bin`), getBytes);
    const size = digest.columns.length * digest.count;
    const first = new Uint8Array(buffer, 0, size);
    const value = new Float32Array(buffer, size + ((4 - (size % 4)) % 4), size);
    digest.cells[model] = { first, value };
  }
  return digest.cells[model];
}

// A code of `first` as a share of the strongest change in [0, 1]; survived is 1, and null was not tested.
export function share(digest, code) {
  const { strongest, survived } = digest.codes;
  return code <= strongest ? code / strongest : code === survived ? 1 : null;
}

export function describeCode(digest, code) {
  const { strongest, survived, wrong } = digest.codes;
  if (code <= strongest) return `breaks at ${Math.round((100 * code) / strongest)} % of the range`;
  return code === survived ? "survives the whole range" : code === wrong ? "wrong when clean" : "not tested";
}

// How easily each image breaks: the mean over columns of the share it survives; null where nothing was tested.
export function hardnessOfImages(digest, cells, columns) {
  const found = new Float32Array(digest.count).fill(NaN);
  for (let image = 0; image < digest.count; image += 1) {
    let sum = 0, known = 0;
    for (const column of columns) {
      const one = share(digest, cells.first[column * digest.count + image]);
      if (one !== null) { sum += one; known += 1; }
    }
    if (known) found[image] = sum / known;
  }
  return found;
}
