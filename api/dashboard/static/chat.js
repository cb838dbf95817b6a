// The chat page: what people type goes out once, what agents answer comes in once, whatever the network does.

import { Connection } from "./chat-connection.js";
import { Downloads } from "./chat-downloads.js";
import { Files } from "./chat-files.js";
import { Memory } from "./chat-memory.js";
import { View } from "./chat-view.js";

const TYPING_LASTS = 10_000;
const LIMIT = 300_000;
const BUSY = new Set(["Backlogged", "ShuttingDown", "StoreBusy"]);
const BUSY_WAIT = 3000;
const $ = (id) => document.getElementById(id);
const root = $("chat");
const url = socketUrl(root.dataset.webUrl);
const memory = new Memory(root.dataset.channel || "main");
const downloads = new Downloads(httpUrl(url), memory);
const view = new View({ list: $("messages"), scroller: $("scroller"), jump: $("to-end") }, { retry, press, file: (file) => downloads.node(file) });
const files = new Files($("files"), httpUrl(url) + "api/upload", memory, ready);
const connection = new Connection(url, memory, { state, frame, channelLost });
const OFFLINE = "No connection to Maestro. What you write is kept here and sent as soon as it is back.";
const OFF = "The web connector is off, so there is no chat here: set web.enabled to true and start Maestro again.";
const pageTitle = document.title;
let typingTimer = 0;
let unread = 0;

if (!memory.read().channelId && root.dataset.channel) memory.forget(root.dataset.channel);
memory.watch(show, signedOut);
show();
ready();
if (root.dataset.webUrl) connection.start();
else state("refused", "Off");

// ---- in ----

function frame(message) {
  const receive = { auth_ok: resend, resumed, ack, message: answer, typing, error: refused }[message.type];
  if (receive) receive(message);
}

// Lower than ours where Maestro's store was replaced by an older one.
function resumed({ lastId }) {
  memory.change((kept) => { kept.lastId = lastId; });
}

function answer({ id, content, replyTo, notice: byMaestro, buttons, file }) {
  memory.change((kept) => {
    kept.lastId = Math.max(kept.lastId, id);
    if (kept.entries.some((entry) => entry.id === id)) return;
    // Answers come in order, and one may be for several messages: then it replies to the last of them.
    const last = kept.entries.findIndex((entry) => entry.messageId === replyTo);
    kept.entries.forEach((entry, at) => {
      const meant = !replyTo || at === last || (at < last && !byMaestro);
      if (entry.state === "kept" && meant) entry.state = "answered";
    });
    kept.entries.push({ id, text: content, at: Date.now(), ...(buttons ? { buttons } : {}), ...(file ? { file } : {}) });
  });
  stopTyping();
  if (document.hidden) document.title = `(${(unread += 1)}) ${pageTitle}`;
  show();
}

function ack({ clientId, messageId }) {
  edit(clientId, { state: "kept", messageId });
}

function refused({ clientId, message, error }) {
  if (clientId && BUSY.has(error)) setTimeout(resend, BUSY_WAIT);
  else if (clientId) edit(clientId, { state: "failed", why: message });
  else notice(message, "error");
}

function typing() {
  $("typing").hidden = false;
  $("stop").hidden = false;
  clearTimeout(typingTimer);
  typingTimer = setTimeout(stopTyping, TYPING_LASTS);
  if (view.follows) view.toEnd();
}

function stopTyping() {
  clearTimeout(typingTimer);
  $("typing").hidden = true;
  $("stop").hidden = true;
  $("stop").disabled = false;
}

// ---- out ----

function submit() {
  const text = $("text").value.trim();
  if (!sendable()) return;
  say(text, files.ready);
  $("text").value = "";
  files.clear();
  ready();
}

function say(text, attached = []) {
  const entry = { mine: true, clientId: newId(), text, files: attached, at: Date.now(), state: "sending" };
  memory.change((kept) => kept.entries.push(entry));
  view.follows = true;
  show();
  transmit(entry);
}

// A button says its value, as if the person had typed it; what was pressed is not pressed again by mistake.
function press(id, value) {
  memory.change((kept) => {
    const entry = kept.entries.find((other) => other.id === id);
    if (entry) entry.pressed = value;
  });
  say(value);
}

