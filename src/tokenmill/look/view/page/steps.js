// What a training step saw: its rows, each a link to its tokens.

import { ask, byId, counted, element, number, runs } from "./dom.js";

const FIELDS = { step: "step", batch: "batch", seq_len: "seq_len", world: "world",
  micro_steps: "micro_steps", seed: "seed", shuffle: "shuffle", name: "source-name" };
const OF = { loader: ["batch", "seq_len", "world", "seed", "shuffle", "name"],
  shards: ["batch", "seq_len", "world", "micro_steps"], run: [] };
let dataset = null;
let openRow = null;
let shown = null; // {split, parameters}

export function prepareSteps(newDataset, newOpenRow) {
  [dataset, openRow] = [newDataset, newOpenRow];
  if (dataset.run) {
    const named = dataset.run.sources.join(" + ");
    byId("reader").prepend(element("option", { value: "run" }, `the run of --loader (${named})`));
    fill({ reader: "run", ...dataset.run });
  }
  showFields();
}

function fill(values) {
  if (values.reader) byId("reader").value = values.reader;
  for (const [name, id] of Object.entries(FIELDS)) {
    if (values[name] !== undefined && values[name] !== null) byId(id).value = values[name];
  }
}

function showFields() {
  const reader = byId("reader").value;
  for (const node of document.querySelectorAll("#step-form [data-of]")) node.hidden = node.dataset.of !== reader;
  for (const name of ["batch", "seq_len", "world"]) byId(name).disabled = reader === "run";
  if (reader === "run") fill(dataset.run);
  byId("batch-label").textContent = reader === "shards" ? "batch (of a rank)" : "batch (of all ranks)";
}

// Whether steps can be read like this here: "run" only with --loader.
export const isReader = (reader) =>
  reader === undefined || [...byId("reader").options].some((one) => one.value === reader);

export const isStepsShown = () => !byId("steps").hidden;

export function toggleSteps(isShown = !isStepsShown()) {
  byId("steps").hidden = !isShown;
  byId("steps-toggle").setAttribute("aria-pressed", String(isShown));
  if (isShown) byId("step").select();
}

// The address of the step in the form, for the part after the #.
export function stepLink(split, mark) {
  const { step, ...parameters } = asked();
  return `#${encodeURIComponent(split)}/step/${step}?${new URLSearchParams({ ...parameters, m: mark })}`;
}

function asked() {
  const reader = byId("reader").value;
  const names = ["step", ...OF[reader]];
  const values = names.map((name) => [name, byId(FIELDS[name]).value.trim().replace(/[_,]/g, "")]);
  return { reader, ...Object.fromEntries(values) };
}

export function openStep(split, step, parameters) {
  fill({ ...parameters, step });
  showFields();
  toggleSteps(true);
  return showStep(split);
}

export async function showStep(split) {
  shown = { split, parameters: asked() };
  byId("step-rows").replaceChildren();
  byId("step-more").hidden = true;
  byId("step-told").textContent = "";
  return showMore(0);
}

async function showMore(first) {
  const own = shown;
  try {
    const found = await ask("step", { split: own.split, first, ...own.parameters });
    if (own !== shown) return null;
    show(found);
    return found;
  } catch (error) {
    if (own === shown) byId("step-told").textContent = error.message;
    return null;
  }
}

function show(found) {
  byId("step-rows").append(...found.rows.map((row, index) => rowItem(row, found, found.first + index)));
  const last = found.first + found.rows.length;
  byId("step-told").textContent = `step ${number(found.step)} of ${found.split}: `
    + `${counted(found.num_rows, "row")} of ${counted(found.seq_len, "token")}`
    + (last < found.num_rows ? `, the first ${number(last)} are shown` : "");
  byId("step-more").hidden = last >= found.num_rows;
  byId("step-more").dataset.first = last;
}

function rowItem(row, found, index) {
  const facts = [`row ${number(index)}`, `rank ${number(row.rank)}`,
    row.micro_step || byId("micro_steps").value > 1 ? `micro-step ${number(row.micro_step)}` : null,
    row.source || null, row.epoch ? `epoch ${number(row.epoch)}` : null,
    `tokens @${number(row.start)} to @${number(row.stop - 1)}`, row.shard];
  const head = element("small", {}, facts.filter((fact) => fact).join(" · "));
  if (!row.is_here) return element("li", {}, head, ...runs(row.text), element("code", {}, row.command));
  const link = element("a", { href: `#${encodeURIComponent(found.split)}/token/${row.start}?m=${dataset.mark}` },
    head, ...runs(row.text));
  link.addEventListener("click", (event) => {
    if (event.ctrlKey || event.metaKey || event.shiftKey) return;
    event.preventDefault();
    document.querySelector("#step-rows [aria-current]")?.removeAttribute("aria-current");
    link.setAttribute("aria-current", "true");
    openRow({ split: found.split, token: row.start }, found.seq_len);
  });
  return element("li", {}, link);
}

function stepBy(by) {
  byId("step").value = String(Math.max(0, Number(byId("step").value) + by));
  byId("step-form").requestSubmit();
}

export function listenToSteps(submit) {
  byId("reader").addEventListener("change", showFields);
  byId("step-form").addEventListener("submit", (event) => { event.preventDefault(); submit(); });
  byId("step-back").addEventListener("click", () => stepBy(-1));
  byId("step-on").addEventListener("click", () => stepBy(1));
  byId("step-more").addEventListener("click", () => showMore(Number(byId("step-more").dataset.first)));
}
