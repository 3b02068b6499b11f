"""``make gallery``: run the pages of ``docs/gallery`` and write what they print below the code that prints it.

A page is Markdown. Its Python blocks run one after the other in a scratch folder, as one program; a block of another
language with ``title="name"`` is a file of that name there. What a block prints stands in the ``text`` block below it.
"""

import contextlib
import io
import os
import re
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
FOLDER = ROOT / "docs" / "gallery"
_BLOCK = re.compile(r"^```(\w+)(?: title=\"([^\"]+)\")?\n(.*?)^```\n(?:\n```text\n.*?^```\n)?", re.M | re.S)


def executed(page: str) -> str:
    """Return the page with the output of this run."""
    space: dict[str, object] = {"__name__": "__main__"}

    def with_output(block: re.Match[str]) -> str:
        language, title, code = block.groups()
        source = f"```{language}" + (f' title="{title}"' if title else "") + f"\n{code}```\n"
        if title:
            Path(title).write_text(code)
        if language != "python":
            return block[0] if not title else source
        lines = page[: block.start()].count("\n") + 1
        printed = io.StringIO()
        with contextlib.redirect_stdout(printed):
            exec(compile("\n" * lines + code, "<page>", "exec"), space)
        return source + (f"\n```text\n{printed.getvalue()}```\n" if printed.getvalue() else "")

    return _BLOCK.sub(with_output, page)


def run(path: Path) -> str:
    """Run a page in a folder of its own."""
    before, page = Path.cwd(), path.read_text()
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        try:
            return executed(page)
        finally:
            os.chdir(before)


def same(written: str, found: str) -> bool:
    """Whether two runs tell the same, but for times and rates: numbers with a fraction."""
    plain = [re.sub(r" *\d+\.\d+", " N", text) for text in (written, found)]
    return plain[0] == plain[1]


def main() -> int:
    """Run the pages that are named, or all; with ``--check`` compare, else write."""
    names = [a for a in sys.argv[1:] if not a.startswith("-")]
    for path in map(Path, names) if names else sorted(FOLDER.glob("*.md")):
        text, page = run(path), path.read_text()
        if "--check" not in sys.argv:
            path.write_text(text)
        elif not same(page, text):
            print(f"{path.name} prints something else now: `make gallery` writes it\n{text}")
            return 1
        else:
            print(f"{path.name} prints what it says")
    return 0


if __name__ == "__main__":
    sys.path.insert(0, str(ROOT))
    sys.exit(main())
