"""A slow evaluator of imported Relax through the operators' NumPy references.

It checks the importer's meaning without compiling anything: every value computed is also compared with its inferred
type.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from weft import ir
from weft.op import get_op_def
from weft.relax import MatchCast, SeqExpr

_BINARY = {
    ir.Add: lambda a, b: a + b,
    ir.Sub: lambda a, b: a - b,
    ir.Mul: lambda a, b: a * b,
    ir.FloorDiv: lambda a, b: a // b,
    ir.FloorMod: lambda a, b: a % b,
    ir.Min: min,
    ir.Max: max,
    ir.EQ: lambda a, b: a == b,
    ir.NE: lambda a, b: a != b,
    ir.LT: lambda a, b: a < b,
    ir.LE: lambda a, b: a <= b,
    ir.GT: lambda a, b: a > b,
    ir.GE: lambda a, b: a >= b,
    ir.And: lambda a, b: bool(a and b),
    ir.Or: lambda a, b: bool(a or b),
    ir.Mod: lambda a, b: int(math.fmod(a, b)),
}


def scalar(e: ir.PrimExpr, env: dict[Any, int]) -> Any:
    """Evaluate a scalar expression; floats in their own precision."""
    if isinstance(e, (ir.IntImm, ir.FloatImm)):
        return (
            bool(e.value)
            if e.dtype == "bool"
            else e.value
            if isinstance(e, ir.IntImm)
            else ir.numpy_dtype(e.dtype).type(e.value)
        )
    if isinstance(e, ir.Var):
        return env[e]
    if type(e) in _BINARY:
        return _BINARY[type(e)](scalar(e.a, env), scalar(e.b, env))
    if isinstance(e, ir.Div):
        a, b = scalar(e.a, env), scalar(e.b, env)
        return a / b if "float" in e.dtype else abs(a) // abs(b) * (1 if (a < 0) == (b < 0) else -1)
    if isinstance(e, ir.Cast):
        v = scalar(e.value, env)
        return int(v) if "int" in e.dtype else ir.numpy_dtype(e.dtype).type(v)
    if isinstance(e, ir.Not):
        return not scalar(e.a, env)
    if isinstance(e, ir.Select):
        return scalar(e.true_value if scalar(e.condition, env) else e.false_value, env)
    if isinstance(e, ir.CallIntrin):
        fn = {"tir.floor": np.floor, "tir.ceil": np.ceil, "tir.sqrt": np.sqrt, "tir.nearbyint": np.rint}[e.op.name]
        return fn(scalar(e.args[0], env))
    raise NotImplementedError(type(e).__name__)


def check_type(value: Any, ty: Any, env: dict[Any, int], what: str) -> None:
    """Compare a value with a type, binding variables that are new."""
    if isinstance(ty, ir.TensorType):
        assert isinstance(value, np.ndarray), what
        if ty.dtype:
            assert value.dtype.name == ty.dtype, f"{what}: type says {ty.dtype}, value is {value.dtype.name}"
        if ty.shape is not None:
            check_dims(value.shape, ty.shape, env, what)
    elif isinstance(ty, ir.ShapeType) and ty.values is not None:
        check_dims(value, ty.values, env, what)
    elif isinstance(ty, ir.TupleType):
        assert len(value) == len(ty.fields), what
        for v, t in zip(value, ty.fields, strict=True):
            check_type(v, t, env, what)


def check_dims(actual: Any, dims: Any, env: dict[Any, int], what: str) -> None:
    """Compare dimensions, binding variables that are new."""
    assert len(actual) == len(dims), f"{what}: type has rank {len(dims)}, value {tuple(actual)}"
    for a, d in zip(actual, dims, strict=True):
        if isinstance(d, ir.Var) and d not in env:
            env[d] = int(a)
        expected = scalar(d, env)
        assert expected == a, f"{what}: dimension {d} = {expected}, value has {tuple(actual)}"


class Evaluator:
    """Runs one function on NumPy arrays."""

    def __init__(self) -> None:
        self.env: dict[Any, int] = {}
        self.values: dict[int, Any] = {}

    def run(self, func: Any, args: Any) -> Any:
        """Return the function's result."""
        for p, a in zip(func.params, args, strict=True):
            self.values[id(p)] = a
            check_type(a, p.ty, self.env, p.name_hint)
        return self.eval(func.body)

    def eval(self, e: Any) -> Any:
        """Evaluate an expression."""
        if isinstance(e, SeqExpr):
            for block in e.blocks:
                for b in block.bindings:
                    value = self.eval(b.value)
                    check_type(
                        value,
                        b.ty if isinstance(b, MatchCast) else b.var.ty,
                        self.env,
                        f"{b.var.name_hint} at {b.span}",
                    )
                    self.values[id(b.var)] = value
            return self.eval(e.body)
        if isinstance(e, ir.ExprVar):
            return self.values[id(e)]
        if isinstance(e, ir.Constant):
            return np.asarray(e.data.numpy() if hasattr(e.data, "numpy") else e.data)
        if isinstance(e, ir.ShapeExpr):
            return tuple(scalar(d, self.env) for d in e.values)
        if isinstance(e, ir.PrimValue):
            return scalar(e.value, self.env)
        if isinstance(e, ir.Tuple):
            return tuple(self.eval(f) for f in e.fields)
        if isinstance(e, ir.TupleGetItem):
            return self.eval(e.tuple_value)[e.index]
        if isinstance(e, ir.If):
            return self.eval(e.true_branch if bool(self.eval(e.cond)) else e.false_branch)
        assert isinstance(e, ir.Call), type(e).__name__
        return self.call(e)

    def call(self, e: Any) -> Any:
        """Evaluate a call of an operator through its reference."""
        name = e.op.name.removeprefix("relax.")
        args = [self.eval(a) for a in e.args]
        if name == "shape_of":
            return tuple(args[0].shape)
        if name == "tensor_to_shape":
            assert args[0].dtype == np.int64
            return tuple(int(v) for v in args[0])
        if name == "shape_to_tensor":
            return np.array(args[0], np.int64)
        definition = get_op_def(e.op)
        attrs = {k: self._attr(v) for k, v in e.attrs.items}
        if definition.reference is None:
            assert definition.decompose is not None, name
            raise NotImplementedError(f"{name} has no reference")
        with np.errstate(all="ignore"):
            out = definition.reference(*args, **attrs)
        if isinstance(e.ty, ir.TupleType):
            return tuple(np.asarray(o) for o in out)
        return np.asarray(out)

    def _attr(self, v: Any) -> Any:
        if isinstance(v, ir.PrimExpr):
            return scalar(v, self.env)
        return tuple(self._attr(x) for x in v) if isinstance(v, tuple) else v


def evaluate(mod: Any, *args: Any) -> list[Any]:
    """Run ``main`` of a module; always returns a list of arrays."""
    func = mod["main"]
    params = [np.asarray(c.data.numpy()) for c in func.attrs.get("params", ())]
    out = Evaluator().run(func, [np.asarray(a) for a in (*args, *params)])
    return list(out) if isinstance(out, tuple) else [out]


__all__ = ["check_type", "evaluate"]
