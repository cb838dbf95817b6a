// The page of a job: copies its id. Without a script the id can be selected with one click.

const DONE = 1500;

// Asked for at each click: the page is made anew while the job goes on.
document.addEventListener("click", async (event) => {
  const button = event.target.closest?.("[data-copy]");
  if (!button) return;
  await navigator.clipboard.writeText(document.getElementById(button.dataset.copy).textContent);
  button.textContent = "Copied";
  setTimeout(() => (button.textContent = "Copy"), DONE);
});
