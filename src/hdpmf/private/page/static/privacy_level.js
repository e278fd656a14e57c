// Explain the privacy level that the slider shows now.
import { ask, say } from "/static/page.js";

const level = document.getElementById("privacy-level");
const meaning = document.getElementById("meaning");
let latest = 0;

async function explain() {
  const number = ++latest;
  try {
    const answer = await ask("/privacy/preview", { weight: level.value });
    if (number !== latest) return;
    document.getElementById("group").textContent = answer.group;
    level.setAttribute("aria-valuetext", answer.valuetext);
    meaning.replaceChildren(
      ...answer.sentences.map((words) => {
        const line = document.createElement("p");
        line.textContent = words;
        return line;
      }),
    );
    for (const [who, picture] of Object.entries(answer.views ?? {})) {
      for (const name of ["yours", "others", "both"]) {
        document.querySelector(`#views-${who} .${name}`).setAttribute("d", picture[name]);
      }
      document.getElementById(`views-${who}-words`).textContent = picture.words;
    }
  } catch (error) {
    say(error.message, "error");
  }
}

level.addEventListener("input", explain);
for (const button of document.querySelectorAll("button.group")) {
  button.addEventListener("click", () => {
    level.value = button.dataset.weight;
    explain();
  });
}
