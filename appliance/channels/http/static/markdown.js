// Markdown as DOM nodes. Text becomes text nodes and nothing else: no innerHTML, no attribute from a text but the address of a
// link, which must be http, https or mailto. What this does not know (HTML, pictures of other sites) stays text.

const BLOCK = /^(#{1,6})\s+(.*?)\s*#*$/;
const RULE = /^\s{0,3}([-*_])(\s*\1){2,}\s*$/;
const FENCE = /^(\s{0,3})(`{3,}|~{3,})\s*([\w+#.-]*).*$/;
const ITEM = /^(\s*)([-*+]|\d{1,9}[.)])\s+(.*)$/;
const CELLS = /^\s*\|?\s*:?-{1,}:?\s*(\|\s*:?-{1,}:?\s*)*\|?\s*$/;
const LINK = /^(https?:\/\/|mailto:)[^\s<>"]{1,2000}$/i;
const BARE = /https?:\/\/[^\s<>"')\]]{1,2000}[^\s<>"')\].,;:!?]/y;
const MAX_DEPTH = 6;

export function element(name, attributes = {}, ...children) {
  const made = document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) {
    if (key === "class") made.className = value;
    else if (key.startsWith("on")) made.addEventListener(key.slice(2), value);
    else if (value === true) made.setAttribute(key, "");
    else if (value !== false && value != null) made.setAttribute(key, value);
  }
  made.append(...children.filter((one) => one != null));
  return made;
}

export function render(text) {
  const made = document.createDocumentFragment();
  made.append(...blocks(text.replace(/\r\n?/g, "\n").split("\n"), 0));
  return made;
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
    } else if ((found = BLOCK.exec(line))) {
      // The page has its own first heading: those of an answer stand below it.
      made.push(element(`h${Math.min(6, found[1].length + 2)}`, {}, ...inline(found[2])));
      at += 1;
    } else if (RULE.test(line)) {
      made.push(element("hr"));
      at += 1;
    } else if (/^\s{0,3}>/.test(line) && depth < MAX_DEPTH) {
      const inner = [];
      while (at < lines.length && /^\s{0,3}>/.test(lines[at])) inner.push(lines[at++].replace(/^\s{0,3}>\s?/, ""));
      made.push(element("blockquote", {}, ...blocks(inner, depth + 1)));
    } else if (ITEM.test(line) && depth < MAX_DEPTH) {
      at = list(lines, at, depth, made);
    } else if (line.includes("|") && at + 1 < lines.length && lines[at + 1].includes("-") && CELLS.test(lines[at + 1])) {
      at = table(lines, at, made);
    } else {
      const inner = [line];
      at += 1;
      while (at < lines.length && lines[at].trim() && !begins(lines, at)) inner.push(lines[at++]);
      made.push(element("p", {}, ...broken(inner)));
    }
  }
  return made;
}

function begins(lines, at) {
  const line = lines[at];
  return FENCE.test(line) || BLOCK.test(line) || RULE.test(line) || /^\s{0,3}>/.test(line) || ITEM.test(line);
}

function indent(line) {
  return line.length - line.trimStart().length;
}

function closing(lines, at, fence) {
  for (let end = at + 1; end < lines.length; end += 1) {
    const text = lines[end].trim();
    if (text.length >= fence.length && text[0] === fence[0] && [...text].every((one) => one === fence[0])) return end;
  }
  return lines.length; // a fence that is still being written
}

function code(lines, language) {
  const text = lines.join("\n");
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
  const items = element(isOrdered ? "ol" : "ul", isOrdered && start !== 1 ? { start } : {});
  while (at < lines.length) {
    const found = ITEM.exec(lines[at]);
    if (!found || indent(lines[at]) > base + 1 || indent(lines[at]) < base || /\d/.test(found[2]) !== isOrdered) break;
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
  made.push(items);
  return at;
}

function item(lines, depth) {
  const task = /^\[([ xX])\]\s+/.exec(lines[0]);
  if (task) lines[0] = lines[0].slice(task[0].length);
  const made = blocks(lines, depth + 1);
  if (made.length && made[0].tagName === "P") made.splice(0, 1, ...made[0].childNodes);
  if (task) made.unshift(task[1] === " " ? "☐ " : "☑ ");
  return element("li", {}, ...made);
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
    const row = cells(lines[at++]);
    body.append(element("tr", {}, ...head.map((_, n) => element("td", {}, ...inline(row[n] ?? "")))));
  }
  const first = element("thead", {}, element("tr", {}, ...head.map((one) => element("th", { scope: "col" }, ...inline(one)))));
  made.push(element("div", { class: "table", tabindex: "0", role: "region", "aria-label": "Table" }, element("table", {}, first, body)));
  return at;
}

function broken(lines) {
  const made = [];
  lines.forEach((line, n) => {
    if (n) made.push(/ {2,}$|\\$/.test(lines[n - 1]) ? element("br") : "\n");
    made.push(...inline(line.trim().replace(/\\$/, "")));
  });
  return made;
}

function link(address, ...children) {
  if (!LINK.test(address)) return element("span", {}, ...children);
  // A new tab that cannot reach this one, and is not told where it was opened.
  return element("a", { href: address, target: "_blank", rel: "noopener noreferrer nofollow" }, ...children);
}

const MARKS = [
  ["***", (inner) => element("strong", {}, element("em", {}, ...inner))],
  ["**", (inner) => element("strong", {}, ...inner)],
  ["__", (inner) => element("strong", {}, ...inner)],
  ["~~", (inner) => element("del", {}, ...inner)],
  ["*", (inner) => element("em", {}, ...inner)],
  ["_", (inner) => element("em", {}, ...inner)],
];

function inline(text, depth = 0) {
  const made = [];
  let plain = "";
  let at = 0;
  const put = (...nodes) => {
    if (plain) made.push(plain);
    plain = "";
    made.push(...nodes);
  };
  while (at < text.length) {
    const one = text[at];
    if (one === "\\" && /[\\`*_{}[\]()#+.!|~>-]/.test(text[at + 1] ?? "")) {
      plain += text[at + 1];
      at += 2;
    } else if (one === "`") {
      const ticks = /^`+/.exec(text.slice(at, at + 20))[0];
      const end = text.indexOf(ticks, at + ticks.length);
      if (end < 0) {
        plain += ticks;
        at += ticks.length;
      } else {
        put(element("code", {}, text.slice(at + ticks.length, end).replace(/^ (.*) $/, "$1")));
        at = end + ticks.length;
      }
    } else if ((one === "[" || (one === "!" && text[at + 1] === "[")) && depth < MAX_DEPTH) {
      const from = one === "!" ? at + 2 : at + 1;
      const close = text.indexOf("](", from);
      const end = close < 0 || close - from > 1000 ? -1 : text.indexOf(")", close);
      if (end < 0) {
        plain += one;
        at += 1;
      } else {
        const address = text.slice(close + 2, end).trim().split(/\s/)[0].replace(/^<|>$/g, "");
        const shown = text.slice(from, close);
        put(one === "!" ? link(address, `picture: ${shown || address}`) : link(address, ...inline(shown, depth + 1)));
        at = end + 1;
      }
    } else if ("*_~".includes(one) && depth < MAX_DEPTH) {
      const found = mark(text, at);
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
        put(link(found[0], found[0]));
        at += found[0].length;
      } else {
        plain += one;
        at += 1;
      }
    } else {
      plain += one;
      at += 1;
    }
  }
  put();
  return made;
}

function mark(text, at) {
  for (const [sign, make] of MARKS) {
    if (!text.startsWith(sign, at) || /\s/.test(text[at + sign.length] ?? " ")) continue;
    if (sign[0] === "_" && /[\p{L}\p{N}]/u.test(text[at - 1] ?? "")) continue; // names_with_lines
    let end = text.indexOf(sign, at + sign.length);
    while (end > 0 && (/\s/.test(text[end - 1]) || (sign.length === 1 && text[end + 1] === sign))) {
      end = text.indexOf(sign, end + (text[end + 1] === sign ? 2 : 1));
    }
    if (end > at + sign.length && !(sign[0] === "_" && /[\p{L}\p{N}]/u.test(text[end + sign.length] ?? ""))) {
      return { make, inner: text.slice(at + sign.length, end), end: end + sign.length };
    }
  }
  return null;
}
