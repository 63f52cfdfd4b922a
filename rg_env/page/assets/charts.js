// Charts with Observable Plot: SVG with colors from CSS variables, so that dark mode and print need no redrawing.

const PHASES = { train: "var(--train)", eval: "var(--eval)" };
const COLORS = d3.schemeTableau10;
const hidden = new Set(); // runs that are not drawn over the steps
const drawings = []; // [holder, function from width to nodes]: redrawn when the width changes

/**
 * A chart with a title and a line on how to read it; `draw` makes the nodes for a width in pixels. `viewOf` gives the filters that
 * list the groups of a mark, which is clicked while the tip shows it.
 */
function chart(parent, title, reading, draw, viewOf) {
  const pick = (event) => {
    const mark = event.target.closest("svg")?.value;
    if (mark) showGroups(viewOf(mark));
  };
  const holder = el("div", { class: viewOf ? "plot picks" : "plot", onclick: viewOf && pick });
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
const swatches = (pairs) =>
  el("div", { class: "legend" }, pairs.map(([label, color]) => el("span", {}, el("i", { style: `background: ${color}` }), label)));

/** The filters for what a chart of a section shows, and for the steps of a mark in it. */
const viewOfSection = ({ run_id, phase, environment }) => ({ run: several ? run_id : "", phase, environment: onlyOurs ? "" : environment });
const viewOfSteps = (row) => ({ from: row.step, to: row.last_step });

const middle = (row) => (row.step + row.last_step) / 2;
const rate = { domain: [0, 1], tickFormat: percent };
const frame = (width, label, height = 230) => ({ width, height, marginLeft: 46, marginBottom: 38, marginTop: 14, style: { fontSize: "12px" }, ariaLabel: label });
const stepAxis = (rows, width) => {
  const few = [...new Set(rows.map((row) => row.step))];
  const ticks = few.length <= 6 ? few : Math.max(3, Math.floor(width / 90));
  return { label: "step →", labelAnchor: "right", nice: false, ticks, tickFormat: (step) => (Number.isInteger(step) ? String(step) : "") };
};

/** The color of a run in charts that show several. */
function runColor(id) {
  const place = report.runs.findIndex((run) => run.run_id === id);
  return report.runs.length > COLORS.length ? d3.interpolateRainbow(place / report.runs.length) : COLORS[place];
}

/** The series with those of runs that differ in seeds alone as one: their mean at each step, with a band from the lowest to the highest. */
function overSeeds(series) {
  const alike = new Map(report.runs.map((run) => [run.run_id, run.alike]));
  const groups = d3.groups(series, ({ run_id, apart }, place) => (run_id ? `${alike.get(run_id)} ${apart == null}` : place));
  return groups.map(([, [first, ...others]]) => {
    if (!others.length) return first;
    const seeds = `mean of ${others.length + 1} seeds`;
    const points = d3.groups([first, ...others].flatMap(({ rows }) => rows), ({ step, last_step }) => `${step} ${last_step}`);
    const rows = points.map(([, of]) => {
      const y = d3.mean(of, (row) => row.y);
      const [low, high] = d3.extent(of, (row) => row.y);
      const text = `${seeds}, ${stepText(of[0])}\n${first.format(y)} [${first.format(low)}, ${first.format(high)}]\n${of.length} runs`;
      return { ...of[0], y, low, high, text, view: { ...of[0].view, run: "" } };
    });
    return { ...first, label: `${first.label}: ${seeds}`, rows: d3.sort(rows, middle) };
  });
}

/**
 * A chart over the steps. Each of `series` has a `label`, a `color`, and `rows` with `y`, its bounds `low` and `high`, and the `text` of
 * a tip, and the `view` that lists its groups; it is a line, or with `apart` points, which are moved sideways so that those of one step do not hide each other.
 */
function overSteps(parent, title, series, y, height) {
  if (series.every(({ rows }) => !rows.length)) return;
  const hasSeeds = several && new Set(report.runs.map((run) => run.alike)).size < report.runs.length && series.some(({ run_id }) => run_id);
  chart(parent, title, hasSeeds ? "Runs that differ in seeds alone: their mean, with a band from the lowest to the highest." : "", (width) => {
    const drawn = overSeeds(series.filter(({ run_id, rows }) => !hidden.has(run_id) && rows.length));
    const rows = drawn.flatMap(({ rows }) => rows);
    const legend = [...new Map(drawn.map(({ label, color }) => [label, color]))];
    return [
      Plot.plot({
        ...frame(width, `${title} over the steps`, height),
        x: { ...stepAxis(rows, width), inset: drawn.some(({ apart }) => apart) ? 8 : 0 },
        y: { label: null, grid: true, nice: true, ticks: 5, ...y },
        marks: [
          ...drawn.filter(({ apart }) => apart == null).map(({ rows, color }) =>
            Plot.areaY(rows, { x: middle, y1: "low", y2: "high", fill: color, fillOpacity: Math.min(0.15, 0.5 / drawn.length) })),
          ...drawn.flatMap(({ rows, color, apart }) => apart == null ? [
            Plot.lineY(rows, { x: middle, y: "y", stroke: color, strokeWidth: 2.2 }),
            Plot.dot(rows, { x: middle, y: "y", r: rows.length > 20 ? 2 : 3.5, fill: color }),
          ] : [
            Plot.ruleX(rows.filter(({ low }) => low != null), { x: middle, y1: "low", y2: "high", dx: apart, stroke: color, strokeWidth: 2 }),
            Plot.dot(rows, { x: middle, y: "y", dx: apart, r: 4.5, fill: color, stroke: "var(--panel)" }),
          ]),
          Plot.tip(rows, Plot.pointer({ x: middle, y: "y", title: "text" })),
        ],
      }),
      ...(legend.length > 1 && !height ? [swatches(legend)] : []),
    ];
  }, (row) => ({ ...viewOfSteps(row), ...row.view }));
}

/** A statistic of every run: a line for training, a point for each evaluation. */
function curve(parent, title, sections, key, share = true) {
  const format = share ? percent : (value) => number(value);
  const series = sections.map(({ run_id, phase, environment, steps }, place) => ({
    run_id,
    format,
    label: several ? runName(run_id) : phase,
    color: several ? runColor(run_id) : PHASES[phase],
    apart: isTraining(phase) ? null : several ? 4 * (place - sections.length / 2) : 0,
    rows: rowsOf(steps).filter((row) => row[key] != null).map((row) => ({
      ...row, y: row[key], low: row[`${key}_low`], high: row[`${key}_high`], view: viewOfSection({ run_id, phase, environment }),
      text: `${several ? `${runName(run_id)}, ` : ""}${phase}, ${stepText(row)}\n${format(row[key])} ${interval(row, key, format)}\n${row.groups} groups`,
    })),
  }));
  overSteps(parent, title, series, { zero: true, ...(share ? rate : { tickFormat: "~g" }) });
}

/** Small charts of the trainer's own numbers, of every run that has them. */
function trainerCharts(parent) {
  for (const [name, numbers] of d3.group(rowsOf(report.trainer), (row) => row.name)) {
    const series = [...d3.group(numbers, (row) => row.run_id)].map(([run_id, rows]) => ({
      run_id,
      format: (value) => value.toPrecision(4),
      label: runName(run_id),
      color: several ? runColor(run_id) : PHASES.train,
      rows: rows.map((row) => ({ ...row, y: row.value, view: { run: several ? run_id : "", phase: "train" }, text: `${several ? `${runName(run_id)}, ` : ""}${stepText(row)}\n${row.value.toPrecision(4)}` })),
    }));
    overSteps(parent, name, series, { tickFormat: "~g" }, 160);
  }
}

function heatMap(parent, section) {
  const rows = rowsOf(section.heat);
  if (!rows.length) return;
  const rateOf = new Map(rowsOf(section.tasks).map((row) => [row.task, row.solve_rate]));
  const tasks = [...rateOf.keys()].sort((a, b) => rateOf.get(a) - rateOf.get(b));
  chart(parent, "", "Worst task on top. Empty: no group.", (width) => {
    const names = Math.min(width < 500 ? 110 : 220, 14 + 6.8 * Math.max(...tasks.map((task) => task.length)));
    const domain = [...new Set(rows.map((row) => row.step))].sort((a, b) => a - b);
    const every = Math.ceil(domain.length / Math.max(2, Math.floor((width - names) / 60)));
    const ticks = domain.filter((_, place) => place % every === 0);
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
          Plot.tip(rows, Plot.pointer({ x: "step", y: "task", title: (row) => `${plain(row.task)}, ${stepText(row)}\n${percent(row.solve_rate)} solved · ${row.groups} groups` })),
        ],
      }),
      Plot.legend({ color: { scheme: "viridis", domain: [0, 1], tickFormat: percent, label: "solve rate" }, width: Math.min(300, width), marginLeft: 16, marginRight: 20, style: { fontSize: "12px" } }),
    ];
  }, (row) => ({ ...viewOfSection(section), ...viewOfSteps(row), task: row.task }));
}

