"""Every class of nodes has a sample that is saved, loaded, compared, hashed, printed and read field by field."""

import functools

import numpy as np
import pytest

import weft.relax.dpl as dpl
from tests.refusals import refuses
from weft import arith, ir, relax, relay, script, te, tir
from weft.ir import node as nodes
from weft.relay.quantize.annotate import QAnnotateExpr
from weft.relay.quantize.partition import QPartitionExpr
from weft.relay.quantize.realize import QRealizeIntExpr
from weft.tir.pipeline import lower

BASES = {"Node", "Binding", "Operation", "BaseComputeOp", "TempExpr"}
"""Classes that only others derive from."""

PROGRAM = """
@I.ir_module
class M:
    @T.prim_func
    def f(a: T.handle, B: T.Buffer((8,), "float32"), n: T.int32):
        m = T.int32(is_size_var=True)
        A = T.match_buffer(a, (m, 8), "float32")
        for i in T.thread_binding(4, thread="threadIdx.x"):
            with T.block("b"):
                v = T.axis.spatial(4, i)
                T.reads(A[v, 0:8])
                T.writes(B[v])
                W = T.match_buffer(A[v, 0:8], (8,), offset_factor=1)
                B[v] = W[0]
        B[0:4] = T.Broadcast(A[0, 0], 4) + T.Cast("float32x4", T.Ramp(0, 1, 4))
        B[4:8] = T.Shuffle([B[0:4]], [3, 2, 1, 0])
        p = T.allocate([4], "int32", "global")
        C = T.decl_buffer((4,), "int32", data=p)
        x: T.int32 = n * 2
        with T.attr(B.data, "note", "text"):
            assert x > 3 and x < 9 or not x == 5, "a message"
        if x >= 1:
            while C[0] <= 4:
                C[0] = C[0] + 1
        T.evaluate(T.Let(x + 1, where={x: T.Div(n, 3) - T.Mod(n, 2) * (n // 3) + n % 5}))
        C[1] = T.Select(x != 2, T.min(x, n), T.max(x, n))
        T.evaluate(T.call_packed("g", "text"))
        T.evaluate(T.exp(B[0]))
        T.prefetch(A[0:2, 0:8])
        with T.realize(B[0:4]):
            B[0] = T.float32(2)

    @R.function
    def main(x: R.Tensor(("k", 2), "float32"), c: R.Tensor((), "bool"), s: R.Shape(["k", 2])) -> R.Object:
        k = T.int64()
        with R.dataflow():
            y = R.add(x, R.const([1.0, 2.0], "float32"))
            z = R.reshape(y, R.shape([k * 2]))
            R.output(z)
        t = (z, R.prim_value(3), R.str("text"), R.dtype("float32"))
        u = t[0]
        w = R.match_cast(u, R.Tensor((k * 2,), "float32"))
        if c:
            q = M.g(w)
        else:
            q = R.call_pure_packed("h", w, sinfo_args=R.Tensor((k * 2,), "float32"))
        return q

    @R.function(private=True)
    def g(x: R.Tensor(ndim=1, dtype="float32")) -> R.Tensor(ndim=1, dtype="float32"):
        return x
"""


def _tensors() -> list[object]:
    a = te.placeholder((4, 5), name="A")
    k = te.reduce_axis((0, 5), "k")
    c = te.compute((4,), lambda i: te.sum(a[i, k], axis=k), "C")
    state = te.placeholder((3, 2))
    scan = te.scan(
        te.compute((1, 2), lambda _, i: a[0, i]), te.compute((3, 2), lambda t, i: state[t - 1, i] + 1.0), state
    )
    ext = te.extern((4,), [c], lambda ins, outs: tir.call_packed("f", ins[0], outs[0]), name="E")
    intrin = te.decl_tensor_intrin(c.op, lambda ins, outs: tir.call_packed("f", ins[0], outs[0]))
    called = te.compute((2, 4), lambda i: intrin(te.placeholder((2, 4, 5))[i, 0:4, 0:5]))
    return [a.op, c.op, scan.op, ext.op, called.op, te.create_prim_func([a, c])]


def _patterns() -> list[object]:
    w = dpl.wildcard()
    return [
        dpl.is_op("relax.add")(w, dpl.is_const()),
        dpl.is_var("x"),
        dpl.is_dfv("y"),
        dpl.is_gv("g"),
        dpl.is_tuple([w]),
        dpl.is_tuple([w], unordered=True),
        dpl.is_tuple_get_item(w, 0),
        w | w,
        w & w,
        ~w,
        w.has_attr({"a": 1}),
        w.has_dtype("float32"),
        w.has_shape((2,)),
        dpl.is_expr(relax.Var("x", relax.TensorType((2,), "float32"))),
        dpl.is_shape([2]),
        dpl.ExternFuncPattern("f"),
        dpl.FunctionPattern((w,), w),
        dpl.TypePattern(w, relax.TensorType((2,), "float32")),
    ]


