"""Shapes that a model computes from its inputs become symbolic dimensions; nothing is left to compute."""

from typing import Any

import numpy as np
import pytest
from onnx import TensorProto, helper

import weft
from tests.arrays import floats
from tests.frontend.models import calls, check, compare, model_of, oracle
from tests.onnx_models import onnx_nodes
from tests.refusals import refuses
from weft.frontend.onnx import from_onnx
from weft.frontend.onnx import scalars as s
from weft.ir import Cast, DataType, FloatImm, SizeVar, Var
from weft.relax.interpreter import evaluate

node = helper.make_node
RNG = np.random.default_rng(3)
f32 = floats(RNG)


def i64(*values: Any) -> np.ndarray:
    return np.array(values, np.int64)


def run_at(
    nodes: Any, weights: dict, dims: dict, sizes: Any, outputs: Any = ("y",), make: Any = f32, opset: int = 17
) -> Any:
    """Import once with symbolic dimensions, run at several sizes, compare with the oracle each time."""
    first = {k: make(*shape) for k, shape in sizes[0].items()}
    model = model_of(nodes, first, list(outputs), opset, weights, dims)
    mod = from_onnx(model)
    for shapes in sizes:
        inputs = {k: make(*shape) for k, shape in shapes.items()}
        compare(evaluate(mod, *inputs.values()), oracle(model, inputs))
    return mod


def test_split_heads() -> None:
    """(batch, seq, hidden) to (batch, heads, seq, head) by Shape, Gather, Unsqueeze, Concat, Reshape."""
    nodes = onnx_nodes("""
        shape = Shape(x); b = Gather(shape, zero); t = Gather(shape, one); b1 = Unsqueeze(b, axis);
        t1 = Unsqueeze(t, axis); target = Concat <axis = 0> (b1, t1, heads, minus); r = Reshape(x, target);
        y = Transpose <perm = [0, 2, 1, 3]> (r)""")
    weights = {"zero": np.int64(0), "one": np.int64(1), "axis": i64(0), "heads": i64(4), "minus": i64(-1)}
    mod = run_at(nodes, weights, {"x": ["batch", "seq", 12]}, [{"x": (2, 5, 12)}, {"x": (1, 1, 12)}, {"x": (3, 7, 12)}])
    assert calls(mod) == ["reshape", "permute_dims"]
    assert mod["main"].ret_ty.shape[3].value == 3


def test_merge_heads_divides_exactly() -> None:
    nodes = onnx_nodes("s = Shape(x); front = Slice(s, a, b); t = Concat <axis = 0> (front, m); y = Reshape(x, t)")
    weights = {"a": i64(0), "b": i64(2), "m": i64(-1)}
    mod = run_at(nodes, weights, {"x": ["n", "t", 4, 3]}, [{"x": (2, 5, 4, 3)}, {"x": (1, 2, 4, 3)}])
    assert [getattr(d, "value", None) for d in mod["main"].ret_ty.shape] == [None, None, 12]


def test_expand_pattern_of_exporters() -> None:
    """Where(Equal(shape, -1), ones, shape) before Expand."""
    nodes = onnx_nodes("""
        s = Shape(x); ones = ConstantOfShape <value = int64[1] {1}> (three); negative = Mul(ones, minus);
        wanted = Concat <axis = 0> (s, minus); same = Equal(wanted, negative); target = Where(same, ones, wanted);
        x3 = Unsqueeze(x, two); y = Expand(x3, target)""")
    weights = {"three": i64(3), "minus": i64(-1), "two": i64(2)}
    mod = run_at(nodes, weights, {"x": ["n", "m"]}, [{"x": (2, 3)}, {"x": (1, 4)}])
    assert calls(mod) == ["reshape"]


@pytest.mark.parametrize(
    "moved",
    [
        "OneHot(place, depth, pair)",
        "GatherElements(s, places)",
        "GatherND(s, rows)",
        "ScatterElements(ones, places, s)",
        "ScatterND(ones, rows, two)",
        "Pad(s, both, one)",
        'Pad <mode = "edge"> (s, both)',
        "Compress <axis = 0> (s, kept)",
        "ReverseSequence <time_axis = 0, batch_axis = 1> (column, length)",
        "Trilu <upper = 0> (column)",
    ],
)
def test_moved_elements_stay_known(moved: str) -> None:
    """PyTorch writes ``repeat_interleave`` as a Tile of so many times as OneHot says."""
    nodes = onnx_nodes(f"""
        s = Shape(x); two = Slice(s, zero, end); first = Slice(s, zero, place); pair = Concat <axis = 0> (one, first);
        column = Unsqueeze(s, place); r = {moved}; flat = Reshape(r, minus); t = Max(flat, one); y = Expand(w, t)""")
    weights = {"zero": i64(0), "end": i64(2), "place": i64(1), "depth": np.int64(3), "w": f32(1)}
    weights |= {
        "places": i64(1, 0, 2),
        "rows": i64([2], [0]),
        "ones": i64(1, 1, 1),
        "both": i64(1, 1),
        "minus": i64(-1),
    }
    weights |= {"kept": np.array([True, False, True]), "length": i64(2), "one": i64(1)}
    mod = run_at(nodes, weights, {"x": ["a", "b", "c"]}, [{"x": (2, 3, 2)}, {"x": (1, 4, 2)}], opset=18)
    assert "tensor_to_shape" not in calls(mod)


