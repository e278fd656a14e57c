// What the dial would mean where it is now.
import { ask, say } from "/static/page.js";

const dial = document.getElementById("dial");
const meaning = document.getElementById("meaning");
let asked = 0;

async function explain() {
  const number = ++asked;
  try {
    const told = await ask("/privacy/would", { weight: dial.value });
    if (number !== asked) return;
    document.getElementById("group").textContent = told.group;
    meaning.replaceChildren(
      ...told.sentences.map((words) => {
        const line = document.createElement("p");
        line.textContent = words;
        return line;
      }),
    );
  } catch (error) {
    say(error.message, "error");
  }
}

dial.addEventListener("input", explain);
for (const button of document.querySelectorAll("button.group")) {
  button.addEventListener("click", () => {
    dial.value = button.dataset.weight;
    explain();
  });
}
