// How the review goes.

import { get, post } from "./api.js";
import { fill, h, number, percent, plural, toast } from "./dom.js";
import { state } from "./state.js";

const WORDS = { 1: "present", "-1": "absent" };
const PAGE = 25;

export class ProgressPage {
  constructor(main, { openBoard }) {
    this.openBoard = openBoard;
    this.text = "";
    this.start = 0;
    this.body = h("div", { class: "progress" });
    const filter = h("input", { type: "search", id: "filter", placeholder: "filter classes ( / )", "aria-label": "Filter classes", oninput: (event) => { this.text = event.target.value; this.start = 0; clearTimeout(this.timer); this.timer = setTimeout(() => this.open(), 200); } });
    this.filter = filter;
    fill(main, h("div", { class: "tools" }, h("h1", {}, "Progress"), h("span", { class: "space" }), filter), this.body);
    fill(this.body, h("p", { class: "quiet" }, "Counting …"));
  }

  close() {
    clearTimeout(this.timer);
  }

  async open() {
    const asked = (this.asked = { text: this.text, start: this.start, limit: PAGE });
    try {
      const progress = await get("/api/progress", asked);
      if (asked !== this.asked) return; // more was typed meanwhile
      this.total = progress.total;
      fill(this.body, this.cards(progress), this.table(progress), this.pager(), this.notes(progress));
    } catch (error) {
      toast(error.message, "error");
    }
  }

  cards(progress) {
    const random = sum(progress.classes, (one) => one.random);
    const chosen = sum(progress.classes, (one) => one.chosen);
    const share = ({ agreed, total }) => (total ? `${percent(agreed / total)} of ${number(total)}` : "none yet");
    const card = (value, text) => h("div", { class: "card" }, h("b", {}, value), h("span", {}, text));
    return h(
      "div",
      { class: "cards" },
      card(number(progress.verdicts), "labels with a verdict"),
      progress.speeds.map((one) => card(one.per_minute === null ? "–" : `${one.per_minute} / min`, `${one.reviewer}, ${plural(one.verdicts, "verdict")}`)),
      card(share(random), "random verdicts agree with the model"),
      card(share(chosen), "chosen verdicts agree with the model"),
      card(number(progress.conflicts), "labels on which reviewers differ"),
    );
  }

  table(progress) {
    return h(
      "table",
      {},
      h("thead", {}, h("tr", {}, ["Class", "Labels now", "Filled in by the run", `Random test of ${percent(progress.precision)}`, "Agreement"].map((text) => h("th", { scope: "col" }, text)))),
      h("tbody", {}, progress.classes.map((one) => this.line(one, progress.precision))),
    );
  }

  line(one, precision) {
    const all = one.present + one.absent + one.unknown || 1;
    const part = (kind, value) => {
      const bar = h("i", { class: kind, title: `${number(value)} ${kind}` });
      bar.style.width = `${(100 * value) / all}%`;
      return bar;
    };
    const filled = one.filled_present + one.filled_absent;
    const bounds = Object.entries(one.guarantee).map(([word, bound]) => `${word} ≥ ${percent(bound)}`);
    const agreed = (name, { agreed, total }) => (total ? `${name} ${percent(agreed / total)} of ${total}` : null);
    return h(
      "tr",
      {},
      h("th", { scope: "row" }, h("button", { type: "button", class: "link", onclick: () => this.openBoard(one.name) }, one.name), one.new && h("span", { class: "mark new" }, "new"), one.conflicts ? h("small", {}, plural(one.conflicts, "conflict")) : null),
      h("td", {}, h("span", { class: "bar" }, part("present", one.present), part("absent", one.absent), part("unknown", one.unknown)), h("small", {}, `${number(one.present)} present, ${number(one.absent)} absent, ${number(one.unknown)} unknown`)),
      h("td", {}, filled ? [`${number(one.filled_present)} present, ${number(one.filled_absent)} absent`, h("small", {}, bounds.join(", "))] : h("span", { class: "quiet" }, one.new ? "a class of this page" : "none with a guarantee")),
      h("td", {}, one.tested ? one.sides.map((side) => this.side(side, precision)) : this.untested(one), one.new && one.tested && one.ready ? h("button", { type: "button", onclick: () => this.test(one.name) }, "Test the newest scores instead") : null),
      h("td", {}, h("small", {}, [agreed("random", one.random), agreed("chosen", one.chosen)].filter(Boolean).join(", ") || "–")),
    );
  }

