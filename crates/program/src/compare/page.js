"use strict";
// Draws the content of the page: a table, curves, stacked bars and timelines, all as plain elements and SVG.

/** The first lines have colours; the others are grey. */
const COLOURS = 7;
/** Only so many lines have bars of their stages. */
const BARS = 12;
const STAGES = ["sample", "route", "fetch_features", "dispatch", "fetch_memory", "update_memory", "embed",
  "weight_grads", "aggregate", "write_memory", "reduce_gradients", "step"];

const $ = id => document.getElementById(id);

/** Makes an element with attributes and children. */
function make(tag, attributes = {}, ...children) {
  const drawn = ["svg", "g", "path", "line", "rect", "circle", "text", "title"].includes(tag);
  const element = drawn ? document.createElementNS("http://www.w3.org/2000/svg", tag) : document.createElement(tag);
  for (const [key, value] of Object.entries(attributes)) {
    if (key === "style") Object.assign(element.style, value);
    else if (value !== null) element.setAttribute(key, value);
  }
  element.append(...children);
  return element;
}

const swatch = colour => make("span", { class: "swatch", style: { background: colour } });
const lineColour = at => at < COLOURS ? `var(--c${at})` : "var(--other)";
const stageColour = name => `var(--s${Math.max(0, STAGES.indexOf(name))})`;
const words = name => name.replaceAll("_", " ");

/** Formats a number with three digits that count. */
function short(x) {
  if (x === 0) return "0";
  const size = Math.floor(Math.log10(Math.abs(x)));
  return size >= 3 ? Math.round(x).toLocaleString("en") : x.toFixed(Math.min(6, Math.max(0, 2 - size)));
}

/** Formats seconds. */
function time(seconds) {
  if (seconds < 1e-3) return `${short(seconds * 1e6)} µs`;
  return seconds < 1 ? `${short(seconds * 1e3)} ms` : `${short(seconds)} s`;
}

/** Round numbers that divide a range into about `n` parts. */
function ticks(low, high, n) {
  const rough = (high - low) / Math.max(1, n) || 1;
  const power = 10 ** Math.floor(Math.log10(rough));
  const step = [1, 2, 5, 10].map(f => f * power).find(s => s >= rough * 0.999);
  const found = [];
  for (let i = Math.ceil(low / step - 1e-9); i * step <= high + step * 1e-9; i++) found.push(i * step);
  return { found, digits: Math.max(0, -Math.floor(Math.log10(step) + 1e-9)) };
}

// The tip that follows the pointer.
const tip = {
  show(event, title, rows) {
    const row = ([colour, name, value]) =>
      make("div", { class: "row" }, swatch(colour), make("span", {}, name), make("span", {}, value));
    $("tip").replaceChildren(make("b", {}, title), ...rows.map(row));
    $("tip").hidden = false;
    const { width, height } = $("tip").getBoundingClientRect();
    const x = event.clientX + 16 + width > innerWidth ? event.clientX - 16 - width : event.clientX + 16;
    const y = Math.min(event.clientY + 14, innerHeight - height - 8);
    Object.assign($("tip").style, { left: `${Math.max(8, x)}px`, top: `${Math.max(8, y)}px` });
  },
  hide() { $("tip").hidden = true; },
};

/** Calls `draw(width)` now, and whenever the width of `element` changes. */
function fitted(element, draw) {
  let width = 0;
  const again = () => {
    const now = Math.round(element.clientWidth);
    if (now > 0 && now !== width) element.replaceChildren(draw(width = now));
  };
  again();
  new ResizeObserver(again).observe(element);
}

/** Lights the line `at` up in table and curves; null for none. */
function light(at) {
  document.querySelectorAll("#table tbody tr").forEach(row => row.classList.toggle("lit", row.dataset.line === `${at}`));
  document.querySelectorAll("svg.curves").forEach(svg => {
    svg.classList.toggle("lit", at !== null);
    svg.querySelectorAll("g.line").forEach(g => g.classList.toggle("on", g.dataset.line === `${at}`));
  });
}

