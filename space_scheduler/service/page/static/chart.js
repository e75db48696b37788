// The chart: nodes down, time across, drawn on a canvas. What is drawn is what is in the window of time; the keyboard
// goes from bar to bar, and what is chosen is said in words.

import { fitting, onNodes, promises } from "./bars.js";
import { isHolding, wentWrong } from "./data.js";
import { lasting, moment, places, tick } from "./format.js";

const STEPS_MS = [1e3, 5e3, 10e3, 30e3, 60e3, 300e3, 600e3, 1800e3, 3600e3, 3 * 3600e3, 6 * 3600e3, 12 * 3600e3, 86400e3, 7 * 86400e3];
const AXIS_PX = 22;
const PROMISE_PX = 13;
const SHORTEST_MS = 5e3;
const LONGEST_MS = 60 * 86400e3;
const MOST_PX = 8000;

export class Chart {
  #data;
  #chosen = null; // { name, job } of the bar that the keyboard or the pointer is at
  #follow = true;
  #span = null; // [from, to]; null: what fits
  #version = -1;
  #rows = new Map();
  #promises = { bars: [], lanes: 0 };
  #colours = {};
  #said = "";

  constructor(data, open) {
    this.#data = data;
    this.open = open;
    this.box = document.getElementById("box");
    this.axis = document.getElementById("axis");
    this.canvas = document.getElementById("chart");
    this.told = document.getElementById("told");
    this.canvas.addEventListener("keydown", (event) => this.#key(event));
    this.canvas.addEventListener("pointermove", (event) => this.#point(event));
    this.canvas.addEventListener("pointerleave", () => this.#choose(null));
    this.canvas.addEventListener("click", (event) => this.#click(event));
    this.#drags();
    this.canvas.addEventListener("wheel", (event) => this.#wheel(event), { passive: false });
    this.boxPx = this.box.clientWidth;
    new ResizeObserver(() => {
      this.boxPx = this.box.clientWidth; // read here alone: elsewhere it would have the browser lay out the tables first
      this.draw();
    }).observe(this.box);
    for (const [id, what] of [["earlier", () => this.#move(-0.25)], ["later", () => this.#move(0.25)],
      ["closer", () => this.#zoom(0.5)], ["wider", () => this.#zoom(2)], ["now", () => this.#toNow()]]) {
      document.getElementById(id).addEventListener("click", what);
    }
    this.recolour();
  }

  /** Take the colours of the page's style anew: the theme has changed. */
  recolour() {
    const style = getComputedStyle(document.documentElement);
    for (const name of ["card", "text", "dim", "line", "mine", "other", "bad", "promise", "limited", "out", "now", "grid", "link", "bar-text"]) {
      this.#colours[name] = style.getPropertyValue(`--${name}`).trim();
    }
    this.draw();
  }

  draw() {
    const data = this.#data;
    if (!data.cluster) return;
    if (this.#version !== data.version) {
      this.#rows = onNodes(data);
      this.#promises = promises(data);
      this.#version = data.version;
    }
    const width = this.boxPx;
    this.gutter = width < 600 ? 62 : 104;
    this.width = width;
    this.rowPx = rowHeight(data.nodes.length);
    this.topPx = AXIS_PX + (this.#promises.lanes ? this.#promises.lanes * PROMISE_PX + 6 : 0);
    this.#advance();
    this.#drawAxis(context(this.axis, width, this.topPx));
    this.#drawNodes(context(this.canvas, width, Math.max(1, data.nodes.length) * this.rowPx));
  }

  // the window of time

  #advance() {
    if (!this.#span) {
      this.window = fitting(this.#data);
    } else if (this.#follow) {
      const nowMs = this.#data.nowMs();
      this.window = [nowMs - this.#span[0], nowMs + this.#span[1]];
    }
  }

  #fix(from, to) {
    const nowMs = this.#data.nowMs();
    this.window = [from, to];
    this.#span = [nowMs - from, to - nowMs];
    document.getElementById("now").setAttribute("aria-pressed", String(this.#follow));
    this.draw();
  }

  #move(part) {
    if (!this.window) return;
    const [from, to] = this.window;
    this.#follow = false;
    this.#fix(from + part * (to - from), to + part * (to - from));
  }

  #zoom(factor, aroundMs) {
    if (!this.window) return;
    const [from, to] = this.window;
    const length = Math.min(LONGEST_MS, Math.max(SHORTEST_MS, (to - from) * factor));
    const nowMs = this.#data.nowMs();
    const around = aroundMs ?? (from < nowMs && nowMs < to ? nowMs : (from + to) / 2);
    const part = (around - from) / (to - from);
    this.#fix(around - part * length, around + (1 - part) * length);
  }

  #toNow() {
    this.#follow = true;
    this.#span = null;
    document.getElementById("now").setAttribute("aria-pressed", "true");
    this.draw();
  }

  #x(ms) {
    const [from, to] = this.window;
    return this.gutter + ((ms - from) / (to - from)) * (this.width - this.gutter);
  }

  #ms(x) {
    const [from, to] = this.window;
    return from + ((x - this.gutter) / (this.width - this.gutter)) * (to - from);
  }

  // drawing

  #ticks(leastPx) {
    const [from, to] = this.window;
    const perPx = (to - from) / Math.max(1, this.width - this.gutter);
    const step = STEPS_MS.find((each) => each / perPx >= leastPx) ?? STEPS_MS.at(-1) * Math.ceil((leastPx * perPx) / STEPS_MS.at(-1));
    const zoneMs = new Date(from).getTimezoneOffset() * 60e3;
    const found = [];
    for (let ms = Math.ceil((from - zoneMs) / step) * step + zoneMs; ms <= to; ms += step) found.push(ms);
    return [found, step];
  }

  #drawAxis(pen) {
    const c = this.#colours;
    pen.fillStyle = c.card;
    pen.fillRect(0, 0, this.width, this.topPx);
    pen.font = "12px system-ui, DejaVu Sans, sans-serif";
    pen.textBaseline = "middle";
    pen.fillStyle = c.dim;
    pen.textAlign = "center";
    const [ticks, step] = this.#ticks(76);
    for (const ms of ticks) {
      const x = this.#x(ms);
      if (x > this.gutter + 24 && x < this.width - 20) pen.fillText(tick(ms, step), x, AXIS_PX / 2);
    }
    if (this.#promises.lanes) {
      pen.textAlign = "left";
      pen.fillText(this.gutter > 80 ? "promised" : "prom.", 8, AXIS_PX + (this.topPx - AXIS_PX) / 2);
    }
    this.#clip(pen, this.topPx, () => {
      for (const { job, fromMs, toMs, lane } of this.#promises.bars) {
        const [left, right] = this.#sides(fromMs, toMs);
        if (right < this.gutter || left > this.width) continue;
        pen.strokeStyle = this.#data.isMine(job) ? c.mine : c.promise;
        pen.lineWidth = this.#data.isMine(job) ? 2 : 1;
        pen.setLineDash([4, 2]);
        pen.strokeRect(left + 1, AXIS_PX + lane * PROMISE_PX + 2, right - left - 2, PROMISE_PX - 4);
        pen.setLineDash([]);
      }
      this.#nowLine(pen, AXIS_PX, this.topPx);
    });
    pen.fillStyle = c.line;
    pen.fillRect(0, this.topPx - 1, this.width, 1);
  }

  #drawNodes(pen) {
    const c = this.#colours;
    const { nodes } = this.#data;
    const bottom = nodes.length * this.rowPx;
    pen.fillStyle = c.card;
    pen.fillRect(0, 0, this.width, bottom);
    nodes.forEach((node, at) => this.#ground(pen, node, at * this.rowPx));
    pen.fillStyle = c.grid;
    for (const ms of this.#ticks(76)[0]) if (this.#x(ms) > this.gutter) pen.fillRect(this.#x(ms), 0, 1, bottom);
    this.#clip(pen, bottom, () => {
      for (const layer of this.#layers()) {
        pen.fillStyle = c[layer.colour];
        pen.globalAlpha = layer.alpha;
        for (const [x, y, w, h] of layer.rects) pen.fillRect(x, y, w, h);
      }
      pen.globalAlpha = 1;
      this.#numbers(pen);
      this.#nowLine(pen, 0, bottom);
      this.#outline(pen);
    });
  }

  /** The row of a node: its name, and whether jobs have it. */
  #ground(pen, node, y) {
    const c = this.#colours;
    if (node.availability === "limited") {
      pen.fillStyle = c.limited;
      pen.fillRect(this.gutter, y, this.width - this.gutter, this.rowPx);
    } else if (node.availability === "not available") {
      pen.fillStyle = c.out;
      for (let x = this.gutter; x < this.width; x += 8) pen.fillRect(x, y, 4, this.rowPx);
    }
    if (this.rowPx >= 14) {
      pen.fillStyle = c.grid;
      pen.fillRect(0, y + this.rowPx - 1, this.width, 1);
    }
    const every = Math.ceil(14 / this.rowPx);
    if (Math.round(y / this.rowPx) % every) return;
    pen.font = "12px system-ui, DejaVu Sans, sans-serif";
    pen.textBaseline = "middle";
    pen.textAlign = "left";
    pen.fillStyle = c.text;
    pen.fillText(fitted(pen, node.name, this.gutter - 14), 8, y + Math.max(7, this.rowPx / 2));
  }

