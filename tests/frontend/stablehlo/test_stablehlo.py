"""StableHLO texts against NumPy: each form of operation, regions, control flow, and what is refused."""

import math
import sys
from typing import Any

import numpy as np
import pytest

from tests.arrays import floats
from tests.refusals import refuses
from weft.error import MissingDependency, ModelImportError, ParseError, UnsupportedOperator, WeftError
from weft.frontend.stablehlo import from_stablehlo
from weft.frontend.tflite import from_tflite
from weft.relax.interpreter import evaluate

RNG = np.random.default_rng(3)
f32 = floats(RNG)


def program(params: str, body: str, results: str) -> str:
    """The text of a function of some parameters."""
    return f"module @m {{\n  func.func public @main({params}) -> ({results}) {{\n{body}\n  }}\n}}\n"


def run(text: str, *given: np.ndarray) -> Any:
    found = evaluate(from_stablehlo(text), *given)
    return found[0] if len(found) == 1 else found


def same(found: Any, expected: Any) -> None:
    assert (found.shape, found.dtype) == (np.shape(expected), np.asarray(expected).dtype)
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-6)


def parts(x: Any) -> np.ndarray:
    """A result as Weft gives it: both parts of complex numbers in a last dimension."""
    x = np.asarray(x)
    return x if x.dtype.kind != "c" else np.stack([x.real, x.imag], -1).astype(f"float{x.dtype.itemsize * 4}")


NAMES = {"float32": "f32", "complex64": "complex<f32>", "bool": "i1", "float64": "f64"}
NAMES |= {f"{u}int{bits}": f"{u}i{bits}" for u in ("", "u") for bits in (8, 16, 32, 64)}


def computed(op: str, rest: str, expected: Any, *given: Any, more: str = "") -> None:
    """One operation, with its attributes, on arrays of any type."""
    *types, made = (
        "tensor<" + "".join(f"{n}x" for n in np.shape(x)) + NAMES[str(x.dtype)] + ">" for x in (*given, expected)
    )
    names = [f"%x{i}" for i in range(len(given))]
    body = f"    %0 = {op} {', '.join(names)}{rest} : ({', '.join(types)}) -> {made}\n    return %0 : {made}"
    text = program(", ".join(map("{}: {}".format, names, types)), body, made) + more
    same(run(text, *map(parts, given)), parts(expected))


def test_forms_of_operations() -> None:
    body = """
    %c = stablehlo.constant dense<[[1.5, -2.0, 0x7F800000]]> : tensor<1x3xf32>
    %cst = stablehlo.constant dense<"0x0000803F00000040"> : tensor<2xf32>  // 1.0 and 2.0
    %0 = stablehlo.broadcast_in_dim %c, dims = [0, 1] : (tensor<1x3xf32>) -> tensor<2x3xf32>
        %1 = "stablehlo.broadcast_in_dim"(%cst) <{broadcast_dimensions = array<i64: 0>}> : (tensor<2xf32>) ->
        tensor<2x3xf32>
    %2 = stablehlo.minimum %0, %1 {note = "kept", mhlo.size = 3 : i64} : tensor<2x3xf32>
    %3 = stablehlo.compare  LT, %arg0, %2,  FLOAT : (tensor<2x3xf32>, tensor<2x3xf32>) -> tensor<2x3xi1>
    %4 = stablehlo.select %3, %arg0, %2 : tensor<2x3xi1>, tensor<2x3xf32>
    %5 = stablehlo.slice %4 [0:2, 0:3:2] : (tensor<2x3xf32>) -> tensor<2x2xf32>
    return %5 : tensor<2x2xf32> loc("f":1:2)"""
    x = f32(2, 3)
    found = run(
        program('%arg0: tensor<2x3xf32> {jax.arg_info = "x"}', body, 'tensor<2x2xf32> {jax.result_info = ""}'), x
    )
    same(found, np.minimum(x, np.minimum([[1.5, -2, np.inf]], [[1], [2]]).astype(np.float32))[:, ::2])


