"""Operators in any layout, and elements moved by index maps, beside the same in plain layouts."""

import numpy as np
import pytest

import weft
from tests.refusals import refuses
from tests.relax_models import model
from weft import error, ir, relax
from weft.op import make_call
from weft.op.layout import layout_reference
from weft.script import relax as R  # noqa: N812


def run(make, *arrays):
    mod = model(make, *(relax.Var(f"x{n}", relax.TensorType(a.shape, str(a.dtype))) for n, a in enumerate(arrays)))
    results = []
    for m in (mod, relax.transform.LegalizeOps()(mod)):
        vm = relax.VirtualMachine(weft.compile(m, target="llvm"), weft.cpu())
        results.append(vm["main"](*arrays).numpy())
    np.testing.assert_allclose(results[0], results[1], rtol=1e-5, atol=1e-6)
    return results[0]


@pytest.mark.parametrize(
    ("data", "kernel", "out"),
    [
        ("NCHW4c", "OIHW", "NCHW"),
        ("NHWC4c", "OHWI2i4o", "NCHW4c"),
        ("CNWH", "HWOI", "WHNC"),
        ("NCHW", "O4oHWI", "NC2cHW"),
    ],
)
def test_convolutions(data, kernel, out):
    rng = np.random.default_rng(3)
    x, w = rng.standard_normal((2, 8, 5, 7), "float32"), rng.standard_normal((4, 8, 3, 2), "float32")
    y = run(lambda a, b: relax.op.nn.conv2d(a, b, padding=[1, 0], strides=[2, 1]), x, w)
    got = run(
        lambda a, b: relax.op.nn.conv2d(
            a, b, padding=[1, 0], strides=[2, 1], data_layout=data, kernel_layout=kernel, out_layout=out
        ),
        layout_reference(x, "NCHW", data),
        layout_reference(w, "OIHW", kernel),
    )
    np.testing.assert_allclose(got, layout_reference(y, "NCHW", out), rtol=1e-4, atol=1e-5)


def test_pools_and_transposed_convolutions():
    rng = np.random.default_rng(4)
    x, w = rng.standard_normal((1, 8, 6, 5), "float32"), rng.standard_normal((8, 4, 2, 3), "float32")
    y = run(lambda a: relax.op.nn.avg_pool2d(a, [2, 3], [2, 2]), x)
    got = run(
        lambda a: relax.op.nn.avg_pool2d(a, [2, 3], [2, 2], layout="NHWC4c", out_layout="NCHW"),
        layout_reference(x, "NCHW", "NHWC4c"),
    )
    np.testing.assert_allclose(got, y, rtol=1e-5)
    y = run(lambda a: relax.op.nn.adaptive_max_pool2d(a, [2, 2]), x)
    got = run(
        lambda a: relax.op.nn.adaptive_max_pool2d(a, [2, 2], layout="NCHW8c"), layout_reference(x, "NCHW", "NCHW8c")
    )
    np.testing.assert_allclose(got, layout_reference(y, "NCHW", "NCHW8c"))
    y = run(lambda a, b: relax.op.nn.conv2d_transpose(a, b, strides=[2, 1]), x, w)
    layouts = {"data_layout": "NCHW2c", "kernel_layout": "OIHW", "out_layout": "NHWC"}
    got = run(
        lambda a, b: relax.op.nn.conv2d_transpose(a, b, strides=[2, 1], **layouts),
        layout_reference(x, "NCHW", "NCHW2c"),
        np.ascontiguousarray(w.transpose(1, 0, 2, 3)),
    )
    np.testing.assert_allclose(got, y.transpose(0, 2, 3, 1), rtol=1e-4, atol=1e-5)


def test_wrong_layouts_and_blocks_are_refused():
    x, w = relax.Var("x", R.Tensor((1, 2, 5, 5, 4), "float32")), relax.Var("w", R.Tensor((4, 8, 3, 3), "float32"))
    bb = relax.BlockBuilder()
    for layout in ("NCHW4d", "NCHC4c", "NCW4c", "NCHWc"):
        refuses(error.InvalidArgument, "data_layout", relax.op.nn.conv2d, x, w, data_layout=layout)
    with pytest.raises(error.ShapeMismatch, match="block"):
        bb.normalize(relax.op.nn.conv2d(x, w, data_layout="NCHW8c", kernel_layout="OIHW"))


