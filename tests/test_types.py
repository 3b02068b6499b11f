"""Public functions say what they take."""

import ast
from pathlib import Path

import pytest

import weft

ROOT = Path(weft.__file__).parent
MOST = {
    "topi": 19,
    "te": 0,
    "op": 1,
    "arith": 3,
    "auto_scheduler": 20,
    "autotvm": 9,
    "frontend": 53,
    "ir": 9,
    "meta_schedule": 16,
    "relax": 23,
    "relay": 54,
    "rpc": 1,
    "runtime": 6,
    "target": 2,
    "tir": 11,
    "tune": 0,
}
"""Parameters of public functions that are still Any; a number only goes down."""


def untyped(package):
    """The parameters annotated as Any, of functions without an underscore."""
    for path in sorted((ROOT / package).rglob("*.py")):
        for node in ast.parse(path.read_bytes()).body:
            if isinstance(node, ast.FunctionDef) and not node.name.startswith("_"):
                for arg in (*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs):
                    if isinstance(arg.annotation, ast.Name) and arg.annotation.id == "Any":
                        yield f"{path.relative_to(ROOT)}:{node.lineno}: {node.name}({arg.arg})"


@pytest.mark.parametrize("package", MOST)
def test_parameters_have_types(package):
    found = list(untyped(package))
    assert len(found) <= MOST[package], f"say what these take (weft/topi/typing.py has names of its arguments): {found}"
    assert len(found) == MOST[package], f"fewer than before: write {len(found)}"
