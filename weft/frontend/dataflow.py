"""The last step of an import: bindings are put into dataflow blocks, around the choices that cannot be in one."""

from __future__ import annotations

from typing import Any

from weft import ir, relax


def to_dataflow(func: ir.BaseFunc) -> Any:
    """Put straight runs of bindings into dataflow blocks; only what leaves a block keeps a plain variable."""
    assert isinstance(func, ir.Function)
    return func.replace(body=_sequence(func.body, {}))


def _sequence(seq: Any, renamed: dict[ir.Expr, Any]) -> relax.SeqExpr:
    bindings = [b for block in seq.blocks for b in block.bindings]
    runs = _runs(bindings)
    last_use = _last_runs(runs, seq.body)
    blocks: list[Any] = []
    for i, run in enumerate(runs):
        plain = _is_alone(run[0].value)
        new = tuple([_binding(b, renamed, local=not plain and last_use.get(b.var, i) == i) for b in run])
        blocks.append((relax.BindingBlock if plain else relax.DataflowBlock)(new))
    return relax.SeqExpr(tuple(blocks), _rename(seq.body, renamed), ty=seq.ty, span=seq.span)


def _runs(bindings: list[Any]) -> list[list[Any]]:
    """Split bindings into runs: choices, inner functions and calls of one, and what is between them."""
    runs: list[list[Any]] = []
    for b in bindings:
        if not runs or _is_alone(b.value) != _is_alone(runs[-1][0].value):
            runs.append([b])
        else:
            runs[-1].append(b)
    return runs


def _is_alone(value: Any) -> bool:
    return isinstance(value, (ir.If, ir.Function)) or (isinstance(value, ir.Call) and isinstance(value.op, ir.ExprVar))


def _last_runs(runs: list[list[Any]], body: Any) -> dict[ir.Expr, int]:
    """Return the last run that uses each variable; the result counts as one more run."""
    last: dict[ir.Expr, int] = {}
    for i, run in enumerate(runs):
        for b in run:
            for v in _variables(b.value):
                last[v] = i
    for v in _variables(body):
        last[v] = len(runs)
    return last


def _variables(expr: Any) -> list[Any]:
    found: list[Any] = []
    stack = [expr]
    while stack:
        e = stack.pop()
        if isinstance(e, ir.ExprVar):
            found.append(e)
        elif isinstance(e, ir.Call):
            stack += [e.op, *e.args]
        elif isinstance(e, ir.Function):
            stack.append(e.body)
        elif isinstance(e, ir.Tuple):
            stack += e.fields
        elif isinstance(e, ir.TupleGetItem):
            stack.append(e.tuple_value)
        elif isinstance(e, ir.If):
            stack += [e.cond, e.true_branch, e.false_branch]
        elif isinstance(e, relax.SeqExpr):
            bindings: list[Any] = [b for block in e.blocks for b in block.bindings]
            stack += [b.value for b in bindings]
            stack.append(e.body)
    return found


def _binding(b: Any, renamed: dict[ir.Expr, Any], local: bool) -> Any:
    value = _rename(b.value, renamed)
    var = b.var
    if local != isinstance(var, relax.DataflowVar):
        var = (relax.DataflowVar if local else ir.ExprVar)(var.name_hint, var.ty, span=var.span)
        renamed[b.var] = var
    if isinstance(b, relax.MatchCast):
        return relax.MatchCast(var, value, b.ty, span=b.span)
    return relax.VarBinding(var, value, span=b.span)


def _rename(e: Any, renamed: dict[ir.Expr, Any]) -> Any:
    if isinstance(e, ir.ExprVar):
        return renamed.get(e, e)
    if isinstance(e, ir.Call):
        args = tuple([_rename(a, renamed) for a in e.args])
        return ir.Call(_rename(e.op, renamed), args, e.attrs, e.ty_args, ty=e.ty, span=e.span)
    if isinstance(e, ir.Tuple):
        return ir.Tuple(tuple([_rename(f, renamed) for f in e.fields]), ty=e.ty, span=e.span)
    if isinstance(e, ir.TupleGetItem):
        return ir.TupleGetItem(_rename(e.tuple_value, renamed), e.index, ty=e.ty, span=e.span)
    if isinstance(e, ir.If):
        branches = [_sequence(branch, renamed) for branch in (e.true_branch, e.false_branch)]
        return ir.If(_rename(e.cond, renamed), *branches, ty=e.ty, span=e.span)
    if isinstance(e, ir.Function):
        return e.replace(body=_sequence(e.body, renamed))
    return e
