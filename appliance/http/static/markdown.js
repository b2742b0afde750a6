// Markdown as DOM nodes. Text becomes text nodes and nothing else: no innerHTML, no attribute from a text but the address of a
// link, which must be http, https or mailto. What this does not know (HTML, pictures of other sites) stays text.
//
// Takes time in proportion to the text, whatever it holds, because it is done at each frame of an answer: no pattern here tries a
// run of letters from each of its places again, what is looked for and not there is looked for once, and nesting is bounded.

import { escapeInvisible } from "./invisible.js";

const FENCE = /^(\s{0,3})(`{3,}|~{3,})\s*([\w+#.-]*)/;
const ITEM = /^(\s*)([-*+]|\d{1,9}[.)])\s+(.*)$/;
const QUOTE = /^\s{0,3}>\s?/;
const CELL = /^:?-+:?$/;
const LINK = /^(https?:\/\/|mailto:)[^\s<>"]{1,2000}$/i;
const BARE = /https?:\/\/(?:\[[\da-f:.]{2,60}\][^\s<>"'\]]{0,2000}|[^\s<>"'\[\]][^\s<>"'\]]{0,2000})/iy;
const LETTER = /[\p{L}\p{N}]/u;
const SIGNS = /[`*_~[<|#\n\r\u2028\u2029]/g;
const PLAIN = /[^\\`[!*_~<h]+/y; // letters that mean nothing but themselves
// Addresses as people know them: notes/x.md in box/, /srv/a.txt on the disk; as for_people of text/references.py.
const ADDRESS = /(^|[^\w/:])(box|disk|memory|agent|skill):\/{1,2}(?=[^\s/\]])/g;
const ROOTS = { box: "", disk: "/" };
const MAX_SIGNS = 5000;
const SPOKEN = ["aria-label", "title"]; // attributes that people read or hear
const MAX_DEPTH = 6;
const MAX_SHOWN = 1000; // letters of a link

export function element(name, attributes = {}, ...children) {
  const made = document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) {
    if (key === "class") made.className = value;
    else if (key.startsWith("on")) made.addEventListener(key.slice(2), value);
    else if (value === true) made.setAttribute(key, "");
    else if (value !== false && value != null) made.setAttribute(key, SPOKEN.includes(key) ? escapeInvisible(value) : value);
  }
  return fill(made, children);
}

// What is text is shown with all of its characters. One by one: a hundred thousand arguments are more than a call takes.
function fill(made, children) {
  for (const one of children) {
    if (Array.isArray(one)) fill(made, one);
    else if (one != null) made.append(typeof one === "string" ? escapeInvisible(one) : one);
  }
  return made;
}

export function render(text) {
  text = text.replace(ADDRESS, (_, before, drive) => before + (ROOTS[drive] ?? `${drive}:/`));
  // More marks and lines than anybody reads are shown as they are: as many nodes would hold up the page, however quickly they are made.
  if (hasMany(text)) return fill(document.createDocumentFragment(), [element("pre", {}, text)]);
  return fill(document.createDocumentFragment(), blocks(text.split(/\r\n?|[\n\u2028\u2029]/), 0));
}

function hasMany(text) {
  SIGNS.lastIndex = 0;
  for (let count = 0; SIGNS.test(text); count += 1) if (count === MAX_SIGNS) return true;
  return false;
}

function blocks(lines, depth) {
  const made = [];
  let at = 0;
  while (at < lines.length) {
    const line = lines[at];
    let found;
    if (!line.trim()) {
      at += 1;
    } else if ((found = FENCE.exec(line))) {
      const end = closing(lines, at, found[2]);
      made.push(code(lines.slice(at + 1, end).map((one) => one.slice(Math.min(found[1].length, indent(one)))), found[3]));
      at = end + 1;
    } else if ((found = headingLevel(line))) {
      // The page has its own first heading: those of an answer stand below it.
      made.push(element(`h${Math.min(6, found + 2)}`, {}, inline(headingText(line.slice(found)))));
      at += 1;
    } else if (isRule(line)) {
      made.push(element("hr"));
      at += 1;
    } else if (QUOTE.test(line) && depth < MAX_DEPTH) {
      const inner = [];
      while (at < lines.length && QUOTE.test(lines[at])) inner.push(lines[at++].replace(QUOTE, ""));
      made.push(element("blockquote", {}, blocks(inner, depth + 1)));
    } else if (ITEM.test(line) && depth < MAX_DEPTH) {
      at = list(lines, at, depth, made);
    } else if (line.includes("|") && at + 1 < lines.length && isDelimiter(lines[at + 1])) {
      at = table(lines, at, made);
    } else {
      const inner = [line];
      at += 1;
      while (at < lines.length && lines[at].trim() && !begins(lines, at)) inner.push(lines[at++]);
      made.push(element("p", {}, broken(inner)));
    }
  }
  return made;
}

function begins(lines, at) {
  const line = lines[at];
  return FENCE.test(line) || headingLevel(line) > 0 || isRule(line) || QUOTE.test(line) || ITEM.test(line);
}

// How many # a heading begins with, 0 for what is none.
function headingLevel(line) {
  return /^#{1,6}(?=\s)/.exec(line)?.[0].length ?? 0;
}

function headingText(text) {
  let end = text.trimEnd().length;
  while (text[end - 1] === "#") end -= 1;
  return text.slice(0, end).trim();
}

function isRule(line) {
  const sign = line[indent(line)];
  if (indent(line) > 3 || !"-*_".includes(sign ?? " ")) return false;
  let count = 0;
  for (const one of line) {
    if (one === sign) count += 1;
    else if (one.trim()) return false;
  }
  return count >= 3;
}

// The line below the head of a table.
function isDelimiter(line) {
  return line.includes("-") && cells(line).every((one) => CELL.test(one));
}

function indent(line) {
  return line.length - line.trimStart().length;
}

function closing(lines, at, fence) {
  for (let end = at + 1; end < lines.length; end += 1) {
    const text = lines[end].trim();
    if (text.length >= fence.length && text[0] === fence[0] && text === fence[0].repeat(text.length)) return end;
  }
  return lines.length; // a fence that is still being written
}

function code(lines, language) {
  const text = escapeInvisible(lines.join("\n")); // what is copied is what was read
  const copy = element("button", { type: "button", class: "copy", "aria-label": "Copy this code" }, "Copy");
  copy.addEventListener("click", async () => {
    try {
      await navigator.clipboard.writeText(text);
      copy.textContent = "Copied";
    } catch {
      copy.textContent = "Select it to copy";
    }
  });
  // Reachable by keyboard, since it may scroll.
  const block = element("pre", { tabindex: "0", role: "region", "aria-label": `Code ${language}`.trim() }, element("code", {}, text));
  return element("div", { class: "code" }, element("div", { class: "code-head" }, element("span", {}, language), copy), block);
}

function list(lines, at, depth, made) {
  const base = indent(lines[at]);
  const isOrdered = /\d/.test(ITEM.exec(lines[at])[2]);
  const start = isOrdered ? Number.parseInt(ITEM.exec(lines[at])[2], 10) : 1;
  const written = []; // tasks are called by their numbers, which need not follow each other
  const items = element(isOrdered ? "ol" : "ul", isOrdered && start !== 1 ? { start } : {});
  while (at < lines.length) {
    const found = ITEM.exec(lines[at]);
    if (!found || indent(lines[at]) > base + 1 || indent(lines[at]) < base || /\d/.test(found[2]) !== isOrdered) break;
    written.push(Number.parseInt(found[2], 10));
    const inner = [found[3]];
    const content = found[0].length - found[3].length;
    at += 1;
    while (at < lines.length) {
      const isBlank = !lines[at].trim();
      const isDeeper = indent(lines[at]) > base + 1;
      if (isBlank && !(at + 1 < lines.length && lines[at + 1].trim() && indent(lines[at + 1]) > base + 1)) break;
      if (!isBlank && !isDeeper && (ITEM.test(lines[at]) || begins(lines, at))) break;
      inner.push(lines[at].slice(Math.min(content, indent(lines[at]))));
      at += 1;
    }
    while (at + 1 < lines.length && !lines[at].trim() && ITEM.test(lines[at + 1]) && indent(lines[at + 1]) === base) at += 1;
    items.append(item(inner, depth));
  }
  const isCounted = new Set(written).size < written.length || written.every((number, n) => number === start + n); // "1. 1. 1." is, too
  if (isOrdered && !isCounted) [...items.children].forEach((one, n) => (one.value = written[n]));
  made.push(items);
  return at;
}

function item(lines, depth) {
  const task = /^\[([ xX])\]\s+/.exec(lines[0]);
  if (task) lines[0] = lines[0].slice(task[0].length);
  const made = blocks(lines, depth + 1);
  if (made.length && made[0].tagName === "P") made[0] = [...made[0].childNodes];
  return element("li", {}, task ? (task[1] === " " ? "☐ " : "☑ ") : null, made);
}

function cells(line) {
  const made = [];
  let cell = "";
  let isCode = false;
  const text = line.trim().replace(/^\|/, "").replace(/\|$/, "");
  for (let at = 0; at < text.length; at += 1) {
    if (text[at] === "\\" && text[at + 1] === "|") cell += text[(at += 1)];
    else if (text[at] === "|" && !isCode) {
      made.push(cell.trim());
      cell = "";
    } else {
      if (text[at] === "`") isCode = !isCode;
      cell += text[at];
    }
  }
  made.push(cell.trim());
  return made;
}

