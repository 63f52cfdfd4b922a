// Fills the page from the summary, and again when another run, phase or environment is selected. `data-ready` on the root element
// marks that the page is complete.

const report = JSON.parse(byId("summary").textContent);

// Key of `statistics`, label, format, text below it, and in which phases to show it.
const always = () => true;
const solvedOf = (h) => `of ${count(h.rollouts)} rollouts; base score ≥ ${report.solved_at}${h.environment === "rg_dump" ? "" : ", or what their groups say"}`;
const CARDS = [
  ["solve_rate", "solved in training", rate1, solvedOf, isTraining],
  ["solve_rate", "solved, all evaluations", rate1, solvedOf, (phase) => !isTraining(phase)],
  ["solve_rate_last", "solved, last ¼", rate1, (h) => `of the steps; ${rate1(h.solve_rate_first)} in the first ¼`, isTraining],
  ["format_rate", "well-formed", rate1, (h) => `${rate1(h.solve_given_format)} of these solved`, always],
  ["mean_base_score", "mean base score", number, (h) => (h.penalized ? `${number(h.mean_score)} after the length penalty of ${rate1(h.penalized)} of the rollouts` : h.penalized == null ? "" : "no penalty applied"), always],
  ["mean_reward", "mean reward", number, () => "as returned to the trainer", isTraining],
  ["groups", "groups", count, (h) => (h.steps ? `in ${count(h.steps)} step${h.steps === 1 ? "" : "s"}` : "steps unknown"), always],
  ["no_signal", "without signal", rate1, (h) => `of groups; all correct ${rate1(h.all_correct)}, all failed ${rate1(h.all_failed)}`, always],
  ["mean_response_tokens", "mean length", (value) => number(value, 1), (h) => `tokens; ${rate1(h.truncated)} cut off`, always],
  ["scorer_failures", "scorer failures", rate1, (h) => `of rollouts; ${rate1(h.rejected)} rejected by the guard`, (phase, h) => h.scorer_failures || h.rejected],
];

/** The card for pass@k with the largest k that the groups allow. */
function passCard(headline) {
  const tries = Object.keys(headline).flatMap((key) => key.match(/^pass_at_(\d+)$/)?.[1] ?? []).map(Number);
  const most = d3.max(tries.filter((k) => k > 1 && headline[`pass_at_${k}`] != null));
  return most ? [[`pass_at_${most}`, `pass@${most}`, rate1, () => `one of ${most} correct`, always]] : [];
}

/** The name of a run: its model, and what tells it apart from others. */
const runName = (id) => plain(report.runs.find((run) => run.run_id === id)?.name ?? id);

function about() {
  const lines = report.runs.map((run) =>
    [report.runs.length > 1 ? run.name : run.run_id, run.model && `model ${run.model}`, run.started && `started ${String(run.started).replace("T", " ").replace("+00:00", " UTC")}`, run.attempt > 1 && `attempt ${run.attempt}`].filter(Boolean).map(plain).join(" · "));
  byId("about").replaceChildren(...lines.filter(Boolean).flatMap((line) => [line, el("br")]));
  byId("notes").replaceChildren(...report.notes.map((note) => el("li", {}, plain(note))));
  byId("made").textContent = "Made by rg-env dumps report. Charts: Observable Plot and D3, ISC license.";
}

/** The solve rate of the first and the last evaluation of the run; of the only one, if there is one. */
function evaluationCard(section) {
  const evaluations = report.sections.filter((other) => other.run_id === section.run_id && !isTraining(other.phase));
  return evaluations.map((evaluation) => {
    const rows = rowsOf(evaluation.steps);
    if (!rows.length) return null;
    const ends = rows.length > 1 ? [rows[0], rows.at(-1)] : rows;
    const rates = ends.map((row) => rate1(row.solve_rate)).join(" → ");
    const bounds = ends.map((row) => interval(row, "solve_rate", rate1)).join(" → ");
    return el("div", { class: "evaluation" }, el("dt", {}, `solved in ${phaseOf(evaluation).replace("eval", "evaluation")}`), el("dd", {}, rates),
      el("dd", { class: "muted", title: CLUSTERED }, bounds),
      el("dd", { class: "muted" }, `step ${ends.map((row) => row.step).join(" → ")}; ${ends.map((row) => count(row.groups)).join(" → ")} questions`));
  });
}

