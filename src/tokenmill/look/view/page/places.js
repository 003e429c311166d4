// Places as people type them and as links have them: #train/doc/17, #train/token/456 and
// #train/step/7?reader=loader&batch=8&seq_len=1024.

export function fromLink(hash) {
  const found = hash.match(/^#([^/?#]+)\/(doc|token|step)\/(\d{1,18})(?:\?(.*))?$/);
  if (!found) return null;
  let split;
  try { split = decodeURIComponent(found[1]); } catch { return null; }
  const { m: mark, ...parameters } = Object.fromEntries(new URLSearchParams(found[4] ?? ""));
  const what = { doc: "document" }[found[2]] ?? found[2];
  return { split, [what]: found[3], mark: /^[0-9a-f]+$/.test(mark) ? mark : undefined, parameters };
}

// A place that was asked for by its token keeps it; else the document's number, if it has one.
export function toLink(place, mark) {
  const token = place.token ?? (place.document === null ? place.start : null);
  const rest = token === null ? `doc/${place.document}` : `token/${token}`;
  return `#${encodeURIComponent(place.split)}/${rest}?m=${mark}`;
}

// 17, 1_000, @1e6, 50%, "val 3", "val@5", "val", or a link.
export function fromTyping(text, splits, current) {
  const typed = text.trim();
  if (typed.includes("#")) return fromLink(typed.slice(typed.indexOf("#")));
  const named = splits.filter((one) => typed === one.name || new RegExp("^[\\s/@]").test(
    typed.startsWith(one.name) ? typed.slice(one.name.length) : ""))[0];
  const split = named ?? splits.find((one) => one.name === current);
  const rest = (named ? typed.slice(named.name.length) : typed).replace(/^[\s/]+/, "").replace(/[_,]/g, "");
  if (rest === "" && named) return { split: split.name, token: "0" };
  const found = rest.match(/^(@?)([\d.]+(?:e\d+)?)(%?)$/i);
  if (!found || !split) return null;
  const value = Number(found[2]);
  if (found[3]) return { split: split.name, token: String(atShare(split, value / 100)) };
  if (!Number.isSafeInteger(value)) return null;
  return { split: split.name, [found[1] ? "token" : "document"]: String(value) };
}

export function atShare(split, share) {
  return Math.max(0, Math.min(split.num_tokens - 1, Math.floor(split.num_tokens * share)));
}
