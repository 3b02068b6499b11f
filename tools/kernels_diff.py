"""``make kernels-diff BASE=main``: all kernels of the model zoo as two commits generate them, and their difference.

A change that only moves code must leave this empty. The other commit is checked out as a worktree and runs with this
checkout's native library and ONNX files, so only the compiler differs.
"""

import argparse
import difflib
import os
import subprocess
import sys
import sysconfig
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
DUMP = ROOT / "tools" / "dump_kernels.py"
SHOWN_LINES = 400
TARGET = "llvm -mattr=+avx2,+fma,+avx512f -num-cores=8"
"""A machine that is described whole, so that the kernels do not depend on where this runs."""


def generate(source: Path, models: list[str], folder: Path, target: str) -> None:
    """Write the kernels of `models` to `folder`, with the compiler whose source is in `source`."""
    library = subprocess.run(
        [sys.executable, "-c", "from weft.ffi import find_library; print(find_library())"],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=True,
    ).stdout.strip()
    # site would find this tree, where it is installed in place, ahead of any path
    path = os.pathsep.join((str(source), sysconfig.get_path("purelib")))
    environment = {**os.environ, "PYTHONPATH": path, "WEFT_RUNTIME_LIBRARY": library}
    command = [sys.executable, "-PS", str(DUMP), str(folder), target, *models]
    subprocess.run(command, cwd=source, env=environment, check=True)


def compare(old: Path, new: Path) -> list[str]:
    """Lines of the unified difference of two folders."""
    names = sorted({p.relative_to(folder).as_posix() for folder in (old, new) for p in folder.rglob("*.ll")})
    lines: list[str] = []
    for name in names:
        before, after = (_lines(folder / name) for folder in (old, new))
        lines += difflib.unified_diff(before, after, f"base/{name}", f"here/{name}", lineterm="")
    return lines


def _lines(path: Path) -> list[str]:
    return path.read_text().splitlines() if path.exists() else []


def main() -> int:
    """Print the difference; 1 if there is one."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("base", help="the commit to compare with")
    parser.add_argument("--target", default=TARGET, help="the same for both")
    parser.add_argument("--models", nargs="*", help="names of the zoo; all by default")
    options = parser.parse_args()
    sys.path.insert(0, str(ROOT))
    from benchmarks import zoo  # after the path is set

    models = [str(zoo.onnx_path(name)) for name in options.models or zoo.MODELS]
    with tempfile.TemporaryDirectory() as temporary:
        worktree, old, new = (Path(temporary) / name for name in ("worktree", "old", "new"))
        subprocess.run(
            ["git", "worktree", "add", "--quiet", "--detach", str(worktree), options.base], cwd=ROOT, check=True
        )
        try:
            generate(worktree, models, old, options.target)
        finally:
            subprocess.run(["git", "worktree", "remove", "--force", str(worktree)], cwd=ROOT, check=True)
        generate(ROOT, models, new, options.target)
        lines = compare(old, new)
        count = sum(1 for _ in new.rglob("*.ll"))
    print("\n".join(lines[:SHOWN_LINES]))
    if len(lines) > SHOWN_LINES:
        print(f"... {len(lines) - SHOWN_LINES} more lines")
    print(f"{count} kernels of {len(models)} models: {'different' if lines else 'the same'}")
    return int(bool(lines))


if __name__ == "__main__":
    sys.exit(main())
