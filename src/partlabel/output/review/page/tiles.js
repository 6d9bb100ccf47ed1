// A grid of labels with a cursor and a range, worked by keys or by mouse.

import { h, percent } from "./dom.js";
import { ABSENT, keyOf, PRESENT, SKIPPED, UNKNOWN } from "./state.js";

const STATES = {
  [PRESENT]: ["present", "✓", "present"],
  [ABSENT]: ["absent", "✕", "absent"],
  [UNKNOWN]: ["unknown", "?", "unknown"],
  [SKIPPED]: ["skipped", "–", "skipped"],
};

// The first heat map loads the network.
export const SLOW_HEAT = "The heat map is being made. The first one takes a few seconds …";

export function stateOf(cell) {
  if (cell.conflict) return ["conflict", "!", "reviewers differ"];
  return STATES[cell.value];
}

export function scoreText(cell) {
  if (cell.blind) return "drawn at random";
  const parts = [];
  if (cell.score !== null) parts.push(percent(cell.score));
  if (cell.learned !== null) parts.push(`now ${percent(cell.learned)}`);
  return parts.join(", ");
}

export function sourceText(cell) {
  if (cell.blind) return "score hidden";
  if (cell.conflict) return cell.opinions.map((one) => `${one.reviewer}: ${STATES[one.value][2]}`).join("; ");
  if (cell.source === "reviewer") return cell.opinions.map((one) => one.reviewer).join(", ");
  if (cell.source === "file") return "label file";
  if (cell.source === "model") return cell.decided === PRESENT ? "filled in: present" : "filled in: absent";
  return "unknown";
}

export function guaranteeText(cell) {
  return cell.guarantee === null ? "" : `≥ ${percent(cell.guarantee)}`;
}

export class Tiles {
  constructor({ onOpen, caption = "" }) {
    this.onOpen = onOpen;
    this.caption = caption;
    this.cells = [];
    this.cursor = 0;
    this.anchor = null; // where a range begins
    this.heat = new Set();
    this.element = h("div", { class: "tiles", role: "listbox", "aria-label": "Labels", "aria-multiselectable": "true" });
  }

  show(cells, cursor = 0) {
    this.cells = cells;
    this.cursor = Math.min(cursor, Math.max(cells.length - 1, 0));
    this.anchor = null;
    this.heat.clear();
    this.element.replaceChildren(...cells.map((cell, index) => this.tile(cell, index)));
    this.mark();
  }

  tile(cell, index) {
    const [kind, sign, word] = stateOf(cell);
    const picture = h("img", {
      src: this.address(cell),
      alt: "",
      loading: "lazy",
      draggable: "false",
      onerror: (event) => event.target.replaceWith(h("div", { class: "gone" }, "This picture cannot be shown: ", cell.image)),
    });
    const marks = [
      cell.blind && h("span", { class: "mark random", title: "Drawn at random. Decide by the picture alone: score and source are hidden." }, "random"),
      cell.suspect && h("span", { class: "mark suspect", title: "This label of the file looks wrong." }, "suspect"),
    ];
    const label = [cell.image, word, scoreText(cell), sourceText(cell), guaranteeText(cell)].filter(Boolean).join(", ");
    return h(
      "div",
      {
        class: `tile ${kind}${cell.waiting ? " waiting" : ""}${cell.blind ? " blind" : ""}`,
        role: "option",
        "aria-label": label,
        title: cell.image,
        "data-row": cell.row,
        "data-name": cell.name,
        onclick: (event) => this.select(index, event.shiftKey),
        ondblclick: () => this.onOpen(cell),
      },
      h("div", { class: "frame" }, picture, h("div", { class: "marks" }, marks), h("span", { class: "state", "aria-hidden": "true" }, sign)),
      h(
        "div",
        { class: "caption" },
        h("span", { class: "score" }, this.caption ? cell.name : scoreText(cell) || "no score"),
        h("span", { class: "guarantee", title: "At least this share of labels filled in like this one is right." }, guaranteeText(cell)),
        h("span", { class: "source" }, this.caption ? [scoreText(cell), sourceText(cell)].filter(Boolean).join(" · ") : sourceText(cell)),
      ),
    );
  }

