// Moments as the box shows them everywhere: in its zone, whatever zone the browser is in.

const shown = { zone: undefined };

// `name` is an IANA name or +HH:MM; one that the browser does not know leaves its own zone.
export function useZone(name) {
  try {
    shown.zone = name && name !== "local" ? new Intl.DateTimeFormat([], { timeZone: name }).resolvedOptions().timeZone : undefined;
  } catch {
    shown.zone = undefined;
  }
}

export const day = (ms) => new Date(ms).toLocaleDateString([], { timeZone: shown.zone });
export const timeOfDay = (ms) => new Date(ms).toLocaleTimeString([], { timeStyle: "short", timeZone: shown.zone });
export const moment = (ms) => new Date(ms).toLocaleString([], { dateStyle: "short", timeStyle: "short", timeZone: shown.zone });
