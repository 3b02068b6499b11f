"""Sizes that PyTorch knows as SymPy expressions become scalar expressions of the module."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from weft import arith, error, ir, tir

Dim = int | ir.PrimExpr
INT64 = ir.DataType("int64")


def as_expr(d: Dim) -> ir.PrimExpr:
    """A size as an int64 expression."""
    return ir.const(d, "int64") if isinstance(d, int) else d


def _float(x: ir.PrimExpr) -> ir.PrimExpr:
    return x if x.dtype == "float64" else ir.Cast("float64", x)


def _whole(rounded: Callable[[ir.PrimExpr], ir.PrimExpr]) -> Callable[..., ir.PrimExpr]:
    return lambda x: ir.Cast("int64", rounded(_float(x)))


_FUNCTIONS: dict[str, Callable[..., ir.PrimExpr]] = {
    "Add": lambda *args: _fold(ir.Add, args),
    "Mul": lambda *args: _fold(ir.Mul, args),
    "FloorDiv": ir.FloorDiv,
    "CleanDiv": ir.FloorDiv,
    "Mod": ir.FloorMod,
    "PythonMod": ir.FloorMod,
    "Max": lambda *args: _fold(ir.Max, args),
    "Min": lambda *args: _fold(ir.Min, args),
    "Identity": lambda x: x,
    "Equality": ir.EQ,
    "Unequality": ir.NE,
    "StrictLessThan": ir.LT,
    "LessThan": ir.LE,
    "StrictGreaterThan": ir.GT,
    "GreaterThan": ir.GE,
    "And": lambda *args: _fold(ir.And, args),
    "Or": lambda *args: _fold(ir.Or, args),
    "Not": ir.Not,
    "Where": ir.Select,
    "ToFloat": _float,
    "IntTrueDiv": lambda a, b: ir.Div(_float(a), _float(b)),
    "FloatTrueDiv": lambda a, b: ir.Div(_float(a), _float(b)),
    "Pow": lambda a, b: tir.power(_float(a), _float(b)),
    "FloatPow": lambda a, b: tir.power(_float(a), _float(b)),
    "TruncToInt": _whole(lambda x: x),
    "FloorToInt": _whole(tir.floor),
    "CeilToInt": _whole(tir.ceil),
    "RoundToInt": _whole(tir.nearbyint),
}


def _fold(make: Callable[..., ir.PrimExpr], args: Any) -> ir.PrimExpr:
    args = [_float(a) for a in args] if any(a.dtype == "float64" for a in args) else args
    first, *rest = args
    for arg in rest:
        first = make(first, arg)
    return first


class Symbols:
    """The variables of one import, by PyTorch's symbol."""

    def __init__(self) -> None:
        self.analyzer = arith.Analyzer()
        self._vars: dict[Any, ir.PrimExpr] = {}

    def define(self, symbol: Any, *, is_size: bool = True) -> ir.Var:
        """Make the variable of a symbol that has none."""
        var = (ir.SizeVar if is_size else ir.Var)(str(symbol), INT64)
        self._vars[symbol] = var
        return var

    def equate(self, symbol: Any, value: Dim) -> None:
        """Let a symbol that has no variable stand for an expression of those that have one."""
        self._vars[symbol] = as_expr(value)

    @property
    def defined(self) -> Mapping[Any, ir.PrimExpr]:
        """The variables, by PyTorch's symbol."""
        return self._vars

    @staticmethod
    def fresh(name: str) -> ir.Var:
        """The variable of a size that only data tells and PyTorch has no symbol for."""
        return ir.SizeVar(name, INT64)

    def knows(self, value: Any) -> bool:
        """Whether all symbols of a size have variables."""
        return isinstance(value, int) or all(s in self._vars for s in _expression(value).free_symbols)

    def unknown(self, value: Any) -> list[Any]:
        """The symbols of a size that have no variables yet."""
        return [] if isinstance(value, int) else [s for s in _expression(value).free_symbols if s not in self._vars]

    def dim(self, value: Any) -> Dim:
        """Convert a size: an int, or an expression of the variables.

        Raises
        ------
        ModelImportError
            Where it is computed by what has no counterpart, or from a symbol that nothing has defined.
        """
        if isinstance(value, int):
            return value
        return self.expression(_expression(value))

    def expression(self, e: Any) -> Dim:
        """Convert SymPy's expression of a size, or a condition on sizes, as :meth:`dim` does."""
        found = self.analyzer.simplify(self._convert(e))
        return found.value if isinstance(found, ir.IntImm) and found.dtype != "bool" else found

    def equal(self, a: Dim, b: Dim) -> bool:
        """Whether two sizes are proved to be equal."""
        if isinstance(a, int) and isinstance(b, int):
            return a == b
        return self.analyzer.can_prove_equal(as_expr(a), as_expr(b))

    def _convert(self, e: Any) -> ir.PrimExpr:
        if e.is_Symbol:
            if e not in self._vars:
                raise error.ModelImportError(f"size '{e}' is used before anything defines it")
            return self._vars[e]
        if e.is_Integer:
            return ir.const(int(e), "int64")
        if e.is_Float or e.is_Rational:
            return ir.const(float(e), "float64")
        if e.is_Boolean and e.is_Atom:
            return ir.const(bool(e), "bool")
        name = type(e).__name__
        if name in ("Pow", "PowByNatural") and e.args[1].is_Integer and e.args[1] > 0:
            return _fold(ir.Mul, [self._convert(e.args[0])] * int(e.args[1]))
        if name.startswith("OpaqueUnaryFn_") and hasattr(tir, name[14:]):
            return getattr(tir, name[14:])(_float(self._convert(e.args[0])))
        if name == "Piecewise" and e.args[-1].cond == True:  # noqa: E712  (SymPy's own)
            *cases, otherwise = ((self._convert(case.cond), self._convert(case.expr)) for case in e.args)
            found = otherwise[1]
            for condition, value in reversed(cases):
                found = ir.Select(condition, value, found)
            return found
        if name not in _FUNCTIONS:
            raise error.ModelImportError(f"a size is computed by {name}", expected=", ".join(_FUNCTIONS), found=str(e))
        return _FUNCTIONS[name](*(self._convert(arg) for arg in e.args))


def _expression(value: Any) -> Any:
    """The SymPy expression of a SymInt or SymBool."""
    return value.node.expr
