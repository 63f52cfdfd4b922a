// Puts the page together from the summary; a choice of run and phase fills it again. `data-ready` on the root says that
// all is there.

const report = JSON.parse(byId("summary").textContent);

const CARDS = [
  ["solve_rate", "solved", (value) => percent(value, 1), (h) => `of ${count(h.rollouts)} rollouts; base score ≥ ${report.solved_at}`],
  ["solve_rate_last", "solved, last ¼", (value) => percent(value, 1), (h) => `of the steps; ${percent(h.solve_rate_first, 1)} in the first ¼`],
  ["format_rate", "in the format", (value) => percent(value, 1), (h) => `${percent(h.solve_given_format, 1)} of these solved`],
  ["mean_base_score", "mean base score", number, (h) => (h.mean_score === h.mean_base_score ? "no penalty applied" : `${number(h.mean_score)} after the penalty`)],
  ["mean_reward", "mean reward", number, () => "what the trainer got"],
  ["groups", "groups", count, (h) => (h.steps ? `in ${count(h.steps)} step${h.steps === 1 ? "" : "s"}` : "steps unknown")],
  ["no_signal", "without signal", (value) => percent(value, 1), (h) => `of groups; all right ${percent(h.all_correct)}, all failed ${percent(h.all_failed)}`],
  ["mean_response_tokens", "mean length", (value) => number(value, 1), (h) => `tokens; ${percent(h.truncated, 1)} cut off`],
  ["scorer_failures", "scorer failures", (value) => percent(value, 2), (h) => `of rollouts; ${percent(h.rejected, 2)} refused by the guard`],
];

function about() {
  const lines = report.runs.map((run) =>
    [report.runs.length > 1 ? run.run_id : null, run.model && `model ${run.model}`, run.started && `started ${run.started.replace("T", " ").replace("+00:00", " UTC")}`, run.attempt > 1 && `attempt ${run.attempt}`].filter(Boolean).map(plain).join(" · "));
  byId("about").replaceChildren(...lines.filter(Boolean).flatMap((line) => [line, el("br")]));
  byId("notes").replaceChildren(...report.notes.map((note) => el("li", {}, plain(note))));
  byId("made").textContent = "Made by rg-env dumps report. Charts: Observable Plot and D3, ISC licence.";
}

function headline(section) {
  const cards = CARDS.filter(([key]) => section.headline[key] != null && (key !== "scorer_failures" || section.headline[key] || section.headline.rejected));
  byId("headline").replaceChildren(...cards.map(([key, label, show, more]) =>
    el("div", {}, el("dt", {}, label), el("dd", {}, show(section.headline[key])), el("dd", { class: "muted" }, more(section.headline)))));
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

/** Hide what the record has nothing for. */
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
  byId("tasks-hint").textContent = "A click on a column sorts; a click on a task shows its groups.";
  fillCharts("heat", (holder) => heatMap(holder, section));
  fillCharts("lengths", (holder) => lengthCharts(holder, section));
  fillCharts("trouble", (holder) => troubleChart(holder, section));
  redraw();
}

function choice() {
  const select = byId("section");
  const several = new Set(report.sections.map((section) => section.run_id)).size > 1;
  select.replaceChildren(...report.sections.map((section, place) =>
    el("option", { value: place }, several ? `${section.phase}, run ${plain(section.run_id)}` : section.phase)));
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
