"""The pages of the gallery run and print what stands in them; times and rates may differ."""

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tools.gallery import FOLDER, executed, same

ROOT = Path(__file__).resolve().parent.parent
PAGES = sorted(FOLDER.glob("*.md"))


@pytest.mark.parametrize("page", [p for p in PAGES if p.stem != "kernel"], ids=lambda p: p.stem)
def test_page(page):
    if page.stem == "deploy" and shutil.which("c++") is None:
        pytest.skip("needs a C++ compiler")
    command = [sys.executable, "tools/gallery.py", "--check", str(page)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.stdout == f"{page.name} prints what it says\n", done.stdout + done.stderr


def test_each_step_of_the_page_on_kernels_is_faster():
    """At some time of five: a machine that others use is slow for moments."""
    program = f"from tools.gallery import *; print(run(Path({str(FOLDER / 'kernel.md')!r})), end='')"
    for _ in range(5):
        page = subprocess.check_output([sys.executable, "-c", program], cwd=ROOT, text=True)
        assert same((FOLDER / "kernel.md").read_text(), page)
        rates = [float(rate) for rate in re.findall(r"([\d.]+) GFLOP/s$", page, re.M)]
        assert len(rates) == 4
        if rates == sorted(rates):
            return
    pytest.fail(f"expected rates that rise, found {rates}")


def test_six_pages_are_linked():
    assert len(PAGES) == 6
    for index in ("README.md", "docs/index.md"):
        text = (ROOT / index).read_text()
        assert {p.name for p in PAGES} <= {Path(link).name for link in re.findall(r"\]\(([^)]+)\)", text)}, index


def test_output_replaces_what_was_there(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    page = '```python\nx = 3\nprint(x)\n```\n\n```text\nold\n```\n\n```cpp title="a.cc"\nint a;\n```\n\n'
    page += '```python\nprint(open("a.cc").read(), end="")\n```\n'
    found = executed(page)
    assert found == page.replace("old", "3") + "\n```text\nint a;\n```\n"
    assert executed(found) == found


def test_what_may_differ():
    assert same("a  12.5 GFLOP/s", "a 7.25 GFLOP/s") and not same("(3, 4)", "(3, 5)") and not same("a 1.5", "b 1.5")