  /** The bars' rectangles, by their colour: few changes of colour, however many bars. */
  #layers() {
    const layers = {
      otherRest: { colour: "other", alpha: 0.35, rects: [] }, mineRest: { colour: "mine", alpha: 0.35, rects: [] },
      other: { colour: "other", alpha: 1, rects: [] }, mine: { colour: "mine", alpha: 1, rects: [] },
      bad: { colour: "bad", alpha: 1, rects: [] },
    };
    const nowMs = this.#data.nowMs();
    this.#data.nodes.forEach((node, at) => {
      const row = this.#rows.get(node.name);
      if (!row) return;
      for (const bar of row.bars) {
        const [x, y, w, h] = this.#place(at, row, bar);
        if (x + w < this.gutter || x > this.width) continue;
        const whose = this.#data.isMine(bar.job) ? "mine" : "other";
        if (bar.job.endMs !== null) {
          layers[whose].rects.push([x, y, w, h]);
          if (wentWrong(bar.job)) layers.bad.rects.push([x, y + h * 0.7, w, h * 0.3]);
          continue;
        }
        const [, untilNow] = this.#sides(bar.fromMs, Math.min(nowMs, bar.toMs));
        layers[whose].rects.push([x, y, Math.max(1, untilNow - x), h]);
        if (bar.toMs > nowMs) layers[`${whose}Rest`].rects.push([untilNow, y, x + w - untilNow, h]);
      }
    });
    return Object.values(layers);
  }

  #numbers(pen) {
    if (this.rowPx < 14) return;
    pen.font = "11px system-ui, DejaVu Sans, sans-serif";
    pen.textBaseline = "middle";
    pen.textAlign = "left";
    pen.fillStyle = this.#colours["bar-text"];
    this.#data.nodes.forEach((node, at) => {
      const row = this.#rows.get(node.name);
      for (const bar of row ? row.bars : []) {
        const [x, y, , h] = this.#place(at, row, bar);
        const [, right] = this.#sides(bar.fromMs, Math.min(this.#data.nowMs(), bar.toMs));
        const left = Math.max(x, this.gutter);
        const text = `${bar.job.id}`;
        if (h >= 11 && right - left > 8 + 7 * text.length) pen.fillText(text, left + 4, y + h / 2);
      }
    });
  }

  #nowLine(pen, top, bottom) {
    const x = this.#x(this.#data.nowMs());
    if (x < this.gutter) return;
    pen.fillStyle = this.#colours.now;
    pen.fillRect(x - 1, top, 2, bottom - top);
  }

  #outline(pen) {
    if (!this.#chosen) return;
    pen.strokeStyle = this.#colours.text;
    pen.lineWidth = 2;
    this.#data.nodes.forEach((node, at) => {
      const row = this.#rows.get(node.name);
      const bar = row && row.bars.find((each) => each.job.id === this.#chosen.job);
      if (!bar) return;
      const [x, y, w, h] = this.#place(at, row, bar);
      pen.strokeRect(x, y, w, h);
    });
  }

  #clip(pen, bottom, draw) {
    pen.save();
    pen.beginPath();
    pen.rect(this.gutter, 0, this.width - this.gutter, bottom);
    pen.clip();
    draw();
    pen.restore();
  }

  #sides(fromMs, toMs) {
    const left = this.#x(fromMs);
    return [left, Math.max(left + 1.5, this.#x(toMs))];
  }

  #place(at, row, bar) {
    const [left, right] = this.#sides(bar.fromMs, bar.toMs);
    const pad = this.rowPx >= 14 ? 2 : this.rowPx >= 8 ? 1 : 0;
    const lane = (this.rowPx - 2 * pad) / row.lanes;
    return [left, at * this.rowPx + pad + bar.lane * lane, right - left, Math.max(1, lane - (row.lanes > 1 && lane > 4 ? 1 : 0))];
  }

  // pointer and keyboard

  #barAt(event) {
    const { left, top } = this.canvas.getBoundingClientRect();
    const [x, y] = [event.clientX - left, event.clientY - top];
    const node = this.#data.nodes[Math.floor(y / this.rowPx)];
    const row = node && this.#rows.get(node.name);
    if (!row || x < this.gutter) return node && x < this.gutter ? { node } : null;
    const ms = this.#ms(x);
    const lane = Math.min(row.lanes - 1, Math.floor(((y % this.rowPx) / this.rowPx) * row.lanes));
    const slackMs = this.#ms(x + 3) - ms;
    const bar = row.bars.find((each) => each.lane === lane && each.fromMs - slackMs <= ms && ms <= each.toMs + slackMs);
    return { node, bar };
  }

  #point(event) {
    if (this.dragging) return;
    const at = this.#barAt(event);
    this.#choose(at && at.bar ? { name: at.node.name, job: at.bar.job.id } : null, at && at.node);
  }

  #click(event) {
    const at = this.#barAt(event);
    if (at && at.bar && !this.dragged) this.open(at.bar.job.id);
  }

  #drags() {
    let last = null;
    this.canvas.addEventListener("pointerdown", (event) => {
      last = event.clientX;
      this.dragged = false;
    });
    window.addEventListener("pointerup", () => {
      last = null;
      this.dragging = false;
    });
    this.canvas.addEventListener("pointermove", (event) => {
      if (last === null || !event.buttons || (!this.dragging && Math.abs(event.clientX - last) < 4)) return;
      this.dragging = this.dragged = true;
      const part = (last - event.clientX) / Math.max(1, this.width - this.gutter);
      last = event.clientX;
      this.#move(part);
    });
  }

  #wheel(event) {
    if (!event.ctrlKey && !event.metaKey) return; // the page scrolls
    event.preventDefault();
    this.#zoom(event.deltaY > 0 ? 1.25 : 0.8, this.#ms(event.clientX - this.canvas.getBoundingClientRect().left));
  }

  #key(event) {
    const sideways = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
    const upwards = { ArrowUp: -1, ArrowDown: 1 }[event.key];
    if (event.key === "+" || event.key === "=") this.#zoom(0.5);
    else if (event.key === "-") this.#zoom(2);
    else if (event.key === "Home") this.#toNow();
    else if (sideways && event.shiftKey) this.#move(0.25 * sideways);
    else if (sideways) this.#step(sideways);
    else if (upwards) this.#stepNode(upwards);
    else if (event.key === "Enter" && this.#chosen) this.open(this.#chosen.job);
    else return;
    event.preventDefault();
  }

  /** To the next bar on this node, or the one before. */
  #step(by) {
    const row = this.#chosen && this.#rows.get(this.#chosen.name);
    if (!row) return this.#stepNode(1);
    const at = row.bars.findIndex((each) => each.job.id === this.#chosen.job);
    const bar = row.bars[Math.min(row.bars.length - 1, Math.max(0, at + by))];
    if (bar) this.#goTo(this.#chosen.name, bar);
  }

  /** To the nearest node with bars in that direction: there, to what runs or is nearest to now. */
  #stepNode(by) {
    const names = this.#data.nodes.map((node) => node.name);
    let at = this.#chosen ? names.indexOf(this.#chosen.name) : by > 0 ? -1 : names.length;
    for (at += by; at >= 0 && at < names.length; at += by) {
      const { bars } = this.#rows.get(names[at]);
      if (bars.length) return this.#goTo(names[at], bars.find((each) => isHolding(each.job)) ?? bars.at(-1));
    }
    return undefined;
  }

  #goTo(name, bar) {
    const [from, to] = this.window;
    if (bar.toMs < from || bar.fromMs > to) {
      this.#follow = false;
      this.window = [bar.fromMs - (to - from) / 2, bar.fromMs + (to - from) / 2];
      this.#fix(...this.window);
    }
    const y = this.topPx + this.#data.nodes.findIndex((node) => node.name === name) * this.rowPx;
    if (y - this.topPx < this.box.scrollTop || y + this.rowPx > this.box.scrollTop + this.box.clientHeight) {
      this.box.scrollTop = y - this.box.clientHeight / 2;
    }
    this.#choose({ name, job: bar.job.id });
  }

  #choose(chosen, node = null) {
    const same = chosen && this.#chosen && chosen.job === this.#chosen.job && chosen.name === this.#chosen.name;
    this.#chosen = chosen;
    const job = chosen && this.#data.jobs.get(chosen.job);
    const text = job ? this.#words(job) : node ? `${node.name}: ${node.availability}` : "";
    if (text !== this.#said) this.told.textContent = this.#said = text || "\u00a0";
    if (!same) this.draw();
  }

  #words(job) {
    const nowMs = this.#data.nowMs();
    const name = job.name ? ` \u2068${job.name}\u2069` : "";
    const whose = this.#data.isMine(job) ? "yours" : `of ${job.user}`;
    const endMs = job.startMs + job.limitMs;
    const ends = endMs < nowMs ? "was expected to end by" : "ends by";
    const ran = job.endMs === null ? `running since ${moment(job.startMs, nowMs)}, ${ends} ${moment(endMs, nowMs)}`
      : `${job.state} ${moment(job.endMs, nowMs)} after ${lasting(job.endMs - job.startMs)}`;
    return `Job ${job.id}${name}, ${whose}, on ${places(job.nodes)}: ${ran}`;
  }
}

function rowHeight(nodes) {
  const wanted = nodes <= 12 ? 26 : nodes <= 40 ? 18 : 9;
  return Math.max(2, Math.min(wanted, Math.floor(MOST_PX / Math.max(1, nodes))));
}

/** A canvas of that size for this screen, and what draws on it. */
function context(canvas, width, height) {
  const ratio = Math.min(2, window.devicePixelRatio || 1);
  const [w, h] = [Math.round(width * ratio), Math.round(height * ratio)];
  if (canvas.width !== w || canvas.height !== h) {
    canvas.width = w;
    canvas.height = h;
    canvas.style.width = `${width}px`;
    canvas.style.height = `${height}px`;
  }
  const pen = canvas.getContext("2d");
  pen.setTransform(ratio, 0, 0, ratio, 0, 0);
  return pen;
}

function fitted(pen, text, px) {
  if (pen.measureText(text).width <= px) return text;
  let cut = text;
  while (cut.length > 1 && pen.measureText(`${cut}…`).width > px) cut = cut.slice(0, -1);
  return `${cut}…`;
}
