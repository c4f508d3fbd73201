// Draws the map: sockets, NUMA nodes, L3 caches, cores, threads. All text goes in as text, never as HTML.

const SVG = "http://www.w3.org/2000/svg";
const CELL = 30, HEIGHT = 38, GAP = 5, COLUMNS = 16, COLORS = 10;

// el makes an element with attributes and children; strings become text.
export function el(name, attributes = {}, ...children) {
  return fill(document.createElement(name), attributes, children);
}

function svg(name, attributes = {}, ...children) {
  return fill(document.createElementNS(SVG, name), attributes, children);
}

function fill(e, attributes, children) {
  for (const [key, value] of Object.entries(attributes)) e.setAttribute(key, value);
  e.append(...children);
  return e;
}

// cpus reads a kernel list, "0-3,8".
export function cpus(list) {
  const ids = [];
  for (const part of (list || "").split(",")) {
    const [from, to = from] = part.split("-");
    if (part !== "") for (let id = +from; id <= +to; id++) ids.push(id);
  }
  return ids;
}

// link is the address of an explanation.
export const link = (what, which) => `#${what}=${encodeURIComponent(which)}`;

// looks gives each user a class of colour and pattern. Owners begin again after the last colour; their letters differ.
export function looks(users) {
  let owner = 0;
  return users.map((u) => (u.kind === "own" ? `own c${owner++ % COLORS}` : u.kind));
}

// tile draws one CPU, or the sample in the list of users.
function tile(look, mark, id) {
  const g = [svg("rect", {class: "back", width: CELL, height: HEIGHT, rx: 3})];
  g.push(svg("rect", {class: "pattern", width: CELL, height: HEIGHT, rx: 3}));
  if (id !== undefined) g.push(svg("text", {x: CELL / 2, y: 11, class: "id"}, String(id)));
  g.push(svg("text", {x: CELL / 2, y: id === undefined ? 25 : 26, class: "mark"}, mark));
  return g;
}

export function sample(look, mark) {
  return svg("svg", {class: `sample ${look}`, viewBox: `0 0 ${CELL} ${HEIGHT}`, width: 20, height: 25, "aria-hidden": "true"}, ...tile(look, mark));
}

// patterns are for people who cannot tell the colours apart.
function patterns() {
  const line = (id, d, size) => svg("pattern", {id, width: size, height: size, patternUnits: "userSpaceOnUse"}, svg("path", {d, class: "ink"}));
  return svg("svg", {width: 0, height: 0, class: "defs", "aria-hidden": "true"}, svg("defs", {},
    line("hatch", "M0 8L8 0", 8), line("dots", "M4 4h1.5", 8), line("cross", "M0 8L8 0M0 0L8 8", 8)));
}

// map draws the machine into a box and returns its cells by CPU, in the order of the drawing.
export function drawMap(box, m) {
  const cells = new Map();
  const who = new Map();
  const look = looks(m.users);
  m.users.forEach((u, i) => cpus(u.cpus).forEach((id) => who.set(id, {user: u, look: look[i]})));
  const sockets = new Map();
  for (const n of m.nodes) {
    if (!sockets.has(n.package)) sockets.set(n.package, []);
    sockets.get(n.package).push(n);
  }
  const boxes = [...sockets].map(([id, nodes]) => el("div", {class: "socket"},
    el("h3", {}, id < 0 ? "Memory alone" : `Socket ${id}`),
    el("div", {class: "nodes"}, ...nodes.map((n) => numa(n, who, cells)))));
  box.replaceChildren(patterns(), ...boxes);
  return cells;
}

function numa(n, who, cells) {
  const name = [`NUMA node ${n.id}`, n.cpus ? `CPUs ${n.cpus}` : "no CPUs", n.memory].filter(Boolean).join(" · ");
  const caches = (n.caches || []).map((cores) => el("div", {class: "cache"},
    ...(n.caches.length > 1 ? [el("span", {class: "label"}, "L3")] : []), drawCores(cores, who, cells)));
  return el("div", {class: "numa", role: "group", "aria-label": name},
    el("h4", {}, el("a", {href: link("numa", n.id)}, name), " ", el("span", {class: "busy", "data-cpus": n.cpus})),
    el("div", {class: "caches"}, ...caches));
}

function drawCores(cores, who, cells) {
  let x = 0, y = 0, column = 0, width = 0;
  const drawn = [];
  for (const core of cores) {
    const ids = cpus(core);
    if (column > 0 && column + ids.length > COLUMNS) {
      x = column = 0;
      y += HEIGHT + GAP;
    }
    for (const id of ids) {
      drawn.push(cell(id, x, y, who.get(id) || {user: {mark: "-", name: "offline"}, look: "none"}, cells));
      x += CELL;
    }
    column += ids.length;
    width = Math.max(width, x);
    x += GAP;
  }
  const height = y + HEIGHT;
  return svg("svg", {viewBox: `-2 -2 ${width + 4} ${height + 4}`, width: width + 4, height: height + 4}, ...drawn);
}

function cell(id, x, y, {user, look}, cells) {
  const bar = svg("rect", {class: "bar", x: 2, y: HEIGHT - 8, width: 0, height: 6});
  const g = svg("a", {class: `cpu ${look}`, href: link("cpu", id), tabindex: "-1", transform: `translate(${x} ${y})`},
    svg("title", {}, `CPU ${id}: ${user.name}`), ...tile(look, user.mark, id),
    svg("rect", {class: "track", x: 2, y: HEIGHT - 8, width: CELL - 4, height: 6}), bar);
  const c = {id, g, bar, name: user.kind === "own" ? `${user.name} owns it` : user.name};
  g.setAttribute("aria-label", `CPU ${id}, ${c.name}`);
  cells.set(id, c);
  return g;
}

// setBusy shows how busy a CPU is, 0 to 1; undefined where nobody knows.
export function setBusy(c, share) {
  const width = share === undefined ? "0" : (share * (CELL - 4)).toFixed(1);
  if (c.width === width) return;
  c.width = width;
  c.share = share;
  c.bar.setAttribute("width", width);
  c.bar.setAttribute("class", share >= 0.9 ? "bar full" : "bar");
}
