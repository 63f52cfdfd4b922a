// The browser of groups: filters, a list that only renders the visible rows, and the dialog.

const byId = (id) => document.getElementById(id);
const groups = []; // all groups of the report, in the order of the dump
let found = []; // indices of the groups that match the filters
let chosen = 0; // position in `found`
const SPARE_ROWS = 8; // rendered beyond either edge

/** Unpack the blocks of groups one by one, so that the page stays responsive. */
async function unpackGroups() {
  for (const block of document.querySelectorAll("script.block")) {
    const bytes = Uint8Array.from(atob(block.textContent), (character) => character.charCodeAt(0));
    const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"));
    for (const group of JSON.parse(await new Response(stream).text())) groups.push(prepare(group));
    block.remove();
    await new Promise((resume) => setTimeout(resume));
  }
}

/** Precompute what filters and rows need. */
function prepare(group) {
  const asked = (group.prompt ?? []).filter((message) => message.role !== "system").map((message) => carried(message.content));
  const responses = group.rollouts.map((rollout) => carried(rollout.text ?? ""));
  const solvedAt = group.solved_at ?? report.solved_at;
  for (const rollout of group.rollouts) rollout.right = rollout.base_score != null && rollout.base_score >= solvedAt;
  group.trouble = new Set(group.rollouts.map(troubleOf).filter(Boolean));
  group.excerpt = plain((asked.at(-1) ?? "").replace(/\s+/g, " ").slice(0, 300));
  group.haystack = [group.item, group.group_id, ...asked, carried(group.expected ?? ""), ...responses].join("\n").toLowerCase();
  return group;
}

function options(select, all, values, nameOf = words) {
  select.replaceChildren(el("option", { value: "" }, all), ...values.map((value) => el("option", { value }, nameOf(value))));
}

function setUpFilters() {
  const kinds = (of) => [...new Set(groups.flatMap(of))].sort();
  options(byId("f-task"), "all", kinds((group) => group.task), plain);
  options(byId("f-outcome"), "all", kinds((group) => group.outcome));
  options(byId("f-trouble"), "any or none", ["none", ...kinds((group) => [...group.trouble])]);
  options(byId("f-phase"), "all", kinds((group) => group.phase));
  options(byId("f-environment"), "all", kinds((group) => group.environment), plain);
  options(byId("f-run"), "all", kinds((group) => group.run_id), runName);
  for (const id of ["f-environment", "f-run"]) byId(`${id}-label`).hidden = byId(id).options.length < 3;
  const steps = groups.map((group) => group.step).filter((step) => step != null);
  for (const label of document.querySelectorAll("#filters .step")) label.hidden = !steps.length;
  byId("f-from").placeholder = d3.min(steps) ?? "";
  byId("f-to").placeholder = d3.max(steps) ?? "";
}

const value = (id) => byId(id).value;
const term = () => value("f-search").trim().toLowerCase();

/** Find the groups that match the filters, and go to the first. */
function filter() {
  const [task, outcome, trouble, phase, environment, run] = ["f-task", "f-outcome", "f-trouble", "f-phase", "f-environment", "f-run"].map(value);
  const search = term();
  const [from, to] = ["f-from", "f-to"].map((id) => (value(id) === "" ? null : Number(value(id))));
  const passes = (group) =>
    (!task || group.task === task) && (!outcome || group.outcome === outcome) && (!phase || group.phase === phase) &&
    (!environment || group.environment === environment) && (!run || group.run_id === run) &&
    (!trouble || (trouble === "none" ? !group.trouble.size : group.trouble.has(trouble))) &&
    (from == null || (group.step != null && group.step >= from)) && (to == null || (group.step != null && group.step <= to)) &&
    (!search || group.haystack.includes(search));
  found = [];
  groups.forEach((group, place) => passes(group) && found.push(place));
  chosen = 0;
  byId("list").scrollTop = 0;
  byId("count").textContent = `${count(found.length)} of ${count(groups.length)} groups`;
  drawRows();
}

const rowHeight = () => parseFloat(getComputedStyle(byId("list")).getPropertyValue("--row"));

/** Render only the visible rows. */
function drawRows() {
  const list = byId("list");
  const height = rowHeight();
  const first = Math.max(0, Math.floor(list.scrollTop / height) - SPARE_ROWS);
  const last = Math.min(found.length, Math.ceil((list.scrollTop + list.clientHeight) / height) + SPARE_ROWS);
  const rows = byId("rows");
  rows.style.height = `${found.length * height}px`;
  rows.replaceChildren(...d3.range(first, last).map((place) => rowNode(place, height)));
  if (!found.length) rows.append(el("p", { class: "notice" }, "No group matches these filters."));
  const active = byId(`row-${chosen}`);
  if (active) list.setAttribute("aria-activedescendant", active.id);
  else list.removeAttribute("aria-activedescendant");
}

