"""Functions say what they take: public ones of all parameters, a package of ever more."""

import ast
from pathlib import Path

import pytest

import weft

ROOT = Path(weft.__file__).parent
MOST = {
    "arith": (1, 79),
    "auto_scheduler": (12, 98),
    "autotvm": (0, 147),
    "baseline": (0, 62),
    "check": (0, 15),
    "cli": (0, 10),
    "dlight": (0, 22),
    "ffi": (0, 9),
    "frontend": (2, 779),
    "ir": (3, 251),
    "meta_schedule": (0, 126),
    "op": (0, 508),
    "profile": (0, 9),
    "quantize": (0, 14),
    "relax": (2, 600),
    "relay": (1, 827),
    "rpc": (0, 120),
    "runtime": (1, 185),
    "script": (0, 44),
    "support": (0, 10),
    "target": (0, 51),
    "te": (0, 146),
    "testing": (0, 39),
    "tir": (3, 364),
    "topi": (1, 629),
    "tune": (0, 21),
}
"""Of each package: parameters of public functions that are still Any, and all such annotations; both only go down."""


def _is_any(annotation: ast.expr | None) -> bool:
    return isinstance(annotation, ast.Name) and annotation.id == "Any"


def _untyped(package: str) -> tuple[list[str], int]:
    """The parameters annotated as Any of functions without an underscore, and the number of all such annotations."""
    found, whole = [], 0
    for path in sorted((ROOT / package).rglob("*.py")):
        module = ast.parse(path.read_bytes())
        whole += sum(_is_any(getattr(node, "annotation", None)) for node in ast.walk(module))
        for node in module.body:
            if isinstance(node, ast.FunctionDef) and not node.name.startswith("_"):
                for arg in (*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs):
                    if _is_any(arg.annotation):
                        found.append(f"{path.relative_to(ROOT)}:{node.lineno}: {node.name}({arg.arg})")
    return found, whole


@pytest.mark.parametrize("package", MOST)
def test_parameters_have_types(package):
    found, whole = _untyped(package)
    now = len(found), whole
    assert now[0] <= MOST[package][0], f"say what these take (weft/topi/typing.py has names of its arguments): {found}"
    assert now[1] <= MOST[package][1], f"{whole} annotations are Any: say what new parameters and variables are"
    assert now == MOST[package], f"fewer than before: write {now}"
