"""Convolutions to few channels as products whose rows are summed where their windows lie."""

import numpy as np
import pytest

from tests.relax_models import computed, computing, model
from weft import machine, relax, tir
from weft.ir import Call, walk
from weft.relax import transform

RNG = np.random.default_rng(3)

CASES = [  # data, weights, transposed, attributes, whether as a product
    ((1, 9, 7, 11), (1, 9, 3, 3), False, {"padding": 1}, True),
    ((2, 8, 5, 3), (3, 8, 2, 3), False, {"padding": (1, 0, 0, 2), "dilation": (2, 1)}, True),
    ((1, 24, 13), (2, 24, 4), False, {"padding": (3, 1)}, True),
    ((1, 8, 4, 5, 6), (2, 8, 2, 3, 1), False, {"padding": (1, 1, 0, 0, 2, 0)}, True),
    ((1, 30, 6, 7), (6, 10, 3, 2), False, {"groups": 3}, True),
    ((1, 16, 5, 80), (2, 16, 3, 3), False, {"padding": 1}, True),
    ((1, 30, 3, 40), (9, 10, 1, 1), False, {"groups": 3}, True),
    ((2, 27, 31), (90, 9, 1), False, {"groups": 3}, True),
    ((1, 24, 31), (96, 8, 1), False, {"groups": 3}, False),  # whole vectors of channels
    ((2, 9, 4, 6), (9, 1, 3, 3), True, {"padding": (1, 2, 0, 1)}, True),
    ((1, 12, 5, 4), (12, 2, 4, 3), True, {"strides": (2, 1), "padding": 1}, True),
    ((1, 9, 4, 5), (9, 1, 2, 2), True, {"dilation": 3}, True),
    ((1, 27, 4, 5), (27, 1, 3, 1), True, {"strides": 2, "groups": 3}, True),
    ((1, 16, 4, 5), (16, 1, 2, 3), True, {"strides": 3, "groups": 2, "dilation": (1, 2)}, True),
    ((1, 9, 7, 7), (1, 9, 3, 3), False, {"padding": 3}, False),  # windows that see nothing but padding
    ((1, 9, 7, 7), (1, 9, 3, 3), False, {"padding": (0, 0, 0, 3)}, False),
    ((1, 9, 7, 7), (1, 9, 3, 3), False, {"strides": 2}, False),
    ((1, 7, 7, 7), (1, 7, 3, 3), False, {}, False),
    ((1, 9, 7, 7), (13, 9, 3, 3), False, {}, False),
    ((1, 8, 20, 20), (8, 8, 9, 9), False, {}, False),  # 81 times the data
    ((1, 6, 4, 37), (6, 1, 3, 3), False, {"padding": 1, "groups": 6}, False),  # read once, channels first
    ((1, 5, 7, 70), (15, 1, 3, 2), False, {"dilation": 2, "groups": 5}, False),
    ((2, 3, 200), (64, 3, 5), False, {"strides": 3, "dilation": 2}, False),  # products of windows, without masks
    ((1, 6, 101), (13, 6, 4), False, {"padding": (3, 1), "dilation": 2}, False),  # longer to move than to sum
    ((2, 21, 67), (9, 7, 3), False, {"padding": 1, "groups": 3}, False),
    ((1, 14, 5, 47), (6, 7, 3, 2), False, {"padding": (0, 1, 2, 0), "groups": 2}, False),
    ((1, 5, 3, 4, 35), (7, 5, 2, 3, 3), False, {"padding": 1}, False),
    ((2, 16, 6, 8), (24, 16, 1, 1), False, {}, False),
]

MOVED = [  # data, weights, groups, whether channels last are worth moving the data
    ((1, 6, 2500), (86, 6, 3), 1, False),
    ((1, 6, "n"), (12, 6, 3), 1, False),
    ((1, 96, 2500), (96, 96, 3), 1, True),
    ((1, 6, 5000), (9, 2, 3), 3, False),
    ((1, 24, 50, 61), (17, 24, 4, 3), 1, False),
    ((1, 24, 50, "n"), (17, 24, 4, 3), 1, True),
    ((1, 24, 40, 44), (24, 24, 2, 5), 1, True),  # rows that end inside vectors, channels that do not
    ((1, 16, 56, 56), (16, 16, 3, 3), 1, True),  # Winograd's
    ((1, 51, 41, 41), (12, 17, 2, 2), 3, False),
]


@pytest.mark.parametrize(("data", "weights", "groups", "moved"), MOVED)
def test_data_stay_where_moving_them_takes_longer(data, weights, groups, moved):
    mod = program(data, weights, False, {"groups": groups, "padding": 1}, "float32", np.ones(weights, np.float32))
    avx2 = machine.Machine(vector_bits=256)
    for step in (transform.normalize(), transform.widen_conv1d(), transform.convert_layout(machine=avx2)):
        mod = step(mod)
    names = [n.op.name for n in walk(mod["main"]) if isinstance(n, Call) and hasattr(n.op, "name")]
    assert ("relax.permute_dims" in names) == moved
    assert names.count("relax.nn.conv2d") == (0 if "relax.nn.conv2d_winograd" in names else groups)


