// Looks again by itself, in place: focus and scroll stay. This is no use of the page, which locks as it would without it.
const seconds = 10;
const label = document.getElementById("refreshed");

async function look() {
  if (document.hidden) return true;
  const answer = await fetch(location.href, { headers: { "x-hdpmf-refresh": "1" } });
  const next = new DOMParser().parseFromString(await answer.text(), "text/html");
  if (!answer.ok) {
    document.title = next.title;
    document.body.replaceWith(next.body);
    return false;
  }
  document.title = next.title;
  const shown = document.getElementById("live");
  const fresh = next.getElementById("live");
  if (shown.innerHTML !== fresh.innerHTML) {
    const focused = document.activeElement?.id;
    shown.replaceChildren(...fresh.childNodes);
    if (focused) document.getElementById(focused)?.focus({ preventScroll: true });
  }
  return true;
}

async function follow() {
  let goes = true;
  try {
    goes = await look();
    label.textContent = label.dataset.on;
  } catch {
    label.textContent = label.dataset.off;
  }
  if (goes) setTimeout(follow, 1000 * seconds);
}

label.textContent = label.dataset.on;
setTimeout(follow, 1000 * seconds);
document.addEventListener("visibilitychange", () => document.hidden || look().catch(() => {}));
