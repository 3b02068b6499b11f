"""What every operator promises, checked from its declaration.

Infer, lower and reference agree on shapes, types and values.

A case names its sizes (``s.a``, ``s.b``), so that one kernel with symbolic dimensions runs on every set of sizes, and
kernels with constant dimensions are compiled for each set.
"""

from __future__ import annotations

import inspect
import itertools
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from weft import arith, ir, op, target, te, tir
from weft.relax.te_bridge import undefined_vars
from weft.runtime import tensor
from weft.tir.schedule import default_schedule

# Odd sizes, ones, empty dimensions, sizes around a vector's length.
SIZES = (
    {"a": 3, "b": 5, "c": 7, "d": 2},
    {"a": 1, "b": 4, "c": 17, "d": 1},
    {"a": 2, "b": 0, "c": 3, "d": 1},
    {"a": 1, "b": 33, "c": 1, "d": 3},
)


class Dim(int):
    """A size with a name; where shapes are symbolic it becomes a variable."""

    name: str

    def __new__(cls, name: str, value: int) -> Dim:
        self = super().__new__(cls, value)
        self.name = name
        return self


class Sizes:
    """The sizes of one run, ``s.a`` ... ``s.d``, and random arrays of them."""

    def __init__(self, sizes: dict[str, int], seed: str) -> None:
        self.rng = np.random.default_rng(zlib.crc32(seed.encode()))
        for name, value in sizes.items():
            setattr(self, name, Dim(name, value))

    def __getattr__(self, name: str) -> Any:
        raise AttributeError(name)

    def real(self, *dims: int, dtype: str = "float32", low: float = -3.0, high: float = 3.0) -> Array:
        return Array(self.rng.uniform(low, high, dims).astype(ir.numpy_dtype(dtype)), dims)

    def integer(self, *dims: int, low: int = -7, high: int = 8, dtype: str = "int64") -> Array:
        return Array(self.rng.integers(low, high, dims).astype(ir.numpy_dtype(dtype)), dims)

    def boolean(self, *dims: int) -> Array:
        return Array(self.rng.integers(0, 2, dims).astype(bool), dims)

    def rows(self, *values: float) -> Array:
        return Array(np.tile(np.float32(values), (int(self.a), 1)), (self.a, len(values)))

    def draw(self, dtype: str, *dims: int) -> Array:
        if dtype == "bool":
            return self.boolean(*dims)
        if dtype.startswith("uint"):
            return self.integer(*dims, low=0, high=9, dtype=dtype)
        return self.integer(*dims, dtype=dtype) if dtype.startswith("int") else self.real(*dims, dtype=dtype)


@dataclass
class Array:
    """An input tensor and the dimensions it was made of."""

    value: np.ndarray
    dims: tuple[int, ...]


@dataclass
class Shape:
    """A shape argument."""

    values: tuple[int, ...]


@dataclass
class Fixed:
    """An input whose dimensions stay constant where others become symbolic: weights, index vectors."""

    array: Array


@dataclass
class Case:
    """One call of an operator: inputs in order (None where left out) and attributes."""

    inputs: tuple[Any, ...]
    attrs: dict[str, Any] = field(default_factory=dict)
    rtol: float | None = None
    atol: float = 2e-6
    symbolic: bool = True
    steps: int = 0
    """By how many an integer may differ, where it is rounded from a sum that may lie between two."""


def call(
    *inputs: Any, rtol: float | None = None, atol: float = 2e-6, symbolic: bool = True, steps: int = 0, **attrs: Any
) -> Case:
    return Case(inputs, attrs, rtol, atol, symbolic, steps)


TARGET = target.Target("llvm")
Cases = Iterator[Case]
Maker = Callable[[Sizes], "Case | None"]
CASES: dict[str, list[Maker]] = {}


def _nth(made: Any, n: int) -> Any:
    return next(itertools.islice(made, n, None)) if isinstance(made, Iterator) else made


