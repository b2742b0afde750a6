// One conversation: its messages, the answer as it streams, branches, files, and what is typed.

import { escapeInvisible } from "./invisible.js";
import { element, render } from "./markdown.js";
import { timeOfDay } from "./moments.js";
import * as offline from "./offline.js";

const byId = (id) => document.getElementById(id);
const PAGE = 200;
const PIECE_BYTES = 384 * 1024; // of a file, in one frame
const MAX_FILE_BYTES = 20 * 1024 * 1024;
const MAX_PICTURE_BYTES = 1024 * 1024;
const MAX_SIDE = 1568; // pixels: models look at no more
const NOTICE_CHARS = 140;
const KEEP_MS = 300; // after what is said, to read it offline
const NEAR_PX = 120; // so near the end of the log, it follows what is added

export class Chat {
  constructor(app) {
    this.app = app;
    this.thread = "";
    this.visit = 0; // which opening of a thread this is: what belongs to an earlier one changes nothing here
    this.lastSeq = 0;
    this.shown = new Map(); // events by id
    this.order = []; // their sequence numbers, to find what came before one
    this.said = []; // the messages among them, as they are kept to be read offline
    this.keeping = 0;
    this.draft = null;
    this.text = "";
    this.frame = 0;
    this.restUntil = 0; // drawing it
    this.unsent = []; // messages that were not accepted yet, with their ids: sent again, they are taken once
    this.first = null; // the one of them that begins a conversation
    this.sending = null;
    this.model = this.role = ""; // what the open conversation is set to
    this.later = []; // what the thread's own connection says while an answer streams on another: shown when that has ended
    this.uploads = [];
    this.log = byId("log");
    this.input = byId("text");
    byId("composer").addEventListener("submit", (event) => {
      event.preventDefault();
      this.send();
    });
    this.input.addEventListener("input", () => this.fit());
    this.input.addEventListener("keydown", (event) => {
      if (event.key === "Enter" && !event.shiftKey && !event.isComposing) {
        event.preventDefault();
        this.send();
      }
    });
    byId("stop").addEventListener("click", () => this.app.core.call("run.stop", { run: this.thread }).catch((e) => this.tell(e)));
    byId("attach").addEventListener("click", () => byId("file").click());
    byId("file").addEventListener("change", (event) => {
      for (const file of event.target.files) this.upload(file);
      event.target.value = "";
    });
    this.input.addEventListener("paste", (event) => {
      for (const file of event.clipboardData?.files ?? []) {
        event.preventDefault();
        this.upload(file);
      }
    });
    const composer = byId("composer");
    for (const name of ["dragover", "dragleave", "drop"]) {
      composer.addEventListener(name, (event) => {
        event.preventDefault();
        composer.classList.toggle("is-over", name === "dragover");
        if (name === "drop") for (const file of event.dataTransfer.files) this.upload(file);
      });
    }
    byId("model").addEventListener("change", () => this.setModel());
    byId("role").addEventListener("change", () => this.setRole());
    this.input.value = sessionStorage.getItem("typed") ?? "";
    this.fit();
  }

  fit() {
    sessionStorage.setItem("typed", this.input.value);
    this.input.style.height = "auto";
    this.input.style.height = `${this.input.scrollHeight + 2}px`;
  }

  tell(error) {
    const notice = byId("notice");
    notice.textContent = error ? escapeInvisible(error.hint ? `${error.message}: ${error.hint}` : error.message) : "";
    notice.hidden = !error;
  }

  // -- who answers ---------------------------------------------------------------------------------

  // The pools that there are; nothing to choose where there is one.
  async showModels() {
    const status = await this.app.core.call("core.status").catch(() => null);
    const pools = Object.keys(status?.pools ?? {});
    const chosen = byId("model").value;
    const usual = element("option", { value: "" }, `${status?.default_pool ?? "the usual model"} (usual)`);
    const others = pools.filter((one) => one !== status.default_pool).map((one) => element("option", { value: one }, one));
    byId("model").replaceChildren(usual, ...others);
    byId("model-label").hidden = others.length === 0;
    this.markModel(chosen);
  }

