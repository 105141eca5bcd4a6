"""Every link of the built site that stays inside it leads to a file, and to a place in it: python check_links.py FOLDER"""

import sys
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit


class Page(HTMLParser):
    """The links and the places of one page."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.links: set[str] = set()
        self.places: set[str] = set()
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        for name, value in attrs:
            if name in ("href", "src") and value:
                self.links.add(value)
            elif name in ("id", "name") and value:
                self.places.add(value)


def broken_links(folder: Path) -> list[str]:
    """`PAGE: LINK` for each link to nothing."""
    pages = {
        path.resolve(): Page(path.read_text(encoding="utf-8")) for path in folder.rglob("*.html") if "_static" not in path.parts
    }
    if not pages:
        return [f"{folder}: no pages"]
    found = []
    for path, page in pages.items():
        for link in sorted(page.links):
            parts = urlsplit(link)
            if parts.scheme or parts.netloc:
                continue
            target = (path.parent / unquote(parts.path)).resolve() if parts.path else path
            there = target.exists() and (not parts.fragment or target not in pages or _has(pages[target], parts.fragment))
            if not there:
                found.append(f"{path.relative_to(folder.resolve())}: {link}")
    return found


def _has(page: Page, fragment: str) -> bool:
    return not page.places.isdisjoint({fragment, unquote(fragment)})


if __name__ == "__main__":
    broken = broken_links(Path(sys.argv[1]))
    print("\n".join(broken) or "every link inside the site leads somewhere; links to other sites were not tried")
    sys.exit(1 if broken else 0)
