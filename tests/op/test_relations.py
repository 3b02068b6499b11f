"""What operators demand of their operands, with a name for every dimension: contradictions are refused at run time.

Each row has operands that fit, and changes to one of them with the error that it gets.
"""

import itertools
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import pytest

import weft
from tests.refusals import refuses
from tests.relax_models import model
from weft import arith, error, ir, relax, topi
from weft.op import make_call
from weft.op.infer import broadcast_dims
from weft.relax.interpreter import evaluate

checked = relax.transform.check_relations()

SHAPE, VALUE, INDEX = error.ShapeMismatch, error.InvalidArgument, error.IndexOutOfRange


def f(*shape: int, dtype: str = "float32") -> np.ndarray:
    """Numbers of a shape."""
    return (np.arange(int(np.prod(shape))) % 7 + 0.5).astype(dtype).reshape(shape)


def i(*values: Any, dtype: str = "int64") -> np.ndarray:
    """Integers."""
    return np.array(values, dtype)


def nodes(count: int, feature: int, to: int) -> np.ndarray:
    """Nodes of a decision tree: one that asks for a feature and leads on, and leaves."""
    leaves = [[2**31 - 2, 0, at, at % 2] for at in range(1, count - 1)]
    return i([0, feature, to, 0], *leaves, [0, 0, 0, 0], dtype="int32")


class Row(NamedTuple):
    """A call that fits, and what is put in the place of an operand: its number, the array, the error."""

    op: str
    args: tuple[np.ndarray, ...]
    wrong: tuple[tuple[int, np.ndarray, type[error.WeftError]], ...]
    attrs: dict[str, Any] = {}
    last: Any = None
    joined: bool = False
    known: tuple[int, ...] = ()