@pytest.mark.parametrize(
    ("data", "weights"), [CASES[-1][:2], ((1, 3, 1, 300), (64, 3, 1, 4)), (("b", 16, "d", "h", "w"), (24, 16, 1, 1, 1))]
)
def test_convolutions_without_neighbours_are_products_of_windows(data, weights):
    mod = program(data, weights, False, {}, "float32", RNG.standard_normal(weights).astype(np.float32))
    after = transform.convert_layout(machine=machine.Machine(vector_bits=256))(transform.normalize()(mod))["main"]
    ops = {n.op.name for n in walk(after) if isinstance(n, Call) and hasattr(n.op, "name")}
    assert "relax.matmul" in ops and "relax.permute_dims" not in ops


def program(data, weights, transposed, attrs, dtype, weight):
    convolve = getattr(relax.op.nn, f"conv{len(data) - 2}d{'_transpose' if transposed else ''}")
    data = [tir.Var(n, "int64") if isinstance(n, str) else n for n in data]
    if weight is None:
        return model(lambda x, w: convolve(x, w, **attrs), data, weights, dtype=dtype)
    return model(lambda x: convolve(x, relax.const(weight), **attrs), data, dtype=dtype)


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize(("dtype", "kind"), [("float32", "static"), ("float32", "loaded"), ("float16", "symbolic")])
def test_values(case, dtype, kind):
    data, weights, transposed, attrs, product = case
    x, w = RNG.standard_normal(data).astype(dtype), (RNG.standard_normal(weights) * 0.2).astype(dtype)
    names = [tir.Var(f"d{i}", "int64") for i in range(len(data))]
    shape = [n if i == 1 else names[i] for i, n in enumerate(data)] if kind == "symbolic" else data
    mod = program(shape, weights, transposed, attrs, dtype, None if kind == "loaded" else w)
    if len(data) > 3:
        after = transform.convert_layout(machine=machine.Machine(vector_bits=512))(transform.normalize()(mod))["main"]
        ops = {n.op.name for n in walk(after) if isinstance(n, Call) and hasattr(n.op, "name")}
        assert ("relax.matmul" in ops) == product and product != any("nn.conv" in name for name in ops)
        assert ("relax.nn.overlap_add" in ops) == (product and np.prod(weights[2:]) > 1)
    main = computing(mod)
    for sizes in [data, (1, data[1], *(n + 4 for n in data[2:]))] if kind == "symbolic" else [data]:
        x = RNG.standard_normal(sizes).astype(dtype)
        wanted = computed(f"nn.conv{len(data) - 2}d{'_transpose' if transposed else ''}", x, w, **attrs)
        found = main(*([x, w] if kind == "loaded" else [x]))
        assert found.shape == wanted.shape and found.dtype == np.dtype(dtype)
        limit = {"float32": 2e-6, "float16": 2e-3}[dtype]
        np.testing.assert_allclose(found.astype(np.float64), wanted, rtol=limit, atol=limit * abs(wanted).max())


@pytest.mark.parametrize("width", [80, tir.Var("w", "int64")])
def test_pixels_of_rows_of_unknown_length_are_multiplied(width):
    """A long row is walked in vectors; what is left of one of unknown length may be most of it."""
    w = np.ones((1, 12, 3, 3), np.float32)
    mod = transform.normalize()(program((1, 12, 9, width), w.shape, False, {"padding": 1}, "float32", w))
    after = transform.convert_layout(machine=machine.Machine(vector_bits=512))(mod)["main"]
    names = {n.op.name for n in walk(after) if isinstance(n, Call) and hasattr(n.op, "name")}
    assert ("relax.matmul" in names) == isinstance(width, tir.Var)


def test_images_of_nothing():
    names = [tir.Var(f"d{i}", "int64") for i in range(3)]
    w = RNG.standard_normal((2, 9, 3, 3)).astype(np.float32)
    mod = program((names[0], 9, *names[1:]), w.shape, False, {"padding": 1}, "float32", w)
    main = computing(mod)
    for n, rows, columns in ((0, 5, 4), (2, 0, 4), (1, 4, 0), (1, 1, 1)):
        x = RNG.standard_normal((n, 9, rows, columns)).astype(np.float32)
        found = main(x)
        assert found.shape == (n, 2, rows, columns)
        if found.size:
            np.testing.assert_allclose(found, computed("nn.conv2d", x, w, padding=1), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("more", [False, True])
def test_channels_stay_first_where_no_convolution_follows(more):
    w, v = (relax.const(np.ones(shape, np.float32)) for shape in ((6, 1, 3, 3), (40, 6, 3, 3)))

    def layers(x):
        y = relax.op.nn.relu(relax.op.nn.conv2d(x, w, padding=1, groups=6))
        return relax.op.nn.conv2d(y, v, padding=1) if more else y

    mod = transform.normalize()(model(layers, (1, 6, 4, 37)))
    after = transform.convert_layout(machine=machine.Machine(vector_bits=256))(mod)["main"]
    layouts = [n.attrs.get("data_layout") for n in walk(after) if isinstance(n, Call) and n.attrs.get("groups") == 6]
    assert layouts == ["NHWC" if more else "NCHW"]
