// Tells anew, every few seconds, how far away moments are; the server said it when the page was made.

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

function tellAll() {
  if (document.hidden) return;
  for (const time of document.querySelectorAll("time[data-far]")) {
    const words = far(Date.parse(time.dateTime));
    if (time.textContent !== words) time.textContent = words;
  }
}

setInterval(tellAll, EVERY);
document.addEventListener("visibilitychange", tellAll);
