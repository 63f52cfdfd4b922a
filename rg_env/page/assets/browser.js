// The browser of groups: filters, which write a condition, a list that only renders the visible rows, the dialog, and the address.

let chosen = 0; // position in the list
let opened = null; // the group in the dialog, and the number of its marked rollout
const SPARE_ROWS = 8; // rendered beyond either edge
const OUTCOMES = ["all_correct", "mixed", "all_failed"];

const quote = (text) => `'${String(text).replaceAll("'", "''")}'`;
const isEqual = (column) => (value) => `${column} = ${quote(value)}`;
/** The threshold of the runs, or that of each group: the column has it for other environments than ours. */
const solvedAt = () => {
  const all = new Set(report.sections.flatMap(({ headline }) => headline.solved_at));
  if (all.size === 1) return [...all][0];
  const ours = new Map(report.sections.filter(({ environment }) => environment === "rg_dump").map(({ run_id, headline }) => [run_id, headline.solved_at[0]]));
  const most = [...ours.values()][0] ?? 0.99;
  const others = [...ours].filter(([, at]) => at !== most).map(([run_id, at]) => `WHEN run_id = ${quote(run_id)} THEN ${at}`);
  return `coalesce(solved_at, ${others.length ? `CASE ${others.join(" ")} ELSE ${most} END` : most})`;
};
const RESULTS = {
  solved: () => `base_score >= ${solvedAt()}`,
  partial: () => `base_score > 0 AND base_score < ${solvedAt()}`,
  unsolved: () => "base_score <= 0",
};
const troubles = () => [...new Set(report.sections.flatMap(({ counts }) =>
  rowsOf(counts).filter(({ value }) => value !== "ok").map(({ kind, value }) => (kind === "status" ? `scorer: ${value}` : value))))].sort();
const distinct = (name) => [...new Set(report.sections.map((section) => section[name]))].sort();

// Of each filter: how it is written in SQL, and its test of a group or of a rollout. As with --where, a group is listed if one of its
// rollouts passes all. Of a menu also its label, the values, and what a value is called.
const FILTERS = {
  task: { label: "Task", sql: isEqual("task"), ofGroup: (group, value) => group.task === value, name: plain, values: () => [...new Set(report.sections.flatMap(({ tasks }) => tasks.task))].sort() },
  outcome: { label: "Outcome", sql: isEqual("outcome"), ofGroup: (group, value) => group.outcome === value, name: words, values: () => OUTCOMES },
  result: { label: "A response", sql: (value) => RESULTS[value](), ofRollout: (rollout, value) => resultOf(rollout) === value, name: words, values: () => Object.keys(RESULTS) },
  violation: {
    label: "Its format",
    sql: (value) => (value === "none" ? "violation = '' AND status = 'ok'" : value.startsWith("scorer: ") ? `status = ${quote(value.slice(8))}` : `violation = ${quote(value)}`),
    ofRollout: (rollout, value) => (value === "none" ? !troubleOf(rollout) : value.startsWith("scorer: ") ? rollout.status === value.slice(8) : rollout.violation === value), name: (value) => (value === "none" ? "right" : words(value)), values: () => ["none", ...troubles()],
  },
  cut: { label: "Its length", sql: (value) => (value === "hit" ? "truncated" : "NOT truncated"), ofRollout: (rollout, value) => Boolean(rollout.truncated) === (value === "hit"), name: (value) => (value === "hit" ? "hit the limit" : "within the limit"), values: () => ["hit", "within"] },
  phase: { label: "Phase", sql: isEqual("phase"), ofGroup: (group, value) => group.phase === value, name: words, values: () => distinct("phase") },
  environment: { label: "Environment", sql: isEqual("environment"), ofGroup: (group, value) => group.environment === value, name: plain, values: () => distinct("environment") },
  run: { label: "Run", sql: isEqual("run_id"), ofGroup: (group, value) => group.run_id === value, name: (id) => runName(id), values: () => distinct("run_id") },
  from: { sql: (value) => `step >= ${Number(value)}`, ofGroup: ({ step }, value) => step != null && step >= Number(value) },
  to: { sql: (value) => `step <= ${Number(value)}`, ofGroup: ({ step }, value) => step != null && step <= Number(value) },
  least: { sql: (value) => `response_tokens >= ${Number(value)}`, ofRollout: ({ response_tokens }, value) => response_tokens != null && response_tokens >= Number(value) },
  most: { sql: (value) => `response_tokens <= ${Number(value)}`, ofRollout: ({ response_tokens }, value) => response_tokens != null && response_tokens <= Number(value) },
};
const FIELDS = [...Object.keys(FILTERS), "where", "search"];