def registering(table: dict[str, list[Callable[..., Any]]]) -> tuple[Callable[..., Any], Callable[..., None]]:
    """Make what enters cases into a table: a decorator, and a function for what one expression says."""

    def cases(*names: str, when: Callable[[Sizes], Any] = lambda s: True) -> Callable[..., Any]:
        """Register a function from sizes (and the operator's name, if it takes two arguments) to a case.

        A generator has several, as many for all sizes. There is none for the sizes that `when` refuses.
        """

        def register(fn: Callable[..., Any]) -> Callable[..., Any]:
            for name in names:
                given = (name,) if fn.__code__.co_argcount > 1 else ()
                count = len([*fn(Sizes(SIZES[0], name), *given)]) if inspect.isgeneratorfunction(fn) else 1
                for n in range(count):
                    table.setdefault(name, []).append(
                        lambda s, n=n, given=given: _nth(fn(s, *given), n) if when(s) else None
                    )
            return fn

        return register

    def case(*names: str, when: Callable[[Sizes], Any] = lambda s: True, make: Callable[..., Any]) -> None:
        """Register one call of operators, made of its sizes, where an expression says it."""
        cases(*names, when=when)(make)

    return cases, case


cases, case = registering(CASES)


def with_cases() -> list[tuple[str, int]]:
    return [(name, i) for name in op.list_ops() for i in range(len(CASES.get(name, ())))]


# --- from cases to expressions ----------------------------------------------------------------------------------------


class Values:
    """The symbolic variables of a call, with their values in one run."""

    def __init__(self, symbolic: bool) -> None:
        self.symbolic = symbolic
        self.vars: dict[str, ir.SizeVar] = {}

    def dim(self, d: int) -> Any:
        if self.symbolic and isinstance(d, Dim):
            return self.vars.setdefault(d.name, ir.SizeVar(d.name, "int64"))
        return int(d)

    def known(self, sizes: dict[str, int]) -> dict[ir.Var, ir.IntImm]:
        return {v: ir.IntImm("int64", sizes[n]) for n, v in self.vars.items()}


def to_expr(value: Any, values: Values, name: str) -> Any:
    if value is None:
        return None
    if isinstance(value, Array):
        return ir.ExprVar(name, ir.tensor_type([values.dim(d) for d in value.dims], str(value.value.dtype)))
    if isinstance(value, Fixed):
        return to_expr(value.array, Values(False), name)
    if isinstance(value, Shape):
        return ir.shape_expr([values.dim(d) for d in value.values])
    if isinstance(value, tuple):
        fields = tuple(to_expr(v, values, f"{name}{i}") for i, v in enumerate(value))
        return ir.Tuple(fields, ty=ir.TupleType(tuple(f.ty for f in fields)))
    if isinstance(value, (int, float)):
        v = values.dim(value) if isinstance(value, int) else value
        return ir.prim_value(v)
    raise TypeError(value)


def to_numpy(value: Any) -> Any:
    if isinstance(value, Fixed):
        return value.array.value
    if isinstance(value, Array):
        return value.value
    if isinstance(value, Shape):
        return tuple(int(v) for v in value.values)
    if isinstance(value, tuple):
        return tuple(to_numpy(v) for v in value)
    return value


def arrays_of(value: Any) -> Iterator[np.ndarray]:
    value = to_numpy(value)
    if isinstance(value, np.ndarray):
        yield value
    elif isinstance(value, tuple):
        for v in value:
            yield from arrays_of_raw(v)


def arrays_of_raw(value: Any) -> Iterator[np.ndarray]:
    if isinstance(value, np.ndarray):
        yield value


def to_te(expr: Any, tensors: list[Any]) -> Any:
    if isinstance(expr, ir.ExprVar):
        tensor = te.placeholder(expr.ty.shape, expr.ty.dtype, expr.name_hint)
        tensors.append(tensor)
        return tensor
    if isinstance(expr, ir.Tuple):
        return tuple(to_te(f, tensors) for f in expr.fields)
    if isinstance(expr, ir.ShapeExpr):
        return expr.values
    if isinstance(expr, ir.PrimValue):
        return expr.value
    assert isinstance(expr, ir.Constant), expr
    return te.placeholder(expr.ty.shape, expr.ty.dtype)


# --- the checks -------------------------------------------------------------------------------------------------------


@dataclass
class Program:
    """A compiled call: its inferred type, kernel, and the scalars that the kernel takes besides tensors."""

    type: Any
    kernel: Any
    scalars: list[Any]
    values: Values


def make(name: str, case: Case, symbolic: bool) -> tuple[Any, Values]:
    """Build the call, through the public constructor."""
    values = Values(symbolic)
    definition = op.get_op_def(name)
    exprs = [to_expr(v, values, i.name) for v, i in zip(case.inputs, definition.inputs, strict=False)]
    return op.make_call(name)(*exprs, **case.attrs), values


