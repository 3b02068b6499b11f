"""The code in the pages under docs/ runs."""

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tools import reference

ROOT = Path(__file__).resolve().parent.parent
HOW_TO = ("add-an-operator", "add-a-pass", "add-a-schedule-rule", "add-a-target", "add-an-opcode", "write-a-model")
RUN = (*HOW_TO, "debugging", "from-relay", "relay-vm")


def blocks(page, language):
    text = (ROOT / "docs" / f"{page}.md").read_text()
    return re.findall(rf"^```{language}\n(.*?)^```$", text, re.S | re.M)


def run(path, *args, folder=ROOT):
    done = subprocess.run([sys.executable, str(path), *args], cwd=folder, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.mark.parametrize("page", HOW_TO)
def test_page_has_five_steps(page):
    steps = re.findall(r"^## (\d)\. \S", (ROOT / "docs" / f"{page}.md").read_text(), re.M)
    assert steps == ["1", "2", "3", "4", "5"]
    assert f"({page}.md)" in (ROOT / "docs" / "index.md").read_text(), "docs/index.md does not name the page"


@pytest.mark.parametrize("page", RUN)
def test_code_runs(page, tmp_path):
    """In a process of its own, since examples register operators, passes and targets."""
    code = blocks(page, "python")
    assert code
    script = tmp_path / f"{page.replace('-', '_')}.py"
    script.write_text("\n".join(code))
    run(script, folder=tmp_path)


@pytest.mark.parametrize(
    ("page", "written"), [("debugging", reference.environment), ("architecture", reference.floors)]
)
def test_parts_that_are_generated_are_up_to_date(page, written):
    assert (ROOT / "docs" / f"{page}.md").read_text() == written(), "make docs writes them"


def test_core_from_scratch():
    """The literate compiler agrees with NumPy and its own interpreter, and stays short."""
    path = ROOT / "docs" / "core_from_scratch.py"
    text = path.read_text()
    assert len(text.splitlines()) <= 400
    assert not re.search(r"^\s*(import|from) weft", text, re.M), "it stands alone"
    assert run(path).count("as NumPy and the interpreter have it") == 4


def test_diffs_of_the_virtual_machine_compile(tmp_path):
    compiler = shutil.which("c++") or shutil.which("g++")
    patch = shutil.which("patch")
    if compiler is None or patch is None:
        pytest.skip("needs a C++ compiler and patch")
    import tvm_ffi.libinfo

    shutil.copytree(ROOT / "native", tmp_path / "native")
    sources = tmp_path / "native" / "src"
    diffs = blocks("add-an-opcode", "diff")
    assert diffs
    for diff in diffs:
        done = subprocess.run(
            [patch, "-p1", "-F2"], input=diff, cwd=sources, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stdout + done.stderr
    include = [tmp_path / "native" / "include", *tvm_ffi.libinfo.include_paths()]
    flags = ["-std=c++17", "-fsyntax-only", "-Wall", "-Wswitch", "-Werror", *(f"-I{p}" for p in include)]
    done = subprocess.run(
        [compiler, *flags, "vm.cc", "vm_decode.cc"], cwd=sources, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr


def test_names_are_there_after_import_weft():
    """Each in a process that has imported nothing else but the module around it."""
    pages = (ROOT / "README.md", *(ROOT / "docs").glob("*.md"))
    named = {n for p in pages for n in re.findall(r"(?<![\w./-])weft\.(\w+\.\w+)(?=[.(])", p.read_text())}
    program = "import itertools, os, sys, weft\nkey = lambda n: n.partition('.')[0]\n"
    program += "for module, names in itertools.groupby(sys.argv[1:], key):\n if not os.fork():\n"
    program += "  here = getattr(weft, module)\n  for n in names:\n   if not os.fork():\n"
    program += "    getattr(here, n.partition('.')[2])\n    os._exit(0)\n"
    program += "   if os.wait()[1]: print(n, flush=True)\n  os._exit(0)\n if os.wait()[1]: print(module)"
    done = subprocess.run([sys.executable, "-c", program, *sorted(named)], capture_output=True, text=True, check=True)
    assert done.stdout == "", done.stderr