/** Make the menus, with the values of the report; what is chosen stays. */
function setMenus() {
  const view = readFields();
  byId("menus").replaceChildren(...Object.entries(FILTERS).filter(([, filter]) => filter.values).map(([name, { label, values, name: nameOf }]) => {
    const options = values().map((value) => el("option", { value }, nameOf(value)));
    return el("label", { hidden: options.length < 2 }, label, el("select", { id: `f-${name}` }, el("option", { value: "" }, "all"), options));
  }));
  fillFields(view);
  const steps = report.sections.flatMap((section) => [...section.steps.step, ...section.steps.last_step]);
  document.querySelector("#filters .step").hidden = !steps.length;
  byId("f-from").placeholder = d3.min(steps) ?? "";
  byId("f-to").placeholder = d3.max(steps) ?? "";
  byId("where-label").hidden = !isLive;
  if (isLive) byId("f-search").placeholder = "in messages";
}

const readFields = () => Object.fromEntries(FIELDS.map((name) => [name, byId(`f-${name}`)?.value ?? ""]));
function fillFields(view) {
  for (const name of FIELDS) {
    const field = byId(`f-${name}`);
    if (!field) continue;
    field.value = view[name] ?? "";
    if (view[name] && field.value !== String(view[name]) && field.tagName === "SELECT") { // a value that no group has yet
      field.append(el("option", { value: view[name] }, plain(view[name])));
      field.value = view[name];
    }
  }
}

/** The condition of a view as --where takes it. */
function conditionOf(view) {
  const parts = Object.entries(FILTERS).filter(([name]) => view[name] !== "").map(([name, { sql }]) => sql(view[name]));
  const typed = view.where.trim();
  if (typed) parts.push(parts.length && /\bor\b/i.test(typed) ? `(${typed})` : typed);
  return parts.join(" AND ");
}