ROWS: tuple[Row, ...] = (
    *(
        Row(op, (f(2, 3), f(1, 3)), ((1, f(1, 2), SHAPE), (0, f(0, 2), SHAPE)))
        for op in ("add", "divide", "power", "maximum", "less", "mod")
    ),
    Row("bitwise_and", (i([1, 2]), i([3, 4])), ((1, i([1, 2, 3]), SHAPE),)),
    Row("where", (f(2, 1) > 1, f(2, 3), f(3)), ((0, f(3, 1) > 1, SHAPE), (2, f(2), SHAPE))),
    Row("ewise_fma", (f(2), f(2), f(2)), ((2, f(3), SHAPE), (1, f(3), SHAPE))),
    # --- shapes ---
    Row("broadcast_to", (f(2, 1),), ((0, f(3, 1), SHAPE), (0, f(2, 2), SHAPE)), last=(2, 3)),
    Row("reshape", (f(2, 3),), ((0, f(2, 2), SHAPE), (0, f(0, 3), SHAPE)), last=(3, 2)),
    Row("concat", (f(2, 3), f(1, 3)), ((1, f(1, 2), SHAPE),), {"axis": 0}, joined=True),
    Row("stack", (f(2, 3), f(2, 3)), ((1, f(1, 3), SHAPE),), {"axis": 0}, joined=True),
    Row("squeeze", (f(2, 1),), ((0, f(2, 2), SHAPE), (0, f(0, 0), SHAPE)), {"axis": [1]}),
    Row("squeeze", (f(2, 3),), ((0, f(2, 1), SHAPE), (0, f(1, 3), SHAPE))),
    Row("split", (f(4, 2),), ((0, f(3, 2), SHAPE),), {"indices_or_sections": [4]}),
    Row("nn.pad", (f(2, 3),), ((0, f(0, 3), SHAPE),), {"pad_width": (1, 1, 0, 0), "pad_mode": "edge"}),
    Row("nn.pad", (f(4, 3),), ((0, f(2, 3), SHAPE),), {"pad_width": (-2, -1, 0, 0)}),
    Row("space_to_depth", (f(1, 1, 2, 4),), ((0, f(1, 1, 3, 4), SHAPE),), {"block_size": 2}),
    Row("depth_to_space", (f(1, 4, 2, 2),), ((0, f(1, 3, 2, 2), SHAPE),), {"block_size": 2}),
    Row("nn.pixel_shuffle", (f(1, 4, 2, 2),), ((0, f(1, 2, 2, 2), SHAPE),), {"upscale_factor": 2}),
    # --- indices ---
    Row("take", (f(3, 2), i(0, -3)), ((1, i(3, 0), INDEX), (1, i(0, -4), INDEX), (0, f(0, 2), INDEX)), {"axis": 0}),
    Row("take", (f(3, 2), i(0, 9)), ((0, f(0, 2), SHAPE),), {"axis": 0, "mode": "clip"}),
    Row("take", (f(3, 2), i(0, 9)), ((0, f(0, 2), SHAPE),), {"axis": 0, "mode": "wrap"}),
    Row(
        "gather_elements",
        (f(3, 2), i([0, -1])),
        ((1, i([0, 3]), INDEX), (1, i([0, -4]), INDEX), (1, i([0, 0, 0]), SHAPE)),
        {"axis": 0},
    ),
    Row("gather_nd", (f(3, 2), i([0, -1])), ((1, i([3, 0]), INDEX), (1, i([0, -3]), INDEX)), known=(1,)),
    Row(
        "gather_nd",
        (f(2, 3), i([0], [-3])),
        ((1, i([0], [3]), INDEX), (0, f(3, 3), SHAPE)),
        {"batch_dims": 1},
        known=(1,),
    ),
    Row("index_tensor", (f(3, 2), i(0, -3)), ((1, i(3, 0), INDEX), (1, i(0, -4), INDEX)), {"data_and": 1}),
    Row("index_put", (f(3, 2), i(0, -3), f(2, 2)), ((1, i(3, 0), INDEX), (2, f(3, 2), SHAPE)), {"data_and": 1}),
    Row(
        "scatter_elements",
        (f(3, 2), i([0, -3]), f(1, 2)),
        ((1, i([0, 3]), INDEX), (2, f(1, 1), SHAPE), (0, f(3, 1), SHAPE), (1, i([0, -4]), INDEX)),
    ),
    Row("scatter_nd", (f(3, 2), i([0], [-3]), f(2, 2)), ((1, i([0], [3]), INDEX), (2, f(2, 1), SHAPE)), known=(1,)),
    Row(
        "reverse_sequence",
        (f(3, 2), i(3, 1)),
        ((1, i(4, 1), INDEX), (1, i(-1, 1), INDEX), (1, i(1), SHAPE)),
        {"seq_axis": 0, "batch_axis": 1},
    ),
    # --- reductions and order ---
    Row("argmax", (f(2, 3),), ((0, f(2, 0), SHAPE),), {"axis": 1}),
    Row("median", (f(2, 3),), ((0, f(2, 0), SHAPE),), {"axis": 1}),
    Row("topk", (f(2, 3),), ((0, f(2, 1), VALUE),), {"k": 2, "axis": 1}),
    Row(
        "multinomial_from_uniform",
        (f(2, 3), f(2, 1), i([0], [1])),
        ((2, i([0], [2]), INDEX), (1, f(1, 1), SHAPE), (0, f(2, 0), SHAPE)),
    ),
    # --- products ---
    Row("matmul", (f(2, 3), f(3, 4)), ((1, f(2, 4), SHAPE),)),
    Row("matmul", (f(2, 2, 3), f(2, 3, 4)), ((0, f(3, 2, 3), SHAPE), (1, f(2, 2, 4), SHAPE))),
    Row("linear", (f(2, 3), f(4, 3), f(4)), ((2, f(3), SHAPE), (1, f(4, 2), SHAPE), (2, f(1), SHAPE))),
    Row("einsum", (f(2, 3), f(3, 4)), ((1, f(2, 4), SHAPE),), {"subscripts": "ij,jk->ik"}, joined=True),
    # --- windows ---
    Row(
        "nn.conv1d",
        (f(1, 4, 5), f(2, 2, 3)),
        ((0, f(1, 3, 5), SHAPE), (1, f(3, 2, 3), SHAPE), (0, f(1, 4, 1), SHAPE)),
        {"groups": 2},
    ),
    Row("nn.conv2d", (f(1, 3, 4, 4), f(2, 3, 3, 3)), ((0, f(1, 2, 4, 4), SHAPE),), {"padding": 1}),
    Row(
        "nn.conv2d",
        (f(1, 2, 2, 8), f(1, 1, 1, 8, 32)),
        ((1, f(1, 1, 1, 8, 1), SHAPE), (1, f(0, 1, 1, 8, 32), SHAPE), (1, f(1, 1, 1, 7, 32), SHAPE)),
        {"data_layout": "NHWC", "kernel_layout": "OHWI32o", "channels": 32},
    ),
    Row(
        "nn.conv2d_winograd",
        (f(1, 4, 4, 3), f(4, 4, 1, 3, 8)),
        ((1, f(3, 4, 1, 3, 8), SHAPE), (1, f(4, 4, 1, 3, 7), SHAPE), (1, f(4, 4, 0, 3, 8), SHAPE)),
        {"padding": 1, "tile": 2, "channels": 8},
    ),
    Row("nn.conv2d_transpose", (f(1, 2, 3, 3), f(2, 3, 2, 2)), ((0, f(1, 1, 3, 3), SHAPE),)),
    Row("nn.max_pool2d", (f(1, 1, 3, 3),), ((0, f(1, 1, 0, 3), SHAPE),), {"pool_size": (2, 2)}),
    Row("nn.avg_pool1d", (f(1, 1, 3),), ((0, f(1, 1, 1), SHAPE),), {"pool_size": (3,)}),
    Row("nn.adaptive_max_pool1d", (f(1, 1, 3),), ((0, f(1, 1, 0), SHAPE),), {"output_size": 2}),
    # --- normalization and quantization ---
    Row("nn.layer_norm", (f(2, 3), f(3), f(3)), ((1, f(2), SHAPE), (2, f(1), SHAPE)), {"axes": [-1]}),
    Row("nn.rms_norm", (f(2, 3), f(3)), ((1, f(1), SHAPE),), {"axes": [-1]}),
    Row(
        "nn.group_norm",
        (f(2, 4, 3), f(4), f(4)),
        ((1, f(2), SHAPE), (0, f(2, 3, 3), SHAPE)),
        {"num_groups": 2, "axes": [2]},
    ),
    Row("nn.instance_norm", (f(2, 3, 4), f(3), f(3)), ((1, f(1), SHAPE), (2, f(2), SHAPE))),
    Row("nn.batch_norm", (f(2, 3, 2), *[f(3)] * 4), tuple((k, f(1), SHAPE) for k in (1, 2, 3, 4))),
    Row("nn.prelu", (f(2, 3), f(3)), ((1, f(2), SHAPE), (1, f(1), SHAPE)), {"axis": 1}),
    Row(
        "quantize",
        (f(2, 3), f(3), i(1, 2, 3, dtype="int8")),
        ((1, f(2), SHAPE), (2, i(1, dtype="int8"), SHAPE)),
        {"axis": 1},
    ),
    Row("dequantize", (i([1, 2], dtype="int8"), f(2), i(1, 2, dtype="int8")), ((1, f(1), SHAPE),), {"axis": 1}),
    # --- images and attention ---
    Row(
        "image.grid_sample",
        (f(1, 1, 3, 3), f(1, 2, 2, 2) / 9),
        ((1, f(2, 2, 2, 2), SHAPE), (1, f(1, 3, 2, 2), SHAPE), (0, f(1, 1, 0, 3), SHAPE)),
    ),
    Row("image.resize2d", (f(1, 1, 2, 2),), ((0, f(1, 1, 0, 2), SHAPE),), last=(3, 3)),
    Row("image.resize3d", (f(1, 1, 2, 2, 2),), ((0, f(1, 1, 0, 2, 2), SHAPE),), last=(3, 3, 3)),
    Row("image.affine_grid", (f(1, 2, 3),), ((0, f(1, 3, 3), SHAPE), (0, f(1, 2, 4), SHAPE)), last=(3, 3)),
    Row(
        "nn.attention",
        (f(1, 2, 2, 4), f(1, 3, 2, 4), f(1, 3, 2, 4)),
        ((1, f(2, 3, 2, 4), SHAPE), (2, f(1, 2, 2, 4), SHAPE), (1, f(1, 3, 2, 3), SHAPE), (0, f(1, 2, 3, 4), SHAPE)),
    ),
    Row(
        "vision.suppressed",
        (f(1, 2, 4), f(1, 1, 2), i([[0, 1]]), i(1), f(1), f(1)),
        ((1, f(1, 1, 3), SHAPE), (2, i([[0, 2]]), INDEX), (0, f(1, 2, 3), SHAPE), (3, i(1, 1), SHAPE)),
    ),
    Row(
        "vision.roi_align",
        (f(2, 1, 3, 3), np.array([[1, 0, 0, 2, 2]], "f")),
        (
            (1, np.array([[2, 0, 0, 2, 2]], "f"), INDEX),
            (1, np.array([[np.nan, 0, 0, 2, 2]], "f"), INDEX),
            (1, f(1, 4), SHAPE),
            (0, f(2, 1, 0, 3), SHAPE),
        ),
        {"pooled_size": (2, 2)},
    ),
    Row(
        "vision.roi_pool",
        (f(2, 1, 3, 3), np.array([[1, 0, 0, 2, 2]], "f")),
        ((1, np.array([[-1, 0, 0, 2, 2]], "f"), INDEX), (0, f(2, 1, 3, 0), SHAPE)),
        {"pooled_size": (2, 2)},
    ),
    # --- losses and gradients ---
    Row(
        "nn.nll_loss",
        (f(2, 3), i(0, 2), f(3)),
        ((1, i(0, 3), INDEX), (1, i(0, -1), INDEX), (1, i(0), SHAPE), (2, f(2), SHAPE)),
        {"ignore_index": 7},
    ),
    Row("nn.nll_loss", (f(2, 3), i(0, 7)), ((1, i(0, 8), INDEX),), {"ignore_index": 7}),
    Row(
        "grad.nll_loss_backward",
        (f(2), f(2, 3), i(0, 2)),
        ((0, f(1), SHAPE), (0, f(0), SHAPE), (1, f(3, 3), SHAPE), (2, i(0, 3), INDEX)),
        {"reduction": "none"},
    ),
    Row(
        "grad.take_backward",
        (f(4, 2), f(3, 2), i(0, 1, 2, -3)),
        ((0, f(3, 2), SHAPE), (2, i(0, 1, 2, 3), INDEX), (1, f(3, 1), SHAPE)),
        {"axis": 0},
    ),
    Row(
        "tree_scores",
        (f(2, 3), nodes(4, 5, 1), i(0), f(2, 1)),
        (
            (1, nodes(4, 6, 1), INDEX),
            (1, nodes(4, 5, 3), INDEX),
            (1, nodes(4, -1, 1), INDEX),
            (2, i(4), INDEX),
            (1, nodes(4, 5, 1)[:, :3], SHAPE),
            (3, f(1, 1), INDEX),
        ),
    ),
    Row("couple_pairs", (f(2, 3, 3),), ((0, f(2, 3, 2), SHAPE), (0, f(2, 2, 3), SHAPE))),
)


