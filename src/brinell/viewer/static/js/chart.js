// Line charts by uPlot, in the page's colours.
import { html, useEffect, useRef, useSize } from "./lib.js";

export const colours = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
export const seriesColour = (index) => colours(`--series-${(index % 6) + 1}`);

// `series`: [{label, values, broken}]; `at`: an index into `x` that a vertical line marks; `onPick` gets an index.
export function Lines({ x, series, at, onPick, height = 190, yLabel, xLabel, marks = [], theme, range = [0, 1], text }) {
  const box = useRef(null);
  const plot = useRef(null);
  const state = useRef({});
  state.current = { at, onPick, marks, x };
  const { width } = useSize(box);
  useEffect(() => {
    if (!width || !x.length) return undefined;
    const ink = colours("--muted"), line = colours("--line");
    const font = "11px system-ui, sans-serif";
    const axis = { stroke: ink, grid: { stroke: line, width: 1 }, ticks: { stroke: line, width: 1 }, font, labelFont: font };
    const options = {
      width, height,
      padding: [8, 10, 0, 0],
      legend: { show: false },
      cursor: { x: false, y: false, points: { show: false }, drag: { x: false, y: false } },
      scales: { x: { time: false, range: [Math.min(...x), Math.max(...x)] }, y: { range } },
      axes: [
        { ...axis, size: 30, label: xLabel, labelSize: xLabel ? 16 : 0, space: 44 },
        { ...axis, size: 50, values: (_, ticks) => ticks.map((tick) => (range[1] === 1 ? `${Math.round(100 * tick)} %` : tick)), label: yLabel, labelSize: yLabel ? 16 : 0 },
      ],
      series: [{}, ...series.map((one, index) => ({ label: one.label, stroke: one.colour || seriesColour(index), width: 2, dash: one.dash, points: { show: x.length < 14, size: 5 } }))],
      hooks: {
        draw: [(self) => {
          const { at: where, marks: ticks, x: values } = state.current;
          const context = self.ctx;
          const ratio = devicePixelRatio || 1;
          const vertical = (value, colour, size, dash) => {
            const left = Math.round(self.valToPos(value, "x", true));
            context.save();
            context.strokeStyle = colour;
            context.lineWidth = size * ratio;
            context.setLineDash(dash.map((each) => each * ratio));
            context.beginPath();
            context.moveTo(left, self.bbox.top);
            context.lineTo(left, self.bbox.top + self.bbox.height);
            context.stroke();
            context.restore();
          };
          ticks.forEach((mark) => vertical(mark.value, mark.colour, 1.25, [3, 3]));
          if (where !== null && where !== undefined && values[0] !== undefined) vertical(where, colours("--ink"), 1.5, []);
        }],
      },
    };
    plot.current = new uPlot(options, [x, ...series.map((one) => one.values)], box.current);
    const pick = (event) => {
      if (!state.current.onPick || (event.type === "pointermove" && !event.buttons)) return;
      const bounds = plot.current.over.getBoundingClientRect();
      state.current.onPick(plot.current.posToVal(event.clientX - bounds.left, "x"));
    };
    plot.current.over.addEventListener("pointerdown", pick);
    plot.current.over.addEventListener("pointermove", pick);
    return () => { plot.current.destroy(); plot.current = null; };
  }, [width, height, x, series, theme, xLabel]);
  useEffect(() => { if (plot.current) plot.current.redraw(false); }, [at, marks]);
  return html`<div class="chart" ref=${box} role="img" aria-label=${text || yLabel || "chart"} style=${{ minHeight: `${height}px` }}></div>`;
}

export const Legend = ({ items }) => html`<ul class="legend">${items.map((item) => html`<li key=${item.label}>
  <span class=${`swatch ${item.dash ? "dashed" : ""}`} style=${{ borderColor: item.colour }}></span>${item.label}</li>`)}</ul>`;