/** A word of a shell's command. */
const shellWord = (text) => (/["$`\\!]/.test(text) ? `'${text.replaceAll("'", `'\\''`)}'` : `"${text}"`);

/** Find the groups that match the filters, and go to the first. */
async function filter() {
  const view = readFields();
  chosen = 0;
  byId("list").scrollTop = 0;
  const options = [["--where", conditionOf(view)], ["--search", view.search]].filter(([, value]) => value);
  byId("condition").hidden = !options.length;
  byId("condition").querySelector("code").textContent = options.map(([name, value]) => `${name} ${shellWord(plain(value))}`).join(" ");
  writeAddress();
  const problem = await find(view).catch((error) => error.message);
  drawRows();
  if (problem) byId("count").textContent = plain(problem);
}

const rowHeight = () => parseFloat(getComputedStyle(byId("list")).getPropertyValue("--row"));

/** Render only the visible rows. */
function drawRows() {
  const list = byId("list");
  const height = rowHeight();
  const first = Math.max(0, Math.floor(list.scrollTop / height) - SPARE_ROWS);
  const last = Math.min(total, Math.ceil((list.scrollTop + list.clientHeight) / height) + SPARE_ROWS);
  const holder = byId("rows");
  const places = d3.range(first, last);
  holder.style.height = `${total * height}px`;
  replaceChanged(holder, places.filter((place) => rows.has(place)).map((place) => rowNode(place, height)));
  if (isLive) for (const place of places) if (!rows.has(place)) load(place).catch(() => {});
  const phases = isLive ? "" : [...new Set([...rows.values()].map(({ phase }) => phase))].map(plain).join(" and ");
  byId("count").textContent = `${count(total)} of ${count(known)} groups${phases && ` (${phases})`}${unsearched ? `, ${count(unsearched)} still to be searched` : ""}`;
  if (!total) holder.append(el("p", { class: "notice" }, "No group matches these filters."));
  const active = byId(`row-${chosen}`);
  if (active) list.setAttribute("aria-activedescendant", active.id);
  else list.removeAttribute("aria-activedescendant");
}

/** Make these the rows of the list. One that is there and says the same stays: a click on it may have begun. */
function replaceChanged(holder, nodes) {
  const wanted = nodes.map((node) => {
    const shown = byId(node.id);
    for (const name of ["aria-selected", "aria-setsize"]) shown?.setAttribute(name, node.getAttribute(name));
    return shown?.isEqualNode(node) ? shown : node;
  });
  const kept = new Set(wanted);
  for (const child of [...holder.children]) if (!kept.has(child)) child.remove();
  wanted.forEach((node, place) => {
    if (holder.children[place] !== node) holder.insertBefore(node, holder.children[place] ?? null);
  });
}

/** The row of the group at a position. A click opens this group, also while another view is loading. */
function rowNode(place, height) {
  const group = rows.get(place);
  const right = group.rollouts.filter((rollout) => rollout.right).length;
  const label = `${plain(group.task)}, ${group.phase}, step ${group.step ?? "unknown"}, ${right} of ${group.rollouts.length} solved. ${group.excerpt}`;
  return el("div",
    { id: `row-${place}`, style: `transform: translateY(${place * height}px)`, role: "option", class: "row", "aria-selected": String(place === chosen), "aria-setsize": total, "aria-posinset": place + 1, "aria-label": label, "data-group": `${group.run_id} ${group.group_id}`, onclick: () => { choose(place); openGroup(group); } },
    el("span", { class: "task" }, plain(group.task)),
    el("span", { class: "when" }, group.step == null ? group.phase : `${group.phase} ${group.step}`),
    el("span", { class: "squares" }, bestFirst(group.rollouts).slice(0, 16).map(square)),
    el("span", { class: "right-of" }, `${right}/${group.rollouts.length}`),
    el("span", { class: "excerpt" }, group.has_text ? group.excerpt : whyNoText(group)));
}

const square = (rollout) => el("i", { class: troubleOf(rollout) && "trouble", style: `--score: ${rollout.base_score ?? 0}` });

/** Select a position in the list and scroll to it. */
function choose(place) {
  if (!total) return;
  chosen = Math.max(0, Math.min(total - 1, place));
  const list = byId("list");
  const height = rowHeight();
  list.scrollTop = Math.max((chosen + 1) * height - list.clientHeight, Math.min(list.scrollTop, chosen * height));
  drawRows();
}

/** Show the selected group in the dialog, from its start or from a marked rollout. */
async function open(marked) {
  const row = await rowAt(chosen);
  if (row) await openGroup(row, marked);
}

/** Show a group in the dialog; the address then leads to it. Returns whether there is one. */
async function openGroup(name, marked = null) {
  const group = await wholeGroup(name);
  if (!group) return false;
  const placeOf = () => [...rows].find(([, row]) => row.group_id === group.group_id && row.run_id === group.run_id)?.[0] ?? -1;
  if (placeOf() < 0 && !isLive) await reset(); // the filters exclude it
  const place = placeOf();
  if (place >= 0) choose(place);
  opened = { run_id: group.run_id, group_id: group.group_id, rollout: marked };
  marked ??= firstMatch(group)?.repetition;
  byId("group-title").textContent = `${plain(group.task)}${group.step == null ? "" : `, step ${group.step}`}`;
  const body = byId("group-body");
  body.replaceChildren(...groupNodes(group, marked));
  body.scrollTop = 0;
  byId("previous").disabled = place <= 0;
  byId("next").disabled = place < 0 || place >= total - 1;
  if (!byId("group").open) byId("group").showModal();
  body.focus();
  body.querySelector(".marked")?.scrollIntoView();
  highlight(body, byId("f-search").value.trim().toLowerCase());
  markDifferences(body);
  writeAddress();
  return true;
}

/** The best rollout of those for which the filters list a group; undefined if they are about none. */
function firstMatch(group) {
  const view = readFields();
  const tests = Object.entries(FILTERS).filter(([name, filter]) => filter.ofRollout && view[name] !== "");
  const passes = (rollout) => tests.every(([name, filter]) => filter.ofRollout(rollout, view[name]));
  return tests.length ? bestFirst(group.rollouts).find(passes) : undefined;
}

// The address has the whole view: the section, the runs that are hidden, the filters and the group that is open.

function writeAddress() {
  const view = new URLSearchParams();
  for (const [name, value] of Object.entries(readFields())) if (value !== "") view.set(name, value);
  if (byId("section").selectedIndex > 0) view.set("section", byId("section").value);
  for (const run of hidden) view.append("hide", run);
  if (opened) for (const [name, value] of Object.entries({ of: several ? opened.run_id : null, group: opened.group_id, rollout: opened.rollout })) if (value != null) view.set(name, value);
  history.replaceState(null, "", `${location.href.split("#")[0]}${view.size ? `#${view}` : ""}`);
}

/** Show what the address says. */
async function readAddress() {
  const view = new URLSearchParams(location.hash.slice(1));
  fillFields(Object.fromEntries(view));
  const before = [...hidden].join();
  hidden.clear();
  for (const run of view.getAll("hide")) hidden.add(run);
  chooseSection(view.get("section"));
  if ([...hidden].join() !== before) { // what is drawn already has the runs of before
    about();
    redraw();
  }
  const [run_id, group_id] = [view.get("of") ?? (several ? null : report.runs[0]?.run_id), view.get("group")];
  const rollout = view.has("rollout") ? Number(view.get("rollout")) : null;
  await filter();
  if (!group_id) return;
  if (!(await openGroup({ run_id, group_id }, rollout))) byId("count").textContent = `There is no group ${plain(group_id)} here`;
}

/** List the groups of a view, and go there. */
function showGroups(view) {
  fillFields(view);
  filter();
  byId("groups").scrollIntoView();
  byId("list").focus({ preventScroll: true });
}
const showTask = (task) => showGroups({ task });

/** Open the previous (-1) or next (1) group. */
async function move(by) {
  choose(chosen + by);
  await open();
}

/** Go to the next group that passes; after the last one, the first. */
async function jump(passes) {
  for (let far = 1; far < total; far += 1) {
    const place = (chosen + far) % total;
    if (!passes(await rowAt(place))) continue;
    choose(place);
    if (opened) await open();
    return;
  }
}

/** Put the next worse (1) or better (-1) rollout beside the best. */
function turnRollout(by) {
  const others = [...document.querySelectorAll(".others article")];
  const shown = others.findLastIndex((article) => article.getBoundingClientRect().top <= byId("group-body").getBoundingClientRect().top + 8);
  others[Math.max(0, Math.min(others.length - 1, shown + by))]?.scrollIntoView();
}

const copy = (text, button) => navigator.clipboard.writeText(text).then(() => {
  const before = button.textContent;
  button.textContent = "Copied";
  setTimeout(() => (button.textContent = before), 1500);
}, () => {});

const listPage = () => Math.max(1, Math.floor(byId("list").clientHeight / rowHeight()) - 1);
const inDialog = (act) => () => opened && act();
// What each key does, and what the page of keys says of it.
const KEYS = {
  "?": ["this page", () => byId("keys").showModal()],
  "/": ["go to the filters", () => { byId("group").close(); byId(isLive ? "f-where" : "f-search").focus(); }],
  Escape: ["close, or clear the filters", () => opened || byId("keys").open || reset()],
  j: ["next group", () => (opened ? move(1) : choose(chosen + 1))],
  k: ["previous group", () => (opened ? move(-1) : choose(chosen - 1))],
  "]": ["next page of the list", () => choose(chosen + listPage())],
  "[": ["previous page of the list", () => choose(chosen - listPage())],
  f: ["next group with failed rollouts only", () => jump((group) => group.outcome === "all_failed")],
  v: ["next group with a violation", () => jump((group) => group.trouble.size > 0)],
  ".": ["next worse rollout beside the best", inDialog(() => turnRollout(1))],
  ",": ["next better rollout beside the best", inDialog(() => turnRollout(-1))],
  p: ["show or hide the prompt", inDialog(() => (byId("prompt").hidden = !byId("prompt").hidden))],
  z: ["open or close the group", () => (opened ? byId("group").close() : open())],
  y: ["copy the group's id", () => { const row = opened ?? rows.get(chosen); if (row) copy(row.group_id, byId("link")); }],
  r: ["look for new groups now", () => isLive && follow()],
};

/** Clear all filters. */
function reset() {
  fillFields({});
  return filter();
}

const isShortcut = (event) => event.ctrlKey || event.metaKey || event.altKey; // the browser's, not ours

function listen() {
  const list = byId("list");
  const keys = {
    ArrowDown: () => choose(chosen + 1), ArrowUp: () => choose(chosen - 1),
    PageDown: () => choose(chosen + listPage()), PageUp: () => choose(chosen - listPage()),
    Home: () => choose(0), End: () => choose(total - 1), Enter: () => open(), " ": () => open(),
  };
  list.addEventListener("keydown", (event) => {
    const act = isShortcut(event) ? null : keys[event.key];
    if (!act) return;
    event.preventDefault();
    act();
  });
  document.addEventListener("keydown", (event) => {
    const act = isShortcut(event) || event.target.closest?.("input, select") ? null : KEYS[event.key]?.[1];
    if (!act) return;
    if (event.key !== "Escape") event.preventDefault();
    act();
  });
  list.addEventListener("scroll", drawRows, { passive: true });
  const form = byId("filters");
  let waiting = 0;
  form.addEventListener("input", () => {
    clearTimeout(waiting);
    if (isLive) waiting = setTimeout(filter, 250); // for the next key
    else filter();
  });
  byId("clear").addEventListener("click", reset);
  form.addEventListener("submit", (event) => { event.preventDefault(); list.focus(); });
  byId("previous").addEventListener("click", () => move(-1));
  byId("next").addEventListener("click", () => move(1));
  byId("close").addEventListener("click", () => byId("group").close());
  byId("link").addEventListener("click", () => copy(location.href, byId("link")));
  byId("copy").addEventListener("click", () => copy(byId("condition").querySelector("code").textContent, byId("copy")));
  byId("group").addEventListener("close", () => { opened = null; writeAddress(); });
  byId("group").addEventListener("keydown", (event) => {
    const by = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
    if (by && !isShortcut(event)) move(by);
  });
  for (const id of ["group", "keys"]) byId(id).addEventListener("click", (event) => event.target === byId(id) && byId(id).close());
  byId("close-keys").addEventListener("click", () => byId("keys").close());
  byId("key-list").replaceChildren(...pairs("", Object.entries(KEYS).map(([key, [what]]) => [key === "Escape" ? "Esc" : key, what])).children);
  addEventListener("hashchange", readAddress);
}

/** Unpack the groups of a report. Rejects if the browser cannot unpack them. */
async function startBrowser() {
  byId("count").textContent = "Unpacking the groups …";
  try {
    await unpackGroups();
  } catch (error) {
    byId("count").textContent = `The groups cannot be unpacked (${error.message}): use a browser of 2024 or later.`;
    throw error;
  }
  cutBeginnings(groups);
}
