// The page: where it is, and what leads elsewhere.

import { listenToCopying, openCopying } from "./copying.js";
import { listenToComparing, showCompared } from "./comparing.js";
import { ask, byId, counted, element, number } from "./dom.js";
import { atShare, fromLink, fromTyping, toLink } from "./places.js";
import { startSearch, stepHit, stopSearch } from "./search.js";
import { isSourceShown, showSource, toggleSource } from "./source.js";
import { isReader, isStepsShown, listenToSteps, openStep, prepareSteps, showStep, stepLink, toggleSteps } from "./steps.js";
import { askedShare, showStrip, showWhere } from "./strip.js";
import { factsOf, focusTokens, listenToTokens, markTokens, showRest, showTokens } from "./tokens.js";

let dataset = null;
let place = null;
let asking = null;
let strip = null;

const splitOf = (name) => dataset.splits.find((one) => one.name === name);

// Loading

async function load(what, parameters, { isNew = true, count = 1, whole = (found) => found } = {}) {
  asking?.abort();
  const own = asking = new AbortController();
  byId("tokens").setAttribute("aria-busy", "true");
  const slow = setTimeout(() => byId("tokens").classList.add("waiting"), 200);
  try {
    const found = await ask(what, parameters, own.signal);
    if (own !== asking) return;
    show(whole(found), isNew, count);
    byId("tokens").classList.remove("waiting");
    await showRest();
  } catch (error) {
    if (!own.signal.aborted) warn(error.message);
  } finally {
    clearTimeout(slow);
    if (own === asking) byId("tokens").removeAttribute("aria-busy");
    if (own === asking) byId("tokens").classList.remove("waiting");
  }
}

const open = ({ split, document: number, token }, options) => {
  if (splitOf(split)?.num_tokens === 0) return showEmpty(split, options);
  return load("place", token === undefined ? { split, document: number } : { split, token }, options);
};

function show(found, isNew, count) {
  place = found;
  warn("");
  if (isNew) history.pushState(null, "", toLink(place, dataset.mark));
  else if (!location.hash) history.replaceState(null, "", toLink(place, dataset.mark));
  showPlace();
  showTokens(place);
  if (dataset.other) showCompared(place, dataset);
  if (isSourceShown()) showSource(place);
  const isField = document.activeElement?.closest?.("#hits, #where, #steps");
  if (place.token !== null) markTokens(place.token, count, !isField);
  else scrollTo({ top: 0, behavior: "instant" });
}

function showPlace() {
  const split = splitOf(place.split);
  const of = split.num_documents === null ? "" : ` of ${number(split.num_documents)}`;
  const name = place.document !== null ? `document ${number(place.document)}${of}`
    : place.is_document ? `the document at token @${number(place.token ?? place.start)}`
      : `token @${number(place.page.start)}`;
  byId("title").textContent = `${place.split}: ${name}`;
  document.title = `${place.split} ${name} · ${dataset.name}`;
  byId("facts").textContent = factsOf(place);
  byId("split").value = place.split;
  byId("previous").disabled = place.document === null ? place.start === 0 : place.document === 0;
  byId("next").disabled = place.document === null || split.num_documents === null
    ? place.stop >= split.num_tokens : place.document + 1 >= split.num_documents;
  showPager();
  showSplit(place.split);
  showWhere((place.token ?? place.page.start) / split.num_tokens);
}

function showPager() {
  const { start, stop } = place.page;
  byId("pager").hidden = place.stop - place.start <= place.page_tokens;
  byId("page-back").disabled = start <= place.start;
  byId("page-on").disabled = stop >= place.stop;
  const page = Math.floor((start - place.start) / place.page_tokens) + 1;
  const pages = Math.ceil((place.stop - place.start) / place.page_tokens);
  byId("page-place").textContent = `page ${number(page)} of ${number(pages)}: tokens `
    + `${number(start - place.start)} to ${number(stop - place.start - 1)}`;
}

