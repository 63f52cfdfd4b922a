// The table of tasks: click a column to sort; initially the worst task comes first.

/** A difference of rates in percentage points, with its sign. */
const points = (value) => (value == null ? "–" : Math.round(value * 100) === 0 ? "0" : d3.format("+.0f")(value * 100));

const COLUMNS = [
  { key: "task", label: "task", text: true },
  { key: "groups", label: "groups", show: count },
  { key: "solve_rate", label: "solved", show: percent, bar: true, title: "share of rollouts whose score reaches the threshold" },
  { key: "solve_rate_first", label: "first ¼", show: percent, title: "solved in the first quarter of the steps" },
  { key: "solve_rate_last", label: "last ¼", show: percent, title: "solved in the last quarter of the steps" },
  { key: "solve_rate_change", label: "gain", show: points, title: "last minus first quarter, in percentage points" },
  { key: "format_rate", label: "format", show: percent, title: "share of rollouts without a format violation" },
  { key: "mean_base_score", label: "score", show: number, title: "mean score before the length penalty" },
  { key: "mean_reward", label: "reward", show: number, title: "mean reward, as returned to the trainer" },
  { key: "mean_response_tokens", label: "tokens", show: (value) => number(value, 0), title: "mean length of a response" },
  { key: "truncated", label: "cut off", show: percent, title: "share of rollouts that hit the length limit" },
  { key: "all_correct", label: "all correct", show: percent, title: "share of groups in which every rollout is solved" },
  { key: "all_failed", label: "all failed", show: percent, title: "share of groups in which no score is above 0" },
  { key: "no_signal", label: "no signal", show: percent, title: "share of groups whose rewards are all equal" },
];

// What differs for evaluations, of which all but the first and the gain is of the last one.
const OF_EVALUATIONS = {
  solve_rate_first: { label: "first", title: "solved in the first evaluation" },
  solve_rate_change: { title: "last minus first evaluation, in percentage points" },
};

/** The figures of each task of a section. */
function sectionTable(table, section, choose) {
  const rows = rowsOf(section.tasks);
  const known = COLUMNS.filter(({ key }) => rows.some((row) => row[key] != null) && !isRedundant(rows, key));
  const columns = isTraining(section.phase) ? known : known.map((column) => ({ ...column, ...OF_EVALUATIONS[column.key] }));
  const caption = `Tasks in the ${phaseOf(section)} phase of run ${runName(section.run_id)}`;
  taskTable(table, { rows, columns, caption, sortBy: "solve_rate", choose });
}

const sortings = new Map(); // by the caption of a table, so that new figures keep the order

/** Fill a table with a row for each task, sorted by a column; `choose` is called with the task whose name was clicked. */
function taskTable(table, { rows, columns, caption, sortBy, choose }) {
  const sorted = sortings.get(caption) ?? { key: sortBy, down: false };
  sortings.set(caption, sorted);
  const body = el("tbody");
  const heads = columns.map((column) =>
    el("th", { scope: "col", class: column.text ? "text" : "" },
      el("button", { type: "button", title: column.title, onclick: () => sort(column) }, column.label)));

  function sort(column) {
    sorted.down = sorted.key === column.key ? !sorted.down : !column.text;
    sorted.key = column.key;
    fill();
  }
  function fill() {
    const sign = sorted.down ? -1 : 1;
    rows.sort((a, b) => {
      const [x, y] = [a[sorted.key], b[sorted.key]];
      if (x == null || y == null) return (x == null) - (y == null); // unknown values come last
      return sign * (x < y ? -1 : x > y ? 1 : 0);
    });
    columns.forEach(({ key }, place) =>
      heads[place].setAttribute("aria-sort", key !== sorted.key ? "none" : sorted.down ? "descending" : "ascending"));
    body.replaceChildren(...rows.map((row) => el("tr", {}, columns.map((column) => cell(column, row)))));
  }
  function cell(column, row) {
    const value = row[column.key];
    if (column.text)
      return el("th", { scope: "row" }, el("button", { type: "button", title: "Show its groups", onclick: () => choose(value) }, plain(value)));
    const bounds = interval(row, column.key, column.show);
    const isClear = row[`${column.key}_clear`];
    const shownBounds = column.shown && bounds ? el("span", { class: "muted" }, ` ${bounds}`) : null;
    return el("td", { class: column.bar ? "bar" : isClear && "clear", style: column.bar && `--value: ${value ?? 0}`, title: bounds && `95%: ${bounds}`, onclick: () => (byId("said").textContent = bounds && `${plain(row.task)}, ${column.title ?? column.label}: ${column.show(value)}, 95% interval ${bounds}`) }, column.show(value), shownBounds);
  }
  table.replaceChildren(el("caption", {}, caption), el("thead", {}, el("tr", {}, heads)), body);
  fill();
}

/** Whether a column is redundant: the reward is the score, the solve rate that of the last evaluation, or nothing was truncated. */
const isRedundant = (rows, key) => (key === "solve_rate_last" && rows.every((row) => row.evaluation_step != null)) || (key === "mean_reward" && rows.every((row) => number(row[key]) === number(row.mean_base_score))) || (key === "truncated" && rows.every((row) => !row[key]));
