// Numbers and moments for people, in the browser's language and time zone; durations as the terminal has them.

const clockOf = new Intl.DateTimeFormat(undefined, { hour: "2-digit", minute: "2-digit", second: "2-digit", hour12: false });
const dayOf = new Intl.DateTimeFormat(undefined, { month: "short", day: "numeric" });
const shortOf = new Intl.DateTimeFormat(undefined, { hour: "2-digit", minute: "2-digit", hour12: false });

/** A moment: the clock where it is today, else with the day. */
export function moment(ms, nowMs) {
  if (ms === null) return "";
  const day = dayOf.format(ms);
  return day === dayOf.format(nowMs) ? clockOf.format(ms) : `${day} ${shortOf.format(ms)}`;
}

/** A label of an axis whose labels are `stepMs` apart. */
export function tick(ms, stepMs) {
  if (stepMs >= 86400e3) return dayOf.format(ms);
  const text = (stepMs < 60e3 ? clockOf : shortOf).format(ms);
  return text.startsWith("00:00") && stepMs >= 600e3 ? dayOf.format(ms) : text;
}

/** A duration in its two largest units. */
export function lasting(ms) {
  const s = Math.max(0, Math.round(ms / 1000));
  if (s < 60) return `${s} s`;
  if (s < 3600) return two(Math.floor(s / 60), "min", s % 60, "s");
  if (s < 86400) return two(Math.floor(s / 3600), "h", Math.round((s % 3600) / 60), "min");
  return two(Math.floor(s / 86400), "d", Math.round((s % 86400) / 3600), "h");
}

function two(many, unit, rest, small) {
  return rest ? `${many} ${unit} ${rest} ${small}` : `${many} ${unit}`;
}

/** A size in binary units. */
export function size(bytes) {
  const units = ["B", "KiB", "MiB", "GiB", "TiB"];
  let at = 0;
  while (bytes >= 1024 && at < units.length - 1) [bytes, at] = [bytes / 1024, at + 1];
  return `${bytes >= 10 || Number.isInteger(bytes) ? Math.round(bytes) : bytes.toFixed(1)} ${units[at]}`;
}

/** `1 job`, `2 jobs`. */
export function count(many, what) {
  return `${many} ${what}${many === 1 ? "" : "s"}`;
}

/** A job's nodes in few words. */
export function places(nodes, most = 4) {
  return nodes.length <= most ? nodes.join(", ") : `${nodes.slice(0, most - 1).join(", ")} and ${nodes.length - most + 1} more`;
}
