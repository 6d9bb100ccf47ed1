// Starts the page, and switches between its parts: the address after # says which one is shown.

import { get, post } from "./api.js";
import { Board } from "./board.js";
import { $, ask, fill, h, number, toast } from "./dom.js";
import { PicturePage } from "./picture.js";
import { ProgressPage } from "./progress.js";
import { listen, setReviewer, start, state, undo } from "./state.js";
import { SuspectsPage } from "./suspects.js";

const PAGES = { board: ["Board", Board], picture: ["Picture", PicturePage], suspects: ["Suspects", SuspectsPage], progress: ["Progress", ProgressPage] };
const TAB_KEYS = ["F1", "F2", "F3", "F4"];

let page = null;
let names = []; // of the classes that the list shows
let filterText = "";

const hashOf = (kind, detail) => `#${kind}${detail === undefined ? "" : `/${encodeURIComponent(detail)}`}`;

async function show() {
  const [kind, detail] = location.hash.slice(1).split("/");
  const known = PAGES[kind] ? kind : "board";
  page?.close();
  const [, Kind] = PAGES[known];
  const options = {
    openPicture: (row) => (location.hash = hashOf("picture", row)),
    openBoard: (name) => { state.className = name; location.hash = hashOf("board", name); },
    go: (row) => (location.hash = hashOf("picture", row)),
    row: Number(detail) || 0,
  };
  if (known === "board" && detail) state.className = decodeURIComponent(detail);
  if (known === "board" && !detail && state.className) { history.replaceState(null, "", hashOf("board", state.className)); }
  document.body.dataset.page = known;
  $("side").hidden = known !== "board";
  page = new Kind($("main"), options);
  fill($("keys"), Kind.keys.map(([key, text]) => h("span", {}, h("kbd", {}, key), text)));
  for (const tab of $("tabs").children) tab.setAttribute("aria-current", tab.dataset.page === known ? "page" : "false");
  markClass();
  $("main").focus({ preventScroll: true }); // so that keys work at once, also after a click on a link
  await page.open();
}

function drawTabs() {
  fill($("tabs"), Object.entries(PAGES).map(([kind, [title]], index) => h("a", { href: hashOf(kind), "data-page": kind, title: TAB_KEYS[index] }, title)));
}

async function drawClasses() {
  const filter = h("input", { type: "search", id: "class-filter", placeholder: "filter ( / )", "aria-label": "Filter classes", value: filterText, oninput: (event) => { filterText = event.target.value; refreshClasses(); } });
  fill($("side"), h("div", { class: "row" }, filter, h("button", { type: "button", id: "new-class", title: "Add a class (c)", onclick: addClass }, "+ New")), h("div", { id: "classes", role: "listbox", "aria-label": "Classes" }), h("p", { id: "more", class: "quiet" }));
  await refreshClasses();
}

async function refreshClasses() {
  const text = filterText;
  try {
    const list = await get("/api/classes", { text, limit: 200 });
    if (text !== filterText) return; // more was typed meanwhile
    names = list.classes.map((one) => one.name);
    state.className ??= names[0] ?? null;
    const line = (one) =>
      h("a", { href: hashOf("board", one.name), class: "class", role: "option", "data-name": one.name, title: one.name }, h("span", { class: "name" }, one.name), one.new ? h("span", { class: "mark new" }, "new") : null, h("small", { title: `${number(one.unknown)} unknown labels, ${number(one.verdicts)} verdicts, ${number(one.suspects)} suspects` }, one.verdicts ? `${number(one.verdicts)} ✓` : "", one.suspects ? ` ${one.suspects} !` : ""));
    const focused = $("classes").contains(document.activeElement) ? document.activeElement.dataset.name : null;
    fill($("classes"), list.classes.map(line));
    for (const one of $("classes").children) if (one.dataset.name === focused) one.focus();
    $("more").textContent = list.total > list.classes.length ? `${number(list.classes.length)} of ${number(list.total)} classes; type to filter.` : "";
    markClass();
  } catch (error) {
    toast(error.message, "error");
  }
}

function markClass() {
  for (const line of $("classes")?.children ?? []) {
    const on = line.dataset.name === state.className;
    line.setAttribute("aria-selected", String(on));
    if (on) line.scrollIntoView({ block: "nearest" });
  }
}

function stepClass(by) {
  const at = names.indexOf(state.className) + by;
  if (at < 0 || at >= names.length) return;
  state.className = names[at]; // at once: the next press may come before the page has changed
  location.hash = hashOf("board", names[at]);
}

async function addClass() {
  const field = h("label", {}, "Name", h("input", { name: "name", required: true, maxlength: "500", autocomplete: "off" }));
  const answer = await ask("A new class", field, "Add", "Mark a few pictures as present. From then on pictures are ranked by what was learned, and the most similar ones come first.");
  if (!answer) return;
  try {
    const line = await post("/api/classes", { name: answer.name.trim(), reviewer: state.reviewer });
    filterText = "";
    await drawClasses();
    state.className = line.name;
    location.hash = hashOf("board", line.name);
    if (page instanceof Board) {
      await show();
      page.setOrder("similar");
    }
  } catch (error) {
    toast(error.message, "error");
  }
}

