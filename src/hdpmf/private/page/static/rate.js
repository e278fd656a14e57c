// Search as one types, stars, undo. Everything goes to our own machine.
import { ask, say } from "/static/page.js";

const words = document.getElementById("words")?.dataset ?? {};
const search = document.getElementById("search");
const found = document.getElementById("found");
const mine = document.getElementById("mine");
let latest = 0;

function make(entry) {
  const row = document.getElementById("item").content.firstElementChild.cloneNode(true);
  row.dataset.item = entry.item;
  row.querySelector("strong").textContent = entry.title;
  row.querySelector(".year").textContent = entry.year;
  row.querySelector(".genres").textContent = entry.genres;
  const legend = row.querySelector("legend");
  if (legend) legend.textContent = entry.title;
  for (const input of row.querySelectorAll("input[type=radio]")) input.name = `found-${entry.item}`;
  for (const hidden of row.querySelectorAll("button .unseen")) hidden.textContent = `: ${entry.title}`;
  row.querySelector(".private").setAttribute("aria-pressed", String(entry.private));
  show(row, entry.value);
  return row;
}

function show(row, value) {
  const text = value === null || value === "" ? "" : String(Number(value));
  row.dataset.value = text;
  for (const input of row.querySelectorAll("input")) {
    if (input.type === "radio") input.checked = input.value === text;
    else input.value = text;
  }
  row.querySelector(".remove").hidden = text === "";
}

function same(item) {
  return [...document.querySelectorAll(".item")].filter((row) => row.dataset.item === item);
}

function showEverywhere(row, value) {
  const item = row.dataset.item;
  if (value !== null && value !== "" && mine && !mine.querySelector(`[data-item="${CSS.escape(item)}"]`)) {
    const copy = row.cloneNode(true);
    for (const input of copy.querySelectorAll("input[type=radio]")) input.name = `stars-${item}`;
    mine.prepend(copy);
    document.getElementById("none-rated")?.remove();
  }
  for (const other of same(item)) show(other, value);
}

// One after the other, as they were chosen: of a key that is held down the last star has to stay.
let turn = Promise.resolve();
function set(row, value, undoing = false) {
  turn = turn.then(() => send(row, value, undoing));
}

async function send(row, value, undoing) {
  try {
    const result = await ask("/rate/set", { item: row.dataset.item, value });
    showEverywhere(row, value);
    document.getElementById("rated").textContent = result.rated;
    if (undoing) {
      say(words.undone);
      return;
    }
    const undo = document.createElement("button");
    undo.type = "button";
    undo.className = "quiet";
    undo.textContent = words.undo;
    undo.addEventListener("click", () => set(row, result.before === null ? "" : result.before, true));
    say(`${value === "" ? words.removed : words.saved} ${result.history}`, "done", undo);
  } catch (error) {
    show(row, row.dataset.value);
    say(error.message, "error");
  }
}

document.addEventListener("change", (event) => {
  const row = event.target.closest(".item");
  if (row && event.target.matches("input[type=radio], input[type=number]")) set(row, event.target.value);
});

// A digit chooses so many stars, 0 ten of them.
document.addEventListener("keydown", (event) => {
  const stars = event.target.closest?.(".stars");
  if (!stars || !/^[0-9]$/.test(event.key) || event.ctrlKey || event.altKey || event.metaKey) return;
  const wanted = [...stars.querySelectorAll("input")].find((input) => input.value === (event.key === "0" ? "10" : event.key));
  if (!wanted) return;
  wanted.checked = true;
  wanted.focus();
  set(stars.closest(".item"), wanted.value);
});

document.addEventListener("click", async (event) => {
  const row = event.target.closest(".item");
  if (!row) return;
  if (event.target.closest(".remove")) set(row, "");
  const mark = event.target.closest(".private");
  if (mark) {
    const wanted = mark.getAttribute("aria-pressed") !== "true";
    try {
      const answer = await ask("/rate/private", { item: row.dataset.item, private: wanted ? "yes" : "no" });
      for (const other of same(row.dataset.item)) other.querySelector(".private").setAttribute("aria-pressed", String(answer.private));
      if (answer.told) say(answer.told, "done");
    } catch (error) {
      say(error.message, "error");
    }
  }
});

async function find() {
  const number = ++latest;
  const result = search.value.trim() ? await ask("/rate/find", { words: search.value }) : { items: [] };
  if (number !== latest) return; // a later question was answered first
  found.replaceChildren(...result.items.map(make));
  const count = document.getElementById("found-count");
  count.textContent = search.value.trim() ? `${count.dataset.found}: ${result.items.length}` : "";
  document.getElementById("found-none").hidden = !search.value.trim() || result.items.length > 0;
}

if (search) {
  search.addEventListener("input", () => find().catch((error) => say(error.message, "error")));
  search.addEventListener("keydown", (event) => {
    if (event.key === "ArrowDown") {
      found.querySelector("input")?.focus();
      event.preventDefault();
    }
  });
}
