"""TIR's nodes under their public names take Python numbers and lists where TVM's do."""

import numpy as np
import pytest

from tests.refusals import refuses
from weft import error, ir, te, tir

X = te.var("x", "int64")
BUFFER = tir.decl_buffer((4, 4), "float16", "B")
NOTHING = tir.Evaluate(0)

MADE = {
    "For": (lambda: tir.For(X, 0, 8, tir.ForKind.SERIAL, NOTHING), {"min": "int64", "extent": "int64"}),
    "For of an expression": (lambda: tir.For(X, 0, X * 2, 1, NOTHING), {"min": "int64"}),
    "BufferStore": (lambda: tir.BufferStore(BUFFER, 1, [0, X]), {"value": "float16"}),
    "LetStmt": (lambda: tir.LetStmt(X, 3, NOTHING), {"value": "int64"}),
    "Evaluate": (lambda: tir.Evaluate(2.0), {"value": "float32"}),
    "Select": (lambda: tir.Select(X > 0, 1, X), {"true_value": "int64"}),
    "Select of numbers": (lambda: tir.Select(True, 1, 2), {"condition": "bool", "false_value": "int32"}),
    "Ramp": (lambda: tir.Ramp(X, 1, 4), {"stride": "int64"}),
    "Ramp of numbers": (lambda: tir.Ramp(0, 1, 4), {"base": "int32"}),
    "Broadcast": (lambda: tir.Broadcast(1.5, 4), {"value": "float32"}),
}


@pytest.mark.parametrize("name", MADE)
def test_numbers_become_expressions(name):
    make, fields = MADE[name]
    node = make()
    for field, dtype in fields.items():
        assert isinstance(getattr(node, field), ir.PrimExpr) and getattr(node, field).dtype == dtype


def test_indices():
    for node in (tir.BufferLoad(BUFFER, [1, X]), tir.BufferLoad(BUFFER, (1, X)), tir.BufferStore(BUFFER, 0.0, [1, X])):
        assert type(node.indices) is tuple and isinstance(node.indices[0], ir.IntImm) and node.indices[1] is X
    indices = (X, X)
    assert tir.BufferLoad(BUFFER, indices).indices is indices


def test_kind_and_annotations_of_a_loop():
    loop = tir.For(X, 0, 8, 2, NOTHING, None, {"pragma": 1})
    assert loop.kind is tir.ForKind.VECTORIZED and loop.annotations["pragma"] == 1
    assert tir.For(X, 0, 8, 0, NOTHING, None, None).annotations is ir.NO_ATTRS


def test_kinds_of_axes_as_tvm_names_them():
    for kind in ("DataPar", tir.IterVar.DataPar, "data_par"):
        iv = tir.IterVar((0, 8), "i", kind)
        assert (iv.iter_type, iv.var.name, int(iv.dom.extent)) == ("data_par", "i", 8)
    assert tir.IterVar((0, 8), "t", tir.IterVar.ThreadIndex, "threadIdx.x").iter_type == "thread"
    refuses(error.InvalidArgument, "no such kind", tir.IterVar, (0, 8), "i", "sideways")


def test_slices_of_buffers_are_regions():
    buffer = tir.decl_buffer((8, 6), "float32", name="A", layout=None)
    assert str(buffer[2:5, 1]) == "A[2:5, 1]" and str(buffer[:, 3:]) == "A[0:8, 3:6]"
    refuses(error.InvalidArgument, "for each dimension", lambda: buffer[2:5])
    refuses(error.InvalidArgument, "by rows", tir.decl_buffer, (8,), layout="swizzled")


def test_constants_fold_as_machines_compute():
    c = tir.const
    for found, expected in [
        (c(255, "uint8") + c(1, "uint8"), 0),
        (c(5, "int32") + c(-5, "int32"), 0),
        (c(7, "int4") + 1, -8),
        (c(2**32, "uint64") * c(2**32, "uint64"), 0),
        (c(112, "int32") & 138, 0),
        (c(3, "int32") // 5, 0),
        (tir.truncdiv(c(-3, "int32"), 5), 0),
        (tir.truncmod(tir.Var("x", "int32"), 1), 0),
        (tir.max(0, 3, 1, 2), 3),
        (tir.min(0, 3, -1), -1),
        (c(3e30, "float32") * c(-3e30, "float32"), -np.inf),
        (c(1, "int32") >> 31, 0),
    ]:
        assert found.value == expected
    assert [c(v).dtype for v in (3.4e38, 3.402e39, -3.402e39, np.inf)] == ["float32", "float64", "float64", "float32"]


def test_conditions_are_bools_and_shifts_stay_in_the_word():
    x = tir.Var("x", "int32")
    for make in (
        lambda: tir.all(tir.const(1, "bool"), x),
        lambda: tir.any(x, tir.const(1, "bool")),
        lambda: tir.if_then_else(x, 1, 2),
        lambda: x << 32,
        lambda: x >> -1,
    ):
        refuses(error.InvalidArgument, "", make)


REFUSED = {
    "a let of another type": lambda: tir.Let(tir.Var("s", "int16"), tir.Var("v", "int32"), X),
    "a binding of another type": lambda: tir.LetStmt(tir.Var("s", "float32"), tir.Var("v", "int32"), NOTHING),
    "no name": lambda: tir.Var(name=1, dtype="int32"),
    "a float of integers": lambda: tir.FloatImm("int32", 1.0),
    "lanes that nothing tells": lambda: tir.Ramp(0, 1, tir.vscale() + 3),
    "lanes that run": lambda: tir.Broadcast(0, X),
    "a predicate of other lanes": lambda: tir.BufferStore(
        BUFFER, tir.Broadcast(1, 4), [0, tir.Ramp(0, 1, 4)], tir.Broadcast(tir.const(True), 2)
    ),
    "a predicate of numbers": lambda: tir.BufferLoad(BUFFER, [0, tir.Ramp(0, 1, 4)], tir.Broadcast(1, 4)),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_cannot_be_right_is_not_made(case):
    refuses(error.InvalidArgument, "", REFUSED[case])


def test_numbers_of_numpy_keep_their_width():
    for kind in "bool uint8 int16 int64 float16 float32 float64".split():
        assert tir.const(np.dtype(kind).type(1)).dtype == kind
    assert tir.const(1.5).dtype == "float32"