def test_known_whole_numbers_lie_where_the_axes_say() -> None:
    body = """
    %c = stablehlo.constant dense<[1, 2]> : tensor<2xi32>
    %0 = stablehlo.broadcast_in_dim %c, dims = [0] : (tensor<2xi32>) -> tensor<2x2xi32>
    %1 = stablehlo.concatenate %0, %0, dim = 1 : (tensor<2x2xi32>, tensor<2x2xi32>) -> tensor<2x4xi32>
    %2 = stablehlo.broadcast_in_dim %1, dims = [2, 0] : (tensor<2x4xi32>) -> tensor<4x1x2xi32>
    %3 = stablehlo.add %2, %arg0 : tensor<4x1x2xi32>
    return %3 : tensor<4x1x2xi32>"""
    x = RNG.integers(-9, 9, (4, 1, 2)).astype(np.int32)
    same(run(program("%arg0: tensor<4x1x2xi32>", body, "tensor<4x1x2xi32>"), x), np.int32([1, 2]) + x)


@pytest.mark.parametrize("shape", [(3, 5), (0, 5), (1, 1), (3, 8)])
def test_reduction_by_a_region_of_two_operands(shape: tuple[int, int]) -> None:
    rows, columns = shape
    t, r = f"tensor<{rows}x{columns}x", f"tensor<{rows}x"
    body = f"""
    %a = stablehlo.constant dense<0xFF800000> : tensor<f32>
    %b = stablehlo.constant dense<0> : tensor<i32>
        %0:2 = stablehlo.reduce(%x init: %a), (%i init: %b) across dimensions = [1] : ({t}f32>, {t}i32>, tensor<f32>,
        tensor<i32>) -> ({r}f32>, {r}i32>)
     reducer(%p: tensor<f32>, %q: tensor<f32>) (%s: tensor<i32>, %t: tensor<i32>)  {{
      %1 = stablehlo.compare GE, %p, %q, FLOAT : (tensor<f32>, tensor<f32>) -> tensor<i1>
      %2 = stablehlo.select %1, %p, %q : tensor<i1>, tensor<f32>
      %3 = stablehlo.select %1, %s, %t : tensor<i1>, tensor<i32>
      stablehlo.return %2, %3 : tensor<f32>, tensor<i32>
    }}
    return %0#0, %0#1 : {r}f32>, {r}i32>"""
    x, places = f32(*shape), np.tile(np.arange(columns, dtype=np.int32), (rows, 1))
    text = program(f"%x: {t}f32>, %i: {t}i32>", body, f"{r}f32>, {r}i32>")
    for form in (text, text.replace(t, "tensor<?x?x").replace(r, "tensor<?x")):
        found = run(form, x, places)
        same(found[0], x.max(1))
        same(found[1], x.argmax(1).astype(np.int32))


@pytest.mark.parametrize(
    ("start", "name", "expected"),
    [
        ("0.0", "add", lambda x: x.sum((0, 2))),
        ("2.0", "add", lambda x: x.sum((0, 2)) + 2),
        ("0xFF800000", "maximum", lambda x: x.max((0, 2))),
        ("0.5", "maximum", lambda x: np.maximum(x.max((0, 2)), 0.5)),
        ("1.0", "multiply", lambda x: x.prod((0, 2))),
    ],
)
def test_reductions_and_what_they_begin_with(start: str, name: str, expected: Any) -> None:
    body = f"""
    %c = stablehlo.constant dense<{start}> : tensor<f32>
        %0 = stablehlo.reduce(%x init: %c) applies stablehlo.{name} across dimensions = [0, 2] : (tensor<2x3x5xf32>,
        tensor<f32>) -> tensor<3xf32>
    return %0 : tensor<3xf32>"""
    x = f32(2, 3, 5)
    same(run(program("%x: tensor<2x3x5xf32>", body, "tensor<3xf32>"), x), expected(x).astype(np.float32))


