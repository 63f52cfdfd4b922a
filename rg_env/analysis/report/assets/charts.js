// Charts with Observable Plot: SVG with colors from CSS variables, so that dark mode and print need no redrawing.

const PHASES = { train: "var(--train)", eval: "var(--eval)" };
const KINDS = ["#4e79a7", "#f28e2c", "#e15759", "#76b7b2", "#59a14f", "#edc949", "#af7aa1", "#ff9da7", "#9c755f", "#8c8c8c"];
const drawings = []; // [holder, function from width to nodes]: redrawn when the width changes

/** A chart with a title and a line on how to read it; `draw` makes the nodes for a width in pixels. */
function chart(parent, title, reading, draw) {
  const holder = el("div", { class: "plot" });
  parent.append(el("figure", {}, el("figcaption", {}, el("strong", {}, title), el("span", {}, reading)), holder));
  drawings.push([holder, draw]);
}

/** Draw all charts for the current widths of their holders. */
function redraw() {
  for (const [holder, draw] of drawings) {
    const width = Math.floor(holder.clientWidth);
    if (width > 0) holder.replaceChildren(...draw(width));
    for (const picture of holder.querySelectorAll("svg[aria-label]")) picture.setAttribute("role", "img");
  }
}

/** A legend of [label, color] pairs. */
function swatches(pairs) {
  const items = pairs.map(([label, color]) => {
    const key = el("i");
    key.style.background = color;
    return el("span", {}, key, label);
  });
  return el("div", { class: "legend" }, items);
}

const middle = (row) => (row.step + row.last_step) / 2;
const rate = { domain: [0, 1], tickFormat: (value) => `${Math.round(value * 100)} %` };
const frame = (width, label) => ({ width, height: 230, marginLeft: 46, marginBottom: 38, marginTop: 14, style: { fontSize: "12px" }, ariaLabel: label });
const stepAxis = (rows, width) => {
  const few = [...new Set(rows.map((row) => row.step))];
  const ticks = few.length <= 6 ? few : Math.max(3, Math.floor(width / 90));
  return { label: "step →", labelAnchor: "right", nice: false, ticks, tickFormat: (step) => (Number.isInteger(step) ? String(step) : "") };
};

/** A line with its interval for training; a point with its interval for each evaluation. */
function curve(parent, title, sections, key, { share = true } = {}) {
  const series = sections.map(({ phase, steps }) => ({ phase, rows: rowsOf(steps).filter((row) => row[key] != null), color: isTraining(phase) ? PHASES.train : PHASES.eval }));
  const rows = series.flatMap(({ phase, rows }) => rows.map((row) => ({ ...row, phase })));
  const drawn = series.filter(({ rows }) => rows.length);
  if (!drawn.length) return;
  const merged = rows.some((row) => row.step !== row.last_step) ? "A point is the mean of several steps. " : "";
  const format = share ? (value) => percent(value, 1) : (value) => number(value);
  chart(parent, title, `${merged}Band and bar: 95 % interval.`, (width) => [
    Plot.plot({
      ...frame(width, `${title} over the steps`),
      x: stepAxis(rows, width),
      y: { label: null, grid: true, nice: true, ticks: 5, zero: true, ...(share ? rate : {}) },
      marks: [
        Plot.ruleY([0], { stroke: "var(--line)" }),
        ...series.flatMap(({ phase, rows, color }) => isTraining(phase) ? [
          Plot.areaY(rows, { x: middle, y1: `${key}_low`, y2: `${key}_high`, fill: color, fillOpacity: 0.15 }),
          Plot.lineY(rows, { x: middle, y: key, stroke: color, strokeWidth: 2.2 }),
          Plot.dot(rows, { x: middle, y: key, r: rows.length > 20 ? 2 : 3.5, fill: color }),
        ] : [
          Plot.ruleX(rows.filter((row) => row[`${key}_low`] != null), { x: middle, y1: `${key}_low`, y2: `${key}_high`, stroke: color, strokeWidth: 2 }),
          Plot.dot(rows, { x: middle, y: key, r: 4.5, fill: color, stroke: "var(--panel)" }),
        ]),
        Plot.tip(rows, Plot.pointer({ x: middle, y: key, title: (row) => `${row.phase}, ${stepText(row)}\n${format(row[key])} ${interval(row, key, format)}\n${row.groups} groups` })),
      ],
    }),
    ...(drawn.length > 1 ? [swatches(drawn.map(({ phase, color }) => [phase, color]))] : []),
  ]);
}

/** Steps to label on an axis that has one band per point. */
function bandTicks(rows, width) {
  const steps = [...new Set(rows.map((row) => row.step))].sort((a, b) => a - b);
  const every = Math.ceil(steps.length / Math.max(2, Math.floor(width / 60)));
  return { domain: steps, ticks: steps.filter((_, place) => place % every === 0) };
}

