"""StableHLO programs of open dimensions against NumPy: sizes, padding, slices and windows that follow from them."""

import numpy as np
import pytest

from tests.frontend.stablehlo.test_stablehlo import f32, program, run, same
from tests.refusals import refuses
from weft.error import WeftError


@pytest.mark.parametrize("rows", [3, 1, 0])
def test_open_dimensions(rows: int) -> None:
    """The sum of each row, taken off it; pairs of rows; and the number of rows as a number."""
    body = """
    %c = stablehlo.constant dense<2> : tensor<i32>
    %f = stablehlo.constant dense<0.0> : tensor<f32>
    %four = stablehlo.constant dense<4> : tensor<1xi32>
    %n = stablehlo.get_dimension_size %x, dim = 0 : (tensor<?x4xf32>) -> tensor<i32>
    %s = stablehlo.reduce(%x init: %f) applies stablehlo.add across dimensions = [1] :
        (tensor<?x4xf32>, tensor<f32>) -> tensor<?xf32>
    %l = stablehlo.reshape %n : (tensor<i32>) -> tensor<1xi32>
    %d = stablehlo.concatenate %l, %four, dim = 0 : (tensor<1xi32>, tensor<1xi32>) -> tensor<2xi32>
    %b = stablehlo.dynamic_broadcast_in_dim %s, %d, dims = [0] : (tensor<?xf32>, tensor<2xi32>) -> tensor<?x4xf32>
    %0 = stablehlo.subtract %x, %b : tensor<?x4xf32>
    %m = stablehlo.multiply %n, %c : tensor<i32>
    %h = stablehlo.divide %four, %four : tensor<1xi32>
    %k = stablehlo.reshape %m : (tensor<i32>) -> tensor<1xi32>
    %e = stablehlo.concatenate %k, %h, %h, dim = 0 : (tensor<1xi32>, tensor<1xi32>, tensor<1xi32>) -> tensor<3xi32>
    %i = stablehlo.dynamic_iota %e, dim = 0 : (tensor<3xi32>) -> tensor<?x1x1xi32>
    return %0, %i, %n : tensor<?x4xf32>, tensor<?x1x1xi32>, tensor<i32>"""
    x = f32(rows, 4)
    less, line, count = run(program("%x: tensor<?x4xf32>", body, "tensor<?x4xf32>, tensor<?x1x1xi32>, tensor<i32>"), x)
    np.testing.assert_allclose(less, x - x.sum(1, keepdims=True), rtol=1e-5, atol=1e-5)
    same(line, np.arange(2 * rows, dtype=np.int32)[:, None, None])
    same(count, np.int32(rows))


SIZES = """
    %n = stablehlo.get_dimension_size %x, dim = 0 : (tensor<?x4xf32>) -> tensor<i32>
    %eight = stablehlo.constant dense<8> : tensor<i32>
    %rest = stablehlo.subtract %eight, %n : tensor<i32>
    %rows = stablehlo.reshape %n : (tensor<i32>) -> tensor<1xi32>
    %more = stablehlo.reshape %rest : (tensor<i32>) -> tensor<1xi32>
    %last = stablehlo.constant dense<-1> : tensor<1xi32>
    %high = stablehlo.concatenate %more, %last, dim = 0 : (tensor<1xi32>, tensor<1xi32>) -> tensor<2xi32>
    %end = stablehlo.concatenate %rows, %more, dim = 0 : (tensor<1xi32>, tensor<1xi32>) -> tensor<2xi32>
    %at = stablehlo.constant dense<[1, 0]> : tensor<2xi32>"""


