// The page: asks the REST interface and draws its answers.

const COLUMNS = [
  ["Channel", "name"], ["Trouble", "trouble"], ["Lost", "lost"], ["Loss", "loss_ratio"], ["Gaps", "gaps"], ["Late", "late"], ["Depth", "max_depth"], ["Duplicates", "duplicates"],
  ["Replays", "replays"], ["Reused", "reused"], ["Packets", "packets"], ["Packets/s", null], ["Jitter", "jitter"],
];
const ROWS = 20;
const wish = { run: null, sort: "trouble", order: "desc", offset: 0, search: "", protocol: "" };
const shown = { version: null, overview: null, series: null, open: null };

async function ask(path, parameters = {}) {
  const given = Object.entries(parameters).filter(([, value]) => value !== "" && value !== null && value !== undefined);
  const answer = await fetch(`/api/v1/${path}?${new URLSearchParams(given)}`);
  const body = await answer.json();
  if (!answer.ok) throw new Error(`${body.error.what}: ${body.error.advice}`);
  return body;
}

function tile(label, value, state, note) {
  return node("li", { class: `tile ${state ?? ""}` }, node("b", {}, value), node("span", {}, label), note ? node("small", {}, note) : null);
}

function drawHead({ run, first_ns, last_ns, summary }) {
  byId("source").textContent = run.source;
  document.title = `${run.source} – Sluice monitor`;
  byId("meta").textContent = last_ns ? `${day(first_ns)} ${clock(first_ns)} to ${day(first_ns) === day(last_ns) ? "" : day(last_ns) + " "}${clock(last_ns)} UTC, ${span(last_ns - first_ns)}` : "nothing captured yet";
  const [word, kind] = run.partial ? ["partial", "warning"] : run.finished ? ["finished", "good"] : ["at work", "good"];
  byId("state").textContent = word;
  byId("state").className = `mark ${kind}`;
  const banners = [run.partial ? ["bad", `Results are partial: ${run.partial}`] : null, ...(summary?.warnings ?? []).map((warning) => ["", warning[0].toUpperCase() + warning.slice(1)])];
  fill(byId("banners"), ...banners.filter(Boolean).map(([kind, words]) => node("p", { class: `banner ${kind}` }, words)));
}

function drawTiles({ counts, loss_ratio, channels, active, gaps, rekeys, capture_drops, unknown_frames, first_ns, last_ns }) {
  const seconds = (last_ns - first_ns) / 1e9, bad = (count, state = "bad") => (count > 0 ? state : "");
  fill(byId("tiles"),
    tile("packets", short(counts.packets), "", seconds > 0 ? `${short(counts.packets / seconds)}/s · ${short((counts.bytes * 8) / seconds)}bit/s` : ""),
    tile("lost for good", percent(loss_ratio), counts.lost > 0 ? "bad" : "good", `${whole.format(Math.max(0, counts.lost))} packets in ${whole.format(gaps)} gaps`),
    tile("late, not lost", short(counts.late), bad(counts.late, "warn"), "reordered packets"),
    tile("duplicates", short(counts.duplicates), bad(counts.duplicates, "warn"), "copies within a second"),
    tile("replayed or reused", short(counts.replays + counts.reused), bad(counts.replays + counts.reused), `${short(counts.replays)} replays, ${short(counts.reused)} reused`),
    tile("channels", short(channels), "", `${short(active)} active in the last interval`),
    tile("changes of key", short(rekeys), "", "AN or SPI"),
    tile("capture drops", short(capture_drops), bad(capture_drops, "warn"), `${short(unknown_frames)} frames outside channels`));
}

// Steps with the part of them that was captured, so that the first and last have their true rate.
function steps(series, first, last) {
  return series.points.map((point) => {
    const from = Math.max(point.start_ns, first), to = Math.max(Math.min(point.start_ns + series.step_ns, last), from + series.step_ns / 1000);
    const rate = (point.packets / (to - from)) * 1e9, expected = point.packets + Math.max(0, point.lost), loss = expected ? Math.max(0, point.lost) / expected : 0;
    const drops = point.capture_drops ? `, ${whole.format(point.capture_drops)} capture drops` : "";
    return { from, to, rate, loss, drops: point.capture_drops, say: `${clock(point.start_ns, series.step_ns < 1e9 ? 3 : 0)}  ${short(rate)} packets/s, ${whole.format(point.lost)} lost (${percent(loss)}), ${whole.format(point.late)} late${drops}` };
  });
}

