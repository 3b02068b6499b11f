"""Values that are no tensors of the machine's types: strings, sequences, optionals, maps and small element types."""

from typing import Any

import ml_dtypes
import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import weft
from tests.onnx_models import onnx_nodes
from tests.refusals import refuses
from weft.error import DTypeMismatch, IndexOutOfRange, InvalidArgument, ModelImportError, ShapeMismatch
from weft.frontend.common import pairs
from weft.frontend.onnx import from_onnx
from weft.relax.interpreter import evaluate

FLOATS = helper.make_tensor_type_proto(TensorProto.FLOAT, ["n", 3])
SEQUENCE = helper.make_sequence_type_proto(FLOATS)
OPTIONAL = helper.make_optional_type_proto(FLOATS)


def model(nodes: Any, inputs: dict[str, Any], outputs: list[str], opset: int = 20, weights: Any = ()) -> Any:
    """Make a model of nodes, or of their text; inputs have the types given."""
    infos = [
        helper.make_value_info(k, v if isinstance(v, onnx.TypeProto) else helper.make_tensor_type_proto(*v))
        for k, v in inputs.items()
    ]
    graph = helper.make_graph(
        onnx_nodes(nodes) if isinstance(nodes, str) else nodes,
        "g",
        infos,
        [helper.make_empty_tensor_value_info(o) for o in outputs],
        [numpy_helper.from_array(v, k) for k, v in dict(weights).items()],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)])


def texts(*values: str) -> np.ndarray:
    return np.array(values, object)


STRING = (TensorProto.STRING, ["n"])


def test_strings_are_moved_compared_and_joined_by_a_session() -> None:
    nodes = """
        a = StringConcat(x, suffix); b = Concat <axis = 0> (a, x); y = Gather(b, i); e = Equal(x, same);
        w = Where(e, x, suffix); c = StringConcat(x, suffix); d = Equal(a, c)"""
    made = model(
        nodes,
        {"x": STRING, "i": (TensorProto.INT64, ["k"])},
        ["y", "e", "w", "d"],
        weights={"suffix": texts("-ü"), "same": texts("b")},
    )
    session = weft.Session(made)
    assert [i.dtype for i in session.inputs] == ["string", "int64"]
    for x, i in ((texts("a", "b"), [3, 0, 1]), (texts("b", "", "long" * 99), [5]), (texts(), [])):
        y, e, w, d = session.run({"x": x, "i": np.array(i, np.int64)})
        assert d.numpy().tolist() == [True] * len(x)  # texts of two tables, neither of which is the model's
        both = [t + "-ü" for t in x] + list(x)
        assert y.tolist() == [both[k] for k in i]
        assert e.numpy().tolist() == [t == "b" for t in x]
        assert w.tolist() == [t if t == "b" else "-ü" for t in x]
    refuses(DTypeMismatch, "strings", session.run, {"x": np.zeros(2), "i": np.zeros(0, np.int64)})
    refuses(DTypeMismatch, "str", session.run, {"x": np.array([1], object), "i": np.zeros(0, np.int64)})


def test_strings_and_numbers() -> None:
    x = texts("1", "-2.5", "1e3", "inf")
    made = model("y = Cast <to = 1> (x)", {"x": STRING}, ["y"])
    np.testing.assert_array_equal(evaluate(from_onnx(made), x)[0], np.array([1, -2.5, 1e3, np.inf], np.float32))
    refuses(InvalidArgument, "no number", evaluate, from_onnx(made), texts("seven"))
    back = model("y = Cast <to = 8> (x)", {"x": (TensorProto.FLOAT, ["n"])}, ["y"])
    assert evaluate(from_onnx(back), np.array([1.5, -3, np.nan], np.float32))[0].tolist() == ["1.5", "-3", "NaN"]


def test_strings_need_a_session() -> None:
    executable = weft.relax.build(from_onnx(model("y = StringConcat(x, x)", {"x": STRING}, ["y"])), None)
    with pytest.raises(InvalidArgument, match="while a session runs"):
        weft.runtime.VirtualMachine(executable)["main"](np.zeros(2, np.int64))


def test_sequences_in_a_session() -> None:
    nodes = """
        t = SequenceInsert(s, x, p); n = SequenceLength(t); a = SequenceAt(t, p); b = Neg(a);
        c = ConcatFromSequence <axis = 0> (t); u = SequenceErase(t)"""
    made = model(nodes, {"s": SEQUENCE, "x": FLOATS, "p": (TensorProto.INT64, [])}, ["t", "n", "b", "c", "u"])
    session = weft.Session(made)
    s, x = [np.full((k, 3), k, np.float32) for k in (1, 0, 2)], np.full((2, 3), 7, np.float32)
    for p in (0, 3, -1):
        t, n, b, c, u = session.run({"s": s, "x": x, "p": np.array(p)})
        want = list(s)
        want.insert(p, x)
        assert [v.tolist() for v in t] == [v.tolist() for v in want]
        assert int(n.numpy()) == 4
        np.testing.assert_array_equal(b.numpy(), -want[p] if p < 4 else x)
        np.testing.assert_array_equal(c.numpy(), np.concatenate(want))
        assert len(u) == 3
    with pytest.raises(IndexOutOfRange, match="SequenceInsert: there is no such position"):
        session.run({"s": s, "x": x, "p": np.array(4)})
    refuses(InvalidArgument, "no sequence", session.run, {"s": x, "x": x, "p": np.array(0)})
    refuses(InvalidArgument, "wrong rank", session.run, {"s": [np.zeros(3, np.float32)], "x": x, "p": np.array(0)})


