// The bench with a run's stored answers: its rows, and the images that they replay to.
import { html, useAsync, useMemo, useState, useEffect } from "../lib.js";
import { cleanInput, loadCells, loadSequence, replay, share } from "../data.js";
import { useBoxes } from "../boxes.js";
import { patch } from "../route.js";
import { Failed, Loading } from "../ui.js";
import { Bench, imageKeys } from "./bench.js";

export function StoredBench({ run, facts, digest, image, params, site, theme, all }) {
  const changes = useMemo(() => digest.columns.map((column) => ({ id: `${column.lens}/${column.operator}`, title: column.title, kind: column.lens, column, name: column.operator })), [digest]);
  const change = changes.find((one) => one.id === params.change || one.column.operator === params.change) || changes[0];
  const [ranks, setRanks] = useState({});
  const models = digest.models;
  const sequences = useAsync((signal) => Promise.all(models.map((model) => loadSequence(run, model, change.column, image, signal))), [run, image, change.id]);
  useEffect(() => {
    loadCells(run, digest, models[0]).then((cells) => {
      const at = digest.position.get(image);
      setRanks(Object.fromEntries(changes.map((one, number) => {
        const found = share(digest, cells.first[number * digest.count + at]);
        return [one.id, found === 1 ? 2 : found];
      })));
    });
  }, [image]);
  const found = sequences.data && !sequences.loading ? sequences.data : null;
  const longest = found && (found[models.indexOf(params.see)] || found.reduce((best, one) => (one.points.length > best.points.length ? one : best), found[0]));
  const model = found && models[found.indexOf(longest)];
  const value = found ? Math.min(longest.points.length, Math.max(0, Math.round(Number(params.at) || 0))) : 0;
  const point = value ? longest.points[value - 1] : null;
  const boxes = useBoxes({ run, facts, site, model, column: change.column, image, point });
  if (sequences.error) return html`<${Failed} error=${sequences.error} />`;
  if (!found) return html`<${Loading} what="Reading rows" />`;
  const values = longest.points.map((_, number) => number + 1);
  const track = {
    values: [0, ...values], low: 0, high: Math.max(1, values.length), neutral: 0, axis: "row, from weak to strong",
    captions: ["clean", ...longest.points.map(captionOf)],
    models: found.map((one, number) => ({
      model: models[number],
      probability: [one.clean.correct === false ? null : one.clean.confidence, ...values.map((_, index) => one.points[index]?.probability ?? null)],
      broken: [one.clean.correct === false, ...values.map((_, index) => one.points[index]?.correct === false)],
    })),
  };
  const answers = found.map((one, number) => answerOf(models[number], one, value));
  const changed = point ? replay(run, model, change.column, image, point.key) : cleanInput(run, model, image);
  const clean = point && point.counterpart ? replay(run, model, change.column, image, point.counterpart) : cleanInput(run, model, image);
  const actions = {
    choose: (next) => patch({ change: next, at: null }, { push: true }),
    find: () => { const first = longest.points.findIndex((one) => one.correct === false); if (first >= 0) patch({ at: first + 1 }); },
    see: (next) => patch({ see: next }), rank: null, ranking: null, sorted: Boolean(params.sorted),
    save: { href: point ? replay(run, model, change.column, image, point.key, "png") : cleanInput(run, model, image, "png"), name: `${image}.png` },
    copies: [["Rows", rowsCommand(run, change.column, image)], ["Link", () => location.href]],
  };
  return html`<${Bench} changes=${changes} kinds=${[...new Set(changes.map((one) => one.kind))]} change=${change} track=${track} value=${value}
    setValue=${(next) => patch({ at: Math.round(next) })} step=${1} answers=${answers}
    pictures=${{ clean, changed, caption: track.captions[value], model, cleanMarks: boxes.marks?.clean, marks: boxes.marks?.changed, boxProblem: boxes.problem, pixels: longest.masks }} actions=${actions} theme=${theme} ranks=${ranks} images=${imageKeys(all, image)} />`;
}

const captionOf = (point) => [point.level !== null ? `level ${point.level}` : null, point.text || point.parameters.map((one) => Number(one.toPrecision(4))).join(", ")].filter(Boolean).join(": ");

// Rows hold the prediction and the right class; where both are the same, that is one bar.
function answerOf(model, sequence, value) {
  const { clean } = sequence;
  const point = value ? sequence.points[value - 1] : { prediction: clean.prediction, confidence: clean.confidence, correct: clean.correct };
  if (!point) return { model, label: clean.label, given: true, top: [], broken: false };
  const top = [[point.prediction, point.confidence]];
  if (point.prediction !== clean.label && point.probability !== undefined) top.push([clean.label, point.probability]);
  return { model, label: clean.label, given: true, top: top.filter(([name]) => name !== null), broken: point.correct === false, mse: point.distances?.mse };
}

const rowsCommand = (run, column, image) => `brinell rows ${run} "select * from rows where lens = '${column.lens}' and operator = '${column.operator}' and image = '${image}'"`;
