"""ThreadSync leaves out no barrier that matters: threads may run in any order between barriers, with one result."""

import itertools
import operator
import random

import numpy as np
import pytest

from tests.tir.transform.test_device_passes import apply, barriers
from weft import dlight, ir, script, te, tir, topi
from weft.target import Target
from weft.target.gpu import lower_for_gpu
from weft.tir import transform

X, Y = 4, 3  # threads
_ARITHMETIC = {
    ir.Add: operator.add,
    ir.Sub: operator.sub,
    ir.Mul: operator.mul,
    ir.FloorDiv: operator.floordiv,
    ir.FloorMod: operator.mod,
    ir.LT: operator.lt,
    ir.LE: operator.le,
    ir.And: operator.and_,
    ir.Min: min,
    ir.Max: max,
}


class Thread:
    """One thread of a block; a step runs it to its next barrier."""

    def __init__(self, index, memory):
        self.index, self.memory, self.values = index, memory, {}

    def run(self, node):
        if isinstance(node, tir.For):
            own = node.kind is tir.ForKind.THREAD_BINDING
            indices = [self.index[node.thread_binding.thread_tag]] if own else range(self.value(node.extent))
            for i in indices:
                self.values[node.loop_var] = i
                yield from self.run(node.body)
        elif isinstance(node, tir.SeqStmt):
            for part in node.seq:
                yield from self.run(part)
        elif isinstance(node, tir.AllocBuffer):
            own = self.memory if node.buffer.scope == "shared" else self.values
            own.setdefault(node.buffer.data, {})
            yield from self.run(node.body)
        elif isinstance(node, tir.IfThenElse):
            yield from self.run(node.then_case) if self.value(node.condition) else ()
        elif isinstance(node, tir.BufferStore):
            self.buffer(node.buffer)[self.value(node.indices[0])] = self.value(node.value)
        else:
            assert isinstance(node, tir.Evaluate)
            yield

    def buffer(self, b):
        return next(m[k] for m in (self.memory, self.values) for k in (b.name, b.data) if k in m)

    def value(self, e):
        if isinstance(e, tir.BufferLoad):
            return self.buffer(e.buffer).get(self.value(e.indices[0]), 0)
        if isinstance(e, ir.Var):
            return self.values[e]
        if isinstance(e, ir.CallIntrin):
            return self.value(e.args[1] if self.value(e.args[0]) else e.args[2])
        if isinstance(e, (ir.IntImm, ir.FloatImm, ir.Cast)):
            return self.value(e.value) if isinstance(e, ir.Cast) else e.value
        return _ARITHMETIC[type(e)](self.value(e.a), self.value(e.b))


def run(func, memory, order):
    """Run a kernel; between barriers the threads of a block run one after another, each time in another order."""
    loops = {n.thread_binding.thread_tag: n.extent.value for n in ir.find(func.body, tir.For) if n.thread_binding}
    places = [dict(zip(loops, at, strict=True)) for at in itertools.product(*map(range, loops.values()))]
    blocks = itertools.groupby(sorted(places, key=_block), _block)
    for _, threads in blocks:
        on_chip = dict(memory)
        left = [Thread(t, on_chip).run(func.body) for t in threads]
        while left:
            order.shuffle(left)
            left = [t for t in left if next(t, "end") != "end"]


def _block(place):
    return [i for tag, i in sorted(place.items()) if tag.startswith("blockIdx")]


def result(func, order):
    memory = {"A": dict(enumerate(range(100, 100 + X * Y))), "B": {}}
    run(func, memory, order)
    return memory["B"]


def program(rng):
    """Threads write places of their own, then read any; loops go over one or two halves of the memory."""
    t = f"(y * {X} + x)"
    n = X * Y

    def place():
        kind, c = rng.randrange(4), rng.randrange(n)
        own = [t, f"({t} + {c}) % {n}", f"({n - 1} - {t})", f"(x * {Y} + y)"][kind]
        half = rng.choice(
            ["0", str(n), f"(i + {rng.randrange(3)}) % 2 * {n}", f"(2 * i + {rng.randrange(2)}) % 2 * {n}"]
        )
        return f"{own} + {half}"

    lines = [
        f"S[{place()}] = R[0] + {k}" if rng.random() < 0.5 else f"R[0] = R[0] * 3 + S[{place()}]"
        for k in range(rng.randrange(2, 6))
    ]
    if rng.random() < 0.3:
        lines = ["for j in range(2):", *[f"    {line}" for line in lines]]
    text = "".join(f"                {line}\n" for line in lines)
    return script.from_source(
        "@T.prim_func\n"
        f"def f(A: T.Buffer(({n},), 'int32'), B: T.Buffer(({n},), 'int32')):\n"
        f"    for y in T.thread_binding({Y}, thread='threadIdx.y'):\n"
        f"        for x in T.thread_binding({X}, thread='threadIdx.x'):\n"
        f"            S = T.alloc_buffer(({2 * n},), 'int32', scope='shared')\n"
        "            R = T.alloc_buffer((1,), 'int32', scope='local')\n"
        f"            R[0] = A[{t}]\n"
        f"            for i in range({rng.choice([1, 2, 3])}):\n"
        f"{text}"
        f"            B[{t}] = R[0]\n"
    )