def test_a_sequence_of_other_types_is_refused() -> None:
    made = model("t = SequenceInsert(s, x)", {"s": SEQUENCE, "x": (TensorProto.INT64, [3])}, ["t"])
    refuses(ModelImportError, "different types", from_onnx, made)
    refuses(ModelImportError, "wrong element type", from_onnx, model("y = Relu(s)", {"s": SEQUENCE}, ["y"]))


def test_split_and_join() -> None:
    for split, join in (("axis = 0", "axis = 0"), ("axis = 1", "axis = 1"), ("keepdims = 0", "axis = 0, new_axis = 1")):
        nodes = f"s = SplitToSequence <{split}> (x); y = ConcatFromSequence <{join}> (s)"
        x = np.arange(12, dtype=np.float32).reshape(4, 3)
        np.testing.assert_array_equal(evaluate(from_onnx(model(nodes, {"x": FLOATS}, ["y"])), x)[0], x)
    made = model("s = SplitToSequence(x, k)", {"x": FLOATS, "k": (TensorProto.INT64, [2])}, ["s"])
    refuses(ShapeMismatch, "do not make up", evaluate, from_onnx(made), x, np.array([1, 2]))


def test_optionals_in_a_session() -> None:
    session = weft.Session(model("h = OptionalHasElement(o); y = Identity(o)", {"o": OPTIONAL}, ["h", "y"]))
    h, y = session.run({"o": None})
    assert not h.numpy()
    assert y is None
    x = np.ones((2, 3), np.float32)
    h, y = session.run({"o": x})
    assert h.numpy()
    np.testing.assert_array_equal(y, x)
    taken = weft.Session(model("y = OptionalGetElement(o)", {"o": OPTIONAL}, ["y"]))
    refuses(IndexOutOfRange, "the optional is empty", taken.run, {"o": None})


def test_a_loop_collects_a_sequence() -> None:
    nodes = """
        e = SequenceEmpty(); k = SequenceLength(s);
        s = Loop <body = g (int64 i, bool c, seq(float[n, 3]) s1) => (bool c2, seq(float[n, 3]) s2) {
            c2 = Identity(c) f = Cast <to = 1> (i) v = Add(x, f) s2 = SequenceInsert(s1, v) }> (n, , e)"""
    session = weft.Session(model(nodes, {"n": (TensorProto.INT64, []), "x": FLOATS}, ["s", "k"]))
    x = np.zeros((2, 3), np.float32)
    for n in (0, 1, 5):
        s, k = session.run({"n": np.array(n), "x": x})
        assert int(k.numpy()) == n
        assert [float(v[0, 0]) for v in s] == list(range(n))


SMALL = pairs("INT4:int4 UINT4:uint4 INT2:int2 UINT2:uint2 FLOAT4E2M1:float4_e2m1fn FLOAT8E8M0:float8_e8m0fnu")


@pytest.mark.parametrize("onnx_name", SMALL)
def test_small_types_keep_their_values(onnx_name: str) -> None:
    dtype = np.dtype(getattr(ml_dtypes, SMALL[onnx_name]))
    bits = int("".join(c for c in SMALL[onnx_name].split("_")[0] if c.isdigit()))
    codes = np.arange(1 << bits, dtype=np.uint8)
    if bits < 8 and SMALL[onnx_name].startswith("int"):
        codes = codes.view(np.int8)
    every = codes.astype(dtype) if "float" not in SMALL[onnx_name] else codes.view(dtype)
    nodes = f"y = Transpose(x); f = Cast <to = 1> (x); b = Cast <to = {getattr(TensorProto, onnx_name)}> (f)"
    made = model(nodes, {"x": (getattr(TensorProto, onnx_name), [2, "m"])}, ["y", "f", "b"], 25)
    x = every.reshape(2, -1)
    y, f, b = evaluate(from_onnx(made), x)
    assert y.dtype == dtype
    np.testing.assert_array_equal(y.astype(np.float64), x.T.astype(np.float64))
    np.testing.assert_array_equal(f, x.astype(np.float32))
    np.testing.assert_array_equal(b.astype(np.float64), x.astype(np.float64))


def test_float4_rounds_to_the_nearest_and_saturates() -> None:
    x = np.concatenate([np.linspace(-8, 8, 4001), [0.25, 0.75, 1.25, 5, 3.5, -2.5]]).astype(np.float32)
    nodes = f"y = Cast <to = {TensorProto.FLOAT4E2M1}> (x)"
    (y,) = evaluate(from_onnx(model(nodes, {"x": (TensorProto.FLOAT, ["n"])}, ["y"], 25)), x)
    np.testing.assert_array_equal(y.astype(np.float32), x.astype(ml_dtypes.float4_e2m1fn).astype(np.float32))


