// The rooms of the panel: each is made once when it is entered, and gets every new picture.
import { Curve, heat } from "./curves.js";
import { bytes, card, count, el, get, moment, seconds, share, table, whole } from "./format.js";

const PARTS = { useful: "useful steps", repeated: "steps done again", data_wait: "waiting for data",
  checkpoint: "checkpoints", evaluation: "evaluation", startup: "starting", recovery: "recovering", idle: "idle" };

const LINES = {
  loss: ["Loss, nats", [{ label: "training", color: "accent" }, { label: "validation", color: "second", sparse: true }], { size: "wide", height: 260 }],
  grad_norm: ["Gradient norm", [{ label: "norm", color: "accent" }], {}],
  learning_rate: ["Learning rate", [{ label: "rate", color: "accent" }], {}],
  tokens_per_second: ["Tokens a second", [{ label: "tokens/s", color: "accent" }], {}],
  step_seconds: ["Time of a step", [{ label: "step", color: "accent" }], { format: seconds }],
};

export class Overview {
  constructor(page) {
    this.page = page;
    this.facts = el("div", { className: "facts" });
    this.curves = Object.fromEntries(Object.entries(LINES).map(([name, [title, lines, more]]) =>
      [name, new Curve(title, lines, { ...more, marks: () => page.marks() })]));
    this.goodput = card("Where the time went", "wide", el("div"));
    this.said = card("Findings", "", el("div"));
    this.life = card("What happened", "", el("div"));
    const { loss, ...others } = this.curves;
    this.root = el("div", {}, this.facts, el("div", { className: "grid" },
      loss.card, ...Object.values(others).map((one) => one.card), this.goodput, this.said, this.life));
  }

  show(run, then) {
    const now = then ?? run;
    const loss = then ? then.loss : run.loss;
    const speed = now.tokens_per_second;
    this.facts.replaceChildren(...[
      ["Loss", count(loss)], ["Validation", count(now.validation_loss)], ["Gradient norm", count(now.grad_norm)],
      ["Learning rate", count(now.learning_rate)], ["Tokens a second", count(speed)],
      ["Step", seconds(now.step_seconds)], ["Goodput", share(now.goodput.share)],
      ["Checkpoint", now.checkpoint_step === null ? "-" : `step ${whole(now.checkpoint_step)}`],
    ].map(([name, value]) => el("div", { className: "fact" }, el("span", {}, name), el("strong", {}, value))));
    for (const [name, curve] of Object.entries(this.curves)) {
      if (this.drawn !== run.version) curve.set(name === "loss" ? [run.curves.loss, run.validation] : [run.curves[name]]);
      else curve.again();
    }
    this.drawn = run.version;
    this.goodput.lastChild.replaceWith(timeBar(now.goodput));
    this.said.lastChild.replaceWith(brief(this.page.findings(), this.page));
    const until = then ? then.time_unix : Infinity;
    const lines = run.incidents.filter((one) => one.time_unix <= until).slice(-30).reverse();
    this.life.lastChild.replaceWith(lines.length ? el("ul", { className: "events" }, ...lines.map((one) =>
      el("li", {}, el("time", {}, moment(one.time_unix)), one.what))) : nothing("Nothing yet."));
  }

  close() {
    Object.values(this.curves).forEach((curve) => curve.close());
  }
}

function nothing(text) {
  return el("div", { className: "empty" }, text);
}

function timeBar(goodput) {
  const parts = Object.entries(goodput.parts).filter(([, value]) => value > 0);
  const all = goodput.elapsed || 1;
  const words = parts.map(([name, value]) => `${PARTS[name] ?? name} ${seconds(value)}`).join(", ");
  return el("div", {},
    el("div", { className: "bar", role: "img", "aria-label": words }, ...parts.map(([name, value]) =>
      el("div", { title: `${PARTS[name] ?? name}: ${seconds(value)}`, style: { width: `${(100 * value) / all}%`, background: `var(--${name})` } }))),
    el("ul", { className: "legend" }, ...parts.map(([name, value]) =>
      el("li", {}, el("i", { style: { background: `var(--${name})` } }), `${PARTS[name] ?? name} `,
        el("span", { className: "dim" }, `${seconds(value)}, ${share(value / all)}`)))));
}