  markModel(name) {
    const select = byId("model");
    const isThere = [...select.options].some((one) => one.value === name);
    if (!isThere) select.append(element("option", { value: name }, name)); // a route that was chosen elsewhere
    select.value = name;
    this.model = name;
  }

  // In a conversation that is there at once; a new one takes it along with its first message.
  async setModel() {
    const model = byId("model").value;
    if (!this.thread) return;
    await this.set("run.config", { settings: { model } }, () => this.markModel(model), () => this.markModel(this.model));
  }

  // Who may answer in a conversation that has begun; nothing to choose where there is only the assistant.
  async showRoles() {
    const roles = await this.app.core.call("role.list").catch(() => []);
    const others = roles.filter((one) => one.may_answer && one.name !== "assistant").map((one) => element("option", { value: one.name }, one.name));
    byId("role").replaceChildren(element("option", { value: "" }, "assistant"), ...others);
    this.markRole(this.role);
  }

  markRole(name) {
    const select = byId("role");
    const isThere = [...select.options].some((one) => one.value === name);
    if (!isThere) select.append(element("option", { value: name }, name));
    select.value = this.role = name;
    byId("role-label").hidden = !this.thread || select.options.length < 2;
  }

  async setRole() {
    const role = byId("role").value;
    await this.set("role.use", { role }, () => this.markRole(role), () => this.markRole(this.role));
  }

  // Change what the open conversation is set to; what is refused is said, and the choice goes back to what holds.
  async set(method, params, done, undo) {
    const { visit } = this;
    try {
      await this.app.core.call(method, { run: this.thread, ...params });
      if (visit !== this.visit) return;
      done();
      this.tell(null);
    } catch (error) {
      if (visit !== this.visit) return;
      undo();
      this.tell(error);
    }
  }

  // -- a thread ------------------------------------------------------------------------------------

  async open(id) {
    const sending = this.sending;
    this.sending = null; // before it is closed: what comes of that is nothing about the next thread
    this.later = [];
    sending?.close();
    this.visit += 1;
    this.thread = id;
    this.lastSeq = 0;
    this.empty();
    byId("branches").hidden = true;
    byId("stop").hidden = true;
    byId("title").textContent = "New conversation";
    byId("title").title = "";
    document.title = "Owlbox";
    this.markModel("");
    this.markRole("");
    if (!id) return;
    try {
      const { thread } = await this.app.core.call("thread.view", { id, after: Number.MAX_SAFE_INTEGER, limit: 1 });
      if (this.thread !== id) return;
      this.lastSeq = thread.last_seq;
      this.setThread(thread);
      this.markModel(thread.settings?.model ?? "");
      if (thread.parent) await this.loadPath(id);
      else await this.loadPage(id, Math.max(0, thread.last_seq - PAGE), thread.last_seq);
      this.toEnd();
      await this.showBranches();
      this.app.approvals.refresh();
    } catch (error) {
      this.tell(error);
    }
  }

  empty() {
    this.shown.clear();
    this.order = [];
    this.said = [];
    this.endDraft();
    this.tell(null);
    this.log.replaceChildren();
  }

  // The conversation that was open last, without a network.
  showKept(last) {
    this.empty();
    this.thread = last.thread;
    byId("title").textContent = last.title;
    for (const event of last.events) this.show(event);
    this.toEnd();
  }

  keepSoon(event) {
    const { id, seq, kind, role, content, sender_id, at_ms, input } = event;
    this.said.push({ id, seq, kind, role, content, sender_id, at_ms, input: input?.own > 0 ? { own: input.own } : null });
    clearTimeout(this.keeping);
    this.keeping = setTimeout(() => {
      const { person, zone } = this.app;
      if (this.thread && person) offline.keep({ person, zone, thread: this.thread, title: byId("title").textContent, events: this.said });
    }, KEEP_MS);
  }

