// What all pages share: asking our own server, and going to the lock when the time is over.
const { csrf, recommenderId = "" } = document.body.dataset; // the recommender whose items are shown

export async function ask(path, fields) {
  const answer = await fetch(path, {
    method: "POST",
    headers: { "content-type": "application/json", "x-csrf": csrf },
    body: JSON.stringify({ recommender_id: recommenderId, ...fields }),
  });
  if (answer.status === 403) {
    location.reload();
    return new Promise(() => {});
  }
  const result = await answer.json();
  if (!answer.ok) throw new Error(result.error);
  return result;
}

export function say(words, kind = "done", button = null) {
  const notes = document.getElementById("notes");
  const note = document.createElement("p");
  note.className = `note ${kind}`;
  note.textContent = words;
  if (button) note.append(" ", button);
  notes.replaceChildren(note);
}

async function upload(form) {
  const file = form.querySelector("input[type=file]").files[0];
  const { action, ...given } = form.dataset;
  const fields = { recommender_id: recommenderId, ...given, kind: file.name.split(".").pop().toLowerCase() };
  const answer = await fetch(action, {
    method: "POST",
    headers: { "content-type": "application/octet-stream", "x-csrf": csrf, "x-fields": JSON.stringify(fields) },
    body: file,
  });
  location.assign(answer.ok ? (await answer.json()).next : location.pathname);
}

for (const form of document.querySelectorAll("form.upload")) {
  form.addEventListener("submit", (event) => {
    event.preventDefault();
    upload(form);
  });
}

async function watch() {
  const answer = await fetch("/state", { method: "POST" }).catch(() => null);
  const seconds = answer && answer.ok ? (await answer.json()).seconds : 0;
  if (seconds <= 0) location.reload();
  else setTimeout(watch, 1000 * seconds + 500);
}
watch();
