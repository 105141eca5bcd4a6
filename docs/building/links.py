"""The pages are written for a code-hosting site: their links are meant from the repository. Here they are made to fit the site.

A page that consists of `<!-- page: FILE -->` and a link to FILE shows that file of the repository. A link to a file that is
neither a page nor a picture becomes its text. A link to nothing is a warning, and so an error of the build.
"""

import os
import re
from pathlib import Path
from typing import Any

from sphinx.util import logging

DOCS = Path(__file__).resolve().parents[1]
TOP = DOCS.parent
PAGE = re.compile(r"<!-- page: (\S+) -->")
LINK = re.compile(r"(!?)\[((?:[^\[\]]|\[[^\[\]]*\])*)\]\(([^()\s]+)\)")
CODE = re.compile(r"(^```.*?^```|`[^`\n]+`)", re.MULTILINE | re.DOTALL)
ANCHOR = re.compile(r'^<a id="([^"]+)"></a>$', re.MULTILINE)

logger = logging.getLogger(__name__)


def shown_files() -> dict[Path, str]:
    """File of the repository -> the page that shows it."""
    stubs = {path: PAGE.match(path.read_text()) for path in DOCS.rglob("*.md") if "_build" not in path.parts}
    return {TOP / found[1]: path.relative_to(DOCS).as_posix() for path, found in stubs.items() if found}


def for_the_site(text: str, folder: Path, docname: str, pages: dict[Path, str]) -> str:
    """Links that are meant from `folder` become links that are meant from the page."""
    here = (DOCS / docname).parent

    def link(match: re.Match[str]) -> str:
        picture, words, target = match.groups()
        words = for_the_site(words, folder, docname, pages) if "](" in words else words
        file, _, anchor = target.partition("#")
        if not file or "://" in target or target.startswith("mailto:"):
            return f"{picture}[{words}]({target})"
        path = Path(os.path.normpath(folder / file))
        if not path.exists():
            logger.warning("%s: a link to %s, which is not there", docname, target, location=docname)
        if path in pages:
            path = DOCS / pages[path]
        elif not picture and not (DOCS in path.parents and path.suffix in (".md", ".ipynb")):
            return words
        moved = Path(os.path.relpath(path, here)).as_posix()
        return f"{picture}[{words}]({moved}{'#' + anchor if anchor else ''})"

    parts = CODE.split(text)
    return "".join(part if place % 2 else LINK.sub(link, part) for place, part in enumerate(parts))


def on_source_read(app: Any, docname: str, content: list[str]) -> None:
    if (DOCS / docname).with_suffix(".ipynb").exists():
        return
    folder = (DOCS / docname).parent
    if found := PAGE.match(content[0]):
        shown = TOP / found[1]
        app.env.note_dependency(str(shown))
        content[0], folder = shown.read_text(), shown.parent
    content[0] = ANCHOR.sub(r"(\1)=", for_the_site(content[0], folder, docname, shown_files()))


def setup(app: Any) -> dict[str, bool]:
    app.connect("source-read", on_source_read)
    return {"parallel_read_safe": True}