def test_causal_mask_from_range() -> None:
    nodes = onnx_nodes("""
        s = Shape(x); t = Gather(s, one); r = Range(zero, t, one); row = Unsqueeze(r, ax0);
        column = Unsqueeze(r, ax1); mask = LessOrEqual(row, column); y = Where(mask, x, low)""")
    weights = {"zero": np.int64(0), "one": np.int64(1), "ax0": i64(0), "ax1": i64(1), "low": np.float32(-9)}
    run_at(nodes, weights, {"x": ["t", "t"]}, [{"x": (4, 4)}, {"x": (1, 1)}], opset=16)


def test_positions_are_sliced_to_the_length() -> None:
    """A clamped length beside the plain one is checked, not guessed: x + table[:n]."""
    nodes = onnx_nodes("""
        s = Shape(x); t = Gather(s, one); t1 = Unsqueeze(t, ax0); positions = Slice(table, zero, t1, ax0);
        y = Add(x, positions)""")
    weights = {"one": np.int64(1), "ax0": i64(0), "zero": i64(0), "table": f32(16, 4)}
    mod = run_at(nodes, weights, {"x": ["n", "t", 4]}, [{"x": (2, 5, 4)}, {"x": (1, 16, 4)}])
    refuses(weft.error.EvaluationError, "dimension", evaluate, mod, f32(1, 17, 4))


def test_unequal_dimensions_are_refused_at_run_time() -> None:
    """Two names may broadcast or be equal; anything else is an error, not a wrong result."""
    nodes = [node("Add", ["a", "b"], ["s"]), node("Mul", ["s", "b"], ["y"])]
    model = model_of(nodes, {"a": f32(3, 4), "b": f32(3, 4)}, ["y"], 17, dims={"a": ["n", 4], "b": ["m", 4]})
    mod = from_onnx(model)
    for n, m in ((3, 3), (3, 1), (1, 3)):
        a, b = f32(n, 4), f32(m, 4)
        compare(evaluate(mod, a, b), [(a + b) * b])
    refuses(weft.error.ShapeMismatch, "dimension", weft.Session(model).run, {"a": f32(3, 4), "b": f32(2, 4)})


def test_pyramid_levels_are_taken_to_be_equal() -> None:
    """x + upsample(pool(x)): (h + 1) // 2 * 2 beside h keeps the simpler form."""
    nodes = onnx_nodes("""
        p = MaxPool <kernel_shape = [1, 1], strides = [2, 2]> (x);
        q = MaxPool <kernel_shape = [1, 1], strides = [2, 2]> (p); u = Resize <mode = "nearest"> (q, "", scale);
        y = Add(p, u)""")
    weights = {"scale": np.array([1, 1, 2, 2], np.float32)}
    sizes = [{"x": (1, 2, 8, 12)}, {"x": (2, 2, 4, 4)}]
    mod = run_at(nodes, weights, {"x": ["n", 2, "h", "w"]}, sizes)
    assert s.same(mod["main"].ret_ty.shape[2], mod["main"].body.blocks[0].bindings[0].var.ty.shape[2])
    refuses(weft.error.EvaluationError, "dimension", evaluate, mod, f32(1, 2, 6, 4))


@pytest.mark.parametrize(("start", "length"), [(-1, 1), (-2, 2), (0, 1)])
def test_a_short_slice_beside_what_it_was_cut_from_broadcasts(start: int, length: int) -> None:
    """Positions divided by the last one, as DETR does: the slice has min(1, n) elements, not n."""
    nodes = onnx_nodes("""
        p = MaxPool <kernel_shape = [1, 1], strides = [2, 1]> (x); last = Slice(p, start, end, axis);
        y = Div(p, last)""")
    weights = {"start": i64(start), "end": i64(2**63 - 1 if start < 0 else length), "axis": i64(2)}
    model = model_of(nodes, {"x": f32(1, 1, 4, 3)}, ["y"], 17, weights, {"x": ["n", 1, "h", "w"]})
    session = weft.Session(model)
    for size in range(10):
        x = f32(1, 1, size, 3) + 9
        pooled = x[:, :, ::2]
        last = pooled[:, :, start:] if start < 0 else pooled[:, :, :length]
        if last.shape[2] in (1, pooled.shape[2]):
            compare([t.numpy() for t in session.run({"x": x})], [pooled / last])
        else:
            refuses(Exception, "dimension|must be", session.run, {"x": x})


