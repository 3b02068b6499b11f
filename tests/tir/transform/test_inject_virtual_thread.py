"""Virtual threads: the values are those of threads that run one after another; shared work is done once."""

import ast

import numpy as np
import pytest

import weft
from weft import script, te, tir
from weft.ir import substitute, walk
from weft.tir.transform import inject_virtual_thread
from weft.tir.transform.inject_virtual_thread import is_virtual

RNG = np.random.default_rng(5)


def parsed(text, outputs='B: T.Buffer((4, 8), "float32")'):
    body = "\n".join("    " + line for line in text.strip("\n").splitlines())
    head = f'A: T.Buffer((4, 8), "float32"), {outputs}, n: T.int32'
    return script.from_source(f"@T.prim_func\ndef main({head}):\n{body}")


def serial(node):
    """The same program with plain loops: what it means."""
    if isinstance(node, tir.For) and is_virtual(node):
        return tir.For(node.loop_var, node.min, node.extent, tir.ForKind.SERIAL, node.body)
    return node


def check(text):
    """Compare a program with threads run in turn; return the rewritten function."""
    func = parsed(text)
    one_by_one = func.replace(body=weft.ir.rewrite(func.body, serial))
    changed = inject_virtual_thread()(func)["main"]
    assert not any(is_virtual(n) for n in walk(changed.body))
    x = RNG.random((4, 8), "float32")
    out, want = np.zeros((4, 8), "float32"), np.zeros((4, 8), "float32")
    tir.interpret(one_by_one, x, want, 3)
    tir.interpret(changed, x, out, 3)
    assert want.any()
    np.testing.assert_allclose(out, want, rtol=1e-6)
    native = np.zeros((4, 8), "float32")
    weft.build(func, target="llvm")(x, native, 3)
    np.testing.assert_allclose(native, want, rtol=1e-6)
    return changed


def allocated(func):
    return {n.buffer.name: [d.value for d in n.buffer.shape] for n in walk(func.body) if isinstance(n, tir.AllocBuffer)}


def test_what_is_the_same_is_computed_once():
    func = check("""
for v in T.thread_binding(4, thread="vthread"):
    S = T.alloc_buffer((8,))
    P = T.alloc_buffer((8,))
    for i in range(8):
        S[i] = A[0, i] * 2.0
        P[i] = A[v, i] + S[i]
    for i in range(8):
        B[v, i] = P[7 - i] + S[i]
""")
    assert allocated(func) == {"S": [8], "P": [4, 8]}
    loops = [n for n in walk(func.body) if isinstance(n, tir.For)]
    assert [n.extent.value for n in loops] == [8, 4, 8, 4]
    assert all(n.kind == tir.ForKind.UNROLLED for n in loops[1::2])


PROGRAMS = {  # the first row says what is allocated once virtual threads are loops
    "S differs because P does, Q because the test around its store does": """{"S": [4, 1], "P": [4, 1], "Q": [4, 1]}
for v in T.thread_binding(4, thread="vthread.x"):
    P = T.alloc_buffer((1,))
    S = T.alloc_buffer((1,))
    Q = T.alloc_buffer((1,))
    for i in range(8):
        Q[0] = 1.0
        if v > 1:
            Q[0] = A[0, i]
        P[0] = A[v, i]
        S[0] = P[0] * 3.0
        B[v, i] = S[0] + Q[0]
""",
    "loops whose length differs run inside": """{"S": [4, 1]}
for v in T.thread_binding(4, thread="vthread"):
    S = T.alloc_buffer((1,))
    S[0] = 0.0
    for i in range(v + 1):
        S[0] = S[0] + A[v, i]
    B[v, 0] = S[0]
""",
    "bound values and conditions": """{}
for v in T.thread_binding(4, thread="vthread"):
    for i in range(8):
        k: T.int32 = v * 2
        if i < n:
            if k < 5:
                B[v, i] = A[v, i] + T.Cast("float32", k)
""",
    "nested threads": """{"S": [2, 2, 1]}
for u in T.thread_binding(2, thread="vthread.x"):
    for v in T.thread_binding(2, thread="vthread.y"):
        S = T.alloc_buffer((1,))
        for i in range(8):
            S[0] = A[u * 2 + v, i]
            B[u * 2 + v, i] = S[0]
""",
    "a number of threads known at run time": """{"S": [1]}
for v in T.thread_binding(n, thread="vthread"):
    S = T.alloc_buffer((1,))
    S[0] = A[v, 0]
    B[v, 1] = S[0]
""",
}


