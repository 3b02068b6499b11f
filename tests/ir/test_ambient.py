"""What ``with`` makes current belongs to a thread or task: compilations side by side equal those one after another."""

import asyncio
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest

import weft
from tests.refusals import refuses
from weft import error, relax, te, tir, tune
from weft.ir import Ambient, CallersPool, DeepPool, IRModule, PassContext, register_config_option, with_deep_stack
from weft.relax.dpl import PatternContext, wildcard
from weft.target import Target

OPTIONS: list[tuple[str, dict[str, Any]]] = [
    ("llvm -mcpu=x86-64", {}),
    ("llvm -mcpu=x86-64", {"config": {"tir.disable_vectorize": True}}),
    ("llvm -mcpu=haswell", {}),
    ("llvm -mcpu=haswell", {"disabled_pass": ["UnrollLoop"]}),
    ("c", {}),
    ("c", {"config": {"tir.UnrollLoop": {"auto_max_extent": 4}}}),
    ("llvm -mcpu=haswell", {"config": {"tir.instrument_bound_checkers": True}}),
    ("llvm -mcpu=skylake-avx512", {}),
]


def compiled(target: str, options: dict[str, Any]) -> tuple[str, str]:
    """The lowered function and its source, of a kernel with a vector loop and one that can be unrolled."""
    a = te.placeholder((32, 4), name="a")
    b = te.compute((32, 4), lambda i, j: a[i, j] * 2.0 + 1.0, name="b")
    s = te.create_schedule(b.op)
    outer, inner = s[b].split(b.op.axis[0], 8)
    s[b].reorder(outer, b.op.axis[1], inner)
    s[b].vectorize(inner)
    with Target(target), PassContext(**options):
        lowered = weft.lower(s, [a, b])
        current = Target.current()
        func = next(f for f in lowered.functions.values() if isinstance(f, tir.PrimFunc))
        code = weft.target.get_source(func, current, "ll" if current.kind.name == "llvm" else "c")
    return str(lowered), code


def test_threads_compile_as_if_alone() -> None:
    alone = [compiled(*o) for o in OPTIONS]
    assert len(set(alone)) >= 6  # what is asked for makes a difference
    start = threading.Barrier(len(OPTIONS))

    def work(i: int) -> list[tuple[str, str]]:
        start.wait()
        return [compiled(*OPTIONS[i]) for _ in range(3)]

    with ThreadPoolExecutor(len(OPTIONS)) as pool:
        found = list(pool.map(work, range(len(OPTIONS))))
    for i, results in enumerate(found):
        assert results == [alone[i]] * 3, OPTIONS[i]


def test_builders_in_threads_do_not_meet() -> None:
    start = threading.Barrier(8)

    def work(i: int) -> str:
        bb = relax.BlockBuilder()
        x = relax.Var("x", relax.TensorType((i + 1, 4), "float32"))
        with bb.function("main", [x]):
            start.wait()
            assert relax.BlockBuilder.current() is bb
            y = bb.emit(relax.op.add(x, x))
            start.wait()
            bb.emit_func_output(y)
        return str(bb.get())

    with ThreadPoolExecutor(8) as pool:
        assert [f"({i + 1}, 4)" in text for i, text in enumerate(pool.map(work, range(8)))] == [True] * 8


CONTEXTS: dict[str, tuple[Any, Any]] = {
    "target": (lambda: Target("c"), Target.current),
    "database": (tune.Database, tune.Database.current),
    "pass context": (lambda: PassContext(opt_level=0), PassContext.current),
    "patterns": (PatternContext, PatternContext.current),
}


@pytest.mark.parametrize("name", CONTEXTS)
def test_contexts_are_of_a_thread_and_of_pools_that_work_for_it(name: str) -> None:
    make, current = CONTEXTS[name]
    before, context = current(), make()
    with context:
        with CallersPool(2) as own, DeepPool(2) as deep, ThreadPoolExecutor(1) as other:
            assert own.submit(current).result() is context
            assert deep.submit(current).result() is context
            assert other.submit(current).result() is before
        assert with_deep_stack(lambda: _deep(20_000, current)) is context
    assert current() is before


def _deep(levels: int, then: Any) -> Any:
    return _deep(levels - 1, then) if levels else then()


