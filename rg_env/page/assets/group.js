// The view of one group: the prompt, then its rollouts from best to worst with all recorded numbers.

const NUMBERS = [
  ["base_score", "score"],
  ["raw_score", "raw"],
  ["tagged_score", "tagged"],
  ["reward", "reward"],
  ["response_tokens", "tokens", (value) => count(value)],
  ["status", "status", (value) => words(value || "–")],
  ["stop_reason", "stopped by", (value) => plain(value || "–")],
  ["truncated", "cut off", (value) => (value == null ? "–" : value ? "yes" : "no")],
];
const MORE_NUMBERS = [
  ["penalty_factor", "penalty ×"],
  ["score", "after the penalty"],
  ["custom_reward", "custom reward"],
  ["published_score", "published score"],
  ["policy_version", "policy version", (value) => plain(value || "–")],
];

/** A number to sort by: one that is unknown stands last, also behind negative ones. */
const sortable = (number) => number ?? -Infinity;
const bestFirst = (rollouts) =>
  [...rollouts].sort((a, b) => sortable(b.base_score) - sortable(a.base_score) || sortable(b.reward) - sortable(a.reward));
/** How a rollout ended, in a word. */
const resultOf = (rollout) => (rollout.base_score == null ? "unscored" : rollout.right ? "solved" : rollout.base_score > 0 ? "partial" : "unsolved");
const troubleOf = (rollout) => rollout.violation || (rollout.status == null || rollout.status === "ok" ? null : `scorer: ${rollout.status}`);

/** Nodes for the whole group: the best rollout stands beside the others. One of them may be marked, by its number. */
function groupNodes(group, marked) {
  const [best, ...others] = bestFirst(group.rollouts).map((rollout) => rolloutNode(rollout, group.baseline, rollout.repetition === marked));
  return [
    facts(group),
    el("div", { id: "prompt" }, group.prompt ? prompt(group) : el("p", { class: "notice" }, whyNoText(group))),
    el("h3", {}, `${group.rollouts.length} rollouts, best to worst`),
    others.length && group.prompt ? el("p", { class: "hint" }, "Underlined: words that the best response does not have there.") : null,
    others.length ? el("div", { class: "pair" }, best, el("div", { class: "others" }, others)) : best,
  ].filter(Boolean);
}

const MOST_PAIRS = 4e6; // of words that are compared

/** Mark the words of each response that the best one does not have in their place. */
function markDifferences(root) {
  if (!globalThis.Highlight) return;
  CSS.highlights.delete("differs");
  const [best, ...others] = [...root.querySelectorAll("pre.response")].map(wordsIn);
  if (others.length) CSS.highlights.set("differs", new Highlight(...others.flatMap((response) => differing(best, response))));
}

/** The words of an element, each with its range. */
function wordsIn(root) {
  const found = [];
  const walker = document.createTreeWalker(root, NodeFilter.SHOW_TEXT);
  for (let node = walker.nextNode(); node; node = walker.nextNode()) {
    for (const match of node.data.matchAll(/\S+/g)) {
      const range = new Range();
      range.setStart(node, match.index);
      range.setEnd(node, match.index + match[0].length);
      found.push({ word: match[0], range });
    }
  }
  return found;
}

/** The ranges of the words in `other` that are in no longest common sequence of words; none where that is too long to find. */
function differing(best, other) {
  let start = 0;
  while (start < best.length && start < other.length && best[start].word === other[start].word) start += 1;
  const a = best.slice(start).map(({ word }) => word);
  const b = other.slice(start).map(({ word }) => word);
  const width = b.length + 1;
  if (a.length * b.length > MOST_PAIRS) return [];
  const longest = new Uint16Array((a.length + 1) * width); // of what comes from a place on
  for (let i = a.length - 1; i >= 0; i -= 1)
    for (let j = b.length - 1; j >= 0; j -= 1)
      longest[i * width + j] = a[i] === b[j] ? longest[(i + 1) * width + j + 1] + 1 : Math.max(longest[(i + 1) * width + j], longest[i * width + j + 1]);
  const ranges = [];
  for (let i = 0, j = 0; j < b.length; ) {
    if (i < a.length && a[i] === b[j]) { i += 1; j += 1; }
    else if (i < a.length && longest[(i + 1) * width + j] >= longest[i * width + j + 1]) i += 1;
    else { ranges.push(other[start + j].range); j += 1; }
  }
  return ranges;
}

const whyNoText = (group) => (group.text_reason ? `Text not kept: ${words(group.text_reason)}.` : "Text not in this report.");

