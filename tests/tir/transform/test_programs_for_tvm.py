"""VectorizeLoop, UnrollLoop and SplitHostDevice as programs for TVM use them."""

import numpy as np

import weft
from tests.refusals import refuses
from weft import ir, tir
from weft.script import ir as I
from weft.script import tir as T

SVE = weft.target.Target({"kind": "llvm", "mtriple": "aarch64-linux-gnu", "mattr": ["+v8.2a", "+sve"]})


def vectorized(func, target="llvm", **config):
    with weft.target.Target(target), weft.transform.PassContext(config=config):
        (made,) = tir.transform.VectorizeLoop()(weft.IRModule.from_expr(func)).functions.values()
    return made


def test_a_statement_without_a_vector_form_becomes_a_loop():
    @T.prim_func
    def f(A: T.Buffer((16,), "float32"), n: T.int32):
        for i in T.vectorized(16):
            A[i] = A[i] + 1.0
            if i < n:
                A[i] = 2.0

    @T.prim_func
    def expected(A: T.Buffer((16,), "float32"), n: T.int32):
        A[T.Ramp(0, 1, 16)] = A[T.Ramp(0, 1, 16)] + T.Broadcast(T.float32(1), 16)
        for i_s in range(16):
            if i_s < n:
                A[i_s] = 2.0

    made = vectorized(f)
    ir.assert_structural_equal(made.with_attr("global_symbol", "expected"), expected)
    a = np.zeros(16, "float32")
    tir.interpret(made, a, 5)
    assert a.tolist() == [2.0] * 5 + [1.0] * 11


def test_predicates_where_they_are_asked_for():
    @T.prim_func
    def f(A: T.Buffer((16,), "float32"), B: T.Buffer((16,), "float32"), n: T.int32):
        for i in T.vectorized(4):
            if i + 8 < n:
                B[i + 8] = A[i + 8] + 1.0

    def masks(func):
        return [x for x in ir.walk(func) if getattr(x, "predicate", None) is not None]

    assert not masks(vectorized(f))
    assert len(masks(vectorized(f, **{"tirx.enable_buffer_level_predication": True}))) == 2
    assert len(masks(vectorized(f, SVE))) == 2
    assert not masks(vectorized(f, SVE, **{"tir.enable_buffer_level_predication": False}))


def test_lanes_that_the_machine_decides():
    @T.prim_func
    def f(A: T.Buffer((64,), "float32")):
        for i in T.vectorized(T.vscale() * 4):
            A[i] = A[i] * 2.0

    (store,) = [n for n in ir.walk(vectorized(f, SVE)) if isinstance(n, tir.BufferStore)]
    assert store.value.dtype == "float32xvscalex4"
    refuses(weft.error.InternalError, r"extent T.vscale\(\) \* 4 for target", vectorized, f)

    @T.prim_func
    def of_vectors(A: T.Buffer((64,), "float32")):
        for i in T.vectorized(T.vscale() * 4):
            A[i * 4 : i * 4 + 4] = T.Broadcast(T.float32(1), 4)

    refuses(weft.error.LoweringError, "from existing vectors", vectorized, of_vectors, SVE)


def test_loops_over_local_memory_are_unrolled():
    @T.prim_func
    def f(B: T.Buffer((4,), "float32")):
        A = T.alloc_buffer((4,), scope="local")
        for i in range(4):
            A[i] = T.float32(i)
        for i in range(4):
            B[i] = 1.0

    made = tir.transform.UnrollLoop(unroll_local_access=True)(weft.IRModule({"f": f}))
    made = tir.transform.StmtSimplify()(made)["f"]
    assert len([n for n in ir.walk(made) if isinstance(n, tir.For)]) == 1
    values = [n.value for n in ir.walk(made) if isinstance(n, tir.BufferStore) and n.buffer.name == "A"]
    assert [v.value for v in values] == [0.0, 1.0, 2.0, 3.0]


@I.ir_module
class Regions:
    @T.prim_func
    def main(A: T.Buffer((16,), "float32"), n: T.int32):
        T.func_attr({"target": T.target("cuda", host="llvm")})
        i = T.launch_thread("threadIdx.x", n)
        A[i] = 0.0


def test_regions_of_another_device_become_kernels():
    made = tir.transform.SplitHostDevice()(Regions)
    kernel, host = made["main_kernel"], made["main"]
    assert [p.name for p in kernel.params] == ["A", "n"] and kernel.params[0] is not host.buffer_map[0][1].data
    assert kernel.attrs["calling_conv"] == 2 and kernel.attrs["tirx.kernel_launch_params"] == ("threadIdx.x",)
    assert kernel.attrs["target"] == weft.target.Target("cuda")
    (call,) = [n for n in ir.walk(host.body) if isinstance(n, tir.Call)]
    assert call.op is ir.Op.get("tir.tvm_call_packed") and call.args[0].value == "main_kernel"
    assert call.args[1] is host.buffer_map[0][1].data and call.args[2] is call.args[3] is host.params[1]
    assert tir.transform.SplitHostDevice()(made)["main"] is host


def test_calls_of_other_targets():
    @I.ir_module
    class Calls:
        @T.prim_func
        def main(A: T.Buffer((1,), "float32"), n: T.int32):
            T.func_attr({"target": T.target("llvm")})
            Calls.on_device(A.data, n)
            Calls.beside(A.data)

        @T.prim_func
        def on_device(A_data: T.handle("float32"), n: T.int32):
            T.func_attr({"target": T.target("cuda"), "global_symbol": "other"})
            A = T.decl_buffer((16,), data=A_data)
            v: T.let[T.int32] = n + 1
            i = T.launch_thread("threadIdx.x", v)
            A[i] = 0.0

        @T.prim_func
        def beside(A_data: T.handle("float32")):
            T.func_attr({"target": T.target("c")})
            A = T.decl_buffer((16,), data=A_data)
            A[0] = 0.0

    made = tir.transform.SplitHostDevice()(Calls)
    launch, extern = [n for n in ir.walk(made["main"].body) if isinstance(n, tir.Call)]
    assert launch.args[0].value == "other" and str(launch.args[-1]) == "n + 1"
    assert extern.op is ir.Op.get("tir.call_extern") and extern.args[0].value == "beside"
    assert made["on_device"].attrs["calling_conv"] == 2 and not made["beside"].attrs.get("calling_conv")


def test_a_call_of_another_function_is_no_dead_code():
    @I.ir_module
    class Module:
        @T.prim_func
        def main(A: T.Buffer((1,), "float32")):
            Module.subroutine(A.data)

        @T.prim_func
        def subroutine(A_data: T.handle("float32")):
            T.func_attr({"calling_conv": -1})
            A = T.decl_buffer(1, dtype="float32", data=A_data)
            A[0] = 42.0

    made = weft.runtime.tensor(np.zeros(1, "float32"))
    weft.compile(Module, "llvm")["main"](made)
    assert made.numpy() == 42
