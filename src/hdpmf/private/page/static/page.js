// What all pages share: asking our own server, and going to the lock when the time is over.
const { csrf, recommenderId = "", seconds, stopped } = document.body.dataset; // the recommender whose items are shown

export async function ask(path, fields) {
  const answer = await fetch(path, {
    method: "POST",
    headers: { "content-type": "application/json", "x-csrf": csrf },
    body: JSON.stringify({ recommender_id: recommenderId, ...fields }),
  }).catch(() => {
    throw new Error(stopped);
  });
  if (answer.status === 403) {
    location.reload();
    return new Promise(() => {});
  }
  const result = await answer.json();
  if (!answer.ok) throw new Error(result.error);
  return result;
}

// At the lower edge, over the page: nothing moves, and it is near on a phone.
let goes = 0;
export function say(words, kind = "done", button = null) {
  const toast = document.getElementById("toast");
  const note = document.createElement("p");
  note.className = `note ${kind}`;
  note.textContent = words;
  if (button) note.append(" ", button);
  toast.replaceChildren(note);
  clearTimeout(goes);
  const go = () => (toast.matches(":hover, :focus-within") ? (goes = setTimeout(go, 5000)) : toast.replaceChildren());
  if (kind !== "error") goes = setTimeout(go, 20000);
}

// After a form the page comes anew: what was in focus is in focus again, or the question that follows.
const alike = (form) => [...document.querySelectorAll(`form[action="${form.getAttribute("action")}"]`)];
document.addEventListener("submit", ({ target }) => {
  const place = [location.pathname, target.getAttribute("action"), alike(target).indexOf(target)];
  sessionStorage.setItem("focus", place.join(" "));
});
const [path, action, place] = (sessionStorage.getItem("focus") ?? "").split(" ");
sessionStorage.removeItem("focus");
if (path === location.pathname) {
  const question = document.querySelector("main > .asked");
  const form = document.querySelectorAll(`form[action="${CSS.escape(action)}"]`)[place];
  (question?.querySelector("button.main") ?? form?.querySelector("button"))?.focus();
}

async function upload(form) {
  const file = form.querySelector("input[type=file]").files[0];
  const { action, ...given } = form.dataset;
  const texts = Object.fromEntries([...new FormData(form)].filter(([, value]) => typeof value === "string"));
  const fields = { recommender_id: recommenderId, ...given, ...texts, kind: file.name.split(".").pop().toLowerCase() };
  // A header takes ASCII only.
  const json = JSON.stringify(fields).replace(/[^ -~]/g, (char) => `\\u${char.charCodeAt(0).toString(16).padStart(4, "0")}`);
  const answer = await fetch(action, {
    method: "POST",
    headers: { "content-type": "application/octet-stream", "x-csrf": csrf, "x-fields": json },
    body: file,
  }).catch(() => null);
  if (!answer) return say(stopped, "error");
  location.assign(answer.ok ? (await answer.json()).next : location.pathname);
}

for (const form of document.querySelectorAll("form.upload")) {
  form.addEventListener("submit", (event) => {
    event.preventDefault();
    upload(form);
  });
}

// When the time is over, what is shown goes, also if nobody is there any more who could lock it.
const AGAIN = 5000;
let gone = false;
let until = Date.now() + 1000 * seconds; // a device may stop before it is asked for the first time
// When somebody asks, every page says so: in its title, at the menu, and above its content.
const LOOK = 20;
const title = document.title.replace(/^\(\d+\) /, "");
function showAsked(n, looked) {
  const place = document.getElementById("looked");
  if (place) place.textContent = looked;
  document.title = n ? `(${n}) ${title}` : title;
  const badge = document.getElementById("asks");
  if (badge) [badge.hidden, badge.textContent] = [!n, n];
  const banner = document.getElementById("banner");
  if (banner) banner.hidden = !n || location.pathname === "/disclosures";
}

async function watch() {
  const answer = await fetch("/state", { method: "POST" }).catch(() => null);
  if (!answer) {
    const left = until - Date.now();
    if (left > 0) {
      setTimeout(watch, Math.min(left, AGAIN));
      return;
    }
    gone = true;
    document.querySelector("main").replaceChildren(document.getElementById("toast"));
    say(stopped, "error");
    setTimeout(watch, AGAIN);
    return;
  }
  const { seconds: left, asked, looked } = answer.ok ? await answer.json() : { seconds: 0 };
  if (gone || left <= 0) {
    location.reload();
    return;
  }
  showAsked(asked, looked);
  until = Date.now() + 1000 * left;
  setTimeout(watch, 1000 * Math.min(left + 0.5, LOOK));
}
watch();
