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
  const solvedAt = group.solved_at;
  for (const rollout of group.rollouts) rollout.right = rollout.base_score != null && rollout.base_score >= solvedAt;
  group.trouble = new Set(group.rollouts.map(troubleOf).filter(Boolean));
  group.asked = (asked.at(-1) ?? "").replace(/\s+/g, " ");
  group.excerpt = plain(group.asked.slice(0, 300));
  group.haystack = [group.item, group.group_id, ...asked, carried(group.expected ?? ""), ...responses].join("\n").toLowerCase();
  return group;
}

const LONGEST_BEGINNING = 30; // characters that the questions of a task may have in common before they are cut

/** Begin the excerpts of each task where its questions begin to differ. */
function cutBeginnings() {
  for (const ofTask of d3.group(groups.filter(({ asked }) => asked), ({ task }) => task).values()) {
    const [first, ...others] = [...new Set(ofTask.map(({ asked }) => asked))];
    let length = others.length ? Math.min(first.length, 1_000) : 0;
    for (const other of others) while (!other.startsWith(first.slice(0, length))) length -= 1;
    const start = first.lastIndexOf(" ", length - 1) + 1; // whole words
    if (start <= LONGEST_BEGINNING) continue;
    for (const group of ofTask) group.excerpt = plain(`… ${group.asked.slice(start, start + 300)}`);
  }
}

// Of each menu: its label, the values of a group among which one is chosen, and what a value is called.
const MENUS = [
  ["Task", (group) => [group.task], plain],
  ["Outcome", (group) => [group.outcome], words],
  ["Violation", (group) => (group.trouble.size ? [...group.trouble] : ["none"]), words],
  ["Phase", (group) => [group.phase], words],
  ["Environment", (group) => [group.environment], plain],
  ["Run", (group) => [group.run_id], (id) => runName(id)],
];
const menu = (label) => byId(`f-${label.toLowerCase()}`);

function setUpFilters() {
  byId("menus").replaceChildren(...MENUS.map(([label, valuesOf, nameOf]) => {
    const values = [...new Set(groups.flatMap(valuesOf))].sort();
    const options = [el("option", { value: "" }, "all"), ...values.map((value) => el("option", { value }, nameOf(value)))];
    return el("label", { hidden: values.length < 2 }, label, el("select", { id: `f-${label.toLowerCase()}` }, options));
  }));
  const steps = groups.map((group) => group.step).filter((step) => step != null);
  for (const label of document.querySelectorAll("#filters .step")) label.hidden = !steps.length;
  byId("f-from").placeholder = d3.min(steps) ?? "";
  byId("f-to").placeholder = d3.max(steps) ?? "";
}

const term = () => byId("f-search").value.trim().toLowerCase();

/** Find the groups that match the filters, and go to the first. */
function filter() {
  const chosenOf = MENUS.map(([label, valuesOf]) => [menu(label).value, valuesOf]).filter(([value]) => value);
  const search = term();
  const [from, to] = ["f-from", "f-to"].map((id) => byId(id).value);
  const passes = (group) =>
    chosenOf.every(([value, valuesOf]) => valuesOf(group).includes(value)) &&
    (from === "" || (group.step != null && group.step >= Number(from))) &&
    (to === "" || (group.step != null && group.step <= Number(to))) &&
    group.haystack.includes(search);
  found = d3.range(groups.length).filter((place) => passes(groups[place]));
  chosen = 0;
  byId("list").scrollTop = 0;
  const phases = [...new Set(found.map((place) => groups[place].phase))].map(plain).join(" and ");
  byId("count").textContent = `${count(found.length)} of ${count(groups.length)} groups${phases && ` (${phases})`}`;
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
  const label = `${plain(group.task)}, ${group.phase}, step ${group.step ?? "unknown"}, ${right} of ${group.rollouts.length} solved. ${group.excerpt}`;
  return el("div",
    { id: `row-${place}`, style: `transform: translateY(${place * height}px)`, role: "option", class: "row", "aria-selected": String(place === chosen), "aria-setsize": found.length, "aria-posinset": place + 1, "aria-label": label, onclick: () => { choose(place); open(); } },
    el("span", { class: "task" }, plain(group.task)),
    el("span", { class: "when" }, group.step == null ? group.phase : `${group.phase} ${group.step}`),
    el("span", { class: "squares" }, bestFirst(group.rollouts).slice(0, 16).map(square)),
    el("span", { class: "right-of" }, `${right}/${group.rollouts.length}`),
    el("span", { class: "excerpt" }, group.prompt ? group.excerpt : whyNoText(group)));
}

const square = (rollout) => el("i", { class: troubleOf(rollout) && "trouble", style: `--score: ${rollout.base_score ?? 0}` });

/** Select a position in the list and scroll to it. */
function choose(place) {
  if (!found.length) return;
  chosen = Math.max(0, Math.min(found.length - 1, place));
  const list = byId("list");
  const height = rowHeight();
  list.scrollTop = Math.max((chosen + 1) * height - list.clientHeight, Math.min(list.scrollTop, chosen * height));
  drawRows();
}

/** Show the selected group in the dialog, from its start or from a marked rollout; the address then leads to it. */
function open(marked) {
  if (!found.length) return;
  const group = groups[found[chosen]];
  byId("group-title").textContent = `${plain(group.task)}${group.step == null ? "" : `, step ${group.step}`}`;
  const body = byId("group-body");
  body.replaceChildren(...groupNodes(group, marked));
  body.scrollTop = 0;
  highlight(body, term());
  byId("previous").disabled = chosen === 0;
  byId("next").disabled = chosen === found.length - 1;
  if (!byId("group").open) byId("group").showModal();
  body.focus();
  body.querySelector(".marked")?.scrollIntoView();
  history.replaceState(null, "", `#${encodeURI(group.group_id)}`);
}

/** Open a group by its index in the report, at a marked rollout; resets the filters if they exclude it. */
function openGroup(number, marked) {
  if (!found.includes(number)) reset();
  choose(found.indexOf(number));
  open(marked);
}

/** Open the group whose id is in the address, as it is or encoded. */
function openLinked() {
  const raw = location.hash.slice(1);
  let id = raw;
  try { id = decodeURIComponent(raw); } catch { /* not encoded */ }
  const place = groups.findIndex(({ group_id }) => group_id === id || group_id === raw);
  if (place >= 0) openGroup(place);
  else if (raw && !byId(id)) byId("count").textContent = `This report does not show the group ${plain(id)}`;
}

/** Clear all filters. */
function reset() {
  byId("filters").reset();
  filter();
}

/** Show the groups of one task and focus the list. */
function showTask(task) {
  byId("filters").reset();
  menu("Task").value = task;
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
    Home: () => choose(0), End: () => choose(found.length - 1), Enter: () => open(), " ": () => open(),
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
  byId("group").addEventListener("close", () => history.replaceState(null, "", location.href.split("#")[0]));
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
    byId("count").textContent = `The groups cannot be unpacked (${error.message}): use a browser of 2024 or later.`;
    throw error;
  }
  cutBeginnings();
  setUpFilters();
  filter();
}