function drawTable({ table, comparison }) {
  const rows = table.rows.map((cells, at) => {
    const line = comparison.lines[at];
    const cell = ({ text }, column) => {
      if (column === 0) {
        const pill = line.best && comparison.lines.length > 1 ? [make("span", { class: "pill" }, "best")] : [];
        return make("td", { class: "text", title: line.name }, swatch(lineColour(at)), text, ...pill);
      }
      if (column < table.texts) return make("td", { class: "text" }, text);
      const [mean, deviation] = text.split(" ± ");
      return make("td", {}, mean, ...(deviation ? [make("span", { class: "sd" }, `± ${deviation}`)] : []));
    };
    const row = make("tr", { class: line.best ? "best" : null, "data-line": at }, ...cells.map(cell));
    row.addEventListener("pointerenter", () => light(at));
    row.addEventListener("pointerleave", () => light(null));
    return row;
  });
  const body = make("tbody", {}, ...rows);
  const heads = table.titles.map((title, column) => {
    const button = make("button", { type: "button" }, title);
    const head = make("th", { scope: "col", class: column < table.texts ? "text" : null }, button);
    button.addEventListener("click", () => {
      const up = head.getAttribute("aria-sort") === "descending";
      heads.forEach(other => other.removeAttribute("aria-sort"));
      head.setAttribute("aria-sort", up ? "ascending" : "descending");
      const key = row => table.rows[row.dataset.line][column];
      const compare = (a, b) => {
        const [x, y] = [key(a), key(b)];
        if (x.value === null && y.value === null) return x.text.localeCompare(y.text, "en", { numeric: true });
        return (x.value ?? -Infinity) - (y.value ?? -Infinity);
      };
      body.append(...[...rows].sort((a, b) => up ? compare(a, b) : compare(b, a)));
    });
    return head;
  });
  $("table").append(make("table", {}, make("thead", {}, make("tr", {}, ...heads)), body));
  const seeds = comparison.lines.some(line => line.seeds.length > 1);
  $("table-hint").textContent = (seeds ? "Means over seeds ± standard deviations. " : "") +
    "Sorted by validation; a click on a title sorts by that column.";
}

/** Returns the curve of a line: for every epoch mean, least and greatest validation over its seeds. */
function curve(line) {
  const epochs = new Map();
  line.runs.flatMap(run => run.epochs).filter(p => p.val !== null).forEach(p => {
    if (!epochs.has(p.epoch)) epochs.set(p.epoch, []);
    epochs.get(p.epoch).push(p);
  });
  const mean = (points, key) => points.reduce((sum, p) => sum + p[key], 0) / points.length;
  return [...epochs].sort((a, b) => a[0] - b[0]).map(([epoch, points]) => ({
    epoch, seconds: mean(points, "seconds"), val: mean(points, "val"), n: points.length,
    low: Math.min(...points.map(p => p.val)), high: Math.max(...points.map(p => p.val)),
  }));
}

/** Draws curves over `key` ("epoch" or "seconds") into an SVG. */
function chart(curves, hidden, key, comparison, width) {
  const shown = curves.filter(c => !hidden.has(c.at));
  const height = Math.max(220, Math.min(340, Math.round(width * 0.62)));
  const all = shown.flatMap(c => c.points);
  const xs = all.map(p => p[key]);
  const left = key === "epoch" ? Math.min(1, ...xs) : 0;
  const right = Math.max(left + (key === "epoch" ? 1 : 1e-6), ...xs);
  let [low, high] = [Math.min(...all.map(p => p.low)), Math.max(...all.map(p => p.high))];
  if (!all.length) [low, high] = [0, 1];
  if (high - low < 1e-9) [low, high] = [low - 0.5, high + 0.5];
  [low, high] = [low - (high - low) * 0.04, high + (high - low) * 0.06];
  const y = ticks(low, high, height / 40), x = ticks(left, right, Math.min(width / 80, key === "epoch" ? right - left : 99));
  const margin = { left: 16 + 7 * Math.max(...y.found.map(t => t.toFixed(y.digits).length)), right: 14, top: 8, bottom: 40 };
  const px = v => margin.left + (v - left) / (right - left) * (width - margin.left - margin.right);
  const py = v => height - margin.bottom - (v - low) / (high - low) * (height - margin.top - margin.bottom);
  const svg = make("svg", { class: "curves", viewBox: `0 0 ${width} ${height}`, height, role: "img",
    "aria-label": `Validation ${comparison.metric} by ${key}` });
  for (const t of y.found) {
    svg.append(make("line", { class: "grid", x1: margin.left, x2: width - margin.right, y1: py(t), y2: py(t) }),
      make("text", { x: margin.left - 8, y: py(t) + 4, "text-anchor": "end" }, t.toFixed(y.digits)));
  }
  const base = height - margin.bottom;
  svg.append(make("line", { class: "axis", x1: margin.left, x2: width - margin.right, y1: base, y2: base }));
  for (const t of x.found) {
    svg.append(make("line", { class: "axis", x1: px(t), x2: px(t), y1: base, y2: base + 4 }),
      make("text", { x: px(t), y: base + 18, "text-anchor": "middle" }, t.toFixed(x.digits)));
  }
  svg.append(make("text", { x: width - margin.right, y: height - 4, "text-anchor": "end" },
    key === "epoch" ? "epoch" : "seconds of training"));
  const path = points => points.map((p, i) => `${i ? "L" : "M"}${px(p[0]).toFixed(1)} ${py(p[1]).toFixed(1)}`).join("");
  // The best lines last, on top.
  for (const { at, points } of [...shown].reverse()) {
    const g = make("g", { class: "line", "data-line": at });
    const colour = lineColour(at);
    const grey = at >= COLOURS;
    if (!grey && points.some(p => p.n > 1)) {
      const outline = [...points.map(p => [p[key], p.high]), ...[...points].reverse().map(p => [p[key], p.low])];
      g.append(make("path", { class: "band", d: `${path(outline)}Z`, style: { fill: colour } }));
    }
    g.append(make("path", { class: grey ? "curve grey" : "curve", d: path(points.map(p => [p[key], p.val])), style: { stroke: colour } }));
    const better = comparison.higher_is_better ? (a, b) => a.val >= b.val : (a, b) => a.val <= b.val;
    const best = points.reduce((a, b) => better(a, b) ? a : b);
    const r = grey ? 2.5 : 4;
    g.append(make("circle", { class: "dot", cx: px(best[key]), cy: py(best.val), r, style: { fill: colour } }));
    svg.append(g);
  }
  const cross = make("line", { class: "cross", y1: margin.top, y2: base, visibility: "hidden" });
  svg.append(cross);
  svg.addEventListener("pointermove", event => {
    const box = svg.getBoundingClientRect();
    const at = left + ((event.clientX - box.left) / box.width * width - margin.left) /
      (width - margin.left - margin.right) * (right - left);
    const near = points => points.reduce((a, b) => Math.abs(a[key] - at) <= Math.abs(b[key] - at) ? a : b);
    const found = shown.map(c => ({ ...c, p: near(c.points) }));
    if (!found.length) return;
    const x = key === "epoch" ? Math.round(Math.max(left, Math.min(right, at))) : Math.max(left, Math.min(right, at));
    cross.setAttribute("x1", px(x)), cross.setAttribute("x2", px(x)), cross.setAttribute("visibility", "visible");
    const sign = comparison.higher_is_better ? -1 : 1;
    found.sort((a, b) => sign * (a.p.val - b.p.val));
    const rows = found.slice(0, 10).map(c => [lineColour(c.at), c.name,
      c.p.val.toFixed(4) + (key === "epoch" && c.p.epoch !== x ? ` (epoch ${c.p.epoch})` : "")]);
    tip.show(event, key === "epoch" ? `epoch ${x}` : time(x), rows);
  });
  svg.addEventListener("pointerleave", () => { tip.hide(); cross.setAttribute("visibility", "hidden"); });
  return svg;
}

