"""Checks of the finished pages: every link within the site leads somewhere, and nothing is loaded from the network."""

from __future__ import annotations

from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

#: attributes from which a browser loads something without being asked
LOADED = {
    "script": "src",
    "img": "src",
    "source": "src",
    "video": "src",
    "audio": "src",
    "iframe": "src",
    "embed": "src",
    "object": "data",
    "use": "href",
}
_RELATIONS = {"stylesheet", "icon", "preload", "modulepreload"}  # of <link>


class _Page(HTMLParser):
    """Collects the ids of a page, its links, and what it loads."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.ids: set[str] = set()
        self.links: list[str] = []
        self.loads: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Note what a tag names, links to or loads."""
        values = {name: value for name, value in attrs if value}
        self.ids |= {values[name] for name in ("id", "name") if name in values}
        if tag == "a" and "href" in values:
            self.links.append(values["href"])
        if tag in LOADED and LOADED[tag] in values:
            self.loads.append(values[LOADED[tag]])
        if tag == "link" and "href" in values and _RELATIONS & set(values.get("rel", "").split()):
            self.loads.append(values["href"])


def find_faults(site: Path) -> Iterator[str]:
    """Yield what is wrong with a site: broken links, missing files, and whatever needs a network."""
    pages = {path: _Page(path.read_text(encoding="utf-8")) for path in sorted(site.rglob("*.html"))}
    for path, page in pages.items():
        name = path.relative_to(site)
        for target in page.loads:
            if target.startswith("//") or urlsplit(target).scheme in ("http", "https"):
                yield f"{name} loads {target}, which needs a network"
            elif not target.startswith(("data:", "#")) and not _file(path, target).exists():
                yield f"{name} loads {target}, which doesn't exist"
        for target in page.links:
            yield from (f"{name} links to {target}, {fault}" for fault in _link_faults(path, target, pages))


def _link_faults(path: Path, target: str, pages: dict[Path, _Page]) -> Iterator[str]:
    parts = urlsplit(target)
    if parts.scheme or parts.netloc:
        return
    file = _file(path, target) if parts.path else path
    if not file.exists():
        yield "which doesn't exist"
    elif parts.fragment and file in pages and unquote(parts.fragment) not in pages[file].ids:
        yield "which has no such place"


def _file(path: Path, target: str) -> Path:
    file = (path.parent / unquote(urlsplit(target).path)).resolve()
    return file / "index.html" if file.is_dir() else file
