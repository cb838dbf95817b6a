"""Web pages as text that a model can read: headings, paragraphs, lists and links, without the machinery around them."""

import re
from html import unescape
from urllib.parse import urljoin

_SILENT = frozenset({"script", "style", "noscript", "template", "svg", "math", "canvas", "iframe"})
_BLOCKS = frozenset(
    (
        *(
            "address",
            "article",
            "aside",
            "blockquote",
            "body",
            "caption",
            "dd",
            "details",
            "div",
            "dl",
            "dt",
            "fieldset",
        ),
        *("figcaption", "figure", "footer", "form", "header", "hr", "html", "main", "nav", "ol", "p", "pre", "section"),
        *("summary", "table", "tbody", "tfoot", "thead", "tr", "ul"),
    )
)
_HEADINGS = {f"h{level}": "#" * level + " " for level in range(1, 7)}
_MAX_LINK_CHARS = 300
_DEEPEST = 100

# Pages come from anybody, and the library's parser takes minutes for 60 kB of tags that never end (measured). Nothing
# here goes back: each quantifier is possessive or bounded, and what is no whole tag is text.
_ATTRIBUTES = r"""(?:[^<>"']|"[^"]{0,2000}"|'[^']{0,2000}'){0,5000}+"""
_MARKUP = re.compile(
    rf"<!--.*?(?:--!?>|\Z)|<[!?][^<>]*+>|<(?P<end>/?)(?P<tag>[a-z][^\s/<>\"']*+)(?P<rest>{_ATTRIBUTES})>", re.S | re.I
)
_ATTRIBUTE = re.compile(r"""(?<![a-z-])([a-z-]++)\s*+=\s*+(?:"([^"]*+)"|'([^']*+)'|([^\s"'<>]++))""", re.I)


def readable(html: str, url: str) -> str:
    """Return the text of a page at this address: its title first, and behind each link where it leads."""
    page = _Page(url)
    page.read(html)
    lines = (re.sub(r"[ \t\r\f\v\xa0]+", " ", line).strip() for line in page.text.splitlines())
    text = re.sub(r"\n{3,}", "\n\n", "\n".join(lines)).strip()
    title = " ".join(page.title.split())
    return f"{title}\n\n{text}" if title else text


class _Page:
    """Collects the text of a page while it is read."""

    def __init__(self, url: str) -> None:
        self._url = url
        self._title: list[str] = []
        self._pieces: list[str] = []
        self._silent: list[str] = []
        self._in_title = False
        self._links: list[str] = []
        self._preformatted = 0

    @property
    def title(self) -> str:
        return "".join(self._title)

    @property
    def text(self) -> str:
        return "".join(self._pieces)

    def read(self, html: str) -> None:
        """Go through the page once."""
        at = 0
        for found in _MARKUP.finditer(html):
            self._say(html[at : found.start()])
            at = found.end()
            tag = (found["tag"] or "").lower()
            if tag and found["end"]:
                self._leave(tag)
            elif tag:
                self._enter(tag, found["rest"])
        self._say(html[at:])

    def _enter(self, tag: str, rest: str) -> None:
        if tag == "title" and "svg" not in self._silent:
            self._in_title = True
        elif tag in _SILENT:
            if not rest.endswith("/") and len(self._silent) < _DEEPEST:
                self._silent.append(tag)
        elif not self._silent:
            self._begin(tag, _attributes(rest))

    def _leave(self, tag: str) -> None:
        if tag == "title":
            self._in_title = False
        elif tag in self._silent:
            while self._silent.pop() != tag:
                pass
        elif not self._silent:
            self._end(tag)

    def _say(self, data: str) -> None:
        if self._silent and not self._in_title:
            return
        text = unescape(data)
        if self._in_title:
            self._title.append(text)
        else:
            self._pieces.append(text if self._preformatted else re.sub(r"\s+", " ", text))

    def _begin(self, tag: str, attributes: dict[str, str]) -> None:
        if tag in _HEADINGS:
            self._pieces.append(f"\n\n{_HEADINGS[tag]}")
        elif tag == "li":
            self._pieces.append("\n- ")
        elif tag in ("td", "th"):
            self._pieces.append(" | ")
        elif tag == "br" or tag in _BLOCKS:
            self._pieces.append("\n" if tag in ("br", "tr") else "\n\n")
        elif tag == "img" and attributes.get("alt"):
            self._pieces.append(f"[image: {attributes['alt']}]")
        elif tag == "a":
            self._links.append(self._target(attributes.get("href") or ""))
        self._preformatted += tag == "pre"

    def _end(self, tag: str) -> None:
        if tag in _HEADINGS or tag in _BLOCKS:
            self._pieces.append("\n\n" if tag != "tr" else "")
        elif tag == "a" and self._links:
            self._pieces.append(self._links.pop())
        self._preformatted -= tag == "pre" and self._preformatted > 0

    def _target(self, href: str) -> str:
        """Return what stands behind a link: its whole address, or nothing where that helps nobody."""
        try:
            target = urljoin(self._url, href)
        except ValueError:
            return ""
        useful = href and not href.startswith("#") and target.startswith(("http://", "https://"))
        return f" ({target})" if useful and len(target) <= _MAX_LINK_CHARS else ""


def _attributes(text: str) -> dict[str, str]:
    found = _ATTRIBUTE.findall(text)
    return {name.lower(): unescape(double or single or bare) for name, double, single, bare in found}
