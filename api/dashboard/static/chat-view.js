// The list of messages on the screen: one node per entry, changed in place, never by markup from text.

import { element, format } from "./format.js";

const TICKS = {
  sending: ["M9 3a5 5 0 1 0 .01 0M9 5.5V8l1.6 1", "Sending"],
  kept: ["m4.5 7.5 3 3 6-7", "Kept by Maestro"],
  answered: ["m1.5 7.5 3 3 6-7M8.5 10.5l6-7", "Answered"],
  failed: ["M9 3.5v4.2M9 10.4v.1", "Not sent"],
};
const NAMESPACE = "http://www.w3.org/2000/svg";

export class View {
  // acts: { retry(clientId), press(id, value), file(file) }; the last returns the node of a file
  constructor({ list, scroller, jump }, acts) {
    this.list = list;
    this.scroller = scroller;
    this.jump = jump;
    this.acts = acts;
    this.nodes = new Map();
    this.follows = true;
    this.top = 0;
    scroller.addEventListener("scroll", () => {
      const isAtEnd = scroller.scrollHeight - scroller.scrollTop - scroller.clientHeight < 80;
      // Only who scrolls up leaves the end: a picture that arrives below moves nobody.
      if (isAtEnd || scroller.scrollTop < this.top) this.follows = isAtEnd;
      this.top = scroller.scrollTop;
      if (this.follows) jump.hidden = true;
    });
    jump.addEventListener("click", () => this.toEnd());
    const size = new ResizeObserver(() => { if (this.follows) this.toEnd(); });
    size.observe(scroller); // the composer grows and shrinks
    size.observe(list); // a picture comes later than its message
  }

  show(entries) {
    const wanted = new Set(entries.map(keyOf));
    for (const [key, node] of this.nodes) {
      if (!wanted.has(key)) {
        node.remove();
        this.nodes.delete(key);
      }
    }
    const added = entries.map((entry) => this.place(entry)).some(Boolean);
    if (this.follows) this.toEnd();
    else if (added) this.jump.hidden = false;
  }

  toEnd() {
    this.follows = true;
    this.jump.hidden = true;
    this.scroller.scrollTop = this.scroller.scrollHeight;
  }

  place(entry) {
    const key = keyOf(entry);
    let node = this.nodes.get(key);
    const isNew = !node;
    if (isNew) {
      node = entry.mine ? mine(entry) : theirs(entry, this.acts);
      this.nodes.set(key, node);
    }
    if (entry.mine && node.dataset.state !== entry.state) this.mark(node, entry);
    if (entry.pressed && node.dataset.pressed !== entry.pressed) settle(node, entry.pressed);
    if (isNew) this.list.append(node);
    return isNew;
  }

  mark(node, entry) {
    node.dataset.state = entry.state;
    const meta = node.querySelector(".meta");
    const said = element("span", "unseen", TICKS[entry.state][1]);
    meta.replaceChildren(time(entry.at), tick(entry.state), said);
    if (entry.state !== "failed") return;
    const again = element("button", "link", "Try again");
    again.type = "button";
    again.addEventListener("click", () => this.acts.retry(entry.clientId));
    said.className = "";
    said.textContent = entry.why || "Not sent";
    meta.append(again);
  }
}

export function keyOf(entry) {
  return entry.mine ? `m${entry.clientId}` : `t${entry.id}`;
}

function mine(entry) {
  const body = element("div", "body", entry.text);
  if (entry.files?.length) body.append(element("ul", "attached", ...entry.files.map((file) => element("li", "", file.name))));
  return element("li", "message mine", element("span", "unseen", "You: "), body, element("div", "meta"));
}

function theirs(entry, { press, file }) {
  const logo = document.querySelector(".brand .mark").cloneNode(true);
  const body = element("div", "body", format(entry.text));
  if (entry.file) body.append(file(entry.file));
  if (entry.buttons?.length) body.append(choices(entry, press));
  return element("li", "message theirs", element("span", "unseen", "Maestro: "), logo, body, element("div", "meta", time(entry.at)));
}

function choices({ id, buttons }, press) {
  const row = element("div", "choices", ...buttons.map(({ label, value }) => {
    const button = element("button", "button", label);
    button.type = "button";
    button.value = value;
    button.addEventListener("click", () => press(id, value));
    return button;
  }));
  row.setAttribute("role", "group");
  row.setAttribute("aria-label", "Answers to choose from");
  return row;
}

function settle(node, pressed) {
  node.dataset.pressed = pressed;
  for (const button of node.querySelectorAll(".choices button")) {
    button.disabled = true;
    button.setAttribute("aria-pressed", String(button.value === pressed));
  }
}

function time(at) {
  const date = new Date(at);
  const node = element("time", "", date.toLocaleTimeString([], { hour: "2-digit", minute: "2-digit" }));
  node.dateTime = date.toISOString();
  node.title = date.toLocaleString();
  return node;
}

function tick(state) {
  const path = document.createElementNS(NAMESPACE, "path");
  path.setAttribute("d", TICKS[state][0]);
  const icon = document.createElementNS(NAMESPACE, "svg");
  icon.setAttribute("viewBox", "0 0 18 14");
  icon.setAttribute("aria-hidden", "true");
  icon.append(path);
  const node = element("span", "tick", icon);
  node.title = TICKS[state][1];
  return node;
}
