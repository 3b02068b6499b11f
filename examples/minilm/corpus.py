"""The sentences of this project's own documentation: README, the pages under ``docs/``, docstrings of the package."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

__all__ = ["Sentence", "sentences"]

ROOT = Path(__file__).resolve().parent.parent.parent
_END = re.compile(r"(?<=[.!?])\s+(?=[A-Z`\"(])")


class Sentence(NamedTuple):
    """A sentence and the file that it is from."""

    text: str
    source: str


def sentences(limit: int = 240) -> list[Sentence]:
    """All sentences of the pages, and as many from docstrings as `limit` allows, spread evenly over the package."""
    pages = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
    found = list(_unique(s for page in pages for s in _of_page(page)))[:limit]
    docstrings = list(_unique(s for path in sorted((ROOT / "weft").rglob("*.py")) for s in _of_module(path)))
    room = max(0, limit - len(found))
    step = max(1.0, len(docstrings) / max(1, room))
    return found + [docstrings[int(i * step)] for i in range(min(room, len(docstrings)))]


def _unique(items: Iterator[Sentence]) -> Iterator[Sentence]:
    seen: set[str] = set()
    for item in items:
        if item.text not in seen:
            seen.add(item.text)
            yield item


def _of_page(path: Path) -> Iterator[Sentence]:
    """Sentences of a Markdown page without its code, tables and headings."""
    text = re.sub(r"^```.*?^```", "", path.read_text(encoding="utf-8"), flags=re.MULTILINE | re.DOTALL)
    for paragraph in re.split(r"\n\s*\n", text):
        kept = [line for line in paragraph.split("\n") if not re.match(r"#|\||    |\t", line)]
        for item in re.split(r"^\s*(?:[-*]|\d+\.)\s+", "\n".join(kept), flags=re.MULTILINE):
            yield from _split(item, path)


def _of_module(path: Path) -> Iterator[Sentence]:
    """Sentences of a module's docstring, its title line included."""
    docstring = ast.get_docstring(ast.parse(path.read_text(encoding="utf-8")))
    for paragraph in (docstring or "").split("\n\n"):
        if not paragraph.startswith((" ", ">>>", "Read")):
            yield from _split(paragraph, path)


def _split(text: str, path: Path) -> Iterator[Sentence]:
    plain = " ".join(text.replace("``", "`").split())
    for sentence in _END.split(plain):
        if len(sentence.split()) >= 5:
            yield Sentence(sentence, str(path.relative_to(ROOT)))