function table(lines, at, made) {
  const head = cells(lines[at]);
  at += 2;
  const body = element("tbody");
  while (at < lines.length && lines[at].includes("|") && lines[at].trim()) {
    const row = cells(lines[at++]).slice(0, head.length); // a short row stays short: no cells that nobody wrote
    body.append(element("tr", {}, row.map((one) => element("td", {}, inline(one)))));
  }
  const first = element("thead", {}, element("tr", {}, head.map((one) => element("th", { scope: "col" }, inline(one)))));
  made.push(element("div", { class: "table", tabindex: "0", role: "region", "aria-label": "Table" }, element("table", {}, first, body)));
  return at;
}

function broken(lines) {
  return lines.map((line, n) => {
    const before = lines[n - 1] ?? "";
    const end = n === 0 ? null : before.endsWith("  ") || before.endsWith("\\") ? element("br") : "\n";
    const text = line.trim();
    return [end, inline(n < lines.length - 1 && text.endsWith("\\") ? text.slice(0, -1) : text)];
  });
}

function link(address, ...children) {
  if (!LINK.test(address)) return element("span", {}, children);
  // A new tab that cannot reach this one, and is not told where it was opened.
  return element("a", { href: address, target: "_blank", rel: "noopener noreferrer nofollow" }, children);
}

