// Fills the page from the summary, and again when another run, phase or environment is selected, or a live page has new figures.
// `data-ready` on the root element marks that the page is complete.

let report = { title: "", runs: [], sections: [], notes: [], trainer: { step: [] }, comparisons: [], differing_settings: [], violations: {} };
let runOf = new Map();
let several = false;
let onlyOurs = true;
const runName = (id) => plain(runOf.get(id)?.name ?? id);

function setReport(summary) {
  report = summary;
  runOf = new Map(report.runs.map((run) => [run.run_id, run]));
  several = report.runs.length > 1;
  onlyOurs = report.sections.every((section) => section.environment === "rg_dump");
}

const CLUSTERED = "95% confidence interval, clustered by question";
/** The phase, followed by the environment if the report has others than rg_dump. */
const phaseOf = ({ phase, environment }) => (onlyOurs ? phase : plain(`${phase} ${environment}`));

// Key of `statistics`, label, format, text below it, and whether to show it.
const always = () => true;
const inTraining = (h) => isTraining(h.phase);
const solvedOf = (h) => `of ${count(h.rollouts)} rollouts; score ≥ ${h.solved_at.join(" or ")}`;
const inSteps = (h) => (h.steps ? `in ${count(h.steps)} step${h.steps === 1 ? "" : "s"}` : "steps unknown");
const groupsOf = (h) => (h.evaluation_step == null ? inSteps(h) : `evaluated after step ${h.evaluation_step}`);
const rewardIsScore = (h) => inTraining(h) && number(h.mean_reward) === number(h.mean_base_score);
const penalty = (h) => (h.penalized ? `${number(h.mean_score)} after the length penalty of ${percent(h.penalized)} of the rollouts` : h.penalized == null ? "" : "no penalty applied");
const CARDS = [
  ["solve_rate", "solved in training", percent, solvedOf, inTraining],
  ["solve_rate", "solved in evaluation", percent, solvedOf, (h) => !inTraining(h) && h.steps === 0],
  ["solve_rate_last", "solved, last ¼", percent, (h) => `of the steps; ${percent(h.solve_rate_first)} in the first ¼`, inTraining],
  ["format_rate", "well-formed", percent, (h) => `${percent(h.solve_given_format)} of these solved`, always],
  ["mean_base_score", "mean score and reward", number, penalty, rewardIsScore],
  ["mean_base_score", "mean score", number, penalty, (h) => !rewardIsScore(h)],
  ["mean_reward", "mean reward", number, () => "as returned to the trainer", (h) => inTraining(h) && !rewardIsScore(h)],
  ["groups", "groups", count, groupsOf, always],
  ["no_signal", "without signal", percent, (h) => `of groups; all correct ${percent(h.all_correct)}, all failed ${percent(h.all_failed)}`, always],
  ["mean_response_tokens", "mean length", (value) => number(value, 1), (h) => `tokens; ${percent(h.truncated)} cut off`, always],
  ["scorer_failures", "scorer failures", percent, (h) => `of rollouts; ${percent(h.rejected)} rejected by the guard`, (h) => h.scorer_failures + h.rejected],
];

// What the labels of cards mean, as their titles.
const MEANINGS = Object.fromEntries([...COLUMNS, { key: "groups", title: "a group is the rollouts of one question" }].map(({ key, title }) => [key, title]));

/** The card for pass@k with the largest k that the groups allow. */
function passCard(headline) {
  const tries = Object.keys(headline).flatMap((key) => key.match(/^pass_at_(\d+)$/)?.[1] ?? []).map(Number);
  const most = d3.max(tries.filter((k) => k > 1 && headline[`pass_at_${k}`] != null));
  const leftOut = headline[`pass_at_${most}_left_out`];
  const without = leftOut ? `; ${count(leftOut)} groups with fewer left out` : "";
  return most ? [[`pass_at_${most}`, `pass@${most}`, percent, () => `one of ${most} solved${without}`, always]] : [];
}

/** The first and the last evaluation of a section; the only one, if there is one. */
const ends = ({ steps }) => rowsOf(steps).filter((_, place, rows) => place === 0 || place === rows.length - 1);
const evaluations = (run_id) => report.sections.filter((section) => section.run_id === run_id && !isTraining(section.phase));
const both = (rows, show) => rows.map(show).join(" → ");