const clip = (text, most) => (text.length <= most ? text : text.slice(0, Math.max(1, most - 1)) + "…");

function lengthCharts(parent, section) {
  const bars = rowsOf(section.lengths);
  const sides = [["right", "var(--right)", "solved"], ["wrong", "var(--wrong)", "unsolved"]];
  const present = sides.filter(([side]) => bars.some((row) => row[side] > 0));
  if (bars.length)
    chart(parent, "Distribution, in tokens", "Shares of the solved and of the unsolved responses; each sums to 100%.", (width) => [
      Plot.plot({
        ...frame(width, "Lengths of solved and unsolved responses in tokens"),
        x: { label: "tokens →", labelAnchor: "right", ticks: Math.max(3, Math.floor(width / 80)) },
        y: { label: null, grid: true, ticks: 5, tickFormat: (value) => percent(value) },
        marks: [
          ...present.map(([side, color]) =>
            Plot.rectY(bars, { x1: "from", x2: "to", y: side, fill: color, fillOpacity: 0.55, insetLeft: 0.5 })),
          Plot.tip(bars, Plot.pointerX({ x: (row) => (row.from + row.to) / 2, y: (row) => Math.max(row.right ?? 0, row.wrong ?? 0), title: (row) => `${row.from}–${row.to - 1} tokens\n${present.map(([side, , name]) => `${name} ${percent(row[side])}`).join(" · ")}` })),
          Plot.ruleY([0], { stroke: "var(--line)" }),
        ],
      }),
      swatches(present.map(([, color, name]) => [name, color])),
    ], (row) => ({ ...viewOfSection(section), least: row.from, most: row.to - 1 }));
  if (!isTraining(section.phase)) return;
  const medians = present.map(([side, color, name]) => ({
    label: name,
    color,
    rows: rowsOf(section.steps).filter((row) => row[`tokens_${side}_p50`] != null).map((row) => {
      const length = row[`tokens_${side}_p50`];
      return { ...row, y: length, view: { ...viewOfSection(section), result: side === "right" ? "solved" : "" }, text: `${name}, ${stepText(row)}\n${number(length, 0)} tokens` };
    }),
  }));
  overSteps(parent, "Median over the steps, in tokens", medians, { zero: true });
}

