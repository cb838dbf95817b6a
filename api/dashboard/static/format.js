// Turns an answer into DOM nodes: a small, safe part of Markdown. Text only ever becomes text nodes.

const FENCE = /^(\s*)(`{3,}|~{3,})\s*([^`]*)$/;
const ITEM = /^(\s*)([-*+]|\d{1,4}[.)])\s+(.*)$/;
// The lengths are bounded so that no text, however strange, makes the page slow.
const INLINE = /(`{1,3})([^`]|[^`].{0,2000}?[^`])\1(?!`)|\*\*(?=\S)(.{1,2000}?)\*\*|(?<![\w*])\*(?=[^\s*])([^*]{1,2000}?)\*(?![\w*])|\[([^[\]]{1,500})\]\((https?:\/\/[^\s)]+)\)|(https?:\/\/[^\s<>"'`]*[^\s<>"'`.,;:!?)\]])/g;

const DEEPEST_QUOTE = 6;

export function format(text, depth = 0) {
  const out = document.createDocumentFragment();
  const lines = text.split("\n");
  let at = 0;
  while (at < lines.length) {
    at = block(lines, at, out, depth);
  }
  return out;
}

export function element(name, className, ...children) {
  const node = document.createElement(name);
  if (className) node.className = className;
  node.append(...children);
  return node;
}

function block(lines, at, out, depth) {
  const line = lines[at];
  const fence = FENCE.exec(line);
  if (fence) return code(lines, at, fence, out);
  if (!line.trim()) return at + 1;
  const heading = /^(#{1,4})\s+(.+)$/.exec(line);
  if (heading) {
    out.append(element(heading[1].length < 3 ? "h3" : "h4", "", inline(heading[2])));
    return at + 1;
  }
  if (/^(\s*[-*_]){3,}\s*$/.test(line)) {
    out.append(element("hr"));
    return at + 1;
  }
  if (ITEM.test(line)) return list(lines, at, out);
  if (line.startsWith(">") && depth < DEEPEST_QUOTE) return quote(lines, at, out, depth);
  return paragraph(lines, at, out);
}

function code(lines, at, [, indent, marker, info], out) {
  let end = at + 1;
  const closes = (line) => line.trim().length >= marker.length && new Set(line.trim()).size === 1 && line.trim()[0] === marker[0];
  while (end < lines.length && !closes(lines[end])) end += 1;
  const inside = lines.slice(at + 1, end).map((line) => (line.startsWith(indent) ? line.slice(indent.length) : line.trimStart()));
  const source = inside.join("\n");
  const body = element("pre", "", element("code", "", source));
  body.tabIndex = 0;
  const bar = element("header", "", element("span", "", info.trim().split(/\s/)[0] || "text"));
  if (navigator.clipboard) bar.append(copyButton(source));
  out.append(element("div", "code", bar, body));
  return end + 1;
}

function copyButton(source) {
  const copy = element("button", "button quiet", "Copy");
  copy.type = "button";
  copy.addEventListener("click", async () => {
    await navigator.clipboard.writeText(source);
    copy.textContent = "Copied";
    setTimeout(() => { copy.textContent = "Copy"; }, 1500);
  });
  return copy;
}

function list(lines, at, out) {
  const ordered = /\d/.test(ITEM.exec(lines[at])[2]);
  const indent = ITEM.exec(lines[at])[1].length;
  const node = element(ordered ? "ol" : "ul");
  if (ordered) node.start = parseInt(ITEM.exec(lines[at])[2], 10);
  while (at < lines.length) {
    const item = ITEM.exec(lines[at]);
    if (item && item[1].length > indent + 1 && node.lastChild) {
      at = list(lines, at, node.lastChild);
    } else if (item && item[1].length >= indent && /\d/.test(item[2]) === ordered) {
      node.append(element("li", "", inline(item[3])));
      at += 1;
    } else if (!item && node.lastChild && /^\s{2,}\S/.test(lines[at]) && !FENCE.test(lines[at])) {
      node.lastChild.append(" ", inline(lines[at].trim()));
      at += 1;
    } else if (FENCE.test(lines[at]) && /^\s{2,}/.test(lines[at])) {
      at = code(lines, at, FENCE.exec(lines[at]), node.lastChild);
    } else break;
  }
  out.append(node);
  return at;
}

function quote(lines, at, out, depth) {
  const inside = [];
  while (at < lines.length && lines[at].startsWith(">")) {
    inside.push(lines[at].replace(/^> ?/, ""));
    at += 1;
  }
  out.append(element("blockquote", "", format(inside.join("\n"), depth + 1)));
  return at;
}

function paragraph(lines, at, out) {
  const start = at;
  while (at < lines.length && lines[at].trim() && (at === start || !startsBlock(lines[at]))) at += 1;
  const node = element("p");
  lines.slice(start, at).forEach((line, number) => {
    if (number) node.append(element("br"));
    node.append(inline(line));
  });
  out.append(node);
  return at;
}

function startsBlock(line) {
  return FENCE.test(line) || ITEM.test(line) || /^#{1,4}\s/.test(line) || line.startsWith(">");
}

function inline(text) {
  const out = document.createDocumentFragment();
  let at = 0;
  for (const found of text.matchAll(INLINE)) {
    out.append(text.slice(at, found.index), span(found));
    at = found.index + found[0].length;
  }
  out.append(text.slice(at));
  return out;
}

function span([whole, ticks, source, bold, italic, label, target, address]) {
  if (ticks) return element("code", "", source.trim() || source);
  if (bold) return element("strong", "", inline(bold));
  if (italic) return element("em", "", inline(italic));
  return link(label || address || whole, target || address);
}

function link(label, target) {
  const node = element("a", "", label);
  node.href = target;
  node.rel = "noopener noreferrer nofollow";
  node.target = "_blank";
  return node;
}
