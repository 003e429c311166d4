// One page of tokens: a span for each, or for those that share a character; one tab stop in all.

import { byId, counted, element, number, runs } from "./dom.js";

const NUM_SHADES = 4;
const FIRST_PIECES = 400; // about what a window shows
const box = () => byId("tokens");
let shown = []; // {piece, at, span}: `at` is the offset of its first token in the split
let numShown = 0; // of those: the others get their spans after the first frame
let current = 0;
let anchor = null;
let place = null;

export function showTokens(newPlace) {
  place = newPlace;
  let at = place.page.start;
  shown = place.page.pieces.map((piece) => {
    const one = { piece, at, span: null };
    at += piece.ids.length;
    return one;
  });
  [numShown, current, anchor] = [0, 0, null];
  box().replaceChildren(...spansUpTo(FIRST_PIECES));
  if (!shown.length) box().append(element("span", { class: "soft" }, "no tokens"));
  if (shown.length) shown[0].span.tabIndex = 0;
  byId("detail").textContent = "";
}

function spansUpTo(stop) {
  const some = shown.slice(numShown, stop);
  some.forEach((one, index) => { one.span = span(one.piece, numShown + index); });
  numShown += some.length;
  return some.map((one) => one.span);
}

function showUpTo(stop) {
  if (numShown < Math.min(stop, shown.length)) box().append(...spansUpTo(stop));
}

// The rest of a long page, once a window of it has been painted.
export async function showRest() {
  if (numShown === shown.length) return;
  const own = shown;
  await new Promise((done) => { requestAnimationFrame(() => setTimeout(done)); });
  if (own === shown) showUpTo(shown.length);
}

export function shownPieces() {
  showUpTo(shown.length);
  return shown;
}

export function span(piece, index) {
  const isText = piece.kind === "text";
  const kind = isText ? `t${index % NUM_SHADES}` : piece.kind;
  return element(isText ? "b" : "u",
    { class: kind, title: piece.ids.join(" "), tabindex: "-1", "data-index": index }, ...runs(piece.runs));
}

export function markTokens(token, count, hasFocus) {
  const first = shown.findIndex((one) => one.at + one.piece.ids.length > token);
  showUpTo(first + count + FIRST_PIECES);
  const marked = shown.slice(0, numShown).filter((one) => one.at < token + count && one.at + one.piece.ids.length > token);
  for (const one of marked) one.span.classList.add("marked");
  if (!marked.length) return;
  tabStop(shown.indexOf(marked[0]));
  marked[0].span.scrollIntoView({ block: "nearest", behavior: "instant" });
  if (hasFocus) marked[0].span.focus({ preventScroll: true });
  else describe(marked[0]);
}

// What is selected, by Shift and arrows or with the mouse; else the page.
export function selectedTokens() {
  const selection = getSelection();
  showUpTo(shown.length);
  const some = selection.isCollapsed ? []
    : shown.filter((one) => selection.containsNode(one.span, true));
  return { isSelection: some.length > 0, tokens: some.length ? some : shown };
}

function describe(one) {
  box().dispatchEvent(new CustomEvent("described", { detail: one.span }));
  const { piece, at } = one;
  const which = at - place.start;
  const of = piece.ids.length > 1 ? `tokens ${number(which)} to ${number(which + piece.ids.length - 1)}`
    : `token ${number(which)}`;
  const bytes = piece.bytes.map((hex) => hex.replace(/..(?=.)/g, "$& ")).filter((hex) => hex);
  const parts = [
    `${of} of ${number(place.stop - place.start)}`,
    `@${number(at)}`,
    `id ${piece.ids.join(" ")}`,
    bytes.length ? `bytes ${bytes.join(" | ")}` : null,
    piece.kind === "text" ? `“${piece.runs.join("").replaceAll("\n", "↵")}”` : `${piece.kind} ${piece.runs.join("")}`,
  ];
  byId("detail").textContent = parts.filter((part) => part).join("  ·  ");
}

function tabStop(index) {
  shown[current].span.tabIndex = -1;
  current = index;
  shown[current].span.tabIndex = 0;
}

function indexOf(event) {
  const found = event.target.closest?.("[data-index]");
  return found ? Number(found.dataset.index) : null;
}

export function focusTokens() {
  if (shown.length) shown[current].span.focus();
}

function move(index, isSelecting) {
  showUpTo(shown.length);
  const to = Math.max(0, Math.min(shown.length - 1, index));
  if (isSelecting) anchor ??= current;
  else anchor = null;
  tabStop(to);
  shown[to].span.focus();
  if (anchor === null) return;
  const [from, until] = [Math.min(anchor, to), Math.max(anchor, to)];
  const last = shown[until].span;
  getSelection().setBaseAndExtent(shown[from].span, 0, last, last.childNodes.length);
}

// The token above or below: the nearest one of the next line.
function vertical(step) {
  const from = shown[current].span.getBoundingClientRect();
  let line = null;
  let best = null;
  for (let index = current + step; shown[index]?.span; index += step) {
    const box = shown[index].span.getBoundingClientRect();
    if (Math.abs(box.top - from.top) < 4) continue;
    line ??= box.top;
    if (Math.abs(box.top - line) > 4) break;
    const far = Math.abs(box.left - from.left);
    if (best === null || far < best.far) best = { index, far };
  }
  return best === null ? current + step : best.index;
}

const MOVES = {
  ArrowRight: () => current + 1, ArrowLeft: () => current - 1,
  ArrowDown: () => vertical(1), ArrowUp: () => vertical(-1),
  Home: () => 0, End: () => shown.length - 1,
};

export function listenToTokens() {
  box().addEventListener("mouseover", (event) => {
    const index = indexOf(event);
    if (index !== null) describe(shown[index]);
  });
  box().addEventListener("focusin", (event) => {
    const index = indexOf(event);
    if (index === null) return;
    tabStop(index);
    describe(shown[index]);
  });
  box().addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.altKey || event.metaKey) return;
    if (event.key === "Escape") byId("detail").textContent = "";
    if (!MOVES[event.key]) return;
    event.preventDefault();
    move(MOVES[event.key](), event.shiftKey);
  });
}

export const factsOf = (one) => [
  counted(one.stop - one.start, "token"),
  one.num_bytes === null ? null : counted(one.num_bytes, "byte"),
  `tokens @${number(one.start)} to @${number(Math.max(one.start, one.stop - 1))} of ${one.split}`,
  `${one.shard} token ${number(one.shard_start)}`,
].filter((part) => part).join(" · ");
