// One page of tokens: a span for each, or for those that share a character; one tab stop in all.

import { byId, counted, element, number, runs } from "./dom.js";

const NUM_SHADES = 4;
const box = () => byId("tokens");
let shown = []; // {piece, span, at}: `at` is the offset of its first token in the split
let current = 0;
let anchor = null;
let place = null;

export function showTokens(newPlace) {
  place = newPlace;
  let at = place.page.start;
  shown = place.page.pieces.map((piece, index) => {
    const one = { piece, at, span: span(piece, index) };
    at += piece.ids.length;
    return one;
  });
  box().replaceChildren(...shown.map((one) => one.span));
  if (!shown.length) box().append(element("span", { class: "soft" }, "no tokens"));
  current = 0;
  anchor = null;
  if (shown.length) shown[0].span.tabIndex = 0;
  byId("detail").textContent = "";
}

export const shownPieces = () => shown.map((one) => ({ piece: one.piece, span: one.span }));

export function span(piece, index) {
  const isText = piece.kind === "text";
  const kind = isText ? `t${index % NUM_SHADES}` : piece.kind;
  return element(isText ? "b" : "u",
    { class: kind, title: piece.ids.join(" "), tabindex: "-1", "data-index": index }, ...runs(piece.runs));
}

export function markTokens(token, count, hasFocus) {
  const marked = shown.filter((one) => one.at < token + count && one.at + one.piece.ids.length > token);
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
  for (let index = current + step; shown[index]; index += step) {
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
