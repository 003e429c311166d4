// The whole split as a strip: bytes per token along it, and where the page is.

import { byId } from "./dom.js";

const WIDTH = 1000;
const HEIGHT = 28;
const SVG = "http://www.w3.org/2000/svg";

function bar(name, x, width, height) {
  const made = document.createElementNS(SVG, "rect");
  const box = { class: name, x, width, y: HEIGHT - height, height };
  for (const [attribute, value] of Object.entries(box)) made.setAttribute(attribute, value);
  return made;
}

export function showStrip(ratios) {
  const most = Math.max(...ratios, 0.001);
  const width = WIDTH / (ratios.length || 1);
  const bars = ratios.map((ratio, index) =>
    bar("stretch", index * width, Math.max(0.5, width - 1), (ratio / most) * HEIGHT));
  byId("strip").replaceChildren(bar("empty", 0, WIDTH, ratios.length ? 2 : 8), ...bars);
  byId("strip-told").textContent = ratios.length ? "bars: bytes per token along the split" : "";
}

export function showWhere(share) {
  byId("strip").querySelector(".here")?.remove();
  byId("strip").append(bar("here", Math.min(share * WIDTH, WIDTH - 4), 4, HEIGHT));
  byId("where").value = String(Math.round(share * WIDTH));
  byId("where").setAttribute("aria-valuetext", `${(share * 100).toFixed(2)} percent of the split`);
}

export const askedShare = () => Number(byId("where").value) / WIDTH;
