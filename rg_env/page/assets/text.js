// Recorded text on the page. It is only inserted as text nodes; model output is never parsed as HTML.

// Characters that reorder, hide or break text: controls, bidi overrides, zero-width and tag characters, lone surrogates.
// Joiners (U+200C, U+200D) are kept, because scripts and emoji need them.
const UNSEEN =
  /[\u0000-\u0008\u000b\u000c\u000e-\u001f\u007f-\u009f\u00ad\u061c\u180e\u200b\u200e\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb\u{e0000}-\u{e007f}]|\p{Cs}/gu;
const codeOf = (character) => "U+" + character.codePointAt(0).toString(16).toUpperCase().padStart(4, "0");

/** An element with attributes (`class`, `data-…`, `onclick`, …) and children: nodes, strings, or nothing. */
function el(tag, attributes = {}, ...children) {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (value == null || value === false) continue;
    if (typeof value === "function") made.addEventListener(name.slice(2), value);
    else made.setAttribute(name, value === true ? "" : value);
  }
  made.append(...children.flat().filter((child) => child != null));
  return made;
}

/** One line, with invisible characters shown by their code. */
const plain = (text) => String(text).replace(UNSEEN, (character) => `⟨${codeOf(character)}⟩`);

/** Nodes for a text, with invisible characters marked. */
function reveal(text) {
  const nodes = [];
  let from = 0;
  for (const match of text.matchAll(UNSEEN)) {
    nodes.push(text.slice(from, match.index), el("span", { class: "unseen" }, codeOf(match[0])));
    from = match.index + match[0].length;
  }
  nodes.push(text.slice(from));
  return nodes.filter((node) => node !== "");
}

/** A text of the report, which is a string or [beginning, characters omitted, end], for search and excerpts. */
const carried = (text) => (Array.isArray(text) ? `${text[0]} … ${text[2]}` : text);

/** Nodes for a text whose middle may be omitted. */
function shown(text, nodesOf = reveal) {
  if (!Array.isArray(text)) return nodesOf(text);
  const gap = el("span", { class: "gap" }, `… ${text[1].toLocaleString("en")} characters omitted …`);
  return [...nodesOf(text[0]), gap, ...nodesOf(text[2])];
}

/** A response with colored think and answer blocks. Violations are not decided here; they are recorded. */
function colored(text) {
  const pieces = text.split(/(<\/?(?:think|answer)>)/);
  const firstTag = pieces[1];
  let inside = firstTag === "</think>" ? "think" : ""; // the prompt had opened the block
  return pieces.flatMap((piece, number) => {
    if (number % 2 === 0) return piece === "" ? [] : [el("span", { class: inside || "prose" }, reveal(piece))];
    const opens = !piece.startsWith("</");
    const kind = piece.replace(/[</>]/g, "");
    if (opens) inside = kind;
    const tag = el("span", { class: `tag ${kind}` }, piece);
    if (!opens) inside = "";
    return [tag];
  });
}

const number = (value, digits = 3) => (value == null ? "–" : value.toFixed(digits));
/** A rate as in the terminal, `57%`; with a digit more where it would round to 0% or 100% and is neither. */
const percent = (value) => {
  if (value == null) return "–";
  const isNearEnd = (value > 0 && value < 0.01) || (value > 0.99 && value < 1);
  return `${(value * 100).toFixed(isNearEnd ? 1 : 0)}%`;
};
/** The confidence interval of a statistic; empty if it has none. */
const interval = (row, key, show) => (row[`${key}_low`] == null ? "" : `[${show(row[`${key}_low`])}, ${show(row[`${key}_high`])}]`);
const count = (value) => (value == null ? "–" : value.toLocaleString("en"));
const isTraining = (phase) => phase === "train";
const words = (name) => plain(name).replaceAll("_", " ");

/** Rows from a table by columns. */
function rowsOf(columns) {
  const names = Object.keys(columns);
  return (columns[names[0]] ?? []).map((_, row) => Object.fromEntries(names.map((name) => [name, columns[name][row]])));
}

/** How many steps a point of a chart is, where it is several; "" where each step has its own. */
const pointText = (rows) => {
  const widest = d3.max(rows, (row) => row.last_step - row.step + 1) ?? 1;
  return widest > 1 ? ` Each point: ${widest} steps.` : "";
};
const stepText = (row) => (row.step === row.last_step ? `step ${row.step}` : `steps ${row.step}–${row.last_step}`);
