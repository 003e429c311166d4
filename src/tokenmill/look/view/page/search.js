// Search: hits are shown as the server finds them; leaving or asking again ends it.

import { byId, element, number, runs } from "./dom.js";

let search = null;
let hits = [];
let current = -1;
let open = null;

export function stopSearch() {
  search?.abort();
  search = null;
  byId("cancel").hidden = true;
}

export async function startSearch(split, typed, openHit) {
  stopSearch();
  [hits, current, open] = [[], -1, openHit];
  byId("hit-list").replaceChildren();
  byId("hits").hidden = !typed;
  if (!typed) return;
  const own = search = new AbortController();
  byId("cancel").hidden = false;
  byId("progress").textContent = "searching…";
  const ids = typed.match(/^ids:\s*(.*)$/);
  const asked = new URLSearchParams({ split, ...(ids ? { ids: ids[1] } : { text: typed }) });
  try {
    const answer = await fetch(`api/search?${asked}`, { signal: own.signal });
    if (!answer.ok) throw new Error((await answer.json()).error);
    for await (const line of lines(answer.body)) showProgress(line);
    if (own === search && !byId("cancel").hidden) throw new Error("the search was ended by another one");
  } catch (error) {
    if (own.signal.aborted) byId("progress").textContent = `stopped: ${byId("progress").textContent}`;
    else byId("progress").textContent = error.message;
  }
  if (own === search) stopSearch();
}

async function* lines(body) {
  const reader = body.pipeThrough(new TextDecoderStream()).getReader();
  let held = "";
  for (;;) {
    const { value, done } = await reader.read();
    if (done) return;
    const found = (held + value).split("\n");
    held = found.pop();
    for (const line of found) yield JSON.parse(line);
  }
}

function showProgress(line) {
  if (line.end) {
    byId("cancel").hidden = true;
    byId("progress").textContent = `${counted(line.is_complete)} in ${number(line.num_read)} tokens`;
    return;
  }
  for (const hit of line.hits) {
    const index = hits.push(hit) - 1;
    byId("hit-list").append(element("li", {}, hitButton(hit, index)));
  }
  const share = Math.floor((100 * line.num_read) / line.num_tokens);
  byId("progress").textContent = `${counted(true)} so far, ${share}% read`;
}

function counted(isComplete) {
  const what = hits.some((hit) => hit.document === null) ? "place" : "document";
  const of = `${number(hits.length)} ${what}${hits.length === 1 ? "" : "s"}`;
  return isComplete ? of : `the first ${of}`;
}

function hitButton(hit, index) {
  const where = hit.document === null ? `token @${number(hit.token)}` : `document ${number(hit.document)}`;
  const times = hit.num_times > 1 ? `, ${number(hit.num_times)} times` : "";
  const button = element("button", { type: "button" }, element("small", {}, `${where}${times}`),
    ...runs(hit.before), element("mark", {}, ...runs(hit.match)), ...runs(hit.after));
  button.addEventListener("click", () => openHit(index));
  return button;
}

function openHit(index) {
  const buttons = byId("hit-list").querySelectorAll("button");
  buttons[current]?.removeAttribute("aria-current");
  current = index;
  buttons[current].setAttribute("aria-current", "true");
  buttons[current].scrollIntoView({ block: "nearest" });
  open(hits[index]);
}

export function stepHit(step) {
  if (!hits.length) return;
  openHit(current < 0 ? 0 : (current + step + hits.length) % hits.length);
}