function about() {
  byId("about").replaceChildren(...report.runs.map((run) => {
    const evaluated = evaluations(run.run_id).map((section) => `${both(ends(section).length ? ends(section) : [section.headline], (row) => percent(row.solve_rate))} solved in ${phaseOf(section)}`);
    const facts = [...(several ? [run.name] : [run.run_id, run.model && `model ${run.model}`]), run.started && `started ${String(run.started).replace("T", " ").replace("+00:00", " UTC")}`, run.attempt > 1 && `attempt ${run.attempt}`, ...(several ? evaluated : [])];
    const line = facts.filter(Boolean).map(plain).join(" · ");
    if (!several) return el("p", {}, line);
    const toggle = (event) => { hidden[event.target.checked ? "delete" : "add"](run.run_id); redraw(); writeAddress(); };
    const box = el("input", { type: "checkbox", checked: !hidden.has(run.run_id), style: `accent-color: ${runColor(run.run_id)}`, onchange: toggle });
    return el("label", { title: "Show in the charts over the steps" }, box, line);
  }));
  if (isLive && location.search) byId("about").append(el("a", { href: "./" }, "All runs"));
  byId("notes").replaceChildren(...report.notes.map((note) => el("li", {}, plain(note))));
}

/** The solve rate of the first and the last evaluation. */
function evaluationCard(section) {
  const rows = ends(section);
  return el("div", { class: "evaluation" }, el("dt", {}, `solved in ${phaseOf(section).replace("eval", "evaluation")}`), el("dd", {}, both(rows, (row) => percent(row.solve_rate))),
    el("dd", { class: "muted", title: CLUSTERED }, both(rows, (row) => interval(row, "solve_rate", percent))),
    el("dd", { class: "muted" }, `step ${both(rows, (row) => row.step)}; ${both(rows, (row) => count(row.groups))} questions`));
}

function headline(section) {
  const counted = rowsOf(section.counts);
  const shareOf = (...statuses) => d3.sum(counted.filter(({ kind, value }) => kind === "status" && statuses.includes(value)), ({ share }) => share);
  const h = { ...section.headline, scorer_failures: shareOf("timeout", "crashed", "error"), rejected: shareOf("rejected") };
  const cards = [...CARDS.slice(0, 3), ...passCard(h), ...CARDS.slice(3)].filter(([key, , , , shown]) => h[key] != null && shown(h));
  byId("headline").replaceChildren(...evaluations(section.run_id).filter((evaluation) => ends(evaluation).length).map(evaluationCard), ...cards.map(([key, label, show, more]) =>
    el("div", {}, el("dt", { title: MEANINGS[key] }, label), el("dd", {}, show(h[key])),
      h[`${key}_low`] == null ? null : el("dd", { class: "muted", title: CLUSTERED }, interval(h, key, show)),
      el("dd", { class: "muted" }, more(h)))));
  fillTiles();
  const settings = runOf.get(section.run_id)?.settings ?? [];
  byId("settings").replaceChildren(pairs("facts", settings.map(([name, value]) => [plain(name), plain(value)])));
}

/** Arrange the tiles in columns of which none is left empty: the last tile takes what is left of its row. */
function fillTiles() {
  const holder = byId("headline");
  const tiles = [...holder.children];
  if (!tiles.length) return;
  const widthOf = (tile) => (tile.className === "evaluation" ? 2 : 1);
  const units = d3.sum(tiles, widthOf);
  const most = Math.max(2, Math.floor(holder.clientWidth / 172));
  const columns = Math.max(2, Math.ceil(units / Math.ceil(units / most)));
  holder.style.gridTemplateColumns = `repeat(${columns}, minmax(0, 1fr))`;
  let used = 0; // columns of the current row
  tiles.forEach((tile, place) => {
    if (used + widthOf(tile) > columns) used = 0;
    used = (used + widthOf(tile)) % columns;
    const left = place === tiles.length - 1 && used ? columns - used : 0;
    tile.style.gridColumn = `span ${widthOf(tile) + left}`;
  });
}

const isWrong = (rollout) => ["partial", "unsolved"].includes(resultOf(rollout));

/** The tasks with the lowest solve rate at the end of training, each with the worst rollouts of its latest groups. */
function worst(section) {
  const atEnd = (task) => task.solve_rate_last ?? task.solve_rate;
  const tasks = rowsOf(section.tasks).filter((task) => atEnd(task) < 1).sort((a, b) => atEnd(a) - atEnd(b)).slice(0, 5);
  const isOfSection = (group) => ["run_id", "phase", "environment"].every((key) => group[key] === section[key]);
  const wrong = groups.filter((group) => group.prompt && isOfSection(group) && group.rollouts.some(isWrong)).reverse();
  const when = isTraining(section.phase) && section.headline.steps > 1 ? " in the last ¼" : "";
  byId("worst-section").hidden = !tasks.length;
  byId("worst").replaceChildren(...tasks.map((task) => el("article", {},
    el("h3", {}, plain(task.task), el("span", { class: "muted" }, ` ${percent(atEnd(task))} solved${when}`)),
    el("ul", {}, wrong.filter((group) => group.task === task.task).slice(0, 3).map(example)),
    el("button", { type: "button", onclick: () => showGroups({ ...viewOfSection(section), task: task.task, result: "unsolved" }) }, "List its unsolved responses"))));
}