const MARKS = [
  ["***", (inner) => element("strong", {}, element("em", {}, inner))],
  ["**", (inner) => element("strong", {}, inner)],
  ["__", (inner) => element("strong", {}, inner)],
  ["~~", (inner) => element("del", {}, inner)],
  ["*", (inner) => element("em", {}, inner)],
  ["_", (inner) => element("em", {}, inner)],
];

function inline(text, depth = 0) {
  const made = [];
  const next = finder(text);
  let closers = null; // found when the first mark is met
  let pairs = null; // found when the first address is met
  let plain = "";
  let at = 0;
  const put = (node) => {
    if (plain) made.push(plain);
    plain = "";
    made.push(node);
  };
  while (at < text.length) {
    const one = text[at];
    if (one === "\\" && /[\\`*_{}[\]()#+.!|~>-]/.test(text[at + 1] ?? "")) {
      plain += text[at + 1];
      at += 2;
    } else if (one === "`") {
      const ticks = /^`+/.exec(text.slice(at, at + 20))[0];
      const end = next(ticks, at + ticks.length);
      if (end < 0) {
        plain += ticks;
        at += ticks.length;
      } else {
        put(element("code", {}, text.slice(at + ticks.length, end).replace(/^ (.*) $/, "$1")));
        at = end + ticks.length;
      }
    } else if ((one === "[" || (one === "!" && text[at + 1] === "[")) && depth < MAX_DEPTH) {
      const from = one === "!" ? at + 2 : at + 1;
      const close = next("](", from);
      const isNear = close >= 0 && close - from <= MAX_SHOWN;
      if (isNear) pairs ??= bracketPairs(text);
      const end = isNear ? pairs.get(close + 1) ?? next(")", close) : -1; // the first one where there is no such pair
      if (end < 0) {
        plain += one;
        at += 1;
      } else {
        const address = text.slice(close + 2, end).trim().split(/\s/, 1)[0].replace(/^<|>$/g, "");
        const shown = text.slice(from, close);
        put(one === "!" ? link(address, `picture: ${shown || address}`) : link(address, inline(shown, depth + 1)));
        at = end + 1;
      }
    } else if ("*_~".includes(one) && depth < MAX_DEPTH) {
      closers ??= findClosers(text);
      const found = mark(text, at, closers);
      if (found) {
        put(found.make(inline(found.inner, depth + 1)));
        at = found.end;
      } else {
        const run = /^[*_~]+/.exec(text.slice(at, at + 20))[0];
        plain += run;
        at += run.length;
      }
    } else if (one === "<" && /^<(https?:\/\/|mailto:)[^\s<>]{1,2000}>/i.test(text.slice(at, at + 2010))) {
      const end = text.indexOf(">", at);
      const address = text.slice(at + 1, end);
      put(link(address, address));
      at = end + 1;
    } else if (one === "h" && text.startsWith("http", at)) {
      BARE.lastIndex = at;
      const found = BARE.exec(text);
      if (found) {
        const address = withoutTail(found[0]);
        put(link(address, address));
        at += address.length;
      } else {
        plain += one;
        at += 1;
      }
    } else {
      PLAIN.lastIndex = at + 1;
      const end = PLAIN.exec(text) ? PLAIN.lastIndex : at + 1;
      plain += text.slice(at, end);
      at = end;
    }
  }
  if (plain) made.push(plain);
  return made;
}

// For each round bracket that is closed before the next blank the place of the one that closes it, as in Owl_(bird).
function bracketPairs(text) {
  const found = new Map();
  let open = [];
  for (const { 0: one, index } of text.matchAll(/[()\s]/g)) {
    if (one === "(") open.push(index);
    else if (one !== ")") open = [];
    else if (open.length) found.set(open.pop(), index);
  }
  return found;
}

// An address in a sentence, without what belongs to the sentence: a full stop, a bracket that was opened before it.
function withoutTail(address) {
  let end = address.length;
  let surplus = address.split(")").length - address.split("(").length;
  while (end > 0 && (/[.,;:!?*_~]/.test(address[end - 1]) || (address[end - 1] === ")" && surplus > 0))) {
    if (address[end - 1] === ")") surplus -= 1;
    end -= 1;
  }
  return address.slice(0, end);
}

// Where a sign comes next, asked with places that only grow; what was found, or is not there, is not looked for again.
function finder(text) {
  const found = new Map();
  return (sign, from) => {
    const known = found.get(sign);
    if (known !== undefined && (known < 0 || known >= from)) return known;
    const place = text.indexOf(sign, from);
    found.set(sign, place);
    return place;
  };
}

// The places at which each mark may end: after a letter, at the end of a run of its sign, and a single one in an odd run only.
function findClosers(text) {
  const found = new Map(MARKS.map(([sign]) => [sign, { places: [], first: 0 }]));
  for (const run of text.matchAll(/\*+|_+|~+/g)) {
    const [signs] = run;
    const end = run.index + signs.length;
    if (!/\S/.test(text[run.index - 1] ?? " ")) continue;
    if (signs[0] === "_" && LETTER.test(text[end] ?? "")) continue; // names_with_lines
    for (const [sign] of MARKS) {
      if (sign[0] !== signs[0] || sign.length > signs.length || (sign.length === 1 && signs.length % 2 === 0)) continue;
      found.get(sign).places.push(end - sign.length);
    }
  }
  return found;
}

function mark(text, at, closers) {
  for (const [sign, make] of MARKS) {
    if (!text.startsWith(sign, at) || /\s/.test(text[at + sign.length] ?? " ")) continue;
    if (sign[0] === "_" && LETTER.test(text[at - 1] ?? "")) continue;
    const ends = closers.get(sign);
    while (ends.first < ends.places.length && ends.places[ends.first] <= at + sign.length) ends.first += 1;
    const end = ends.places[ends.first];
    if (end !== undefined) return { make, inner: text.slice(at + sign.length, end), end: end + sign.length };
  }
  return null;
}