/** The row of the group at a position of `found`. */
function rowNode(place, height) {
  const group = groups[found[place]];
  const right = group.rollouts.filter((rollout) => rollout.right).length;
  const label = `${plain(group.task)}, ${group.phase}, step ${group.step ?? "unknown"}, ${right} of ${group.rollouts.length} correct. ${group.excerpt}`;
  const row = el("div",
    { id: `row-${place}`, role: "option", class: "row", "aria-selected": String(place === chosen), "aria-setsize": found.length, "aria-posinset": place + 1, "aria-label": label, onclick: () => { choose(place); open(); } },
    el("span", { class: "task" }, plain(group.task)),
    el("span", { class: "when" }, group.step == null ? group.phase : `${group.phase} ${group.step}`),
    el("span", { class: "squares" }, bestFirst(group.rollouts).slice(0, 16).map(square)),
    el("span", { class: "right-of" }, `${right}/${group.rollouts.length}`),
    el("span", { class: "excerpt" }, group.prompt ? group.excerpt : whyNoText(group)));
  row.style.transform = `translateY(${place * height}px)`;
  return row;
}

function square(rollout) {
  const made = el("i", { class: troubleOf(rollout) ? "trouble" : "" });
  made.style.setProperty("--score", rollout.base_score ?? 0);
  return made;
}

/** Select a position in the list and scroll to it. */
function choose(place) {
  if (!found.length) return;
  chosen = Math.max(0, Math.min(found.length - 1, place));
  const list = byId("list");
  const height = rowHeight();
  list.scrollTop = Math.max((chosen + 1) * height - list.clientHeight, Math.min(list.scrollTop, chosen * height));
  drawRows();
}

/** Show the selected group in the dialog. */
function open() {
  if (!found.length) return;
  const group = groups[found[chosen]];
  byId("group-title").textContent = `${plain(group.task)}${group.step == null ? "" : `, step ${group.step}`}`;
  const body = byId("group-body");
  body.replaceChildren(...groupNodes(group));
  body.scrollTop = 0;
  highlight(body, term());
  byId("previous").disabled = chosen === 0;
  byId("next").disabled = chosen === found.length - 1;
  if (!byId("group").open) byId("group").showModal();
  body.focus();
}

/** Open a group by its index in the report; resets the filters if they exclude it. */
function openGroup(number) {
  if (!found.includes(number)) reset();
  choose(found.indexOf(number));
  open();
}

/** Clear all filters. */
function reset() {
  byId("filters").reset();
  filter();
}

/** Show the groups of one task and focus the list. */
function showTask(task) {
  byId("filters").reset();
  byId("f-task").value = task;
  filter();
  byId("groups").scrollIntoView();
  byId("list").focus({ preventScroll: true });
}

/** Open the previous (-1) or next (1) group. */
function move(by) {
  choose(chosen + by);
  open();
}

const isShortcut = (event) => event.ctrlKey || event.metaKey || event.altKey; // the browser's, not ours

function listen() {
  const list = byId("list");
  const page = () => Math.max(1, Math.floor(list.clientHeight / rowHeight()) - 1);
  const keys = {
    ArrowDown: () => choose(chosen + 1), ArrowUp: () => choose(chosen - 1),
    PageDown: () => choose(chosen + page()), PageUp: () => choose(chosen - page()),
    Home: () => choose(0), End: () => choose(found.length - 1), Enter: open, " ": open,
  };
  list.addEventListener("keydown", (event) => {
    const act = isShortcut(event) ? null : keys[event.key];
    if (!act) return;
    event.preventDefault();
    act();
  });
  list.addEventListener("scroll", drawRows, { passive: true });
  const form = byId("filters");
  form.addEventListener("input", filter);
  byId("clear").addEventListener("click", reset);
  form.addEventListener("submit", (event) => { event.preventDefault(); list.focus(); });
  byId("previous").addEventListener("click", () => move(-1));
  byId("next").addEventListener("click", () => move(1));
  byId("close").addEventListener("click", () => byId("group").close());
  byId("group").addEventListener("keydown", (event) => {
    const by = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
    if (by && !isShortcut(event)) move(by);
  });
  byId("group").addEventListener("click", (event) => event.target === byId("group") && byId("group").close());
}

/** Unpack and show the groups. Rejects if the browser cannot unpack them. */
async function startBrowser() {
  listen();
  byId("count").textContent = "Unpacking the groups …";
  try {
    await unpackGroups();
  } catch (error) {
    byId("count").textContent = `The groups cannot be unpacked (${error.message}): use a browser from 2023 or later.`;
    throw error;
  }
  setUpFilters();
  filter();
}