function example(group) {
  const rollout = bestFirst(group.rollouts).findLast(isWrong);
  const trouble = troubleOf(rollout);
  return el("li", {},
    el("p", { class: "excerpt" }, group.excerpt),
    el("p", {}, "answered ", el("code", { dir: "auto" }, rollout.answer ? clip(plain(carried(rollout.answer)), 120) : "nothing"),
      group.expected ? [" for ", el("code", { dir: "auto" }, clip(plain(carried(group.expected)), 120))] : "",
      trouble ? el("span", { class: "badge trouble" }, words(trouble)) : ""),
    el("button", { type: "button", onclick: () => openGroup(group, rollout.repetition) }, `Open this rollout${group.step == null ? "" : ` of step ${group.step}`}`));
}

/** Fill a section with charts, or say that there are none. */
function fillCharts(id, fill) {
  byId(id).replaceChildren();
  fill(byId(id));
  if (!byId(id).childElementCount) byId(id).append(el("p", { class: "notice" }, "Nothing to show for this phase."));
}

function show(section) {
  drawings.length = 0;
  headline(section);
  const drawn = report.sections.filter((other) => other.environment === section.environment);
  byId("curves-hint").textContent = `Lines: training; points: evaluations. Band and bar: 95% interval.${pointText(drawn.flatMap(({ steps }) => rowsOf(steps)))}`;
  const merged = pointText(rowsOf(report.trainer));
  byId("trainer-hint").textContent = merged && `${merged.trim()} The band goes from the smallest to the largest of them.`;
  fillCharts("curves", (holder) => {
    curve(holder, "Mean reward", drawn, "mean_reward", false);
    curve(holder, "Solve rate", drawn, "solve_rate");
    curve(holder, "Format rate", drawn, "format_rate");
    curve(holder, "Groups without signal", drawn, "no_signal");
  });
  fillCharts("trainer", trainerCharts);
  for (const id of ["headline-of", "tasks-of"]) {
    byId(id).hidden = !several;
    byId(id).textContent = `all figures of run ${runName(section.run_id)}, ${phaseOf(section)}`;
  }
  sectionTable(byId("tasks"), section, showTask);
  fillCharts("heat", (holder) => heatMap(holder, section));
  fillCharts("lengths", (holder) => lengthCharts(holder, section));
  fillCharts("trouble", (holder) => troubleChart(holder, section));
  redraw();
}

const sectionKey = ({ run_id, phase, environment }) => [phase, environment, run_id].join(" ");
const current = () => report.sections.find((section) => sectionKey(section) === byId("section").value) ?? report.sections[0];

/** Choose a section by its key; the first one if there is none. */
function chooseSection(key) {
  const select = byId("section");
  const before = select.value;
  select.value = key ?? "";
  if (select.selectedIndex < 0) select.selectedIndex = 0;
  if (select.value !== before) showCurrent();
}

function showCurrent() {
  show(current());
  worst(current());
}

/** Fill everything from the report, whose section stays chosen. */
function render() {
  const select = byId("section");
  const key = select.value;
  document.title = byId("title").textContent = plain(report.title);
  select.replaceChildren(...report.sections.map((section) =>
    el("option", { value: sectionKey(section) }, several ? `${phaseOf(section)}, run ${runName(section.run_id)}` : phaseOf(section))));
  if (key) select.value = key;
  if (select.selectedIndex < 0) select.selectedIndex = 0;
  byId("section-label").hidden = report.sections.length < 2;
  byId("trainer-section").hidden = !report.trainer.step.length;
  about();
  sideBySide();
  setMenus();
  showCurrent();
}

// -- a live page

let version = 0;
let renumbered = 0; // how often groups got other positions
let waiting = null; // figures that are not shown yet, because the page is being read
let timer = 0;
const PAUSE = 1000;

/** Whether the reader looks at something that new figures would move or take away. */
const isReading = () => opened != null || document.querySelector("figure:hover, table:hover, main select:focus, #tasks button:focus") != null || !getSelection().isCollapsed;

