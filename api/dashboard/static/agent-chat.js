// The #maestro pane: new posts appear by themselves, and nothing touches what is being typed.

const $ = (id) => document.getElementById(id);
const pane = $("pane");
const list = $("posts");
const scroller = $("scroller");
// Who only looks has no place to write.
const box = $("text");
const limit = Number(pane.dataset.limit);
const pollMs = Number(pane.dataset.pollMs);
const page = Number(pane.dataset.shown);
const NEAR_THE_END = 60;
const PATIENCE_MS = 10_000;
const RELATIVE = new Intl.RelativeTimeFormat("en", { numeric: "auto", style: "short" });
const ABSOLUTE = new Intl.DateTimeFormat(undefined, { dateStyle: "medium", timeStyle: "medium" });
const STEPS = [[60, "second", 1], [3600, "minute", 60], [86_400, "hour", 3600], [Infinity, "day", 86_400]];
let wanted = page;
let tag = "";
let timer = 0;
let asking = false;
let sending = false;

for (const part of document.querySelectorAll("#status, #keys")) part.hidden = false;
for (const time of list.querySelectorAll("time")) dated(time);
$("earlier").hidden = list.children.length < wanted;
if (box) count();
toEnd();
look();

// ---- posts ----

async function look() {
  clearTimeout(timer);
  if (document.hidden || asking) return;
  asking = true;
  try {
    const answer = await fetch(`/api/chat?limit=${wanted}`, { headers: tag ? { "If-None-Match": tag } : {}, cache: "no-store", signal: AbortSignal.timeout(PATIENCE_MS) });
    if (answer.status === 401) return loggedOut();
    if (answer.ok) {
      tag = answer.headers.get("ETag") ?? "";
      show(await answer.json());
    }
    state(answer.ok || answer.status === 304 ? "online" : "offline");
  } catch {
    state("offline");
  } finally {
    asking = false;
    clearTimeout(timer);
    timer = setTimeout(look, pollMs);
  }
}

function show(posts) {
  const follows = atEnd();
  const held = new Map([...list.children].map((item) => [Number(item.dataset.id), item]));
  const newest = Math.max(0, ...held.keys());
  const before = scroller.scrollHeight - scroller.scrollTop;
  const items = posts.map((post) => held.get(post.id) ?? made(post));
  // Only what differs is moved: a selection in a post survives.
  for (const item of held.values()) if (!items.includes(item)) item.remove();
  items.forEach((item, at) => {
    if (list.children[at] !== item) list.insertBefore(item, list.children[at] ?? null);
  });
  $("none").hidden = posts.length > 0;
  $("earlier").hidden = posts.length < wanted;
  const last = posts.at(-1)?.id ?? 0;
  if (follows) toEnd();
  else if (last > newest) $("to-end").hidden = false;
  else scroller.scrollTop = scroller.scrollHeight - before;
}

function made({ id, ts, author, text }) {
  const item = document.createElement("li");
  item.className = "post";
  item.dataset.id = id;
  const head = element("p", "post-head");
  const chip = element("span", "author", author);
  chip.dataset.hue = hue(author);
  const time = element("time");
  time.dateTime = ts;
  dated(time);
  head.append(chip, " ", time);
  item.append(head, element("p", "post-text", text));
  return item;
}

function element(name, className = "", text = "") {
  const made = document.createElement(name);
  if (className) made.className = className;
  made.textContent = text;
  return made;
}

function dated(time) {
  const moment = new Date(time.dateTime);
  const ago = Math.max(0, (Date.now() - moment) / 1000);
  const [, unit, seconds] = STEPS.find(([most]) => ago < most);
  time.title = ABSOLUTE.format(moment);
  time.textContent = ago < 10 ? "just now" : RELATIVE.format(-Math.floor(ago / seconds), unit);
}

// CRC-32, as the server chooses the colours.
function hue(author) {
  let crc = -1;
  for (const byte of new TextEncoder().encode(author)) {
    crc ^= byte;
    for (let bit = 0; bit < 8; bit += 1) crc = (crc >>> 1) ^ (crc & 1 ? 0xedb88320 : 0);
  }
  return ((crc ^ -1) >>> 0) % 6;
}

function state(now) {
  $("status").dataset.state = now;
  $("status").lastElementChild.textContent = now === "online" ? "Live" : "No connection";
}

// ---- where one looks ----

function atEnd() {
  return scroller.scrollHeight - scroller.scrollTop - scroller.clientHeight < NEAR_THE_END;
}

function toEnd() {
  scroller.scrollTop = scroller.scrollHeight;
  $("to-end").hidden = true;
}

$("to-end").addEventListener("click", toEnd);
scroller.addEventListener("scroll", () => {
  if (atEnd()) $("to-end").hidden = true;
});
$("earlier").addEventListener("click", () => {
  wanted += page;
  look();
});
document.addEventListener("visibilitychange", look);
setInterval(() => list.querySelectorAll("time").forEach(dated), 10_000);

// ---- writing ----

function count() {
  // Characters as the server counts them: an emoji is one.
  const length = [...box.value].length;
  const over = length > limit;
  $("count").dataset.over = over;
  $("count").textContent = over
    ? `${length.toLocaleString()} characters: it will be cut to ${limit.toLocaleString()}`
    : `${length.toLocaleString()} / ${limit.toLocaleString()}`;
}

async function send() {
  const text = box.value;
  if (sending || !text.trim()) return;
  sending = true;
  $("send").disabled = true;
  try {
    const answer = await fetch("/api/chat", {
      method: "POST",
      headers: { "Content-Type": "application/json", "X-CSRF-Token": document.querySelector('meta[name="csrf-token"]').content },
      body: JSON.stringify({ text }),
    });
    if (answer.status === 401) return loggedOut();
    if (!answer.ok) throw new Error((await answer.json()).message);
    if (box.value === text) box.value = "";
    notice("");
    count();
    toEnd();
    look();
  } catch (error) {
    notice(error instanceof TypeError ? "No connection to Maestro; what you wrote is still here." : error.message);
  } finally {
    sending = false;
    $("send").disabled = false;
    box.focus();
  }
}

// The login page would take what is being typed away.
function loggedOut() {
  if (!box?.value) return location.reload();
  state("offline");
  notice("Your login has ended. Copy what you wrote, and reload the page to log in again.");
}

function notice(text) {
  if ($("notice").textContent === text) return;
  $("notice").textContent = text;
  $("notice").hidden = !text;
}

$("composer")?.addEventListener("submit", (event) => {
  event.preventDefault();
  send();
});
box?.addEventListener("input", count);
box?.addEventListener("keydown", (event) => {
  if (event.key === "Enter" && !event.shiftKey && !event.isComposing) {
    event.preventDefault();
    send();
  }
});
