"""ThreadSync leaves out no barrier that matters: threads may run in any order between barriers, with one result."""

import random

import pytest

from tests.tir.transform.test_device_passes import apply, barriers
from weft import ir, script, tir
from weft.tir import transform

X, Y = 4, 3  # threads
_ARITHMETIC = {ir.Add: lambda a, b: a + b, ir.Sub: lambda a, b: a - b, ir.Mul: lambda a, b: a * b,
               ir.FloorDiv: lambda a, b: a // b, ir.FloorMod: lambda a, b: a % b}  # fmt: skip


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
            own.setdefault(node.buffer, {})
            yield from self.run(node.body)
        elif isinstance(node, tir.BufferStore):
            self.buffer(node.buffer)[self.value(node.indices[0])] = self.value(node.value)
        else:
            assert isinstance(node, tir.Evaluate)
            yield

    def buffer(self, b):
        return self.memory.get(b.name) if b.name in self.memory else self.values.get(b, self.memory.get(b))

    def value(self, e):
        if isinstance(e, tir.BufferLoad):
            return self.buffer(e.buffer).get(self.value(e.indices[0]), 0)
        if isinstance(e, ir.Var):
            return self.values[e]
        return e.value if isinstance(e, ir.IntImm) else _ARITHMETIC[type(e)](self.value(e.a), self.value(e.b))


def result(func, order):
    """What a kernel stores when between barriers threads run one after another, each time in another order."""
    memory = {"A": dict(enumerate(range(100, 100 + X * Y))), "B": {}}
    threads = [Thread({"threadIdx.x": x, "threadIdx.y": y}, memory) for x in range(X) for y in range(Y)]
    left = [t.run(func.body) for t in threads]
    while left:
        order.shuffle(left)
        left = [t for t in left if next(t, "end") != "end"]
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


@pytest.mark.parametrize(("read", "count"), [("S[t + 16 * (k % 2)]", 0), ("S[15 - t + 16 * (k % 2)]", 2),
                                             ("S[15 - t + 16 * ((k + 1) % 2)]", 1), ("S[15 - t]", 2)])  # fmt: skip
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


def test_stores_that_are_written_out_need_none_between():
    func = script.from_source("""
@T.prim_func
def f(A: T.Buffer((64,), 'float32'), B: T.Buffer((64,), 'float32')):
    for t in T.thread_binding(16, thread='threadIdx.x'):
        S = T.alloc_buffer((64,), 'float32', scope='shared')
        S[t] = A[t]
        S[t + 16] = A[t + 16]
        S[t * 2 + 32] = A[t]
        S[t * 2 + 33] = A[t]
        B[t] = S[63 - t]
""")
    assert len(barriers(apply(transform.ThreadSync("shared"), func)["main"])) == 1
