"""Single operators drawn at random: operator, dtype, odd sizes and attributes by a seed, to find cliffs.

    python -m benchmarks.operators --random 7 --count 100 --threads 1

The same seed gives the same cases. A row is noted as ``slow`` beside its peers, and as ``far`` where no peer has it or
both take more than ten times what the bytes and multiply-adds need at the machine's ceilings.
"""

from collections.abc import Callable
from typing import Any

import numpy as np

from benchmarks.operator_cases import Case, Shape, case, ints, number, rand

_NARROW, _WHOLE = ("int8", "uint8", "int32", "int64"), ("int32", "int64")
_FLOATS = ("float32", "float32", "float32", "float16", "float64")


class _Draw:
    """Sizes, attributes and data; what it makes carries a name that says all of it."""

    def __init__(self, seed: int) -> None:
        self.rng = np.random.default_rng(seed)

    def of(self, values: Any) -> Any:
        return values[int(self.rng.integers(len(values)))]

    def size(self, low: int, high: int) -> int:
        """Between two sizes, each factor of two as likely; a third are round."""
        n = int(np.exp(self.rng.uniform(np.log(low), np.log(high + 1))))
        return max(n // 8 * 8, low) if self.rng.random() < 1 / 3 else n

    def shape(self, rank: int, elements: int = 1 << 18) -> Shape:
        """A shape of about so many elements, with small axes as likely as long ones."""
        logs = self.rng.dirichlet([1.0] * rank) * np.log(self.size(elements >> 6, elements))
        return tuple(max(1, round(float(np.exp(v)))) for v in logs)

    def data(self, shape: Shape, dtype: str, positive: bool = False) -> np.ndarray:
        if dtype == "bool":
            return self.rng.random(shape) > 0.5
        if dtype in _NARROW:
            return self.rng.integers(1 if positive or dtype == "uint8" else -100, 100, shape).astype(dtype)
        values = self.rng.random(shape) + 0.1 if positive else self.rng.standard_normal(shape)
        return values.astype(dtype)


def _case(op: str, arrays: tuple[Any, ...], constants: Any = (), **more: Any) -> Case:
    said = " ".join(f"{k}={v}" for k, v in more.items() if k not in ("free", "outputs", "opset"))
    first = [f"{a.dtype}{list(a.shape)}" for a in arrays]
    first += [f"{c.dtype}{list(c.shape)}" if c.size > 8 else str(c.tolist()) for c in constants if c is not None]
    kind = str(arrays[0].dtype)
    dtype = kind if kind in ("float16", "float64") else "float32"
    return case("random", f"{op} {' '.join(first)} {said}".strip(), op, arrays, constants, **more, dtype=dtype)


def _unary(d: _Draw) -> Case:
    op = d.of(
        "Exp Log Sigmoid Tanh Erf Sqrt Abs Neg Sign Round HardSwish Mish Elu Softplus Gelu Sin Not Clip Cast".split()
    )
    kind = "bool" if op == "Not" else d.of((*_FLOATS, *_WHOLE) if op in ("Abs", "Neg", "Sign", "Cast") else _FLOATS)
    attributes: dict[str, Any] = {"to": d.of((1, 2, 3, 6, 7, 9, 10, 11))} if op == "Cast" else {}
    limits = (np.array(-0.5, kind), np.array(0.5, kind)) if op == "Clip" else ()
    x = d.data(d.shape(d.of((1, 2, 4))), kind, op in ("Log", "Sqrt"))
    return _case(op, (x,), limits, **attributes, opset=20)


def _binary(d: _Draw) -> Case:
    op = d.of(("Add", "Mul", "Sub", "Div", "Pow", "Max", "Min", "Less", "Equal", "Where", "PRelu", "Mod"))
    kind = d.of(_WHOLE if op == "Mod" else _FLOATS if op in ("Pow", "PRelu") else (*_FLOATS, *_NARROW))
    shape = d.shape(d.of((2, 3, 4)))
    other = tuple(1 if d.rng.random() < 0.4 else n for n in shape)
    y = d.data(other[int(d.rng.integers(len(shape))) :] if op != "Where" else other, kind, op in ("Div", "Mod"))
    x = d.data(shape, kind, op == "Pow")
    return _case(op, (d.data(shape, "bool"), x, y) if op == "Where" else (x, y), opset=18)


def _reduction(d: _Draw) -> Case:
    op = d.of(
        (
            "ReduceSum ReduceMean ReduceMax ReduceMin ReduceL1 ReduceL2 ReduceLogSumExp ArgMax Softmax LogSoftmax"
            " CumSum TopK LayerNormalization"
        ).split()
    )
    kind = d.of(("float32", "float32", "float64", "int32", "float16") if op[0] in "RA" else _FLOATS)
    shape = d.shape(d.of((2, 3, 4)))
    axis = int(d.rng.integers(len(shape)))
    x = d.data(shape, kind)
    if op.startswith("Reduce"):
        axes = d.rng.permutation(len(shape))[: int(d.rng.integers(1, len(shape) + 1))]
        return _case(op, (x,), (ints(*(int(a) for a in axes)),), keepdims=int(d.of((0, 1))))
    if op == "CumSum":
        return _case(op, (x,), (np.array(axis),), reverse=int(d.of((0, 1))))
    if op == "TopK":
        k = min(shape[axis], d.size(1, 64))
        return _case(op, (x,), (ints(k),), axis=axis, largest=int(d.of((0, 1))), outputs=2)
    if op == "LayerNormalization":
        return _case(op, (d.data(shape, "float32"),), (rand(*shape[axis:]),), axis=axis)
    return _case(op, (x,), axis=axis)


def _move(d: _Draw) -> Case:
    op = d.of(
        (
            "Transpose Concat Split Slice Pad Tile Expand Gather GatherElements ScatterND DepthToSpace Resize"
            " Trilu OneHot Reverse"
        ).split()
    )
    kind, rank = d.of((*_FLOATS, "int64", "uint8")), d.of((2, 3, 4))
    shape = d.shape(4 if op in ("DepthToSpace", "Resize") else rank)
    x, axis, n = d.data(shape, kind), int(d.rng.integers(len(shape))), len(shape)
    steps = [int(d.of((1, 1, 2, -1))) for _ in shape]
    ends = [np.iinfo(np.int64).min + 1 if s < 0 else np.iinfo(np.int64).max for s in steps]
    places = d.rng.integers(0, shape[axis], d.size(8, 4000))
    made: dict[str, Callable[[], Case]] = {
        "Transpose": lambda: _case(op, (x,), perm=[int(p) for p in d.rng.permutation(n)]),
        "Concat": lambda: _case(op, (x, np.take(x, range(shape[axis] // 2 + 1), axis)), axis=axis, free=()),
        "Split": lambda: _case(
            op, (x,), axis=axis, num_outputs=min(shape[axis], 3), outputs=min(shape[axis], 3), free=()
        ),
        "Slice": lambda: _case(
            op, (x,), (ints(*(-1 if s < 0 else 0 for s in steps)), ints(*ends), ints(*range(n)), ints(*steps))
        ),
        "Pad": lambda: _case(
            op,
            (x,),
            (ints(*(min(int(d.rng.integers(4)), m - 1) for m in shape * 2)),),
            mode=d.of(("constant", "reflect", "edge", "wrap")),
            opset=19,
        ),
        "Tile": lambda: _case(op, (x,), (ints(*(int(d.of((1, 2, 3))) for _ in shape)),)),
        "Expand": lambda: _case(op, (d.data(tuple(d.of((1, m)) for m in shape), kind),), (ints(*shape),), free=()),
        "Gather": lambda: _case(op, (x, places), axis=axis, free=()),
        "GatherElements": lambda: _case(op, (x, d.rng.integers(0, shape[axis], shape)), axis=axis, free=()),
        "ScatterND": lambda: _case(
            op,
            (x, d.rng.permutation(shape[0])[: shape[0] // 2 + 1, None], d.data((shape[0] // 2 + 1, *shape[1:]), kind)),
            free=(),
        ),
        "DepthToSpace": lambda: _case(
            op, (d.data((shape[0], 4 * shape[1], *shape[2:]), kind),), blocksize=2, mode=d.of(("DCR", "CRD"))
        ),
        "Resize": lambda: _case(
            op,
            (d.data(shape, "float32"),),
            (None, np.float32([1, 1, *d.of(((2, 2), (1.7, 0.6), (0.5, 3)))])),
            mode=d.of(("nearest", "linear", "cubic")),
        ),
        "Trilu": lambda: _case(op, (x,), (np.array(int(d.rng.integers(-3, 3))),), upper=int(d.of((0, 1)))),
        "OneHot": lambda: _case(
            op,
            (d.rng.integers(0, 50, d.shape(2, 1 << 13)),),
            (np.array(50), np.float32([0, 1])),
            axis=int(d.of((0, 1, -1))),
        ),
        "Reverse": lambda: _case(
            "ReverseSequence", (x, d.rng.integers(1, shape[1] + 1, shape[0])), batch_axis=0, time_axis=1, free=()
        ),
    }
    return made[op]()


def _product(d: _Draw) -> Case:
    m, k, n = d.size(1, 500), d.size(1, 500), d.size(1, 500)
    batch = tuple(d.size(1, 8) for _ in range(d.of((0, 0, 1, 2))))
    kind = d.of(_FLOATS)
    x = d.data((*batch, m, k), kind)
    if d.rng.random() < 0.3:
        a, b = int(d.of((0, 1))), int(d.of((0, 1)))
        left, right = d.data((k, m) if a else (m, k), kind), d.data((n, k) if b else (k, n), kind)
        return _case("Gemm", (left,), (right, d.data((n,), kind)), transA=a, transB=b, alpha=0.5)
    if d.rng.random() < 0.3:
        left, right = d.data((m, k), d.of(("uint8", "int8"))), d.data((k, n), d.of(("uint8", "int8")))
        return _case("MatMulInteger", (left,), (right,))
    other = d.data(((*batch, k, n) if d.rng.random() < 0.5 else (k, n)), kind)
    return _case("MatMul", (x, other)) if d.rng.random() < 0.5 else _case("MatMul", (x,), (other,))


def _convolution(d: _Draw) -> Case:
    rank = d.of((1, 2, 2, 2, 3))
    sides = [d.size(*{1: (100, 9000), 2: (7, 120), 3: (4, 24)}[rank]) for _ in range(rank)]
    kernel = [min(d.of((1, 2, 3, 3, 4, 5, 7)), s) for s in sides]
    group, each = d.of((1, 1, 1, 0, 3)), d.size(1, 48)
    into = d.size(1, 96)
    dilation = d.of((1, 1, 1, 2)) if all(2 * k < s for k, s in zip(kernel, sides, strict=True)) else 1
    channels = into if group == 0 else each * group
    group = group or into
    out = channels if group == channels else into * group
    attributes: dict[str, Any] = {
        "kernel_shape": kernel,
        "strides": [d.of((1, 1, 2, 3))] * rank,
        "group": group,
        "pads": [int(d.rng.integers(k)) for k in kernel * 2],
        "dilations": [dilation] * rank,
    }
    kind = d.of(("float32",) * 5 + ("float16",))
    transposed = d.rng.random() < 0.25
    if transposed:
        attributes["pads"] = [min(p, k // 2) for p, k in zip(attributes["pads"], kernel * 2, strict=True)]
    w = rand(*((channels, out // group) if transposed else (out, channels // group)), *kernel).astype(kind)
    x = d.data((d.of((1, 1, 2)), channels, *sides), kind)
    return _case("ConvTranspose" if transposed else "Conv", (x,), (w,), **attributes, free=(0, *range(2, 2 + rank)))


def _pool(d: _Draw) -> Case:
    op, rank = d.of(("MaxPool", "AveragePool", "LpPool")), d.of((1, 2, 2, 3))
    shape = (1, d.size(1, 90), *(d.size(*{1: (64, 9000), 2: (8, 120), 3: (6, 24)}[rank]) for _ in range(rank)))
    kernel = [d.of((2, 3, 4, 5)) for _ in range(rank)]
    attributes: dict[str, Any] = {
        "kernel_shape": kernel,
        "strides": [d.of((1, 2, 3)) for _ in kernel],
        "pads": [int(d.rng.integers(k // 2 + 1)) for k in kernel * 2],
    }
    if op != "LpPool":
        attributes["ceil_mode"] = int(d.of((0, 1)))
    return _case(op, (d.data(shape, "float32"),), **attributes, free=(0, *range(2, 2 + rank)))


def _bytes(d: _Draw) -> Case:
    op = d.of(("QuantizeLinear", "DequantizeLinear", "DynamicQuantizeLinear"))
    shape = d.shape(d.of((2, 3, 4)))
    if op == "DynamicQuantizeLinear":
        return _case(op, (d.data(shape, "float32"),), outputs=3)
    kind, axis = d.of(("uint8", "int8")), int(d.rng.integers(len(shape)))
    scale = abs(rand(shape[axis])) + np.float32(0.01) if d.rng.random() < 0.5 else number(0.02)
    zero = d.rng.integers(0, 9, scale.shape).astype(kind)
    x = d.data(shape, "float32" if op == "QuantizeLinear" else kind)
    return _case(op, (x,), (scale, zero), axis=axis)


KINDS = (_unary, _binary, _reduction, _reduction, _move, _move, _product, _convolution, _convolution, _pool, _bytes)


def drawn(seed: int, count: int) -> list[Case]:
    """Draw so many cases; each has a seed of its own, so that one may be drawn again alone."""
    return [KINDS[i % len(KINDS)](_Draw(seed * 10_000 + i)) for i in range(count)]
