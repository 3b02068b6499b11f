"""Groups alike but for numbers, as the layers of a quantised network: their kernel takes these as arguments."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Hashable, Iterable

from weft import ir
from weft.arith.context import structural_key
from weft.relax.expr import SeqExpr

Place = tuple[int, int]
"""An operator of a group and one of its arguments."""

_QUANTISING = frozenset(("quantize", "dequantize", "requantize", "requantize_sum"))
"""Operators whose integers, zero points, are computed with whatever they are."""


def numbers_apart(mod: ir.IRModule, names: Iterable[str]) -> dict[str, dict[Place, ir.Constant]]:
    """Find the scalar constants by which groups of a module differ from groups that are otherwise alike.

    Places that hold equal numbers within each of these groups have one constant.

    Parameters
    ----------
    mod : IRModule
        Where the groups are.
    names : iterable of str
        Those of the groups: functions whose bodies are one block of calls of operators.
    """
    alike: dict[Hashable, list[tuple[str, dict[Place, ir.Constant]]]] = defaultdict(list)
    for name in names:
        key, numbers = _without_numbers(mod[name])
        alike[key].append((name, numbers))
    apart: dict[str, dict[Place, ir.Constant]] = {}
    for groups in alike.values():
        values = {place: tuple(_bytes(n[place]) for _, n in groups) for place in groups[0][1]}
        first = {v: place for place, v in reversed(values.items()) if len(set(v)) > 1}
        for name, numbers in groups:
            apart[name] = {place: numbers[first[v]] for place, v in values.items() if v in first}
    return apart


def _without_numbers(func: ir.Expr) -> tuple[Hashable, dict[Place, ir.Constant]]:
    """Tell what a group computes whatever its numbers are, and list these."""
    assert isinstance(func, ir.Function)
    assert isinstance(func.body, SeqExpr)
    known: dict[ir.Expr, int] = {p: n for n, p in enumerate(func.params)}
    numbers: dict[Place, ir.Constant] = {}
    steps: list[Hashable] = [structural_key(tuple(p.ty for p in func.params))]

    def key(arg: ir.Expr) -> Hashable:
        if isinstance(arg, ir.Tuple):
            return tuple(map(key, arg.fields))
        if isinstance(arg, ir.Constant):
            return _bytes(arg), structural_key(arg.ty)
        return known[arg] if arg in known else structural_key(arg)

    for n, binding in enumerate(func.body.blocks[0].bindings):
        call = binding.value
        numbers |= {(n, i): a for i, a in enumerate(call.args) if _is_number(call.op, a)}
        args = [structural_key(a.ty) if (n, i) in numbers else key(a) for i, a in enumerate(call.args)]
        steps.append((call.op, *args, structural_key(call.attrs)))
        known[binding.var] = len(known)
    return tuple(steps), numbers


def _is_number(op: ir.Op, arg: ir.Expr) -> bool:
    """Whether an argument is a scalar constant on whose value it does not hang how an operator is computed."""
    if not isinstance(arg, ir.Constant) or any(d != 1 for d in arg.data.shape):
        return False
    name = op.name.removeprefix("relax.")
    return name in _QUANTISING or (ir.DataType(arg.data.dtype).is_float and name != "power")


def _bytes(constant: ir.Constant) -> bytes:
    return constant.data.numpy().tobytes()
