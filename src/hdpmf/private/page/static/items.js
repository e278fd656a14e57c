// Items with stars, on the pages Rate and For you: search, more of them, filters, undo.
// Everything goes to our own machine.
import { ask, say } from "/static/page.js";

const words = document.getElementById("words")?.dataset ?? {};
const mine = document.getElementById("mine");

function make(entry) {
  const row = document.getElementById("item").content.firstElementChild.cloneNode(true);
  row.dataset.item = entry.item;
  row.querySelector(".about").className = `about hue-${entry.hue}`;
  for (const name of ["rank", "year", "genres", "score", "reason"]) {
    const part = row.querySelector(`.${name}`);
    if (part && entry[name] !== undefined) part.textContent = entry[name];
  }
  row.querySelector("strong").textContent = entry.title;
  const bar = row.querySelector("rect.bar");
  if (bar && entry.part) {
    bar.setAttribute("width", entry.part);
    const picture = bar.closest("svg");
    picture.setAttribute("aria-label", picture.getAttribute("aria-label").replace("{score}", entry.score));
  }
  const legend = row.querySelector("legend");
  if (legend) legend.textContent = entry.title;
  regroup(row);
  for (const hidden of row.querySelectorAll("button .unseen")) hidden.textContent = `: ${entry.title}`;
  row.querySelector(".private")?.setAttribute("aria-pressed", String(entry.private));
  show(row, entry.value);
  return row;
}

// An item can be on the page several times: each row is a group of its own.
let groups = 0;
function regroup(row) {
  groups += 1;
  for (const input of row.querySelectorAll("input[type=radio]")) input.name = `group-${groups}`;
}

function show(row, value) {
  const text = value === null || value === "" ? "" : String(Number(value));
  row.dataset.value = text;
  for (const input of row.querySelectorAll("input")) {
    if (input.type === "radio") input.checked = input.value === text;
    else input.value = text;
  }
  const remove = row.querySelector(".remove");
  if (remove) remove.hidden = text === "";
}

function same(item) {
  return [...document.querySelectorAll(".item")].filter((row) => row.dataset.item === item);
}

function showEverywhere(row, value) {
  const item = row.dataset.item;
  if (value !== null && value !== "" && mine && !mine.querySelector(`[data-item="${CSS.escape(item)}"]`)) {
    const copy = row.cloneNode(true);
    regroup(copy);
    mine.prepend(copy);
    document.getElementById("none-rated")?.remove();
  }
  for (const other of same(item)) show(other, value);
}

function undo(action) {
  const button = document.createElement("button");
  button.type = "button";
  button.textContent = words.undo;
  button.addEventListener("click", action);
  return button;
}

// One after the other, as they were chosen: of a key that is held down the last star has to stay.
let turn = Promise.resolve();
function set(row, value, undoing = null) {
  turn = turn.then(() => send(row, value, undoing));
}

async function send(row, value, undoing) {
  try {
    const result = await ask("/rate/set", { item: row.dataset.item, value, ...undoing });
    showEverywhere(row, value);
    for (const count of document.querySelectorAll(".rated-count")) count.textContent = result.rated;
    const enough = document.getElementById("enough");
    if (enough) enough.hidden = result.rated < Number(enough.dataset.enough);
    const anew = document.getElementById("anew");
    if (anew) anew.hidden = false;
    if (undoing) {
      say(words.undone);
      return;
    }
    const said = `${value === "" ? words.removed : words.saved} ${result.history}`;
    say(said, "done", undo(() => set(row, result.before ?? "", { undo: "yes", at: result.before_at })));
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

async function mark(row, button) {
  const wanted = button.getAttribute("aria-pressed") !== "true";
  const answer = await ask("/rate/private", { item: row.dataset.item, private: wanted ? "yes" : "no" });
  for (const other of same(row.dataset.item)) other.querySelector(".private")?.setAttribute("aria-pressed", String(answer.private));
  if (answer.told) say(answer.told);
}

// Not interested: the card goes, the focus goes to the next one, and Undo brings it back.
async function hide(row, hidden) {
  const list = row.parentElement;
  await ask("/recommendations/hide", { item: row.dataset.item, hidden: hidden ? "yes" : "no" });
  const next = row.nextElementSibling ?? row.previousElementSibling;
  const place = row.nextElementSibling;
  row.remove();
  (next?.querySelector("button") ?? document.getElementById("content")).focus();
  const back = async () => {
    await ask("/recommendations/hide", { item: row.dataset.item, hidden: hidden ? "no" : "yes" });
    list.insertBefore(row, place?.isConnected ? place : null);
    say(words.undone);
  };
  say(hidden ? words.hid : words.shownAgain, "done", undo(() => back().catch((error) => say(error.message, "error"))));
}

document.addEventListener("click", (event) => {
  const row = event.target.closest("[data-item]");
  if (!row) return;
  const button = event.target.closest("button");
  if (button?.matches(".remove")) set(row, "");
  const task = button?.matches(".private") ? mark(row, button) : button?.matches(".hide") ? hide(row, button.dataset.hidden === "yes") : null;
  task?.catch((error) => say(error.message, "error"));
});

const failed = (error) => say(error.message, "error");

// Lists that grow: data-more is the address of the next part, filters are the fields of its form.
for (const list of document.querySelectorAll("[data-more]")) {
  const button = document.getElementById(`${list.id}-more`);
  const filters = document.getElementById(`${list.id}-filters`);
  let asked = 0;
  let offset = list.children.length;
  async function load(anew) {
    const number = ++asked;
    if (anew) offset = 0;
    const fields = filters ? Object.fromEntries(new FormData(filters)) : {};
    const result = await ask(list.dataset.more, { ...fields, offset });
    if (number !== asked) return; // a later question was answered first
    if (anew) list.replaceChildren();
    const known = new Set([...list.children].map((row) => row.dataset.item));
    const rows = result.items.filter((entry) => !known.has(entry.item)).map(make);
    list.append(...rows);
    offset += result.items.length;
    button.hidden = !result.more;
    const none = document.getElementById(`${list.id}-none`);
    if (none) none.hidden = list.children.length > 0;
    if (!anew) rows[0]?.querySelector("input")?.focus();
  }
  button?.addEventListener("click", () => load(false).catch(failed));
  filters?.addEventListener("change", () => load(true).catch(failed));
  filters?.addEventListener("submit", (event) => event.preventDefault());
  document.getElementById("anew")?.addEventListener("click", (event) => {
    load(true).then(() => (event.target.hidden = true)).catch(failed);
  });
}

const search = document.getElementById("search");
const found = document.getElementById("found");
let latest = 0;

async function find() {
  const number = ++latest;
  const wanted = search.value.trim();
  const result = wanted ? await ask("/rate/find", { words: search.value }) : { items: [] };
  if (number !== latest) return;
  found.replaceChildren(...result.items.map(make));
  const count = document.getElementById("found-count");
  count.textContent = wanted ? `${count.dataset.found}: ${result.items.length}` : "";
  document.getElementById("found-none").hidden = !wanted || result.items.length > 0;
}

if (search) {
  search.addEventListener("input", () => find().catch(failed));
  search.addEventListener("keydown", (event) => {
    if (event.key === "ArrowDown") {
      found.querySelector("input")?.focus();
      event.preventDefault();
    }
  });
}
