// The board: many pictures, one class.

import { get, post } from "./api.js";
import { fill, h, plural, toast } from "./dom.js";
import { ABSENT, announceDrawn, judge, keyOf, listen, PRESENT, SKIPPED, state } from "./state.js";
import { Tiles } from "./tiles.js";

const ORDERS = {
  useful: "Most useful first",
  doubtful: "Most doubtful first",
  likely: "Most likely present first",
  filled: "Filled in by the model",
  suspects: "Suspects",
  similar: "Similar to examples",
  search: "Search by name",
};
const ONE_RANDOM_IN = 6;

const settings = { order: null, random: true }; // stay when the class changes; null: the first order
const remembered = new Map(); // the pages of each class and order, so that one can go back

// Pages that are not on screen change too: by an undo, by another reviewer, by a random draw.
listen((changed) => {
  const byKey = new Map(changed.map((cell) => [keyOf(cell), cell]));
  for (const { list } of remembered.values()) {
    for (const { cells } of list) cells.forEach((cell, index) => (cells[index] = byKey.get(keyOf(cell)) || cell));
  }
});

export class Board {
  constructor(main, { openPicture }) {
    this.main = main;
    this.name = state.className;
    this.tiles = new Tiles({ onOpen: (cell) => openPicture(cell.row) });
    this.openPicture = openPicture;
    this.order = settings.order || state.status.orders[0];
    this.examples = [];
    this.text = "";
    this.fits = state.fits;
    this.stop = listen((cells) => this.update(cells));
    this.learned = () => this.note();
    document.addEventListener("learned", this.learned);
    this.head = h("div", { class: "tools" });
    this.info = h("div", { class: "info", "aria-live": "polite" });
    fill(main, this.head, this.info, this.tiles.element);
    this.tools();
  }

  close() {
    this.closed = true;
    this.stop();
    document.removeEventListener("learned", this.learned);
  }

  get pages() {
    const key = JSON.stringify([this.name, this.order, this.examples, this.text]);
    if (!remembered.has(key)) remembered.set(key, { list: [], at: -1, seen: [], asking: null });
    return remembered.get(key);
  }

  tools() {
    const orders = [...state.status.orders, "search"];
    const choice = h(
      "select",
      { id: "order", "aria-label": "Order", onchange: (event) => this.setOrder(event.target.value) },
      orders.map((one) => h("option", { value: one, selected: one === this.order }, ORDERS[one] || one)),
    );
    const box = h("input", { type: "checkbox", id: "random", checked: settings.random, onchange: (event) => { settings.random = event.target.checked; event.target.blur(); } });
    const search = h("input", {
      type: "search",
      id: "search",
      placeholder: "part of a file name",
      value: this.text,
      onchange: (event) => {
        this.text = event.target.value;
        this.next();
      },
    });
    const upload = h("input", { type: "file", id: "upload", accept: "image/*", class: "hidden", onchange: (event) => this.searchByFile(event.target.files[0]) });
    fill(
      this.head,
      h("h1", { title: this.name }, this.name || "No class"),
      choice,
      this.order === "search"
        ? [search, h("button", { type: "button", onclick: () => upload.click() }, "By example picture …"), upload]
        : h("label", { for: "random", title: "Labels drawn at random test what the model fills in. Their score and source are hidden, and nothing learns from them." }, box, "random labels"),
      h("span", { class: "space" }),
      h("button", { type: "button", title: "All labels of this page without a verdict are absent (r)", onclick: () => this.restAbsent() }, "Rest is absent"),
      h("button", { type: "button", class: "main", id: "next", onclick: () => this.next() }, "Next page"),
    );
  }

  async open() {
    this.tools();
    if (!this.name) {
      fill(this.info, "Choose a class on the left, or add one.");
      this.tiles.show([]);
      return;
    }
    const pages = this.pages;
    if (pages.list.length) this.showPage(Math.max(pages.at, 0)); // -1: it came after another class was opened
    else await this.next();
  }

  setOrder(order, examples = []) {
    this.order = order;
    this.examples = examples;
    settings.order = ["similar", "search"].includes(order) ? null : order;
    document.activeElement?.blur();
    this.open();
  }

  // As many tiles as fit without scrolling.
  size() {
    const style = getComputedStyle(this.tiles.element);
    const width = this.tiles.element.clientWidth - parseFloat(style.paddingLeft) - parseFloat(style.paddingRight);
    const gap = 8;
    const columns = Math.max(Math.floor((width + gap) / (140 + gap)), 2);
    const tile = (width - gap * (columns - 1)) / columns;
    const top = this.tiles.element.getBoundingClientRect().top;
    const bottom = document.getElementById("keys").getBoundingClientRect().top;
    const rows = Math.max(Math.floor((bottom - top - 8) / (tile * 0.75 + 46 + gap)), 1);
    return Math.min(columns * rows, 100);
  }

  async next() {
    const pages = this.pages;
    if (pages.at < pages.list.length - 1) return this.showPage(pages.at + 1);
    pages.asking ??= this.ask(pages); // Enter pressed twice gets one page
    const board = await pages.asking;
    if (!board || this.closed || pages !== this.pages) return; // another class or order was chosen meanwhile
    this.until = board.until_learned;
    this.fits = board.fits;
    if (board.cells.length) this.showPage(pages.list.length - 1);
    else this.empty();
  }