function drawCourse() {
  const { overview, series } = shown;
  if (!series?.points.length) return fill(byId("course"), node("p", { class: "none" }, "No interval has ended yet."));
  const points = steps(series, overview.first_ns, overview.last_ns);
  course(byId("course"), points, points[0].from, points.at(-1).to, byId("read"));
}

// Where most channels suffer, only those that suffer much more than the middle one are marked: colour is for what stands out.
function outstanding(values) {
  const suffering = values.filter((value) => value > 0).sort((a, b) => a - b);
  const enough = suffering.length * 2 > values.length ? suffering[suffering.length >> 1] * 2 : 0;
  return (value, state) => (value > enough ? state : "");
}

const MARKED = { lost: (flow) => flow.counts.lost, loss: (flow) => flow.loss_ratio, late: (flow) => flow.counts.late, deep: (flow) => (flow.reorder?.max_depth >= 64 ? flow.reorder.max_depth : 0), duplicates: (flow) => flow.counts.duplicates, replays: (flow) => flow.counts.replays, reused: (flow) => flow.counts.reused };

// How each column marks, judged by all rows of it.
const marks = (flows) => Object.fromEntries(Object.entries(MARKED).map(([name, value]) => {
  const state = outstanding(flows.map(value));
  return [name, (flow, kind) => state(value(flow), kind)];
}));

// While a run is at work, much of a channel is not known yet.
const known = (value, words) => ((value ?? null) === null ? "–" : words(value));

function flowRow(flow, mark) {
  const { counts, reorder } = flow, cell = (value, state) => node("td", { class: `num ${state ?? ""}` }, known(value, short));
  const facts = [flow.no_counter ? "numbers do not count" : "", (flow.protection ?? "none") === "none" ? "" : flow.protection.replace("_", " "), flow.one_way ? "one way" : "", flow.evicted ? "evicted" : "", flow.restarts ? `${flow.restarts} restarts` : ""].filter(Boolean).join(", ");
  const name = node("td", { class: "flow" }, node("button", { type: "button", "aria-expanded": shown.open === flow.id, onclick: () => toggle(flow.id) }, flow.name), facts ? node("small", {}, facts) : null);
  return node("tr", { class: shown.open === flow.id ? "open" : "" }, name, cell(flow.trouble), cell(Math.max(0, counts.lost), mark.lost(flow, "bad")),
    node("td", { class: `num ${mark.loss(flow, "bad")}` }, flow.no_counter ? "–" : percent(flow.loss_ratio)), cell(flow.gaps), cell(counts.late, mark.late(flow, "warn")), cell(reorder?.max_depth, mark.deep(flow, "bad")),
    cell(counts.duplicates, mark.duplicates(flow, "warn")), cell(counts.replays, mark.replays(flow, "bad")), cell(counts.reused, mark.reused(flow, "bad")), cell(counts.packets), node("td", { class: "num" }, flow.rate_pps === null ? "–" : short(flow.rate_pps)), node("td", { class: "num" }, known(flow.jitter_ns, span)));
}

async function toggle(id) {
  shown.open = shown.open === id ? null : id;
  await drawFlows();
}