async function showSplit(name) {
  if (strip === name) return;
  strip = name;
  showStrip([]);
  const found = await ask("strip", { split: name }).catch(() => null);
  if (found === null || strip !== name) return;
  showStrip(found.bytes_per_token);
  showWhere((place.token ?? place.page.start) / splitOf(name).num_tokens);
}

function showEmpty(name, { isNew = true } = {}) {
  place = null;
  if (isNew) history.pushState(null, "", `#${encodeURIComponent(name)}/token/0?m=${dataset.mark}`);
  byId("split").value = name;
  byId("title").textContent = `${name}: empty`;
  byId("facts").textContent = "This split has no tokens.";
  byId("tokens").replaceChildren();
  byId("pager").hidden = true;
  byId("previous").disabled = byId("next").disabled = true;
}

function warn(message) {
  byId("warning").textContent = message;
  byId("warning").hidden = !message;
}

// Going elsewhere

function step(by) {
  if (!place || byId(by < 0 ? "previous" : "next").disabled) return;
  const { split, document: number, start, stop } = place;
  if (number !== null) open({ split, document: number + by });
  else open({ split, token: by < 0 ? start - 1 : stop });
}

function turn(by) {
  if (!place || byId(by < 0 ? "page-back" : "page-on").disabled) return;
  const { split, stop } = place;
  const token = place.page.start + by * place.page_tokens;
  const of = place; // whose ends are known: only the page is read
  load("page", { split, start: token, stop }, { whole: (page) => ({ ...of, token, page }) });
}

const random = () => {
  const split = byId("split").value;
  if (splitOf(split)?.num_tokens) load("random", { split });
};

function goTo(event) {
  event.preventDefault();
  const asked = fromTyping(byId("place").value, dataset.splits, byId("split").value);
  if (asked === null) return warn("Go to a document (17), a token (@1e6), a share (50%) or a split (val 3).");
  byId("place").blur();
  return follow(asked);
}

function follow(asked, options) {
  if (asked.step !== undefined) return followStep(asked);
  if (asked.mark !== undefined && !dataset.mark.startsWith(asked.mark)) {
    return load("place", { split: asked.split, ...rest(asked) }, options).then(() => warnOfOther(asked.mark));
  }
  if (!splitOf(asked.split)) return warn(`There is no split ${asked.split} here.`);
  return open(asked, options);
}

async function followStep({ split, step, mark, parameters }) {
  if (!splitOf(split)) return warn(`There is no split ${split} here.`);
  if (!isReader(parameters.reader)) {
    if (!place) await open(beginning(split), { isNew: false });
    return warn("This link is of a step of a run: open the view with its --loader run.json.");
  }
  const found = await openStep(split, step, parameters);
  const first = found?.rows.find((row) => row.is_here);
  if (!place && first) await open({ split: found.split, token: first.start }, { isNew: false, count: found.seq_len });
  else if (!place) await open(beginning(split), { isNew: false });
  if (mark !== undefined && !dataset.mark.startsWith(mark)) warnOfOther(mark);
}

function submitStep() {
  const split = dataset.run && byId("reader").value === "run" ? dataset.run.split : byId("split").value;
  history.pushState(null, "", stepLink(split, dataset.mark));
  return showStep(split);
}

const warnOfOther = (mark) => warn(
  `This link is of another dataset (manifest ${mark}); here is ${dataset.name} (${dataset.mark}).`);

const rest = ({ document: number, token }) => (token === undefined ? { document: number } : { token });

function fromAddress() {
  const asked = fromLink(location.hash);
  if (asked) return follow(asked, { isNew: false });
  if (!dataset.split) return warn("This dataset has no splits.");
  return open(beginning(dataset.split), { isNew: false });
}

const beginning = (split) => (splitOf(split).knows_documents ? { split, document: 0 } : { split, token: 0 });

// Keys

function toggle(button, name) {
  const isOn = byId("boxes").classList.toggle(name);
  button.setAttribute("aria-pressed", String(isOn));
}

const link = () => new URL(toLink(place, dataset.mark), location.href).href;

