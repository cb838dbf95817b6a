// Files on their way into the next message: uploaded at once, shown as chips, sent by id.

import { element } from "./format.js";

export class Files {
  constructor(list, url, memory, changed) {
    this.list = list;
    this.url = url;
    this.memory = memory;
    this.changed = changed;
    this.files = [];
  }

  get busy() {
    return this.files.some((file) => file.state === "uploading");
  }

  get ready() {
    return this.files.filter((file) => file.state === "ready").map(({ id, name }) => ({ id, name }));
  }

  clear() {
    this.files = [];
    this.show();
  }

  async add(blob) {
    const file = { name: blob.name || "pasted image", state: "uploading", id: "" };
    this.files.push(file);
    this.show();
    try {
      const form = new FormData();
      form.append("file", blob, file.name);
      const token = this.memory.read().resumeToken;
      const answer = await fetch(this.url, { method: "POST", headers: { Authorization: `Bearer ${token}` }, body: form });
      const body = await answer.json();
      if (!answer.ok) throw new Error(body.message);
      Object.assign(file, { state: "ready", id: body.id });
    } catch (error) {
      Object.assign(file, { state: "failed", why: error instanceof TypeError ? "no connection" : error.message });
    }
    this.show();
  }

  show() {
    this.list.hidden = !this.files.length;
    this.list.replaceChildren(...this.files.map((file) => this.chip(file)));
    this.changed();
  }

  chip(file) {
    const words = { uploading: `${file.name} …`, ready: file.name, failed: `${file.name}: ${file.why}` };
    const remove = element("button", "", "×");
    remove.type = "button";
    remove.setAttribute("aria-label", `Remove ${file.name}`);
    remove.addEventListener("click", () => {
      this.files = this.files.filter((other) => other !== file);
      this.show();
    });
    const chip = element("li", "", words[file.state], remove);
    chip.dataset.state = file.state;
    return chip;
  }
}