function facts(group) {
  const rows = [
    ["item", group.item], ["group", group.group_id], ["run", group.run_id], ["attempt", group.attempt],
    ["phase", phaseOf(group)], ["step", group.step ?? "–"], ["level", group.level], ["settings", group.task_config && options(carried(group.task_config))],
    ["outcome", words(group.outcome)], ["signal", isTraining(group.phase) ? (group.no_signal ? "none: all rewards are equal" : "yes") : null],
  ];
  return pairs("facts", rows.filter(([, value]) => value != null && value !== "").map(([name, value]) => [name, plain(value)]));
}

/** The options of a task as text, without the marks of JSON; the text itself if it is none. */
function options(text) {
  try {
    const values = JSON.parse(text);
    const isObject = values !== null && typeof values === "object" && !Array.isArray(values);
    return isObject ? Object.entries(values).map(([name, value]) => `${name} ${typeof value === "string" ? value : JSON.stringify(value)}`).join(", ") : text;
  } catch {
    return text;
  }
}

/** A list of names and values. */
const pairs = (kind, rows) => el("dl", { class: kind }, rows.map(([name, value]) => el("div", {}, el("dt", {}, name), el("dd", {}, value))));

function prompt(group) {
  const system = group.prompt.filter((message) => message.role === "system");
  const others = group.prompt.filter((message) => message.role !== "system");
  const message = ({ role, content }) => el("div", {}, el("h4", {}, plain(role)), el("pre", { dir: "auto" }, shown(content)));
  return [
    el("h3", {}, "Prompt"),
    system.length ? el("details", {}, el("summary", {}, "System prompt"), system.map(message)) : null,
    ...others.map(message),
    group.expected ? el("p", { class: "expected" }, "Reference answer: ", el("code", { dir: "auto" }, shown(group.expected))) : null,
  ].filter(Boolean);
}

/** How raw and tagged score became a base score that is neither of them. */
function calibration(rollout, baseline) {
  const best = Math.max(rollout.raw_score ?? 0, rollout.tagged_score ?? 0);
  return rollout.raw_score == null || best === rollout.base_score ? null : el("p", { class: "muted" }, baseline ? `The score counts what is above the baseline of ${number(baseline)}, which a policy without reasoning gets.` : "The score is the raw score: this task rewards the tags themselves.");
}

const numbers = (rollout, names) => pairs("numbers", names.map(([key, label, show = number]) => [label, show(rollout[key])]));

function rolloutNode(rollout, baseline, isMarked) {
  const trouble = troubleOf(rollout);
  const explained = report.violations[rollout.violation] ?? (rollout.detail ? plain(carried(rollout.detail)) : "");
  return el("article", { class: `${resultOf(rollout)}${isMarked ? " marked" : ""}`, "aria-label": `Rollout ${rollout.repetition}` },
    el("header", {},
      el("strong", {}, `Rollout ${rollout.repetition}`), el("span", { class: "badge" }, resultOf(rollout)),
      isMarked ? el("span", { class: "badge" }, "the example") : null,
      trouble ? el("span", { class: "badge trouble" }, words(trouble)) : null,
      trouble && explained ? el("span", { class: "muted" }, explained) : null),
    calibration(rollout, baseline),
    rollout.answer == null || rollout.answer === "" ? null : el("p", { class: "expected" }, "Answer: ", el("code", { dir: "auto" }, shown(rollout.answer))),
    numbers(rollout, rollout.advantage == null ? NUMBERS : [...NUMBERS, ["advantage", "advantage"]]),
    el("details", {}, el("summary", {}, "More numbers"), numbers(rollout, MORE_NUMBERS)),
    rollout.text == null ? null : el("pre", { class: "response", dir: "auto" }, shown(rollout.text, colored)));
}

/** Highlight `term` in `root` if the browser supports it. */
function highlight(root, term) {
  if (!globalThis.Highlight) return;
  CSS.highlights.delete("search");
  if (!term) return;
  const ranges = [];
  const walker = document.createTreeWalker(root, NodeFilter.SHOW_TEXT);
  for (let node = walker.nextNode(); node && ranges.length < 1000; node = walker.nextNode()) {
    const text = node.data.toLowerCase();
    if (text.length !== node.data.length) continue; // a few letters change their length, which would shift positions
    for (let at = text.indexOf(term); at >= 0 && ranges.length < 1000; at = text.indexOf(term, at + term.length)) {
      const range = new Range();
      range.setStart(node, at);
      range.setEnd(node, at + term.length);
      ranges.push(range);
    }
  }
  CSS.highlights.set("search", new Highlight(...ranges));
}