  async loadPath(id) {
    // A fork begins with what was said before it, in another run.
    for (let offset = 0, hasMore = true; hasMore && this.thread === id; ) {
      const page = await this.app.core.call("run.path", { run: id, offset, limit: PAGE });
      for (const event of page.events) this.show(event);
      offset += page.events.length;
      hasMore = page.has_more && page.events.length > 0;
    }
  }

  async loadPage(id, after, until, before = null) {
    const events = [];
    for (let hasMore = true, from = after; hasMore && from < until; ) {
      const page = await this.app.core.call("thread.view", { id, after: from, limit: PAGE });
      events.push(...page.events.filter((one) => one.seq <= until));
      hasMore = page.has_more && page.events.length > 0;
      from = page.events.at(-1)?.seq ?? until;
    }
    if (this.thread !== id) return;
    for (const event of events) this.show(event, before);
    this.order.sort((a, b) => a - b);
    if (after > 0) {
      const more = element("button", { type: "button", class: "older" }, "Show what was said before");
      more.addEventListener("click", async () => {
        const height = this.log.scrollHeight;
        const next = more.nextSibling;
        more.remove();
        await this.loadPage(id, Math.max(0, after - PAGE), after, next);
        this.log.scrollTop += this.log.scrollHeight - height;
      });
      this.log.prepend(more);
    }
  }

  setThread(thread) {
    const title = escapeInvisible(thread.title || "Conversation");
    byId("title").textContent = byId("title").title = title; // one that is cut is seen whole by pointing at it
    document.title = `${title} · Owlbox`;
    this.markRole(thread.role ?? "");
    const isBusy = thread.status === 102 || this.sending !== null;
    byId("stop").hidden = !isBusy;
    if (!isBusy && !this.sending) this.endDraft();
  }

  // What the connection that follows the open thread says. Two connections may overtake each other: while an answer streams,
  // only what other people say is shown at once.
  follow(name, params) {
    if (name === "event" && params.run !== this.thread) return; // of the thread that was open before
    if (name === "event") this.lastSeq = Math.max(this.lastSeq, params.seq);
    if (this.sending && name === "event" && params.role !== "user") this.later.push(params);
    else this.hear(name, params);
  }

  // What is said of the open thread, or of an answer in it as it streams.
  hear(name, params) {
    if (name === "event") {
      if (params.run && params.run !== this.thread) return;
      const isNear = this.isNear();
      this.show(params);
      if (isNear) this.toEnd();
    } else if (name === "thread" && params.id === this.thread) {
      this.setThread(params);
    } else if (name === "delta") {
      this.addDraft(params.text);
    } else if (name === "proposal") {
      this.app.approvals.refreshSoon();
    }
  }

  show(event, before = null) {
    if (this.shown.has(event.id)) return;
    if (event.role === "user") this.dropRow(event.content);
    const made = this.build(event);
    this.shown.set(event.id, made);
    this.order.push(event.seq);
    if (event.kind === "message" && !before) this.keepSoon(event);
    if (event.role === "assistant" && event.kind === "message") this.endDraft();
    if (!made) return;
    if (event.kind === "tool_result") {
      const use = this.log.querySelector(`[data-call="${CSS.escape(event.call_id)}"]`);
      if (use) {
        use.append(made);
        return;
      }
    }
    this.log.insertBefore(made, before ?? this.draft);
  }

  // A message as it was sent gives way to the message as the core has it.
  dropRow(text) {
    const rows = [...this.log.querySelectorAll(".message.user[aria-busy]")];
    const shown = escapeInvisible(text);
    rows.find((one) => shown.startsWith(one.querySelector(".body").textContent))?.remove();
  }

