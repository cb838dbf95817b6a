// Keeps the parts of a page up to date that are marked with data-live (milliseconds between two looks).
//
// Each look asks for the page anew, with the tag of what is shown; a server with no news answers 304 without work.
// What differs is morphed into the page, so that typing, focus, selection and open details stay. Hidden tabs rest.

const SLOWEST = 30000;
const LIVE = "Live";
const SILENT = "No answer";
const state = document.getElementById("live-state");
const parts = [...document.querySelectorAll("[data-live]")];
const looks = new Map(parts.map((part) => [part, { tag: "", failures: 0, timer: 0, asking: false }]));

function pause(part, look) {
  return Math.min(Number(part.dataset.live) * 2 ** look.failures, SLOWEST);
}

function plan(part, look) {
  clearTimeout(look.timer);
  if (!document.hidden && part.isConnected) look.timer = setTimeout(() => ask(part), pause(part, look));
}

function ask(part) {
  const look = looks.get(part);
  if (document.hidden || look.asking) return;
  look.asking = true;
  window.htmx.trigger(part, "look");
}

function tell(words) {
  state.hidden = false;
  state.dataset.state = words === LIVE ? "online" : "offline";
  if (state.lastElementChild.textContent !== words) state.lastElementChild.textContent = words;
}

export function refresh() {
  if (!parts.length) return location.reload();
  for (const part of parts) ask(part);
}

document.addEventListener("htmx:config:request", ({ detail }) => {
  const look = looks.get(detail.ctx.sourceElement);
  if (look?.tag) detail.ctx.request.headers["If-None-Match"] = look.tag;
});

document.addEventListener("htmx:before:response", (event) => {
  const { ctx } = event.detail;
  const look = looks.get(ctx.sourceElement);
  if (!look) return;
  const { status, headers, raw } = ctx.response;
  // A login page or an error must not take the place of what is shown.
  const ours = status === 304 || (status === 200 && !raw?.redirected);
  if (status === 200 && ours) look.tag = headers.get("ETag") ?? "";
  look.failures = ours ? 0 : look.failures + 1;
  tell(ours ? LIVE : status === 401 || raw?.redirected ? "Logged out" : SILENT);
  if (!ours) event.preventDefault();
});

document.addEventListener("htmx:error", ({ detail }) => {
  const look = looks.get(detail?.ctx?.sourceElement);
  if (!look) return;
  look.failures += 1;
  tell(SILENT);
});

document.addEventListener("htmx:finally:request", ({ detail }) => {
  const look = looks.get(detail.ctx.sourceElement);
  if (!look) return;
  look.asking = false;
  plan(detail.ctx.sourceElement, look);
});

document.addEventListener("visibilitychange", () => {
  for (const [part, look] of looks) {
    clearTimeout(look.timer);
    if (!document.hidden) ask(part);
  }
});

for (const [part, look] of looks) plan(part, look);
if (parts.length) tell(LIVE);