def program(row: Row) -> Any:
    """A function of tensors all of whose dimensions are variables."""
    params = []
    for k, x in enumerate(row.args):
        dims = x.shape if k in row.known else [ir.SizeVar(f"d{k}_{a}", "int64") for a in range(x.ndim)]
        params.append(relax.Var(f"x{k}", ir.tensor_type(dims, x.dtype.name)))

    def call(*args: ir.Expr) -> ir.Expr:
        attrs, given = dict(row.attrs), list(args)
        if row.joined:
            given = [ir.Tuple(args)]
        elif attrs.pop("data_and", 0):
            given[1] = ir.Tuple((given[1],))
        if row.last is not None:
            given.append(ir.shape_expr(row.last))
        return make_call(row.op)(*given, **attrs)

    return model(call, *params)


@pytest.mark.share(32)
@pytest.mark.parametrize("compiled", [False, True])
@pytest.mark.parametrize("row", ROWS, ids=[f"{n}-{r.op}" for n, r in enumerate(ROWS)])
def test_contradictions_are_refused(row: Row, compiled: bool) -> None:
    mod = program(row)
    main = (
        relax.VirtualMachine(weft.compile(mod, target="llvm"), weft.cpu())["main"]
        if compiled
        else partial(evaluate, checked(mod))
    )
    main(*map(weft.runtime.tensor, row.args))
    for k, x, kind in row.wrong:
        args = list(row.args)
        args[k] = x
        e = refuses(kind, "", main, *map(weft.runtime.tensor, args))
        assert type(e) is kind, e
        assert row.op in str(e), e


