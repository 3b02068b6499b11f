"""Dimensions that come from several others get names of their own, so that kernels take them from their arguments.

``max(n, m)``, the extent of a broadcast of two unknown ones, becomes ``d`` wherever it stands: a kernel on tensors of
extent ``d`` needs neither ``n`` nor ``m``, and tensors of that extent are seen to have equal shapes.
"""

from __future__ import annotations

from typing import Any

from weft import arith, ir

Derived = list[tuple[ir.Var, ir.PrimExpr]]


def with_plain_dims(mod: ir.IRModule) -> tuple[ir.IRModule, Derived]:
    """Name such dimensions in the function ``main``.

    Returns
    -------
    (IRModule, list of (Var, PrimExpr))
        The module, whose ``main`` has one more parameter, a shape of the new names, and what they stand for. The
        module itself where there are none.
    """
    main: Any = mod["main"]
    names = _Names()
    for node in ir.walk(main):
        for d in _dims(node):
            names.of(d)
    if not names.known:
        return mod, []
    changed: Any = ir.rewrite(main, lambda n: n, pre=lambda n: names.of(n) if isinstance(n, ir.PrimExpr) else None)
    derived = [(v, d) for d, v in names.known]
    dims = tuple(v for v, _ in derived)
    made = changed.replace(params=(*changed.params, ir.ExprVar("derived", ir.ShapeType(dims, len(dims)))), ty=None)
    assert isinstance(made, ir.Function)
    return mod.with_functions({**dict(mod.items()), mod.get_global_var("main"): made}), derived


def _dims(node: ir.Node) -> tuple[ir.PrimExpr, ...]:
    if isinstance(node, ir.TensorType):
        return node.shape or ()
    if isinstance(node, (ir.ShapeType, ir.ShapeExpr)):
        return node.values or ()
    return ()


class _Names:
    """The names given so far; equal dimensions get one."""

    def __init__(self) -> None:
        self.known: list[tuple[ir.PrimExpr, ir.Var]] = []
        self._of: dict[ir.PrimExpr, ir.Var | None] = {}
        self._analyzer = arith.Analyzer()

    def of(self, dim: ir.PrimExpr) -> ir.PrimExpr | None:
        """Return the name of a dimension, or None where it needs none."""
        if isinstance(dim, (ir.IntImm, ir.Var)):
            return None
        if dim not in self._of:
            self._of[dim] = self._named(dim)
        return self._of[dim]

    def _named(self, dim: ir.PrimExpr) -> ir.Var | None:
        nodes = list(ir.walk(dim))
        if not any(isinstance(n, ir.Max) for n in nodes) and len({n for n in nodes if isinstance(n, ir.Var)}) < 2:
            return None
        simple = self._analyzer.simplify(dim)
        for other, name in self.known:
            if ir.structural_equal(simple, other):
                return name
        self.known.append((simple, ir.Var(f"d{len(self.known)}", "int64")))
        return self.known[-1][1]
