// Keeps what is selected on the page of jobs: over refreshes, and of jobs that newer ones pushed off the page.
// Without this script the checkboxes and buttons are a plain form.

const picked = new Set();
let all = false;
let last = null;

const form = () => document.getElementById("jobs");
const boxes = () => [...document.querySelectorAll("#jobs input[name=ids]")];

function show() {
  if (!form()) return;
  const shown = boxes();
  for (const box of shown) box.checked = picked.has(box.value);
  const page = document.getElementById("pick-page");
  const here = shown.filter((box) => box.checked).length;
  page.hidden = false;
  page.checked = here > 0 && here === shown.length;
  page.indeterminate = here > 0 && here < shown.length;
  document.getElementById("pick-all").checked = all;
  for (const button of form().querySelectorAll(".bulk button")) button.disabled = !all && !picked.size;
  tell(picked.size, picked.size - here);
}

function tell(count, elsewhere) {
  const words = document.getElementById("picked");
  const beyond = elsewhere ? `, ${elsewhere} of them not on this page any more` : "";
  words.hidden = all || !count;
  words.textContent = count ? `${count} selected${beyond}` : "";
}

function pick(box) {
  if (box.checked) picked.add(box.value);
  else picked.delete(box.value);
}

// With Shift, all between the last box and this one become as this one is.
document.addEventListener("click", (event) => {
  const box = event.target;
  if (!box.matches?.("#jobs input[name=ids]")) return;
  const shown = boxes();
  const from = shown.findIndex((other) => other.value === last);
  if (event.shiftKey && from >= 0) {
    const to = shown.indexOf(box);
    for (const other of shown.slice(Math.min(from, to), Math.max(from, to) + 1)) {
      other.checked = box.checked;
      pick(other);
    }
  }
  last = box.value;
});

document.addEventListener("change", ({ target }) => {
  if (!target.closest?.("#jobs")) return;
  if (target.name === "ids") pick(target);
  if (target.id === "pick-all") all = target.checked;
  if (target.id === "pick-page") {
    for (const box of boxes()) {
      box.checked = target.checked;
      pick(box);
    }
  }
  show();
});

document.addEventListener("submit", ({ target }) => {
  if (target !== form()) return;
  document.getElementById("elsewhere")?.remove();
  const here = new Set(boxes().map((box) => box.value));
  const elsewhere = [...picked].filter((id) => !here.has(id));
  if (all || !elsewhere.length) return;
  const field = Object.assign(document.createElement("input"), { id: "elsewhere", type: "hidden", name: "ids", value: elsewhere.join(" ") });
  target.append(field);
});

// What is shown anew has the boxes of the server, which knows of no selection.
document.addEventListener("htmx:after:swap", show);
// A browser that goes back shows the boxes as they were left.
addEventListener("pageshow", () => {
  for (const box of boxes()) pick(box);
  all = document.getElementById("pick-all")?.checked ?? false;
  show();
});