@pytest.mark.parametrize("name", CONTEXTS)
def test_contexts_are_of_a_task(name: str) -> None:
    make, current = CONTEXTS[name]

    async def work() -> bool:
        with make() as context:
            await asyncio.sleep(0)
            return current() is context

    async def both() -> list[bool]:
        return await asyncio.gather(*(work() for _ in range(4)))

    assert asyncio.run(both()) == [True] * 4


def test_tags_and_blocks_that_end_out_of_order() -> None:
    stack: Ambient[str] = Ambient("test")
    names = ["a", "b", "c"]
    for name in names:
        stack.enter(name)
    stack.leave(names[1])
    assert stack.current == "c"
    stack.leave(names[2])
    assert stack.current == "a"
    stack.leave("never entered")
    with te.tag_scope("mine"):
        x = te.placeholder((4,), name="x")
        with ThreadPoolExecutor(1) as pool:
            assert pool.submit(lambda: te.compute((4,), lambda i: x[i]).op.tag).result() == ""
        assert te.compute((4,), lambda i: x[i]).op.tag == "mine"
    assert wildcard() is not None


def test_too_deep_is_an_error_of_wefts() -> None:
    refuses(error.WeftError, "nested too deeply", with_deep_stack, lambda: _deep(10**7, int))
    with ThreadPoolExecutor(4) as pool:  # together, and one inside of another
        nested = [pool.submit(with_deep_stack, lambda: with_deep_stack(lambda: _deep(30_000, int))) for _ in range(4)]
        assert [n.result() for n in nested] == [0] * 4


def test_other_threads_keep_their_limit() -> None:
    usual, deep, done = sys.getrecursionlimit(), threading.Event(), threading.Event()

    def wait() -> int:
        deep.set()
        done.wait()
        return len([_deep(10, int)])

    with ThreadPoolExecutor(1) as pool:
        running = pool.submit(with_deep_stack, lambda: _deep(30_000, wait))
        deep.wait()
        try:
            if sys.version_info < (3, 12):  # where this limit guards the stack
                assert sys.getrecursionlimit() == usual
                refuses(RecursionError, "", _deep, usual, int)
            assert with_deep_stack(lambda: _deep(20_000, int)) == 0  # ends while the other is deep
        finally:
            done.set()
        assert running.result() == 1


@pytest.mark.parametrize(
    ("config", "message"),
    [
        ({"no.such.key": 1}, "no pass has an option 'no.such.key'"),
        ({"tir.UnrollLop": {}}, "near names: tir.UnrollLoop"),
        ({"tir.disable_vectorize": "yes"}, "'tir.disable_vectorize' has a value of a wrong type"),
        ({"tir.UnrollLoop": 4}, "expected Mapping"),
        ({"tir.UnrollLoop": {"auto_max_step": "4"}}, "expected int"),
        ({"relay.FuseOps.max_depth": 1.5}, "expected int"),
        ({"tir.add_lower_pass": "x"}, "wrong type"),
    ],
)
def test_options_that_nobody_reads_are_refused(config: dict[str, Any], message: str) -> None:
    refuses(error.InvalidArgument, message, PassContext, config=config)


OWN = PassContext.list_configs()
"""Options that no test has registered."""


def test_options_have_names_types_and_defaults() -> None:
    for name, option in OWN.items():
        assert option["doc"] and (option["default"] is None or PassContext(config={name: option["default"]}).config)
    assert PassContext(config={"tirx.disable_vectorize": np.True_}).config == {"tir.disable_vectorize": True}
    register_config_option("mine.size", int, 4)
    assert PassContext(config={"mine.size": weft.tir.IntImm("int32", 3)}).config == {"mine.size": 3}


def test_names_of_passes_that_there_are_not() -> None:
    mod = IRModule()
    with pytest.warns(UserWarning, match="no pass is called 'FuseOp'; near names: FuseOps"):
        with PassContext(disabled_pass=["FuseOp"]):
            relax.transform.FuseOps()(mod)
    with PassContext(disabled_pass=["FuseOps", "tir.VectorizeLoop", "AlterOpLayout", "mine"]):
        weft.transform.module_pass(lambda mod, ctx: mod, name="mine", opt_level=0)(mod)
    with_dialect, without = [compiled("llvm", {"disabled_pass": [n]}) for n in ("tir.VectorizeLoop", "VectorizeLoop")]
    assert with_dialect == without != compiled("llvm", {})