def test_elements_go_where_an_index_map_says():
    x = np.random.default_rng(5).standard_normal((3, 7), "float32")
    swap = run(lambda a: relax.op.layout_transform(a, index_map=lambda i, j: (j, i)), x)
    np.testing.assert_array_equal(swap, x.T)
    tiled = run(lambda a: relax.op.layout_transform(a, index_map=lambda i, j: (j // 4, i, j % 4), pad_value=2.5), x)
    want = np.pad(x, [(0, 0), (0, 1)], constant_values=2.5).reshape(3, 2, 4).transpose(1, 0, 2)
    np.testing.assert_array_equal(tiled, want)
    bb, ints = relax.BlockBuilder(), relax.Var("x", R.Tensor((1, 4, 4), "int8"))
    for call in (
        relax.op.layout_transform(ints, index_map=lambda i, j, k: (j, i, k), pad_value=2.5),
        relax.op.nn.pad(ints, [1] * 6, pad_value=float("nan")),
        relax.op.nn.conv1d(ints, ints, padding=1, pad_value=128),
    ):
        refuses(error.DTypeMismatch, "'pad_value' is no number of", bb.normalize, call)
    refuses(
        error.InvalidArgument, "another number of indices", bb.normalize, relax.op.layout_transform(ints, lambda i: i)
    )


@pytest.mark.parametrize("channels", [8, 6])
def test_programs_are_brought_into_blocked_layouts(channels):
    @weft.script.ir_module
    class Before:
        @R.function
        def main(x: R.Tensor((2, 8, 6, 7), "float32"), w: R.Tensor(("c", 8, 3, 3), "float32")):
            with R.dataflow():
                a = R.nn.relu(R.nn.conv2d(x, w, padding=[1, 1]))
                b = R.add(a, a)
                y = R.sum(R.nn.max_pool2d(b, [2, 2]), axis=[1])
                R.output(y)
            return y

    mod = relax.transform.BindSymbolicVars({"c": channels})(Before)
    out = relax.transform.ConvertLayout({"relax.nn.conv2d": ["NCHW4c", "OIHW4o", "NCHW4c"]})(mod)
    assert ("OIHW4o" in out.script()) == (channels % 4 == 0)
    assert isinstance(out, ir.IRModule)
    rng = np.random.default_rng(6)
    x, w = rng.standard_normal((2, 8, 6, 7), "float32"), rng.standard_normal((channels, 8, 3, 3), "float32")
    got, want = (
        relax.VirtualMachine(weft.compile(m, target="llvm"), weft.cpu())["main"](x, w).numpy() for m in (out, mod)
    )
    np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("dtype", ["int8", "uint8", "float16"])
def test_means_count_more_than_the_type_of_the_elements_does(dtype):
    for n in (127, 255, 65599):
        given = np.ones(2, dtype), np.zeros(n, "int64"), np.zeros(n, dtype)
        got = run(lambda *v: relax.op.scatter_elements(*v, axis=0, reduction="mean"), *given)
        np.testing.assert_array_equal(got, np.array([1 / (n + 1), 1]).astype(dtype))


def test_means_of_integers_round_towards_zero():
    for row in ([2**64 - 2], [2**62, 2**63 + 4, 1], [7, 8]):
        assert run(lambda x: relax.op.mean(x, axis=[0]), np.array(row, "uint64")) == sum(row) // len(row)
    assert run(lambda x: relax.op.mean(x, axis=[0]), np.array([-7, -8])) == -7


def test_temperatures_are_those_of_float32():
    """What rounds to 0 there takes the greatest, where it is not negative."""
    for heat, wanted in ((5e-324, 2), (1e300, 0), (-1e-320, -1)):
        given = [np.array([[1.0, 2.0, 3.0]]), *(np.array([[v]]) for v in (0.01, heat, 0, 1.0))]
        assert run(make_call("sample_token"), *given) == wanted
