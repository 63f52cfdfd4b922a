// Several runs side by side: a table of the summary with the settings that differ, and a table of the tasks for each comparison.

const MEASURES = {
  solve_rate: ["solved", percent, "share of rollouts whose score reaches the threshold"],
  solve_rate_last: ["solved, last ¼ of the steps", percent, "share of rollouts whose score reaches the threshold"],
  mean_base_score: ["mean score", number, "the score before the length penalty"],
  mean_reward: ["mean reward", number, "as returned to the trainer"],
  format_rate: ["format", percent, "share of rollouts without a format violation"],
  no_signal: ["no signal", percent, "share of training groups whose rewards are all equal"],
  mean_response_tokens: ["tokens", (value) => number(value, 1), "mean length of a response"],
};

/** What is compared, such as "last evaluation". */
const comparisonName = ({ phase, environment, moment }) =>
  plain([moment || "training", isTraining(phase) ? "" : "evaluation", onlyOurs ? "" : environment].filter(Boolean).join(" "));

/** How a difference is shown, with its sign: of rates in percentage points. */
function signed(measure) {
  if (MEASURES[measure][1] === percent) return points;
  return d3.format(measure === "mean_response_tokens" ? "+.1f" : "+.3f");
}

/** The value of a run with its interval, and below it the first run minus this one. */
function comparedCell(measure, value, difference, name, firstName) {
  if (!value) return el("td", {}, "–");
  const show = MEASURES[measure][1];
  const bounds = value.low == null ? "" : `[${show(value.low)}, ${show(value.high)}]`;
  return el("td", {}, el("strong", {}, show(value.value)), " ", el("span", { class: "muted" }, bounds), differenceNode(measure, difference, name, firstName));
}

function differenceNode(measure, difference, name, firstName) {
  if (!difference) return null;
  const show = signed(measure);
  const unit = show === points ? " points" : "";
  const bounds = difference.low == null ? null : el("span", { class: "bounds" }, `[${show(difference.low)}, ${show(difference.high)}]`);
  const meaning = `${firstName} minus ${name} over ${difference.questions} questions that both answered${difference.clear ? "; the interval excludes 0" : ""}`;
  return el("div", { class: difference.clear ? "difference clear" : "difference", title: meaning }, `first − this: ${show(difference.difference)}${unit} `, bounds);
}

const comparedHead = () => el("thead", {}, el("tr", {}, el("td"), report.runs.map((run) => el("th", { scope: "col" }, el("i", { class: "swatch", style: `background: ${runColor(run.run_id)}` }), runName(run.run_id)))));
const headingRow = (text) => el("tr", { class: "heading" }, el("th", { scope: "rowgroup", colspan: report.runs.length + 1 }, text));

/** The entries of a comparison's list for each run of the report; undefined for runs that it does not have. */
const forEachRun = (comparison, list) => report.runs.map(({ run_id }) => list[comparison.run_ids.indexOf(run_id)]);

/** The name of a setting, which a narrow column breaks after a dot. */
const breakable = (name) => name.split(".").flatMap((part, place) => (place ? [".", el("wbr"), part] : [part]));

function comparedSummary() {
  const groups = report.comparisons.map((comparison) => el("tbody", {},
    headingRow(comparisonName(comparison)),
    comparison.steps.some((step) => step != null) ? el("tr", {}, el("th", { scope: "row" }, "step"), forEachRun(comparison, comparison.steps).map((step) => el("td", {}, step == null ? "–" : String(step)))) : null,
    comparison.totals.map(({ measure, values, differences }) => {
      const between = forEachRun(comparison, differences);
      const firstName = runName(comparison.run_ids[0]);
      return el("tr", {}, el("th", { scope: "row", title: MEASURES[measure][2] }, MEASURES[measure][0]),
        forEachRun(comparison, values).map((value, place) => comparedCell(measure, value, between[place], runName(report.runs[place].run_id), firstName)));
    })));
  const settings = report.differing_settings.map(({ name, values }) =>
    el("tr", {}, el("th", { scope: "row" }, breakable(plain(name))), values.map((value) => el("td", { class: "setting" }, value == null ? "–" : plain(value)))));
  const differing = settings.length ? el("tbody", {}, headingRow("settings that differ"), settings) : null;
  byId("compared").replaceChildren(...[el("caption", {}, "The runs side by side"), comparedHead(), ...groups, differing].filter(Boolean));
}

/** A table that can be sorted: a row for each task, a column for each run, and one for the first run minus it. */
function comparedTasks(comparison) {
  const measure = comparison.totals[0].measure;
  const names = comparison.run_ids.map(runName);
  const columns = [{ key: "task", label: "task", text: true }];
  names.forEach((name, place) => columns.push({ key: `run${place}`, label: name, show: percent, title: MEASURES[measure][2] }));
  names.slice(1).forEach((name, place) => columns.push({ key: `difference${place + 1}`, label: names.length > 2 ? `first − ${name}` : "first − second", show: points, shown: true, title: `${names[0]} − ${name}, in percentage points, over the questions that both answered` }));
  const rows = comparison.tasks.map(({ task, values, differences }) => {
    const row = { task };
    values.forEach((value, place) => Object.assign(row, { [`run${place}`]: value?.value, [`run${place}_low`]: value?.low, [`run${place}_high`]: value?.high }));
    differences.forEach((between, place) => Object.assign(row, { [`difference${place}`]: between?.difference, [`difference${place}_low`]: between?.low, [`difference${place}_high`]: between?.high, [`difference${place}_clear`]: between?.clear }));
    return row;
  });
  const table = el("table");
  const title = `${MEASURES[measure][0]}, ${comparisonName(comparison)}`;
  taskTable(table, { rows, columns: columns.filter(({ key }) => rows.some((row) => row[key] != null)), caption: `Tasks: ${title}`, sortBy: "run0", choose: showTask });
  return [el("h3", {}, title), el("div", { class: "scroll", tabindex: 0, role: "region", "aria-label": title }, table)];
}

/** Fill what is only there if the report has several runs. */
function sideBySide() {
  byId("compared-tasks").replaceChildren();
  byId("side").hidden = !report.comparisons.length && !report.differing_settings.length;
  if (byId("side").hidden) return;
  comparedSummary();
  // It says what stands below a value: in training rows, nothing does.
  byId("side").querySelector(".hint").hidden = !byId("compared").querySelector(".difference");
  byId("compared-tasks").replaceChildren(...report.comparisons.filter(({ moment, totals }) => moment !== "first" && totals.length).flatMap(comparedTasks));
}