async function askWho() {
  const field = h("label", {}, "Your name", h("input", { name: "name", required: true, maxlength: "80", value: state.reviewer }));
  const answer = await ask("Who reviews in this browser?", field, "Use this name", "Each verdict is kept under a name. Two reviewers may differ; both verdicts are then kept.");
  if (!answer?.name.trim()) return;
  setReviewer(answer.name.trim());
  $("who").textContent = state.reviewer;
}

async function exportLabels() {
  const formats = h("select", { name: "format" }, state.status.formats.map((one) => h("option", { value: one, selected: one === "cells" }, one)));
  const filled = h("label", { class: "check" }, h("input", { type: "checkbox", name: "filled", value: "true" }), "also labels that a model fills in and random verdicts guarantee");
  const answer = await ask("Export labels", [h("label", {}, "Format", formats), filled], "Download", "An archive with the labels and verdicts.csv. Train on the labels to make the next run.");
  if (!answer) return;
  const query = new URLSearchParams({ format: answer.format, filled: answer.filled || "false" });
  const link = h("a", { href: `/api/export?${query}`, download: "reviewed-labels.zip" });
  document.body.append(link);
  link.click();
  link.remove();
}

function showHelp() {
  const list = (keys) => h("dl", {}, keys.map(([key, text]) => [h("dt", {}, h("kbd", {}, key)), h("dd", {}, text)]));
  const everywhere = [["u", "undo, also Ctrl-Z"], ["F1 … F4", "Board, Picture, Suspects, Progress"], ["c", "new class"], ["/", "filter"], ["?", "this help"]];
  fill($("dialog"), h("h2", {}, "Keys"), h("div", { class: "help" }, Object.values(PAGES).map(([title, Kind]) => h("section", {}, h("h3", {}, title), list(Kind.keys))), h("section", {}, h("h3", {}, "Everywhere"), list(everywhere))), h("div", { class: "row end" }, h("button", { type: "button", class: "main", autofocus: true, onclick: () => $("dialog").close() }, "Close")));
  $("dialog").showModal();
}

function onKey(event) {
  if (event.target.type === "checkbox" && event.key === " ") return;
  const inField = event.target.matches("input, select, textarea") && event.target.type !== "checkbox";
  if ($("dialog").open) return;
  if (inField) {
    if (event.key === "Escape" || (event.key === "Enter" && event.target.type === "search")) event.target.blur();
    return;
  }
  const tab = TAB_KEYS.indexOf(event.key);
  const isUndo = event.key === "u" || (event.key === "z" && (event.ctrlKey || event.metaKey));
  if (tab >= 0) location.hash = hashOf(Object.keys(PAGES)[tab]);
  else if (isUndo) undo();
  else if (event.ctrlKey || event.metaKey || event.altKey) return;
  else if (event.target.matches("button, a") && (event.key === "Enter" || event.key === " ")) return;
  else if (page?.key(event)) { /* done */ }
  else if (event.key === "?") showHelp();
  else if (event.key === "c") addClass();
  else if (event.key === "/") $("class-filter")?.focus();
  else if (event.key === "]") stepClass(1);
  else if (event.key === "[") stepClass(-1);
  else return;
  event.preventDefault();
}

async function begin() {
  const status = await get("/api/status");
  if (!status.ready) {
    const text = status.error || `Loading: ${status.step} …`;
    fill($("main"), h("div", { class: status.error ? "loading failed" : "loading" }, h("h1", {}, status.error ? "The review cannot be shown" : "One moment"), h("p", {}, text), status.error ? h("p", { class: "quiet" }, "The terminal has the same message. Verdicts that were given are safe in the journal.") : h("p", { class: "quiet" }, "The first start scores all pictures. Later starts take a second.")));
    setTimeout(() => begin().catch(failed), status.error ? 5000 : 700);
    return;
  }
  start(status);
  $("who").textContent = state.reviewer;
  drawTabs();
  await drawClasses();
  window.addEventListener("hashchange", show);
  document.addEventListener("keydown", onKey);
  document.addEventListener("click", release);
  listen(renewClasses);
  await show();
  document.body.dataset.ready = "yes";
}

// The numbers in the list of classes follow verdicts that are kept, not those that wait.
let renewal = null;
function renewClasses(cells) {
  if (cells.every((cell) => cell.waiting)) return;
  clearTimeout(renewal);
  renewal = setTimeout(refreshClasses, 250);
}

// A button that was clicked must not take the next space or Enter for another click.
function release(event) {
  const button = event.target.closest?.("button");
  if (event.detail && button && button === document.activeElement) button.blur();
}

function failed(error) {
  fill($("main"), h("div", { class: "loading failed" }, h("h1", {}, "The review cannot be shown"), h("p", {}, error.message)));
}

$("undo").addEventListener("click", undo);
$("export").addEventListener("click", exportLabels);
$("who").addEventListener("click", askWho);
$("help").addEventListener("click", showHelp);
begin().catch(failed);
