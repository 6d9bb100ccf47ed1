// Known labels that look wrong, and labels on which reviewers differ.

import { get } from "./api.js";
import { fill, h, number, toast } from "./dom.js";
import { ABSENT, judge, listen, PRESENT, SKIPPED, UNKNOWN } from "./state.js";
import { Tiles } from "./tiles.js";

export class SuspectsPage {
  constructor(main, { openPicture }) {
    this.openPicture = openPicture;
    this.tiles = new Tiles({ onOpen: (cell) => openPicture(cell.row), caption: "name" });
    this.stop = listen((cells) => this.update(cells));
    this.start = 0;
    this.info = h("div", { class: "info", "aria-live": "polite" });
    const act = (text, run, main = false) => h("button", { type: "button", class: main ? "main" : "", onclick: run }, text);
    fill(
      main,
      h(
        "div",
        { class: "tools" },
        h("h1", {}, "Suspects"),
        h("span", { class: "space" }),
        act("Keep (k)", () => this.say((cell) => cell.known)),
        act("Flip (f)", () => this.say((cell) => -cell.known)),
        act("Make unknown (x)", () => this.say(() => UNKNOWN)),
        act("Next page", () => this.next(), true),
      ),
      this.info,
      this.tiles.element,
    );
  }

  close() {
    this.stop();
  }

  async open() {
    try {
      let list = await get("/api/suspects", { start: this.start });
      if (this.start && !list.suspects.length) {
        this.start = 0;
        toast("That was the last page: from the beginning again.");
        list = await get("/api/suspects");
      }
      this.total = list.total;
      this.tiles.show([...list.conflicts, ...list.suspects]);
      this.conflicts = list.conflicts.length;
      this.note();
    } catch (error) {
      toast(error.message, "error");
    }
  }

  // Those without a verdict stay in the list: go past them.
  next() {
    this.start += this.tiles.cells.filter((cell) => cell.suspect && cell.source !== "reviewer").length;
    this.open();
  }

  note() {
    const text = this.tiles.cells.length
      ? `${number(this.total)} known labels look wrong, the least likely first. Each shows its class, its score, and its state in the label file.`
      : "No known label looks wrong, and no two reviewers differ.";
    fill(this.info, h("span", {}, text), this.conflicts ? h("span", { class: "renewed" }, `${this.conflicts} on which reviewers differ come first`) : null);
  }

  update(cells) {
    this.tiles.update(cells);
  }

  say(valueOf) {
    const range = this.tiles.range.filter((cell) => cell.known || !cell.conflict);
    if (!range.length) return toast("Reviewers differ here: press 1 or 0.");
    judge(range, valueOf);
    this.tiles.advance();
  }

  value(value) {
    judge(this.tiles.range, () => value);
    this.tiles.advance();
  }

  key(event) {
    if (this.tiles.move(event.key, event.shiftKey)) return true;
    switch (event.key) {
      case "k": this.say((cell) => cell.known); return true;
      case "f": this.say((cell) => -cell.known); return true;
      case "x": this.value(UNKNOWN); return true;
      case "1": this.value(PRESENT); return true;
      case "0": this.value(ABSENT); return true;
      case " ": this.value(SKIPPED); return true;
      case "Enter":
      case "n": this.next(); return true;
      case "h": this.tiles.toggleHeat((message) => toast(message)); return true;
      case "p": if (this.tiles.current) this.openPicture(this.tiles.current.row); return true;
      default: return false;
    }
  }

  static keys = [["k", "keep"], ["f", "flip"], ["x", "make unknown"], ["space", "skip"], ["← ↑ → ↓", "move"], ["shift", "range"], ["Enter", "next page"], ["u", "undo"], ["h", "heat map"], ["p", "picture"]];
}
