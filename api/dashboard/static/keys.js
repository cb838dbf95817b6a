// Keys: / ? g j k x Enter Esc r t. They do nothing while somebody types, or holds Ctrl, Alt or Meta.
import { refresh } from "./live.js";

const SECOND_KEY = 1500;
const help = document.getElementById("keys-help");
const theme = document.getElementById("theme");
let going = 0;

function typing(target) {
  return target.closest?.("input:not([type=checkbox], [type=radio]), textarea, select, [contenteditable]");
}

function rows() {
  return [...document.querySelectorAll("[data-row]")].filter((row) => row.getClientRects().length);
}

function step(by) {
  const all = rows();
  if (!all.length) return;
  const at = all.findIndex((row) => row.contains(document.activeElement));
  const next = all[at < 0 ? (by > 0 ? 0 : all.length - 1) : Math.min(Math.max(at + by, 0), all.length - 1)];
  const link = next.querySelector("a[href]");
  // A line that leads nowhere is a place to stand on all the same.
  if (!link) next.tabIndex = -1;
  (link ?? next).focus();
  next.scrollIntoView({ block: "nearest" });
}

function mark() {
  const row = document.activeElement?.closest("[data-row]");
  row?.querySelector("input[type=checkbox]")?.click();
}

function changeTheme() {
  const root = document.documentElement;
  const dark = root.dataset.theme ? root.dataset.theme === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
  root.dataset.theme = dark ? "light" : "dark";
  try {
    localStorage.setItem("maestro.theme", root.dataset.theme);
  } catch {
    // Storage is off: it holds for this page.
  }
}

function leave() {
  if (help.open) return help.close();
  document.activeElement?.blur();
}

const KEYS = {
  "/": () => document.querySelector("[data-search]")?.focus(),
  "?": () => (help.open ? help.close() : help.showModal()),
  j: () => step(1),
  k: () => step(-1),
  x: mark,
  r: refresh,
  t: changeTheme,
};

document.addEventListener("keydown", (event) => {
  if (event.ctrlKey || event.altKey || event.metaKey || event.isComposing) return;
  if (event.key === "Escape") return leave();
  if (typing(event.target)) return;
  if (going && Date.now() - going < SECOND_KEY) {
    going = 0;
    const link = document.querySelector(`[data-go="${CSS.escape(event.key)}"]`);
    if (link) location.assign(link.href);
    return event.preventDefault();
  }
  if (event.key === "g") {
    going = Date.now();
    return;
  }
  const act = KEYS[event.key];
  if (!act) return;
  event.preventDefault();
  act();
});

theme.hidden = false;
theme.addEventListener("click", changeTheme);
