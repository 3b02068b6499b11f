"""StableHLO programs in, Relax out."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

from weft import ir, registry, relax
from weft.error import ModelImportError, ParseError, UnsupportedOperator, WeftError, own_errors, reading
from weft.frontend.building import DAMAGE, Builder, Refusing, counted, objects
from weft.frontend.complex_arithmetic import Arithmetic, Complex, joined, split
from weft.frontend.dataflow import to_dataflow
from weft.frontend.stablehlo.bytecode import text_of
from weft.frontend.stablehlo.text import Func, Operation, Region, Type, parse

_SIZES = 16
"""So many constants are computed with as sizes."""
_CALLS = ("call", "func.call", "stablehlo.composite")
_RETURNS = ("return", "func.return", "stablehlo.return")

CONVERTERS: registry.Registry[Callable[..., Any]] = registry.Registry(once=True)
ON_SIZES: dict[str, Callable[..., Any]] = {}
"""What operations do to arrays of sizes: ``f(node, *arrays)``."""


@own_errors("importing the program")
def from_stablehlo(
    stablehlo_module: object, input_info: Sequence[tuple[Sequence[int], str]] | None = None
) -> ir.IRModule:
    """Import a StableHLO program, as ``jax.jit(f).lower(*args).as_text()`` and ``jax.export`` write it.

    Parameters
    ----------
    stablehlo_module : str, bytes or object
        The program's text; what prints as it, such as ``jax.stages.Lowered`` or a module of MLIR's Python bindings; or
        MLIR's bytecode, a portable artifact's or a module's own, which needs ``jaxlib``.
    input_info : sequence of (shape, dtype), optional
        What the inputs of ``main`` have to be.

    Returns
    -------
    IRModule
        One function ``main`` that returns the result, or a tuple of several. Other functions are inlined. Each open
        dimension of an input is a variable; those that the program says are equal have to be. Complex inputs and
        results have both parts in a last dimension of 2.

    Raises
    ------
    ParseError
        When the text is no StableHLO, with line and column.
    UnsupportedOperator
        Listing all operations that the importer lacks, with a line for each.
    ModelImportError
        When the program contradicts itself or `input_info`.
    """
    text = _text_of(stablehlo_module)
    try:
        funcs = parse(text)
    except DAMAGE as e:
        raise ParseError("the text is no StableHLO", found=f"{type(e).__name__}: {e}") from e
    main = funcs.get("main") or next(iter(funcs.values()), None)
    if main is None:
        raise ModelImportError("the program has no function", expected="func.func @main")
    _refuse_unsupported(funcs)
    _check_inputs(main, input_info)
    return _Graph(funcs).module(main)


def _text_of(program: Any) -> str:
    if isinstance(program, (bytes, bytearray)):
        data = bytes(program)
        with reading("the bytes are no StableHLO", ParseError):
            return text_of(data) if data.startswith(b"ML\xefR") else data.decode()
    way = next((name for name in ("as_text", "mlir_module") if hasattr(program, name)), "__str__")
    return str(getattr(program, way)())


def _refuse_unsupported(funcs: dict[str, Func]) -> None:
    """Refuse a program with operations that have no converter, naming all."""
    missing: dict[str, list[str]] = {}
    for func in funcs.values():
        for op in _all_of(func.region):
            name = _kind(op)
            if name not in CONVERTERS and name not in (*_CALLS, *_RETURNS):
                missing.setdefault(name, []).append(f"line {op.line}")
    if missing:
        raise UnsupportedOperator(f"operations of StableHLO have no converter: {counted(missing)}")


def _kind(op: Operation) -> str:
    return op.name if op.name != "stablehlo.custom_call" else f"{op.name} @{op.attrs.get('callee', '')}"


def _all_of(region: Region) -> Iterator[Operation]:
    for op in region.body:
        yield op
        for inner in op.regions:
            yield from _all_of(inner)


def _check_inputs(main: Func, info: Sequence[tuple[Sequence[int], str]] | None) -> None:
    own = [(ty.stored, ty.dtype) for _, ty in main.region.params]
    if info is not None and [(tuple(shape), str(dtype)) for shape, dtype in info] != own:
        raise ModelImportError(
            "the program has other inputs than input_info says", expected=str(list(info)), found=str(own)
        )


class _Graph(Arithmetic, Builder):
    """The state of one import: functions by name, values by name."""

    def __init__(self, funcs: dict[str, Func]) -> None:
        super().__init__()
        self.funcs = funcs
        self.active: list[str] = []

    def module(self, main: Func) -> ir.IRModule:
        """The module with the program as ``main``."""
        params = []
        for given, ty in main.region.params:
            name = given[1:].replace(".", "_")
            shape = [ir.SizeVar(f"{name}_{i}", "int64") if n < 0 else n for i, n in enumerate(ty.stored)]
            params.append(relax.Var(name, ir.tensor_type(shape, ty.dtype)))
        with self.bb.function("main", params):
            parts = [
                split(self.bb, x) if ty.is_complex else x for x, (_, ty) in zip(params, main.region.params, strict=True)
            ]
            found = [joined(self.bb, x) if isinstance(x, Complex) else x for x in self.call(main.name, parts)]
            result = found[0] if len(found) == 1 else ir.Tuple(tuple(found))
            self.bb.emit_func_output(self.bb.emit(result))
        mod = self.bb.get()
        mod.update_func(mod.get_global_var("main"), to_dataflow(mod["main"]))
        return mod

    # --- complex numbers ----------------------------------------------------------------------------------------------

    def choice(self, test: Any, branches: Sequence[Callable[[], Sequence[Any]]]) -> list[Any]:
        """The results of one of two branches, complex ones in their parts."""
        kinds: list[Any] = []

        def parts(branch: Callable[[], Sequence[Any]]) -> Sequence[Any]:
            kinds[:] = branch()
            return _flat(kinds)

        return _packed(super().choice(test, [lambda branch=b: parts(branch) for b in branches]), kinds)

    def loop(
        self, start: Sequence[Any], test: Callable[[list[Any]], Any], body: Callable[[list[Any]], Sequence[Any]]
    ) -> list[Any]:
        """A loop whose state has complex tensors in their parts."""
        found = super().loop(
            _flat(start), lambda state: test(_packed(state, start)), lambda state: _flat(body(_packed(state, start)))
        )
        return _packed(found, start)

    # --- functions ----------------------------------------------------------------------------------------------------

    def call(self, name: str, args: Sequence[Any], scalars: bool = False) -> list[Any]:
        """Convert a function where it is called."""
        if name not in self.funcs:
            raise ModelImportError(f"function '@{name}' is not in the program", found=", ".join(self.funcs))
        if name in self.active:
            raise ModelImportError(f"function '@{name}' calls itself", expected="no recursion")
        self.active.append(name)
        found = self.run(self.funcs[name].region, args, {}, scalars)
        self.active.pop()
        return found

    def run(self, region: Region, args: Sequence[Any], outer: dict[str, Any], scalars: bool) -> list[Any]:
        """Convert a region's operations for some arguments.

        `scalars` says that its types are those of single elements, where tensors are what goes through it.
        """
        if len(args) != len(region.params):
            raise ModelImportError(
                "a region has another number of parameters", expected=str(len(args)), found=str(len(region.params))
            )
        values = outer | {name: arg for (name, _), arg in zip(region.params, args, strict=True)}
        for op in region.body:
            missing = next((name for name in op.operands if name not in values), None)
            if missing is not None:
                raise ModelImportError(f"value '{missing}' is not defined", where=_place(op))
            operands = [values[name] for name in op.operands]
            if op.name in _RETURNS:
                return operands
            self.bb.span = ir.Span(origin=_place(op))
            results = self._converted(op, operands, values, scalars)
            if not len(results) == len(op.results) == len(op.types):
                raise ModelImportError(
                    "an operation has another number of results",
                    where=_place(op),
                    expected=str(len(results)),
                    found=str(len(op.results)),
                )
            for name, result, ty in zip(op.results, results, op.types, strict=True):
                values[name] = result if scalars else self._checked(op, result, ty)
        raise ModelImportError("a region ends without a return", expected="stablehlo.return")

    def _converted(self, op: Operation, operands: list[Any], values: dict[str, Any], scalars: bool) -> list[Any]:
        try:
            if op.name in _CALLS:
                name = op.attrs.get("decomposition", op.attrs.get("callee", ""))
                return self.call(name.lstrip("@"), operands, scalars)
            node = Node(self, op, operands, values, scalars)
            counts = node.name in ON_SIZES and not scalars and node.dtype in ("int32", "int64", "bool")
            sizes = self.sizes_of(operands, 0 <= math.prod(op.types[0].shape) <= _SIZES) if counts else None
            if sizes is not None:
                return [self.of_sizes(node, ON_SIZES[node.name](node, *sizes))]
            found = CONVERTERS[_kind(op)](node)
        except WeftError as e:
            if isinstance(e, ModelImportError):
                e.where = _place(op) if e.where is None else e.where
                raise
            raise ModelImportError(e.what, where=_place(op), expected=e.expected, found=e.found, help=e.help) from e
        except DAMAGE as e:
            raise ModelImportError(
                "an operation has not the form of its kind", where=_place(op), found=f"{type(e).__name__}: {e}"
            ) from e
        return list(found) if isinstance(found, (list, tuple)) else [found]

    def of_sizes(self, node: Node, found: Any) -> Any:
        """What an operation on sizes gives; whether something holds of open ones is known as an expression, too."""
        flat = [self.simplified(n) for n in np.asarray(found, object).reshape(-1).tolist()]
        sizes, known = objects(flat, node.shape), [n for n in flat if isinstance(n, int)]
        if (node.dtype != "bool" or len(known) == len(flat)) and all(abs(n) < 1 << 31 for n in known):
            return self.sized(sizes, node.dtype)
        x = CONVERTERS[node.source.name](node)
        if node.dtype == "bool":
            self.sizes[x] = sizes
        return x

    def _checked(self, op: Operation, x: Any, ty: Type) -> Any:
        """Bind a result, which must have the type that the program says it has."""
        if ty.is_complex:
            x, part = self.complex_of(x), Type(ty.shape, ty.dtype)
            return Complex(self._checked(op, x.re, part), self._checked(op, x.im, part))
        x = x if isinstance(x, (ir.ExprVar, ir.Constant)) else self.emit(x)
        if any(isinstance(d, ir.PrimExpr) and n >= 0 for d, n in zip(self.dims(x), ty.shape, strict=False)):
            known = [n if n >= 0 else d for d, n in zip(self.dims(x), ty.shape, strict=True)]
            x = self.bb.match_cast(x, ir.tensor_type(known, x.ty.dtype))  # checked when the program runs
        dims = tuple(d if n >= 0 else n for d, n in zip(self.dims(x), ty.shape, strict=False))
        if (dims, len(x.ty.shape), str(x.ty.dtype)) != (ty.shape, len(ty.shape), ty.dtype):
            raise ModelImportError(
                "an operation's result is not what the program says",
                where=_place(op),
                expected=f"{ty.shape} {ty.dtype}",
                found=f"{self.dims(x)} {x.ty.dtype}",
            )
        return x


def _flat(values: Sequence[Any]) -> list[Any]:
    return [part for x in values for part in ((x.re, x.im) if isinstance(x, Complex) else (x,))]


def _packed(parts: Sequence[Any], like: Sequence[Any]) -> list[Any]:
    """Values from their parts, complex where those of a list are."""
    rest = iter(parts)
    return [Complex(next(rest), next(rest)) if isinstance(x, Complex) else next(rest) for x in like]


def _place(op: Operation) -> str:
    return f"StableHLO line {op.line} ({op.name})"


class Node(Refusing):
    """One operation as its converter sees it: operands, attributes, the result's type, and what to build with."""

    def __init__(
        self, graph: _Graph, op: Operation, operands: list[Any], values: dict[str, Any], scalars: bool
    ) -> None:
        self.graph, self.source, self.operands, self.values, self.scalars = graph, op, operands, values, scalars
        self.name = op.name.partition(".")[2]
        self.op, self.dims = graph.op, graph.dims

    @property
    def x(self) -> Any:
        """The first operand."""
        return self.operands[0]

    @property
    def shape(self) -> list[int]:
        """The result's shape, which must be known."""
        if -1 in self.source.types[0].shape:
            self.unsupported(
                "its result has open dimensions",
                expected=f"an operation that is given them, such as dynamic_{self.name}",
                found=str(self.source.types[0].shape),
            )
        return list(self.source.types[0].shape)

    def sizes(self, i: int) -> list[Any]:
        """Operand `i` as sizes: numbers, or expressions of open dimensions."""
        found = self.graph.sizes_of([self.operands[i]])
        if found is None:
            if not isinstance(self.operands[i], ir.Constant):
                self.unsupported("a size is data", expected="what follows from the inputs' dimensions")
            found = [self.operands[i].data.numpy()]
        return found[0].reshape(-1).tolist()

    @property
    def dtype(self) -> str:
        """The result's element type."""
        return self.source.types[0].dtype

    def attr(self, name: str, default: Any = None) -> Any:
        """An attribute, arrays as lists."""
        found = self.source.attrs.get(name, default)
        return found.tolist() if isinstance(found, np.ndarray) else found

    def ints(self, name: str, count: int, default: int) -> list[int]:
        """An attribute of so many integers, or the default for each."""
        found = self.attr(name)
        return [default] * count if found is None else list(found)

    def inlined(self, i: int, args: Sequence[Any], scalars: bool = True) -> list[Any]:
        """Convert region `i` for arguments: elementwise on tensors, or as it stands."""
        return self.graph.run(self.source.regions[i], args, self.values, scalars)
