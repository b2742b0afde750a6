// The service worker: opens the page without a network, and shows notifications. Keeps the files of the page alone; what was said
// is kept by the page (offline.js). It asks nobody anything by itself.

const SHELL = "shell";
const FILES = [
  "/", "/app.js", "/chat.js", "/invisible.js", "/lists.js", "/markdown.js", "/moments.js", "/offline.js", "/push.js", "/rpc.js",
  "/style.css", "/owl.svg", "/icon-192.png", "/manifest.json",
];

self.addEventListener("install", (event) => {
  self.skipWaiting();
  event.waitUntil(caches.open(SHELL).then((cache) => cache.addAll(FILES)));
});

self.addEventListener("activate", (event) => event.waitUntil(self.clients.claim()));

self.addEventListener("fetch", (event) => {
  const { request } = event;
  const place = new URL(request.url);
  if (request.method === "GET" && place.origin === self.location.origin && FILES.includes(place.pathname)) event.respondWith(find(request, place.pathname));
});

// From the server as long as there is one, so that nobody sees an old page; else as it was last.
async function find(request, path) {
  const cache = await caches.open(SHELL);
  try {
    const answer = await fetch(request);
    if (answer.ok) await cache.put(path, answer.clone()).catch(() => {});
    return answer;
  } catch (error) {
    const known = await cache.match(path);
    if (known) return known;
    throw error;
  }
}

// What comes was encrypted for this browser. All of it is shown as text.
self.addEventListener("push", (event) => {
  let told = {};
  try {
    told = event.data.json();
  } catch {
    // nothing, or nothing that we have sent: a browser wants something shown all the same
  }
  const text = (name, usual, most) => (typeof told?.[name] === "string" ? told[name].slice(0, most) : usual);
  const shown = {
    body: text("body", "The owl has a message for you.", 2000),
    tag: text("tag", "owlbox", 64), // the same notification again takes the place of the first
    icon: "/icon-192.png",
    data: { thread: text("thread", "", 64) },
  };
  event.waitUntil(self.registration.showNotification(text("title", "Owlbox", 100), shown));
});

self.addEventListener("notificationclick", (event) => {
  event.notification.close();
  const thread = event.notification.data?.thread ?? "";
  event.waitUntil(open(/^[\w-]+$/.test(thread) ? `/#thread=${thread}` : "/"));
});

async function open(address) {
  const windows = await self.clients.matchAll({ type: "window", includeUncontrolled: true });
  const shown = windows.find((one) => one.visibilityState === "visible") ?? windows[0];
  if (!shown) return self.clients.openWindow(address);
  shown.postMessage({ open: address.split("=")[1] ?? "" });
  return shown.focus();
}