  side(side, precision) {
    const word = WORDS[side.value];
    if (!side.size) return h("div", { class: "side quiet" }, `${word}: nothing to test`);
    const lines = [];
    if (side.guaranteed) lines.push(h("b", { class: "passed" }, `${number(side.guaranteed)} ${word} labels guaranteed (score ${limit(side)})`));
    const done = side.guaranteed === side.size;
    if (!done && side.missing > 0) lines.push(`${side.guaranteed ? "next step" : word}: ${plural(side.missing, "right answer")} missing for ${number(side.tested)} labels`);
    if (!done && side.missing < 0) lines.push(`${word}: ${percent(precision)} cannot be shown any more`);
    lines.push(h("small", {}, `${side.right} of ${side.drawn} random labels right${side.open ? `, ${side.open} wait for an answer` : ""}${side.drawn ? `; at least ${percent(side.precision, 1)}` : ""}`));
    return h("div", { class: "side" }, lines);
  }

  untested(one) {
    if (!one.new) return h("span", { class: "quiet" }, "the run has no scores of this class");
    return [h("span", { class: "quiet" }, one.ready ? "The scores can be tested. They are then fixed, and random labels are mixed in." : one.why), one.ready ? h("button", { type: "button", class: "main", onclick: () => this.test(one.name) }, "Test the scores") : null];
  }

  async test(name) {
    try {
      await post("/api/tests", { name });
      toast(`The scores of ${name} are fixed. Boards now mix in random labels that test them.`);
      this.open();
    } catch (error) {
      toast(error.message, "error");
    }
  }

  pager() {
    if (this.total <= PAGE) return null;
    const go = (by) => () => { this.start = Math.max(this.start + by, 0); this.open(); };
    return h(
      "div",
      { class: "row" },
      h("button", { type: "button", disabled: this.start === 0, onclick: go(-PAGE) }, "← Previous"),
      h("span", { class: "quiet" }, `${number(this.start + 1)} to ${number(Math.min(this.start + PAGE, this.total))} of ${plural(this.total, "class", "classes")}`),
      h("button", { type: "button", disabled: this.start + PAGE >= this.total, onclick: go(PAGE) }, "Next →"),
    );
  }

  notes(progress) {
    const about = `A guarantee says: of the labels that were unknown at the start and that the model takes for present (or absent) with at least this score, at least ${percent(progress.precision)} are right. Only random labels count for it. One that was skipped, or waits for an answer, counts as wrong. The bound holds at every moment, also if you stop when it looks best; it is wrong with a probability of at most 5% for each class and value.`;
    return h("div", { class: "notes" }, h("p", {}, about), state.status.notes.map((note) => h("p", {}, `From the run: ${note}`)), state.status.not_learning ? h("p", {}, state.status.not_learning) : null);
  }

  key(event) {
    if (event.key === "/") { this.filter.focus(); return true; }
    if (event.key === "Enter" || event.key === "n") { this.open(); return true; }
    return false;
  }

  static keys = [["/", "filter"], ["Enter", "refresh"], ["u", "undo"], ["tab", "next control"]];
}

const limit = (side) => (side.value === 1 ? `≥ ${percent(side.limit)}` : `≤ ${percent(1 - side.limit)}`);

function sum(classes, get) {
  return classes.reduce((all, one) => ({ agreed: all.agreed + get(one).agreed, total: all.total + get(one).total }), { agreed: 0, total: 0 });
}