/** Change the page; what is at the top of the window stays there. */
function keepPlace(change) {
  const anchor = [...document.querySelectorAll("main > section")].find((section) => !section.hidden && section.getBoundingClientRect().bottom > 0);
  const before = anchor?.getBoundingClientRect().top;
  change();
  if (anchor && scrollY) scrollBy({ top: anchor.getBoundingClientRect().top - before, behavior: "instant" });
}

const megabytes = (bytes) => `${(bytes / 1e6).toFixed(bytes < 1e7 ? 1 : 0)} MB`;

/** Say how far the runs were read, or what is wrong. */
function sayProgress({ problem, left, read, running, version }) {
  const line = byId("reading");
  line.classList.toggle("problem", Boolean(problem));
  const parts = [problem ? plain(problem) : "", left ? `reading: ${count(known)} groups so far, ${megabytes(read)} read, ${megabytes(left)} left` : "", !left && running ? `${running === 1 ? "the run goes on" : `${running} runs go on`}: ${count(known)} groups so far` : "", !version && !problem && !left ? "reading" : "", waiting ? "new figures come when you are done here" : ""];
  line.textContent = parts.filter(Boolean).join("; ");
  line.hidden = !line.textContent;
}

/** Ask what is new, show it, and do so again after a while. */
async function follow() {
  clearTimeout(timer);
  try {
    if (!document.hidden) await update(await ask("state", { version }));
  } catch (error) {
    sayProgress({ problem: `no answer from rg-env dumps open (${error.message}): what is shown stays`, version });
  }
  timer = setTimeout(follow, PAUSE);
}

async function update(state) {
  if (state.list) return showRuns(state.list);
  const isFirst = !version && state.summary;
  const hasNew = state.groups !== known;
  known = state.groups;
  if (state.summary) [version, waiting] = [state.version, state.summary];
  if (waiting && (isFirst || !isReading())) {
    setReport(waiting);
    waiting = null;
    keepPlace(render);
  }
  sayProgress(state);
  if (isFirst) {
    await readAddress();
    document.documentElement.setAttribute("data-ready", "");
  } else if (version && state.renumbered !== renumbered) {
    await find(readFields());
    drawRows();
  } else if (version && hasNew) {
    // New groups stand behind those that are there, whose rows stay.
    await load(Math.floor(byId("list").scrollTop / rowHeight()));
    drawRows();
  }
  renumbered = state.renumbered;
}

let listed = ""; // the runs that are shown

/** The runs that can be chosen. */
function showRuns(list) {
  if (listed === JSON.stringify(list)) return; // what is there stays: a click on it may have begun
  document.title = byId("title").textContent = "Runs";
  byId("skip").hidden = document.querySelector("main").hidden = true;
  byId("choice").hidden = false;
  if (document.querySelector("#runs :focus, #runs :checked")) return;
  listed = JSON.stringify(list);
  const linkTo = (paths) => `?${new URLSearchParams(paths.map((path) => ["run", path]))}${location.hash}`;
  byId("runs").replaceChildren(el("tbody", {}, list.map((run) => el("tr", {},
    el("th", { scope: "row", class: "text" }, el("input", { type: "checkbox", value: run.path, "aria-label": `choose ${plain(run.name)}` }), " ", el("a", { href: linkTo([run.path]) }, plain(run.name))),
    ...[run.kind, run.model, run.started && String(run.started).replace("T", " ").slice(0, 16), run.state].map((fact) => el("td", {}, plain(fact || "–")))))));
  if (!list.length) byId("runs").replaceChildren(el("tbody", {}, el("tr", {}, el("td", {}, "There is no run in the folder runs: start one, or name a dump, rg-env dumps open DUMP."))));
  byId("together").hidden = list.length < 2;
  byId("together").onclick = () => {
    const paths = [...document.querySelectorAll("#runs :checked")].map((box) => box.value);
    if (paths.length) location.assign(linkTo(paths));
  };
  document.documentElement.setAttribute("data-ready", "");
}

// -- start

let width = innerWidth;
addEventListener("resize", () => {
  if (width === innerWidth) return; // phones resize when their address bar hides
  width = innerWidth;
  requestAnimationFrame(() => { fillTiles(); redraw(); drawRows(); });
});
listen();
byId("section").addEventListener("change", () => { showCurrent(); writeAddress(); });
if (isLive) follow();
else {
  setReport(JSON.parse(byId("summary").textContent));
  render();
  startBrowser().then(async () => {
    worst(current());
    await readAddress();
    document.documentElement.setAttribute("data-ready", "");
  });
}
