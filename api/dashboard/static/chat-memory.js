// What this browser remembers of a chat, shared by all its tabs: channel, last delivery, and the last messages.

const KEPT = 200;
const PREFIX = "maestro.chat.";
const LEFT = "maestro.left";
const EMPTY = { channelId: "", lastId: 0, resumeToken: "", instance: "", entries: [] };

export class Memory {
  constructor(name) {
    this.key = PREFIX + name;
    this.fallback = { ...EMPTY };
  }

  read() {
    try {
      const kept = JSON.parse(localStorage.getItem(this.key));
      return kept && Array.isArray(kept.entries) ? { ...EMPTY, ...kept } : { ...EMPTY, ...this.fallback };
    } catch {
      return { ...EMPTY, ...this.fallback }; // storage is off or damaged: the tab remembers for itself
    }
  }

  // Every change starts from what is stored now, since another tab may have changed it.
  change(edit) {
    const state = this.read();
    edit(state);
    state.entries = trimmed(state.entries);
    this.fallback = state;
    try {
      localStorage.setItem(this.key, JSON.stringify(state));
    } catch {
      localStorage.removeItem(this.key); // full: better one tab that is right than all with old news
    }
    return state;
  }

  forget(channelId) {
    return this.change((state) => Object.assign(state, { channelId, lastId: 0, entries: [] }));
  }

  unacknowledged() {
    return this.read().entries.filter((entry) => entry.state === "sending");
  }

  watch(changed, left) {
    addEventListener("storage", (event) => {
      if (event.key === LEFT) {
        this.fallback = { ...EMPTY };
        left();
      } else if (event.key === this.key || event.key === null) changed();
    });
  }
}

// Every chat of this browser, and in its other tabs as well.
export function forgetEverything() {
  try {
    localStorage.setItem(LEFT, String(Date.now()));
    for (const key of Object.keys(localStorage)) if (key.startsWith(PREFIX)) localStorage.removeItem(key);
  } catch { /* storage is off: nothing is kept */ }
}

function trimmed(entries) {
  const spare = entries.length - KEPT;
  return spare > 0 ? entries.filter((entry, at) => at >= spare || entry.state === "sending") : entries;
}
