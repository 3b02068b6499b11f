"""``make size``: lines of each folder against ``docs/size.toml``, and files and functions that are too long.

Growth past a budget needs an edit of ``docs/size.toml``, where a reviewer sees it. Lines are those that the formatter
writes: marks that keep its hands off would make a packed program look small (docs/decisions/046).
"""

import ast
import re
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
SUFFIXES = {".py", ".pyi", ".cc", ".h", ".def", ".c"}


def tracked_lines() -> dict[str, int]:
    """Lines of each source file that git knows."""
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    paths = [p for p in listed.split("\0") if p and Path(p).suffix in SUFFIXES and (ROOT / p).exists()]
    return {p: len((ROOT / p).read_bytes().splitlines()) for p in paths}


def packed_lines(path: str) -> Iterator[str]:
    """Describe the lines of a Python file that ask the formatter to leave them as they are."""
    if path.endswith(".py"):
        for number, line in enumerate((ROOT / path).read_text().splitlines(), 1):
            if re.search(r"#\s*fmt:\s*(skip|off)", line):
                yield f"{path}:{number}: the formatter is told to leave this as it is; take the mark away"


def long_functions(path: str, most: int) -> Iterator[str]:
    """Describe the functions of a Python file that have more than `most` lines, their docstrings not counted."""
    if not path.endswith(".py"):
        return
    for node in ast.walk(ast.parse((ROOT / path).read_bytes())):
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)) and node.end_lineno is not None:
            text = node.body[0].value if isinstance(node.body[0], ast.Expr) else None
            is_docstring = isinstance(text, ast.Constant) and isinstance(text.value, str)
            count = node.end_lineno - node.lineno + 1
            count -= (text.end_lineno or 0) - text.lineno + 1 if is_docstring and text is not None else 0
            if count > most:
                yield f"{path}:{node.lineno}: function {node.name} has {count} lines, more than {most}; split it"


def main() -> int:
    """Print the table; 1 if a budget is passed."""
    settings = tomllib.loads((ROOT / "docs" / "size.toml").read_text())
    lines = tracked_lines()
    failures = []
    rows = []
    counted: set[str] = set()
    for folder, budget in settings["folders"].items():
        inside = {p for p in lines if p == folder or p.startswith(folder + "/")}
        counted |= inside
        total = sum(lines[p] for p in inside)
        rows.append((folder, total, budget))
        if total > budget:
            failures.append(f"{folder} has {total} lines, its budget is {budget}")
    uncounted = sum(lines[p] for p in lines.keys() - counted)
    rows.append(("(elsewhere)", uncounted, settings["elsewhere"]))
    everything = sum(lines.values())
    rows.append(("total", everything, settings["total"]))
    for name, total, budget in rows[-2:]:
        if total > budget:
            failures.append(f"{name}: {total} lines, the budget is {budget}")
    for path, count in sorted(lines.items()):
        most = settings["long_files"].get(path, settings["file"])
        if count > most:
            failures.append(f"{path} has {count} lines, more than {most}; split it")
        failures.extend(long_functions(path, settings["function"]))
        failures.extend(packed_lines(path))
    for name, total, budget in rows:
        print(f"{name:24} {total:7} of {budget:7}")
    for failure in failures:
        print(f"error: {failure}", file=sys.stderr)
    return int(bool(failures))


if __name__ == "__main__":
    sys.exit(main())
