// Where jobs lie on the chart: a row for each node, cut into as many lanes as jobs ever share it, and lanes of their own
// for promised starts, which have a time and no nodes yet.

import { isHolding } from "./data.js";

export const MOST_PROMISE_LANES = 6;

/** The bars of each node, by its name: { job, fromMs, toMs, lane }, and how many lanes its row has. */
export function onNodes(data) {
  const nowMs = data.nowMs();
  const rows = new Map(data.nodes.map((node) => [node.name, { bars: [], lanes: 1 }]));
  const jobs = [...data.jobs.values()].filter((job) => job.startMs !== null && job.nodes.length);
  jobs.sort((a, b) => a.startMs - b.startMs || a.id - b.id);
  const freeAt = new Map();
  for (const job of jobs) {
    const toMs = job.endMs ?? Math.max(job.startMs + job.limitMs, nowMs);
    for (const name of job.nodes) {
      const row = rows.get(name);
      if (!row) continue;
      const free = freeAt.get(name) ?? [];
      freeAt.set(name, free);
      let lane = free.findIndex((untilMs) => untilMs <= job.startMs);
      if (lane < 0) lane = free.length;
      free[lane] = toMs;
      row.bars.push({ job, fromMs: job.startMs, toMs, lane });
      row.lanes = free.length;
    }
  }
  return rows;
}

/** Promised starts as bars in lanes, the earliest first; what has no place in these few lanes is left out. */
export function promises(data) {
  const jobs = [...data.jobs.values()].filter((job) => job.promisedMs !== null && !isHolding(job));
  jobs.sort((a, b) => a.promisedMs - b.promisedMs || a.id - b.id);
  const free = [];
  const bars = [];
  for (const job of jobs) {
    let lane = free.findIndex((untilMs) => untilMs <= job.promisedMs);
    if (lane < 0) lane = free.length;
    if (lane >= MOST_PROMISE_LANES) continue;
    free[lane] = job.promisedMs + job.limitMs;
    bars.push({ job, fromMs: job.promisedMs, toMs: free[lane], lane });
  }
  return { bars, lanes: free.length };
}

/** The time that shows what runs, what is promised, and about as much of the past: from and to, in milliseconds. */
export function fitting(data) {
  const nowMs = data.nowMs();
  let aheadMs = 120e3;
  let behindMs = 120e3;
  for (const job of data.jobs.values()) {
    if (isHolding(job) && job.startMs !== null) {
      aheadMs = Math.max(aheadMs, job.startMs + job.limitMs - nowMs);
      behindMs = Math.max(behindMs, nowMs - job.startMs);
    } else if (job.promisedMs !== null) {
      aheadMs = Math.max(aheadMs, job.promisedMs + job.limitMs / 2 - nowMs);
    }
  }
  aheadMs = Math.min(aheadMs, 7 * 86400e3);
  behindMs = Math.min(Math.max(behindMs, aheadMs / 3), aheadMs);
  return [nowMs - 1.1 * behindMs, nowMs + 1.1 * aheadMs];
}