def test_windows_that_are_running_sums() -> None:
    body = """
    %c = stablehlo.constant dense<0.0> : tensor<f32>
        %0 = "stablehlo.reduce_window"(%x, %c) <{padding = dense<[[0, 0], [6, 0]]> : tensor<2x2xi64>,
        window_dimensions = array<i64: 1, 7>}> ({
    ^bb0(%a: tensor<f32>, %b: tensor<f32>):
      %1 = stablehlo.add %a, %b : tensor<f32>
      stablehlo.return %1 : tensor<f32>
    }) : (tensor<2x7xf32>, tensor<f32>) -> tensor<2x7xf32>
    return %0 : tensor<2x7xf32>"""
    x = f32(2, 7)
    same(run(program("%x: tensor<2x7xf32>", body, "tensor<2x7xf32>"), x), x.cumsum(1))


def test_products_and_convolutions() -> None:
    x, y, k = f32(2, 3, 4), f32(2, 5, 4), f32(3, 4, 6)
    rest = ", batching_dims = [0] x [0], contracting_dims = [2] x [2], precision = [DEFAULT, DEFAULT]"
    computed("stablehlo.dot_general", rest, np.einsum("bij,bkj->bik", x, y), x, y)
    wide = np.pad(x, ((0, 0), (1, 1), (0, 0)))
    rest = """ dim_numbers = [b, 0, f]x[0, i, o]->[b, 0, f], window = {stride = [1], pad =
        [[1, 1]]} {batch_group_count = 1 : i64, feature_group_count = 1 : i64}"""
    computed("stablehlo.convolution", rest, sum(wide[:, i : i + 3] @ k[i] for i in range(3)), x, k)


@pytest.mark.parametrize("start", [-4, 0, 2, 9])
def test_slices_at_places_that_are_data(start: int) -> None:
    x, u, at = f32(5, 3), f32(2, 3), min(max(start, 0), 3)
    places = np.array(start, np.int32), np.array(0, np.int32)
    computed("stablehlo.dynamic_slice", ", sizes = [2, 3]", x[at : at + 2], x, *places)
    expected = x.copy()
    expected[at : at + 2] = u
    computed("stablehlo.dynamic_update_slice", "", expected, x, u, *places)


@pytest.mark.parametrize("rows", ["4", "?"])
def test_gather_clamps_and_scatter_drops_what_lies_outside(rows: str) -> None:
    body = """
        %0 = "stablehlo.gather"(%x, %i) <{dimension_numbers = #stablehlo.gather<offset_dims = [1],
        collapsed_slice_dims = [0], start_index_map = [0], index_vector_dim = 1>, slice_sizes = array<i64: 1, 3>}> :
        (tensor<4x3xf32>, tensor<3x1xi32>) -> tensor<3x3xf32>
        %1 = "stablehlo.scatter"(%x, %i, %u) <{scatter_dimension_numbers = #stablehlo.scatter<update_window_dims =
        [1], inserted_window_dims = [0], scatter_dims_to_operand_dims = [0], index_vector_dim = 1>}> ({
    ^bb0(%a: tensor<f32>, %b: tensor<f32>):
      %2 = stablehlo.add %a, %b : tensor<f32>
      stablehlo.return %2 : tensor<f32>
    }) : (tensor<4x3xf32>, tensor<3x1xi32>, tensor<3x3xf32>) -> tensor<4x3xf32>
    return %0, %1 : tensor<3x3xf32>, tensor<4x3xf32>"""
    x, u, i = f32(4, 3), f32(3, 3), np.array([[1], [9], [1]], np.int32)
    types = "%x: tensor<4x3xf32>, %i: tensor<3x1xi32>, %u: tensor<3x3xf32>"
    text = program(types, body, "tensor<3x3xf32>, tensor<4x3xf32>").replace("4x3", f"{rows}x3")
    found = run(text, x, i, u)
    same(found[0], x[[1, 3, 1]])
    x[1] += u[0] + u[2]
    same(found[1], x)


