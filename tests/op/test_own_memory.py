"""Threads have memory of their own: what a parallel loop writes outside of it, each iteration writes elsewhere.

A compiler may keep such memory in registers, so that a race shows in some runs, or with another compiler.
"""

import pytest

from tests.op import cases  # noqa: F401 - registers the cases
from tests.op.contract import CASES, SIZES, TARGET, Sizes, prim_func
from weft import ir, op, tir
from weft.script import tir as T
from weft.tir.pipeline import lower
from weft.tir.schedule import default_schedule


def shared(func: tir.PrimFunc) -> list[str]:
    """Buffers of a lowered function that all iterations of a parallel loop write at the same place."""
    allocated = {n.buffer.data for n in ir.walk(func.body) if isinstance(n, tir.AllocBuffer)}
    found = []
    for loop in ir.walk(func.body):
        if isinstance(loop, tir.For) and loop.kind == tir.ForKind.PARALLEL:
            nodes = list(ir.walk(loop.body))
            outside = allocated - {n.buffer.data for n in nodes if isinstance(n, tir.AllocBuffer)}
            own = {loop.loop_var}
            for n in nodes:  # outer statements come first
                value = n.value if isinstance(n, tir.LetStmt) else n.min if isinstance(n, tir.For) else None
                if value is not None and own & set(ir.walk(value)):
                    own.add(n.var if isinstance(n, tir.LetStmt) else n.loop_var)
            stores = [n for n in nodes if isinstance(n, tir.BufferStore) and n.buffer.data in outside]
            found += [n.buffer.name for n in stores if not own & {v for i in n.indices for v in ir.walk(i)}]
    return found


@pytest.mark.share(4, None)
@pytest.mark.parametrize("name", sorted(n for n in CASES if op.get_op_def(n).lower is not None))
def test_threads_write_memory_of_their_own(name: str) -> None:
    case = next(c for s in SIZES if (c := CASES[name][0](Sizes(s, f"{name}0{s}"))) is not None)
    assert not shared(lower(default_schedule(prim_func(name, case, False)[0], TARGET), TARGET))


def test_memory_that_threads_share_is_seen() -> None:
    @T.prim_func
    def func(A: T.Buffer((8,), "int32")):
        with T.alloc_buffer((1,), "int32", scope="local") as at:
            for i in T.parallel(8):
                at[0] = i
                A[i] = at[0]

    assert shared(lower(func, TARGET)) == ["at"]
