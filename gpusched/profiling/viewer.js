"use strict";
// Draws the timeline of a profile: `data` is what gpusched.profiling.html has put into the page.
const data = JSON.parse(document.getElementById("data").textContent);
const canvas = document.getElementById("lanes"), axis = document.getElementById("axis");
const tip = document.getElementById("tip"), scroll = document.getElementById("scroll");
const GUTTER = 190, ROW = 17, GAP = 6, HEAD = 20, AXIS = 24;
const LANE = 0, DEPTH = 1, KIND = 2, NAME = 3, START = 4, LENGTH = 5, BYTES = 6, PLACES = 7,
  DETAIL = 8, TASK = 9;
const total = Math.max(data.seconds * 1e6, 1);
const hidden = new Set();
let from = 0, to = total, hovered = null;

// Each lane's place from above; a process's first lane has its name over it.
let height = 0;
data.lanes.forEach((lane, k) => {
  if (k === 0 || data.lanes[k - 1].process !== lane.process) {
    lane.head = height + 4;
    height += HEAD + 4;
  }
  lane.top = height;
  height += (lane.depth + 1) * ROW + GAP;
});
const byLane = data.lanes.map(() => []);
data.spans.forEach((span) => byLane[span[LANE]].push(span));

const style = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
const width = () => canvas.clientWidth;
const toX = (at) => GUTTER + ((at - from) / (to - from)) * (width() - GUTTER);
const toTime = (x) => from + ((x - GUTTER) / (width() - GUTTER)) * (to - from);

function time(us) {
  for (const [unit, scale] of [["s", 1e6], ["ms", 1e3], ["us", 1]]) {
    if (us >= scale || scale === 1) return Number((us / scale).toPrecision(3)) + " " + unit;
  }
}

function size(n) {
  for (const [unit, scale] of [["GiB", 2 ** 30], ["MiB", 2 ** 20], ["kiB", 2 ** 10]]) {
    if (n >= scale) return (n / scale).toFixed(2) + " " + unit;
  }
  return n + " B";
}

function prepare(target, tall) {
  const ratio = window.devicePixelRatio || 1, wide = target.clientWidth;
  target.width = Math.round(wide * ratio);
  target.height = Math.round(tall * ratio);
  target.style.height = tall + "px";
  const pen = target.getContext("2d");
  pen.scale(ratio, ratio);
  pen.clearRect(0, 0, wide, tall);
  pen.textBaseline = "middle";
  return pen;
}

function ticks() {
  const least = ((to - from) * 90) / Math.max(width() - GUTTER, 1);
  let step = 10 ** Math.floor(Math.log10(least));
  while (step < least) step *= step * 2 >= least ? 2 : step * 5 >= least ? 5 : 10;
  const found = [];
  for (let at = Math.ceil(from / step) * step; at <= to; at += step) found.push(at);
  return found;
}

function drawAxis() {
  const pen = prepare(axis, AXIS);
  pen.font = "12px system-ui, 'DejaVu Sans', sans-serif";
  pen.fillStyle = style("--soft");
  for (const at of ticks()) {
    pen.fillRect(toX(at), AXIS - 5, 1, 5);
    pen.fillText(time(at), toX(at) + 4, AXIS / 2);
  }
}

function short(pen, text, room) {
  if (pen.measureText(text).width <= room) return text;
  let keep = Math.floor(room / pen.measureText("x").width) - 1;
  while (keep > 2 && pen.measureText(text.slice(0, keep) + "\u2026").width > room) keep -= 1;
  return keep > 2 ? text.slice(0, keep) + "\u2026" : "";
}

function drawLane(pen, lane, spans) {
  const last = []; // the right edge of what is drawn, by depth: narrower spans are one line
  for (const span of spans) {
    if (hidden.has(span[KIND]) || span[START] > to || span[START] + span[LENGTH] < from) continue;
    const left = Math.max(toX(span[START]), GUTTER);
    const right = Math.min(toX(span[START] + span[LENGTH]), width());
    const edge = last[span[DEPTH]] || 0;
    if (right < edge + 0.5 && span !== hovered) continue;
    const wide = Math.max(right - left, 1), top = lane.top + span[DEPTH] * ROW;
    last[span[DEPTH]] = left + wide;
    pen.fillStyle = data.kinds[span[KIND]].color;
    pen.fillRect(left, top, wide > 3 ? wide - 0.5 : wide, ROW - 1);
    if (span === hovered) {
      pen.strokeStyle = style("--text");
      pen.strokeRect(left + 0.5, top + 0.5, wide - 1, ROW - 2);
    }
    if (wide > 34) {
      pen.fillStyle = data.kinds[span[KIND]].ink;
      pen.fillText(short(pen, data.names[span[NAME]], wide - 8), left + 4, top + ROW / 2);
    }
  }
}

