"""Channels-last layouts: what is carried through gives what the channels-first program gives."""

from functools import partial

import numpy as np
import pytest

import weft
from tests.relax_models import computing, model
from weft import relax
from weft.ir import Attrs, Call, Op, walk
from weft.machine import Machine
from weft.relax.interpreter import evaluate

torch = pytest.importorskip("torch")
RNG = np.random.default_rng(7)


def program(middle, shape=(1, 8, 12, 10)):
    """A convolution, `middle` on its output, another convolution."""
    bb = relax.BlockBuilder()
    x = relax.Var("x", relax.TensorType(shape, "float32"))
    weights = [relax.const(RNG.standard_normal((8, 8, 3, 3)).astype(np.float32) * 0.2) for _ in range(2)]
    with bb.function("main", [x]), bb.dataflow():
        y = middle(bb, bb.emit(relax.op.nn.conv2d(x, weights[0], padding=1)))
        bb.emit_func_output(bb.emit_output(bb.emit(relax.op.nn.conv2d(y, weights[1], padding=1))))
    return bb.get()


def check_values(mod, shapes):
    """What is compiled computes what the operators mean."""
    main = computing(mod)
    for shape in shapes:
        x = RNG.standard_normal(shape).astype(np.float32)
        np.testing.assert_allclose(main(x), *evaluate(mod, x), rtol=1e-4, atol=1e-4)


def check(mod, shape=(1, 8, 12, 10)):
    """Only entry and exit are transposed, and the result is that of the program without any pass."""
    after = relax.transform.dead_code_elimination()(relax.transform.convert_layout()(relax.transform.normalize()(mod)))
    found = [n for n in walk(after["main"]) if isinstance(n, Call) and n.op is Op.get("relax.permute_dims")]
    assert len(found) == 2
    check_values(mod, [shape])
    return after