async function detail(flow) {
  const [gaps, series] = await Promise.all([ask(`flows/${flow.id}/gaps`, { run: wish.run, limit: 12 }), ask(`flows/${flow.id}/series`, { run: wish.run, points: 400 })]);
  const place = node("div", { class: "chart" }), read = node("p", { class: "says read" });
  const fact = (name, value) => node("li", {}, `${name} `, node("b", {}, value));
  const facts = node("ul", { class: "facts" }, fact("number", flow.id), fact("sequence", `${known(flow.first_sequence, whole.format)} to ${whole.format(flow.highest_sequence)}${flow.sequence_bits === null ? "" : ` (${flow.sequence_bits} bits${flow.extended ? ", extended" : ""})`}`),
    fact("payload", flow.min_payload === null ? "–" : `${flow.min_payload} to ${flow.max_payload} bytes`), flow.exhaustion ? fact("numbers run out in", span(flow.exhaustion.seconds * 1e9)) : null, fact("dropped at window 64", known(flow.reorder?.would_drop[2], whole.format)));
  const rows = gaps.items.map((gap) => node("tr", {}, node("td", {}, clock(gap.after_ns, 3)), node("td", { class: "num" }, gap.first === gap.last ? whole.format(gap.first) : `${whole.format(gap.first)} – ${whole.format(gap.last)}`),
    node("td", { class: "num" }, whole.format(gap.lost)), node("td", { class: "num" }, whole.format(gap.frame)), node("td", { class: "num" }, span(gap.after_ns - gap.before_ns))));
  const table = gaps.items.length ? node("table", {}, node("thead", {}, node("tr", {}, ...["Gap seen at", "Numbers", "Lost", "Frame", "Within"].map((name, at) => node("th", { class: at ? "num" : "" }, name)))), node("tbody", {}, ...rows)) : node("p", { class: "says" }, "No gap is left open.");
  const more = gaps.total > gaps.items.length ? node("p", { class: "says" }, `and ${whole.format(gaps.total - gaps.items.length)} more gaps`) : null;
  const made = node("tr", { class: "open" }, node("td", { class: "detail", colspan: COLUMNS.length }, node("div", { class: "inner" }, facts, read, place, table, more)));
  return [made, () => { fit(); const points = steps(series, flow.first_ns ?? series.points[0]?.start_ns, flow.last_ns); if (points.length) course(place, points, points[0].from, points.at(-1).to, read); }];
}

// What is opened is as wide as the window on the table, however wide the table is.
function fit() {
  const inner = document.querySelector(".inner");
  if (inner) inner.style.width = `${inner.closest(".scroll").clientWidth - 24}px`;
}

// Says that a table goes on beside what is seen of it.
function sideways() {
  for (const scroll of document.querySelectorAll(".scroll")) {
    const beyond = scroll.scrollWidth - scroll.clientWidth;
    scroll.classList.toggle("more", beyond - scroll.scrollLeft > 1);
    if (scroll.contains(byId("flows"))) byId("sideways").hidden = beyond <= 1;
  }
}

async function drawFlows() {
  const { run, sort, order, offset, search, protocol } = wish;
  const flows = await ask("flows", { run, sort, order, offset, search, protocol, limit: ROWS });
  fill(byId("columns"), node("tr", {}, ...COLUMNS.map(([name, key], at) => node("th", { class: at ? "num" : "", "aria-sort": key === sort ? (order === "desc" ? "descending" : "ascending") : null },
    key ? node("button", { type: "button", onclick: () => sortBy(key) }, name) : name))));
  const [column] = COLUMNS.find(([, key]) => key === sort), [most, least] = sort === "name" ? ["Z", "A"] : ["highest", "lowest"];
  byId("h-flows").textContent = sort === "trouble" && order === "desc" ? "Channels, worst first" : `Channels by ${column.toLowerCase()}, ${order === "desc" ? most : least} first`;
  const rows = [], after = [], mark = marks(flows.items);
  for (const flow of flows.items) {
    rows.push(flowRow(flow, mark));
    if (flow.id === shown.open) { const [row, draw] = await detail(flow); rows.push(row); after.push(draw); }
  }
  if (!rows.length) rows.push(node("tr", {}, node("td", { class: "none", colspan: COLUMNS.length }, "No channel matches.")));
  fill(byId("flows"), ...rows);
  after.forEach((draw) => draw());
  sideways();
  byId("range").textContent = flows.total ? `${whole.format(offset + 1)} to ${whole.format(offset + flows.items.length)} of ${whole.format(flows.total)}` : "";
  byId("before").disabled = offset === 0;
  byId("after").disabled = offset + ROWS >= flows.total;
}

