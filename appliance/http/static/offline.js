// What the page shows without a network: the conversation that was open last, to read. Kept in this browser while somebody is
// logged in; logging out, and a login that was ended elsewhere, removes it.

const KEPT = "last-conversation";
const MAX_EVENTS = 100;
const MAX_CHARS = 1_000_000;

export function keep(conversation) {
  if (!navigator.serviceWorker) return; // the page itself is not there offline
  const events = conversation.events.slice(-MAX_EVENTS);
  for (let text = ""; events.length; events.shift()) {
    text = JSON.stringify({ ...conversation, events });
    if (text.length > MAX_CHARS) continue;
    try {
      localStorage.setItem(KEPT, text);
    } catch {
      localStorage.removeItem(KEPT); // no room: nothing is better than an old one that looks like the last
    }
    return;
  }
}

export function kept() {
  try {
    const found = JSON.parse(localStorage.getItem(KEPT));
    return Array.isArray(found?.events) && found.person ? found : null;
  } catch {
    return null;
  }
}

export function forget() {
  localStorage.removeItem(KEPT);
}

// A page that is not encrypted, and not on this machine, has no service worker.
export function registerWorker(onOpen) {
  const { serviceWorker } = navigator;
  if (!serviceWorker) return;
  serviceWorker.register("/sw.js").catch(() => {});
  serviceWorker.addEventListener("message", (event) => {
    if (typeof event.data?.open === "string" && event.data.open) onOpen(event.data.open);
  });
}