@pytest.mark.parametrize("rows", [0, 1, 3, 10])
@pytest.mark.parametrize("value", ["%v", "%c"])
def test_widths_of_padding_that_follow_from_open_dimensions(rows: int, value: str) -> None:
    body = (
        SIZES
        + f"""
    %c = stablehlo.constant dense<0.5> : tensor<f32>
    %0 = stablehlo.dynamic_pad %x, {value}, %at, %high, %at : (tensor<?x4xf32>, tensor<f32>, tensor<2xi32>,
        tensor<2xi32>, tensor<2xi32>) -> tensor<?x3xf32>
    return %0 : tensor<?x3xf32>"""
    )
    x = f32(rows, 4)
    apart = np.full((max(2 * rows - 1, 0), 4), 0.5, np.float32)
    apart[::2] = x
    whole = np.concatenate([np.full((1, 4), 0.5, np.float32), apart, np.full((8, 4), 0.5, np.float32)])
    text = program("%x: tensor<?x4xf32>, %v: tensor<f32>", body, "tensor<?x3xf32>")
    same(run(text, x, np.float32(0.5)), whole[: 1 + len(apart) + 8 - rows, :3])


@pytest.mark.parametrize("rows", [0, 1, 3, 5, 9])
def test_bounds_of_slices_that_follow_from_open_dimensions(rows: int) -> None:
    """Bounds that lie outside, which the operation leaves undefined, read nothing outside."""
    body = (
        SIZES
        + """
    %steps = stablehlo.constant dense<[1, 2]> : tensor<2xi32>
    %0 = stablehlo.real_dynamic_slice %x, %at, %end, %steps : (tensor<?x4xf32>, tensor<2xi32>, tensor<2xi32>,
        tensor<2xi32>) -> tensor<?x?xf32>
    return %0 : tensor<?x?xf32>"""
    )
    x = f32(rows, 4)
    text = program("%x: tensor<?x4xf32>", body, "tensor<?x?xf32>")
    same(run(text, x), x[1:, : max(8 - rows, 0) : 2])
    text = text.replace("?x?x", "?x2x")  # what the program says of a size is checked when it runs
    if rows <= 5:
        same(run(text, x), x[1:, :4:2])
    else:
        refuses(WeftError, "real_dynamic_slice", run, text, x)


@pytest.mark.parametrize("start", [-1, 0, 2, 9])
def test_parts_of_known_length_from_places_that_are_data(start: int) -> None:
    """A loop's counter says where; as elsewhere, a part lies inside."""
    body = """
    %length = stablehlo.constant dense<[2, 4]> : tensor<2xi32>
    %ones = stablehlo.constant dense<1> : tensor<2xi32>
    %end = stablehlo.add %length, %p : tensor<2xi32>
    %0 = stablehlo.real_dynamic_slice %x, %p, %end, %ones : (tensor<?x4xf32>, tensor<2xi32>, tensor<2xi32>,
        tensor<2xi32>) -> tensor<2x4xf32>
    return %0 : tensor<2x4xf32>"""
    x, at = f32(5, 4), min(max(start, 0), 3)
    text = program("%x: tensor<?x4xf32>, %p: tensor<2xi32>", body, "tensor<2x4xf32>")
    same(run(text, x, np.array([start, 0], np.int32)), x[at : at + 2])


def test_convolution_with_padding_that_is_an_operand() -> None:
    body = """
    %p = stablehlo.constant dense<[[1, 0], [0, -1]]> : tensor<2x2xi64>
    %0 = "stablehlo.dynamic_conv"(%x, %k, %p) <{window_strides = array<i64: 1, 1>,
        dimension_numbers = #stablehlo.conv<[b, 0, 1, f]x[0, 1, i, o]->[b, 0, 1, f]>, feature_group_count = 1 : i64,
        batch_group_count = 1 : i64}> : (tensor<?x3x4x1xf32>, tensor<2x2x1x1xf32>, tensor<2x2xi64>) ->
        tensor<?x?x?x1xf32>
    return %0 : tensor<?x?x?x1xf32>"""
    x = f32(2, 3, 4, 1)
    padded = np.pad(x, [(0, 0), (1, 0), (0, 0), (0, 0)])[:, :, :3]
    expected = sum(padded[:, i : i + 3, j : j + 2] for i in (0, 1) for j in (0, 1))
    text = program("%x: tensor<?x3x4x1xf32>, %k: tensor<2x2x1x1xf32>", body, "tensor<?x?x?x1xf32>")
    same(run(text, x, np.ones((2, 2, 1, 1), np.float32)), expected)


