// Tables whose rows are kept: a row that is still there keeps its element, and with it the focus. So many are drawn at a
// time, and a button draws more.

import { isHolding, isWaiting } from "./data.js";
import { count, lasting, moment, places, size } from "./format.js";

const STEP = 50;

/** The roles are said: style may lay rows out as cards, and they stay a table's for who hears them. */
const ROLES = { table: "table", thead: "rowgroup", tbody: "rowgroup", tr: "row", td: "cell" };

function element(name, className, text) {
  const made = document.createElement(name);
  if (name in ROLES) made.setAttribute("role", ROLES[name]);
  if (className) made.className = className;
  if (text !== undefined) made.textContent = text;
  return made;
}

/** A table in a section. `columns`: { head, of(item) -> text, kind } where kind adds classes, or makes a job's button. */
class Table {
  #rows = new Map();
  #shown = STEP;

  constructor(section, columns, empty, redraw) {
    this.columns = columns;
    this.body = element("tbody");
    const head = element("tr");
    for (const each of columns) {
      const cell = element("th", each.kind, each.head);
      cell.scope = "col";
      cell.setAttribute("role", "columnheader");
      head.append(cell);
    }
    const thead = element("thead");
    thead.append(head);
    this.table = element("table");
    this.table.setAttribute("aria-labelledby", section.getAttribute("aria-labelledby"));
    this.table.append(thead, this.body);
    this.empty = element("p", "empty", empty);
    this.more = element("button", "more");
    this.more.type = "button";
    this.more.addEventListener("click", () => {
      this.#shown += STEP;
      redraw();
    });
    section.append(this.table, this.empty, this.more);
  }

  /** Draw these items, each with a key of its own. `unsent`: there are so many more that were not sent. */
  draw(items, keyOf, classOf, unsent = 0) {
    const wanted = items.slice(0, this.#shown);
    const keys = new Set(wanted.map(keyOf));
    // first, so that those after them stay where they are: a row that is placed anew loses the focus
    for (const [key, row] of this.#rows) if (!keys.has(key)) row.remove();
    const kept = new Map();
    let at = this.body.firstChild;
    for (const item of wanted) {
      const key = keyOf(item);
      const row = this.#rows.get(key) ?? this.#made();
      this.#fill(row, item, classOf(item));
      kept.set(key, row);
      if (row === at) at = at.nextSibling;
      else this.body.insertBefore(row, at);
    }
    this.#rows = kept;
    this.table.hidden = items.length === 0;
    this.empty.hidden = items.length !== 0;
    const left = items.length - wanted.length;
    this.more.hidden = left === 0 && unsent === 0;
    this.more.disabled = left === 0;
    const rest = left + unsent;
    this.more.textContent = left ? `Show ${Math.min(left, STEP)} more of ${rest}` : `${rest} more are not sent to this page`;
  }

  #made() {
    const row = element("tr");
    for (const each of this.columns) {
      const names = each.kind === "job" || each.kind === "name";
      const cell = element(names ? "th" : "td", names ? "" : each.kind);
      cell.dataset.head = each.head;
      if (names) {
        cell.scope = "row";
        cell.setAttribute("role", "rowheader");
      }
      if (each.kind === "job") {
        const button = element("button", "job");
        button.type = "button";
        button.append(element("span"), " ", document.createElement("bdi"));
        cell.append(button);
      }
      row.append(cell);
    }
    return row;
  }

  #fill(row, item, className) {
    if (row.className !== className) row.className = className;
    this.columns.forEach((each, at) => {
      const cell = row.children[at];
      const text = each.of(item);
      if (each.kind === "job") {
        const [number, name] = cell.firstChild.children;
        if (number.textContent !== text || name.textContent !== item.name) {
          number.textContent = text;
          name.textContent = cell.firstChild.title = item.name;
          cell.firstChild.dataset.job = text;
        }
      } else if (cell.textContent !== text) {
        cell.textContent = text;
      }
    });
  }
}

