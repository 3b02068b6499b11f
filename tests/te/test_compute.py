"""Building tensor expressions, and the TIR functions that ``create_prim_func`` makes of them."""

import numpy as np
import pytest

from tests.clock import soon
from tests.refusals import refuses
from weft import error, op, target, te, tir
from weft.ir import SizeVar, as_int, int64, walk
from weft.topi.norm import softmax


def run(args, *arrays):
    target.build(te.create_prim_func(args))["main"](*arrays)
    return arrays


def blocks(func):
    return [n for n in walk(func.body) if isinstance(n, tir.Block) and n.name_hint != "root"]


def test_compute_by_index() -> None:
    a, b = te.placeholder((4, 5), name="a"), te.placeholder((5,), name="b")
    c = te.compute((4, 5), lambda i, j: a[i, j] * 2 + b[j], name="c")
    assert c.op.input_tensors == [a, b]
    assert c.name == "c"
    assert [as_int(d) for d in c.shape] == [4, 5]
    x, y = np.random.rand(4, 5).astype("float32"), np.random.rand(5).astype("float32")
    _, _, out = run([a, b, c], x, y, np.empty((4, 5), "float32"))
    np.testing.assert_allclose(out, x * 2 + y, rtol=1e-6)


def test_several_outputs_share_one_nest() -> None:
    a = te.placeholder((6,), "int32", name="a")
    twice, square = te.compute((6,), lambda i: (a[i] + a[i], a[i] * a[i]), name="both")
    assert len(blocks(te.kernel_of_stages([a, twice, square]))) == 1
    func = te.create_prim_func([a, twice, square])
    assert len(blocks(func)) == 2  # as in TVM, side by side in one nest
    x, one, two = np.arange(6, dtype="int32"), np.empty(6, "int32"), np.empty(6, "int32")
    target.build(func)["main"](x, one, two)
    assert one.tolist() == (x * 2).tolist()
    assert two.tolist() == (x * x).tolist()


def test_reduction_with_condition_and_several_axes() -> None:
    a = te.placeholder((4, 5), name="a")
    i, j = te.reduce_axis((0, 4), "i"), te.reduce_axis((0, 5), "j")
    total = te.compute((), lambda: te.sum(a[i, j], axis=[i, j], where=j.var > i.var), name="total")
    x = np.random.rand(4, 5).astype("float32")
    _, out = run([a, total], x, np.empty((), "float32"))
    np.testing.assert_allclose(out, np.triu(x, 1).sum(), rtol=1e-6)


def test_reducer_of_pairs() -> None:
    a = te.placeholder((7,), name="a")
    k = te.reduce_axis((0, 7), "k")
    pick = lambda cond, x, y: tir.Select(cond, x, y)  # noqa: E731
    argmax = te.comm_reducer(
        lambda x, y: (pick(x[1] >= y[1], x[0], y[0]), pick(x[1] >= y[1], x[1], y[1])),
        lambda t0, t1: (te.const(-1, t0), te.min_value(t1)),
        name="argmax",
    )
    index, best = te.compute((1,), lambda _: argmax((k.var, a[k]), axis=k), name="best")
    x = np.random.rand(7).astype("float32")
    _, i, v = run([a, index, best], x, np.empty(1, "int32"), np.empty(1, "float32"))
    assert i[0] == x.argmax()
    assert v[0] == x.max()


def test_prim_func_form() -> None:
    n = SizeVar("n", "int64")
    a = te.placeholder((n, int64(8)), name="a")
    func = te.create_prim_func([a, softmax(a)])
    assert func.attrs["global_symbol"] == "main"
    assert func.attrs["tir.noalias"]
    assert [b.name for _, b in func.buffer_map] == ["a", "T_softmax_norm"]
    root = func.root
    found = blocks(func)
    assert [b.name_hint for b in found][:3] == ["T_softmax_max", "T_softmax_exp", "T_softmax_sum"]
    assert [b.name for b in root.alloc_buffers] == [b.name_hint for b in found[:-1]]
    assert [iv.iter_type for iv in found[0].iter_vars] == ["data_par", "data_par", "reduce"]
    assert found[0].init is not None
    assert {r.buffer.name for r in found[1].reads} == {"a", "T_softmax_max"}
    assert all(as_int(r.extent) == 1 for read in found[1].reads for r in read.region[:1])
    assert {n.loop_var.dtype for n in walk(func.body) if isinstance(n, tir.For)} == {"int64"}
    assert all(len(n.iter_values) == len(n.block.iter_vars) for n in walk(func.body) if isinstance(n, tir.BlockRealize))


