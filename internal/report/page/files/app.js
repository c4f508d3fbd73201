// The page of a node: listens to the agent, draws what it says, asks for explanations. All foreign text is set as text.

import {cpus, drawMap, el, link, looks, sample, setBusy} from "./draw.js";

const $ = (id) => document.getElementById(id);
const LEVELS = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz012345678";
const FIRST_ROWS = 200, OLD = 7000, RETRY = 3000;

let state = null; // as the agent last sent it
let rows = new Map(); // containers by id
let cells = new Map(); // CPUs of the map
let trs = new Map(); // rows of the table by id
let shares = new Map(); // how busy each CPU is
let source = null, heard = 0, retry = 0, showAll = false;

// --- the stream ---------------------------------------------------------------------------------------------------

function connect() {
  if (source || document.hidden) return;
  source = new EventSource("events");
  source.addEventListener("state", (e) => { state = JSON.parse(e.data); rows = new Map(state.rows.map((r) => [r.id, r])); showNode(); showMap(); showRows(); live(); explainSoon(); });
  source.addEventListener("change", (e) => { changed(JSON.parse(e.data)); live(); });
  source.addEventListener("use", (e) => { showUse(JSON.parse(e.data)); live(); });
  source.onerror = () => { disconnect(); retry = setTimeout(connect, RETRY); say(false, "The agent does not answer; trying again"); };
}

function disconnect() {
  clearTimeout(retry);
  if (source) source.close();
  source = null;
}

function live() {
  heard = Date.now();
  say(true, "Live");
}

function say(good, text) {
  document.body.classList.toggle("old", !good);
  if ($("live").textContent !== text) $("live").textContent = text;
  $("live").className = good ? "good" : "bad";
}

function changed(c) {
  if (!state) return;
  state.verdict = c.verdict;
  state.facts = c.facts;
  for (const id of c.gone || []) rows.delete(id);
  for (const r of c.rows || []) rows.set(r.id, r);
  showNode();
  if (c.map) { state.map = {...state.map, ...c.map}; showMap(); }
  if (c.rows || c.gone) showRows();
  explainSoon();
}

// --- the head -----------------------------------------------------------------------------------------------------

function showNode() {
  $("node").textContent = state.node;
  $("version").textContent = state.version;
  document.title = `${state.verdict.good ? "✓" : "✗"} ${state.node} · Trimtab`;
  verdict($("verdict"), state.verdict);
  $("facts").replaceChildren(...state.facts.map((f) => el("li", {}, f)), ...pressure);
}

let pressure = [];

function verdict(box, v) {
  box.className = v.good ? "good" : "bad";
  box.querySelector(".sign").textContent = v.good ? "✓" : "✗";
  const text = box.querySelector(".text");
  if (text.textContent !== v.text) text.textContent = v.text;
  box.querySelector("ul").replaceChildren(...(v.reasons || []).map((r) => el("li", {}, r)));
}

// --- the map ------------------------------------------------------------------------------------------------------

function showMap() {
  const focused = document.activeElement && document.activeElement.closest("#map .cpu") ? document.activeElement.getAttribute("href") : null;
  cells = drawMap($("map"), state.map);
  const look = looks(state.map.users);
  const pools = state.map.pools || [];
  $("users").replaceChildren(...state.map.users.map((u, i) => userItem(u, look[i])), ...pools.map(poolItem));
  const first = [...cells.values()].find((c) => c.g.getAttribute("href") === focused) || cells.values().next().value;
  if (first) first.g.setAttribute("tabindex", "0");
  if (focused && first) first.g.focus();
  for (const [id, c] of cells) setBusy(c, shares.get(id));
  showShares();
  mark();
}

function userItem(u, look) {
  const n = cpus(u.cpus).length;
  const name = u.kind === "own" ? el("a", {href: link("pod", u.pod)}, u.name) : el("span", {}, u.name);
  return el("li", {}, sample(look, u.mark), name, el("span", {class: "cpus"}, `${n} CPU${n === 1 ? "" : "s"}: ${u.cpus}`), el("span", {class: "busy", "data-cpus": u.cpus}));
}

function poolItem(p) {
  const n = p.members;
  return el("li", {class: "pool"}, el("a", {href: link("pool", p.name)}, `Pool ${p.name}`), el("span", {class: "cpus"}, `${n} container${n === 1 ? "" : "s"} on CPUs ${p.cpus || "none"}`), el("span", {class: "busy", "data-cpus": p.cpus}));
}

