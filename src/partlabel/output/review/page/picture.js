// One picture, all classes.

import { get } from "./api.js";
import { fill, h, number, toast } from "./dom.js";
import { ABSENT, judge, keyOf, listen, PRESENT, SKIPPED, state, UNKNOWN } from "./state.js";
import { guaranteeText, SLOW_HEAT, scoreText, sourceText, stateOf } from "./tiles.js";

export class PicturePage {
  constructor(main, { go, row = 0 }) {
    this.go = go;
    this.row = row;
    this.cells = [];
    this.cursor = 0;
    this.heat = false;
    this.text = "";
    this.stop = listen((cells) => this.update(cells));
    this.view = h("div", { class: "view" });
    this.filter = h("input", { type: "search", id: "filter", placeholder: "filter classes ( / )", "aria-label": "Filter classes", oninput: () => this.setFilter() });
    this.list = h("div", { class: "states", role: "listbox", "aria-label": "Classes of this picture" });
    this.title = h("h1", {});
    this.more = h("p", { class: "quiet" });
    this.find = h("input", { type: "search", placeholder: "go to (part of a name)", "aria-label": "Go to a picture", onchange: (event) => this.goTo(event.target.value) });
    fill(
      main,
      h("div", { class: "tools" }, this.title, h("span", { class: "space" }), this.find, h("button", { type: "button", onclick: () => this.step(-1) }, "← Previous"), h("button", { type: "button", class: "main", onclick: () => this.step(1) }, "Next →")),
      h("div", { class: "picture" }, this.view, h("div", { class: "beside" }, this.filter, this.list, this.more)),
    );
  }

  close() {
    clearTimeout(this.slow);
    clearTimeout(this.timer);
    this.stop();
  }

  async open() {
    try {
      const text = this.text;
      const picture = await get(`/api/images/${this.row}`, { text });
      if (text !== this.text) return; // more was typed meanwhile
      this.cells = picture.cells;
      this.cursor = Math.min(this.cursor, Math.max(this.cells.length - 1, 0));
      this.title.textContent = picture.image;
      this.more.textContent = picture.total > this.cells.length ? `${number(this.cells.length)} of ${number(picture.total)} classes; type to filter.` : "";
      this.draw();
    } catch (error) {
      toast(error.message, "error");
    }
  }

  draw() {
    const cell = this.cells[this.cursor];
    const address = this.heat && cell ? `/api/images/${this.row}/heat?name=${encodeURIComponent(cell.name)}` : `/api/images/${this.row}/large`;
    if (this.address !== address) {
      this.address = address;
      const picture = h("img", {
        src: address,
        alt: this.title.textContent,
        onload: () => clearTimeout(this.slow),
        onerror: async () => {
          const answer = await fetch(address).then((response) => response.json()).catch(() => ({}));
          clearTimeout(this.slow);
          if (this.heat) {
            this.heat = false;
            toast(answer.message || "There is no heat map here.");
            this.draw();
          } else fill(this.view, h("div", { class: "gone" }, answer.message || "This picture cannot be shown."));
        },
      });
      clearTimeout(this.slow);
      if (this.heat) this.slow = setTimeout(() => toast(SLOW_HEAT), 600);
      fill(this.view, picture);
    }
    fill(this.list, this.cells.map((one, index) => this.line(one, index)));
    this.list.children[this.cursor]?.scrollIntoView({ block: "nearest" });
  }

  line(cell, index) {
    const [kind, sign, word] = stateOf(cell);
    const button = (value, text, title) =>
      h("button", { type: "button", tabindex: "-1", class: cell.value === value && cell.source ? "on" : "", title, onclick: (event) => { event.stopPropagation(); this.cursor = index; this.say(value); } }, text);
    return h(
      "div",
      {
        class: `line ${kind}${index === this.cursor ? " cursor" : ""}${cell.waiting ? " waiting" : ""}`,
        role: "option",
        "aria-selected": String(index === this.cursor),
        "aria-label": `${cell.name}, ${word}, ${scoreText(cell)}`,
        onclick: () => { this.cursor = index; this.draw(); },
      },
      h("span", { class: "state", "aria-hidden": "true" }, sign),
      h("span", { class: "what" }, h("b", { title: cell.name }, cell.name), h("small", {}, [scoreText(cell), sourceText(cell), guaranteeText(cell)].filter(Boolean).join(" · "))),
      h("span", { class: "buttons" }, button(PRESENT, "1", "present"), button(ABSENT, "0", "absent")),
    );
  }

  setFilter() {
    this.text = this.filter.value;
    this.cursor = 0;
    clearTimeout(this.timer);
    this.timer = setTimeout(() => this.open(), 120);
  }

  update(changed) {
    const byKey = new Map(changed.map((cell) => [keyOf(cell), cell]));
    this.cells = this.cells.map((cell) => byKey.get(keyOf(cell)) || cell);
    this.draw();
  }

  say(value) {
    const cell = this.cells[this.cursor];
    if (!cell) return;
    judge([cell], () => value);
    this.cursor = Math.min(this.cursor + 1, this.cells.length - 1);
    this.draw();
  }

  step(by) {
    const row = this.row + by;
    if (row < 0 || row >= state.status.images) return toast("There is no further picture.");
    this.go(row);
  }

  async goTo(text) {
    const found = await get("/api/images", { text, limit: 1 });
    if (found.images.length) this.go(found.images[0].row);
    else toast("No picture has this text in its name.");
  }

  key(event) {
    switch (event.key) {
      case "ArrowDown": this.cursor = Math.min(this.cursor + 1, this.cells.length - 1); this.draw(); return true;
      case "ArrowUp": this.cursor = Math.max(this.cursor - 1, 0); this.draw(); return true;
      case "ArrowRight": this.step(1); return true;
      case "ArrowLeft": this.step(-1); return true;
      case "1": this.say(PRESENT); return true;
      case "0": this.say(ABSENT); return true;
      case "x": this.say(UNKNOWN); return true;
      case " ": this.say(SKIPPED); return true;
      case "h": this.heat = !this.heat; this.draw(); return true;
      case "/": this.filter.focus(); return true;
      default: return false;
    }
  }

  static keys = [["1", "present"], ["0", "absent"], ["x", "unknown"], ["space", "skip"], ["↑ ↓", "class"], ["← →", "picture"], ["/", "filter"], ["h", "heat map"], ["u", "undo"]];
}
