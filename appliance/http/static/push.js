// Notifications on this device: switched on and off by its person, and the list of all their devices and topics.

import { element } from "./markdown.js";
import { moment } from "./moments.js";

const byId = (id) => document.getElementById(id);
const KEPT = "push"; // {id, endpoint, shows} of this browser's subscription

export class Push {
  constructor(app) {
    this.app = app;
    byId("push-on").addEventListener("click", () => this.say(() => this.switchOn()));
    byId("push-off").addEventListener("click", () => this.say(() => this.switchOff()));
    byId("push-shows").addEventListener("change", () => this.mine() && this.say(() => this.switchOn()));
  }

  mine() {
    try {
      return JSON.parse(localStorage.getItem(KEPT));
    } catch {
      return null;
    }
  }

  async say(act) {
    const note = byId("push-note");
    note.textContent = "";
    try {
      await act();
    } catch (error) {
      note.textContent = error.hint ? `${error.message}: ${error.hint}` : error.message;
    }
    await this.refresh();
  }

  async registration() {
    if (!("PushManager" in window) || !navigator.serviceWorker || !window.isSecureContext) {
      throw new Error("This browser shows notifications only on a page that is opened by https. On an iPhone, add the page to the home screen first.");
    }
    return navigator.serviceWorker.ready;
  }

  async switchOn() {
    const { key } = await this.app.core.call("push.key");
    const registration = await this.registration();
    if ((await Notification.requestPermission()) !== "granted") throw new Error("Notifications are not allowed: allow them for this page in the browser's settings.");
    const wanted = { userVisibleOnly: true, applicationServerKey: bytes(key) };
    const made = await registration.pushManager.subscribe(wanted).catch(async (error) => {
      // One that was made with another key, such as before the box was set up anew.
      const old = await registration.pushManager.getSubscription();
      if (!old) throw error;
      await old.unsubscribe();
      return registration.pushManager.subscribe(wanted);
    });
    const { endpoint, keys } = made.toJSON();
    const shows = document.querySelector("[name=push-shows]:checked").value;
    const given = { way: "push", endpoint, key: keys.p256dh, auth: keys.auth, shows, name: this.app.browserName };
    const { id } = await this.app.core.call("push.subscribe", given);
    localStorage.setItem(KEPT, JSON.stringify({ id, endpoint, shows }));
  }

  async switchOff(id = this.mine()?.id) {
    if (id === this.mine()?.id) {
      localStorage.removeItem(KEPT);
      const registration = await navigator.serviceWorker?.getRegistration();
      await (await registration?.pushManager.getSubscription())?.unsubscribe().catch(() => {});
    }
    if (id) await this.app.core.call("push.unsubscribe", { id });
  }

  // A browser may have been given another address meanwhile; a login that was ended took its device along.
  async renew() {
    const mine = this.mine();
    if (!mine) return;
    const found = await this.app.core.call("push.list").catch(() => null);
    if (!found) return;
    if (!found.some((one) => one.id === mine.id)) localStorage.removeItem(KEPT);
    else if (Notification.permission === "granted") {
      const now = await (await this.registration()).pushManager.getSubscription();
      if (now?.endpoint !== mine.endpoint) {
        await this.app.core.call("push.unsubscribe", { id: mine.id }).catch(() => {});
        this.choose(mine.shows);
        await this.switchOn();
      }
    }
  }

  choose(shows) {
    for (const one of document.querySelectorAll("[name=push-shows]")) one.checked = one.value === shows;
  }

  async refresh() {
    const mine = this.mine();
    const found = await this.app.core.call("push.list").catch(() => []);
    const isOn = found.some((one) => one.id === mine?.id);
    if (isOn) this.choose(mine.shows);
    byId("push-on").hidden = isOn;
    byId("push-off").hidden = !isOn;
    byId("push-list").replaceChildren(...found.map((one) => this.card(one, one.id === mine?.id)));
  }

  card(one, isMine) {
    const end = element("button", { type: "button" }, "Remove");
    end.addEventListener("click", () => this.say(() => this.switchOff(one.id)));
    const list = element("dl", { class: "facts" });
    const facts = [["by", `${one.way}, ${one.place}`], ["shows", one.shows === "text" ? "the text" : "a hint"], ["since", moment(one.since_ms)]];
    for (const [name, value] of facts) list.append(element("dt", {}, name), element("dd", {}, value));
    const title = element("h4", {}, isMine ? `${one.name} (this device)` : one.name);
    return element("div", { class: "card" }, title, list, element("div", { class: "actions" }, end));
  }
}

function bytes(text) {
  const plain = atob(text.replaceAll("-", "+").replaceAll("_", "/"));
  return Uint8Array.from(plain, (one) => one.charCodeAt(0));
}
