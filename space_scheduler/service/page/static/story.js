// One job's story, asked for when somebody opens it, and again when the job takes a step.

import { lasting, moment, size } from "./format.js";

export class Story {
  #id = null;
  #row = null;
  #asked = false;
  /** Something has happened since it was asked. */
  #again = false;

  constructor(data) {
    this.data = data;
    this.dialog = document.getElementById("story");
    this.title = document.getElementById("story-title");
    this.body = document.getElementById("story-body");
    document.getElementById("story-close").addEventListener("click", () => this.dialog.close());
    this.dialog.addEventListener("close", () => {
      if (!this.dialog.open) this.#id = null; // it is told late: another may be open by then
    });
    this.dialog.addEventListener("click", (event) => event.target === this.dialog && this.dialog.close());
  }

  open(id) {
    this.#id = id;
    this.#row = this.data.jobs.get(id);
    this.title.textContent = `Job ${id}`;
    this.body.replaceChildren(line("p", "Asking …"));
    if (!this.dialog.open) this.dialog.showModal();
    this.#ask();
  }

  /** A frame has come: the story is told anew where the job has taken a step. */
  follow() {
    if (this.#id === null || this.#row === this.data.jobs.get(this.#id)) return;
    this.#row = this.data.jobs.get(this.#id);
    this.#ask();
  }

  async #ask() {
    this.#again = this.#asked;
    if (this.#asked) return;
    const id = this.#id;
    this.#asked = true;
    try {
      const answer = await fetch(`jobs/${id}`);
      const found = await answer.json();
      if (id === this.#id) answer.ok ? this.#tell(found) : this.body.replaceChildren(line("p", found.message));
    } catch {
      if (id === this.#id) this.body.replaceChildren(line("p", "The scheduler does not answer; close and open this to try again."));
    } finally {
      this.#asked = false;
      if (this.#again && this.#id !== null) this.#ask();
    }
  }

  #tell(job) {
    const nowMs = this.data.nowMs();
    const when = (text) => (text ? moment(Date.parse(text), nowMs) : "");
    const seconds = (s) => (s === null || s === undefined ? "" : lasting(1000 * s));
    this.title.textContent = job.name ? `Job ${job.job_id} \u2068${job.name}\u2069` : `Job ${job.job_id}`;
    const told = [line("p", `${job.state}${job.reason ? `: ${job.reason.text}` : ""}`, "why")];
    if (job.failure) told.push(...failure(job.failure));
    told.push(facts([
      ["User", job.user === this.data.user ? `${job.user} (you)` : job.user],
      ["Tasks", job.cpus !== null && job.cpus !== job.tasks ? `${job.tasks} on ${job.cpus} CPUs` : `${job.tasks}`],
      ["Nodes", job.nodes.map((each) => (each.tasks > 1 ? `${each.name} (${each.tasks})` : each.name)).join(", ")],
      ["Submitted", when(job.submit_time)],
      ["Promised start", when(job.promised_start)],
      ["Started", when(job.start_time)],
      ["Ended", when(job.end_time)],
      ["Waited", seconds(job.wait_s)],
      ["Ran for", seconds(job.run_s)],
      ["Time limit", seconds(job.time_limit_s)],
      ["CPU used", seconds(job.cpu_s)],
      ["Memory a task", job.memory_bytes ? size(job.memory_bytes) : ""],
      ["Exit status", job.exit_status === null ? "" : `${job.exit_status}`],
      ["Signal", job.signal === null ? "" : `${job.signal}`],
      ["Directory", job.directory],
    ]));
    told.push(line("h3", "What happened"), steps([...job.history, ...job.changes.map(change)], when));
    this.body.replaceChildren(...told);
  }
}

function change(each) {
  return { time: each.time, state: `${each.tasks} tasks on ${each.cpus} CPUs`, reason: each.reason, note: "" };
}

function steps(history, when) {
  const list = document.createElement("ol");
  history.sort((a, b) => Date.parse(a.time) - Date.parse(b.time));
  for (const step of history) {
    const why = [step.reason ? step.reason.text : "", step.note].filter(Boolean).join("; ");
    list.append(line("li", `${when(step.time)} ${step.state}${why ? `: ${why}` : ""}`));
  }
  return list;
}

function failure(found) {
  const where = [found.node ? `on ${found.node}` : "", found.rank === null ? "" : `rank ${found.rank}`].filter(Boolean).join(", ");
  const told = [line("p", `${found.message}${where ? ` (${where})` : ""}`)];
  if (found.tail.length) told.push(line("pre", found.tail.join("\n")));
  return told;
}

function facts(pairs) {
  const list = document.createElement("dl");
  for (const [name, text] of pairs) if (text) list.append(line("dt", name), line("dd", text));
  return list;
}

function line(name, text, className = "") {
  const made = document.createElement(name);
  made.className = className;
  made.textContent = text;
  return made;
}
