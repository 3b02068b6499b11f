"""The pages that the site makes from sources, and the site itself where its generator is installed."""

import importlib.util
import re
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from tools import site

ROOT = Path(__file__).resolve().parent.parent


@pytest.fixture(scope="module")
def pages():
    return site.made_pages()


def test_public_names_have_pages(pages):
    assert "## compile\n\n```python\nweft.compile(" in pages["api/weft.md"]
    assert "## nn.conv2d\n" in pages["api/weft.relax.op.md"]
    assert "- `Session.run(self" in pages["api/weft.md"]
    for line in (ROOT / "docs" / "reference" / "public.txt").read_text().splitlines()[1:50]:
        assert line in pages["api/weft.md"] or line.split(".", 1)[1] in pages["api/weft.md"], line


def test_links_of_made_pages_lead_somewhere(pages):
    for path, text in pages.items():
        for link in re.findall(r"^- \[[^\]]+\]\(([^)]+)\)", text, re.M):
            target = (Path(path).parent / link).as_posix()
            assert target in pages or (ROOT / "docs" / target).exists(), f"{path}: {link}"
    assert pages["decisions/index.md"].count("\n- ") == len(list((ROOT / "docs" / "decisions").glob("*.md")))


def test_links_out_of_the_documentation_are_names():
    page = SimpleNamespace(file=SimpleNamespace(src_uri="gallery/x.md"))
    text = "[a](../tune.md) [`b`](../../examples/b.py) [c](../tune.md#x) [d](../decisions/)"
    assert site.on_page_markdown(text, page) == "[a](../tune.md) `b` [c](../tune.md#x) [d](../decisions/index.md)"


def test_docstrings_become_markdown():
    def f():
        """Take *all* of ``a[i]``, as :func:`~weft.build` does.

        Parameters
        ----------
        a : array
            One.
        """

    expected = (
        "Take \\*all\\* of `a[i]`, as `weft.build` does.\n\n```text\nParameters\n----------\na : array\n    One.\n```\n"
    )
    assert site.docstring(f) == expected and site.first_line(f) == expected.split("\n")[0]


@pytest.mark.skipif(importlib.util.find_spec("mkdocs") is None, reason="`make site` installs the generator")
def test_broken_links_fail(tmp_path):
    config = (ROOT / "mkdocs.yml").read_text().replace("tools/site.py", str(ROOT / "tools" / "site.py"))
    (tmp_path / "mkdocs.yml").write_text(config)
    (tmp_path / "docs").mkdir()
    for page in (ROOT / "docs").rglob("*.md"):
        copy = tmp_path / "docs" / page.relative_to(ROOT / "docs")
        copy.parent.mkdir(exist_ok=True)
        copy.write_text(page.read_text())
    (tmp_path / "docs" / "core_from_scratch.py").write_text("")
    (tmp_path / "docs" / "extra.md").write_text("# Extra\n\n[a](nothing.md) [b](tune.md#nothing) [c](tune.md)\n")
    command = [sys.executable, "-m", "mkdocs", "build", "--strict"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    found = [line for line in done.stderr.splitlines() if line.startswith("WARNING")]  # not those of its makers
    assert done.returncode == 1 and len(found) == 2, done.stderr
    assert "nothing.md" in found[0] + found[1] and "#nothing" in found[0] + found[1]
