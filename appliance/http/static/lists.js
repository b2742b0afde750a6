// What stands beside the conversation: the list of threads, tasks, and what waits for a decision.

import { escapeExact, escapeInvisible } from "./invisible.js";
import { element } from "./markdown.js";
import { day, moment } from "./moments.js";

const byId = (id) => document.getElementById(id);
const SOON_MS = 300;
const PAGE = 30;

class Listing {
  constructor(app) {
    this.app = app;
    this.timer = 0;
  }

  refreshSoon() {
    this.timer ||= setTimeout(() => {
      this.timer = 0;
      this.refresh();
    }, SOON_MS);
  }
}

export class Threads extends Listing {
  constructor(app) {
    super(app);
    this.count = PAGE;
    const find = byId("find");
    find.addEventListener("input", () => this.refreshSoon());
    byId("find-form").addEventListener("submit", (event) => {
      event.preventDefault();
      this.refresh();
    });
    byId("more-threads").addEventListener("click", () => {
      this.count += PAGE;
      this.refresh();
    });
  }

  async refresh() {
    const query = byId("find").value.trim();
    if (query) return this.search(query);
    byId("found").textContent = "";
    return this.list();
  }

  // What was said that holds the letters, the newest first; each opens its conversation.
  async search(query) {
    const told = await this.app.core.call("history.list", { query, last: 20 }).catch((error) => ({ error }));
    if (byId("find").value.trim() !== query) return; // other letters were typed meanwhile
    const found = told.error ? [] : told;
    byId("found").textContent = told.error ? told.error.message : `${found.length} found`;
    byId("more-threads").hidden = true;
    const rows = found.map((one) => {
      const said = element("span", { class: "said" }, one.text);
      const small = element("small", {}, `${one.role === "assistant" ? "Owl" : one.sender}, ${day(one.at_ms)}`);
      const button = element("button", { type: "button", "data-id": one.run }, said, small);
      button.addEventListener("click", () => this.app.openThread(one.run));
      return element("li", {}, button);
    });
    const none = element("li", { class: "none" }, told.error?.message ?? "No messages found.");
    byId("threads").replaceChildren(...(rows.length ? rows : [none]));
    this.mark();
  }

  async list() {
    const found = await this.app.core.call("thread.list", { limit: Math.min(1000, this.count + 1) }).catch(() => null);
    if (!found || byId("find").value.trim()) return;
    byId("more-threads").hidden = found.length <= this.count;
    const list = byId("threads");
    const focused = list.contains(document.activeElement) ? document.activeElement.dataset.id : "";
    list.replaceChildren(
      ...found.slice(0, this.count).filter((one) => !one.is_hidden).map((one) => {
        const button = element(
          "button",
          { type: "button", "data-id": one.id, title: one.title },
          one.title || "Without a title",
          element("small", {}, `${moment(one.updated_ms)}${says(one)}`),
        );
        button.addEventListener("click", () => this.app.openThread(one.id));
        return element("li", {}, button);
      }),
    );
    this.mark();
    if (focused) list.querySelector(`[data-id="${CSS.escape(focused)}"]`)?.focus();
  }

  mark() {
    for (const button of byId("threads").querySelectorAll("button")) {
      if (button.dataset.id === this.app.chat.thread) button.setAttribute("aria-current", "true");
      else button.removeAttribute("aria-current");
    }
  }
}

function says(thread) {
  if (thread.status === 202) return " · waits for you";
  if (thread.status === 102) return " · answering";
  return thread.kind === "chat" || thread.kind === "ask" ? "" : ` · ${thread.kind}`;
}

export class Tasks extends Listing {
  constructor(app) {
    super(app);
    byId("new-task").addEventListener("submit", async (event) => {
      event.preventDefault();
      const name = byId("task-name");
      if (await this.tool("create_task", { name: name.value.trim() })) name.value = "";
      this.refresh();
    });
  }

  async tool(name, given) {
    try {
      const outcome = await this.app.core.call("tool.call", { name, arguments: given });
      if (outcome.status >= 400) throw new Error(outcome.hint ? `${outcome.message}: ${outcome.hint}` : outcome.message);
      return outcome;
    } catch (error) {
      byId("tasks").prepend(element("p", { class: "error", role: "alert" }, error.message));
      return null;
    }
  }

  async refresh() {
    const outcome = await this.tool("list_tasks", { limit: 100 });
    if (!outcome) return;
    const tasks = outcome.data?.tasks ?? [];
    byId("tasks").replaceChildren(...(tasks.length ? tasks.map((one) => this.card(one)) : [element("p", {}, "No tasks.")]));
  }