def test_int32_loops_where_extents_are() -> None:
    a = te.placeholder((4,), name="a")
    func = te.create_prim_func([a, te.compute((4,), lambda i: a[i] + 1.0)])
    assert {n.loop_var.dtype for n in walk(func.body) if isinstance(n, tir.For)} == {"int32"}
    wide = te.create_prim_func([a, te.compute((4,), lambda i: a[i] + 1.0)], index_dtype_override="int64")
    assert {n.loop_var.dtype for n in walk(wide.body) if isinstance(n, tir.For)} == {"int64"}


def test_scalar_parameters() -> None:
    n, factor = te.var("n", "int64"), te.var("factor", "float32")
    a = te.placeholder((n,), name="a")
    func = te.create_prim_func([a, factor, te.compute((n,), lambda i: a[i] * factor)])
    out = np.empty(3, "float32")
    target.build(func)["main"](np.ones(3, "float32"), 2.5, out)
    assert out.tolist() == [2.5] * 3


def test_extern_fills_its_outputs() -> None:
    a = te.placeholder((int64(5),), name="a")

    def body(ins, outs):
        i = tir.Var("i", "int64")
        load = tir.BufferLoad(ins[0], (int64(4) - i,))
        return tir.For(i, int64(0), int64(5), tir.ForKind.SERIAL, tir.BufferStore(outs[0], load, (i,)))

    back = te.extern((int64(5),), [a], body, name="back", dtype="float32")
    x = np.arange(5, dtype="float32")
    _, out = run([a, back], x, np.empty(5, "float32"))
    assert out.tolist() == x[::-1].tolist()


def test_intrinsics_under_te() -> None:
    a = te.placeholder((9,), name="a")
    b = te.compute(
        (9,),
        lambda i: te.sqrt(te.exp(a[i])) + te.power(a[i], 2.0) + te.if_then_else(i < 4, te.sigmoid(a[i]), te.log(a[i])),
    )
    x = np.linspace(0.5, 2, 9).astype("float32")
    _, out = run([a, b], x, np.empty(9, "float32"))
    tail = np.where(np.arange(9) < 4, 1 / (1 + np.exp(-x)), np.log(x))
    np.testing.assert_allclose(out, np.sqrt(np.exp(x)) + x**2 + tail, rtol=1e-5)


def test_tags() -> None:
    with te.tag_scope("injective"):
        a = te.compute((3,), lambda i: i)
    assert a.op.tag == "injective"
    assert te.compute((3,), lambda i: i).op.tag == ""


def test_softmax_is_made_in_milliseconds() -> None:
    a = te.placeholder((SizeVar("n", "int64"), int64(768)), name="a")
    te.create_prim_func([a, softmax(a)])
    soon(0.01, lambda: te.create_prim_func([a, softmax(a)]), 100)


@pytest.mark.parametrize(
    ("make", "text"),
    [
        (lambda a: te.compute((4, 5), lambda i: a[i, 0]), "another number of indices"),
        (lambda a: te.create_prim_func([te.compute((4,), lambda i: a[i, 0])]), "not among the arguments"),
        (lambda a: te.create_prim_func([a, "text"]), "takes tensors and variables"),
        (lambda a: a(1), "another number of indices"),
        (lambda a: te.thread_axis(), "needs a tag"),
        (
            lambda a: te.create_prim_func(
                [a, te.compute((4,), lambda i: te.sum(a[i, te.reduce_axis((0, 5))], axis=te.reduce_axis((0, 5))) + 1.0)]
            ),
            "whole body",
        ),
    ],
)
def test_errors(make, text: str) -> None:
    refuses(error.InvalidArgument, text, make, te.placeholder((4, 5), name="a"))


def test_registry_constructors_report_arguments() -> None:
    refuses(error.InvalidArgument, "unknown argument 'axes'", op.make_call("nn.softmax"), 1.0, axes=0)
    refuses(error.InvalidArgument, "missing input", op.make_call("add"), 1.0)
