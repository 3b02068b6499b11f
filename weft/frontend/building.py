"""What importers of formats with known ranks build with: calls, and the small steps between them."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NoReturn

import numpy as np

from weft import arith, ir
from weft.error import ModelImportError, UnsupportedOperator
from weft.op import make_call
from weft.relax import BlockBuilder, Var, VarBinding
from weft.relax import op as relax_op

DAMAGE = (ArithmeticError, AttributeError, LookupError, TypeError, ValueError)
"""What reading a file that contradicts itself ends with, where nothing has checked it before."""

Step = Callable[[list[Any]], Any]
_LONGEST = 1 << 26
"""Numbers of a table of indices that an importer makes."""


def objects(values: Sequence[Any], shape: Sequence[int]) -> np.ndarray[Any, Any]:
    """An array of ints and expressions."""
    made = np.empty(len(values), object)
    made[:] = values
    return made.reshape(tuple(shape))


def counted(places: Mapping[Any, Sequence[Any]]) -> str:
    """Name what has no converter: of each kind the first place, and how many there are."""
    return ", ".join(f"{kind} ({where[0]}, {len(where)}x)" for kind, where in sorted(places.items()))


class Refusing:
    """An operation that is refused by its name."""

    name: str

    def error(self, what: str, **details: Any) -> NoReturn:
        """Refuse an operation that contradicts itself."""
        raise ModelImportError(f"{self.name}: {what}", **details)

    def unsupported(self, what: str, **details: Any) -> NoReturn:
        """Refuse a valid operation that Weft does not have."""
        raise UnsupportedOperator(f"{self.name}: {what}", **details)


class Emitter:
    """The steps that importers of all formats share; what has them says how expressions are bound."""

    __slots__ = ()
    bb: BlockBuilder

    def emit(self, expr: Any) -> Any:
        """Bind an expression."""
        raise NotImplementedError

    def op(self, name: str, *args: Any, **attrs: Any) -> Any:
        """Bind a call of an operator."""
        return self.emit(make_call(name)(*args, **attrs))

    def fields(self, var: Any) -> list[Any]:
        """Bind the fields of a tuple."""
        return [self.emit(ir.TupleGetItem(var, i)) for i in range(len(var.ty.fields))]

    @staticmethod
    def scalar(value: Any, dtype: str) -> ir.Constant:
        """A 0-dimensional constant."""
        return ir.constant(np.asarray(value).astype(ir.numpy_dtype(dtype)))

    def permute(self, x: Any, axes: Sequence[int]) -> Any:
        """Transpose, unless the order is the identity."""
        return x if list(axes) == list(range(len(axes))) else self.op("permute_dims", x, axes=tuple(axes))

    def arange(self, count: int | ir.PrimExpr, dtype: str = "int64") -> Any:
        """0, 1, … of so many numbers."""
        return self.op("arange", 0, ir.as_expr(count, "int64"), 1, dtype=dtype)

    def concat(self, parts: Sequence[Any], axis: int) -> Any:
        """Join along an axis."""
        return parts[0] if len(parts) == 1 else self.op("concat", ir.Tuple(tuple(parts)), axis=axis)


class Builder(Emitter):
    """Binds calls in a function under construction; dimensions are numbers, or expressions where they are open."""

    def __init__(self) -> None:
        self.bb = BlockBuilder()
        self.analyzer = arith.Analyzer()
        self.sizes: dict[Any, np.ndarray[Any, Any]] = {}
        """Tensors that are computed from open dimensions: ints and expressions."""

    def emit(self, expr: Any) -> Any:
        """Bind an expression."""
        return self.bb.emit(expr)

    @staticmethod
    def dims(x: Any) -> list[Any]:
        """The shape of an expression, numbers as ints."""
        return [int(d.value) if isinstance(d, ir.IntImm) else d for d in x.ty.shape]

    def astype(self, x: Any, dtype: str) -> Any:
        """Convert, unless `x` has the type."""
        if x.ty.dtype == dtype:
            return x
        if isinstance(x, ir.Constant) and math.prod(self.dims(x)) == 1:
            return ir.constant(x.data.numpy().astype(ir.numpy_dtype(dtype)))
        return self.op("astype", x, dtype=dtype)

    def reshape(self, x: Any, dims: Sequence[int]) -> Any:
        """Reshape, unless `x` has the shape."""
        if self.dims(x) == list(dims):
            return x
        if isinstance(x, ir.Constant):
            return ir.constant(x.data.numpy().reshape(tuple(dims)))
        return self.op("reshape", x, ir.shape_expr(list(dims)))

    def expand(self, x: Any, dims: Sequence[int | ir.PrimExpr]) -> Any:
        """Repeat along dimensions of 1, unless `x` has the shape."""
        return x if self.dims(x) == list(dims) else self.op("broadcast_to", x, ir.shape_expr(list(dims)))

    def slice(self, x: ir.Expr, begin: Sequence[int], end: Sequence[int], strides: Sequence[int] | None = None) -> Any:
        """Take a part by bounds inside of each dimension, unless it is the whole."""
        steps = list(strides) if strides is not None else [1] * len(begin)
        cut = [i for i, n in enumerate(self.dims(x)) if (begin[i], end[i], steps[i]) != (0, n, 1)]
        if not cut:
            return x
        bounds = {k: tuple(v[i] for i in cut) for k, v in (("begin", begin), ("end", end), ("strides", steps))}
        return self.op("strided_slice", x, axes=tuple(cut), **bounds, assume_inbound=True)

    def narrow(self, x: Any, axis: int, begin: int, count: int, step: int = 1) -> Any:
        """Take `count` elements, a step apart, along one axis."""
        dims = self.dims(x)
        starts, steps = [0] * len(dims), [1] * len(dims)
        end = begin + (count - 1) * step + 1 if step != 1 else begin + count
        starts[axis], dims[axis], steps[axis] = begin, end, step
        return self.slice(x, starts, dims, steps)

    def arange(self, count: Any, dtype: str = "int64") -> Any:
        """0, 1, … of so many numbers, of which a file may not claim any number."""
        if isinstance(count, ir.PrimExpr):
            return super().arange(count, dtype)
        if count > _LONGEST:
            raise ModelImportError(
                "a dimension is too long to be counted", expected=f"at most {_LONGEST}", found=str(count)
            )
        return ir.constant(np.arange(count, dtype=ir.numpy_dtype(dtype)))

    def pad(
        self, x: Any, value: Any, low: Sequence[int], high: Sequence[int], interior: Sequence[int] | None = None
    ) -> Any:
        """Put copies of a scalar before, behind and between the elements of each dimension; less than none cuts off."""
        for axis, gap in enumerate(interior or ()):
            dims = self.dims(x)
            if gap and (isinstance(dims[axis], ir.PrimExpr) or dims[axis] > 1):
                apart = self.reshape(x, [*dims[: axis + 1], 1, *dims[axis + 1 :]])
                fill = self.expand(value, [*dims[: axis + 1], gap, *dims[axis + 1 :]])
                x = self.reshape(
                    self.concat([apart, fill], axis + 1), [*dims[:axis], dims[axis] * (gap + 1), *dims[axis + 1 :]]
                )
                x = self.narrow(x, axis, 0, self.simplified(ir.max_(dims[axis] * (gap + 1) - gap, 0)))
        dims = self.dims(x)
        kept = [[self.simplified(ir.max_(n, 0)) for n in side] for side in (low, high)]
        begin = [self.simplified(k - n) for k, n in zip(kept[0], low, strict=True)]
        x = self.slice(x, begin, [self.simplified(d - k + n) for d, k, n in zip(dims, kept[1], high, strict=True)])
        low, high = kept
        if all(isinstance(n, int) and n == 0 for n in (*low, *high)):
            return x
        known = all(isinstance(n, int) for n in (*low, *high))
        if known and isinstance(value, ir.Constant) and str(value.data.dtype).startswith(("float", "int")):
            widths = tuple(n for pair in zip(low, high, strict=True) for n in pair)
            return self.op("nn.pad", x, pad_width=widths, pad_value=value.data.numpy().item())
        for axis, sides in enumerate(zip(low, high, strict=True)):
            dims = self.dims(x)
            fills = [
                [self.expand(value, [*dims[:axis], n, *dims[axis + 1 :]])] if isinstance(n, ir.PrimExpr) or n else []
                for n in sides
            ]
            x = self.concat([*fills[0], x, *fills[1]], axis)
        return x

    # --- sizes --------------------------------------------------------------------------------------------------------

    def simplified(self, size: Any) -> Any:
        """A size as an int, where it is one."""
        found = self.analyzer.simplify(size) if isinstance(size, ir.PrimExpr) else size
        return int(found.value) if isinstance(found, ir.IntImm) else found

    def sized(self, sizes: Any, dtype: str) -> Any:
        """Sizes, an array of objects or one of them, as a tensor; a constant where all are known."""
        sizes = sizes if isinstance(sizes, np.ndarray) else objects([sizes], ())
        flat = [self.simplified(n) for n in sizes.reshape(-1).tolist()]
        if all(isinstance(n, int) for n in flat):
            return ir.constant(np.array(flat, dtype).reshape(sizes.shape))
        x = self.emit(relax_op.shape_to_tensor(ir.shape_expr(flat)))
        x = self.reshape(self.astype(x, dtype), list(sizes.shape))
        self.sizes[x] = objects(flat, sizes.shape)
        return x

    def sizes_of(self, inputs: Sequence[Any], constants: bool = False) -> list[np.ndarray[Any, Any]] | None:
        """Tensors of integers as arrays of sizes; nothing where one holds other data, or all are constants."""
        if not (constants or any(x in self.sizes for x in inputs)) or not all(
            x in self.sizes or (isinstance(x, ir.Constant) and str(x.data.dtype).startswith(("int", "bool")))
            for x in inputs
        ):
            return None
        return [self.sizes[x] if x in self.sizes else x.data.numpy().astype(object) for x in inputs]

    def counted(self, x: ir.Expr, kind: type[ir.Var] = ir.Var) -> list[Any]:
        """The elements of a tensor of integers, which are read when the program runs; sizes are never negative."""
        names = tuple(kind(self.bb.fresh_name("n"), "int64") for _ in range(math.prod(self.dims(x))))
        shape = relax_op.tensor_to_shape(self.reshape(self.astype(x, "int64"), [len(names)]))
        self.bb.match_cast(shape, ir.ShapeType(names, len(names)))
        return list(names)

    def places(self, mask: ir.Expr) -> ir.Expr:
        """Where a tensor is true, as positions in all of it, in order: (count,) int64."""
        found, count = self.fields(self.op("places", self.reshape(mask, [math.prod(self.dims(mask))])))
        return self.slice(found, [0], self.counted(count, ir.SizeVar))

    def check_inside(self, begin: ir.PrimExpr | int, end: ir.PrimExpr | int, size: ir.PrimExpr | int) -> None:
        """Check a part of a dimension when the program runs, unless it is known to lie inside."""
        for low, high in ((0, begin), (begin, end), (end, size)):
            low, high = (ir.as_expr(n, "int64") for n in (low, high))
            if not self.analyzer.can_prove_greater_equal(high, low):
                self.bb.match_cast(ir.shape_expr((ir.Min(low, high),)), ir.ShapeType((low,), 1), "check")

    # --- parts at places that are data --------------------------------------------------------------------------------

    def start_inside(self, start: Any, most: Any) -> Any:
        """A start at which a part lies inside: 0 to `most`, as int64."""
        start = self.op("maximum", self.astype(self.reshape(start, []), "int64"), self.scalar(0, "int64"))
        return self.op("minimum", start, self.sized(most, "int64"))

    def updated(self, x: Any, update: Any, starts: Sequence[Any]) -> Any:
        """The update where it lies, else `x`; it is moved inside where it would leave."""
        whole, part, inside = self.dims(x), self.dims(update), None
        if 0 in part:
            return x
        for axis, start in enumerate(starts):
            if part[axis] == whole[axis]:
                continue
            places = self.op("subtract", self.arange(whole[axis]), self.start_inside(start, whole[axis] - part[axis]))
            here = self.op(
                "logical_and",
                self.op("greater_equal", places, self.scalar(0, "int64")),
                self.op("less", places, self.scalar(part[axis], "int64")),
            )
            here = self.reshape(here, [n if i == axis else 1 for i, n in enumerate(whole)])
            inside = here if inside is None else self.op("logical_and", inside, here)
            places = self.op("maximum", places, self.scalar(0, "int64"))
            update = self.op("take", update, places, axis=axis, mode="clip")
        return update if inside is None else self.op("where", inside, update, x)

    # --- control ------------------------------------------------------------------------------------------------------

    def choice(self, test: Any, branches: Sequence[Callable[[], Sequence[Any]]]) -> list[Any]:
        """The results of the first branch where a boolean scalar is true, else of the second."""
        return choice(self.bb, test, branches)

    def loop(self, start: Sequence[Any], test: Step, body: Callable[[list[Any]], Sequence[Any]]) -> list[Any]:
        """What `body` makes of a state while `test` holds."""
        return loop(self.bb, start, test, body)


def choice(bb: BlockBuilder, test: ir.Expr, branches: Sequence[Callable[[], Sequence[Any]]]) -> list[Any]:
    """The results of the first branch where a tensor of one boolean is true, else of the second."""
    test, sequences = bb.emit(relax_op.reshape(test, ir.shape_expr([]))), []
    for branch in branches:
        with bb.scope() as inner:
            sequences.append(bb.finish(inner, bb.atom(ir.Tuple(tuple(branch())))))
    found: Any = bb.emit(ir.If(test, *sequences))
    return [bb.emit(ir.TupleGetItem(found, i)) for i in range(len(found.ty.fields))]


def loop(
    bb: BlockBuilder,
    start: Sequence[Any],
    test: Step,
    body: Callable[[list[Any]], Sequence[Any]],
    types: Sequence[Any] | None = None,
) -> list[Any]:
    """What `body` makes of a state of some types while `test` holds: a function that calls itself as its last act."""
    types = tuple(types or (x.ty for x in start))
    outside = ir.TupleType(types)
    itself = Var(bb.fresh_name("loop"), ir.FuncType(types, outside, True))
    params: list[Any] = [Var(bb.fresh_name("state"), ty) for ty in types]
    with bb.scope() as whole:
        go_on = bb.emit(relax_op.reshape(test(params), ir.shape_expr([])))
        with bb.scope() as inner:
            taken = bb.finish(inner, bb.emit(ir.Call(itself, tuple(body(params)))))
        with bb.scope() as inner:
            left = bb.finish(inner, bb.atom(ir.Tuple(tuple(params))))
        sequence = bb.finish(whole, bb.emit(ir.If(go_on, taken, left)))
    bb.emit_normalized(VarBinding(itself, ir.Function(tuple(params), sequence, outside, ty=itself.ty)))
    found = bb.emit(ir.Call(itself, tuple(start)))
    return [bb.emit(ir.TupleGetItem(found, i)) for i in range(len(types))]