@pytest.mark.parametrize("program", PROGRAMS.values(), ids=PROGRAMS)
def test_memory_of_what_differs_between_threads(program):
    sizes, text = program.split("\n", 1)
    assert allocated(check(text)) == ast.literal_eval(sizes)


def test_a_sum_in_memory_from_outside_is_repeated():
    """One thread's doing is not that of all: the store reads what it writes."""
    func = check("""
for v in T.thread_binding(4, thread="vthread"):
    B[0, 0] = B[0, 0] + A[0, 0]
    B[1, 0] = A[1, 1]
""")
    assert sum(isinstance(n, tir.For) for n in walk(func.body)) == 1


def test_many_threads_stay_a_loop():
    func = check("""
for v in T.thread_binding(32, thread="vthread"):
    B[v // 8, v % 8] = A[v // 8, v % 8]
""")
    assert [n.kind for n in walk(func.body) if isinstance(n, tir.For)] == [tir.ForKind.SERIAL]


def test_memory_that_calls_get_stays_as_it_is():
    text = """
for v in T.thread_binding(4, thread="vthread"):
    S = T.alloc_buffer((8,))
    T.evaluate(T.call_extern("handle", "memcpy", S.data, T.address_of(A[v, 0]), T.int64(32)))
    for i in range(8):
        B[v, i] = S[i]
"""
    assert allocated(inject_virtual_thread()(parsed(text))["main"]) == {"S": [8]}
    x, out = RNG.random((4, 8), "float32"), np.zeros((4, 8), "float32")
    weft.build(parsed(text), target="llvm")(x, out, 0)
    np.testing.assert_array_equal(out, x)


def test_functions_without_virtual_threads_are_left_alone():
    func = parsed('for v in T.thread_binding(4, thread="threadIdx.x"):\n    B[v, 0] = A[v, 0]')
    assert inject_virtual_thread()(func)["main"] is func


@pytest.mark.parametrize("target", ["llvm", "c"])
@pytest.mark.parametrize("shape", [(8, 12, 5), (7, 13, 3), (1, 1, 1), (16, 3, 4), (2, 40, 9)])
def test_a_schedule_with_virtual_threads(target, shape):
    m, n, k = shape
    a, b = te.placeholder((m, k), name="A"), te.placeholder((k, n), name="B")
    r = te.reduce_axis((0, k), name="k")
    c = te.compute((m, n), lambda i, j: te.sum(a[i, r] * b[r, j], axis=r), name="C")
    s = te.create_schedule(c.op)
    local = s.cache_write(c, "local")
    (io, ii), (jo, ji) = s[c].split(c.op.axis[0], nparts=2), s[c].split(c.op.axis[1], nparts=4)
    s[c].reorder(io, jo, ii, ji)
    s[c].bind(io, te.thread_axis("vthread", name="vy"))
    s[c].bind(jo, te.thread_axis("vthread", name="vx"))
    s[local].compute_at(s[c], jo)
    x, y, out = RNG.random((m, k), "float32"), RNG.random((k, n), "float32"), np.zeros((m, n), "float32")
    weft.build(s, [a, b, c], target=target)(x, y, out)
    np.testing.assert_allclose(out, x @ y, rtol=1e-5)


def test_a_block_schedule_with_virtual_threads():
    a = te.placeholder((20,), name="A")
    b = te.compute((20,), lambda i: a[i] * 2.0, name="B")
    sch = tir.Schedule(te.create_prim_func([a, b]))
    outer, _ = sch.split(sch.get_loops(sch.get_block("B"))[0], [4, None])
    sch.bind(outer, "vthread.x")
    x, out = RNG.random(20, "float32"), np.zeros(20, "float32")
    weft.build(sch.mod, target="llvm")["main"](x, out)
    np.testing.assert_array_equal(out, 2 * x)


def test_the_variable_of_a_loop_is_not_shared():
    text = """
for v in T.thread_binding(2, thread="vthread"):
    for i in range(8):
        B[v, i] = A[v, i]
    for i in range(8):
        B[v + 2, i] = A[v + 2, i]
"""
    func = parsed(text)
    variables = [n.loop_var for n in walk(check(text).body) if isinstance(n, tir.For)]
    assert len({id(v) for v in variables}) == len(variables) == 4
    assert substitute(func.body, {}) is func.body
