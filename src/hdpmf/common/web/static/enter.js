// The token is behind the # of the link, which no browser sends anywhere. It is taken out of the history first.
const token = location.hash.slice(1);
history.replaceState(null, "", location.pathname);
const answer = await fetch("/enter", {
  method: "POST",
  headers: { "content-type": "application/json" },
  body: JSON.stringify({ token }),
});
const told = await answer.json();
if (answer.ok) {
  location.replace(told.next);
} else {
  document.getElementById("enter").textContent = told.error;
}