// showUse takes how busy CPUs are: a character for each.
function showUse(u) {
  shares = new Map();
  [...(u.busy || "")].forEach((c, id) => { if (c !== "-") shares.set(id, LEVELS.indexOf(c) / (LEVELS.length - 1)); });
  for (const [id, c] of cells) setBusy(c, shares.get(id));
  showShares();
  pressure = u.pressure ? [el("li", {class: "pressure"}, `Tasks waited, last 10 s: ${u.pressure}`)] : [];
  for (const old of document.querySelectorAll("#facts .pressure")) old.remove();
  $("facts").append(...pressure);
}

function showShares() {
  for (const e of document.querySelectorAll(".busy")) {
    const known = cpus(e.dataset.cpus).filter((id) => shares.has(id));
    const sum = known.reduce((all, id) => all + shares.get(id), 0);
    const text = known.length ? `${Math.round((100 * sum) / known.length)} % busy` : "";
    if (e.textContent !== text) e.textContent = text;
  }
}

// Arrow keys move between CPUs as they are drawn; Tab leaves the map.
$("map").addEventListener("keydown", (e) => {
  const at = e.target.closest(".cpu");
  if (!at) return;
  const all = [...cells.values()].map((c) => c.g), i = all.indexOf(at);
  let to;
  switch (e.key) {
    case "ArrowRight": to = all[i + 1]; break;
    case "ArrowLeft": to = all[i - 1]; break;
    case "ArrowDown": to = nearest(at, all, 1); break;
    case "ArrowUp": to = nearest(at, all, -1); break;
    case "Home": to = all[0]; break;
    case "End": to = all[all.length - 1]; break;
    case " ": at.dispatchEvent(new MouseEvent("click", {bubbles: true, cancelable: true})); e.preventDefault(); return;
    default: return;
  }
  e.preventDefault();
  if (to) move(to);
});

// A focused CPU says how busy it is, too.
$("map").addEventListener("focusin", (e) => {
  const c = cells.get(+(e.target.getAttribute("href") || "").replace("#cpu=", ""));
  if (!c) return;
  const share = shares.get(c.id);
  c.g.setAttribute("aria-label", `CPU ${c.id}, ${c.name}${share === undefined ? "" : `, ${Math.round(share * 100)} % busy`}`);
});

function move(to) {
  for (const c of cells.values()) c.g.setAttribute("tabindex", c.g === to ? "0" : "-1");
  to.focus();
}

function nearest(from, all, way) {
  const a = from.getBoundingClientRect();
  let best, least = Infinity;
  for (const g of all) {
    const b = g.getBoundingClientRect();
    const down = (b.top - a.top) * way;
    if (down < a.height / 2) continue;
    const far = down * 4 + Math.abs(b.left - a.left);
    if (far < least) { least = far; best = g; }
  }
  return best;
}

// --- containers ---------------------------------------------------------------------------------------------------

const amiss = (r) => r.missing + r.problems > 0;

function showRows() {
  const words = $("filter").value.toLowerCase().split(/\s+/).filter(Boolean);
  const only = $("amiss").checked;
  const fits = (r) => {
    if (only && !amiss(r)) return false;
    const text = `${r.pod}/${r.name} ${r.state} ${r.class} ${r.qos} ${r.seat} ${r.cpus}`.toLowerCase();
    return words.every((w) => text.includes(w));
  };
  const list = [...rows.values()].filter(fits);
  list.sort((a, b) => amiss(b) - amiss(a) || (a.pod < b.pod ? -1 : a.pod > b.pod ? 1 : a.name < b.name ? -1 : 1));
  const shown = showAll ? list : list.slice(0, FIRST_ROWS);
  const before = trs;
  trs = new Map(shown.map((r) => [r.id, tableRow(r, before.get(r.id))]));
  const body = $("rows"), want = [...trs.values()].map((t) => t.tr);
  if (want.length !== body.children.length || want.some((tr, i) => body.children[i] !== tr)) body.replaceChildren(...want);
  $("all").hidden = shown.length === list.length;
  $("all").textContent = `Show all ${list.length}`;
  const count = list.length === rows.size ? `${rows.size} in all` : `${list.length} of ${rows.size}`;
  if ($("count").textContent !== count) $("count").textContent = count;
  mark();
}

// tableRow makes a row, or keeps the one that says the same.
function tableRow(r, before) {
  if (before && before.r === r) return before;
  const force = r.values === 0 ? "–" : r.missing ? `${r.values - r.missing} of ${r.values}` : `all ${r.values}`;
  const tr = el("tr", {class: amiss(r) ? "amiss" : ""},
    el("td", {}, el("a", {href: link("container", r.id)}, `${r.pod}/${r.name}`)),
    ...[r.state, r.class, r.qos, r.seat].map((text) => el("td", {}, text)), el("td", {class: "list"}, r.cpus),
    el("td", {}, force), el("td", {}, r.problems ? `✗ ${r.problems}` : "–"));
  return {r, tr};
}