function sortBy(key) {
  Object.assign(wish, { offset: 0, order: wish.sort === key && wish.order === "desc" ? "asc" : key === "name" && wish.sort !== key ? "asc" : "desc", sort: key });
  drawFlows().catch(fail);
}

function drawAnomalies(kinds, page) {
  const items = kinds.map(({ kind, severity, channels, count }) => {
    const all = page.items.filter((item) => item.kind === kind), [first] = all, link = channels === 1 && first && !/[1-9a-f]/.test(first.channel);
    const line = (item) => node("li", {}, `${item.channel_name || "the link"}: ${whole.format(item.count)}, ${clock(item.first_ns, 3)} to ${clock(item.last_ns, 3)}${item.frame ? `, first in frame ${whole.format(item.frame)}` : ""}${item.detail ? `; ${item.detail}` : ""}`);
    return node("li", {}, node("span", { class: `mark ${severity}` }, severity), " ", node("h3", {}, kind.replaceAll("_", " ")), " ", node("span", { class: "count" }, `${whole.format(count)} times ${link ? "on the link" : `in ${whole.format(channels)} ${channels === 1 ? "channel" : "channels"}`}`),
      first ? node("p", {}, first.meaning) : null, first ? node("p", { class: "do" }, `What to do: ${first.advice}`) : null,
      all.length ? node("details", {}, node("summary", {}, all.length > 1 ? `The worst ${Math.min(all.length, 8)}` : "Where and when"), node("ul", {}, ...all.slice(0, 8).map(line))) : null);
  });
  fill(byId("anomalies"), ...(items.length ? items : [node("li", { class: "none" }, "Nothing to report.")]));
}

let rekeyRows = [];

function sortRekeys(page, anomalies) {
  const rows = new Map(), long = new Set(anomalies.items.filter((item) => item.kind === "rekey_pause").map((item) => item.channel));
  for (const key of page.items) {
    const name = key.to_name.replace(/ (AN \d+|SPI 0x[0-9a-f]+|TEID 0x[0-9a-f]+)/, "");
    const id = (full) => full.match(/(AN \d+|SPI 0x[0-9a-f]+)/)?.[0] ?? full;
    const pause = key.pause_ns < 0 ? `both in use for ${span(-key.pause_ns)}` : `silent for ${span(key.pause_ns)}`;
    const entry = { at: key.at_ns, kind: key.lost > 0 ? "lossy" : key.pause_ns > 0 && long.has(key.to) ? "slow" : "", say: `${clock(key.at_ns, 3)}  ${id(key.from_name)} to ${id(key.to_name)}: ${pause}, ${whole.format(key.lost)} lost` };
    rows.set(name, [...(rows.get(name) ?? []), entry]);
  }
  const trouble = (row) => row.keys.reduce((sum, key) => sum + (key.kind === "lossy" ? 100 : key.kind ? 10 : 1), 0);
  const all = [...rows].map(([name, keys]) => ({ name, keys })).sort((a, b) => trouble(b) - trouble(a));
  rekeyRows = all.slice(0, 10);
  const lossy = page.items.filter((key) => key.lost > 0).length;
  byId("rekeyed").textContent = page.total ? `${whole.format(page.total)} in all, ${whole.format(lossy)} with loss${all.length > 10 ? `; 10 of ${all.length} senders shown` : ""}` : "";
}

function drawRest() {
  const { overview } = shown, { first_ns, last_ns } = overview;
  drawCourse();
  if (rekeyRows.length) timeline(byId("rekeys"), rekeyRows, first_ns, last_ns);
  else fill(byId("rekeys"), node("p", { class: "none" }, "No key was changed."));
  if (overview.counts.late && overview.reorder.depths.some(Boolean)) histogram(byId("reorder"), overview.reorder.depths);
  else fill(byId("reorder"), node("p", { class: "none" }, overview.counts.late ? "Depths are known when the run has ended." : "Every packet came in its order."));
  const drops = overview.reorder.would_drop;
  byId("windows").textContent = overview.reorder.max_depth ? `A receiver would drop ${["0", "32", "64", "512"].map((window, at) => `${whole.format(drops[at])} at window ${window}`).join(", ")}. Deepest: ${whole.format(overview.reorder.max_depth)}.` : "";
}

