"""The names that programs written for TVM use exist; those that other parts bring are listed here, none else."""

import importlib
import re
from pathlib import Path

import pytest

import weft

ROOT = Path(__file__).resolve().parents[1]

# What is not there: dialects and tools that are not built, and what only TVM's own internals need.
MISSING = {"tvm.relay.backend.vm": {"invoke"}}
OTHERS = ("tvm.rpc", "tvm.relax", "tvm.script.relax")  # whole rows that have tests of their own
TABLE = ROOT.parent / "shared" / "API_NAMES.md"

NAMES = {
    "tvm.ir": ["load_json", "save_json", "structural_equal", "assert_structural_equal", "make_node", "is_prim_expr"],
    "tvm.ir.base": ["assert_structural_equal"],
    "tvm.ir.IRModule": ["from_expr"],
    "tvm.runtime": ["ShapeTuple", "String", "enabled", "system_lib", "PackedFunc", "Module", "convert", "tensor"],
    "tvm.testing": ["assert_allclose", "parameter", "parametrize_targets", "requires_llvm", "main", "echo", "env"],
    "tvm.tir": ["IntImm", "Schedule", "PrimFunc", "stmt_functor", "ir_builder", "transform", "Allocate", "schedule"],
    "tvm.tir.stmt_functor": ["substitute", "post_order_visit", "ir_transform"],
    "tvm.transform": ["PassContext", "Sequential", "module_pass"],
    "tvm.s_tir": ["Schedule"],
    "tvm.driver.build_module": ["schedule_to_module"],
    "tvm.topi.nn.pooling": ["pool2d"],
    "tvm.contrib.utils": ["tempdir"],
    "tvm.contrib.nvcc": ["compile_cuda"],
    "tvm.support.popen_pool": ["PopenWorker"],
    "tvm.target.codegen": ["llvm_version_major"],
}


def find(path):
    """Follow attributes and imports from ``tvm``, which is Weft."""
    value, name = weft, "weft"
    for part in path.split(".")[1:]:
        name += "." + part
        value = getattr(value, part) if hasattr(value, part) else importlib.import_module(name)
    return value


@pytest.mark.parametrize(("row", "name"), [(row, name) for row, names in NAMES.items() for name in names])
def test_name(row, name):
    assert find(f"{row}.{name}") is not None


def rows():
    for line in TABLE.read_text().splitlines() if TABLE.exists() else ():
        match = re.match(r"- \*\*(tvm\S*)\*\*: (.*)", line)
        if match and not match[1].startswith((*OTHERS, "tvm_ffi")):
            yield match[1], [re.sub(r" \d+$", "", part.strip()) for part in match[2].split(",")]


@pytest.mark.skipif(not TABLE.exists(), reason="the table of names lies beside the checkout")
def test_table():
    wrong = {}
    for row, names in rows():
        absent = set()
        for name in names:
            try:
                find(f"{row}.{name}")
            except (ImportError, AttributeError):
                absent.add(name)
        if absent != MISSING.get(row, set()):
            wrong[row] = (sorted(absent), sorted(MISSING.get(row, set())))
    assert not wrong
