"use strict";
// Drawing: elements, numbers and charts.

const byId = (id) => document.getElementById(id);

function node(name, attributes = {}, ...children) {
  const space = ["svg", "g", "path", "line", "rect", "circle", "text", "title"].includes(name);
  const made = space ? document.createElementNS("http://www.w3.org/2000/svg", name) : document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) {
    if (key.startsWith("on")) made.addEventListener(key.slice(2), value);
    else if (value !== undefined && value !== null && value !== false) made.setAttribute(key, value === true ? "" : value);
  }
  made.append(...children.filter((child) => child !== null && child !== undefined));
  return made;
}

function fill(place, ...children) {
  place.replaceChildren(...children.filter((child) => child));
}

const whole = new Intl.NumberFormat("en", { maximumFractionDigits: 0 });

// 12,345 or 1.23 M
function short(value) {
  const size = Math.abs(value);
  for (const [unit, name] of [[1e12, "T"], [1e9, "G"], [1e6, "M"], [1e4, "k"]])
    if (size >= unit) {
      const shown = value / (unit === 1e4 ? 1e3 : unit);
      return shown.toFixed(Math.abs(shown) >= 100 ? 0 : Math.abs(shown) >= 10 ? 1 : 2) + " " + name;
    }
  return size === 0 || size >= 100 || Number.isInteger(value) ? whole.format(value) : value.toPrecision(2);
}

function percent(ratio) {
  if (ratio === 0) return "0 %";
  const value = ratio * 100;
  return value < 0.001 ? "< 0.001 %" : (value >= 10 ? value.toFixed(1) : String(+value.toPrecision(2))) + " %";
}

function span(ns) {
  const size = Math.abs(ns);
  for (const [unit, name] of [[864e11, "d"], [36e11, "h"], [6e10, "min"], [1e9, "s"], [1e6, "ms"], [1e3, "µs"]])
    if (size >= unit) return (ns / unit).toFixed(ns / unit >= 100 ? 0 : 1).replace(/\.0$/, "") + " " + name;
  return whole.format(ns) + " ns";
}

const clock = (ns, digits = 0) => new Date(ns / 1e6).toISOString().slice(11, digits ? 20 + digits : 19);
const day = (ns) => new Date(ns / 1e6).toISOString().slice(0, 10);

// Ticks at 1, 2, 5 times a power of ten, the last of them at or above everything: the axis ends there.
function ticks(most, wanted) {
  const raw = most / wanted, power = 10 ** Math.floor(Math.log10(raw));
  const step = [1, 2, 5, 10].map((digit) => digit * power).find((step) => step >= raw * (1 - 1e-9));
  const count = Math.max(1, Math.ceil(most / step - 1e-9));
  return Array.from({ length: count + 1 }, (_, at) => at * step);
}

// Ticks of time that fall on whole seconds, minutes, hours.
function moments(from, to, wanted) {
  const raw = (to - from) / 1e9 / wanted;
  const steps = [0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 14400, 21600, 43200, 86400];
  const step = (steps.find((step) => step >= raw) ?? Math.ceil(raw / 86400) * 86400) * 1e9;
  const digits = step < 1e7 ? 3 : step < 1e8 ? 2 : step < 1e9 ? 1 : 0, found = [];
  for (let at = Math.ceil(from / step) * step; at <= to; at += step) found.push([at, step >= 864e11 ? day(at).slice(5) : clock(at, digits)]);
  return found;
}

function canvas(label, width, height) {
  return node("svg", { viewBox: `0 0 ${width} ${height}`, role: "img", "aria-label": label });
}

const text = (x, y, kind, anchor, value) => node("text", { x, y, class: kind, "text-anchor": anchor }, String(value));
const rule = (x1, y1, x2, y2, kind) => node("line", { x1, y1, x2, y2, class: kind });

function timeAxis(drawing, from, to, x, top, bottom) {
  const room = x(to) - x(from);
  for (const [at, name] of moments(from, to, Math.max(2, Math.floor(room / 76)))) {
    drawing.append(rule(x(at), top, x(at), bottom, "grid"));
    if (x(at) > x(from) + 24 && x(at) < x(to) - 20) drawing.append(text(x(at), bottom + 16, "tick", "middle", name));
  }
}