  build(event) {
    if (event.kind === "message" && event.role === "user") {
      const own = event.input?.own;
      const text = own > 0 ? event.content.slice(0, own) : event.content;
      const body = element("div", { class: "body" }, text);
      const made = this.frameOf("user", event.sender_id || "You", body, event);
      if (own > 0) {
        body.append(element("details", {}, element("summary", {}, "attached text"), element("pre", {}, event.content.slice(own).trim())));
      }
      return made;
    }
    if (event.kind === "message" && event.role === "assistant") {
      if (!event.content.trim()) return null;
      return this.frameOf("assistant", "Owl", element("div", { class: "body" }, render(event.content)), event);
    }
    if (event.kind === "tool_use") {
      const given = JSON.stringify(event.input ?? {}, null, 1);
      const summary = element("summary", {}, `used ${event.tool}`);
      return element("details", { class: "tool", "data-call": event.call_id }, summary, element("pre", {}, given));
    }
    if (event.kind === "tool_result") return element("pre", {}, event.content);
    if (event.kind === "thinking") {
      return element("details", { class: "tool" }, element("summary", {}, "thought"), element("pre", {}, event.content));
    }
    if (event.kind === "status_change" && event.status >= 400) {
      return this.frameOf("system failed", "", element("div", { class: "body" }, event.content || event.outcome), null);
    }
    return null;
  }

  frameOf(kind, who, body, event) {
    const head = element("header", {}, element("span", { class: "who" }, who));
    if (event) {
      head.append(element("time", { datetime: new Date(event.at_ms).toISOString() }, timeOfDay(event.at_ms)));
      const isUser = event.role === "user";
      const label = isUser ? "Ask again" : "Branch here";
      const button = element("button", { type: "button", "aria-label": `${label}: ${event.content.slice(0, 60)}` }, label);
      button.addEventListener("click", () => (isUser ? this.askAnew(event) : this.fork(event)));
      head.append(button);
    }
    return element("article", { class: `message ${kind}`, "aria-label": who || "Note" }, head, body);
  }

  isNear() {
    return this.log.scrollHeight - this.log.scrollTop - this.log.clientHeight < NEAR_PX;
  }

  toEnd() {
    this.log.scrollTop = this.log.scrollHeight;
  }

  // -- the answer as it comes ----------------------------------------------------------------------

  addDraft(text) {
    if (!this.draft) {
      this.text = "";
      this.body = element("div", { class: "body working" });
      this.draft = element("article", { class: "message assistant", "aria-label": "Owl" }, element("header", {}, element("span", { class: "who" }, "Owl")), this.body);
      this.log.append(this.draft);
      this.log.setAttribute("aria-busy", "true"); // read out when it is whole, not piece by piece
    }
    this.text += text;
    this.drawSoon();
  }

  // At the next frame, but in a tenth of the time at most: a long answer is drawn less often.
  drawSoon() {
    this.frame ||= requestAnimationFrame(() => {
      this.frame = 0;
      if (!this.draft) return;
      const began = performance.now();
      if (began < this.restUntil) return this.drawSoon();
      const isNear = this.isNear();
      this.body.replaceChildren(render(this.text));
      if (isNear) this.toEnd();
      this.restUntil = performance.now() + 9 * (performance.now() - began);
    });
  }

  endDraft() {
    cancelAnimationFrame(this.frame);
    this.frame = 0;
    this.draft?.remove();
    this.draft = null;
    this.log.removeAttribute("aria-busy");
  }

  // -- sending -------------------------------------------------------------------------------------

  send() {
    const text = this.input.value.trim();
    if (this.uploads.some((one) => !one.name)) return this.tell(new Error("a file is still on its way"));
    if (!text && !this.uploads.length) return undefined;
    const params = { text: text || "Look at this.", message_id: newId(), thread: this.thread };
    if (!this.thread && byId("model").value) params.model = byId("model").value;
    if (this.uploads.length) params.uploads = this.uploads.map((one) => one.name);
    this.uploads = [];
    byId("uploads").replaceChildren();
    this.input.value = "";
    this.fit();
    this.tell(null);
    const row = this.frameOf("user", this.app.person, element("div", { class: "body" }, params.text), null);
    row.setAttribute("aria-busy", "true"); // until the core has it
    this.log.append(row);
    this.toEnd();
    const entry = { params, row, visit: this.visit, context: this.app.core.context, isOnItsWay: false };
    this.unsent.push(entry);
    return this.deliver(entry);
  }