  card(task) {
    const actions = element("div", { class: "actions" });
    if (!["done", "complete", "completed", "failed", "cancelled"].includes(task.status)) {
      const cancel = element("button", { type: "button", "aria-label": `Cancel: ${task.name}` }, "Cancel");
      cancel.addEventListener("click", async () => {
        await this.tool("cancel_task", { id: task.id });
        this.refresh();
      });
      actions.append(cancel);
    }
    const facts = element("dl", { class: "facts" });
    for (const [name, value] of [["state", task.status], ["priority", task.priority], ["result", task.output ?? task.summary ?? task.reason]]) {
      if (value) facts.append(element("dt", {}, name), element("dd", {}, String(value)));
    }
    return element("article", { class: "card" }, element("h3", {}, `${task.id}. ${task.name}`), facts, actions);
  }
}

export class Approvals extends Listing {
  async refresh() {
    const found = await this.app.core.call("entry.waiting", {}).catch(() => null);
    if (!found) return;
    const count = byId("waiting-count");
    count.hidden = !found.length;
    count.textContent = found.length ? String(found.length) : "";
    count.setAttribute("aria-label", `${found.length} waiting`);
    const key = JSON.stringify(found.map((one) => [one.run, one.ref, one.updated_ms])) + this.app.chat.thread;
    if (key === this.key) return; // nobody's focus is lost for nothing
    this.key = key;
    const cards = await Promise.all(found.map((one) => this.card(one)));
    byId("approvals").replaceChildren(...(cards.length ? cards : [element("p", {}, "Nothing to approve.")]));
    for (const old of byId("log").querySelectorAll(".card")) old.remove();
    const here = await Promise.all(found.filter((one) => one.run === this.app.chat.thread).map((one) => this.card(one)));
    byId("log").append(...here);
    if (here.length) this.app.chat.toEnd();
  }

  async card(waiting) {
    const shown = await this.app.core.call("run.proposal", { ref: waiting.ref, run: waiting.run }).catch(() => null);
    const isQuestion = (shown?.options ?? []).length > 0 || waiting.action === "ask_user";
    const heading = element("h3", {}, isQuestion ? waiting.subject : escapeExact(`${waiting.action} ${waiting.subject}`));
    const made = element("section", { class: "card", "aria-label": "Needs your approval" }, heading);
    if (!shown) return made;
    if (shown.because) made.append(element("p", { class: "because" }, `It was caused by text from ${escapeExact(shown.because)}.`));
    if (!isQuestion && (shown.patch || (shown.text && shown.text !== waiting.subject))) {
      made.append(element("pre", { tabindex: "0", role: "region", "aria-label": "What it will do" }, shown.patch || shown.text));
    }
    const actions = element("div", { class: "actions" });
    const error = element("p", { class: "error", role: "alert" });
    const decide = (action, output = "") => this.decide(waiting, shown, action, output, error, actions);
    if (isQuestion) {
      for (const option of shown.options ?? []) {
        actions.append(element("button", { type: "button", onclick: () => decide("accept", option) }, option));
      }
      const answer = element("input", { "aria-label": `Your answer to: ${waiting.subject}` });
      actions.append(answer, element("button", { type: "button", onclick: () => answer.value && decide("accept", answer.value) }, "Answer"));
    } else {
      actions.append(element("button", { type: "button", class: "primary", onclick: () => decide("accept") }, "Approve"));
    }
    actions.append(element("button", { type: "button", onclick: () => decide("reject") }, "Reject"));
    made.append(actions, error);
    return made;
  }

  async decide(waiting, shown, action, output, error, actions) {
    for (const one of actions.querySelectorAll("button")) one.disabled = true;
    const params = { ref: waiting.ref, run: waiting.run, action, output, digest: shown.digest, wait: true };
    const isHere = waiting.run === this.app.chat.thread;
    const stream = this.app.core.stream("run.resolve", params, (name, told) => {
      if (name === "resolved") this.refreshSoon();
      else if (isHere) this.app.chat.hear(name, told);
    });
    if (isHere) this.app.chat.begin(stream);
    try {
      await stream.result;
    } catch (failure) {
      error.textContent = escapeInvisible(failure.hint ? `${failure.message}: ${failure.hint}` : failure.message);
      for (const one of actions.querySelectorAll("button")) one.disabled = false;
    } finally {
      this.app.chat.finish(stream);
      this.key = "";
      this.refreshSoon();
    }
  }
}