@pytest.mark.parametrize(
    ("direction", "sides"), [("LT", "%a, %b"), ("GT", "%a, %b"), ("LT", "%b, %a"), ("LT", "%3, %b")]
)
def test_sorting_by_the_first_of_two(direction: str, sides: str) -> None:
    body = f"""
    %zero = stablehlo.constant dense<0.0> : tensor<f32>
    %0:2 = "stablehlo.sort"(%x, %y) <{{dimension = 0 : i64, is_stable = true}}> ({{
    ^bb0(%a: tensor<f32>, %b: tensor<f32>, %c: tensor<i32>, %d: tensor<i32>):
      %2 = stablehlo.compare EQ, %a, %zero, FLOAT : (tensor<f32>, tensor<f32>) -> tensor<i1>
      %3 = stablehlo.select %2, %zero, %a : tensor<i1>, tensor<f32>
      %1 = stablehlo.compare {direction}, {sides}, TOTALORDER : (tensor<f32>, tensor<f32>) -> tensor<i1>
      stablehlo.return %1 : tensor<i1>
    }}) : (tensor<7x2xf32>, tensor<7x2xi32>) -> (tensor<7x2xf32>, tensor<7x2xi32>)
    return %0#0, %0#1 : tensor<7x2xf32>, tensor<7x2xi32>"""
    x, y = f32(7, 2), RNG.integers(0, 9, (7, 2)).astype(np.int32)
    order = np.argsort(x if direction == "LT" and sides.endswith("%b") else -x, 0)
    types = "tensor<7x2xf32>, tensor<7x2xi32>"
    found = run(program("%x: tensor<7x2xf32>, %y: tensor<7x2xi32>", body, types), x, y)
    same(found[0], np.take_along_axis(x, order, 0))
    same(found[1], np.take_along_axis(y, order, 0))


def test_loops_choices_and_calls() -> None:
    text = """
  func.func public @main(%x: tensor<3xf32>, %n: tensor<i32>) -> tensor<3xf32> {
    %z = stablehlo.constant dense<0> : tensor<i32>
    %one = stablehlo.constant dense<1> : tensor<i32>
    %0:2 = stablehlo.while(%i = %z, %v = %x) : tensor<i32>, tensor<3xf32>
    cond {
      %1 = stablehlo.compare LT, %i, %n, SIGNED : (tensor<i32>, tensor<i32>) -> tensor<i1>
      stablehlo.return %1 : tensor<i1>
    } do {
      %2 = stablehlo.add %i, %one : tensor<i32>
      %3 = func.call @twice(%v) : (tensor<3xf32>) -> tensor<3xf32>
      stablehlo.return %2, %3 : tensor<i32>, tensor<3xf32>
    }
    %4 = "stablehlo.case"(%n) ({
      stablehlo.return %x : tensor<3xf32>
    }, {
      stablehlo.return %0#1 : tensor<3xf32>
    }, {
      %5 = stablehlo.negate %0#1 : tensor<3xf32>
      stablehlo.return %5 : tensor<3xf32>
    }) : (tensor<i32>) -> tensor<3xf32>
    return %4 : tensor<3xf32>
  }
  func.func private @twice(%x: tensor<3xf32>) -> tensor<3xf32> {
    %0 = stablehlo.add %x, %x : tensor<3xf32>
    return %0 : tensor<3xf32>
  }"""
    x = f32(3)
    for n, expected in ((0, x), (1, 2 * x), (2, -4 * x), (5, -32 * x), (-1, -x)):
        same(run(text, x, np.array(n, np.int32)), expected)


@pytest.mark.parametrize(
    ("op", "expected"),
    [
        ("shift_left", [2, 0, -2, 0, -(1 << 31)]),
        ("shift_right_logical", [0, 0, 0x7FFFFFFF, 0, 1]),
        ("shift_right_arithmetic", [0, 0, -1, -1, -1]),
    ],
)
def test_shifts_by_more_bits_than_there_are(op: str, expected: list[int]) -> None:
    x, y = np.array([1, 1, -1, -1, -1], np.int32), np.array([1, 32, 1, -1, 31], np.int32)
    computed(f"stablehlo.{op}", "", np.array(expected, np.int32), x, y)


