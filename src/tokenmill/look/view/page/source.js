// The row of a source that the document shown was made from: read again by the server, compared.

import { ask, byId, counted, element, runs } from "./dom.js";

const VERDICTS = {
  same: "the same as its source",
  part: "the same as a part of its source",
  differs: "differs from its source",
  unknown: "not compared with its source",
  "not found": "not traced to its source",
};
let asked = null;

export const isSourceShown = () => !byId("source").hidden;

export function toggleSource(place) {
  byId("source").hidden = isSourceShown();
  byId("source-toggle").setAttribute("aria-pressed", String(isSourceShown()));
  if (isSourceShown()) showSource(place);
}

export async function showSource(place) {
  asked = place;
  byId("source-columns").replaceChildren();
  byId("source-row").hidden = true;
  if (!place || place.document === null) {
    return say(["not traced: documents are not numbered here"], [""], "");
  }
  say(["reading the source…"], [""], "");
  try {
    const found = await ask("source", { split: place.split, document: place.document });
    if (asked === place) show(found);
  } catch (error) {
    if (asked === place) say([error.message], [""], "");
  }
}

function say(verdict, hint, name) {
  byId("source-verdict").className = name;
  byId("source-verdict").replaceChildren(...verdict);
  byId("source-hint").replaceChildren(...runs(hint));
}

function show(found) {
  const name = { same: "same", differs: "differs-now" }[found.verdict] ?? "";
  const where = found.file ? [": ", ...runs(found.file), `, ${found.place}`] : [];
  const why = found.why.join("") ? [" (", ...runs(found.why), ")"] : [];
  say([VERDICTS[found.verdict], ...where, ...why], found.hint, name);
  byId("source-row").hidden = !found.file && !found.columns.length;
  byId("source-columns").replaceChildren(...found.columns.map(([column, value]) =>
    element("tr", {}, element("th", { scope: "row" }, column), element("td", { class: "w" }, ...runs(value)))));
  byId("source-text").hidden = !found.file;
  if (!found.file) return;
  const rest = found.is_whole ? [] : [element("span", { class: "soft" }, ` … ${counted(found.num_characters, "character")}`)];
  byId("source-text").replaceChildren(...runs(found.text), ...rest);
}
