// The same text in the tokens of another tokenizer, aligned by byte: what a token covers lights up.

import { ask, byId, counted, element } from "./dom.js";
import { shownPieces, span } from "./tokens.js";

let aligned = []; // {span, from, to}: bytes of the page's text
let asked = null;

export async function showCompared(place, dataset) {
  byId("compared").hidden = byId("compared-title").hidden = false;
  byId("boxes").classList.add("paired");
  byId("compared-tokens").replaceChildren();
  [aligned, asked] = [[], place];
  const { start, stop } = place.page;
  try {
    const found = await ask("compared", { split: place.split, start, stop });
    if (asked === place) show(found, dataset);
  } catch (error) {
    if (asked === place) byId("compared-title").textContent = error.message;
  }
}

function show({ pieces, skipped }, dataset) {
  const own = withBytes(shownPieces());
  const other = withBytes(pieces.map((piece, index) => ({ piece, span: span(piece, index) })), skipped);
  const borders = new Set(own.map((one) => `${one.from} ${one.to}`));
  for (const one of other) {
    one.span.removeAttribute("tabindex");
    if (!borders.has(`${one.from} ${one.to}`)) one.span.classList.add("differs");
  }
  aligned = [own, other];
  byId("compared-tokens").replaceChildren(...other.map((one) => one.span));
  byId("compared-title").replaceChildren(
    element("span", {}, `${dataset.tokenizer}: ${ratio(own)}`),
    element("span", {}, `${dataset.other}: ${ratio(other)}; underlined where it differs`));
}

function withBytes(ones, first = 0) {
  let to = first;
  return ones.filter((one) => one.piece.kind === "text").map((one) => {
    const from = to;
    to += one.piece.bytes.join("").length / 2;
    return { ...one, from, to };
  });
}

function ratio(ones) {
  const tokens = ones.reduce((sum, one) => sum + one.piece.ids.length, 0);
  const bytes = (ones.at(-1)?.to ?? 0) - (ones[0]?.from ?? 0);
  return `${counted(tokens, "token")}, ${(bytes / Math.max(1, tokens)).toFixed(2)} bytes per token`;
}

function light(target) {
  for (const one of aligned.flat()) one.span.classList.remove("over");
  for (const [here, there] of [[0, 1], [1, 0]]) {
    const found = aligned[here]?.find((one) => one.span === target);
    for (const one of found ? aligned[there] : []) {
      if (one.from < found.to && one.to > found.from) one.span.classList.add("over");
    }
  }
}

export function listenToComparing() {
  byId("tokens").addEventListener("described", (event) => light(event.detail));
  byId("compared-tokens").addEventListener("mouseover", (event) =>
    light(event.target.closest("[data-index]")));
}
