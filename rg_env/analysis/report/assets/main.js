// Fills the page from the summary, and again when another run or phase is selected. `data-ready` on the root element
// marks that the page is complete.

const report = JSON.parse(byId("summary").textContent);

// Key of `statistics`, label, format, text below it, and when to omit it.
const CARDS = [
  ["solve_rate", "solved", rate1, (h) => `of ${count(h.rollouts)} rollouts; base score ≥ ${report.solved_at}`],
  ["solve_rate_last", "solved, last ¼", rate1, (h) => `of the steps; ${rate1(h.solve_rate_first)} in the first ¼`],
  ["format_rate", "well-formed", rate1, (h) => `${rate1(h.solve_given_format)} of these solved`],
  ["mean_base_score", "mean base score", number, (h) => (h.penalized ? `${number(h.mean_score)} after the length penalty of ${rate1(h.penalized)} of the rollouts` : h.penalized == null ? "" : "no penalty applied")],
  ["mean_reward", "mean reward", number, () => "as returned to the trainer"],
  ["groups", "groups", count, (h) => (h.steps ? `in ${count(h.steps)} step${h.steps === 1 ? "" : "s"}` : "steps unknown")],
  ["no_signal", "without signal", rate1, (h) => `of groups; all correct ${rate1(h.all_correct)}, all failed ${rate1(h.all_failed)}`],
  ["mean_response_tokens", "mean length", (value) => number(value, 1), (h) => `tokens; ${rate1(h.truncated)} cut off`],
  ["tokens_per_second", "tokens per second", (value) => count(Math.round(value)), (h) => `while rollouts ran; scoring took ${rate1(h.scoring_share)} of their time`],
  ["step_seconds", "seconds per step", (value) => number(value, 1), (h) => `median; rollouts took ${number(h.rollout_seconds, 1)}`],
  ["scorer_failures", "scorer failures", rate1, (h) => `of rollouts; ${rate1(h.rejected)} rejected by the guard`, (h) => !h.scorer_failures && !h.rejected],
];

/** The card for pass@k with the largest k that the groups allow. */
function passCard(headline) {
  const tries = Object.keys(headline).flatMap((key) => key.match(/^pass_at_(\d+)$/)?.[1] ?? []).map(Number);
  const most = d3.max(tries.filter((k) => k > 1 && headline[`pass_at_${k}`] != null));
  return most ? [[`pass_at_${most}`, `pass@${most}`, rate1, (h) => `one of ${most} correct; all ${most} correct: ${rate1(h[`pass_hat_${most}`])}`]] : [];
}

/** The name of a run: its model, and what tells it apart from others. */
const runName = (id) => plain(report.runs.find((run) => run.run_id === id)?.name ?? id);

/** The table of several runs by category; `choose` is called with the run and phase that was clicked. */
function leaderboard(choose) {
  const rows = report.leaderboard;
  byId("leaderboard-section").hidden = !rows.length;
  const categories = [...new Set(rows.flatMap((row) => Object.keys(row.categories)))].sort();
  const phases = new Set(rows.map((row) => row.phase)).size > 1;
  const head = ["run", ...(phases ? ["phase"] : []), "groups", "solved", "base score", ...categories];
  const nodes = rows.map((row) => el("tr", {},
    el("th", { scope: "row" }, el("button", { type: "button", onclick: () => choose(row) }, runName(row.run_id))),
    phases ? el("td", {}, row.phase) : null,
    el("td", {}, count(row.groups)),
    el("td", { title: `95 %: ${interval(row, "solve_rate", rate1)}` }, rate1(row.solve_rate)),
    el("td", {}, number(row.mean_base_score)),
    categories.map((category) => el("td", {}, percent(row.categories[category])))));
  byId("leaderboard").replaceChildren(el("thead", {}, el("tr", {}, head.map((name) => el("th", { scope: "col" }, words(name))))), el("tbody", {}, nodes));
}

function about() {
  const lines = report.runs.map((run) =>
    [report.runs.length > 1 ? run.name : run.run_id, run.model && `model ${run.model}`, run.started && `started ${String(run.started).replace("T", " ").replace("+00:00", " UTC")}`, run.attempt > 1 && `attempt ${run.attempt}`].filter(Boolean).map(plain).join(" · "));
  byId("about").replaceChildren(...lines.filter(Boolean).flatMap((line) => [line, el("br")]));
  byId("notes").replaceChildren(...report.notes.map((note) => el("li", {}, plain(note))));
  byId("made").textContent = "Made by rg-env dumps report. Charts: Observable Plot and D3, ISC license.";
}

function headline(section) {
  const h = section.headline;
  const cards = [...CARDS.slice(0, 2), ...passCard(h), ...CARDS.slice(2)].filter(([key, , , , without]) => h[key] != null && !without?.(h));
  byId("headline").replaceChildren(...cards.map(([key, label, show, more]) =>
    el("div", {}, el("dt", {}, label), el("dd", {}, show(h[key])),
      h[`${key}_low`] == null ? null : el("dd", { class: "muted", title: "95 % confidence interval, clustered by group" }, interval(h, key, show)),
      el("dd", { class: "muted" }, more(h)))));
}

function worst(section) {
  const when = section.headline.steps > 1 ? " in the last ¼" : "";
  const tasks = section.worst.map((task) =>
    el("article", {}, el("h3", {}, words(task.task), el("span", { class: "muted" }, ` ${percent(task.solve_rate)} solved${when}`)), el("ul", {}, task.examples.map(example))));
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
  const sameRun = report.sections.filter((other) => other.run_id === section.run_id);
  headline(section);
  fillCharts("curves", (holder) => {
    curve(holder, "Mean reward", sameRun, "mean_reward", { share: false });
    curve(holder, "Solve rate", sameRun, "solve_rate");
    curve(holder, "Format rate", sameRun, "format_rate");
    curve(holder, "Groups without signal", sameRun, "no_signal");
  });
  taskTable(byId("tasks"), section, showTask);
  byId("tasks-hint").textContent = "Click a column to sort, a task to show its groups; hover over a number for its 95 % interval.";
  fillCharts("heat", (holder) => heatMap(holder, section));
  byId("levels-section").hidden = !section.levels.task.length;
  fillCharts("levels", (holder) => levelCurves(holder, section));
  fillCharts("lengths", (holder) => lengthCharts(holder, section));
  fillCharts("trouble", (holder) => troubleChart(holder, section));
  redraw();
}

function choice() {
  const select = byId("section");
  const several = new Set(report.sections.map((section) => section.run_id)).size > 1;
  select.replaceChildren(...report.sections.map((section, place) =>
    el("option", { value: place }, several ? `${section.phase}, run ${runName(section.run_id)}` : section.phase)));
  byId("section-label").hidden = report.sections.length < 2;
  const current = () => report.sections[Number(select.value)];
  select.addEventListener("change", () => { show(current()); unpacked.then(() => worst(current())); });
  return current;
}

about();
const unpacked = startBrowser();
const current = choice();
leaderboard((row) => {
  const place = report.sections.findIndex((section) => section.run_id === row.run_id && section.phase === row.phase);
  byId("section").value = place;
  byId("section").dispatchEvent(new Event("change"));
  byId("h-curves").scrollIntoView();
});
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
