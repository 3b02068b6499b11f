"""What a converter sees of one call: its arguments by name, its result's type, and how to build."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from weft import ir, relax, te
from weft.error import ModelImportError
from weft.frontend.building import Refusing
from weft.frontend.common import pairs
from weft.frontend.complex_arithmetic import Arithmetic, Complex
from weft.frontend.torch.symbols import Dim, Symbols, as_expr
from weft.relax import BlockBuilder

_DTYPES = pairs("""float:float32 double:float64 half:float16 long:int64 int:int32 complex64:float32 complex128:float64
    cfloat:float32""")


def dtype_name(dtype: object) -> str:
    """The name of a ``torch.dtype``; for complex numbers that of a part.

    Raises
    ------
    ModelImportError
        For one that Weft has not, such as quantized numbers.
    """
    name = str(dtype).removeprefix("torch.")
    if name.startswith(("q", "bits", "complex32")):
        raise ModelImportError("an element type is not supported", expected="floats, integers, bool", found=name)
    return _DTYPES.get(name, name)


def number(bb: BlockBuilder, value: ir.PrimExpr, dtype: str) -> Any:
    """A scalar expression of sizes as a 0-dimensional tensor."""
    return bb.call_te(lambda v: te.compute((), lambda: ir.cast(dtype, v), name="number"), value)


def stop_unless(bb: BlockBuilder, holds: object, what: str, place: str) -> None:
    """Let the program stop where a condition, a number or a tensor of one element, does not hold."""
    test: Any = ir.const(holds, "bool") if isinstance(holds, bool) else holds
    if not isinstance(test, ir.PrimExpr):
        test = relax.op.reshape(relax.op.astype(relax.op.astype(test, "bool"), "int64"), ir.shape_expr([1]))
        found, test = bb.emit(relax.core_ops.tensor_to_shape(bb.emit(test))), ir.Var("holds", "int64")
        bb.match_cast(found, ir.ShapeType((test,), 1))
    outer, bb.span = bb.span, ir.Span(origin=place, check=("InvalidArgument", " ".join(what.split())))
    found = ir.shape_expr([ir.cast("int64", test)])
    bb.match_cast(found, ir.ShapeType((ir.const(1, "int64"),), 1), "check")
    bb.span = outer


class Node(Refusing, Arithmetic):
    """One call of an operator.

    Attributes
    ----------
    name : str
        The overload: ``aten.add.Tensor``.
    args : dict
        Arguments by the schema's names, defaults included: expressions for tensors, ints and scalar expressions for
        sizes, sequences of these.
    metas : dict
        The same as PyTorch knows them: fake tensors, numbers.
    value : object
        The result as PyTorch knows it.
    """

    def __init__(
        self,
        bb: BlockBuilder,
        symbols: Symbols,
        name: str,
        args: dict[str, Any],
        metas: dict[str, Any],
        value: Any,
        used: frozenset[int],
    ) -> None:
        self.bb, self.symbols, self.name = bb, symbols, name
        self.args, self.metas, self.value = args, metas, value
        self.used = used
        """Of several results, those that something reads."""
        self.read: set[str] = set()
        """Arguments that the converter has asked for."""

    def __getitem__(self, name: str) -> Any:
        self.read.add(name)
        return self.args[name]

    def get(self, name: str, default: Any = None) -> Any:
        """An argument, or the default where the overload has none or it is None."""
        self.read.add(name)
        value = self.args.get(name)
        return default if value is None else value

    def with_args(self, args: dict[str, Any], name: str | None = None) -> Node:
        """The call with other arguments."""
        made = Node(self.bb, self.symbols, name or self.name, args, self.metas, self.value, self.used)
        made.read = self.read
        return made

    # --- types --------------------------------------------------------------------------------------------------------

    @property
    def first(self) -> Any:
        """The result's first tensor, as PyTorch knows it."""
        return self.value[0] if isinstance(self.value, (tuple, list)) else self.value

    @property
    def dtype(self) -> str:
        """The result's element type."""
        return dtype_name(self.first.dtype)

    @property
    def shape(self) -> list[Dim]:
        """The result's shape."""
        return [self.symbols.dim(d) for d in self.first.shape]

    def dims(self, x: Any) -> list[Dim]:
        """The shape of an expression, numbers as ints."""
        return [d.value if isinstance(d, ir.IntImm) else d for d in x.ty.shape]

    def product(self, dims: Sequence[Dim]) -> Dim:
        """How many elements a shape has."""
        return math.prod(dims)

    def axis(self, axis: int, ndim: int) -> int:
        """Count an axis from the front."""
        return axis % ndim if ndim else 0

    def axes(self, axes: Any, ndim: int) -> list[int]:
        """Count axes from the front; none are all."""
        axes = [axes] if isinstance(axes, int) else list(axes or range(ndim))
        return sorted(self.axis(a, ndim) for a in axes) if ndim else []

    # --- building -----------------------------------------------------------------------------------------------------

    def emit(self, expr: Any) -> Any:
        """Bind an expression."""
        return self.bb.emit(expr)

    def astype(self, x: Any, dtype: str) -> Any:
        """Convert, unless `x` has the type."""
        if x.ty.dtype == dtype:
            return x
        if not x.ty.shape and isinstance(x, ir.Constant):
            return self.scalar(x.data.numpy(), dtype)
        return self.op("astype", x, dtype=dtype)

    def tensor(self, x: Any, dtype: str | None = None) -> Any:
        """A tensor, a number or a size as a tensor of an element type."""
        dtype = dtype or self.dtype
        if isinstance(x, (bool, int, float)):
            return self.scalar(x, dtype)
        if isinstance(x, ir.PrimExpr):
            return self.emit(number(self.bb, x, dtype))
        if isinstance(x, complex):
            return Complex(self.scalar(x.real, dtype), self.scalar(x.imag, dtype))
        return self.astype(x, dtype)

    number = tensor

    def truth(self, x: Any) -> Any:
        """Which elements are not zero."""
        return x if x.ty.dtype == "bool" else self.op("not_equal", x, self.scalar(0, x.ty.dtype))

    def shape_expr(self, dims: Sequence[Dim]) -> ir.ShapeExpr:
        """A shape as an operand."""
        return ir.shape_expr([as_expr(d) for d in dims])

    def same(self, a: Sequence[Dim], b: Sequence[Dim]) -> bool:
        """Whether two shapes are proved to be equal."""
        return len(a) == len(b) and all(self.symbols.equal(x, y) for x, y in zip(a, b, strict=True))

    def reshape(self, x: Any, dims: Sequence[Dim]) -> Any:
        """Reshape, unless `x` has the shape."""
        return x if self.same(self.dims(x), dims) else self.op("reshape", x, self.shape_expr(dims))

    def expand(self, x: Any, dims: Sequence[Dim]) -> Any:
        """Repeat along dimensions of 1, unless `x` has the shape."""
        return x if self.same(self.dims(x), dims) else self.op("broadcast_to", x, self.shape_expr(dims))

    def full(self, dims: Sequence[Dim], value: Any, dtype: str) -> Any:
        """A tensor of one value."""
        return self.op("full", self.shape_expr(dims), self.tensor(value, dtype), dtype=dtype)

    def added(self, size: Dim, places: ir.Expr, values: ir.Expr) -> Any:
        """A vector of zeros with values added at places."""
        room = self.full([size], 0, str(values.ty.dtype))  # type: ignore[union-attr]
        return self.op("scatter_elements", room, places, values, axis=0, reduction="add")