  async ask(pages) {
    const size = this.size();
    const request = {
      name: this.name,
      order: this.order === "search" ? state.status.orders[0] : this.order,
      size,
      seen: pages.seen.slice(-20000),
      random: settings.random && this.order !== "search" ? Math.ceil(size / ONE_RANDOM_IN) : 0,
      examples: this.examples,
    };
    try {
      if (this.order === "search") {
        const shown = new Set(pages.seen);
        const found = await get("/api/images", { text: this.text, limit: 1000 });
        request.rows = found.images.map((one) => one.row).filter((row) => !shown.has(row)).slice(0, size);
      }
      const board = await post("/api/board", request);
      announceDrawn(board.cells);
      if (board.cells.length) {
        pages.seen.push(...board.cells.map((cell) => cell.row));
        pages.list.push({ cells: board.cells, cursor: 0 });
      }
      return board;
    } catch (error) {
      toast(error.message, "error");
      return null;
    } finally {
      pages.asking = null;
    }
  }

  empty() {
    const first = !this.pages.list.length;
    if (first) this.tiles.show([]);
    const why = {
      suspects: "No known label of this class looks wrong.",
      filled: "The run fills in no label of this class with a guarantee.",
      similar: "No picture has this class yet. Search pictures by name, or by an example, and mark a few as present.",
      search: "No picture has this text in its name.",
    }[this.order];
    if (first && this.order === "similar") this.setOrder("search");
    toast(first ? why || "There is no unknown label left in this class." : "That was the last page of this order.");
  }

  previous() {
    const pages = this.pages;
    if (pages.at > 0) this.showPage(pages.at - 1);
    else toast("This is the first page.");
  }

  showPage(at) {
    const pages = this.pages;
    const before = pages.list[pages.at];
    if (before?.cells === this.tiles.cells) before.cursor = this.tiles.cursor;
    pages.at = at;
    this.tiles.show(pages.list[at].cells, pages.list[at].cursor);
    this.note();
  }

  note() {
    const cells = this.tiles.cells;
    const pages = this.pages;
    const open = cells.filter((cell) => cell.source !== "reviewer" && !cell.waiting).length;
    const blind = cells.filter((cell) => cell.blind).length;
    const renewed = state.fits > this.fits && !["similar", "search"].includes(this.order);
    fill(
      this.info,
      h("span", {}, `Page ${pages.at + 1} · ${open ? `${open} of ${plural(cells.length, "label")} open` : "all answered"}`),
      blind ? h("span", { class: "blindly" }, `${plural(blind, "random label")}: please answer each one`) : null,
      renewed ? h("span", { class: "renewed" }, "Learned: the next page has a new order") : null,
      !renewed && this.until ? h("span", { class: "quiet" }, `learns after about ${plural(this.until, "more verdict")}`) : null,
      !open && cells.length ? h("span", { class: "done" }, "Press Enter for the next page") : null,
    );
  }

  update(cells) {
    if (this.until !== undefined && this.until !== null) {
      const mine = cells.filter((cell) => cell.waiting && cell.name === this.name && !cell.blind);
      this.until = Math.max(this.until - mine.length, 0);
    }
    this.tiles.update(cells);
    const pages = this.pages;
    if (pages.list[pages.at]) pages.list[pages.at].cells = this.tiles.cells;
    this.note();
  }

  say(value) {
    const range = this.tiles.range;
    judge(range, () => value);
    this.tiles.advance();
  }

  restAbsent() {
    const rest = this.tiles.cells.filter((cell) => cell.source !== "reviewer" && !cell.waiting);
    const open = rest.filter((cell) => !cell.blind);
    judge(open, () => ABSENT);
    if (open.length < rest.length) toast("Random labels are left: each needs an answer of its own.");
    this.tiles.advance();
  }

  async searchByFile(file) {
    if (!file) return;
    try {
      const response = await fetch("/api/examples", { method: "POST", headers: { "X-Partlabel": "review" }, body: file });
      const answer = await response.json();
      if (!response.ok) throw new Error(answer.message);
      const rows = answer.images.map((one) => one.row);
      const board = await post("/api/board", { name: this.name, rows });
      const pages = this.pages;
      pages.list.push({ cells: board.cells, cursor: 0 });
      this.showPage(pages.list.length - 1);
      toast("The most similar pictures. Mark those that have the class as present.");
    } catch (error) {
      toast(error.message, "error");
    }
  }

  key(event) {
    if (this.tiles.move(event.key, event.shiftKey)) return true;
    switch (event.key) {
      case "1": this.say(PRESENT); return true;
      case "0": this.say(ABSENT); return true;
      case " ": this.say(SKIPPED); return true;
      case "r": this.restAbsent(); return true;
      case "Enter":
      case "n":
      case "PageDown": this.next(); return true;
      case "b":
      case "PageUp": this.previous(); return true;
      case "a":
        this.tiles.cursor = 0;
        this.tiles.select(this.tiles.cells.length - 1, true);
        return true;
      case "h": this.tiles.toggleHeat(toast); return true;
      case "s": if (this.tiles.current) this.setOrder("similar", [this.tiles.current.row]); return true;
      case "p": if (this.tiles.current) this.openPicture(this.tiles.current.row); return true;
      case "Escape": this.tiles.select(this.tiles.cursor, false); return true;
      default: return false;
    }
  }

  static keys = [["1", "present"], ["0", "absent"], ["space", "skip"], ["← ↑ → ↓", "move"], ["shift", "range"], ["r", "rest absent"], ["Enter", "next"], ["b", "back"], ["u", "undo"], ["h", "heat"], ["s", "similar"], ["p", "picture"], ["[ ]", "class"]];
}