function drawCurves({ comparison }) {
  const lines = comparison.lines.map((line, at) => ({ at, name: line.name, points: curve(line) }));
  const curves = lines.filter(c => c.points.length);
  if (!curves.length) return;
  $("curves").hidden = false;
  $("validation").textContent = `Validation ${comparison.metric}`;
  const hidden = new Set();
  const charts = [["by-epoch", "epoch"], ["by-time", "seconds"]];
  const draw = () => charts.forEach(([id, key]) =>
    $(id).replaceChildren(chart(curves, hidden, key, comparison, Math.round($(id).clientWidth))));
  // A button for every line that has a colour, and one for the others together.
  const others = curves.filter(c => c.at >= COLOURS).map(c => c.at);
  const entries = curves.filter(c => c.at < COLOURS).map(c => [[c.at], c.name]);
  if (others.length) entries.push([others, others.length === 1 ? "1 other" : `${others.length} others`]);
  for (const [lines, name] of entries) {
    const button = make("button", { type: "button", "aria-pressed": "true" }, swatch(lineColour(lines[0])), name);
    button.addEventListener("click", () => {
      const show = hidden.has(lines[0]);
      lines.forEach(at => show ? hidden.delete(at) : hidden.add(at));
      button.setAttribute("aria-pressed", `${show}`);
      draw();
    });
    button.addEventListener("pointerenter", () => light(lines.length === 1 ? lines[0] : null));
    button.addEventListener("pointerleave", () => light(null));
    $("legend").append(button);
  }
  charts.forEach(([id, key]) => fitted($(id), width => chart(curves, hidden, key, comparison, width)));
  const bands = comparison.lines.some(line => line.seeds.length > 1) ? " Bands span the seeds." : "";
  $("curves-hint").textContent = `Dots mark the best epochs.${bands}`;
}

/** Draws a legend of the stages that occur. */
function stageLegend(element, names) {
  STAGES.filter(name => names.has(name)).forEach(name =>
    element.append(make("span", { class: "item" }, swatch(stageColour(name)), words(name))));
}