function drawTables({ protocols, summary }) {
  const head = (...names) => node("thead", {}, node("tr", {}, ...names.map((name, at) => node("th", { class: at ? "num" : "" }, name))));
  const row = (...cells) => node("tr", {}, ...cells.map((cell, at) => node("td", { class: at ? "num" : "" }, cell)));
  fill(byId("protocols"), head("Protocol", "Channels", "Packets", "Lost", "Late"), node("tbody", {}, ...protocols.map((entry) => row(entry.protocol, whole.format(entry.channels), short(entry.packets), short(Math.max(0, entry.lost)), short(entry.late)))));
  const unknown = (summary?.unknown ?? []).slice(0, 12);
  fill(byId("unknown"), unknown.length ? head("First header that differs", "Frames", "Bytes", "First frame") : null, unknown.length ? node("tbody", {}, ...unknown.map((entry) => row(entry.reason, whole.format(entry.frames), short(entry.bytes), whole.format(entry.first_frame)))) : node("tbody", {}, node("tr", {}, node("td", { class: "none" }, summary ? "Every frame belongs to a channel." : "Listed when the run has ended."))));
  const known = [...byId("protocol").options].map((option) => option.value);
  byId("protocol").append(...protocols.filter((entry) => !known.includes(entry.protocol)).map((entry) => node("option", { value: entry.protocol }, entry.protocol)));
}

async function refresh() {
  const runs = await ask("runs");
  const options = runs.map((run) => node("option", { value: run.number, selected: wish.run === run.number }, `${run.number}: ${run.source}, ${new Date(run.started_ms).toISOString().slice(0, 16).replace("T", " ")}`));
  if (runs.length !== byId("run").options.length) fill(byId("run"), ...options);
  byId("choice").hidden = runs.length < 2;
  const run = wish.run ?? runs[0]?.number, now = runs.find((entry) => entry.number === run);
  if (!now) throw new Error("The database holds no run yet: start sluice monitor SOURCE with --db.");
  const version = `${run}/${now.version}/${now.finished}/${now.partial}`;
  if (version === shown.version) return;
  const [overview, series, anomalies, rekeys] = await Promise.all([ask("stats/summary", { run }), ask("stats/series", { run, points: 600 }), ask("anomalies", { run, limit: 500 }), ask("rekeys", { run, limit: 1000 })]);
  Object.assign(shown, { version, overview, series });
  drawHead(overview);
  drawTiles(overview);
  drawAnomalies(overview.anomalies, anomalies);
  sortRekeys(rekeys, anomalies);
  drawTables(overview);
  drawRest();
  await drawFlows();
  document.body.dataset.drawn = version;
}

function fail(error) {
  shown.version = null;
  fill(byId("banners"), node("p", { class: "banner bad" }, `${error.message} (asked at ${new Date().toLocaleTimeString()})`));
}

async function loop() {
  if (!document.hidden) await refresh().catch(fail);
  setTimeout(loop, shown.overview?.run.finished ? 10000 : 2000);
}

function later(work, wait) {
  let timer;
  return () => { clearTimeout(timer); timer = setTimeout(() => work(), wait); };
}

const again = () => { wish.offset = 0; drawFlows().catch(fail); };
byId("search").addEventListener("input", later(() => { wish.search = byId("search").value; again(); }, 250));
byId("protocol").addEventListener("change", () => { wish.protocol = byId("protocol").value; again(); });
byId("run").addEventListener("change", () => { Object.assign(wish, { run: +byId("run").value, offset: 0 }); shown.open = null; refresh().catch(fail); });
byId("before").addEventListener("click", () => { wish.offset = Math.max(0, wish.offset - ROWS); drawFlows().catch(fail); });
byId("after").addEventListener("click", () => { wish.offset += ROWS; drawFlows().catch(fail); });
document.querySelectorAll(".scroll").forEach((scroll) => scroll.addEventListener("scroll", sideways, { passive: true }));
addEventListener("resize", later(() => { if (shown.overview) { drawRest(); drawFlows().catch(fail); } }, 120));
loop();
