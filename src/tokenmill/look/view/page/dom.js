// Elements of the page. Text enters it here, as text nodes, and nowhere as markup.

export const byId = (id) => document.getElementById(id);

export function element(tag, attributes = {}, ...children) {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, value);
  made.append(...children); // strings become text nodes
  return made;
}

// Runs of text, every second one an escape such as \x1b, which no text can imitate.
export function runs(parts) {
  return parts.flatMap((run, number) =>
    number % 2 ? [element("i", {}, run)] : withWhitespace(run));
}

// Spaces and line ends get elements of their own: the style sheet makes them visible.
function withWhitespace(text) {
  return text.split(/([ \n])/).filter((piece) => piece).map((piece) =>
    piece === " " ? element("span", { class: "sp" }, piece)
      : piece === "\n" ? element("s", {}, piece) : piece);
}

export const number = (value) => value.toLocaleString("en-US");

export const counted = (value, noun) => `${number(value)} ${noun}${value === 1 ? "" : "s"}`;

export async function ask(what, parameters = {}, signal = undefined) {
  const answer = await fetch(`api/${what}?${new URLSearchParams(parameters)}`, { signal });
  const plain = await answer.json().catch(() => ({ error: `the server said ${answer.status}` }));
  if (!answer.ok) throw new Error(plain.error);
  return plain;
}