def test_operations_on_constants_that_could_be_sizes() -> None:
    """What is computed when a program is imported is what the program would compute, on integers and on truths."""
    x, y = np.array([5, -7, -1, 0, 6, 1 << 30], np.int32), np.array([3, 2, -1, 4, -4, 1 << 30], np.int32)
    truths = [np.array([0, 0, 1, 1], bool), np.array([0, 1, 0, 1], bool)]
    of_integers = {"and": x & y, "or": x | y, "xor": x ^ y, "add": x + y, "subtract": x - y, "multiply": x * y}
    of_integers |= {"maximum": np.maximum(x, y), "minimum": np.minimum(x, y), "remainder": np.fmod(x, y)}
    of_integers |= {"divide": np.trunc(x / y).astype(np.int32)}
    of_truths = {"and": np.logical_and, "or": np.logical_or, "xor": np.logical_xor, "multiply": np.logical_and}
    of_truths |= {"add": np.logical_or, "maximum": np.logical_or, "minimum": np.logical_and}
    rows = [(name, x, y, found) for name, found in of_integers.items()]
    for name, *given, expected in rows + [(name, *truths, f(*truths)) for name, f in of_truths.items()]:
        dense = [f"dense<{str(v.tolist()).lower()}>" for v in given]
        ty = f"tensor<{len(expected)}x{NAMES[str(expected.dtype)]}>"
        made = "\n".join(f"%{c} = stablehlo.constant {v} : {ty}" for c, v in zip("ab", dense, strict=True))
        same(run(program("", f"{made}\n%0 = stablehlo.{name} %a, %b : {ty}\nreturn %0 : {ty}", ty)), expected)


def test_the_total_order_of_floats() -> None:
    x = np.float32([-np.nan, -np.inf, -1, -0.0, 0, 1e-40, 1, np.inf, np.nan])
    a, b = (v.ravel().copy() for v in np.meshgrid(np.arange(9), np.arange(9)))
    for name, fn in (("LT", np.less), ("GE", np.greater_equal), ("EQ", np.equal)):
        computed(f"stablehlo.compare {name},", ", TOTALORDER", fn(a, b), x[a], x[b])