def _relay() -> list[object]:
    a, x, y = relay.TypeVar("A"), relay.var("x", shape=(2, relay.Any())), relay.var("y", "int32")
    box = relay.GlobalTypeVar("Box")
    full, empty = relay.Constructor("Full", (a, a), box), relay.Constructor("Empty", (), box)
    data = relay.TypeData(box, (a,), (full, empty))
    clauses = [
        relay.Clause(relay.PatternConstructor(full, [relay.PatternVar(y), relay.PatternWildcard()]), y),
        relay.Clause(relay.PatternTuple([relay.PatternWildcard()]), relay.const(1)),
    ]
    cell = relay.RefCreate(relay.If(relay.const(True), x, relay.GlobalVar("g")(x)))
    body = relay.Let(y, relay.RefWrite(cell, relay.RefRead(cell)), relay.Match(full, clauses, complete=False))
    func = relay.Function([x], relay.TupleGetItem(relay.Tuple([body]), 0), relay.IncompleteType(), [a])
    of_box = relay.FuncType([relay.TypeCall(box, [a])], relay.RefType(relay.TupleType([relay.scalar_type("bool")])))
    relation = relay.TypeRelation("f", (relay.scalar_type("bool"), a), 1)
    affine = ir.TupleAffineType((ir.TensorAffineType(relay.const(0.5), relay.const(3), "int8", 1),))
    stands = [QPartitionExpr(x), QAnnotateExpr(x, 1), QRealizeIntExpr(x, 0.5, "int8")]
    return [func, data, of_box, relation, affine, *stands]


@functools.cache
def samples() -> dict[type, object]:
    """Return one node of each class that is found in programs, tensors, patterns and iterator maps."""
    mod = script.from_source(PROGRAM)
    i = ir.Var("i", "int64")
    found = arith.detect_iter_map([i // 4 + 3, i % 4], {i: ir.Range(0, 16)})
    roots: list[object] = [
        *(f for _, f in mod.items()),
        *_tensors(),
        *_patterns(),
        *_relay(),
        *found.indices,
        arith.IntervalSet(ir.const(1), ir.const(5)),
        tir.IndexMap.from_func(lambda i, j: (j, i)),
        ir.VDevice("llvm", 0, "global"),
        ir.DummyGlobalInfo(),
        ir.PackedFuncType(),
        ir.AnyType(),
        ir.FuncType((ir.AnyType(),), ir.TupleType((ir.ShapeType(ndim=2),))),
        ir.PointerType(ir.PrimType("int8")),
        ir.FloatImm("float64", float("inf")),
        ir.StringImm("a"),
        ir.SizeVar("n", "int64"),
        te.reduce_axis((0, 4)),
        ir.ExternFunc("f"),
        ir.Attrs.of(a=1, b=("x", 2.5, None, ir.const(3))),
        tir.Evaluate(ir.const(0)),
        lower(_tensors()[-1]),
    ]
    table: dict[type, object] = {}
    for root in roots:
        for n in ir.walk(root):
            if isinstance(n, nodes.Node):
                table.setdefault(type(n), n)
                for f in type(n).__struct_fields__:
                    for v in (x for x in [getattr(n, f)] if isinstance(x, nodes.Node)):
                        table.setdefault(type(v), v)
    return table


CLASSES = sorted(
    (
        c
        for n, c in nodes._BY_NAME.items()
        if c not in nodes._ABSTRACT
        and c.__name__ not in BASES
        and not c.__name__.startswith("_")
        and n.startswith("weft.")
    ),
    key=lambda c: (c.__module__, c.__name__),
)


@pytest.mark.parametrize("kind", CLASSES, ids=lambda c: f"{c.__module__.removeprefix('weft.')}.{c.__name__}")
def test_every_class(kind):
    assert kind in samples(), "no program above has such a node: add one"
    sample = samples()[kind]
    text = ir.save_json(sample)
    loaded = ir.load_json(text)
    assert type(loaded) is kind
    assert ir.structural_equal(loaded, sample, True)
    assert ir.structural_hash(loaded, True) == ir.structural_hash(sample, True)
    assert ir.save_json(loaded) == text
    assert str(sample)
    for f in kind.__struct_fields__:
        getattr(sample, f)
    refuses(AttributeError, "no attribute 'no_such_field'", getattr, sample, "no_such_field")


def test_fields_are_read_by_name():
    assert ir.IntImm("int32", 1).value == 1
    with pytest.raises(AttributeError, match="IntImm has no attribute 'valeu'; did you mean value?"):
        ir.IntImm("int32", 1).valeu  # noqa: B018
    refuses(AttributeError, "its fields are dtype, value", getattr, ir.IntImm("int32", 1), "zzz")
    refuses(AttributeError, "", setattr, ir.IntImm("int32", 1), "value", 2)
    assert getattr(ir.const(1), "name", None) is None and not hasattr(ir.const(1), "name")
    assert np.array_equal(ir.constant(np.arange(3)).data.numpy(), np.arange(3))


def test_tensor_expressions_are_saved():
    a = te.placeholder((4, 5), name="A")
    k = te.reduce_axis((0, 5), "k")
    b = te.compute((4, 5), lambda i, j: a[i, j] * 2.0, "B")

    def make(at):
        return te.compute((4,), lambda i: te.sum(b[i, k] + b[i, at], axis=k), "C")

    c = make(0)
    loaded = ir.load_json(ir.save_json(c.op))
    assert ir.structural_equal(loaded, c.op) and not ir.structural_equal(make(1).op, c.op)
    middle = loaded.input_tensors
    assert [t.name for t in middle] == ["B"] and middle[0].op.output(0) is middle[0]
    func = te.create_prim_func([*middle[0].op.input_tensors, loaded.output(0)])
    ir.assert_structural_equal(func, te.create_prim_func([a, c]))
