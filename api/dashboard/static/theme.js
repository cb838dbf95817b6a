// Sets light or dark before anything is drawn; not a module, since those run too late for that.
try {
  const chosen = localStorage.getItem("maestro.theme");
  if (chosen === "light" || chosen === "dark") document.documentElement.dataset.theme = chosen;
} catch {
  // Storage is off: the system's setting holds.
}
