// Cells in classes of colour, from "breaks at once" to "holds", and which images a set of brushes selects.
import { share } from "./data.js";

export const BINS = 10; // of the range of a change; one more bin is for images that survive it

// The bin of a cell: 0 to BINS - 1, BINS if it survives, -1 if it was wrong when clean or not tested.
export function binOf(digest, code) {
  const { strongest, survived } = digest.codes;
  if (code <= strongest) return Math.min(BINS - 1, Math.floor((BINS * code) / strongest));
  return code === survived ? BINS : -1;
}

// The class of a cell by its value: shares as they are, others by their place between the extremes of the column.
export function valueBin(column, value, extremes) {
  if (Number.isNaN(value)) return -1;
  const [low, high] = column.points ? [0, 1] : extremes;
  const place = high > low ? (value - low) / (high - low) : 1;
  const good = column.better === "lower" ? 1 - place : place;
  return Math.min(BINS, Math.max(0, Math.round(BINS * good)));
}

export function extremesOf(digest, cells) {
  return digest.columns.map((_, number) => {
    let low = Infinity, high = -Infinity;
    for (let at = number * digest.count; at < (number + 1) * digest.count; at += 1) {
      const value = cells.value[at];
      if (value < low) low = value;
      if (value > high) high = value;
    }
    return [low, high];
  });
}

// Brushes are written "column.from-to,…" in bins.
export const readBrushes = (text) => Object.fromEntries((text || "").split(",").filter(Boolean).map((one) => {
  const [column, range] = one.split(".");
  return [column, range.split("-").map(Number)];
}));
export const writeBrushes = (brushes) => Object.entries(brushes).map(([column, [from, to]]) => `${column}.${from}-${to}`).join(",") || null;

// The positions of the images that all brushes, the label and the text select.
export function select(digest, cells, { brushes, label, text, only }) {
  const found = [];
  const ranges = Object.entries(brushes).map(([column, [from, to]]) => [Number(column) * digest.count, from, to]);
  const words = (text || "").toLowerCase();
  const labels = words ? digest.images.labels.map((name) => name.toLowerCase().includes(words)) : null;
  for (let image = 0; image < digest.count; image += 1) {
    if (label !== null && digest.images.label[image] !== label) continue;
    if (only && !only.has(digest.images.id[image])) continue;
    if (words && !labels[digest.images.label[image]] && !digest.images.name[image].toLowerCase().includes(words)) continue;
    let kept = true;
    for (const [start, from, to] of ranges) {
      const bin = binOf(digest, cells.first[start + image]);
      if (bin < from || bin > to) { kept = false; break; }
    }
    if (kept) found.push(image);
  }
  return found;
}

export function histogram(digest, cells, column, images) {
  const counts = new Array(BINS + 1).fill(0);
  for (const image of images) {
    const bin = binOf(digest, cells.first[column * digest.count + image]);
    if (bin >= 0) counts[bin] += 1;
  }
  return counts;
}

// Per class: how many images are selected, and the share of every range that they survive on average.
export function classes(digest, hardness, images) {
  const sums = new Map();
  for (const image of images) {
    const label = digest.images.label[image];
    const known = sums.get(label) || { label, images: 0, sum: 0, tested: 0 };
    known.images += 1;
    if (!Number.isNaN(hardness[image])) { known.sum += hardness[image]; known.tested += 1; }
    sums.set(label, known);
  }
  return [...sums.values()].map((one) => ({ ...one, hardness: one.tested ? one.sum / one.tested : null }));
}
export { share };