/** All tables of the page. */
export class Tables {
  constructor(data, redraw) {
    this.data = data;
    const now = () => data.nowMs();
    const when = (ms) => moment(ms, now());
    const section = (id) => document.getElementById(id);
    const job = { head: "Job", kind: "job", of: (each) => `${each.id}` };
    const user = { head: "User", kind: "", of: (each) => (data.isMine(each) ? "you" : each.user) };
    const tasks = { head: "Tasks", kind: "number", of: (each) => `${each.tasks}` };
    const why = { head: "Why it waits", kind: "", of: (each) => data.why(each) };
    this.mine = new Table(section("mine"), [
      job,
      { head: "State", kind: "short", of: (each) => each.state },
      tasks,
      { head: "When", kind: "short", of: (each) => this.#when(each, when, now()) },
      { head: "Nodes, or why it waits", kind: "", of: (each) => (isWaiting(each) ? data.why(each) : places(each.nodes)) },
    ], "You have no jobs here. On a terminal, cosched submit gives one.", redraw);
    this.queue = new Table(section("queue"), [
      job,
      { head: "Place", kind: "number", of: (each) => (each.state === "waiting" ? "–" : `${data.queue.indexOf(each.id) + 1}`) },
      user,
      tasks,
      { head: "Time limit", kind: "short wide", of: (each) => lasting(each.limitMs) },
      { head: "Submitted", kind: "short wide", of: (each) => when(each.submitMs) },
      { head: "Promised start", kind: "short", of: (each) => when(each.promisedMs) || "none yet" },
      why,
    ], "No job waits.", redraw);
    this.running = new Table(section("running"), [
      job,
      user,
      tasks,
      { head: "Nodes", kind: "", of: (each) => places(each.nodes) },
      { head: "Started", kind: "short", of: (each) => when(each.startMs) || each.state },
      { head: "Ends by", kind: "short", of: (each) => (each.startMs === null ? "" : when(each.startMs + each.limitMs)) },
      { head: "Why it was started", kind: "wide", of: (each) => each.why },
    ], "No job runs.", redraw);
    this.aside = new Table(section("aside"), [
      { head: "What", kind: "name", of: (each) => `${each.kind} ${each.name}` },
      { head: "Why", kind: "", of: (each) => each.what },
      { head: "By", kind: "short", of: (each) => each.by },
      { head: "Since", kind: "short", of: (each) => (each.since ? when(Date.parse(each.since)) : "not known") },
      { head: "Comes back when", kind: "", of: (each) => each.back },
    ], "Nothing is set aside that you may see.", redraw);
    this.nodes = new Table(section("nodes"), [
      { head: "Node", kind: "name", of: (each) => each.name },
      { head: "Availability", kind: "short", of: (each) => each.availability },
      { head: "State", kind: "", of: (each) => (each.note ? `${each.state}: ${each.note}` : each.state) },
      { head: "Jobs", kind: "words", of: (each) => places((this.onNode.get(each.name) ?? []).map(String), 3) || "none" },
      { head: "CPUs", kind: "number", of: (each) => (each.cpus ? `${each.cpus}` : "") },
      { head: "Memory", kind: "short wide", of: (each) => (each.memoryBytes ? size(each.memoryBytes) : "") },
      { head: "Contract beside its owner", kind: "wide", of: contract },
      { head: "Limit now", kind: "short wide", of: (each) => (each.limitCpus === null ? "none" : `${each.limitCpus.toFixed(2)} CPUs`) },
      { head: "Desk wakes within", kind: "short wide", of: woke },
      { head: "Last heard", kind: "short wide", of: (each) => (each.heardMs === null ? (each.cpus ? "now" : "never") : `${lasting(now() - each.heardMs)} ago`) },
    ], "No node belongs to this cluster.", redraw);
    this.ended = new Table(section("ended"), [
      job,
      user,
      { head: "How", kind: "short", of: (each) => each.state },
      { head: "Ended", kind: "short", of: (each) => when(each.endMs) },
      { head: "Ran for", kind: "short", of: (each) => (each.startMs === null ? "" : lasting(each.endMs - each.startMs)) },
      { head: "Nodes", kind: "wide", of: (each) => places(each.nodes) },
    ], "No job has ended yet.", redraw);
  }

  /** Draw them all. */
  draw() {
    const { data } = this;
    const holding = data.holding();
    this.onNode = new Map();
    for (const job of holding) {
      for (const name of job.nodes) this.onNode.set(name, [...(this.onNode.get(name) ?? []), job.id]);
    }
    const byId = (job) => job.id;
    const classOf = (job) => (data.isMine(job) ? "mine" : "");
    const queue = data.waiting();
    this.mine.draw(data.mine(), byId, () => "mine");
    this.queue.draw(queue, byId, classOf, data.cluster ? data.cluster.more_jobs : 0);
    this.running.draw(holding, byId, classOf);
    this.aside.draw(data.aside, (each) => `${each.kind} ${each.name} ${each.what}`, () => "");
    this.nodes.draw(data.nodes, (node) => node.name, () => "", data.cluster ? data.cluster.more_nodes : 0);
    this.ended.draw(data.ended(), byId, classOf);
  }

  #when(job, when, nowMs) {
    if (job.state === "queued") return job.promisedMs === null ? "no start promised yet" : `starts by ${when(job.promisedMs)}`;
    if (job.state === "waiting") return `since ${when(job.submitMs)}`;
    if (isHolding(job)) return job.startMs === null ? "" : `for ${lasting(nowMs - job.startMs)} of ${lasting(job.limitMs)}`;
    return `ended ${when(job.endMs)}`;
  }
}

function contract(node) {
  if (node.cpuShare === 1 && node.memoryShare === 1 && node.mpl === 1) return "the whole node";
  const share = (part) => `${Math.round(100 * part)} %`;
  return `${share(node.cpuShare)} of CPU, ${share(node.memoryShare)} of memory, ${count(node.mpl, "task")} a CPU`;
}

/** Of 100 wake-ups at the desk, within what 99 came; below 0: later than that. */
function woke({ wokeMs }) {
  if (wokeMs === null) return "not measured";
  return wokeMs < 0 ? `over ${-wokeMs} ms` : `${wokeMs} ms`;
}
