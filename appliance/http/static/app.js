// The page: who is logged in, which view is shown, whether the core is there. Everything that is shown goes through text nodes.

import { Chat } from "./chat.js";
import { Approvals, Tasks, Threads } from "./lists.js";
import { element } from "./markdown.js";
import { moment, useZone } from "./moments.js";
import * as offline from "./offline.js";
import { Push } from "./push.js";
import { Core } from "./rpc.js";

const byId = (id) => document.getElementById(id);
const LONGEST_MS = 15000;

async function post(path, body) {
  const answer = await fetch(path, {
    method: "POST",
    headers: { "Content-Type": "application/json" },
    body: JSON.stringify(body),
  });
  const told = await answer.json().catch(() => ({}));
  if (!answer.ok) throw new Error(told.error?.hint ? `${told.error.message}: ${told.error.hint}` : (told.error?.message ?? "that failed"));
  return told;
}

class App {
  constructor() {
    this.core = new Core();
    this.person = "";
    this.zone = "";
    this.wanted = ""; // the thread of a notification that was touched
    this.pauseMs = 500;
    this.timer = 0;
    this.follow = null;
    this.chat = new Chat(this);
    this.threads = new Threads(this);
    this.tasks = new Tasks(this);
    this.approvals = new Approvals(this);
    this.push = new Push(this);
    this.browserName = browserOf(navigator.userAgent);
  }

  start() {
    this.setTheme(localStorage.getItem("theme") ?? "auto");
    byId("login-form").addEventListener("submit", (event) => this.logIn(event));
    byId("logout").addEventListener("click", () => this.logOut());
    byId("password-form").addEventListener("submit", (event) => this.setPassword(event));
    byId("theme").addEventListener("change", (event) => this.setTheme(event.target.value));
    byId("open-side").addEventListener("click", () => this.showSide(!byId("side").classList.contains("is-open")));
    byId("context").addEventListener("change", (event) => this.setContext(event.target.value));
    byId("new-thread").addEventListener("click", () => this.openThread(""));
    for (const button of document.querySelectorAll("[data-view]")) {
      button.addEventListener("click", () => this.showView(button.dataset.view));
    }
    document.addEventListener("pointerdown", (event) => {
      const isOpen = byId("side").classList.contains("is-open");
      if (isOpen && !byId("side").contains(event.target) && !byId("open-side").contains(event.target)) this.showSide(false);
    });
    document.addEventListener("keydown", (event) => {
      if (event.key === "Escape" && byId("side").classList.contains("is-open")) this.showSide(false);
    });
    // A phone that was asleep, a network that is back: look at once.
    document.addEventListener("visibilitychange", () => document.visibilityState === "visible" && this.hurry());
    window.addEventListener("online", () => this.hurry());
    window.addEventListener("hashchange", () => this.takeInvite());
    offline.registerWorker((thread) => this.openThread(thread));
    this.takeInvite();
  }

  async takeInvite() {
    const given = new URLSearchParams(location.hash.slice(1));
    const invite = given.get("invite");
    if (given.has("thread")) {
      history.replaceState(null, "", "/");
      this.wanted = given.get("thread");
    }
    if (invite) {
      history.replaceState(null, "", "/"); // the address is worth a login: it must not stay in the history
      try {
        await post("/login", { invite });
      } catch (error) {
        this.showLogin(error.message);
        return;
      }
    }
    this.check();
  }

  // Ask who is logged in: that tells a session that is over from a core that is away.
  async check() {
    clearTimeout(this.timer);
    this.timer = 0;
    try {
      const answer = await fetch("/session");
      if (answer.ok) {
        const { person, zone } = await answer.json();
        useZone(zone);
        this.zone = zone;
        if (!person || (offline.kept()?.person ?? person) !== person) offline.forget();
        if (!person) return this.showLogin();
        if (this.person && this.person !== person) location.reload(); // nothing of one person is shown to another
        this.person = person;
        return this.connect();
      }
    } catch {
      // no server: it may be restarting as well
    }
    this.setAway();
    return undefined;
  }

  connect() {
    const isBack = document.body.classList.contains("is-offline");
    if (isBack || this.wanted) {
      const thread = this.wanted || this.chat.thread;
      this.wanted = "";
      document.body.classList.remove("is-offline");
      return this.openThread(thread);
    }
    byId("login").hidden = true;
    byId("app").hidden = false;
    byId("who").textContent = `You are ${this.person}.`;
    this.follow?.close();
    const follow = this.core.stream("thread.follow", { id: this.chat.thread, after: this.chat.lastSeq }, (name, params) => {
      this.setHere();
      if (name === "notice") this.chat.showNotice(params);
      else this.chat.follow(name, params);
      if (name === "thread") {
        this.threads.refreshSoon();
        this.approvals.refreshSoon();
      }
    });
    this.follow = follow;
    follow.result.catch((error) => {
      if (this.follow !== follow) return;
      this.follow = null;
      if (error.outcome === "not_found") return this.openThread("");
      this.setAway();
    });
    // Without a thread the stream says nothing: a plain call tells whether the core is there.
    this.core
      .call("notice.list", { is_waiting: true })
      .then((notices) => {
        this.setHere();
        for (const one of notices) this.chat.showNotice(one);
        if (notices.length) this.core.call("notice.seen", { keys: notices.map((one) => one.key) });
        this.chat.resume();
        this.threads.refresh();
        this.showGroups();
        this.chat.showModels();
        this.chat.showRoles();
        this.approvals.refresh();
        this.push.renew().catch(() => {});
      })
      .catch(() => this.follow === follow && this.setAway());
  }

