// Files that agents send: fetched with the token of this chat, pictures to be seen and all of them to be kept.

import { element } from "./format.js";

const PICTURES = new Set(["image/png", "image/jpeg", "image/gif", "image/webp"]);
const MOST_SHOWN = 10_000_000;
const UNITS = [[1e6, "MB"], [1e3, "kB"]];

export class Downloads {
  constructor(root, memory) {
    this.root = root;
    this.memory = memory;
  }

  // The node of a file: its picture, once it is here, above a button that keeps the file.
  node(file) {
    const keep = element("button", "download", element("span", "", file.filename), element("small", "", sized(file.size)));
    keep.type = "button";
    keep.setAttribute("aria-label", `Download ${file.filename}, ${sized(file.size)}`);
    const problem = element("small", "why");
    problem.setAttribute("role", "status");
    const node = element("div", "sent", keep, problem);
    keep.addEventListener("click", () => this.tried(problem, async () => save(await this.address(file), file.filename)));
    if (PICTURES.has(file.contentType) && file.size <= MOST_SHOWN) this.tried(problem, async () => node.prepend(await this.picture(file)));
    return node;
  }

  async picture(file) {
    const image = element("img", "");
    image.alt = file.filename;
    image.src = await this.address(file);
    return image;
  }

  async address({ url, contentType }) {
    const token = this.memory.read().resumeToken;
    const answer = await fetch(new URL(url, this.root), { headers: token ? { Authorization: `Bearer ${token}` } : {} });
    if (!answer.ok) throw new Error(answer.status === 404 ? "The file no longer exists." : "The file cannot be fetched now.");
    // As the bytes of a picture or of nothing a browser opens, whatever they are.
    const type = PICTURES.has(contentType) ? contentType : "application/octet-stream";
    return URL.createObjectURL(new Blob([await answer.arrayBuffer()], { type }));
  }

  async tried(problem, work) {
    problem.textContent = "";
    try {
      await work();
    } catch (error) {
      problem.textContent = error instanceof TypeError ? "There is no connection; try again." : error.message;
    }
  }
}

function save(address, name) {
  const link = element("a", "");
  link.href = address;
  link.download = name;
  link.click();
  setTimeout(() => URL.revokeObjectURL(address), 60_000);
}

function sized(bytes) {
  const [unit, word] = UNITS.find(([least]) => bytes >= least) || [1, "bytes"];
  return `${unit === 1 ? bytes : (bytes / unit).toFixed(1)} ${word}`;
}