def test_dimensions_that_differ_by_a_number_are_refused_at_once() -> None:
    """Whatever the variable is, 6c channels are no groups of 6 (c - 1)."""
    c = ir.SizeVar("c")
    x = relax.Var("x", ir.tensor_type((1, c * 6, 28), "float32"))
    w = relax.Var("w", ir.tensor_type((12, c - 1, 3), "float32"))
    with pytest.raises(error.ShapeMismatch, match="nn.conv1d: channels of 'data'"):
        relax.BlockBuilder().normalize(make_call("nn.conv1d")(x, w, groups=6))


def test_what_is_checked_is_not_proved_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of one size that many operators demand one proof is tried, and none of indices of which nothing is known."""
    proved: list[ir.PrimExpr] = []
    prove = arith.Analyzer.can_prove_equal
    monkeypatch.setattr(arith.Analyzer, "can_prove_equal", lambda self, a, b: proved.append(a) or prove(self, a, b))
    indices = relax.Var("i", ir.tensor_type((ir.SizeVar("k", "int64"),), "int64"))

    def program(x: relax.Var, i: relax.Var) -> ir.Expr:
        m = x.ty.shape[0]
        return relax.Tuple([relax.op.take(x, i), *(relax.op.reshape(x, (m // 4, 4)) for _ in range(9))])

    mod = model(program, ("m",), indices)
    proved.clear()
    checked = relax.transform.check_relations()(mod)["main"]
    assert len(proved) == 1
    names = [b.var.name_hint for block in checked.body.blocks for b in block.bindings]
    assert sum(name.startswith("check") for name in names) == 3


def test_a_chain_of_sums_chooses_its_size_once():
    n, m, k = (ir.Var(v, "int64") for v in "nmk")
    x, y, z = ((d,) for d in (n, m, k))
    chain = broadcast_dims("add", x, y)
    for _ in range(20):
        chain = broadcast_dims("add", chain, y, z, broadcast_dims("add", z, x))
    assert len(list(ir.walk(chain[0]))) < 30
    for sizes in itertools.product((1, 4), repeat=3):
        value = ir.substitute(chain[0], dict(zip((n, m, k), map(ir.int64, sizes), strict=True)))
        assert ir.as_int(arith.Analyzer().simplify(value)) == max(sizes)


def _of_rank(ndim: int, dtype: str = "float32") -> relax.Var:
    return relax.Var("x", ir.TensorType(None, dtype, ndim))


CONV1D = (_of_rank(3), relax.Var("w", ir.TensorType((4, 3, 6, 3), "float32", 4)))
TURNED = (_of_rank(4), _of_rank(4))
OF_RANKS = {
    "concat behind the last axis": lambda: relax.op.concat([_of_rank(1)], axis=1),
    "broadcast_to fewer dimensions": lambda: relax.op.broadcast_to(_of_rank(2), (2,)),
    "broadcast_to a shape of fewer": lambda: relax.op.broadcast_to(_of_rank(2), relax.Var("s", ir.ShapeType(ndim=1))),
    "full of an unknown number of values": lambda: relax.op.full((2, 3), _of_rank(1)),
    "full_like of the same": lambda: relax.op.full_like(_of_rank(2), _of_rank(1)),
    "labels of another rank": lambda: relax.op.nn.cross_entropy_with_logits(_of_rank(2), _of_rank(4)),
    "weights of another rank": lambda: relax.op.nn.conv1d(*CONV1D),
    "packed weights of another rank": lambda: relax.op.nn.conv2d(*TURNED, kernel_layout="OHWI8o"),
    "padding as wide as a stride": lambda: relax.op.nn.conv2d_transpose(*TURNED, strides=2, output_padding=2),
}


@pytest.mark.parametrize("case", OF_RANKS)
def test_ranks_contradict_where_shapes_are_unknown(case):
    refuses(SHAPE, "", relax.BlockBuilder().normalize, OF_RANKS[case]())


def test_a_dimension_that_follows_from_an_unknown_shape_is_unknown():
    ty = relax.BlockBuilder().normalize(relax.op.reshape(_of_rank(2), (2, 3, -1))).ty
    assert ty.shape is None and ty.ndim == 3


def _main(param: relax.Var, call: ir.Expr, mode: str) -> Any:
    mod = model(lambda _: call, param)
    return relax.VirtualMachine(relax.build(mod, "llvm", exec_mode=mode), weft.cpu())["main"]


@pytest.mark.parametrize("mode", ["bytecode", "compiled"])
def test_the_step_of_a_range_is_not_0(mode):
    numbers = [ir.Var(name, "int64") for name in "abc"]
    main = _main(relax.Var("sizes", relax.ShapeType(numbers)), relax.op.arange(*numbers), mode)
    for given in ((0, 7, 3), (7, 0, -2), (3, 3, 1)):
        np.testing.assert_array_equal(main(weft.runtime.ShapeTuple(given)).numpy(), np.arange(*given))
    refuses(error.InvalidArgument, "arange: the step", main, weft.runtime.ShapeTuple((0, 7, 0)))


def test_a_type_holds_the_elements_of_a_range():
    n = ir.Var("n", "int64")
    main = _main(relax.Var("x", relax.TensorType((n,), "bool")), relax.op.arange(-1, n, 3, dtype="int8"), "bytecode")
    for size in (0, 1, 127, 128):
        np.testing.assert_array_equal(main(np.zeros(size, bool)).numpy(), np.arange(-1, size, 3))
    refuses(error.InvalidArgument, "arange: an element, of int8", main, np.zeros(129, bool))
    for given in ((0, 300, 100, "int8"), (128, -1, -1, "int8"), (-1, 3, 1, "uint8"), (-1, 3, 1, "uint64")):
        refuses(error.InvalidArgument, f"{given[-1]} does not hold", topi.arange, *given)
    assert [int(d) for d in (*topi.arange(300, 0, 1, "int8").shape, *topi.arange(2, -2, -1, "int8").shape)] == [0, 4]