  setHere() {
    this.pauseMs = 500;
    const state = byId("state");
    if (state.textContent !== "") state.textContent = "";
    state.classList.remove("is-away");
  }

  setAway() {
    const last = byId("app").hidden ? offline.kept() : null;
    if (last) {
      useZone(last.zone);
      this.zone = last.zone;
      this.person = last.person;
      this.chat.showKept(last);
      document.body.classList.add("is-offline");
      byId("login").hidden = true;
      byId("app").hidden = false;
    } else if (byId("app").hidden) {
      byId("login-error").textContent = "No connection to Owlbox. This page keeps trying.";
      byId("login").hidden = false;
    }
    const isOffline = document.body.classList.contains("is-offline");
    byId("state").textContent = isOffline ? "Offline, to read only" : "Disconnected, reconnecting";
    byId("state").classList.add("is-away");
    this.follow?.close();
    this.follow = null;
    if (this.timer) return;
    this.timer = setTimeout(() => this.check(), this.pauseMs);
    this.pauseMs = Math.min(LONGEST_MS, this.pauseMs * 2);
  }

  hurry() {
    if (this.timer) this.check();
  }

  showLogin(error = "") {
    this.follow?.close();
    this.follow = null;
    byId("app").hidden = true;
    byId("login").hidden = false;
    byId("login-error").textContent = error;
    byId("login-name").focus();
  }

  async logIn(event) {
    event.preventDefault();
    const password = byId("login-password");
    try {
      await post("/login", { person: byId("login-name").value.trim(), password: password.value });
      byId("login-error").textContent = "";
      password.value = "";
      await this.check();
    } catch (error) {
      byId("login-error").textContent = error.message;
      password.focus();
    }
  }

  async logOut() {
    await this.push.switchOff().catch(() => {});
    await post("/logout", {}).catch(() => {});
    offline.forget();
    sessionStorage.clear();
    location.reload();
  }

  async setPassword(event) {
    event.preventDefault();
    const note = byId("password-note");
    try {
      await this.core.call("login.set_password", { password: byId("new-password").value });
      location.reload();
    } catch (error) {
      if (error.outcome === "connection_lost") location.reload(); // this login has ended, as was said
      note.textContent = error.message;
    }
  }

  async showLogins() {
    const found = await this.core.call("login.list", { person: this.person }).catch(() => []);
    byId("logins").replaceChildren(
      ...found.map((one) => {
        const end = element("button", { type: "button" }, "Sign out");
        end.addEventListener("click", async () => {
          await this.core.call("login.end", { id: one.id }).catch(() => {});
          this.showLogins();
        });
        const facts = [
          ["last used", moment(one.seen_ms)],
          ["from", one.address],
          ["until", moment(one.expires_ms)],
        ];
        const list = element("dl", { class: "facts" });
        for (const [name, value] of facts) list.append(element("dt", {}, name), element("dd", {}, value));
        return element("div", { class: "card" }, element("h4", {}, browserOf(one.agent)), list, element("div", { class: "actions" }, end));
      }),
    );
  }

  // The groups of whoever is logged in; nothing to choose where there is none.
  async showGroups() {
    const groups = await this.core.call("group.list").catch(() => null);
    if (!groups) return;
    const mine = Object.keys(groups).filter((name) => groups[name].includes(this.person));
    const options = [element("option", { value: "" }, "myself"), ...mine.map((name) => element("option", { value: `group:${name}` }, name))];
    byId("context").replaceChildren(...options);
    byId("context").value = this.core.context;
    byId("context-label").hidden = mine.length === 0;
  }

  // What was open and what waits to be sent belongs to the other: a new conversation begins.
  setContext(context) {
    this.chat.leaveContext();
    this.core.setContext(context);
    byId("find").value = "";
    this.openThread("");
  }

  setTheme(name) {
    localStorage.setItem("theme", name);
    if (name === "auto") delete document.documentElement.dataset.theme;
    else document.documentElement.dataset.theme = name;
    for (const one of document.querySelectorAll("[name=theme]")) one.checked = one.value === name;
  }

  showSide(isOpen) {
    byId("side").classList.toggle("is-open", isOpen);
    byId("open-side").setAttribute("aria-expanded", String(isOpen));
    if (isOpen) byId("new-thread").focus();
    else if (byId("side").contains(document.activeElement)) byId("open-side").focus();
  }

  showView(name) {
    for (const button of document.querySelectorAll("[data-view]")) {
      if (button.dataset.view === name) button.setAttribute("aria-current", "page");
      else button.removeAttribute("aria-current");
      byId(`view-${button.dataset.view}`).hidden = button.dataset.view !== name;
    }
    if (name === "tasks") this.tasks.refresh();
    if (name === "approvals") this.approvals.refresh();
    if (name === "settings") {
      this.showLogins();
      this.push.refresh();
    }
    if (name === "chat") byId("text").focus();
  }

  // Show a thread, or with "" begin a new one with the next message.
  async openThread(id) {
    this.showSide(false);
    this.showView("chat");
    const before = this.follow;
    this.follow = null; // first, so that its end is no news
    before?.close();
    await this.chat.open(id);
    this.threads.mark();
    this.connect();
  }
}

// The name of a browser and its system, out of all that it calls itself.
function browserOf(agent) {
  const name = ["Firefox", "Edg", "OPR", "HeadlessChrome", "Chrome", "Safari"].find((one) => agent.includes(one)) ?? agent.slice(0, 40);
  const system = ["Android", "iPhone", "iPad", "Mac OS", "Windows", "Linux"].find((one) => agent.includes(one));
  return system ? `${name} on ${system}` : name || "a program";
}

new App().start();