function brief(findings, page) {
  if (!findings.length) return nothing("None: nothing looks wrong.");
  const last = findings.slice(-6).reverse();
  return el("ul", { className: "events" }, ...last.map((one) => el("li", {},
    el("span", { className: `pill ${one.severity}` }, one.severity), el("span", {}, one.message))),
  findings.length > 6 ? el("li", {}, el("button", { type: "button", onclick: () => page.enter("findings") }, `all ${findings.length}`)) : null);
}

export class Ranks {
  constructor() {
    this.order = el("select", { id: "order" }, ...["rank", "longest wait", "longest step", "longest computing", "longest quiet"].map((one) => el("option", {}, one)));
    this.order.onchange = () => this.again();
    this.card = card("Ranks", "wide", el("div", { className: "tools" }, el("label", { htmlFor: "order", className: "dim" }, "in order of"), this.order), el("div"));
    this.root = el("div", { className: "grid" }, this.card);
  }

  show(run, then) {
    this.shown = [run, then];
    this.again();
  }

  again() {
    const [run, then] = this.shown;
    const key = { "longest wait": "data_wait_seconds", "longest step": "step_seconds", "longest computing": "compute_seconds", "longest quiet": "age_seconds" }[this.order.value];
    const rows = [...(then ? then.ranks : run.ranks)];
    if (key) rows.sort((a, b) => (b[key] ?? 0) - (a[key] ?? 0));
    const longest = Math.max(1e-9, ...rows.map((row) => row.step_seconds));
    const behind = Math.max(60, 10 * (run.step_seconds ?? 0));
    const late = (row) => !then && !run.over && (row.age_seconds > behind || row.step < run.step - 1);
    const meter = (value, kind) => el("meter", { max: longest, value, className: kind, title: seconds(value) });
    const columns = [["rank"], ["step"], ["step time"], ["", "meter"], ["data wait"], ["", "meter"], ["computed"], ["waited for others"], ["rows"], ["update / weight"], ["last seen"]];
    this.card.lastChild.replaceWith(rows.length ? table(columns, rows.slice(0, 256).map((row) => ({
      className: late(row) ? "late" : "",
      cells: [row.rank, whole(row.step ?? then.step), seconds(row.step_seconds), meter(row.step_seconds, ""), seconds(row.data_wait_seconds),
        meter(row.data_wait_seconds, "wait"), seconds(row.compute_seconds), seconds(row.wait_seconds), row.rows ?? "-", count(row.update_ratio), then ? "-" : `${seconds(row.age_seconds)} ago`].map(shown),
    }))) : nothing("No rank has reported yet."));
    const more = run.ranks_total - run.ranks.length;
    this.card.firstChild.textContent = more > 0 && !then ? `Ranks: the ${run.ranks.length} of ${run.ranks_total} that waited longest` : `Ranks: ${rows.length}`;
  }

  close() {}
}

const shown = (cell) => (cell instanceof Node ? cell : String(cell));

export class Data {
  constructor(page) {
    this.page = page;
    this.curve = new Curve("Wait for data of the slowest rank", [{ label: "wait", color: "data_wait" }], { size: "wide", format: seconds, marks: () => page.marks() });
    this.card = card("Wait for data by rank and step", "wide", el("div"));
    this.root = el("div", { className: "grid" }, this.curve.card, this.card);
    this.asked = 0;
  }

  show(run) {
    if (this.drawn !== run.version) this.curve.set([run.curves.slowest_wait]);
    else this.curve.again();
    this.drawn = run.version;
    if (performance.now() - this.asked > 4000) {
      this.asked = performance.now();
      this.load(run.run);
    }
  }

  async load(run) {
    const { rows, steps, last } = await get("/api/waits", { run, columns: 240 });
    if (!rows.length) return this.card.lastChild.replaceWith(nothing("No step yet."));
    const { canvas, most } = heat(rows);
    canvas.setAttribute("role", "img");
    canvas.setAttribute("aria-label", `Waits of ${rows.length} ranks; the longest mean is ${seconds(most)}`);
    canvas.onmousemove = (event) => {
      const box = canvas.getBoundingClientRect();
      const x = Math.floor(((event.clientX - box.left) / box.width) * rows[0].length);
      const y = Math.floor(((event.clientY - box.top) / box.height) * rows.length);
      tip.textContent = `rank ${y}, steps ${x * steps + 1} to ${Math.min(last, (x + 1) * steps)}: ${seconds(rows[y]?.[x])}`;
    };
    const tip = el("span", {}, `strongest = ${seconds(most)} a step`);
    this.card.lastChild.replaceWith(el("div", {}, canvas, el("div", { className: "axis" }, el("span", {}, "step 1"), tip, el("span", {}, `step ${whole(last)}`)),
      el("div", { className: "axis" }, `Rank 0 on top, rank ${rows.length - 1} at the foot.`)));
  }

