// Tells anew, every few seconds, how far away moments are; the server said it when the page was made.
// Moments of a clock, which the server says in UTC, are shown in the zone of the browser.

const EVERY = 5000;
const UNITS = [["d", 86400], ["h", 3600], ["min", 60], ["s", 1]];

function far(moment) {
  const seconds = Math.round((moment - Date.now()) / 1000);
  const away = Math.abs(seconds);
  if (away < 1) return "now";
  const [unit, size] = UNITS.find(([, length]) => away >= length);
  const count = `${Math.floor(away / size)} ${unit}`;
  return seconds < 0 ? `${count} ago` : `in ${count}`;
}

const two = (number) => String(number).padStart(2, "0");
const day = (at) => `${at.getFullYear()}-${two(at.getMonth() + 1)}-${two(at.getDate())}`;
const minute = (at) => `${two(at.getHours())}:${two(at.getMinutes())}`;

// `form` is that of the page: time, full (day, time and zone), or nothing for the time of today and the day before that.
function clock(at, form) {
  const [now, time] = [new Date(), `${minute(at)}:${two(at.getSeconds())}`];
  if (form === "full") return `${day(at)} ${time} ${zone(at)}`;
  if (form === "time" || day(at) === day(now)) return time;
  return at.getFullYear() === now.getFullYear() ? `${day(at).slice(5)} ${minute(at)}` : day(at);
}

function zone(at = new Date()) {
  const parts = new Intl.DateTimeFormat(undefined, { timeZoneName: "short" }).formatToParts(at);
  return parts.find((part) => part.type === "timeZoneName").value;
}

function say(node, words) {
  if (node.textContent !== words) node.textContent = words;
}

function tellAll() {
  if (document.hidden) return;
  for (const time of document.querySelectorAll("time[data-far]")) say(time, far(Date.parse(time.dateTime)));
  for (const time of document.querySelectorAll("time[data-clock]")) say(time, clock(new Date(time.dateTime), time.dataset.clock));
  for (const name of document.querySelectorAll("[data-zone]")) say(name, zone());
}

// A field for a moment: the server takes and gives UTC, people type what their clock says.
for (const field of document.querySelectorAll("input[type=datetime-local]")) {
  if (field.value) field.value = ((at) => `${day(at)}T${minute(at)}`)(new Date(`${field.value}Z`));
  field.form.addEventListener("formdata", ({ formData }) => {
    if (field.value) formData.set(field.name, new Date(field.value).toISOString().slice(0, 16));
  });
}

tellAll();
setInterval(tellAll, EVERY);
document.addEventListener("visibilitychange", tellAll);
document.addEventListener("htmx:after:swap", tellAll);