const KEYS = [
  ["j", "next document", () => step(1)],
  ["k", "previous document", () => step(-1)],
  ["r", "random document", random],
  ["g", "go to a document, @token, share (50%) or split", () => byId("place").select()],
  ["/", "search for text, or ids: 464 3290", () => byId("needle").select()],
  ["n", "next hit", () => stepHit(1)],
  ["N", "previous hit", () => stepHit(-1)],
  ["]", "next page of a long document", () => turn(1)],
  ["[", "previous page", () => turn(-1)],
  ["t", "move to the tokens; arrow keys move, Shift selects", focusTokens],
  ["w", "show spaces and line breaks", () => byId("whitespace").click()],
  ["i", "show ids", () => byId("ids").click()],
  ["s", "the source row, read again and compared", () => byId("source-toggle").click()],
  ["x", "what a training step saw", () => byId("steps-toggle").click()],
  ["c", "copy", () => byId("copy").click()],
  ["Escape", "stop the search; close what is open", closePanels],
  ["?", "these keys", () => byId("help").click()],
];

function closePanels() {
  stopSearch();
  byId("hits").hidden = true;
  if (isStepsShown()) toggleSteps(false);
  if (isSourceShown()) toggleSource(place);
}

function onKey(event) {
  if (event.ctrlKey || event.altKey || event.metaKey) return;
  const isField = event.target.closest?.("input:not([type=range]), select, dialog");
  if (isField) {
    if (event.key === "Escape") event.target.blur();
    return;
  }
  const key = KEYS.find(([name]) => name === event.key);
  if (!key) return;
  event.preventDefault();
  key[2]();
}

function listen() {
  byId("goto").addEventListener("submit", goTo);
  byId("search").addEventListener("submit", (event) => {
    event.preventDefault();
    byId("needle").blur();
    startSearch(byId("split").value, byId("needle").value,
      (hit) => open({ split: hit.split, token: hit.token }, { count: hit.num_ids }));
  });
  byId("cancel").addEventListener("click", stopSearch);
  byId("previous").addEventListener("click", () => step(-1));
  byId("next").addEventListener("click", () => step(1));
  byId("random").addEventListener("click", random);
  byId("page-back").addEventListener("click", () => turn(-1));
  byId("page-on").addEventListener("click", () => turn(1));
  byId("split").addEventListener("change", () => open(beginning(byId("split").value)));
  byId("where").addEventListener("change", () => {
    const split = splitOf(byId("split").value);
    open({ split: split.name, token: atShare(split, askedShare()) });
  });
  byId("whitespace").addEventListener("click", (event) => toggle(event.currentTarget, "show-whitespace"));
  byId("ids").addEventListener("click", (event) => toggle(event.currentTarget, "show-ids"));
  byId("source-toggle").addEventListener("click", () => toggleSource(place));
  byId("steps-toggle").addEventListener("click", () => toggleSteps());
  listenToSteps(submitStep);
  byId("copy").addEventListener("click", () => place && openCopying(place, link()));
  byId("help").addEventListener("click", () => byId("help-dialog").showModal());
  byId("skip").addEventListener("click", (event) => { event.preventDefault(); focusTokens(); });
  addEventListener("keydown", onKey);
  addEventListener("popstate", fromAddress);
  listenToTokens();
  listenToCopying();
  listenToComparing();
}

async function start() {
  try {
    dataset = await ask("dataset");
  } catch (error) {
    warn(error.message);
    return;
  }
  byId("name").textContent = dataset.name;
  const total = dataset.splits.reduce((sum, one) => sum + one.num_tokens, 0);
  byId("summary").textContent = [counted(total, "token"), dataset.format,
    dataset.tokenizer ?? dataset.missing,
    dataset.has_manifest ? `manifest ${dataset.mark}` : "no manifest"].join(" · ");
  byId("split").append(...dataset.splits.map((one) => element("option", { value: one.name }, one.name)));
  byId("keys").append(...KEYS.map(([key, what]) =>
    element("tr", {}, element("td", {}, element("kbd", {}, key)), element("td", {}, what))));
  prepareSteps(dataset, (at, count) => open(at, { count }));
  listen();
  await fromAddress();
}

start();