def with_all_barriers(func):
    """Let threads wait for each other around each statement."""
    barrier = tir.Evaluate(ir.CallIntrin("void", ir.Op.get("tir.tvm_storage_sync"), (ir.StringImm("shared"),)))

    def rule(node):
        return tir.seq(barrier, node, barrier) if isinstance(node, tir.BufferStore) else node

    return func.replace(body=ir.rewrite(func.body, rule))


@pytest.mark.parametrize("seed", range(150))
def test_the_order_of_threads_does_not_matter(seed):
    func = program(random.Random(seed))
    expected = result(with_all_barriers(func), random.Random(0))
    found = apply(transform.ThreadSync("shared"), func)["main"]
    for order in range(4):
        assert result(found, random.Random(order)) == expected, str(found)


@pytest.mark.parametrize(
    ("read", "count"),
    [
        ("S[t + 16 * (k % 2)]", 0),
        ("S[15 - t + 16 * (k % 2)]", 2),
        ("S[15 - t + 16 * ((k + 1) % 2)]", 1),
        ("S[15 - t]", 2),
    ],
)
def test_barriers_stand_where_threads_meet(read, count):
    """Each thread's own element needs none; the half that was written before needs one an iteration, the same two."""
    func = script.from_source(f"""
@T.prim_func
def f(A: T.Buffer((16, 16), 'float32'), B: T.Buffer((16, 16), 'float32')):
    for t in T.thread_binding(16, thread='threadIdx.x'):
        S = T.alloc_buffer((32,), 'float32', scope='shared')
        for k in range(16):
            S[t + 16 * {"(k % 2)" if "%" in read else "0"}] = A[k, t]
            B[k, t] = {read}
""")
    assert len(barriers(apply(transform.ThreadSync("shared"), func)["main"])) == count


BETWEEN = {
    "stores that are written out need none between": """
    for t in T.thread_binding(16, thread='threadIdx.x'):
        S = T.alloc_buffer((64,), 'float32', scope='shared')
        S[t] = A[t]
        S[t + 16] = A[t + 16]
        S[t * 2 + 32] = A[t]
        S[t * 2 + 33] = A[t]
        B[t] = S[63 - t]
""",
    "indices alike but for their variables: the second read is another thread's": """
    for y in T.thread_binding(4, thread='threadIdx.y'):
        for x in T.thread_binding(4, thread='threadIdx.x'):
            S = T.alloc_buffer((16,), 'float32', scope='shared')
            S[y * 4 + x] = A[y * 4 + x]
            B[y * 4 + x] = S[x * 4 + y] + S[y * 4 + x]
""",
}


@pytest.mark.parametrize("body", BETWEEN.values(), ids=BETWEEN)
def test_one_barrier_stands_between_stores_and_loads(body):
    text = f"@T.prim_func\ndef f(A: T.Buffer((64,), 'float32'), B: T.Buffer((64,), 'float32')):{body}"
    assert len(barriers(apply(transform.ThreadSync("shared"), script.from_source(text))["main"])) == 1


@pytest.mark.parametrize(("target", "blocks"), [("cuda", 1), ("cuda", 1 << 30), ("webgpu", 1)])
def test_products_whose_tiles_are_staged(target, blocks, monkeypatch):
    """Loads ahead of their use, two copies and virtual threads: what no run on a processor would see go wrong."""
    monkeypatch.setattr("weft.dlight.gpu.matmul._BLOCKS", blocks)
    n, m, depth = 35, 37, 20
    a, b = te.placeholder((n, depth), name="a"), te.placeholder((depth, m), name="b")
    func = te.create_prim_func([a, b, topi.matmul(a, b)]).with_attr("target", Target(target))
    (scheduled,) = dlight.ApplyDefaultSchedule(dlight.gpu.Matmul())(ir.IRModule({"main": func})).functions.values()
    (kernel,) = lower_for_gpu(ir.IRModule({"main": scheduled}), Target(target)).device.values()
    rng = np.random.default_rng(0)
    x, y = (rng.integers(-9, 9, s) for s in ((n, depth), (depth, m)))
    names = [buffer.name for _, buffer in kernel.buffer_map]
    memory = {name: dict(enumerate(v.ravel().tolist())) for name, v in zip(names, (x, y, x[:0]), strict=True)}
    run(kernel, memory, random.Random(0))
    found = [memory[names[2]][i] for i in range(n * m)]
    np.testing.assert_array_equal(np.array(found).reshape(n, m), x @ y)
