// Puts the page together: frames of the stream in, one drawing for each frame of the screen at most.

import { Chart } from "./chart.js";
import { Data } from "./data.js";
import { moment } from "./format.js";
import { Story } from "./story.js";
import { Tables } from "./tables.js";
import { themes } from "./theme.js";

/** Without a word for so long, what is shown is not live any more. */
const SILENT_MS = 12e3;
const AGAIN_MS = 5e3;
/** How often it is asked what is set aside, which no frame brings. */
const ASIDE_MS = 10e3;

const data = new Data();
const story = new Story(data);
const chart = new Chart(data, (id) => story.open(id));
const tables = new Tables(data, soon);
const state = document.getElementById("state");
let heardMs = 0;
/** The server's time when it was heard last: what is shown is as of then. */
let asOfMs = null;
let asked = false;
let source = null;

themes(document.getElementById("theme"), () => chart.recolour());
document.addEventListener("click", (event) => {
  const button = event.target.closest("button.job");
  if (button) story.open(Number(button.dataset.job));
});

function soon() {
  if (asked) return;
  asked = true;
  requestAnimationFrame(draw);
}

function draw() {
  asked = false;
  if (!data.cluster) return;
  performance.mark("draw");
  head();
  chart.draw();
  tables.draw();
  story.follow();
  performance.measure("drawn", "draw");
}

function head() {
  const { cluster } = data;
  document.title = `${cluster.running} running, ${cluster.waiting} waiting – ${cluster.name}`;
  document.getElementById("cluster").textContent = cluster.name;
  const { problem, accepting } = cluster;
  line("problem", accepting ? problem : `No jobs are accepted: ${problem}`);
  line("note", cluster.note);
  const nodes = (what) => data.nodes.filter((node) => node.availability === what).length;
  const figures = [
    ["CPUs free", `${cluster.free_procs} of ${cluster.procs}`], ["running", cluster.running], ["waiting", cluster.waiting],
    ["nodes free", nodes("free")], ["nodes limited", nodes("limited")], ["nodes not available", nodes("not available")],
    ["policy", cluster.policy],
  ];
  const list = document.getElementById("figures");
  while (list.children.length < figures.length) {
    const pair = document.createElement("div");
    pair.append(document.createElement("dt"), document.createElement("dd"));
    list.append(pair);
  }
  figures.forEach(([name, value], at) => {
    const [dt, dd] = list.children[at].children;
    if (dt.textContent !== name) dt.textContent = name;
    if (dd.textContent !== `${value}`) dd.textContent = `${value}`;
  });
}

function line(id, text) {
  const shown = document.getElementById(id);
  if (shown.textContent !== text) shown.textContent = text;
  shown.hidden = !text;
}

function say(text, live) {
  if (state.textContent !== text) state.textContent = text;
  state.classList.toggle("off", !live);
}

function live() {
  heardMs = performance.now();
  asOfMs = data.nowMs();
  say("Live", true);
}

function silent(words) {
  const asOf = asOfMs === null ? "" : `. As of ${moment(asOfMs, data.nowMs())}`;
  say(`${words}${asOf}`, false);
}

function heard(frame, whole) {
  performance.mark("frame");
  data.apply(frame, whole);
  performance.measure("applied", "frame");
  live();
  soon();
}

function connect() {
  source = new EventSource("events");
  source.addEventListener("you", (event) => (data.user = JSON.parse(event.data).user));
  source.addEventListener("all", (event) => heard(JSON.parse(event.data), true));
  source.addEventListener("some", (event) => heard(JSON.parse(event.data), false));
  source.addEventListener("own", (event) => {
    data.applyOwn(JSON.parse(event.data));
    soon();
  });
  source.addEventListener("still", live);
  source.addEventListener("replaced", () => {
    source.close();
    say("Stopped: this page is open in too many tabs. Reload to see it here.", false);
  });
  source.addEventListener("error", () => {
    if (source.readyState === EventSource.CLOSED) refused();
    else silent("Not connected; trying again");
  });
}

async function askAside() {
  if (document.hidden) return;
  try {
    const answer = await fetch("set-aside");
    if (!answer.ok) return;
    data.aside = (await answer.json()).set_aside;
    soon();
  } catch {
    // the stream tells that nothing answers
  }
}

/** The stream was refused: the visit is over, or it is to be tried later. */
async function refused() {
  let ended = false;
  try {
    ended = (await fetch("./")).status === 403;
  } catch {
    // nobody answers: that is tried again, too
  }
  if (ended) say("This visit has ended: cosched page opens another.", false);
  else {
    silent("Not connected; trying again");
    setTimeout(connect, AGAIN_MS);
  }
}

setInterval(() => {
  if (!data.cluster || document.hidden) return;
  if (source.readyState === EventSource.OPEN && performance.now() - heardMs > SILENT_MS) silent("Nothing was heard for a while");
  soon(); // the line of now goes on
}, 1000);

setInterval(askAside, ASIDE_MS);
connect();
askAside();
