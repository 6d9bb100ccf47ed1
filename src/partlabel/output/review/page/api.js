// Calls of the server. Verdicts wait in a queue that survives a reload and a restart of the server;
// each has an id of its own, so that one that is sent twice counts once.

import { toast } from "./dom.js";

export class Refused extends Error {}

export async function call(method, path, body) {
  let response;
  try {
    response = await fetch(path, {
      method,
      headers: { "X-Partlabel": "review", "Content-Type": "application/json" },
      body: body === undefined ? undefined : JSON.stringify(body),
    });
  } catch {
    throw new Error("The server cannot be reached.");
  }
  if (response.status === 403) {
    throw new Error(
      "The server was started again. Open the new address that it printed in the terminal.",
    );
  }
  const answer = await response.json().catch(() => ({ message: response.statusText }));
  if (response.ok) return answer;
  const kind = response.status === 503 || response.status >= 507 ? Error : Refused;
  throw new kind(answer.message || `The server answered ${response.status}.`);
}

export const get = (path, query = {}) => call("GET", `${path}?${new URLSearchParams(query)}`);
export const post = (path, body) => call("POST", path, body);

export function newId() {
  const bytes = crypto.getRandomValues(new Uint8Array(12));
  return Array.from(bytes, (byte) => byte.toString(16).padStart(2, "0")).join("");
}

export class Queue {
  constructor(journal, onChange) {
    this.key = `partlabel-queue-${journal}`;
    this.onChange = onChange;
    this.sending = false;
    this.handlers = new Map();
    this.problem = "";
    try {
      this.items = JSON.parse(localStorage.getItem(this.key)) || [];
    } catch {
      this.items = [];
    }
    if (this.items.length) this.send();
  }

  // Calls back with the server's answer once the act is on its disk.
  add(path, body, done) {
    this.handlers.set(body.id, done);
    this.items.push({ path, body });
    this.keep();
    this.send();
  }

  keep() {
    localStorage.setItem(this.key, JSON.stringify(this.items));
    this.onChange(this.items.length, this.problem);
  }

  async send() {
    if (this.sending) return;
    this.sending = true;
    while (this.items.length) {
      const { path, body } = this.items[0];
      const done = this.handlers.get(body.id);
      try {
        const answer = await post(path, body);
        this.problem = "";
        this.drop(body.id);
        done?.(answer);
      } catch (error) {
        if (error instanceof Refused) {
          this.drop(body.id);
          toast(`Not kept: ${error.message}`, "error");
          done?.(null);
          continue;
        }
        this.problem = error.message;
        this.onChange(this.items.length, this.problem);
        await new Promise((again) => setTimeout(again, 1500));
      }
    }
    this.sending = false;
  }

  drop(id) {
    this.items.shift();
    this.handlers.delete(id);
    this.keep();
  }
}
