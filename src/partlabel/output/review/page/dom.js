// Elements are made here only. Text is always text, never markup, so names need no escaping.

export function h(tag, attributes = {}, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (value === null || value === undefined || value === false) continue;
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else if (value === true) element.setAttribute(name, "");
    else element.setAttribute(name, String(value));
  }
  for (const child of children.flat(Infinity)) {
    if (child === null || child === undefined || child === false) continue;
    element.append(child instanceof Node ? child : document.createTextNode(String(child)));
  }
  return element;
}

export function fill(parent, ...children) {
  parent.replaceChildren(...children.flat(Infinity).filter(Boolean));
  return parent;
}

export const $ = (id) => document.getElementById(id);

export function toast(message, kind = "info") {
  const shown = h("div", { class: `toast ${kind}` }, message);
  $("toasts").append(shown);
  while ($("toasts").children.length > 3) $("toasts").firstChild.remove();
  setTimeout(() => shown.remove(), kind === "error" ? 9000 : 4000);
}

export const percent = (share, digits = 0) => `${(100 * share).toFixed(digits)}%`;
export const number = (value) => value.toLocaleString("en-US");
export const plural = (n, one, many = `${one}s`) => `${number(n)} ${n === 1 ? one : many}`;

// A dialog with a form. Resolves with the form's values, or null if it was closed.
export function ask(title, fields, action, note = "") {
  const dialog = $("dialog");
  return new Promise((resolve) => {
    let answer = null;
    const form = h(
      "form",
      {
        method: "dialog",
        onsubmit: (event) => {
          event.preventDefault();
          answer = Object.fromEntries(new FormData(form));
          dialog.close();
        },
      },
      h("h2", {}, title),
      note && h("p", { class: "quiet" }, note),
      fields,
      h(
        "div",
        { class: "row end" },
        h("button", { type: "button", onclick: () => dialog.close() }, "Cancel"),
        h("button", { type: "submit", class: "main" }, action),
      ),
    );
    fill(dialog, form);
    dialog.addEventListener("close", () => resolve(answer), { once: true });
    dialog.showModal();
  });
}