// Rate above, loss below, one axis of time. `points`: { from, to, rate, loss, drops, say }
function course(place, points, from, to, read) {
  const width = Math.max(280, place.clientWidth), left = 58, right = width - 6;
  const upper = [20, 190], lower = [222, 290], height = 312;
  const drawing = canvas("Packets a second and share of lost packets over time", width, height);
  const most = Math.max(...points.map((point) => point.rate), 1), worst = Math.max(...points.map((point) => point.loss), 1e-6);
  const x = (at) => left + ((at - from) / (to - from || 1)) * (right - left);
  const scale = ([top, bottom], limit) => (value) => bottom - (value / limit) * (bottom - top);
  const rates = ticks(most, 4), losses = ticks(worst, 2), y = scale(upper, rates.at(-1)), z = scale(lower, losses.at(-1));
  timeAxis(drawing, from, to, x, upper[0], lower[1]);
  for (const at of rates) drawing.append(rule(left, y(at), right, y(at), "grid"), text(left - 8, y(at) + 4, "tick", "end", short(at)));
  for (const at of losses) drawing.append(rule(left, z(at), right, z(at), "grid"), text(left - 8, z(at) + 4, "tick", "end", percent(at)));
  drawing.append(text(left, upper[0] - 8, "title", "start", "packets/s"), text(left, lower[0] - 8, "title", "start", "lost"));
  let line = "", area = "";
  const state = outstanding(points.map((point) => point.loss));
  points.forEach((point, index) => {
    const [a, b, level] = [x(point.from).toFixed(1), x(point.to).toFixed(1), y(point.rate).toFixed(1)];
    const joined = index > 0 && points[index - 1].to >= point.from - 1;
    line += points.length > 200 ? `${joined ? "L" : "M"}${((+a + +b) / 2).toFixed(1)} ${level}` : `${joined ? "L" : "M"}${a} ${level}L${b} ${level}`;
    area += `M${a} ${upper[1]}L${a} ${level}L${b} ${level}L${b} ${upper[1]}Z`;
    const mark = (value, kind) => drawing.append(node("rect", { x: a, y: z(value), width: Math.max(1.2, b - a - (b - a > 4 ? 1 : 0)), height: Math.max(0, lower[1] - z(value)), class: kind }));
    if (point.loss > 0) mark(Math.max(point.loss, worst * 0.03), `loss ${state(point.loss, "much")}`);
    if (point.drops > 0) drawing.append(node("rect", { x: a, y: lower[1] + 1, width: Math.max(2, b - a), height: 3, class: "drop" }));
  });
  drawing.append(node("path", { d: area, class: "area" }), node("path", { d: line, class: "line" }));
  drawing.append(rule(left, upper[1], right, upper[1], "axis"), rule(left, lower[1], right, lower[1], "axis"));
  const cross = rule(0, upper[0], 0, lower[1], "cross");
  cross.setAttribute("visibility", "hidden");
  drawing.append(cross);
  drawing.addEventListener("pointermove", (event) => {
    const box = drawing.getBoundingClientRect(), at = ((event.clientX - box.left) / box.width) * width;
    const near = points.reduce((best, point) => (Math.abs(x((point.from + point.to) / 2) - at) < Math.abs(x((best.from + best.to) / 2) - at) ? point : best), points[0]);
    const middle = x((near.from + near.to) / 2);
    cross.setAttribute("x1", middle);
    cross.setAttribute("x2", middle);
    cross.setAttribute("visibility", "visible");
    if (read) read.textContent = near.say;
  });
  drawing.addEventListener("pointerleave", () => { cross.setAttribute("visibility", "hidden"); if (read) read.textContent = ""; });
  fill(place, drawing);
}

// One line a secure channel, a dot a change of key. `rows`: { name, keys: [{ at, kind, say }] }
function timeline(place, rows, from, to) {
  const width = Math.max(260, place.clientWidth), left = 8, right = width - 8, step = 36, top = 6, bottom = top + rows.length * step;
  const drawing = canvas("Changes of key over time, one line a secure channel", width, bottom + 24);
  const x = (at) => left + ((at - from) / (to - from || 1)) * (right - left);
  timeAxis(drawing, from, to, x, top, bottom);
  const room = Math.floor((right - left) / 6.6);
  rows.forEach((row, index) => {
    const y = top + index * step + 25;
    const name = row.name.length > room ? row.name.slice(0, room - 1) + "…" : row.name;
    drawing.append(text(left, y - 11, "tick", "start", name), rule(left, y, right, y, "key"));
    for (const key of row.keys) drawing.append(node("circle", { cx: x(key.at), cy: y, r: 5, class: `rekey ${key.kind}` }, node("title", {}, key.say)));
  });
  fill(place, drawing);
}

const DEPTHS = ["1", "2–3", "4–7", "8–15", "16–31", "32–63", "64–127", "128–255", "256–511", "≥ 512"];

function histogram(place, depths) {
  const width = Math.max(260, place.clientWidth), height = 210, bottom = height - 24, top = 22, room = width / depths.length;
  const drawing = canvas("Late packets by how far they were behind", width, height), most = Math.max(...depths, 1);
  depths.forEach((count, index) => {
    const tall = count ? Math.max(2, (count / most) * (bottom - top)) : 0, middle = room * (index + 0.5);
    const bar = { x: room * index + room * 0.12, y: bottom - tall, width: room * 0.76, height: tall, rx: 2, class: index > 6 ? "depth deep" : "depth" };
    drawing.append(node("rect", bar, node("title", {}, `${whole.format(count)} packets ${DEPTHS[index]} behind`)));
    if (count) drawing.append(text(middle, bottom - tall - 5, "tick", "middle", short(count).replace(" ", "")));
    const crowded = room < 46, name = crowded ? DEPTHS[index].replace(/–.*/, "").replace(" ", "") : DEPTHS[index];
    drawing.append(text(middle, bottom + 16, "tick", "middle", name));
  });
  drawing.append(rule(0, bottom, width, bottom, "axis"));
  fill(place, drawing);
}
