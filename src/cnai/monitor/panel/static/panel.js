// The page: one live stream, one room at a time, and a slider to look back.
import { count, el, get, seconds, whole } from "./format.js";
import { Checkpoints, Compare, Data, Findings, Layers, Logs, Overview, Ranks } from "./rooms.js";

const ROOMS = { overview: ["Overview", Overview], ranks: ["Ranks", Ranks], layers: ["Layers", Layers], data: ["Data", Data], checkpoints: ["Checkpoints", Checkpoints],
  findings: ["Findings", Findings], logs: ["Logs", Logs], compare: ["Compare", Compare] };
const MOST_POINTS = 4000;
const FINAL = new Set(["done", "failed", "stopped"]);
const $ = (id) => document.getElementById(id);

class Page {
  constructor(about) {
    this.about = about;
    this.run = null;
    this.then = null;
    this.version = 0;
    this.tabs();
    this.replay();
    $("run").replaceChildren(...about.runs.map((name) => el("option", {}, name)));
    $("run").value = new URLSearchParams(location.search).get("run") ?? about.run;
    $("run").onchange = () => this.open($("run").value);
    if (about.missing) this.notice(about.missing);
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => this.enter(this.name));
  }

  open(name) {
    this.stream?.close();
    this.run = this.then = null;
    this.name = this.name ?? (location.hash.slice(1) in ROOMS ? location.hash.slice(1) : "overview");
    this.stream = new EventSource(`/api/live?${new URLSearchParams({ run: name })}`);
    this.stream.onopen = () => this.link("live", true);
    this.stream.onerror = () => this.link("not connected; trying again", false);
    this.stream.addEventListener("whole", (event) => this.take(event, (plain) => plain));
    this.stream.addEventListener("news", (event) => this.take(event, (plain) => this.grown(plain)));
  }

  take(event, merge) {
    const begun = performance.now();
    const first = this.run === null;
    const plain = JSON.parse(event.data);
    const changed = event.type === "whole" || plain.curves.loss.x.length || plain.validation.x.length !== this.run.validation.x.length;
    this.run = merge(plain);
    if (changed) this.version += 1;
    this.run.version = this.version;
    this.run.over = FINAL.has(this.run.state);
    if (first) this.enter(this.name, false);
    else this.show();
    performance.measure(first ? "cnai-first" : "cnai-update", { start: begun });
    if (this.run.curves.loss.x.length > MOST_POINTS) this.open(this.run.run);
  }

  grown(plain) {
    for (const [name, { x, y }] of Object.entries(plain.curves)) {
      const kept = this.run.curves[name];
      kept.x.push(...x);
      kept.y.push(...y);
    }
    return { ...plain, curves: this.run.curves, findings: [...this.run.findings, ...plain.findings] };
  }

  link(text, on) {
    $("link").textContent = text;
    $("link").classList.toggle("on", on);
  }

  notice(text) {
    $("notice").hidden = !text;
    $("notice").textContent = text;
  }

  findings() {
    return this.then ? this.run.findings.filter((one) => one.time_unix <= this.then.time_unix) : this.run.findings;
  }

  marks() {
    return { findings: this.run.findings.filter((one) => one.step !== null), checkpoints: this.run.checkpoints.map((one) => one.step), at: this.then?.step ?? null };
  }

  show() {
    const { run, then } = this;
    document.title = `${run.run} · ${run.state}`;
    $("state").textContent = run.state;
    $("state").className = `pill ${run.state}`;
    $("layout").textContent = [run.layout, run.attempt ? `attempt ${run.attempt + 1}` : ""].filter(Boolean).join(" · ");
    const step = then?.step ?? run.step;
    $("progress").value = run.steps ? step / run.steps : 0;
    $("steps").textContent = run.steps ? `step ${whole(step)} of ${whole(run.steps)}` : "no step yet";
    $("eta").textContent = run.over ? run.reason : run.eta_seconds === null ? "" : `${seconds(run.eta_seconds)} left`;
    $("at").max = Math.max(1, run.step);
    $("at").disabled = $("play").disabled = run.step < 2;
    if (!then) $("at").value = run.step;
    this.warn();
    const found = this.findings().length;
    const tab = $("tab-findings");
    tab.replaceChildren("Findings", ...(found ? [el("b", {}, count(found))] : []));
    this.room.show(run, then);
  }

  warn() {
    const { run } = this;
    const quiet = run.quiet_seconds ?? 0;
    if (this.about.missing) return;
    if (!run.over && !run.alive && run.step > 0) this.notice("No process works on this run: it broke off, or it runs on another machine.");
    else if (!run.over && quiet > Math.max(60, 10 * (run.step_seconds ?? 0))) this.notice(`No rank has reported for ${seconds(quiet)}.`);
    else this.notice("");
  }

  tabs() {
    const names = Object.keys(ROOMS);
    $("tabs").replaceChildren(...names.map((name) => el("button", { id: `tab-${name}`, type: "button", role: "tab", "aria-controls": "room",
      onclick: () => this.enter(name) }, ROOMS[name][0])));
    $("tabs").onkeydown = (event) => {
      const move = { ArrowRight: 1, ArrowLeft: -1, Home: -names.length, End: names.length }[event.key];
      if (!move) return;
      const at = names.indexOf(this.name);
      const next = Math.abs(move) === 1 ? (at + move + names.length) % names.length : move < 0 ? 0 : names.length - 1;
      this.enter(names[next]);
      $(`tab-${names[next]}`).focus();
      event.preventDefault();
    };
    document.addEventListener("keydown", (event) => {
      if (event.target.matches("input, select, button, textarea") || event.ctrlKey || event.metaKey || event.altKey) return;
      const name = names[Number(event.key) - 1];
      if (name) this.enter(name);
      if (event.key === "/") { this.enter("logs"); $("room").querySelector("input[type=search]").focus(); event.preventDefault(); }
    });
  }

  enter(name, remember = true) {
    if (!this.run) { this.name = name; return; }
    this.room?.close();
    this.name = name;
    if (remember) history.replaceState(null, "", `#${name}`);
    for (const tab of $("tabs").children) {
      const here = tab.id === `tab-${name}`;
      tab.setAttribute("aria-selected", String(here));
      tab.tabIndex = here ? 0 : -1;
    }
    this.room = new ROOMS[name][1](this);
    $("room").setAttribute("aria-labelledby", `tab-${name}`);
    $("room").replaceChildren(this.room.root);
    this.show();
  }

  replay() {
    $("at").oninput = () => this.look(Number($("at").value));
    $("live").onclick = () => this.look(null);
    $("play").onclick = () => (this.playing ? this.pause() : this.play());
  }

  async look(step) {
    this.wanted = step;
    if (step === null) {
      this.pause();
      this.then = null;
    } else {
      const then = await get("/api/step", { run: this.run.run, step });
      if (this.wanted !== step) return;
      this.then = then.step === undefined ? null : then;
    }
    document.body.classList.toggle("replay", this.then !== null);
    $("live").disabled = this.then === null;
    $("when").textContent = this.then ? `step ${whole(this.then.step)}` : "live";
    this.show();
  }

  play() {
    let step = this.then && this.then.step < this.run.step ? this.then.step : 0;
    const stride = Math.max(1, Math.round(this.run.step / 150));
    this.playing = setInterval(() => {
      step = Math.min(this.run.step, step + stride);
      $("at").value = step;
      this.look(step);
      if (step >= this.run.step) this.pause();
    }, 100);
    $("play").textContent = "\u275A\u275A";
    $("play").setAttribute("aria-label", "Pause");
  }

  pause() {
    clearInterval(this.playing);
    this.playing = null;
    $("play").textContent = "\u25B6";
    $("play").setAttribute("aria-label", "Play the run");
  }
}

const page = new Page(await get("/api/about"));
page.open($("run").value);
