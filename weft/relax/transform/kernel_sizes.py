"""Sizes that are expressions are variables of a kernel, so that kernels over different expressions are one."""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Iterable, Sequence

from weft import arith, ir
from weft.arith.form import expr_key


class SizePool:
    """The variables that all kernels of a module take, in order, for sizes that are expressions at their calls."""

    def __init__(self) -> None:
        self.analyzer = arith.Analyzer()
        self.variables: list[ir.SizeVar] = []

    def take(self, index: int) -> ir.SizeVar:
        """Return the variable of a kernel's size number `index`."""
        while index >= len(self.variables):
            self.variables.append(ir.SizeVar(f"size{len(self.variables)}", "int64"))
        return self.variables[index]


class KernelSizes:
    """What stands in a kernel for the sizes of its operands.

    An expression whose variables the kernel meets in it alone, such as ``(h + 7) // 8``, is a variable ``s`` there, or
    ``c * s`` where it is a multiple of ``c``: how it is computed tells nothing else about the kernel's work. An
    expression that is never 0 stays, as loops over it are entered without a question.

    Parameters
    ----------
    pool : SizePool
        Gives the variables.
    shapes : sequence of sequences of PrimExpr
        The sizes of the operands.
    besides : iterable of Var
        The variables that the kernel meets elsewhere.
    apart : bool
        Whether no two sizes of the kernel have to do with one another, but for those that are equal; a multiple
        matters then in rows only.
    """

    def __init__(
        self, pool: SizePool, shapes: Sequence[Sequence[ir.PrimExpr]], besides: Iterable[ir.Var], *, apart: bool
    ) -> None:
        self.pool = pool
        self.values: dict[ir.Var, ir.PrimExpr] = {}
        """What a call passes for a variable of the kernel."""
        self._written: dict[Hashable, ir.PrimExpr] = {}
        different = {self._key(d): d for dims in shapes for d in dims if not isinstance(d, ir.IntImm)}
        rows = {self._key(dims[-1]) for dims in shapes if dims} if apart else different.keys()
        variables = {k: set(ir.find(d, ir.Var)) for k, d in different.items()}
        met = Counter(v for found in variables.values() for v in found) if not apart else Counter()
        held = set(besides) | {v for v, n in met.items() if n > 1}
        for k, d in different.items():
            if not isinstance(d, ir.Var) and d.dtype == "int64" and held.isdisjoint(variables[k]):
                self._abstract(k, d, k in rows)

    def _key(self, dim: ir.PrimExpr) -> Hashable:
        return expr_key(self.pool.analyzer.context, dim)

    def _abstract(self, key: Hashable, dim: ir.PrimExpr, multiple: bool) -> None:
        analyzer = self.pool.analyzer
        if analyzer.const_int_bound(dim).min_value > 0:
            return
        size = self.pool.take(len(self.values))
        step, rest = analyzer.modular_set(dim)
        whole = multiple and step > 1 and rest == 0
        self._written[key] = size * step if whole else size
        self.values[size] = analyzer.simplify(ir.floordiv(dim, step)) if whole else dim

    def within(self, dims: Sequence[ir.PrimExpr]) -> tuple[ir.PrimExpr, ...]:
        """Return what the kernel has for the sizes of an operand."""
        return tuple(self._written.get(self._key(d), d) if self._written else d for d in dims)
