"""Facts about generated code.

The tiles of products and convolutions stay in registers and multiply-add in full vectors.
"""

import re

import pytest

from tests.tir.schedule.test_rules import conv2d, packed_gemm
from weft import te, tir, topi
from weft.ir import walk
from weft.target import Target, get_source
from weft.tir.schedule import default_schedule

TARGETS = {
    "zmm": "llvm -mcpu=x86-64-v4 -mtriple=x86_64-unknown-linux-gnu",
    "ymm": "llvm -mcpu=haswell -mtriple=x86_64-unknown-linux-gnu",
}
FUNCTIONS = {
    "gemm": lambda: packed_gemm(128, 768, 768, 32),
    "conv": lambda: conv2d(1, 28, 28, 64, 64, (3, 3), 1, 1, 32),
    "from memory": lambda: conv2d(1, 14, 14, 256, 256, (3, 3), 1, 1, 32),
    "pointwise": lambda: conv2d(1, 28, 28, 64, 64, (1, 1), 1, 0, 32),
}


def hot_loop(assembly: str) -> list[str]:
    """Return the instructions between a label and a jump back to it that hold the most multiply-adds."""
    best: list[str] = []
    lines = assembly.split("\n")
    labels = {m[1]: n for n, line in enumerate(lines) if (m := re.match(r"(\.LBB\w+):", line))}
    for n, line in enumerate(lines):
        m = re.match(r"\s+j\w+\s+(\.LBB\w+)", line)
        if m and labels.get(m[1], n) < n:
            body = lines[labels[m[1]] : n]
            if not any(re.match(r"\.LBB\w+:", x) for x in body[1:]) and count(body, "vfmadd") > count(best, "vfmadd"):
                best = body
    return best


def count(lines: list[str], word: str) -> int:
    return sum(word in x for x in lines)


@pytest.mark.usefixtures("optimised")
@pytest.mark.parametrize("register", list(TARGETS))
@pytest.mark.parametrize("name", list(FUNCTIONS))
def test_hot_loop_does_not_spill(name, register):
    target = Target(TARGETS[register])
    body = hot_loop(get_source(default_schedule(FUNCTIONS[name](), target), target, "asm"))
    assert count(body, "vfmadd") >= 16
    assert all(register in x for x in body if "vfmadd" in x)
    whole = [x for x in body if re.search(r"%[yz]mm", x) and "broadcast" not in x and "{1to" not in x]
    frame = r"\(%rsp\)" if any(re.match(r"\s+addq\s.*, %rbp", x) for x in body) else r"\(%r[sb]p\)"  # else it walks
    spills = [x for x in whole if re.search(frame, x)]  # elements are spread from any register's address
    assert not spills, spills


@pytest.mark.usefixtures("optimised")
@pytest.mark.parametrize("register", list(TARGETS))
@pytest.mark.parametrize("operator", [topi.nn.softmax, topi.nn.log_softmax])
@pytest.mark.parametrize("columns", [3, 6, 7])
def test_short_rows_are_lanes(operator, register, columns):
    """The exponentials of a row would fill a part of a vector, or none."""
    target, x = Target(TARGETS[register]), te.placeholder((1000, columns), name="x")
    func = default_schedule(te.create_prim_func([x, operator(x)]), target)
    body = hot_loop(get_source(func, target, "asm"))
    assert count(body, "vfmadd") >= 4 * columns
    assert all(re.search("%[yz]mm", x) for x in body if "vfmadd" in x)


@pytest.mark.parametrize(("columns", "dtype"), [(3, "float32"), (6, "float16"), (7, "float32")])
def test_short_rows_are_summed_as_they_lie(columns, dtype):
    x = te.placeholder((7, 38, 5, columns), dtype, name="x")
    func = te.create_prim_func([x, topi.max(x, (1, 3))])
    loops = [n for n in walk(default_schedule(func, Target(TARGETS["ymm"])).body) if isinstance(n, tir.For)]
    assert [f.extent.value for f in loops if f.kind is tir.ForKind.VECTORIZED] == [columns, columns]
