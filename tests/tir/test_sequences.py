"""Helper functions of TVM that build statements and calls."""

import numpy as np

from tests.refusals import refuses
from weft import build, error, ir, te, tir
from weft.script import tir as T
from weft.tir.analysis import assert_pure_function, expr_deep_equal, is_pure_function, verify_ssa, verify_well_formed


def test_sequences_and_results():
    one, two = tir.Evaluate(ir.as_expr(1)), tir.Return(ir.const(2, "int64"))
    made = tir.stmt_seq(one, tir.stmt_seq(two, 3))
    assert [str(s) for s in tir.stmt_list(made)] == ["T.evaluate(1)", "return T.int64(2)", "T.evaluate(3)"]
    assert tir.stmt_list(one) == [one]
    assert build(tir.PrimFunc((), tir.Return(ir.const(7, "int32"))).with_attr("global_symbol", "main"))["main"]() == 7


def test_conversions_and_scalable_lengths():
    assert [v.value for v in tir.convert([1, 2])] == [1, 2]
    assert str(tir.get_vscale_expr("float32")) == "T.vscale() * 4"
    refuses(error.InvalidArgument, "whole elements", tir.get_vscale_expr, "float32", 100)
    buffer = tir.decl_buffer((16,))
    store = tir.BufferStore(buffer, tir.Broadcast(1.0, tir.vscale() * 4), (tir.Ramp(0, 1, tir.vscale() * 4),))
    refuses(error.CodegenError, "no fixed length", build, tir.PrimFunc([buffer], store))


def test_calls_of_lowered_programs():
    call = tir.tvm_storage_sync("shared")
    assert call.op is ir.Op.get("tir.tvm_storage_sync") and call.dtype == "int32"
    assert expr_deep_equal(call, T.tvm_storage_sync("shared"))
    assert not expr_deep_equal(call, tir.tvm_storage_sync("warp"))


def test_names_introduced_once():
    i, a = ir.Var("i", "int32"), tir.decl_buffer((4,))
    loop = tir.For(i, 0, 4, tir.ForKind.SERIAL, tir.BufferStore(a, 1.0, [i]))
    other = tir.For(ir.Var("i", "int32"), 0, 4, tir.ForKind.SERIAL, tir.Evaluate(ir.as_expr(0)))
    assert verify_ssa(tir.PrimFunc((), tir.seq(loop, other)))
    assert not verify_ssa(tir.PrimFunc((), tir.seq(loop, loop)))
    assert not verify_ssa(tir.PrimFunc((i,), loop))
    let = tir.Let(i, 1, i + 1)
    assert verify_ssa(tir.PrimFunc((), tir.Evaluate(let + let)))
    assert not verify_ssa(tir.PrimFunc((), tir.Evaluate(let + tir.Let(i, 2, i + 1))))


def test_names_of_two_places_are_not_well_formed():
    i = ir.Var("i", "int32")
    let = tir.LetStmt(i, 1, tir.Evaluate(i))
    assert verify_well_formed(ir.IRModule({"f": tir.PrimFunc((), let)}))
    for bodies, nested in (([tir.LetStmt(i, 2, let)], "nested "), ([tir.seq(let, let)], ""), ([let, let], "")):
        mod = ir.IRModule({f"f{n}": tir.PrimFunc((), body) for n, body in enumerate(bodies)})
        refuses(ValueError, f"multiple {nested}definitions of variable i", verify_well_formed, mod)
        assert not verify_well_formed(mod, assert_mode=False)


def test_a_function_that_writes_only_its_own_memory_is_pure():
    @T.prim_func
    def inside(A: T.Buffer((4,), "float32")) -> T.float32:
        total = T.alloc_buffer((1,), "float32")
        total[0] = T.cos(A[0])
        T.ret(total[0])

    @T.prim_func
    def outside(A: T.Buffer((4,), "float32")):
        A[0] = 1.0

    @T.prim_func
    def calls():
        T.call_extern("int32", "puts", "x")

    assert is_pure_function(inside) and assert_pure_function(inside)
    for func in (outside, calls):
        assert not is_pure_function(func)
        refuses(AssertionError, "writes memory that it is given or calls", assert_pure_function, func)


def test_a_function_as_a_tensor_operation():
    @T.prim_func
    def twice(A: T.Buffer((5,), "float32"), B: T.Buffer((5,), "float32")):
        for i in T.serial(5):
            B[i] = A[i] * 2.0

    x = te.placeholder((5,), "float32", "x")
    y = te.extern_primfunc([x], twice, name="y")
    z = te.compute((5,), lambda i: y[i] + 1.0, name="z")
    given, out = np.arange(5, dtype="float32"), np.zeros(5, "float32")
    build(te.create_prim_func([x, z]))["main"](given, out)
    np.testing.assert_array_equal(out, given * 2 + 1)
    refuses(error.InvalidArgument, "not those that the function reads", te.extern_primfunc, [x, x], twice)
    refuses(error.InvalidArgument, "'w' is no 'A'", te.extern_primfunc, [te.placeholder((5,), "int32", "w")], twice)


def test_a_scope_without_a_body_holds_what_follows_it():
    out, own, x, n = tir.decl_buffer((1,)), tir.decl_buffer((1,)), ir.Var("x", "float32"), ir.Var("n", "float32")
    stores = tir.BufferStore(own, n + 1, [0]), tir.BufferStore(out, own[0], [0])
    flat = tir.seq(tir.Bind(n, x * 2), tir.AllocBuffer(own), *stores)
    ir.assert_structural_equal(flat, tir.LetStmt(n, x * 2, tir.AllocBuffer(own, tir.SeqStmt(stores))))
    got = np.zeros(1, np.float32)
    tir.interpret(tir.PrimFunc([x, out], tir.SeqStmt([flat, tir.Bind(n, x)])), 20, got)
    assert got[0] == 41
