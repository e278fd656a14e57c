// Pasting an invitation looks at it at once; after joining, the page goes on when titles have come.
import { ask } from "/static/page.js";

for (const field of document.querySelectorAll("input[data-paste]")) {
  field.addEventListener("paste", () => setTimeout(() => field.form.requestSubmit()));
}

const steps = document.getElementById("steps");
const EVERY = 1500;
let looks = 80; // then it stops: a page that asks is never idle, and would not lock

async function wait() {
  const now = await ask("/start/state", {}).catch(() => null);
  if (now && String(now.n_items) !== steps.dataset.items) location.reload();
  else if (--looks > 0) setTimeout(wait, EVERY);
}
if (steps.dataset.waiting === "true") setTimeout(wait, EVERY);
