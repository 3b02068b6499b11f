"""InjectSoftwarePipeline: any stages and orders that keep what needs what give the values of the plain loop."""

import random

import numpy as np
import pytest

import weft
from tests.refusals import refuses
from weft import error, tir
from weft.ir import walk
from weft.tir.pipeline import lower
from weft.tir.transform import InjectSoftwarePipeline


def _program(stages, orders, extent, blocks, start=0):
    """A chain: each buffer is made of the one before and of the input; the last one is added to the output."""
    n = len(stages)
    notes = f'annotations={{"software_pipeline_stage": {stages}, "software_pipeline_order": {orders}}}'
    alloc = "T.sblock_alloc_buffer" if blocks else "T.alloc_buffer"
    lines = [f"            t{k} = {alloc}((2,), 'int32')" for k in range(n - 1)]
    for k in range(n):
        made = "A[i]" if k == 0 else f"t{k - 1}[0] * 3 + A[i] + t{random.Random(k).randrange(k)}[1]"
        target = f"t{k}[%d]" if k < n - 1 else "C[i]"
        stores = [f"{target % j} = {made} + {j}" for j in (0, 1)] if k < n - 1 else [f"C[i] = C[i] + {made}"]
        if blocks:
            lines.append(f"            with T.sblock('s{k}'):")
        lines += [f"            {'    ' * blocks}for j{k} in range(1):"]
        lines += [f"                {'    ' * blocks}{s}" for s in stores]
    body = ["            with T.sblock('all'):", *[f"    {x}" for x in lines]] if blocks else lines
    size = str(extent) if isinstance(extent, int) else "n"
    total = f"{size} + {start}"
    head = "@T.prim_func\ndef f(a: T.handle, c: T.handle):\n"
    if size == "n":
        head += "        n = T.int32()\n"
    arguments = "".join(f"        {x} = T.match_buffer({y}, ({total},), 'int32')\n" for x, y in ("Aa", "Cc"))
    loop = f"        for i in T.serial({start}, {total}, {notes}):\n"
    return weft.script.from_source(head + arguments + loop + "\n".join(body))


def _check(func, made, extents, start):
    plain = weft.ir.rewrite(
        func.body,
        lambda n: (
            tir.For(n.loop_var, n.min, n.extent, n.kind, n.body) if isinstance(n, tir.For) and n.annotations else n
        ),
    )
    built = [weft.build(f.with_attr("global_symbol", "f"), target="llvm") for f in (func.replace(body=plain), made)]
    for extent in extents:
        values = np.random.default_rng(extent).integers(-99, 99, start + extent, dtype="int32")
        outs = [weft.runtime.tensor(np.arange(start + extent, dtype="int32")) for _ in built]
        for f, out in zip(built, outs, strict=True):
            f(weft.runtime.tensor(values), out)
        np.testing.assert_array_equal(outs[1].numpy(), outs[0].numpy())


@pytest.mark.parametrize("seed", range(12))
def test_random_pipelines_keep_their_values(seed):
    rng = random.Random(seed)
    n = rng.randrange(2, 6)
    stages = sorted(rng.randrange(4) for _ in range(n))
    orders = list(range(n))
    rng.shuffle(orders)
    for s in set(stages):  # of one stage, what is made comes first
        places = [k for k in range(n) if stages[k] == s]
        for k, o in zip(places, sorted(orders[k] for k in places), strict=True):
            orders[k] = o
    start = rng.choice((0, 0, 3))
    for extent in ("n", 7, rng.randrange(4)):
        func = _program(stages, orders, extent, rng.random() < 0.5, start)
        made = InjectSoftwarePipeline()(weft.IRModule({"f": func}))["f"]
        assert not any(isinstance(x, tir.For) and x.annotations for x in walk(made.body))
        loops = [x.loop_var for x in walk(made.body) if isinstance(x, tir.For)]
        assert len(loops) == len(set(loops))
        _check(func, made, range(6) if extent == "n" else [extent], start)


def test_what_several_iterations_use_has_a_copy_for_each():
    ahead = _program([0, 1], [0, 1], 16, True)
    behind = _program([0, 1], [1, 0], 16, True)
    three = _program([0, 2], [0, 1], 16, False)
    for func, copies in ((ahead, 2), (behind, 1), (three, 3)):
        made = InjectSoftwarePipeline()(weft.IRModule({"f": func}))["f"]
        (buffer,) = {n for n in walk(made.body) if isinstance(n, tir.Buffer) and n.name == "t0"}
        assert tuple(map(int, buffer.shape)) == ((copies, 2) if copies > 1 else (2,))


def test_scheduled_copies_run_ahead():
    @weft.script.tir.prim_func
    def double(A: weft.script.tir.Buffer((8, 32), "float32"), C: weft.script.tir.Buffer((8, 32), "float32")):
        for i, j in weft.script.tir.grid(8, 32):
            with weft.script.tir.block("C"):
                vi, vj = weft.script.tir.axis.remap("SS", [i, j])
                C[vi, vj] = A[vi, vj] * 2.0 + 1.0

    sch = tir.Schedule(double)
    block = sch.get_block("C")
    i, _ = sch.get_loops(block)
    sch.compute_at(sch.cache_read(block, 0, "global"), i)
    sch.annotate(i, "software_pipeline_stage", [0, 1])
    sch.annotate(i, "software_pipeline_order", [0, 1])
    shapes = [
        tuple(map(int, n.buffer.shape)) for n in walk(lower(sch.mod["main"]).body) if isinstance(n, tir.AllocBuffer)
    ]
    assert [int(np.prod(s)) for s in shapes] == [64]
    values, out = np.random.rand(8, 32).astype("float32"), weft.runtime.tensor(np.zeros((8, 32), "float32"))
    weft.build(sch.mod, target="llvm")(weft.runtime.tensor(values), out)
    np.testing.assert_array_equal(out.numpy(), values * np.float32(2) + np.float32(1))


@pytest.mark.parametrize(
    ("stages", "orders", "message"),
    [
        ([0, 1], [0, 0], "a stage and a place for each"),
        ([0], [0], "a stage and a place for each"),
        ([1, 0], [0, 1], "before it is made"),
        ([0, 0], [1, 0], "before it is made"),
    ],
)
def test_what_is_no_pipeline_is_refused(stages, orders, message):
    func = _program([0, 1], [0, 1], 8, True)
    notes = {"software_pipeline_stage": stages, "software_pipeline_order": orders}
    body = weft.ir.rewrite(
        func.body,
        lambda n: (
            tir.For(n.loop_var, n.min, n.extent, n.kind, n.body, None, notes)
            if isinstance(n, tir.For) and n.annotations
            else n
        ),
    )
    refuses(error.InvalidArgument, message, InjectSoftwarePipeline(), weft.IRModule({"f": func.replace(body=body)}))


def test_memory_that_iterations_share_is_refused():
    func = weft.script.from_source("""@T.prim_func
def f(A: T.Buffer((8,), "int32"), C: T.Buffer((8,), "int32")):
    for i in T.serial(8, annotations={"software_pipeline_stage": [0, 1], "software_pipeline_order": [0, 1]}):
        A[0] = i
        C[i] = A[0]
""")
    refuses(error.InvalidArgument, "share 'A'", InjectSoftwarePipeline(), weft.IRModule({"f": func}))