@pytest.mark.parametrize(("depth", "frames"), [(3, 0), (1, 2)])
def test_a_block_of_volumes(depth, frames):
    def layer(x, more):
        w = relax.const(RNG.normal(scale=0.04, size=(64, 64, depth, 3, 3)).astype(np.float32))
        return relax.op.nn.relu(relax.op.add(relax.op.nn.conv3d(x, w, padding=(depth // 2, 1, 1)), more))

    bias = relax.const(RNG.standard_normal((1, 64, 1, 1, 1)).astype(np.float32))
    after = check(model(lambda x: layer(layer(x, bias), x), ["n", 64, "d", "h", "w"]), (2, 64, 4, 7, 6))
    found = [n for n in walk(after["main"]) if getattr(n, "op", None) is Op.get("relax.nn.conv2d_winograd")]
    assert len(found) == frames


@pytest.mark.parametrize(
    "attrs",
    [
        {"scales": (1.0, 1.0, 1.5, 2.0), "coordinate_transformation_mode": "asymmetric"},
        {"method": "cubic"},
        {"roi": (0.0, 0.0, 0.1, 0.2, 1.0, 1.0, 0.9, 0.7), "coordinate_transformation_mode": "tf_crop_and_resize"},
        {"method": "nearest", "rounding_method": "floor"},
    ],
)
def test_resize(attrs):
    size = relax.ShapeExpr([1, 8, 18, 20])
    check(program(lambda bb, y: bb.emit(Call(Op.get("relax.image.resize"), (y, size), Attrs.of(**attrs)))))


def test_points_are_sampled_with_all_their_channels():
    grid = relax.const(np.random.default_rng(3).uniform(-1.2, 1.2, (1, 2, 5, 7)).astype(np.float32))
    check(program(lambda bb, y: bb.emit(relax.op.image.grid_sample(y, grid))))


def test_match_cast():
    height = weft.tir.Var("h", "int64")

    def middle(bb, y):
        return bb.emit(relax.op.add(bb.match_cast(y, relax.TensorType((1, 8, height, 10), "float32")), y))

    check(program(middle))


def test_repeated():
    def middle(bb, y):
        mean = bb.emit(
            relax.op.nn.conv2d(
                bb.emit(relax.op.mean(y, [2, 3], True)), relax.const(np.eye(8, dtype="f4")[..., None, None])
            )
        )
        return bb.emit(relax.op.add(y, bb.emit(relax.op.broadcast_to(mean, relax.ShapeExpr([1, 8, 12, 10])))))

    check(program(middle))


def test_parts_and_frames():
    """A split cuts the twin; a frame of zeros becomes the convolution's own, another is kept."""

    def middle(bb, y):
        first, second = (bb.emit(relax.TupleGetItem(bb.emit(relax.op.split(y, 2, axis=1)), i)) for i in (0, 1))
        rows = bb.emit(relax.op.strided_slice(y, [-3, 2], [4, 2], [8, 12]))
        rows = bb.emit(relax.op.nn.pad(rows, (0, 0, 0, 0, 1, 1, 0, 0)))
        both = bb.emit(relax.op.concat([bb.emit(relax.op.add(second, rows)), first], 1))
        ones = bb.emit(relax.op.nn.pad(both, (0, 0, 0, 0, 1, 0, 0, 2), pad_value=1.0))
        return bb.emit(relax.op.nn.pad(ones, (0, 0, 0, 0, 0, 3, 1, 0)))

    mod = program(middle)
    after = check(mod)
    pads = [n for n in walk(after["main"]) if isinstance(n, Call) and n.op is Op.get("relax.nn.pad")]
    assert len(pads) == 2


def sequences(x, weights):
    """1-D convolutions with all that stays on images of one row, and a transpose at the end."""
    op = relax.op
    y = op.nn.relu(op.nn.conv1d(x, weights[0], padding=[2, 1], dilation=2))
    y = op.add(y, relax.const(RNG.standard_normal((1, 8, 1)).astype(np.float32)))
    halves = [relax.TupleGetItem(op.split(y, 2, axis=1), 1), op.strided_slice(y, [1], [0], [4])]
    y = op.nn.pad(op.concat(halves, axis=1), (0, 0, 0, 0, 3, 0))
    z = op.nn.conv1d(y, weights[1], groups=8, strides=2)
    z = op.nn.max_pool1d(z, pool_size=2, strides=2)
    z = op.concat([z, z], axis=1)
    return op.permute_dims(op.multiply(z, op.mean(z, [2], True)), [0, 2, 1])


@pytest.mark.parametrize("symbolic", [False, True])
def test_sequences_are_images_of_one_row(symbolic):
    n, w = (weft.tir.Var("n", "int64"), weft.tir.Var("w", "int64")) if symbolic else (2, 41)
    x = relax.Var("x", relax.TensorType((n, 6, w), "float32"))
    weights = [relax.const(RNG.standard_normal(s).astype(np.float32)) for s in ((8, 6, 3), (8, 1, 4))]
    mod = model(lambda x: sequences(x, weights), x)
    after = relax.transform.widen_conv1d()(relax.transform.normalize()(mod))
    assert not [c for c in walk(after["main"]) if isinstance(c, Call) and "1d" in getattr(c.op, "name", "")]
    check_values(mod, [(2, 6, 41)])


def test_vectors_along_channels():
    slope, scale = (relax.const(RNG.uniform(0.01, 0.1, 8).astype(np.float32)) for _ in range(2))
    zero = relax.const(np.arange(8, dtype=np.int8))

    def middle(bb, y):
        y = bb.emit(relax.op.nn.prelu(y, slope, axis=1))
        narrow = bb.emit(relax.op.quantize(y, scale, zero, axis=1))
        return bb.emit(relax.op.dequantize(narrow, scale, zero, axis=-3))

    check(program(middle))


def test_concatenation_and_reduction():
    def middle(bb, y):
        both = bb.emit(relax.op.concat([y, y], 1))
        mean = bb.emit(relax.op.mean(both, [2, 3], True))
        first = bb.emit(relax.op.nn.conv2d(mean, relax.const(np.ones((8, 16, 1, 1), np.float32))))
        return bb.emit(relax.op.multiply(y, first))

    check(program(middle))


def transposed(symbolic, first, second, middle):
    """Two transposed convolutions of given (kernel, channels), `middle` between them, on 6 channels."""
    n, h, w = (weft.tir.Var(v, "int64") for v in "nhw") if symbolic else (2, 7, 5)
    bb = relax.BlockBuilder()
    x = relax.Var("x", relax.TensorType((n, 6, h, w), "float32"))

    def convolve(y, c_in, size, c_out):
        weight = relax.const(RNG.standard_normal((c_in, c_out, *size)).astype(np.float32))
        return bb.emit(relax.op.nn.conv2d_transpose(y, weight, strides=size))

    with bb.function("main", [x]), bb.dataflow():
        y = middle(bb, convolve(x, 6, *first))
        bb.emit_func_output(bb.emit_output(bb.emit(relax.op.sigmoid(convolve(y, first[1], *second)))))
    return bb.get()


def channelwise(bb, y):
    c = y.ty.shape[1]
    scaled = bb.emit(relax.op.multiply(y, relax.const(RNG.standard_normal((int(c), 1, 1)).astype(np.float32))))
    return bb.emit(relax.op.nn.relu(bb.emit(relax.op.add(scaled, relax.const(0.5, "float32")))))


def pixelwise(bb, y):
    ramp = relax.const(RNG.standard_normal((1, 1, 1, 1)).astype(np.float32))
    twice = bb.emit(relax.op.add(y, bb.emit(relax.op.multiply(y, ramp))))
    pooled = bb.emit(relax.op.mean(twice, [2, 3], True))
    return bb.emit(relax.op.concat([bb.emit(relax.op.subtract(twice, pooled)), y], 1))


@pytest.mark.parametrize("symbolic", [False, True])
@pytest.mark.parametrize("first", [((2, 2), 24), ((2, 2), 1), ((3, 2), 5), ((1, 4), 8)])
def test_transposed_convolutions_without_overlap_are_products(symbolic, first):
    mod = transposed(symbolic, first, ((2, 2), 1), channelwise)
    after = relax.transform.dead_code_elimination()(relax.transform.convert_layout()(relax.transform.normalize()(mod)))
    assert not [n for n in walk(after["main"]) if isinstance(n, Call) and n.op is Op.get("relax.nn.conv2d_transpose")]
    check_values(mod, [(2, 6, 7, 5), (1, 6, 1, 16)] if symbolic else [(2, 6, 7, 5)])


def test_phases_become_images_where_pixels_differ():
    n, h, w = (weft.tir.Var(v, "int64") for v in "nhw")
    bb = relax.BlockBuilder()
    x = relax.Var("x", relax.TensorType((n, 6, h, w), "float32"))
    weight = relax.const(RNG.standard_normal((6, 9, 2, 2)).astype(np.float32))
    with bb.function("main", [x]), bb.dataflow():
        y = pixelwise(bb, bb.emit(relax.op.nn.conv2d_transpose(x, weight, strides=2)))
        bb.emit_func_output(bb.emit_output(y))
    check_values(bb.get(), [(2, 6, 7, 5), (1, 6, 1, 1)])


@pytest.mark.parametrize(("outs", "ins"), [(128, 5), (64, 16), (128, 3)])
def test_groups_as_wide_as_panels_are_packed(outs, ins):
    height = weft.tir.Var("h", "int64")
    weight = relax.const(RNG.standard_normal((outs, ins, 3, 2)).astype(np.float32))
    convolved = lambda x: relax.op.nn.conv2d(x, weight, groups=2, padding=1, strides=(1, 2))  # noqa: E731
    mod = model(lambda x: relax.op.nn.relu(convolved(x)), (2, 2 * ins, height, 9))
    check_values(mod, [(2, 2 * ins, 7, 9)])
    after = relax.transform.convert_layout(panel=32, winograd=False)(relax.transform.normalize()(mod))["main"]
    (conv,) = (n for n in walk(after) if isinstance(n, Call) and n.op is Op.get("relax.nn.conv2d"))
    assert conv.attrs["kernel_layout"] == "OHWI32o"


@pytest.mark.parametrize(("groups", "ins", "outs"), [(2, 64, 32), (3, 32, 48)])
def test_wide_groups_are_images_of_their_own(groups, ins, outs):
    weight = relax.const(RNG.standard_normal((groups * outs, ins, 3, 3)).astype(np.float32) / ins)
    convolved = lambda x: relax.op.nn.conv2d(x, weight, groups=groups, padding=(1, 0))  # noqa: E731
    mod = model(lambda x: relax.op.nn.relu(convolved(x)), ("n", groups * ins, "h", "w"))
    made = relax.transform.convert_layout()(relax.transform.normalize()(mod))["main"]
    assert sum(isinstance(n, Call) and n.op is Op.get("relax.nn.conv2d_winograd") for n in walk(made)) == groups
    check_values(mod, [(2, groups * ins, 9, 14), (1, groups * ins, 4, 3), (0, groups * ins, 4, 3)])


LONE = [
    # channels in and out, window, attributes; how many convolutions it becomes, and whether lanes are pixels
    ((5, 1), (9, 7), {"padding": (4, 3)}, 1, True),
    ((3, 1), (1, 7), {"padding": (0, 3), "strides": (2, 1)}, 1, True),
    ((4, 1), (2, 3), {"dilation": (2, 3)}, 1, True),
    ((4, 1), (3, 3), {"strides": (1, 2)}, 1, False),
    ((24, 57), (3, 3), {"groups": 3, "padding": 1}, 3, False),
    ((21, 21), (3, 2), {"groups": 3, "strides": (2, 1)}, 3, False),
    ((24, 24), (3, 3), {"groups": 3, "padding": (1, 0)}, 1, False),  # eight are half a vector: copied side by side
    ((24, 24), (3, 3), {"groups": 3, "strides": (3, 3)}, 3, False),  # what would be copied is used once
    ((9, 60), (1, 3), {"groups": 3, "strides": (2, 3)}, 3, False),
    ((12, 3), (3, 3), {"groups": 3}, 1, False),
    ((6, 3), (3, 3), {"padding": 1}, 1, True),
]


@pytest.mark.parametrize(("channels", "window", "attributes", "count", "first"), LONE)
@pytest.mark.parametrize("before", [False, True])
def test_one_channel_is_computed_for_pixels_and_odd_groups_each_by_itself(
    channels, window, attributes, count, first, before
):
    weight = RNG.standard_normal((channels[1], channels[0] // attributes.get("groups", 1), *window)).astype(np.float32)
    point = RNG.standard_normal((channels[0], channels[0], 1, 1)).astype(np.float32)

    def layers(x):
        y = relax.op.nn.relu(relax.op.nn.conv2d(x, relax.const(point))) if before else x
        return relax.op.nn.relu(relax.op.nn.conv2d(y, relax.const(weight), **attributes))

    mod = model(layers, ("n", channels[0], "h", "w"))
    machine = Machine(vector_bits=512, vector_registers=32)
    after = relax.transform.convert_layout(machine=machine)(relax.transform.normalize()(mod))["main"]
    convs = [n for n in walk(after) if isinstance(n, Call) and n.op is Op.get("relax.nn.conv2d")][before:]
    assert len(convs) == count
    twin = before and channels[0] > 16  # that of few channels is computed for pixels too
    first &= not twin or window[0] * window[1] > 12  # where windows are small, a twin that is there already is read
    assert all((c.attrs.get("kernel_layout") in (None, "", "OIHW")) == first for c in convs)
    main = computing(mod)
    for shape in ((2, channels[0], 23, 37), (1, channels[0], 9, 64), (2, channels[0], 9, 7), (0, channels[0], 9, 7)):
        data = RNG.standard_normal(shape).astype(np.float32)
        want = torch.from_numpy(data).double()
        want = torch.relu(torch.conv2d(want, torch.from_numpy(point).double())) if before else want
        named = {{"strides": "stride"}.get(k, k): v for k, v in attributes.items()}
        want = torch.conv2d(want, torch.from_numpy(weight).double(), **named)
        found = main(data)
        np.testing.assert_allclose(found, torch.relu(want).numpy(), rtol=2e-4, atol=2e-4)


@pytest.mark.parametrize(
    ("multiplier", "attributes", "scales"),
    [
        (1, {}, True),
        (1, {"strides": (2, 1)}, False),
        (1, {"padding": (0, 1)}, False),
        (2, {}, False),
        (1, {"dilation": 2}, True),
    ],
)
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_a_convolution_that_scales_channels_is_a_multiplication(multiplier, attributes, scales, dtype):
    batch, height = (weft.tir.Var(n, "int64") for n in "nh")
    weight = RNG.standard_normal((5 * multiplier, 1, 1, 1)).astype(dtype)
    convolved = lambda x: relax.op.nn.conv2d(x, relax.const(weight, dtype), groups=5, **attributes)  # noqa: E731
    mod = model(convolved, (batch, 5, height, 7), dtype=dtype)
    after = relax.transform.decompose_ops()(relax.transform.normalize()(mod))["main"]
    assert any(isinstance(n, Call) and n.op is Op.get("relax.multiply") for n in walk(after)) == scales
    main = computing(mod)
    for shape in ((2, 5, 6, 7), (0, 5, 1, 7), (3, 5, 1, 7)):
        data = RNG.standard_normal(shape).astype(dtype)
        named = {{"strides": "stride"}.get(k, k): v for k, v in attributes.items()}
        want = torch.conv2d(torch.from_numpy(data).double(), torch.from_numpy(weight).double(), groups=5, **named)
        np.testing.assert_allclose(main(data), want.numpy(), rtol=1e-6, atol=1e-7)


@pytest.mark.parametrize("axes", [None, (1, 0), (0, 1)])
@pytest.mark.parametrize("rows", [0, 1, 3, 9, "m"])
def test_a_transposed_matrix_is_read_as_it_lies(rows, axes):
    count, inner = (weft.tir.Var(rows, "int64") if rows == "m" else rows), 33
    given = (inner, 70) if axes == (0, 1) else (70, inner)
    x, w = (relax.Var(n, relax.TensorType(d, "float32")) for n, d in (("x", (count, inner)), ("w", given)))
    mod = model(lambda x, w: relax.op.nn.relu(relax.op.matmul(x, relax.op.permute_dims(w, axes))), x, w)
    after = relax.transform.convert_layout()(relax.transform.normalize()(mod))["main"]
    read = any(isinstance(n, Call) and n.op is Op.get("relax.linear") for n in walk(after))
    assert read == (rows != "m" and axes != (0, 1))
    a, b = (RNG.standard_normal(d).astype(np.float32) for d in ((5 if rows == "m" else rows, inner), given))
    main = computing(mod)
    want = a.astype(np.float64) @ (b if axes == (0, 1) else b.T)
    found = main(a, b)
    np.testing.assert_allclose(found, np.maximum(want, 0), atol=1e-4)


@pytest.mark.parametrize("name", ["nn.conv1d", "nn.conv2d", "nn.conv2d_transpose"])
def test_convolutions_of_halves_read_wide_numbers(name):
    """Every element of float16 is converted once, not for each tap: sums and operands are float32."""
    rank = 1 if name == "nn.conv1d" else 2
    shapes = ((2, 6, *(9, 7)[:rank]), (6 if "transpose" in name else 12, 3, *(3, 3)[:rank]))
    x, w = (RNG.standard_normal(s).astype(np.float16) for s in shapes)
    convolve = partial(weft.op.make_call(name), padding=1, groups=2)
    mod = model(lambda x: relax.op.nn.relu(convolve(x, relax.const(w))), shapes[0], dtype="float16")
    made = relax.transform.decompose_ops(wide_convolutions=True)(relax.transform.normalize()(mod))
    (call,) = (n for n in walk(made["main"]) if isinstance(n, Call) and n.op is Op.get(f"relax.{name}"))
    assert [a.ty.dtype for a in call.args] + [call.ty.dtype] == ["float32"] * 3
    main = computing(mod)
    transposed = "_transpose" if "transpose" in name else ""
    function = getattr(torch.nn.functional, f"conv{transposed}{rank}d")
    expected = function(*(torch.from_numpy(a.astype(np.float64)) for a in (x, w)), padding=1, groups=2).relu().numpy()
    found = main(x)
    assert found.dtype == np.float16
    np.testing.assert_allclose(found, expected, rtol=2e-3, atol=2e-3)