function draw() {
  drawAxis();
  const pen = prepare(canvas, height);
  pen.font = "12px system-ui, 'DejaVu Sans', sans-serif";
  data.lanes.forEach((lane, k) => {
    if (k % 2) {
      pen.fillStyle = style("--row");
      pen.fillRect(0, lane.top - GAP / 2, width(), (lane.depth + 1) * ROW + GAP);
    }
  });
  pen.fillStyle = style("--line");
  for (const at of ticks()) pen.fillRect(toX(at), 0, 1, height);
  data.lanes.forEach((lane, k) => {
    if (lane.head !== undefined) {
      pen.fillStyle = style("--back");
      pen.fillRect(0, lane.head - 4, width(), HEAD + 4);
      pen.fillStyle = style("--text");
      pen.font = "600 12px system-ui, 'DejaVu Sans', sans-serif";
      pen.fillText(data.processes[lane.process], 8, lane.head + HEAD / 2);
      pen.font = "12px system-ui, 'DejaVu Sans', sans-serif";
    }
    drawLane(pen, lane, byLane[k]);
    pen.fillStyle = style("--soft");
    pen.fillText(short(pen, lane.name, GUTTER - 28), 18, lane.top + ROW / 2);
  });
}

let asked = false;
function redraw() {
  if (!asked) requestAnimationFrame(() => { asked = false; draw(); });
  asked = true;
}

function spanAt(x, y) {
  const k = data.lanes.findIndex((lane) => y >= lane.top && y < lane.top + (lane.depth + 1) * ROW);
  if (k < 0 || x < GUTTER) return null;
  const depth = Math.floor((y - data.lanes[k].top) / ROW), slack = (2 * (to - from)) / width();
  let best = null;
  for (const span of byLane[k]) {
    if (span[DEPTH] !== depth || hidden.has(span[KIND])) continue;
    const off = Math.max(span[START] - toTime(x), toTime(x) - span[START] - span[LENGTH], 0);
    if (off <= slack && (best === null || off < best.off)) best = { off, span };
  }
  return best && best.span;
}

function line(parent, text, tag = "div", soft = false) {
  const found = document.createElement(tag);
  found.textContent = text;
  if (soft) found.className = "soft";
  parent.append(found);
}

function showTip(span, event) {
  tip.style.display = span ? "block" : "none";
  if (!span) return;
  tip.replaceChildren();
  line(tip, data.names[span[NAME]], "b");
  line(tip, `${data.kinds[span[KIND]].told}: ${time(span[LENGTH])}, after ${time(span[START])}`);
  if (span[BYTES]) {
    const rate = span[LENGTH] ? `, ${(span[BYTES] / span[LENGTH] / 1e3).toPrecision(3)} GB/s` : "";
    line(tip, size(span[BYTES]) + rate);
  }
  if (span[DETAIL]) line(tip, span[DETAIL]);
  for (const place of data.places[span[PLACES]]) line(tip, place, "code"), tip.append(document.createElement("br"));
  if (span[TASK]) line(tip, span[TASK], "div", true);
  const box = tip.getBoundingClientRect();
  tip.style.left = Math.max(4, Math.min(event.clientX + 14, innerWidth - box.width - 8)) + "px";
  const below = event.clientY + 16;
  tip.style.top = (below + box.height > innerHeight ? Math.max(4, event.clientY - box.height - 10)
    : below) + "px";
}

function look(start, end) {
  const long = Math.min(Math.max(end - start, 0.5), total);
  from = Math.min(Math.max(start, 0), total - long);
  to = from + long;
  redraw();
}

let grabbed = null;
canvas.addEventListener("pointerdown", (event) => {
  grabbed = { x: event.clientX, from, to };
  canvas.setPointerCapture(event.pointerId);
});
canvas.addEventListener("pointerup", () => { grabbed = null; });
canvas.addEventListener("pointermove", (event) => {
  if (grabbed) {
    const moved = ((event.clientX - grabbed.x) / (width() - GUTTER)) * (grabbed.to - grabbed.from);
    look(grabbed.from - moved, grabbed.to - moved);
    return;
  }
  const found = spanAt(event.offsetX, event.offsetY);
  if (found !== hovered) { hovered = found; redraw(); }
  showTip(found, event);
});
canvas.addEventListener("pointerleave", () => { hovered = null; showTip(null); redraw(); });
canvas.addEventListener("dblclick", () => look(0, total));
canvas.addEventListener("wheel", (event) => {
  if (event.shiftKey) return; // scrolls the lanes
  event.preventDefault();
  const at = toTime(Math.max(event.offsetX, GUTTER)), factor = Math.exp(event.deltaY * 0.002);
  look(at - (at - from) * factor, at + (to - at) * factor);
}, { passive: false });
addEventListener("keydown", (event) => {
  const step = (to - from) / 4;
  if (event.key === "+" || event.key === "=") look(from + step, to - step);
  else if (event.key === "-") look(from - step, to + step);
  else if (event.key === "ArrowLeft") look(from - step, to - step);
  else if (event.key === "ArrowRight") look(from + step, to + step);
  else if (event.key === "0") look(0, total);
});
document.querySelectorAll("#legend button").forEach((button) => {
  button.addEventListener("click", () => {
    const kind = Number(button.dataset.kind);
    if (!hidden.delete(kind)) hidden.add(kind);
    button.classList.toggle("off", hidden.has(kind));
    redraw();
  });
});
addEventListener("resize", redraw);
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", redraw);
draw();