function heatMap(parent, section) {
  const rows = rowsOf(section.heat);
  if (!rows.length) return;
  const rateOf = new Map(rowsOf(section.tasks).map((row) => [row.task, row.solve_rate]));
  const tasks = [...rateOf.keys()].sort((a, b) => rateOf.get(a) - rateOf.get(b));
  const put = rows.some((row) => row.step !== row.last_step);
  chart(parent, "", `Worst task on top. ${put ? "A column stands for several steps. " : ""}Empty: no group.`, (width) => {
    const names = Math.min(width < 500 ? 110 : 220, 14 + 6.8 * Math.max(...tasks.map((task) => task.length)));
    const { domain, ticks } = bandTicks(rows, width - names);
    return [
      Plot.plot({
        ...frame(width, "Solve rate of each task over the steps, as a heat map"),
        height: Math.max(3, tasks.length) * (tasks.length > 40 ? 16 : 24) + 50,
        marginLeft: names,
        marginTop: 8,
        x: { domain, ticks, label: "step →", labelAnchor: "right", tickSize: 3, padding: 0.04 },
        y: { domain: tasks, label: null, tickSize: 0, padding: 0.06, tickFormat: (task) => clip(plain(task), names / 6.8 - 1) },
        color: { scheme: "viridis", domain: [0, 1] },
        marks: [
          Plot.cell(rows, { x: "step", y: "task", fill: "solve_rate" }),
          Plot.tip(rows, Plot.pointer({ x: "step", y: "task", title: (row) => `${plain(row.task)}, ${stepText(row)}\n${percent(row.solve_rate, 1)} solved · ${row.groups} groups` })),
        ],
      }),
      Plot.legend({ color: { scheme: "viridis", domain: [0, 1], tickFormat: (value) => `${value * 100} %`, label: "solve rate" }, width: Math.min(300, width), marginLeft: 16, marginRight: 20, style: { fontSize: "12px" } }),
    ];
  });
}

const clip = (text, most) => (text.length <= most ? text : text.slice(0, Math.max(1, most - 1)) + "…");

function lengthCharts(parent, section) {
  const bars = rowsOf(section.lengths);
  const sides = [["right", "var(--right)"], ["wrong", "var(--wrong)"]];
  const present = sides.filter(([side]) => bars.some((row) => row[side] > 0));
  if (bars.length)
    chart(parent, "Distribution, in tokens", "Shares of the correct and of the wrong responses; each sums to 100 %.", (width) => [
      Plot.plot({
        ...frame(width, "Lengths of correct and wrong responses in tokens"),
        x: { label: "tokens →", labelAnchor: "right", ticks: Math.max(3, Math.floor(width / 80)) },
        y: { label: null, grid: true, ticks: 5, tickFormat: (value) => percent(value) },
        marks: [
          ...present.map(([side, color]) =>
            Plot.rectY(bars, { x1: "from", x2: "to", y: side, fill: color, fillOpacity: 0.55, insetLeft: 0.5 })),
          Plot.tip(bars, Plot.pointerX({ x: (row) => (row.from + row.to) / 2, y: (row) => Math.max(row.right ?? 0, row.wrong ?? 0), title: (row) => `${row.from}–${row.to - 1} tokens\n${present.map(([side]) => `${side} ${percent(row[side], 1)}`).join(" · ")}` })),
          Plot.ruleY([0], { stroke: "var(--line)" }),
        ],
      }),
      swatches(present),
    ]);
  const rows = rowsOf(section.steps).filter((row) => row.length_right != null || row.length_wrong != null);
  if (rows.length > 1 && isTraining(section.phase))
    chart(parent, "Median over the steps", "In tokens.", (width) => [
      Plot.plot({
        ...frame(width, `Median length of correct and wrong responses over the steps in tokens`),
        x: stepAxis(rows, width),
        y: { label: null, grid: true, ticks: 5, zero: true, nice: true },
        marks: [
          ...present.map(([side, color]) =>
            Plot.lineY(rows.filter((row) => row[`length_${side}`] != null), { x: "step", y: `length_${side}`, stroke: color, strokeWidth: 2.2, marker: rows.length > 20 ? null : "dot" })),
          Plot.tip(rows, Plot.pointerX({ x: "step", y: (row) => row.length_right ?? row.length_wrong, title: (row) => `${stepText(row)}\n${present.map(([side]) => `${side} ${number(row[`length_${side}`], 0)}`).join(" · ")} tokens` })),
          Plot.ruleY([0], { stroke: "var(--line)" }),
        ],
      }),
      swatches(present),
    ]);
}

const troubleName = (column) => words(column.replace(/^violation_/, "").replace(/^status_/, "scorer: "));

function troubleChart(parent, section) {
  const rows = rowsOf(section.trouble);
  if (!rows.length) return;
  const total = d3.group(rows, (row) => row.what);
  const kinds = [...total.keys()].sort((a, b) => d3.sum(total.get(b), (row) => row.share) - d3.sum(total.get(a), (row) => row.share));
  const colors = kinds.map((_, place) => KINDS[place % KINDS.length]);
  const digits = d3.max(d3.rollup(rows, (at) => d3.sum(at, (row) => row.share), (row) => row.step).values()) < 0.05 ? 1 : 0;
  chart(parent, "", "Share of rollouts at each point.", (width) => {
    const { domain, ticks } = bandTicks(rows, width);
    return [
      Plot.plot({
        ...frame(width, "Shares of violations and of failed scoring over the steps"),
        x: { domain, ticks, label: "step →", labelAnchor: "right", tickSize: 3, padding: 0.1 },
        y: { label: null, grid: true, ticks: 5, tickFormat: (value) => percent(value, digits) },
        color: { domain: kinds, range: colors },
        marks: [
          Plot.barY(rows, { x: "step", y: "share", fill: "what", order: kinds }),
          Plot.tip(rows.filter((row) => row.share > 0), Plot.pointer(Plot.stackY({ x: "step", y: "share", z: "what", order: kinds, title: (row) => `${troubleName(row.what)}, ${stepText(row)}\n${percent(row.share, 2)} of rollouts` }))),
          Plot.ruleY([0], { stroke: "var(--line)" }),
        ],
      }),
      swatches(kinds.map((kind, place) => [troubleName(kind), colors[place]])),
    ];
  });
}