def test_upsample_to_the_size_of_another() -> None:
    """Feature pyramid: Resize by sizes taken from another map, and by scales computed from shapes."""
    sizes = onnx_nodes("""
        sy = Shape(y0); hw = Slice(sy, two, four); sx = Shape(x); nc = Slice(sx, zero, two);
        size = Concat <axis = 0> (nc, hw)""")
    weights = {"zero": i64(0), "two": i64(2), "four": i64(4)}
    by_sizes = onnx_nodes("""
        r = Resize <mode = "nearest", coordinate_transformation_mode = "asymmetric", nearest_mode = "floor">
        (x, "", "", size); y = Add(r, y0)""")
    dims = {"x": ["n", 2, "h", "w"], "y0": ["n", 2, "H", "W"]}
    shapes = [{"x": (1, 2, 3, 4), "y0": (1, 2, 6, 8)}, {"x": (2, 2, 5, 3), "y0": (2, 2, 9, 7)}]
    assert calls(run_at(sizes + by_sizes, weights, dims, shapes)) == ["image.resize", "add"]
    scales = onnx_nodes("""
        fs = Cast <to = 1> (size); fx = Cast <to = 1> (sx); scale = Div(fs, fx);
        y = Resize <mode = "linear"> (x, "", scale)""")
    assert calls(run_at(sizes + scales, weights, dims, shapes)) == ["image.resize"]


def test_doubled_size_is_exact() -> None:
    """floor(cast(h) * 2.0) is h * 2."""
    nodes = onnx_nodes("""
        s = Shape(x); hw = Slice(s, two, four); f = Cast <to = 1> (hw); g = Mul(f, factor); k = Floor(g);
        i = Cast <to = 7> (k); nc = Slice(s, zero, two); size = Concat <axis = 0> (nc, i);
        y = Resize <mode = "linear"> (x, "", "", size)""")
    weights = {"zero": i64(0), "two": i64(2), "four": i64(4), "factor": np.array([2, 0.5], np.float32)}
    run_at(nodes, weights, {"x": [1, 1, "h", "w"]}, [{"x": (1, 1, 3, 8)}, {"x": (1, 1, 4, 7)}])


def test_pads_are_computed() -> None:
    """Pad to a multiple of 4, as detectors do: (4 - h % 4) % 4."""
    nodes = onnx_nodes("""
        s = Shape(x); rest = Mod(s, unit); gap = Sub(unit, rest); after = Mod(gap, unit); before = Mul(after, zeros);
        pads = Concat <axis = 0> (before, after); y = Pad(x, pads)""")
    weights = {"unit": i64(4, 4), "zeros": i64(0, 0)}
    mod = run_at(nodes, weights, {"x": ["h", "w"]}, [{"x": (3, 5)}, {"x": (4, 8)}])
    assert calls(mod) == ["nn.pad"]


def test_sizes_leave_the_graph() -> None:
    """A shape that is an output is made a tensor: 1-D, scalar, converted, and as a float."""
    nodes = onnx_nodes("""
        a = Shape(x); b = Gather(a, one); c = Cast <to = 6> (a); f = Cast <to = 1> (b); d = Sqrt(f); e = Size(x);
        g = Greater(a, limit)""")
    run_at(
        nodes,
        {"one": np.int64(1), "limit": i64(2, 2)},
        {"x": ["n", "m"]},
        [{"x": (2, 3)}, {"x": (5, 1)}],
        outputs="abcdeg",
    )


@pytest.mark.parametrize("shape", [(3, 4), (2, -1), (0, 4), (-1,), (0, -1, 2)])
def test_reshape_to_data(shape: tuple[int, ...]) -> None:
    x, target = f32(3, 4), i64(*shape)
    check(
        model_of([node("Reshape", ["x", "t"], ["y"])], {"x": x, "t": target}, ["y"], 14),
        {"x": x, "t": target},
        dynamic=("x",),
    )