function drawStages({ comparison }) {
  const timed = comparison.lines.filter(line => line.stages.length);
  const bars = timed.slice(0, BARS);
  if (!bars.length) return;
  const first = timed.length > BARS ? ` The first ${BARS} lines.` : "";
  $("stages-hint").textContent = `Seconds of all lanes together, in one pass over the training events.${first}`;
  $("stages").hidden = false;
  stageLegend($("stages-legend"), new Set(bars.flatMap(line => line.stages.map(s => s.stage))));
  const sum = line => line.stages.reduce((sum, s) => sum + s.seconds, 0);
  const longest = Math.max(...bars.map(sum)) || 1;
  fitted($("stage-bars"), width => {
    const [row, bar, right] = [52, 22, 64];
    const height = bars.length * row + 4;
    const svg = make("svg", { viewBox: `0 0 ${width} ${height}`, height, role: "img", "aria-label": "Seconds of stages" });
    bars.forEach((line, i) => {
      svg.append(make("text", { class: "label", x: 0, y: i * row + 15 }, line.name));
      let x = 0;
      for (const { stage, lane, seconds } of line.stages) {
        const w = seconds / longest * (width - right);
        const part = make("rect", { class: "part", x, y: i * row + 22, width: Math.max(0, w), height: bar,
          style: { fill: stageColour(stage) } });
        part.addEventListener("pointermove", event => tip.show(event, line.name, [[stageColour(stage),
          `${words(stage)}, lane ${lane + 1}`, `${time(seconds)}, ${(100 * seconds / sum(line)).toFixed(0)} %`]]));
        part.addEventListener("pointerleave", tip.hide);
        svg.append(part);
        x += w;
      }
      svg.append(make("text", { x: x + 8, y: i * row + 22 + bar / 2 + 4 }, time(sum(line))));
    });
    return svg;
  });
}

function drawTimelines({ comparison, timelines }) {
  if (!timelines.length) return;
  $("lanes").hidden = false;
  stageLegend($("lanes-legend"), new Set(timelines.flatMap(([, spans]) => spans.map(s => s.stage))));
  for (const [at, spans] of timelines) {
    const chart = make("div", { class: "chart" });
    const steps = new Set(spans.map(s => s.step)).size;
    const caption = make("figcaption", {}, `${comparison.lines[at].name}: ${steps} steps of the last epoch`);
    $("timelines").append(make("figure", { class: "card" }, caption, chart));
    const lanes = [...new Set(spans.map(s => s.lane))].sort((a, b) => a - b);
    const end = Math.max(...spans.map(s => s.start + s.length)) || 1;
    fitted(chart, width => {
      const [left, row, bar] = [52, 32, 24];
      const height = lanes.length * row + 26;
      const px = t => left + t / end * (width - left - 4);
      const svg = make("svg", { class: "timeline", viewBox: `0 0 ${width} ${height}`, height, role: "img",
        "aria-label": "Ops by lane and time" });
      lanes.forEach((lane, i) => svg.append(
        make("text", { x: 0, y: i * row + bar / 2 + 4 }, `lane ${lane + 1}`),
        make("rect", { class: "row", x: left, y: i * row, width: width - left - 4, height: bar, rx: 3 })));
      for (const s of spans) {
        const span = make("rect", { class: "span", x: px(s.start), y: lanes.indexOf(s.lane) * row,
          width: Math.max(0.6, s.length / end * (width - left - 4)), height: bar, style: { fill: stageColour(s.stage) } });
        span.addEventListener("pointermove", event => tip.show(event, `step ${s.step + 1}`,
          [[stageColour(s.stage), `${s.op} (${words(s.stage)})`, time(s.length / 1e6)]]));
        span.addEventListener("pointerleave", tip.hide);
        svg.append(span);
      }
      const [unit, name] = end < 2e3 ? [1, "µs"] : end < 2e6 ? [1e3, "ms"] : [1e6, "s"];
      const x = ticks(0, end / unit, width / 90);
      for (const t of x.found) {
        const at = px(t * unit);
        svg.append(make("line", { class: "axis", x1: at, x2: at, y1: height - 24, y2: height - 19 }),
          make("text", { x: at, y: height - 5, "text-anchor": t * unit > end * 0.97 ? "end" : "middle" },
            `${t.toFixed(x.digits)} ${name}`));
      }
      return svg;
    });
  }
}

function drawRuns({ comparison }) {
  const runs = line => line.runs.map(run => run.path).join(", ");
  const list = make("dl", {}, ...comparison.lines.flatMap(line => [make("dt", {}, line.name), make("dd", {}, runs(line))]));
  $("runs").append(list);
  if (comparison.notes.length) {
    $("runs").append(make("ul", {}, ...comparison.notes.map(note => make("li", {}, note))));
  }
}

try {
  const content = JSON.parse($("content").textContent);
  $("about").textContent = content.about;
  [drawTable, drawCurves, drawStages, drawTimelines, drawRuns].forEach(draw => draw(content));
} catch (e) {
  $("failed").textContent = `The page cannot be drawn: ${e}`;
  $("failed").hidden = false;
}