def test_small_weights_are_read_and_dequantised() -> None:
    w = np.array([[-8, 7, 3], [0, -1, 5]], ml_dtypes.int4)
    tensor = helper.make_tensor("w", TensorProto.INT4, w.shape, w.astype(np.int8).reshape(-1))
    nodes = "d = DequantizeLinear(w, s); y = Mul(x, d)"
    made = model(nodes, {"x": FLOATS}, ["y"], 21, {"s": np.float32(0.5)})
    made.graph.initializer.append(tensor)
    x = np.ones((2, 3), np.float32)
    (y,) = weft.Session(made).run({"x": x})
    np.testing.assert_array_equal(y.numpy(), w.astype(np.float32) * 0.5)


def drawn(op: str, opset: int = 22, weights: Any = (), **attrs: Any) -> np.ndarray:
    made = model([helper.make_node(op, list(dict(weights)), ["y"], **attrs)], {}, ["y"], opset, weights)
    return evaluate(from_onnx(made))[0]


CODES, SCALE = np.arange(6, dtype=np.uint8), np.float32(0.37)


@pytest.mark.parametrize("to", ["float32", "float16", "bfloat16"])
def test_numbers_are_dequantised_to_the_type_that_is_asked_for(to: str) -> None:
    said = helper.np_dtype_to_tensor_dtype(np.dtype(to))
    found = drawn("DequantizeLinear", 25, {"x": CODES, "s": SCALE}, output_dtype=said)
    np.testing.assert_array_equal(found, (CODES * SCALE).astype(to))


def test_ranges_of_halves_are_computed_in_wider_numbers() -> None:
    given = {"start": np.float16(1), "limit": np.float16(9), "delta": np.float16(0.1)}
    wanted = np.float32(1) + np.arange(81, dtype=np.float32) * np.float32(given["delta"])
    np.testing.assert_array_equal(drawn("Range", 27, given), wanted.astype(np.float16))


@pytest.mark.parametrize(
    ("op", "opset", "weights", "attrs"),
    [
        ("DequantizeLinear", 25, {"x": CODES, "s": SCALE}, {"output_dtype": TensorProto.INT8}),
        (
            "QuantizeLinear",
            25,
            {"x": np.float32([1]), "s": SCALE, "z": np.uint8(0)},
            {"output_dtype": TensorProto.INT8},
        ),
        ("QuantizeLinear", 25, {"x": np.float32([1]), "s": SCALE}, {"output_dtype": 99}),
        ("QuantizeLinear", 20, {"x": np.float32([1]), "s": SCALE, "z": np.int32(0)}, {}),
        ("QuantizeLinear", 25, {"x": np.float32([1]), "s": SCALE}, {"precision": TensorProto.INT64}),
        ("Range", 27, dict.fromkeys("abc", np.float16(1)), {"stash_type": TensorProto.UINT16}),
        ("EyeLike", 22, {"x": np.ones(3, np.float32)}, {}),
    ],
)
def test_types_that_no_operator_has(op: str, opset: int, weights: dict[str, Any], attrs: dict[str, int]) -> None:
    refuses(ModelImportError, r"(?s)ONNX node 0 .*expected .*found", drawn, op, opset, weights, **attrs)


def test_random_numbers() -> None:
    """Moments of 20,000 draws lie within five standard errors, and a seed gives the same ones again."""
    n = 20_000
    x = drawn("RandomUniform", shape=[n], low=-1.0, high=3.0, seed=4.0)
    assert abs(x.mean() - 1) < 5 * 4 / 12**0.5 / n**0.5
    assert -1 <= x.min() < -0.99
    assert 2.99 < x.max() < 3
    np.testing.assert_array_equal(x, drawn("RandomUniform", shape=[n], low=-1.0, high=3.0, seed=4.0))
    assert (drawn("RandomUniform", shape=[9]) != drawn("RandomUniform", shape=[9])).any()
    z = drawn("RandomNormal", shape=[n], mean=2.0, scale=0.5, seed=1.0)
    assert abs(z.mean() - 2) < 5 * 0.5 / n**0.5
    assert abs(z.std() - 0.5) < 5 * 0.5 / (2 * n) ** 0.5
    logits = np.log(np.array([[0.1, 0.2, 0.7]], np.float32)) + 3
    shares = np.bincount(drawn("Multinomial", weights={"x": logits}, sample_size=n, seed=2.0)[0], minlength=3) / n
    assert np.abs(shares - [0.1, 0.2, 0.7]).max() < 5 * 0.5 / n**0.5
    p = np.full((n,), 0.3)
    assert abs(drawn("Bernoulli", weights={"x": p}, seed=3.0).mean() - 0.3) < 5 * 0.46 / n**0.5


def test_two_draws_are_two() -> None:
    nodes = "a = RandomUniformLike(x); b = RandomUniformLike(x)"
    a, b = weft.Session(model(nodes, {"x": FLOATS}, ["a", "b"], 22)).run({"x": np.zeros((5, 3), np.float32)})
    assert (a.numpy() != b.numpy()).any()
