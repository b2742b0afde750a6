// How long the page takes to draw texts of 100 kB that hold up a renderer, and an answer with many links as it streams: the
// time of the processor, the best of five. The goal is 50 ms for a text.

import { readFileSync } from "node:fs";
import { cpuUsage } from "node:process";

const root = new URL("../../", import.meta.url);
const page = new URL("appliance/http/static/", root);
const source = (name) => readFileSync(new URL(name, page), "utf8");
const asModule = (text) => `data:text/javascript;base64,${Buffer.from(text).toString("base64")}`;
const { render } = await import(asModule(source("markdown.js").replace("./invisible.js", asModule(source("invisible.js")))));
const [, long] = /LONG = """\n([\s\S]*?)"""/.exec(readFileSync(new URL("tests/whole/test_web_page.py", root), "utf8"));
const texts = new Function(long.replaceAll("\\\\", "\\"))()(100_000);

class Node {
  constructor(name) {
    this.tagName = name.toUpperCase();
    this.childNodes = [];
  }
  append(...nodes) {
    this.childNodes.push(...nodes);
  }
  setAttribute() {}
  addEventListener() {}
}
globalThis.document = { createElement: (name) => new Node(name), createDocumentFragment: () => new Node("") };

function took(work) {
  const times = [];
  for (let n = 0; n < 5; n += 1) {
    const begun = cpuUsage();
    work();
    const { user, system } = cpuUsage(begun);
    times.push((user + system) / 1000);
  }
  return Math.min(...times);
}

for (const [name, text] of Object.entries(texts)) console.log(`${name.padEnd(12)}${took(() => render(text)).toFixed(1).padStart(8)} ms`);
for (const one of ["and a word ", "[an owl](https://example.org/owls) "]) {
  const answer = one.repeat(Math.ceil(4000 / one.length)); // a long answer, drawn at each twentieth letter
  const ms = took(() => {
    for (let end = 20; end <= answer.length; end += 20) render(answer.slice(0, end));
  });
  console.log(`${one.trim().slice(0, 9).padEnd(12)}${(ms / 200).toFixed(2).padStart(8)} ms a frame`);
}
