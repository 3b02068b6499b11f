"""TIR built statement by statement, walked and rewritten."""

import numpy as np
import pytest

import weft
from tests.refusals import refuses
from weft import error, te, tir


def halves(n):
    """``B[i] = A[i] + 1`` at even places and ``2 * A[i]`` at odd ones, through a local buffer."""
    ib = tir.ir_builder.create()
    A, B = (tir.decl_buffer((n,), "float32", name) for name in "AB")
    a, b = ib.buffer_ptr(A), ib.buffer_ptr(B)
    with ib.for_range(0, n, name="i") as i:
        t = ib.allocate("float32", 1, "t", scope="local")
        with ib.if_scope(i % 2 == 0):
            t[0] = a[i] + 1.0
        with ib.else_scope():
            t[0] = a[i] * 2.0
        b[i] = t[0]
    pa, pb = tir.Var("a", "handle"), tir.Var("b", "handle")
    return tir.PrimFunc((pa, pb), ib.get(), buffer_map=((pa, A), (pb, B)))


@pytest.mark.parametrize("size", [0, 1, 7])
def test_run(size):
    x, y = np.arange(size, dtype="float32"), np.empty(size, "float32")
    weft.build(halves(te.size_var("n")), target="llvm")(x, y)
    np.testing.assert_array_equal(y, np.where(np.arange(size) % 2 == 0, x + 1, x * 2))


def test_kinds_and_flat_index():
    ib = tir.ir_builder.create()
    A = tir.decl_buffer((3, 5), "int32", "A")
    a = ib.buffer_ptr(A)
    with ib.for_range(0, 15, kind="parallel") as i:
        ib.scope_attr(A, "note", 1)
        ib.assert_stmt(i < 15, "in range")
        a[i] = i
    ib.emit(tir.call_extern("int32", "getpid"))
    pa = tir.Var("a", "handle")
    func = tir.PrimFunc((pa,), ib.get(), buffer_map=((pa, A),))
    assert {"AttrStmt", "AssertStmt", "Evaluate"} <= set([type(n).__name__ for n in weft.ir.walk(func.body)])
    out = np.zeros((3, 5), "int32")
    weft.build(func, target="llvm")(out)
    np.testing.assert_array_equal(out, np.arange(15).reshape(3, 5))


def test_while():
    ib = tir.ir_builder.create()
    A = tir.decl_buffer((1,), "int32", "A")
    a = ib.buffer_ptr(A)
    with ib.while_loop(a[0] < 100):
        a[0] = a[0] * 2
    pa = tir.Var("a", "handle")
    out = np.array([3], "int32")
    weft.build(tir.PrimFunc((pa,), ib.get(), buffer_map=((pa, A),)), target="llvm")(out)
    assert out[0] == 192


def test_refusals():
    ib = tir.ir_builder.create()
    refuses(error.InvalidArgument, "else_scope has no if_scope", ib.else_scope)
    with pytest.raises(error.InvalidArgument, match="unknown kind of loop"), ib.for_range(0, 3, kind="sideways"):
        pass
    a = ib.buffer_ptr(tir.decl_buffer((2, 3, 4), "float32", "A"))
    refuses(error.InvalidArgument, "indexed by 2 values", lambda: a[0, 1])
    assert len(ib.buffer_ptr(tir.decl_buffer((2, 0), "float32", "E"))[tir.Var("i", "int32")].indices) == 2
    with ib.for_range(0, 3), pytest.raises(error.InvalidArgument, match="a scope is open"):
        ib.get()


def test_functors():
    func = halves(te.size_var("n"))
    seen = []
    tir.stmt_functor.post_order_visit(func.body, lambda n: seen.append(type(n)))
    assert seen.index(tir.BufferStore) < seen.index(tir.For)
    outer = []
    tir.stmt_functor.pre_order_visit(func.body, lambda n: outer.append(type(n)) or not isinstance(n, tir.IfThenElse))
    assert outer[0] is tir.For and tir.IfThenElse in outer and tir.EQ not in outer

    def parallel(loop):
        return tir.For(loop.loop_var, loop.min, loop.extent, tir.ForKind.PARALLEL, loop.body)

    assert tir.stmt_functor.ir_transform(func.body, None, parallel, ["tir.For"]).kind == tir.ForKind.PARALLEL
    assert tir.stmt_functor.ir_transform(func.body, lambda n: n, parallel, ["tir.For"]) is func.body
    n = func.body.extent
    assert [tir.stmt_functor.substitute(func.body, {n: v}).extent.value for v in (4, tir.IntImm("int32", 4))] == [4, 4]


def test_analysis():
    func = halves(te.size_var("n"))
    assert [v.name for v in tir.analysis.undefined_vars(func.body)] == ["n", "A", "B"]
    assert tir.analysis.verify_well_formed(func)
    loop = func.body
    broken = func.replace(body=tir.Evaluate(tir.BufferLoad(func.buffer_of(func.params[0]), (loop.loop_var,))))
    assert not tir.analysis.verify_well_formed(broken, assert_mode=False)
    refuses(weft.error.WeftError, "i", tir.analysis.verify_well_formed, broken)


def test_decorated_passes():
    @tir.transform.prim_func_pass(opt_level=1, name="Mark")
    def mark(func, mod, ctx):
        return func.with_attr("marked", ctx.config.get("mark", 0))

    @weft.transform.module_pass(opt_level=0)
    class Rename:
        def __init__(self, name):
            self.name = name

        def transform_module(self, mod, ctx):
            return weft.IRModule({self.name: next(iter(mod.functions.values()))})

    mod = weft.IRModule({"main": halves(te.size_var("n"))})
    weft.ir.register_config_option("mark", int)
    with weft.transform.PassContext(config={"mark": 7}):
        out = weft.transform.Sequential([mark, Rename("other")])(mod)
    assert out["other"].attrs["marked"] == 7 and mark.info.name == "Mark" and mark.info.opt_level == 1
