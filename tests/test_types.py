"""Functions say what they take: public ones of all parameters, a package of ever more."""

import ast
from pathlib import Path

import pytest

import weft

ROOT = Path(weft.__file__).parent
MOST = {
    "arith": (3, 81),
    "auto_scheduler": (12, 98),
    "autotvm": (5, 152),
    "baseline": (1, 77),
    "check": (4, 19),
    "cli": (0, 10),
    "dlight": (7, 29),
    "ffi": (4, 14),
    "frontend": (31, 838),
    "ir": (9, 258),
    "meta_schedule": (9, 135),
    "op": (1, 520),
    "profile": (3, 12),
    "quantize": (1, 15),
    "relax": (16, 628),
    "relay": (36, 867),
    "rpc": (1, 121),
    "runtime": (5, 192),
    "script": (11, 55),
    "support": (2, 12),
    "target": (2, 53),
    "te": (0, 147),
    "testing": (11, 51),
    "tir": (11, 384),
    "topi": (19, 661),
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
