// What all pages share: who reviews, the labels on screen, and what has been kept.

import { get, newId, Queue } from "./api.js";
import { $, toast } from "./dom.js";

export const PRESENT = 1, ABSENT = -1, UNKNOWN = 0, SKIPPED = 2;

export const state = {
  status: null,
  reviewer: "",
  number: 0, // of the last act that this page knows
  fits: 0,
  queue: null,
  className: null,
};

const listeners = new Set();
export const keyOf = (cell) => `${cell.row} ${cell.name}`;

// A page that shows labels is told about every change of one, and about new orders.
export function listen(listener) {
  listeners.add(listener);
  return () => listeners.delete(listener);
}

export function announce(cells) {
  for (const listener of listeners) listener(cells);
}

export function start(status) {
  state.status = status;
  state.number = status.number;
  state.fits = status.fits;
  const stored = localStorage.getItem("partlabel-reviewer");
  state.reviewer = stored || status.reviewer;
  state.queue = new Queue(status.journal, showSaved);
  showSaved(state.queue.items.length, "");
  showLearning(status);
  setInterval(poll, 2500);
}

export function setReviewer(name) {
  state.reviewer = name;
  localStorage.setItem("partlabel-reviewer", name);
}

// Labels of a new board that were drawn at random may stand on earlier pages, with their scores.
export function announceDrawn(cells) {
  const sent = new Set(state.queue.items.flatMap(({ body }) => body.verdicts || []).map(keyOf));
  announce(cells.filter((cell) => cell.blind && !sent.has(keyOf(cell))));
}

// Several verdicts as one act. The labels show as waiting until the server has them on disk.
export function judge(cells, valueOf) {
  const changed = cells.map((cell) => ({ ...cell, value: valueOf(cell), waiting: true }));
  if (!changed.length) return;
  announce(changed);
  const verdicts = changed.map(({ row, name, value, blind }) => ({ row, name, value, scored: !blind }));
  const body = { id: newId(), reviewer: state.reviewer, verdicts };
  state.queue.add("/api/acts", body, (answer) => {
    announce(answer ? answer.cells : cells);
    if (answer?.cells.some((cell) => cell.blind)) toast("A label was drawn at random meanwhile: please answer it again, by the picture alone.");
  });
}

export function undo() {
  const body = { id: newId(), reviewer: state.reviewer };
  state.queue.add("/api/undo", body, (answer) => {
    if (!answer) return;
    if (!answer.undone) return toast("There is nothing to undo.");
    announce(answer.cells.map((cell) => ({ ...cell, undone: true })));
    const [first] = answer.cells;
    const more = answer.cells.length > 1 ? ` and ${answer.cells.length - 1} more` : "";
    if (first) toast(`Undone: ${first.name} in ${first.image}${more}`);
  });
}

async function poll() {
  try {
    if (state.queue.items.length) return; // what waits here is newer than what the server says
    const changes = await get("/api/changes", { after: state.number });
    showLearning(changes);
    if (!state.queue.items.length) {
      state.number = changes.number;
      if (changes.cells.length) announce(changes.cells);
    }
    if (changes.fits !== state.fits) {
      state.fits = changes.fits;
      document.dispatchEvent(new Event("learned"));
    }
    if (!state.queue.items.length) showSaved(0, "");
  } catch (error) {
    showSaved(state.queue.items.length, error.message);
  }
}

function showSaved(waiting, problem) {
  const element = $("saved");
  element.className = problem ? "bad" : waiting ? "busy" : "good";
  element.textContent = problem
    ? `Not saved (${waiting}): ${problem}`
    : waiting
      ? `Saving ${waiting} …`
      : "All saved";
}

function showLearning({ learning, not_learning, fits }) {
  const element = $("learning");
  element.title = not_learning || "A head learns from verdicts; the next boards use its scores.";
  element.textContent = not_learning
    ? "Does not learn"
    : learning
      ? `Learning ${learning} …`
      : fits
        ? `Learned ${fits}×`
        : "";
}