def test_bits_and_what_they_are_in_other_types() -> None:
    x, i = f32(3, 4), np.int32([0, 1, -1, 1 << 30, 12345])
    computed("stablehlo.bitcast_convert", "", x.view("int32"), x)
    for narrow, wide in (("uint8", "float32"), ("int8", "int32"), ("uint16", "float64"), ("float32", "float64")):
        whole = RNG.standard_normal((2, 0, 3) if narrow == "int8" else (2, 3)).astype(wide)
        parts_of = whole.view(narrow).reshape(*whole.shape, np.dtype(wide).itemsize // np.dtype(narrow).itemsize)
        computed("stablehlo.bitcast_convert", "", parts_of, whole)
        computed("stablehlo.bitcast_convert", "", whole, parts_of)
    for dtype in ("int64", "uint64", "int32", "uint32", "int16", "int8", "uint8"):
        info = np.iinfo(dtype)
        a = np.array([info.min, info.max, info.max, 7, info.max // 3, info.min], dtype)
        wide = a.astype(object) * a[::-1].astype(object)
        computed("chlo.mulhi", "", np.array([v >> info.bits for v in wide], dtype), a, a[::-1].copy())
    computed("stablehlo.popcnt", "", np.int32([bin(v & 0xFFFFFFFF).count("1") for v in i.tolist()]), i)
    computed("stablehlo.count_leading_zeros", "", np.int32([32, 31, 0, 1, 18]), i)
    computed("chlo.next_after", "", np.nextafter(x, x[::-1]), x, x[::-1].copy())


@pytest.mark.parametrize("groups", [1, 2])
def test_convolutions_of_narrow_integers_and_groups_of_batches(groups: int) -> None:
    """Sums are not rounded to the operands' type; each group of kernels meets a part of the batch."""
    x, k = np.full((2, 3, 2), 100, np.int8), np.full((2, 3, 1), -3, np.int8)
    x[1] //= 2
    numbers = f" dim_numbers = [b, f, 0]x[o, i, 0]->[b, f, 0] {{batch_group_count = {groups} : i64}}"
    expected = np.full((2, 2, 2), -900) // np.array([1, 2])[:, None, None]
    expected = expected if groups == 1 else expected[:, :1].swapaxes(0, 1)
    computed("stablehlo.convolution", numbers, expected.astype("i4"), x, k)


def test_sorting_by_two() -> None:
    t, u = "tensor<9xi32>", "tensor<i32>"
    body = f"""
    %0:2 = "stablehlo.sort"(%x, %y) <{{dimension = 0 : i64, is_stable = true}}> ({{
    ^bb0(%a: {u}, %b: {u}, %c: {u}, %d: {u}):
      %1 = stablehlo.compare GT, %c, %d, SIGNED : ({u}, {u}) -> tensor<i1>
      %2 = stablehlo.compare LT, %a, %b, SIGNED : ({u}, {u}) -> tensor<i1>
      %3 = stablehlo.compare EQ, %a, %b, SIGNED : ({u}, {u}) -> tensor<i1>
      %4 = stablehlo.and %3, %1 : tensor<i1>
      %5 = stablehlo.or %2, %4 : tensor<i1>
      stablehlo.return %5 : tensor<i1>
    }}) : ({t}, {t}) -> ({t}, {t})
    %6:2 = stablehlo.optimization_barrier %0#0, %0#1 : {t}, {t}
    return %6#0, %6#1 : {t}, {t}"""
    x, y = RNG.integers(0, 3, (2, 9)).astype(np.int32)
    order = np.lexsort((-y, x))
    found = run(program(f"%x: {t}, %y: {t}", body, f"{t}, {t}"), x, y)
    np.testing.assert_array_equal(found, [x[order], y[order]])


def test_regions_that_call_and_updates_that_subtract() -> None:
    x, i, u = f32(4), np.int32([[0], [3], [0]]), f32(3)
    region = """ ({
    ^bb0(%a: tensor<f32>, %b: tensor<f32>):
      %1 = OP %a, %b : (tensor<f32>, tensor<f32>) -> tensor<f32>
      stablehlo.return %1 : tensor<f32>
    })"""
    numbers = "inserted_window_dims = [0], scatter_dims_to_operand_dims = [0], index_vector_dim = 1"
    rest = f" <{{scatter_dimension_numbers = #stablehlo.scatter<{numbers}>}}>" + region
    expected = x - np.float32([u[0] + u[2], 0, 0, u[1]])
    computed('"stablehlo.scatter"', rest.replace("OP", "stablehlo.subtract"), expected, x, i, u)
    rest = " <{dimensions = array<i64: 0>}>" + region.replace("OP", "func.call @f")
    more = program(
        "%a: tensor<f32>, %b: tensor<f32>",
        "%0 = stablehlo.add %a, %b : tensor<f32>\n return %0 : tensor<f32>",
        "tensor<f32>",
    ).replace("public @main", "private @f")
    computed('"stablehlo.reduce"', rest, x.sum(), x, np.float32(0), more=more)


def test_numbers_far_from_zero() -> None:
    names = ["erfc", "erf_inv"]
    body = "\n".join(f"    %{i} = chlo.{n} %x : tensor<5xf32> -> tensor<5xf32>" for i, n in enumerate(names))
    text = program(
        "%x: tensor<5xf32>", f"{body}\n    return %0, %1 : tensor<5xf32>, tensor<5xf32>", "tensor<5xf32>, tensor<5xf32>"
    )
    x = np.array([-2.0, 0.5, 3.0, 5.0, 8.0], np.float32)
    np.testing.assert_allclose(run(text, x)[0], [math.erfc(v) for v in x], rtol=1e-6)
    x = np.array([-0.9, 0.1, 0.5, 0.999, 1.0], np.float32)
    found = run(text, x)[1]
    np.testing.assert_allclose([math.erf(v) for v in found], x, rtol=1e-5)
    assert found[4] == np.inf


def test_zeta_and_polygamma() -> None:
    t, pi = "tensor<7xf64>", math.pi
    body = "\n".join(f"    %{i} = chlo.{n} %x, %y : {t}, {t} -> {t}" for i, n in enumerate(("zeta", "polygamma")))
    text = program(f"%x: {t}, %y: {t}", f"{body}\n    return %0, %1 : {t}, {t}", f"{t}, {t}")
    x, y = np.array([2.0, 4, 2, 1, 0.5, 2, 1e40]), np.array([1.0, 1, 0.5, 1, 1, -3, 1])
    np.testing.assert_allclose(run(text, x, y)[0], [pi**2 / 6, pi**4 / 90, pi**2 / 2, np.inf, np.nan, np.inf, 1], 1e-14)
    x, y = np.array([1.0, 2, 3, 0, 1.5, -1, 1]), np.array([1.0, 1, 0.5, 1, 1, 1, 0.5])
    expected = [pi**2 / 6, -2.4041138063191886, pi**4, -0.5772156649015329, np.nan, np.nan, pi**2 / 2]
    np.testing.assert_allclose(run(text, x, y)[1], expected, 1e-13)


@pytest.mark.parametrize(("way", "count"), [("GT", 2), ("LT", 2), ("GT", 5)])
def test_nearly_the_largest(way: str, count: int) -> None:
    t, k = "tensor<5x3xf32>, tensor<5x3xi32>, tensor<f32>, tensor<i32>", f"tensor<{count}x3xf32>, tensor<{count}x3xi32>"
    order = f"""  func.func @order(%a: tensor<f32>, %b: tensor<f32>, %c: tensor<i32>, %d: tensor<i32>) -> tensor<i1> {{
    %0 = stablehlo.compare {way}, %a, %b : (tensor<f32>, tensor<f32>) -> tensor<i1>
    return %0 : tensor<i1>\n  }}\n}}"""
    body = f"""    %0:2 = stablehlo.custom_call @ApproxTopK(%a, %b, %c, %d) {{called_computations = [@order],
        mhlo.backend_config = {{reduction_dim = 0 : i64, top_k = 2 : i64}}}} : ({t}) -> ({k})
    return %0#0, %0#1 : {k}"""
    text = program(", ".join(f"%{n}: {ty}" for n, ty in zip("abcd", t.split(", "), strict=True)), body, k)
    x, beside = f32(5, 3), np.arange(15, dtype=np.int32).reshape(5, 3)
    values, names = run(text[: text.rindex("}")] + order, x, beside, np.float32(0), np.int32(0))
    expected = np.sort(x, 0)[:: -1 if way == "GT" else 1][:count]
    np.testing.assert_array_equal(values, expected)
    np.testing.assert_array_equal(x.ravel()[names], expected)


V = "tensor<2xf32>"


def vectors(*lines: str) -> str:
    """The text of a function of a vector."""
    return program(f"%x: {V}", "\n".join(lines), V)


@pytest.mark.parametrize(
    ("error", "text", "message"),
    [
        (ParseError, "func.func @main(%a: tensor<2xf32>) {\n  %0 = = \n}", "expected an operation"),
        (ParseError, "func.func @main(%a: tensor<2xf32>) {\n  return %a", "expected '}'"),
        (ParseError, "func.func @main() {\n  %0 = stablehlo.constant dense<[1, 2]> : tensor<3xi32>\n}", "3 elements"),
        (
            ParseError,
            "func.func @main() {\n %0 = stablehlo.constant dense_resource<__elided__> : tensor<3xi32>\n}",
            "in the text",
        ),
        (ModelImportError, "module {}", "no function"),
        (ModelImportError, vectors(f"return %y : {V}"), "'%y' is not defined"),
        (ModelImportError, vectors(f"%0 = call @f(%x) : ({V}) -> {V}", f"return %0 : {V}"), "'@f' is not in"),
        (ModelImportError, vectors(f"%0 = call @main(%x) : ({V}) -> {V}", f"return %0 : {V}"), "calls itself"),
        (
            ModelImportError,
            vectors(f"%0 = stablehlo.abs %x : ({V}) -> tensor<3xf32>", "return %0 : tensor<3xf32>"),
            "not what the program says",
        ),
        (ParseError, "func.func @main(%x: tensor<nxf32>) {\n  return\n}", "no StableHLO"),
        (
            ModelImportError,
            program("%x: tensor<?xf32>", "%0 = stablehlo.iota dim = 0 : tensor<?xf32>", "tensor<?xf32>"),
            "open dimensions",
        ),
        (
            ModelImportError,
            program(
                "%x: tensor<?xf32>, %n: tensor<1xi32>",
                "%0 = stablehlo.dynamic_reshape %x, %n : (tensor<?xf32>, tensor<1xi32>) -> tensor<?xf32>",
                "tensor<?xf32>",
            ),
            "a size is data",
        ),
        (UnsupportedOperator, "func.func @main(%x: tensor<complex<f16>>) {\n  return\n}", "is not supported"),
        (
            UnsupportedOperator,
            vectors(
                f"%0 = stablehlo.rng %x : {V}",
                f"%1 = stablehlo.custom_call @dot(%0) : ({V}) -> {V}",
                f"%2 = stablehlo.rng %1 : {V}",
                f"return %2 : {V}",
            ),
            r"custom_call @dot \(line 4, 1x\), stablehlo.rng \(line 3, 2x\)",
        ),
    ],
)
def test_what_is_no_program_or_not_known_is_refused(error: type[Exception], text: str, message: str) -> None:
    refuses(error, message, from_stablehlo, text)


def test_inputs_are_what_they_are_said_to_be() -> None:
    text = program("%x: tensor<2xf32>", "  return %x : tensor<2xf32>", "tensor<2xf32>")
    from_stablehlo(text, [((2,), "float32")])
    refuses(ModelImportError, "other inputs", from_stablehlo, text, [((3,), "float32")])


def test_packages_that_are_not_there(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "tflite", None)
    refuses(MissingDependency, r"weft\[tflite\]", from_tflite, b"")
    monkeypatch.setitem(sys.modules, "jaxlib.mlir.ir", None)
    refuses(MissingDependency, r"weft\[jax\]", from_stablehlo, b"ML\xefR")


def test_damaged_texts_are_refused_or_read() -> None:
    """Some characters of a program are others, missing or new: nothing but Weft's errors comes of it."""
    body = """
    %0 = stablehlo.dot_general %arg0, %arg1, contracting_dims = [1] x [0] : (tensor<2x3xf32>, tensor<3x2xf32>) -> tensor<2x2xf32>
    %1 = stablehlo.compare LT, %0, %0, FLOAT : (tensor<2x2xf32>, tensor<2x2xf32>) -> tensor<2x2xi1>
    %2 = stablehlo.select %1, %0, %0 : tensor<2x2xi1>, tensor<2x2xf32>
    return %2 : tensor<2x2xf32>"""  # noqa: E501 - as JAX prints it
    sound = program("%arg0: tensor<2x3xf32>, %arg1: tensor<3x2xf32>", body, "tensor<2x2xf32>")
    assert run(sound, f32(2, 3), f32(3, 2)).shape == (2, 2)
    rng, refused = np.random.default_rng(1), 0
    for _ in range(1500):
        text = list(sound)
        for at in rng.integers(0, len(text), int(rng.integers(1, 4))):
            text[at] = ("", text[at] * 2, "0", "3", "x", ">", "%", "i")[int(rng.integers(8))]
        try:
            from_stablehlo("".join(text))
        except WeftError:
            refused += 1
    assert refused > 500