const CLUSTERED = "95 % confidence interval, clustered by group";

function headline(section) {
  const h = section.headline;
  const cards = [...CARDS.slice(0, 3), ...passCard(h), ...CARDS.slice(3)].filter(([key, , , , shown]) => h[key] != null && shown(section.phase, h));
  byId("headline").replaceChildren(...evaluationCard(section).filter(Boolean), ...cards.map(([key, label, show, more]) =>
    el("div", {}, el("dt", {}, label), el("dd", {}, show(h[key])),
      h[`${key}_low`] == null ? null : el("dd", { class: "muted", title: CLUSTERED }, interval(h, key, show)),
      el("dd", { class: "muted" }, more(h)))));
  const settings = report.runs.find((run) => run.run_id === section.run_id)?.settings ?? [];
  byId("settings").replaceChildren(...settings.map(([name, value]) => el("div", {}, el("dt", {}, plain(name)), el("dd", {}, plain(value)))));
}

function worst(section) {
  const when = isTraining(section.phase) && section.headline.steps > 1 ? " in the last ¼" : "";
  const tasks = section.worst.map((task) =>
    el("article", {}, el("h3", {}, plain(task.task), el("span", { class: "muted" }, ` ${percent(task.solve_rate)} solved${when}`)), el("ul", {}, task.examples.map(example))));
  byId("worst").replaceChildren(...(tasks.length ? tasks : [el("p", { class: "notice" }, "Every task is solved.")]));
}

function example([place, number]) {
  const group = groups[place];
  const rollout = group.rollouts[number];
  const trouble = troubleOf(rollout);
  return el("li", {},
    el("p", { class: "excerpt" }, group.excerpt),
    el("p", {}, "answered ", el("code", { dir: "auto" }, rollout.answer ? clip(plain(carried(rollout.answer)), 120) : "nothing"),
      group.expected ? [" for ", el("code", { dir: "auto" }, clip(plain(carried(group.expected)), 120))] : "",
      trouble ? el("span", { class: "badge trouble" }, words(trouble)) : ""),
    el("button", { type: "button", onclick: () => openGroup(place) }, group.step == null ? "Open the group" : `Open the group of step ${group.step}`));
}

/** Fill a section with charts, or say that there are none. */
const fillCharts = (id, fill) => {
  const holder = byId(id);
  holder.replaceChildren();
  fill(holder);
  if (!holder.childElementCount) holder.append(el("p", { class: "notice" }, "Nothing to show for this phase."));
};

function show(section) {
  drawings.length = 0;
  const both = report.sections.filter((other) => other.run_id === section.run_id && other.environment === section.environment);
  headline(section);
  fillCharts("curves", (holder) => {
    curve(holder, "Mean reward", both, "mean_reward", { share: false });
    curve(holder, "Solve rate", both, "solve_rate");
    curve(holder, "Format rate", both, "format_rate");
    curve(holder, "Groups without signal", both, "no_signal");
  });
  taskTable(byId("tasks"), section, showTask);
  byId("tasks-hint").textContent = "Click a column to sort, a task to show its groups; hover over a number for its 95 % interval.";
  fillCharts("heat", (holder) => heatMap(holder, section));
  fillCharts("lengths", (holder) => lengthCharts(holder, section));
  fillCharts("trouble", (holder) => troubleChart(holder, section));
  redraw();
}

function choice() {
  const select = byId("section");
  const several = new Set(report.sections.map((section) => section.run_id)).size > 1;
  select.replaceChildren(...report.sections.map((section, place) =>
    el("option", { value: place }, several ? `${phaseOf(section)}, run ${runName(section.run_id)}` : phaseOf(section))));
  byId("section-label").hidden = report.sections.length < 2;
  const current = () => report.sections[Number(select.value)];
  select.addEventListener("change", () => { show(current()); unpacked.then(() => worst(current())); });
  return current;
}

about();
const unpacked = startBrowser();
const current = choice();
show(current());
let width = innerWidth;
addEventListener("resize", () => {
  if (width === innerWidth) return; // phones resize when their address bar hides
  width = innerWidth;
  requestAnimationFrame(() => { redraw(); drawRows(); });
});
unpacked.then(() => {
  worst(current());
  document.documentElement.setAttribute("data-ready", "");
});