  // Messages that were on their way when the connection was lost, or that wait for the first of their conversation.
  // Those of another context wait until it is chosen again.
  resume() {
    for (const entry of [...this.unsent]) if (!entry.isOnItsWay && entry.context === this.app.core.context) this.deliver(entry);
  }

  // Files belong to the context that they were uploaded in, and another one has a first message of its own.
  leaveContext() {
    this.first = null;
    this.uploads = [];
    byId("uploads").replaceChildren();
  }

  forget(entry) {
    this.unsent = this.unsent.filter((one) => one !== entry);
    if (this.first === entry) this.first = null;
  }

  async deliver(entry) {
    const { params } = entry;
    const isHere = () => entry.visit === this.visit;
    if (!params.thread && isHere() && this.thread) params.thread = this.thread;
    if (!params.thread && this.first && this.first !== entry) return; // one message begins a conversation, others follow it
    if (!params.thread) this.first = entry;
    entry.isOnItsWay = true;
    const stream = this.app.core.stream("message.send", params, (name, told) => {
      if (name === "accepted") {
        this.forget(entry);
        if (isHere() && !this.thread) {
          this.thread = told.run;
          this.markRole("");
          this.app.connect(); // follow the thread that has just begun, and send what waits for it
        }
        return;
      }
      if (this.sending === stream) this.hear(name, told);
    });
    if (isHere()) this.begin(stream);
    try {
      await stream.result;
      this.forget(entry);
    } catch (error) {
      entry.isOnItsWay = false;
      const isAccepted = !this.unsent.includes(entry);
      if (error.outcome === "connection_lost") {
        if (!isAccepted) this.app.setAway();
      } else {
        this.forget(entry);
        entry.row.remove();
        if (!isAccepted && !this.input.value) this.input.value = params.text;
        this.fit();
        this.tell(error);
      }
    } finally {
      this.finish(stream);
      this.app.threads.refreshSoon();
      this.app.approvals.refreshSoon();
    }
  }

  // How an answer goes on after a decision, on a connection of its own.
  begin(stream) {
    this.sending = stream;
    byId("stop").hidden = false;
    this.addDraft(""); // a model may have to be loaded first: something is seen to go on
    this.toEnd();
  }

  // The answer on this connection has ended: show what came on the other meanwhile.
  finish(stream) {
    if (this.sending !== stream) return;
    this.sending = null;
    this.endDraft();
    byId("stop").hidden = true;
    for (const event of this.later.splice(0)) this.hear("event", event);
  }

  showNotice(notice) {
    // An answer that nobody listened to stands in its thread: here it is only said where.
    if (notice.seq && notice.run === this.thread) return;
    const isNear = this.isNear();
    const body = element("div", { class: "body" });
    if (notice.run && notice.run !== this.thread) {
      const open = element("button", { type: "button", onclick: () => this.app.openThread(notice.run) }, "Open it");
      const text = notice.text.length > NOTICE_CHARS ? `${notice.text.slice(0, NOTICE_CHARS)}…` : notice.text;
      body.append(element("p", {}, `In another conversation: ${text}`), open);
    } else body.append(render(notice.text));
    const made = this.frameOf("system", "Notice", body, null);
    this.log.insertBefore(made, this.draft);
    if (isNear) this.toEnd();
  }

  // -- branches ------------------------------------------------------------------------------------

  async fork(event) {
    try {
      const made = await this.app.core.call("run.fork", { run: this.thread, seq: event.seq });
      await this.app.openThread(made.id);
    } catch (error) {
      this.tell(error);
    }
  }

  async askAnew(event) {
    const before = this.order.filter((one) => one < event.seq).at(-1) ?? 0;
    try {
      await this.app.core.call("run.jump", { run: this.thread, seq: before });
      await this.app.openThread(this.thread);
      this.input.value = event.content.slice(0, event.input?.own > 0 ? event.input.own : undefined);
      this.fit();
      this.input.focus();
    } catch (error) {
      this.tell(error);
    }
  }