  close() { this.curve.close(); }
}

export class Layers {
  constructor() {
    this.maps = { norms: card("Gradient norm by layer and step", "wide", el("div")), ratios: card("Update over weight by layer and step", "wide", el("div")) };
    this.root = el("div", { className: "grid" }, ...Object.values(this.maps));
    this.asked = 0;
  }

  show(run) {
    const due = this.asked === 0 || (!run.over && performance.now() - this.asked > 4000);
    if (due) this.load(run.run);
  }

  async load(run) {
    this.asked = performance.now();
    const found = await get("/api/layers", { run, columns: 240 });
    for (const [name, place] of Object.entries(this.maps)) {
      place.lastChild.replaceWith(found[name].length ? this.map(found, name) : nothing("No layer was measured yet."));
    }
  }

  map({ names, steps, last, ...tables }, name) {
    const rows = tables[name];
    const { canvas, most, least } = heat(rows, { shade: name === "norms" ? "accent" : "second", log: true });
    const range = `${count(least)} to ${count(most)}, the stronger the larger, logarithmic`;
    const tip = el("span", {}, range);
    canvas.setAttribute("role", "img");
    canvas.setAttribute("aria-label", `${names.length} layers over ${whole(last)} steps: ${range}`);
    canvas.onmousemove = (event) => {
      const box = canvas.getBoundingClientRect();
      const x = Math.floor(((event.clientX - box.left) / box.width) * rows[0].length);
      const y = Math.floor(((event.clientY - box.top) / box.height) * rows.length);
      tip.textContent = `${names[y]}, steps ${x * steps + 1} to ${Math.min(last, (x + 1) * steps)}: ${count(rows[y]?.[x] ?? null)}`;
    };
    canvas.onmouseleave = () => { tip.textContent = range; };
    return el("div", {}, canvas, el("div", { className: "axis" }, el("span", {}, "step 1"), tip, el("span", {}, `step ${whole(last)}`)),
      el("div", { className: "axis" }, `${names[0]} on top, ${names.at(-1)} at the foot.`));
  }

  close() {}
}

export class Checkpoints {
  constructor() {
    this.card = card("Checkpoints", "wide", el("div"));
    this.root = el("div", { className: "grid" }, this.card);
  }

  show(run, then) {
    const rows = run.checkpoints.filter((one) => !then || one.time_unix <= then.time_unix).reverse();
    const columns = [["step"], ["at"], ["size"], ["time to write"], ["held training up"], ["folder", "text"]];
    this.card.lastChild.replaceWith(rows.length ? table(columns, rows.map((one) => ({ cells: [whole(one.step), moment(one.time_unix),
      bytes(one.size_bytes), seconds(one.seconds), seconds(one.blocked_seconds), el("code", {}, one.path)].map(shown) }))) : nothing("No checkpoint yet."));
  }

  close() {}
}

export class Findings {
  constructor(page) {
    this.page = page;
    this.card = card("Findings", "wide", el("div"));
    this.root = el("div", { className: "grid" }, this.card);
  }

  show() {
    const all = this.page.findings();
    if (this.shown === all.length) return;
    this.shown = all.length;
    this.card.lastChild.replaceWith(all.length ? el("div", {}, ...[...all].reverse().map(told)) : nothing("None: nothing looks wrong."));
  }

  close() {}
}

function told(one) {
  const where = [one.step === null ? null : `step ${whole(one.step)}`, one.rank === null ? null : `rank ${one.rank}`, one.layer].filter(Boolean);
  return el("article", { className: `finding ${one.severity}` },
    el("h3", {}, one.message),
    el("p", { className: "dim" }, el("span", { className: `pill ${one.severity}` }, one.severity), ` ${one.detector} · ${where.join(", ")} · ${moment(one.time_unix)}`),
    one.evidence.length ? el("ul", {}, ...one.evidence.map((line) => el("li", {}, line))) : null,
    ...one.repairs.map((repair) => el("p", {}, el("strong", {}, "Repair: "), repair.title, repair.command ? el("code", {}, repair.command) : null,
      ...Object.entries(repair.spec_patch ?? {}).map(([key, value]) => el("code", {}, `--set ${key}=${value}`)))));
}

