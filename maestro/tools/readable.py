"""Web pages as text that a model can read: headings, paragraphs, lists and links, without the machinery around them."""

import re
from html.parser import HTMLParser
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


def readable(html: str, url: str) -> str:
    """Return the text of a page at this address: its title first, and behind each link where it leads."""
    page = _Page(url)
    page.feed(html)
    page.close()
    lines = (re.sub(r"[ \t\r\f\v\xa0]+", " ", line).strip() for line in page.text.splitlines())
    text = re.sub(r"\n{3,}", "\n\n", "\n".join(lines)).strip()
    title = " ".join(page.title.split())
    return f"{title}\n\n{text}" if title else text


class _Page(HTMLParser):
    """Collects the text of a page while it is read."""

    def __init__(self, url: str) -> None:
        super().__init__(convert_charrefs=True)
        self.title = ""
        self._url = url
        self._pieces: list[str] = []
        self._silent: list[str] = []
        self._in_title = False
        self._links: list[str] = []
        self._preformatted = 0

    @property
    def text(self) -> str:
        return "".join(self._pieces)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag == "title" and "svg" not in self._silent:
            self._in_title = True
        elif tag in _SILENT:
            self._silent.append(tag)
        elif not self._silent:
            self._begin(tag, dict(attrs))

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag not in _SILENT and not self._silent:
            self._begin(tag, dict(attrs))

    def handle_endtag(self, tag: str) -> None:
        if tag == "title":
            self._in_title = False
        elif tag in self._silent:
            while self._silent.pop() != tag:
                pass
        elif not self._silent:
            self._end(tag)

    def handle_data(self, data: str) -> None:
        if self._in_title:
            self.title += data
        elif not self._silent:
            self._pieces.append(data if self._preformatted else re.sub(r"\s+", " ", data))

    def _begin(self, tag: str, attributes: dict[str, str | None]) -> None:
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
