// Copy what is selected, or the page: as a Python list, text, JSON, a command or a link.

import { byId, counted, element } from "./dom.js";
import { selectedTokens } from "./tokens.js";

const idsOf = (tokens) => tokens.flatMap((one) => one.piece.ids);

// The true text: from the bytes, not from what is shown. Special tokens are no text.
export function textOf(tokens) {
  const hex = tokens.filter((one) => one.piece.kind === "text").map((one) => one.piece.bytes.join("")).join("");
  const bytes = Uint8Array.from(hex.match(/../g) ?? [], (pair) => parseInt(pair, 16));
  return new TextDecoder("utf-8", { ignoreBOM: true }).decode(bytes);
}

const kinds = (place, link) => [
  ["Python list", (tokens) => `[${idsOf(tokens).join(", ")}]`],
  ["text", textOf],
  ["JSON", (tokens) => JSON.stringify({
    split: place.split, document: place.document, token_offset: tokens[0]?.at ?? place.start,
    ids: idsOf(tokens), text: textOf(tokens) })],
  ["command", () => place.command],
  ["link", () => link],
];

export function openCopying(place, link) {
  const { isSelection, tokens } = selectedTokens();
  byId("copy-what").textContent = `${counted(idsOf(tokens).length, "token")}: `
    + (isSelection ? "the selection" : "this whole page (select tokens to copy fewer)");
  byId("copied").textContent = "";
  byId("copy-kinds").replaceChildren(...kinds(place, link).map(([name, made], index) => {
    const button = element("button", { type: "button", "aria-keyshortcuts": index + 1 },
      element("kbd", {}, String(index + 1)), ` ${name}`);
    button.addEventListener("click", async () => {
      const text = made(tokens);
      try {
        await navigator.clipboard.writeText(text);
        byId("copied").textContent = `${name} copied`;
      } catch {
        byId("copied").textContent = "the browser did not allow copying";
      }
    });
    return button;
  }));
  byId("copy-dialog").showModal();
}

export function listenToCopying() {
  byId("copy-dialog").addEventListener("keydown", (event) => {
    byId("copy-kinds").children[Number(event.key) - 1]?.click();
  });
}