@pytest.mark.parametrize("rows", [0, 1, 5])
@pytest.mark.parametrize("side", [0, 1])
def test_windows_as_long_as_an_open_dimension(rows: int, side: int) -> None:
    """Running sums from either end, as they are exported; the window's size and padding are operands."""
    first, second = ("%less", "%zero") if side == 0 else ("%zero", "%less")
    body = f"""
    %n = stablehlo.get_dimension_size %x, dim = 0 : (tensor<?x4xf32>) -> tensor<i32>
    %c = stablehlo.constant dense<1> : tensor<i32>
    %sub = stablehlo.subtract %n, %c : tensor<i32>
    %zero = stablehlo.constant dense<0> : tensor<1xi32>
    %one = stablehlo.constant dense<1> : tensor<1xi32>
    %ones = stablehlo.constant dense<1> : tensor<2xi32>
    %start = stablehlo.constant dense<0.0> : tensor<f32>
    %less = stablehlo.reshape %sub : (tensor<i32>) -> tensor<1xi32>
    %size = stablehlo.reshape %n : (tensor<i32>) -> tensor<1xi32>
    %w = stablehlo.concatenate %size, %one, dim = 0 : (tensor<1xi32>, tensor<1xi32>) -> tensor<2xi32>
    %p = stablehlo.concatenate {first}, {second}, %zero, %zero, dim = 0 : (tensor<1xi32>, tensor<1xi32>, tensor<1xi32>,
        tensor<1xi32>) -> tensor<4xi32>
    %q = stablehlo.reshape %p : (tensor<4xi32>) -> tensor<2x2xi32>
    %0 = stablehlo.custom_call @stablehlo.dynamic_reduce_window(%x, %start, %w, %ones, %ones, %ones, %q) {{
        called_computations = [@sum]}} : (tensor<?x4xf32>, tensor<f32>, tensor<2xi32>, tensor<2xi32>, tensor<2xi32>,
        tensor<2xi32>, tensor<2x2xi32>) -> tensor<?x4xf32>
    return %0 : tensor<?x4xf32>
    }}
    func.func private @sum(%a: tensor<f32>, %b: tensor<f32>) -> tensor<f32> {{
    %r = stablehlo.add %a, %b : tensor<f32>
    return %r : tensor<f32>"""
    x = f32(rows, 4)
    expected = np.cumsum(x, 0) if side == 0 else np.cumsum(x[::-1], 0)[::-1]
    same(run(program("%x: tensor<?x4xf32>", body, "tensor<?x4xf32>"), x), expected)


def test_open_dimensions_that_have_to_be_equal() -> None:
    body = """
    %n = stablehlo.get_dimension_size %x, dim = 0 : (tensor<?xf32>) -> tensor<i32>
    %m = stablehlo.get_dimension_size %y, dim = 0 : (tensor<?xf32>) -> tensor<i32>
    %e = stablehlo.compare EQ, %n, %m, SIGNED : (tensor<i32>, tensor<i32>) -> tensor<i1>
    stablehlo.custom_call @shape_assertion(%e) {has_side_effect = true} : (tensor<i1>) -> ()
    %0 = stablehlo.add %x, %y : tensor<?xf32>
    return %0 : tensor<?xf32>"""
    text = program("%x: tensor<?xf32>, %y: tensor<?xf32>", body, "tensor<?xf32>")
    x = f32(3)
    same(run(text, x, x), x + x)
    refuses(WeftError, "", run, text, x, f32(1))