/**
 * A line for each violation and each failed status, the most frequent first. What has fewer than two responses at a point of the chart
 * is listed below it: its line would go up and down by single responses. Without steps, all are listed.
 */
function troubleChart(parent, section) {
  const points = rowsOf(section.steps);
  const found = points.length ? rowsOf(section.trouble) : rowsOf(section.counts).filter(({ value }) => value !== "ok");
  const rows = found.map((row) => ({ ...row, what: row.kind === "status" ? `scorer: ${row.value}` : row.value }));
  const total = d3.rollup(rows, (of) => d3.sum(of, (row) => row.rollouts), (row) => row.what);
  const all = [...total.keys()].sort((a, b) => total.get(b) - total.get(a));
  const kinds = points.length ? all.filter((kind) => total.get(kind) >= 2 * points.length) : [];
  const rare = all.filter((kind) => !kinds.includes(kind));
  const shareOf = new Map(rows.map((row) => [`${row.step} ${row.what}`, row.share]));
  const series = kinds.map((kind, place) => ({
    label: words(kind),
    color: COLORS[place % COLORS.length],
    rows: points.map((row) => {
      const share = shareOf.get(`${row.step} ${kind}`) ?? 0;
      return { ...row, y: share, view: { ...viewOfSection(section), violation: kind }, text: `${words(kind)}, ${stepText(row)}\n${percent(share)} of rollouts` };
    }),
  }));
  const title = kinds.length === 1 ? `Share of rollouts with ${words(kinds[0])}` : "Share of rollouts"; // one has no legend
  overSteps(parent, title, series, { zero: true, tickFormat: "~%" });
  if (rare.length)
    parent.append(el("p", { class: "hint" }, `${kinds.length ? "Too rare for a line" : points.length ? "All steps together" : "Responses"}: ${rare.map((kind) => `${words(kind)} ${count(total.get(kind))}`).join(", ")}.`));
}
