// Curves over steps, drawn by uPlot, with what happened in the run marked on them.
import { count, el, whole } from "./format.js";

const SYNC = "steps";
export const color = (name) => getComputedStyle(document.documentElement).getPropertyValue(`--${name}`).trim();

export class Curve {
  // lines: [{label, color, sparse, dots}]; marks(): {findings, checkpoints, at}
  constructor(title, lines, { marks, format = count, height = 190, size = "" }) {
    this.lines = lines;
    this.format = format;
    this.height = height;
    this.marks = marks ?? (() => ({ findings: [], checkpoints: [], at: null }));
    this.now = el("span", { className: "now dim" });
    this.place = el("div", { role: "img" });
    const keys = lines.length > 1
      ? lines.map((line) => el("small", { className: "dim" }, el("i", { style: { background: color(line.color) } }), line.label))
      : [];
    this.title = title;
    this.card = el("section", { className: `card ${size}` }, el("h2", {}, title, ...keys, this.now), this.place);
    this.data = null;
    this.watcher = new ResizeObserver(() => this.plot && this.plot.setSize(this.measure()));
    this.watcher.observe(this.place);
  }

  measure() {
    return { width: Math.max(200, this.place.clientWidth), height: this.height };
  }

  // series: [{x, y}], one for each line
  set(series) {
    this.data = joined(series);
    const last = this.data[1].findLast((value) => value !== null && value !== undefined);
    this.last = last ?? null;
    this.tell(null);
    if (this.plot) this.plot.setData(this.data);
    else if (globalThis.uPlot && this.place.isConnected && this.data[0].length) this.draw();
  }

  tell(index) {
    const value = index === null ? this.last : this.data[1][index];
    const step = index === null ? "" : `step ${whole(this.data[0][index])}: `;
    this.now.textContent = `${step}${this.format(value)}`;
    if (index === null) this.place.setAttribute("aria-label", `${this.title}, now ${this.format(this.last)}`);
  }

  draw() {
    const axis = { stroke: color("dim"), grid: { stroke: color("line"), width: 1 }, ticks: { show: false },
      font: "12px system-ui, 'DejaVu Sans', sans-serif" };
    const options = {
      ...this.measure(),
      cursor: { sync: { key: SYNC }, points: { size: 6 }, drag: { x: true, y: false } },
      scales: { x: { time: false } },
      axes: [{ ...axis, size: 28, gap: 3, values: (_, ticks) => ticks.map((one) => (Number.isInteger(one) ? whole(one) : "")) },
        { ...axis, size: 58, values: (_, ticks) => ticks.map((one) => this.format(one)) }],
      series: [{}, ...this.lines.map((line) => ({
        label: line.label, stroke: color(line.color), width: 1.6,
        spanGaps: Boolean(line.sparse), points: { show: line.dots ?? Boolean(line.sparse), size: 5, fill: color(line.color) },
      }))],
      hooks: {
        draw: [(plot) => this.mark(plot)],
        setCursor: [(plot) => this.tell(plot.cursor.idx ?? null)],
      },
    };
    this.plot = new uPlot(options, this.data, this.place);
  }

  mark(plot) {
    const { findings, checkpoints, at } = this.marks();
    const { ctx, bbox } = plot;
    const ratio = devicePixelRatio;
    const left = (step) => plot.valToPos(step, "x", true);
    const inside = (x) => x >= bbox.left - 1 && x <= bbox.left + bbox.width + 1;
    ctx.save();
    ctx.fillStyle = color("checkpoint");
    for (const step of checkpoints) {
      const x = left(step);
      if (inside(x)) ctx.fillRect(x - ratio, bbox.top + bbox.height - 6 * ratio, 2 * ratio, 6 * ratio);
    }
    for (const { step, severity } of findings) {
      const x = left(step);
      if (!inside(x)) continue;
      ctx.strokeStyle = ctx.fillStyle = color(severity === "warning" || severity === "info" ? "warn" : "bad");
      ctx.lineWidth = ratio;
      ctx.setLineDash([3 * ratio, 3 * ratio]);
      ctx.beginPath(); ctx.moveTo(x, bbox.top); ctx.lineTo(x, bbox.top + bbox.height); ctx.stroke();
      ctx.setLineDash([]);
      ctx.beginPath(); ctx.moveTo(x - 5 * ratio, bbox.top); ctx.lineTo(x + 5 * ratio, bbox.top);
      ctx.lineTo(x, bbox.top + 8 * ratio); ctx.fill();
    }
    if (at !== null) {
      const x = left(at);
      ctx.fillStyle = color("card");
      ctx.globalAlpha = 0.72;
      if (x < bbox.left + bbox.width) ctx.fillRect(x, bbox.top, bbox.left + bbox.width - x, bbox.height);
      ctx.globalAlpha = 1;
      ctx.fillStyle = color("second");
      if (inside(x)) ctx.fillRect(x - ratio, bbox.top, 2 * ratio, bbox.height);
    }
    ctx.restore();
  }

  again() {
    if (!this.plot) return;
    const { at } = this.marks();
    this.tell(at === null ? null : Math.max(0, this.data[0].findLastIndex((step) => step <= at)));
    this.plot.redraw(false);
  }

  close() {
    this.watcher.disconnect();
    if (this.plot) this.plot.destroy();
    this.plot = null;
  }
}

// Put curves with different steps over one row of steps.
function joined(series) {
  if (series.length === 1) return [series[0].x, series[0].y];
  const steps = [...new Set(series.flatMap((one) => one.x))].sort((a, b) => a - b);
  const where = new Map(steps.map((step, n) => [step, n]));
  return [steps, ...series.map(({ x, y }) => {
    const row = new Array(steps.length).fill(undefined);
    x.forEach((step, n) => { row[where.get(step)] = y[n]; });
    return row;
  })];
}

// Rows by steps, the larger the value the stronger the colour; `log` for values of many sizes.
export function heat(rows, { shade = "data_wait", log = false } = {}) {
  const columns = rows[0]?.length ?? 0;
  const canvas = el("canvas", { className: "map", width: Math.max(1, columns), height: Math.max(1, rows.length),
    style: { height: `${Math.min(520, Math.max(60, rows.length * 9))}px` } });
  const known = rows.flat().filter((value) => value !== null && (!log || value > 0));
  const most = known.reduce((a, b) => Math.max(a, b), log ? 0 : 1e-9);
  const least = log ? known.reduce((a, b) => Math.min(a, b), most) : 0;
  const strength = (value) => (log ? (value > 0 ? 0.08 + (0.92 * Math.log(value / least)) / (Math.log(most / least) || 1) : 0) : value / most);
  const ctx = canvas.getContext("2d");
  const paper = color("paper");
  const ink = color(shade);
  rows.forEach((row, y) => row.forEach((value, x) => {
    if (value === null) return;
    ctx.globalAlpha = 1;
    ctx.fillStyle = paper;
    ctx.fillRect(x, y, 1, 1);
    ctx.globalAlpha = strength(value);
    ctx.fillStyle = ink;
    ctx.fillRect(x, y, 1, 1);
  }));
  return { canvas, most, least };
}