export class Logs {
  constructor() {
    this.log = el("select", { "aria-label": "Log" });
    this.text = el("input", { type: "search", placeholder: "Search, for instance error", "aria-label": "Search in the logs" });
    this.count = el("span", { className: "dim", role: "status" });
    this.lines = el("pre", { className: "log", tabIndex: 0, "aria-label": "Lines" });
    this.log.onchange = () => this.load();
    this.text.oninput = () => { clearTimeout(this.timer); this.timer = setTimeout(() => this.load(), 200); };
    this.root = el("div", { className: "grid" }, card("Logs", "wide",
      el("div", { className: "tools" }, this.log, this.text, this.count), this.lines));
    this.asked = 0;
  }

  show(run) {
    this.run = run.run;
    const due = run.over ? this.asked === 0 : performance.now() - this.asked > 2000;
    if (due) this.load();
  }

  async load() {
    this.asked = performance.now();
    const wanted = this.text.value;
    const found = await get("/api/logs", { run: this.run, log: this.log.value, text: wanted });
    if (wanted !== this.text.value) return;
    const names = ["", ...found.logs];
    if (names.length !== this.log.length) {
      const chosen = this.log.value;
      this.log.replaceChildren(...names.map((name) => el("option", { value: name }, name || "all logs")));
      this.log.value = chosen;
    }
    const atEnd = this.lines.scrollTop + this.lines.clientHeight > this.lines.scrollHeight - 30;
    this.lines.replaceChildren(...found.lines.flatMap(([name, line]) => [el("span", {}, `${name}  `), ...marked(line, wanted), "\n"]));
    this.count.textContent = `${count(found.lines.length)} ${found.lines.length === 1 ? "line" : "lines"}${found.complete ? "" : ", the newest; there are more"}`;
    if (atEnd) this.lines.scrollTop = this.lines.scrollHeight;
  }

  close() { clearTimeout(this.timer); }
}

function marked(line, wanted) {
  const place = wanted ? line.toLowerCase().indexOf(wanted.toLowerCase()) : -1;
  if (place < 0) return [line];
  const end = place + wanted.length;
  return [line.slice(0, place), el("mark", {}, line.slice(place, end)), line.slice(end)];
}

const SHADES = ["accent", "second", "good", "repeated", "checkpoint", "bad", "evaluation", "startup"];

export class Compare {
  constructor(page) {
    this.page = page;
    this.chosen = new Set([page.run.run, ...page.about.runs.filter((name) => name !== page.run.run).slice(0, 1)]);
    this.what = el("select", { "aria-label": "Curve" }, ...Object.entries({ loss: "loss", validation: "validation loss", grad_norm: "gradient norm",
      learning_rate: "learning rate", tokens_per_second: "tokens a second", step_seconds: "time of a step" }).map(([value, text]) => el("option", { value }, text)));
    this.what.onchange = () => this.load();
    this.boxes = el("ul", { className: "chosen" }, ...page.about.runs.slice(0, 40).map((name) => el("li", {}, el("label", {},
      el("input", { type: "checkbox", checked: this.chosen.has(name), onchange: (event) => this.choose(name, event.target.checked) }), ` ${name}`))));
    this.place = el("div", { className: "grid" });
    this.root = el("div", {}, el("div", { className: "tools" }, el("span", { className: "dim" }, "Compare the"), this.what, el("span", { className: "dim" }, "of")), this.boxes, this.place);
    this.asked = 0;
  }

  choose(name, on) {
    this.chosen[on ? "add" : "delete"](name);
    this.load();
  }

  show(run) {
    if (this.asked === 0 || (!run.over && performance.now() - this.asked > 3000)) this.load();
  }

  async load() {
    this.asked = performance.now();
    const names = [...this.chosen].slice(0, SHADES.length);
    const curves = await Promise.all(names.map((run) => get("/api/curve", { run, curve: this.what.value })));
    const key = `${this.what.value} ${names.join(" ")}`;
    if (key !== this.key) {
      this.key = key;
      this.curve?.close();
      this.curve = names.length ? new Curve(this.what.selectedOptions[0].text, names.map((name, n) =>
        ({ label: name, color: SHADES[n], sparse: true, dots: false })), { size: "wide", height: 420 }) : null;
      this.place.replaceChildren(...(this.curve ? [this.curve.card] : [nothing("Choose a run.")]));
    }
    this.curve?.set(curves);
  }

  close() { this.curve?.close(); }
}