$("filter").addEventListener("input", showRows);
$("amiss").addEventListener("change", showRows);
$("all").addEventListener("click", () => { showAll = true; showRows(); });

// --- explanations -------------------------------------------------------------------------------------------------

// selected is what the address says: the back button works, and an explanation can be sent as a link.
function selected() {
  const [, what, which] = /^#(cpu|pool|numa|pod|container)=(.*)$/.exec(location.hash) || [];
  if (!what) return null;
  try { return {what, which: decodeURIComponent(which)}; } catch { return null; }
}

function mark() {
  const s = selected();
  const ids = new Set(s && state ? cpusOf(s) : []);
  for (const [id, c] of cells) c.g.classList.toggle("selected", ids.has(id));
  for (const [id, t] of trs) t.tr.classList.toggle("selected", s !== null && s.what === "container" && s.which === id);
}

function cpusOf(s) {
  const m = state.map;
  const find = {
    cpu: () => s.which,
    numa: () => m.nodes.find((n) => String(n.id) === s.which)?.cpus,
    pool: () => (m.pools || []).find((p) => p.name === s.which)?.cpus,
    pod: () => m.users.find((u) => u.pod === s.which)?.cpus,
    container: () => rows.get(s.which)?.cpus,
  };
  return cpus(find[s.what]() || "");
}

let asked = 0, shown = "", again = 0;

// explainSoon asks again after a change, but not more often than every two seconds.
function explainSoon() {
  if (again || !selected()) return;
  again = setTimeout(() => { again = 0; explain(); }, 2000);
}

async function explain() {
  const s = selected(), turn = ++asked, box = $("explanation");
  mark();
  if (!s) {
    shown = "";
    box.className = "";
    box.replaceChildren(el("h2", {}, "Nothing is selected"), el("p", {}, "Select a CPU, a NUMA node, a pool, a pod or a container."));
    return;
  }
  let text, ok = false;
  try {
    const answer = await fetch(`explain?${new URLSearchParams(s)}`);
    text = await answer.text();
    ok = answer.ok;
  } catch {
    text = "The agent does not answer.";
  }
  const key = JSON.stringify([s, ok, text]);
  if (turn !== asked || key === shown) return;
  shown = key;
  if (!ok) {
    box.className = "bad";
    box.replaceChildren(el("h2", {}, `${s.what} ${s.which}`), el("p", {}, text));
    return;
  }
  showExplanation(box, JSON.parse(text));
}

function showExplanation(box, e) {
  const line = el("p", {class: "line"}, el("span", {class: "sign", "aria-hidden": "true"}), " ", el("span", {class: "text"}));
  const close = el("a", {href: "#", class: "close"}, "Close");
  box.replaceChildren(close, el("h2", {}, e.title), line, el("ul"), ...(e.about || []).map((a) => el("p", {}, a)), ...(e.tables || []).map(table));
  verdict(box, e.verdict);
}

function table(t) {
  const row = (cellsOf, i) => el("tr", {}, ...cellsOf.map((text, j) => {
    const goto = j === 0 || t.rows[i][0].length < 3 && j === 1 ? t.goto && t.goto[i] : "";
    const at = goto ? goto.indexOf("=") : 0;
    return el("td", {}, goto && text ? el("a", {href: link(goto.slice(0, at), goto.slice(at + 1))}, text) : text);
  }));
  return el("div", {class: "scroll"}, el("table", {class: `columns${t.head.length}`}, el("caption", {}, t.caption),
    el("thead", {}, el("tr", {}, ...t.head.map((h) => el("th", {}, h)))), el("tbody", {}, ...(t.rows || []).map(row))));
}

// On a narrow screen the explanation is below the map: it comes into view when the user selects something.
addEventListener("hashchange", async () => {
  await explain();
  if (selected() && matchMedia("(max-width: 69.99rem)").matches) $("explanation").scrollIntoView({block: "nearest"});
});
addEventListener("keydown", (e) => { if (e.key === "Escape" && selected()) location.hash = ""; });

// --- start --------------------------------------------------------------------------------------------------------

// A page that nobody sees costs the agent nothing.
document.addEventListener("visibilitychange", () => { if (document.hidden) { disconnect(); say(false, "Paused"); } else connect(); });
setInterval(() => {
  const age = Date.now() - heard;
  if (source && heard && age > OLD) say(false, `No news for ${Math.round(age / 1000)} s`);
}, 1000);
connect();
explain();