function transmit({ clientId, text, files: attached }) {
  const attachments = (attached || []).map((file) => file.id);
  return connection.send({ type: "message", clientId, content: text, ...(attachments.length ? { attachments } : {}) });
}

// Without an ack a message may or may not have arrived: it is sent again under the same id.
function resend() {
  memory.unacknowledged().forEach(transmit);
}

function retry(clientId) {
  edit(clientId, { state: "sending", why: "" });
  memory.unacknowledged().filter((entry) => entry.clientId === clientId).forEach(transmit);
}

function edit(clientId, changes) {
  memory.change((kept) => {
    const entry = kept.entries.find((other) => other.mine && other.clientId === clientId);
    if (entry && (entry.state === "sending" || entry.state === "failed")) Object.assign(entry, changes);
  });
  show();
}

function newChat() {
  connection.close();
  if (root.dataset.channel) memory.change((kept) => { kept.entries = []; });
  else memory.forget("");
  stopTyping();
  show();
  connection.restart();
  $("text").focus();
}

function channelLost(why) {
  memory.forget(root.dataset.channel);
  show();
  notice(why);
}

// Somebody logged out in another tab.
function signedOut() {
  connection.close();
  location.reload();
}

// ---- on the screen ----

function show() {
  const { entries } = memory.read();
  $("welcome").hidden = entries.length > 0;
  view.show(entries);
}

function state(name, text) {
  $("status").dataset.state = name;
  $("status").lastElementChild.textContent = text;
  if (name === "offline") notice(OFFLINE, "connection", ["Retry now", () => connection.retryNow()]);
  if (name === "refused") notice(root.dataset.webUrl ? "You are signed out." : OFF, "error", ["Reload the page", () => location.reload()]);
  if (name === "online" && $("notice").dataset.kind === "connection") notice("");
  if (name !== "online") stopTyping();
}

function notice(text, kind = "", action = null) {
  const box = $("notice");
  const button = box.querySelector("button");
  box.hidden = !text;
  box.dataset.kind = kind;
  box.firstElementChild.textContent = text;
  button.hidden = !action;
  [button.textContent, button.onclick] = action || ["", null];
}

function sendable() {
  const written = [...$("text").value.trim()].length;
  return written <= LIMIT && !files.busy && (written > 0 || files.ready.length > 0);
}

function ready() {
  const box = $("text");
  box.style.height = "auto";
  box.style.height = `${box.scrollHeight}px`;
  const left = LIMIT - box.value.length;
  $("count").textContent = left < 1000 ? `${left} characters left` : "";
  $("send").disabled = !sendable();
}

function newId() {
  if (crypto.randomUUID) return crypto.randomUUID();
  return [...crypto.getRandomValues(new Uint8Array(16))].map((byte) => byte.toString(16).padStart(2, "0")).join("");
}

function socketUrl(given) {
  if (!/^\d+$/.test(given)) return given.endsWith("/") ? given : `${given}/`;
  return `${location.protocol === "https:" ? "wss" : "ws"}://${location.hostname}:${given}/`;
}

function httpUrl(socket) {
  return socket.replace(/^ws/, "http");
}

$("composer").addEventListener("submit", (event) => { event.preventDefault(); submit(); });
$("text").addEventListener("input", ready);
$("text").addEventListener("keydown", (event) => {
  if (event.key !== "Enter" || event.shiftKey || event.isComposing) return;
  event.preventDefault();
  submit();
});
$("text").addEventListener("paste", (event) => [...event.clipboardData.files].forEach((file) => files.add(file)));
$("file").addEventListener("change", (event) => {
  [...event.target.files].forEach((file) => files.add(file));
  event.target.value = "";
});
$("stop").addEventListener("click", () => { $("stop").disabled = connection.send({ type: "stop" }); });
$("new-chat").addEventListener("click", newChat);
for (const starter of document.querySelectorAll(".starter")) {
  starter.addEventListener("click", () => {
    $("text").value = starter.textContent;
    ready();
    $("text").focus();
  });
}
document.addEventListener("visibilitychange", () => {
  if (document.hidden) return;
  unread = 0;
  document.title = pageTitle;
});