  address(cell) {
    return this.heat.has(keyOf(cell))
      ? `/api/images/${cell.row}/heat?name=${encodeURIComponent(cell.name)}`
      : `/api/images/${cell.row}/thumbnail`;
  }

  // Labels that changed keep their place; nothing moves under the cursor.
  update(changed) {
    const byKey = new Map(changed.map((cell) => [keyOf(cell), cell]));
    let undone = null;
    this.cells.forEach((cell, index) => {
      const now = byKey.get(keyOf(cell));
      if (!now) return;
      this.cells[index] = now;
      this.element.children[index].replaceWith(this.tile(now, index));
      if (now.undone && undone === null) undone = index;
    });
    if (undone !== null) {
      this.cursor = undone;
      this.anchor = null;
    }
    this.mark();
  }

  get current() {
    return this.cells[this.cursor];
  }

  get range() {
    if (this.anchor === null) return this.current ? [this.current] : [];
    const [from, to] = [this.anchor, this.cursor].sort((a, b) => a - b);
    return this.cells.slice(from, to + 1);
  }

  select(index, extend) {
    if (index < 0 || index >= this.cells.length) return;
    if (extend && this.anchor === null) this.anchor = this.cursor;
    if (!extend) this.anchor = null;
    this.cursor = index;
    this.mark();
  }

  get columns() {
    const tiles = this.element.children;
    if (!tiles.length) return 1;
    const top = tiles[0].offsetTop;
    let number = 0;
    while (number < tiles.length && tiles[number].offsetTop === top) number += 1;
    return number;
  }

  move(key, extend) {
    const step = { ArrowLeft: -1, ArrowRight: 1, ArrowUp: -this.columns, ArrowDown: this.columns, Home: -this.cursor, End: this.cells.length - 1 - this.cursor }[key];
    if (step === undefined) return false;
    this.select(this.cursor + step, extend);
    return true;
  }

  // To the next label without a verdict; stays if there is none.
  advance() {
    this.anchor = null;
    const open = (cell) => cell.source !== "reviewer" && !cell.waiting;
    for (let step = 1; step <= this.cells.length; step += 1) {
      const index = (this.cursor + step) % this.cells.length;
      if (open(this.cells[index])) {
        this.cursor = index;
        break;
      }
    }
    this.mark();
  }

  mark() {
    const range = new Set(this.range.map(keyOf));
    Array.from(this.element.children).forEach((tile, index) => {
      tile.classList.toggle("cursor", index === this.cursor);
      const selected = range.has(keyOf(this.cells[index]));
      tile.classList.toggle("chosen", this.anchor !== null && selected);
      tile.setAttribute("aria-selected", String(selected));
    });
    this.element.children[this.cursor]?.scrollIntoView({ block: "nearest" });
  }

  toggleHeat(onProblem) {
    const cell = this.current;
    if (!cell) return;
    if (cell.blind) return onProblem("This label was drawn at random: decide by the picture alone.");
    const key = keyOf(cell);
    const shown = this.heat.has(key);
    if (shown) this.heat.delete(key);
    else this.heat.add(key);
    const picture = this.element.children[this.cursor].querySelector("img");
    if (!picture) return;
    const address = this.address(cell);
    if (shown) {
      picture.src = address;
      return;
    }
    const test = new Image();
    const slow = setTimeout(() => onProblem(SLOW_HEAT), 600);
    test.onload = () => {
      clearTimeout(slow);
      picture.src = address;
    };
    test.onerror = async () => {
      clearTimeout(slow);
      this.heat.delete(key);
      const answer = await fetch(address).then((response) => response.json()).catch(() => ({}));
      onProblem(answer.message || "There is no heat map of this label.");
    };
    test.src = address;
  }
}