  async showBranches() {
    const id = this.thread;
    const bar = byId("branches");
    const found = id ? await this.app.core.call("run.tree", { run: id }).catch(() => []) : [];
    if (this.thread !== id) return;
    bar.hidden = found.length < 2;
    bar.replaceChildren(
      element("span", {}, "Branches:"),
      ...found.map((one) => {
        const isOpen = one.run === id && one.is_head;
        const button = element("button", { type: "button", "aria-current": isOpen && "true" }, `${(one.text || one.alias).slice(0, 40)}, ${timeOfDay(one.at_ms)}`);
        button.addEventListener("click", async () => {
          try {
            if (!one.is_head) await this.app.core.call("run.jump", { run: one.run, seq: one.seq });
            await this.app.openThread(one.run);
          } catch (error) {
            this.tell(error);
          }
        });
        return button;
      }),
    );
  }

  // -- files ---------------------------------------------------------------------------------------

  async upload(file) {
    const entry = { name: "" };
    const remove = element("button", { type: "button", "aria-label": `Remove ${file.name}` }, "×");
    const state = element("span", { role: "status" }, `${file.name} …`);
    const row = element("li", {}, state, remove);
    const drop = () => {
      this.uploads = this.uploads.filter((one) => one !== entry);
      row.remove();
    };
    remove.addEventListener("click", drop);
    this.uploads.push(entry);
    byId("uploads").append(row);
    try {
      const name = file.name;
      file = await smaller(file);
      if (file.size > MAX_FILE_BYTES) throw new Error(`${name} is over ${MAX_FILE_BYTES / 1048576} MB`);
      const key = newId();
      for (let at = 0; at < file.size || at === 0; at += PIECE_BYTES) {
        const data = await base64(file.slice(at, at + PIECE_BYTES));
        await this.app.core.call("ingest.piece", { key, data });
        state.textContent = escapeInvisible(`${name} ${Math.min(100, Math.round(((at + PIECE_BYTES) / Math.max(1, file.size)) * 100))} %`);
      }
      const kept = await this.app.core.call("upload.keep", { key, name });
      entry.name = kept.name;
      state.textContent = escapeInvisible(`${kept.name}, ${Math.max(1, Math.round(kept.size_bytes / 1024))} kB${kept.note ? `: ${kept.note}` : ""}`);
      if (kept.is_image) {
        const picture = element("img", { alt: "" });
        picture.src = URL.createObjectURL(file);
        picture.addEventListener("load", () => URL.revokeObjectURL(picture.src));
        row.prepend(picture);
      }
    } catch (error) {
      drop();
      this.tell(error);
    }
  }
}

// A photograph in a size that models take; anything else, and what the browser cannot read, as it is.
async function smaller(file) {
  if (!/^image\/(jpeg|png|webp)$/.test(file.type) || file.size <= MAX_PICTURE_BYTES) return file;
  try {
    const picture = await createImageBitmap(file);
    const scale = Math.min(1, MAX_SIDE / Math.max(picture.width, picture.height));
    const canvas = element("canvas", { width: Math.round(picture.width * scale), height: Math.round(picture.height * scale) });
    canvas.getContext("2d").drawImage(picture, 0, 0, canvas.width, canvas.height);
    const made = await new Promise((resolve) => canvas.toBlob(resolve, "image/jpeg", 0.85));
    return made && made.size < file.size ? made : file;
  } catch {
    return file;
  }
}

async function base64(blob) {
  const bytes = new Uint8Array(await blob.arrayBuffer());
  let text = "";
  for (let at = 0; at < bytes.length; at += 0x8000) text += String.fromCharCode(...bytes.subarray(at, at + 0x8000));
  return btoa(text);
}

function newId() {
  return [...crypto.getRandomValues(new Uint8Array(16))].map((one) => one.toString(16).padStart(2, "0")).join("");
}