def test_data_as_sizes() -> None:
    x = f32(3, 1)
    check(
        model_of([node("Expand", ["x", "t"], ["y"])], {"x": x, "t": i64(2, 1, 4)}, ["y"], 13),
        {"x": x, "t": i64(2, 1, 4)},
    )
    check(model_of([node("ConstantOfShape", ["t"], ["y"])], {"t": i64(2, 3)}, ["y"], 13), {"t": i64(2, 3)})
    range_nodes = [node("ReduceMax", ["x"], ["n"], keepdims=0), node("Range", ["zero", "n", "one"], ["y"])]
    x = i64(2, 5, 3)
    check(
        model_of(range_nodes, {"x": x}, ["y"], 13, {"zero": np.int64(0), "one": np.int64(1)}), {"x": x}, dynamic=("x",)
    )


def test_zero_dimensions() -> None:
    nodes = onnx_nodes("s = Shape(x); f = Slice(s, a, b); t = Concat <axis = 0> (f, m); y = Reshape(x, t)")
    weights = {"a": i64(0), "b": i64(1), "m": i64(3, -1)}
    model = model_of(nodes, {"x": f32(2, 6)}, ["y"], 17, weights, {"x": ["n", 6]})
    assert evaluate(from_onnx(model), f32(0, 6))[0].shape == (0, 3, 2)


# --- scalars ----------------------------------------------------------------------------------------------------------


def test_ratio_arithmetic() -> None:
    h = SizeVar("h", DataType("int64"))
    as_float = s.cast_element(h, "float32")
    assert isinstance(as_float, Cast)
    assert s.cast_element(s.multiply(as_float, 2.0), "int64").dtype == "int64"
    half = s.floor(s.divide(as_float, 2.0))
    assert s.same(s.cast_element(half, "int64"), s.floor_divide(h, 2))
    assert s.same(s.cast_element(s.ceil(s.multiply(as_float, 0.5)), "int64"), s.ceildiv(h, 2))
    assert s.divide(as_float, as_float) == 1.0
    inexact = s.multiply(as_float, 1.7)
    assert any(isinstance(getattr(inexact, f, None), FloatImm) for f in ("a", "b"))


def test_integer_division_truncates() -> None:
    assert s.divide(-7, 2) == -3
    assert s.modulo(-7, 3, truncate=False) == 2
    assert s.modulo(-7, 3, truncate=True) == -1
    assert s.divide(5, 0) is None
    assert s.modulo(5, 0, truncate=False) is None


def test_products_cancel() -> None:
    n, m = (SizeVar(k, DataType("int64")) for k in "nm")
    assert s.cancel_product([n, m, 12], [m, 4, n]) == 3
    assert s.cancel_product([n, 12], [m]) is None
    assert s.cancel_product([s.multiply(n, 6)], [n, 2]) == 3


def test_comparisons_fold_only_when_proved() -> None:
    n, v = SizeVar("n", DataType("int64")), Var("v", DataType("int64"))
    assert s.compare("Equal", n, -1) is False
    assert not s.is_known(s.compare("Equal", v, -1))
    assert s.choose(True, n, v) is n


def test_padding_that_float_arithmetic_of_sizes_gives() -> None:
    """What keeps sizes the same in many networks: known sizes give known frames, others are computed at run time."""
    nodes = [
        node("Shape", ["x"], ["sizes"]),
        node("Slice", ["sizes", "two", "four"], ["hw"]),
        node("Cast", ["hw"], ["real"], to=TensorProto.FLOAT),
        node("Mod", ["real", "three"], ["rest"], fmod=1),
        node("Sub", ["wanted", "rest"], ["more"]),
        node("Clip", ["more", "zero"], ["clipped"]),
        node("Cast", ["clipped"], ["ends"], to=TensorProto.INT64),
        node("Concat", ["begins", "ends"], ["pads"], axis=0),
        node("Pad", ["x", "pads"], ["p"]),
        node("Conv", ["p", "w"], ["y"], strides=[2, 2]),
    ]
    weights = {
        "two": i64(2),
        "four": i64(4),
        "three": np.float32(3),
        "wanted": np.float32(1),
        "zero": np.float32(0),
        "begins": i64(*[0] * 6),
        "w": f32(5, 2, 3, 3),
    }
    made = model_of(nodes, {"x": f32(1)}, ["y"], weights=weights, dims={"x": ["n", 2, "h", "w"]})
    for h, w in ((6, 7), (9, 5), (8, 4)):
        x = f32(2, 2, h, w)
        expected = oracle(made, {"x": x})
        fixed = from_onnx(made, shape_dict={"x": x.shape})
        assert [int(d) for d in fixed["main"].ret_ty.shape] == list(expected[0].shape)
        for shapes in (None, {"x": x.shape}):
            compare([weft.Session(made, shape_dict=shapes).run({"x": x})[0].numpy()], expected)