def prim_func(name: str, case: Case, symbolic: bool) -> tuple[tir.PrimFunc, Any, Any, Values]:
    """Infer and lower a call: its kernel, type, further variables and values."""
    node, values = make(name, case, symbolic)
    definition = op.get_op_def(name)
    attrs = dict(node.attrs.items)
    ty = definition.infer(*node.args, **attrs)
    tensors: list[Any] = []
    result = definition.lower(*[to_te(a, tensors) for a in node.args], **attrs)
    outs = list(result) if isinstance(result, (tuple, list)) else [result]
    outs = [
        te.compute(o.shape, lambda *i, o=o: o(*i), name="copy") if any(o is t for t in tensors) else o for o in outs
    ]
    func = te.create_prim_func([*tensors, *outs])
    extra = undefined_vars(func)
    return func.replace(params=(*func.params, *extra)), ty, extra, values


def compile_call(
    name: str, case: Case, symbolic: bool, scheduled: bool, kernels: dict[tuple[str, bool], Any] | None = None
) -> Program:
    """Infer and lower a call to native code, which is taken from `kernels` where it is there and kept there."""
    func, ty, extra, values = prim_func(name, case, symbolic)
    kernels, key = {} if kernels is None else kernels, (ir.fingerprint(func), scheduled)
    if key not in kernels:
        kernels[key] = target.build(default_schedule(func, TARGET) if scheduled else func, TARGET)["main"]
    return Program(ty, kernels[key], extra, values)


def tensor_types(ty: Any) -> list[ir.TensorType]:
    return list(ty.fields) if isinstance(ty, ir.TupleType) else [ty]


def constant_shape(ty: ir.TensorType, known: dict[Any, Any]) -> tuple[int, ...]:
    assert ty.shape is not None, f"shape unknown: {ty}"
    dims = [arith.Analyzer().simplify(ir.substitute(d, known)) for d in ty.shape]
    assert all(isinstance(d, (ir.IntImm, ir.FloatImm)) for d in dims), dims
    return tuple(int(d) for d in dims)  # type: ignore[arg-type]


def expected_of(name: str, case: Case) -> list[np.ndarray]:
    definition = op.get_op_def(name)
    with np.errstate(all="ignore"):
        out = definition.reference(*[to_numpy(v) for v in case.inputs], **case.attrs)
    return [np.asarray(o) for o in out] if isinstance(out, (tuple, list)) else [np.asarray(out)]


def run(name: str, case: Case, program: Program, sizes: dict[str, int]) -> None:
    """Run a compiled call on one case's arrays and compare with the reference."""
    expected = expected_of(name, case)
    known = program.values.known(sizes)
    types = tensor_types(program.type)
    assert len(types) == len(expected)
    for ty, e in zip(types, expected, strict=True):
        assert constant_shape(ty, known) == e.shape, f"infer says {constant_shape(ty, known)}, the reference {e.shape}"
        assert ty.ndim == e.ndim
        assert ty.dtype == e.dtype.name, f"infer says {ty.dtype}, the reference {e.dtype}"
    found = [tensor(np.full(e.shape, 77).astype(e.dtype)) for e in expected]
    inputs = [tensor(a) for v in case.inputs for a in arrays_of(v)]
    scalars = [int(ir.substitute(v, known)) for v in program.scalars]  # type: ignore[arg-type]
    program.kernel(*inputs, *found, *scalars)
    definition = op.get_op_def(name)
    for f, e in zip(found, expected, strict=True):
        compare(f.numpy(), e, case.rtol or definition.rtol, case.atol, case.steps)


def compare(found: np.ndarray, expected: np.ndarray, rtol: float, atol: float, steps: int = 0) -> None:
    if expected.dtype.kind in "biu" and not steps:
        np.testing.assert_array_equal(found, expected)
        return
    if expected.dtype.kind in "biu":
        rtol, atol = 0.0, steps
    if expected.dtype.itemsize == 2:
        rtol, atol = max(rtol, 1e-2 if expected.dtype.name == "bfloat16" else 2e-3), max(atol, 1e-2)
    np.testing.assert_allclose(found.astype(np.float64), expected.astype(np.float64), rtol=rtol, atol=atol)
