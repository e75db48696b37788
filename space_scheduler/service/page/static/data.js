// What the page knows: the rows that the stream has sent, by job and by node, and the server's clock.

const JOB = ["id", "name", "user", "state", "tasks", "cpus", "submitMs", "startMs", "endMs", "limitMs", "promisedMs", "why", "nodes"];
const NODE = ["name", "state", "availability", "note", "cpus", "memoryBytes", "cpuShare", "memoryShare", "mpl", "limitCpus", "wokeMs", "heardMs"];
const WAITING = new Set(["queued", "waiting"]);
const HOLDING = new Set(["starting", "running", "ending"]);
const byNumber = new Intl.Collator("en", { numeric: true });

function named(fields, row) {
  const found = {};
  for (let at = 0; at < fields.length; at += 1) found[fields[at]] = row[at];
  return found;
}

export class Data {
  user = "";
  cluster = null;
  jobs = new Map();
  nodes = [];
  queue = [];
  own = [];
  /** What is set aside, as the API has it. */
  aside = [];
  /** Changes with every frame: what was computed from older ones is stale. */
  version = 0;
  #nodes = new Map();
  #aheadMs = 0;

  /** The server's time now, in milliseconds since 1970. */
  nowMs() {
    return Date.now() + this.#aheadMs;
  }

  /** Take in a frame; `whole`: it replaces all that was there. */
  apply(frame, whole) {
    if (whole) {
      this.jobs.clear();
      this.#nodes.clear();
    }
    this.#aheadMs = frame.now_ms - Date.now();
    if (frame.cluster) this.cluster = frame.cluster;
    if (frame.queue) this.queue = frame.queue;
    for (const row of frame.jobs) this.jobs.set(row[0], named(JOB, row));
    for (const id of frame.gone) this.jobs.delete(id);
    for (const row of frame.nodes) this.#nodes.set(row[0], named(NODE, row));
    for (const name of frame.gone_nodes) this.#nodes.delete(name);
    if (whole || frame.nodes.length || frame.gone_nodes.length) {
      this.nodes = [...this.#nodes.values()].sort((a, b) => byNumber.compare(a.name, b.name));
    }
    this.version += 1;
  }

  /** The user's own jobs beyond those that everybody is sent. */
  applyOwn(rows) {
    this.own = rows.map((row) => named(JOB, row));
    this.version += 1;
  }

  isMine(job) {
    return job.user === this.user;
  }

  /** Those that wait, in the queue's order, then those that a rule keeps out of it. */
  waiting() {
    const inOrder = this.queue.map((id) => this.jobs.get(id)).filter((job) => job && job.state === "queued");
    return [...inOrder, ...[...this.jobs.values()].filter((job) => job.state === "waiting")];
  }

  /** Those that hold nodes, the last to start first. */
  holding() {
    return [...this.jobs.values()].filter((job) => HOLDING.has(job.state)).sort((a, b) => (b.startMs ?? Infinity) - (a.startMs ?? Infinity) || b.id - a.id);
  }

  /** Those that have ended, the last first. */
  ended() {
    return [...this.jobs.values()].filter((job) => job.endMs !== null).sort((a, b) => b.endMs - a.endMs || b.id - a.id);
  }

  /** The user's: what runs, what waits, then what has ended. */
  mine() {
    const mine = (jobs) => jobs.filter((job) => this.isMine(job));
    return [...mine(this.holding()), ...mine(this.waiting()), ...this.own, ...mine(this.ended())];
  }

  /** Why a job waits, from what everybody sees; its story has the decision's own reason. */
  why(job) {
    if (job.why) return job.why;
    const known = this.queue.indexOf(job.id);
    const place = known < 0 ? this.queue.length : known; // beyond those that are sent: behind all of them
    const free = this.cluster ? this.cluster.free_procs : 0;
    const short = job.tasks > free ? `needs ${job.tasks} CPUs, ${free} ${free === 1 ? "is" : "are"} free` : "";
    if (short) return short;
    if (job.promisedMs !== null) return "has a reservation that is not due yet";
    if (place === 0) return known < 0 ? "behind all that is shown here" : "next in the order";
    return `${known < 0 ? "at least " : ""}${place} ${place === 1 ? "job is" : "jobs are"} ahead of it in the order`;
  }
}

export function isWaiting(job) {
  return WAITING.has(job.state);
}

export function isHolding(job) {
  return HOLDING.has(job.state);
}

export function wentWrong(job) {
  return job.endMs !== null && job.state !== "completed";
}
