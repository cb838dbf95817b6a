// Shows the next times of a schedule while it is typed; without this script a button does it.

const PAUSE = 250;

const form = document.getElementById("plan");
const shown = document.getElementById("preview");
const zone = document.getElementById("timezone");
let latest = 0;
let waiting = 0;

async function look() {
  const number = ++latest;
  const asked = new URLSearchParams({ schedule: form.schedule.value, timezone: zone.value, jitter_seconds: form.jitter_seconds.value });
  if (!form.schedule.value.trim()) return shown.replaceChildren();
  try {
    const answer = await fetch(`/schedules/times?${asked}`);
    if (!answer.ok || answer.redirected) throw new Error();
    // A part of this page, made by its own templates: everything in it is escaped there.
    const part = new DOMParser().parseFromString(await answer.text(), "text/html").body;
    if (number === latest) shown.replaceChildren(...part.childNodes);
  } catch {
    if (number === latest) shown.textContent = "Maestro does not answer; what you wrote is still here.";
  }
}

function soon() {
  clearTimeout(waiting);
  waiting = setTimeout(look, PAUSE);
}

if (form) {
  document.getElementById("ask").hidden = true;
  if ("fresh" in zone.dataset) zone.value = Intl.DateTimeFormat().resolvedOptions().timeZone || zone.value;
  const names = Intl.supportedValuesOf?.("timeZone") ?? [];
  document.getElementById("zones").append(...["UTC", ...names].map((name) => Object.assign(document.createElement("option"), { value: name })));
  for (const field of [form.schedule, zone, form.jitter_seconds]) field.addEventListener("input", soon);
  if (form.schedule.value && !shown.querySelector("p")) look();
}
