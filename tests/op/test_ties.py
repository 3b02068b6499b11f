"""No dimension of an operand is left to itself: each is in the result's type or in a relation, or is said to be free.

Where a type rule forgets an operand, nothing demands that it fits, and a kernel reads past it.
"""

from typing import Any

import pytest

from tests.fuzz.calls import Params
from tests.op import cases  # noqa: F401 - registers the cases
from tests.op.contract import CASES, SIZES, Sizes, with_cases
from weft import error, ir, op
from weft.op.relations import IndexRange, collect_relations
from weft.relax.infer import infer_call

FREE = {
    "collapse_sum_like": "dimensions before those of the target are summed up, whatever they are",
    "sample_token": "tokens that were there before are as many as there were",
    "nn.cache_append": "what does not fit into the new length is left out, and what nothing fills is zero",
    "tree_scores": "there are as many trees as there are",
    "take nan": "what lies outside of the axis is NaN, however long that is",
}
"""Operators (and their modes) with operands of dimensions that nothing else has to agree with, and why not."""


def variables(value: Any) -> set[Any]:
    """All variables of dimensions in a type, or in a scalar."""
    if isinstance(value, ir.TupleType):
        return {v for f in value.fields for v in variables(f)}
    if isinstance(value, (ir.TensorType, ir.ShapeType)):
        dims = value.shape if isinstance(value, ir.TensorType) else value.values
        return {v for d in dims or () for v in variables(d)}
    return {v for v in ir.walk(value) if isinstance(v, ir.Var)} if isinstance(value, ir.PrimExpr) else set()


def loose(name: str, index: int, level: int) -> dict[str, list[str]]:
    """The dimensions of a case's operands that neither the result nor a relation has, by operand."""
    definition = op.get_op_def(name)
    case = next(c for s in SIZES if (c := CASES[name][index](Sizes(s, f"{name}{index}{s}"))) is not None)
    params = Params(level)
    if f"{name} {case.attrs.get('mode')}" in FREE:
        return {}
    given = [params.expr(v, i.name) for v, i in zip(case.inputs, definition.inputs, strict=False)]
    with collect_relations() as relations:
        tied = variables(infer_call(op.make_call(name)(*given, **case.attrs)))
    for r in relations:
        scalars = [e for pair in r.ranges for e in pair] if isinstance(r, IndexRange) else [r.found, r.expected]
        tied |= {v for e in scalars for v in variables(e)}
    found = {t.name_hint: sorted(v.name for v in variables(t.ty) - tied) for t in params.tensors}
    return {operand: names for operand, names in found.items() if names} if len(found) > 1 else {}


@pytest.mark.parametrize(("name", "index"), with_cases())
def test_every_dimension_is_tied(name: str, index: int) -> None:
    """With a variable for each dimension, or, where the type rule needs numbers, for the named ones."""
    if name in FREE:
        return
    try:
        found = loose(name, index, 0)
    except error.WeftError:
        found = {"": ["not known"]}
    assert not found or not loose(name, index, 2), found
