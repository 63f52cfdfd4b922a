// Where the groups come from: a report has them inside, a live page asks the server it came from. Either way `total` groups match the
// view, `rows` has those that are known by their position, and `rowAt` gets any.

const byId = (id) => document.getElementById(id);
const isLive = byId("summary").textContent === "null";
const WINDOW = 60; // rows that are asked for at a time
const groups = []; // all groups of a report, in the order of the dump
const rows = new Map();
let total = 0; // groups that match
let unsearched = 0; // groups of a live page that may still match
let known = 0; // groups that there are
let turn = 0; // one more for each view, so that late answers to an earlier one are dropped
let asked = { where: "", search: "" };

/** Ask the server; the runs are those in the page's address. */
async function ask(path, values = {}) {
  const query = new URLSearchParams(location.search);
  for (const [name, value] of Object.entries(values)) query.set(name, value);
  const response = await fetch(`${path}?${query}`);
  if (!response.ok) throw new Error(`the server answers ${response.status}`);
  return response.json();
}

/** Unpack the blocks of groups one by one, so that the page stays responsive. */
async function unpackGroups() {
  for (const block of document.querySelectorAll("script.block")) {
    const bytes = Uint8Array.from(atob(block.textContent), (character) => character.charCodeAt(0));
    const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"));
    for (const group of JSON.parse(await new Response(stream).text())) groups.push(prepare(group));
    block.remove();
    await new Promise((resume) => setTimeout(resume));
  }
  known = groups.length;
}

/** Precompute what filters and rows need. */
function prepare(group) {
  const questions = (group.prompt ?? []).filter((message) => message.role !== "system").map((message) => carried(message.content));
  const responses = group.rollouts.map((rollout) => carried(rollout.text ?? ""));
  const solvedAt = group.solved_at;
  for (const rollout of group.rollouts) rollout.right = rollout.base_score != null && rollout.base_score >= solvedAt;
  group.trouble = new Set(group.rollouts.map(troubleOf).filter(Boolean));
  group.has_text = group.prompt != null || group.asked != null;
  group.asked = carried(group.asked ?? questions.at(-1) ?? "").replace(/\s+/g, " ");
  group.excerpt = plain(group.asked.slice(0, 300));
  if (!isLive) group.haystack = [group.item, group.group_id, ...questions, carried(group.expected ?? ""), ...responses].join("\n").toLowerCase();
  return group;
}

const LONGEST_BEGINNING = 30; // characters that the questions of a task may have in common before they are cut

/** Begin the excerpts of each task where its questions begin to differ. */
function cutBeginnings(groups) {
  for (const ofTask of d3.group(groups.filter(({ asked }) => asked), ({ task }) => task).values()) {
    const [first, ...others] = [...new Set(ofTask.map(({ asked }) => asked))];
    let length = others.length ? Math.min(first.length, 1_000) : 0;
    for (const other of others) while (!other.startsWith(first.slice(0, length))) length -= 1;
    const start = first.lastIndexOf(" ", length - 1) + 1; // whole words
    if (start <= LONGEST_BEGINNING) continue;
    for (const group of ofTask) group.excerpt = plain(`… ${group.asked.slice(start, start + 300)}`);
  }
}

/** Find the groups that match a view; those of a live page come one window after the other. Returns what is wrong with it. */
async function find(view) {
  turn += 1;
  rows.clear();
  if (isLive) {
    total = 0;
    asked = { where: conditionOf(view), search: view.search };
    return load(0);
  }
  const active = Object.entries(FILTERS).filter(([name]) => view[name] !== "").map(([name, filter]) => [filter, view[name]]);
  const ofGroups = active.filter(([filter]) => filter.ofGroup);
  const ofRollouts = active.filter(([filter]) => filter.ofRollout);
  const search = view.search.trim().toLowerCase();
  const found = groups.filter((group) =>
    ofGroups.every(([filter, value]) => filter.ofGroup(group, value)) &&
    (!ofRollouts.length || group.rollouts.some((rollout) => ofRollouts.every(([filter, value]) => filter.ofRollout(rollout, value)))) &&
    group.haystack.includes(search));
  total = found.length;
  found.forEach((group, place) => rows.set(place, group));
  return view.where && "A report cannot test a condition in SQL: open the run with rg-env dumps open.";
}

const loading = new Map();

/** Get the window of rows that has a position, once at a time. */
function load(place) {
  const first = Math.floor(place / WINDOW) * WINDOW;
  const key = `${turn} ${first}`;
  if (!loading.has(key)) loading.set(key, loadWindow(first, turn).finally(() => loading.delete(key)));
  return loading.get(key);
}

async function loadWindow(first, ofTurn) {
  const answer = await ask("rows", { ...asked, first, count: WINDOW });
  if (ofTurn !== turn) return "";
  if (answer.error) return answer.error;
  [total, known] = [answer.total, answer.of];
  unsearched = answer.left;
  answer.rows.map(prepare).forEach((group, place) => rows.has(first + place) || rows.set(first + place, group));
  cutBeginnings([...rows.values()]);
  drawRows();
  if (unsearched) setTimeout(() => ofTurn === turn && load(first), 50);
  return "";
}

/** The group at a position; undefined if there is none. */
async function rowAt(place) {
  if (isLive && place < total && !rows.has(place)) await load(place);
  return rows.get(place);
}

/** A group with its texts. */
async function wholeGroup({ run_id, group_id }) {
  if (!isLive) return groups.find((group) => group.group_id === group_id && (run_id == null || group.run_id === run_id));
  const group = await ask("group", { run_id, group_id });
  return group && prepare(group);
}
