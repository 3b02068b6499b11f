"""FuseTIR for programs that somebody wrote: kernels that groups become are private."""

from __future__ import annotations

from weft import ir, tir
from weft.relax.transform.fuse_tir import fuse_tir


def FuseTIR() -> ir.Pass:
    """Make the pass that turns groups (functions with ``Primitive``) of kernels into one kernel each.

    Private functions that nothing calls then are removed.
    """

    def run(mod: ir.IRModule) -> ir.IRModule:
        """Fuse, then clean up."""
        fused = fuse_tir()(mod)
        if fused is mod:
            return mod
        groups = {v.name_hint for v, f in mod.items() if isinstance(f, ir.Function)}
        made = {v.name_hint: f for v, f in fused.items()}
        for name, f in made.items():
            if name in groups and isinstance(f, tir.PrimFunc):
                made[name] = f.without_attr("global_symbol")
        kept = _reached(made)
        return fused.with_functions({v: made[v.name_hint] for v in fused if v.name_hint in kept})

    return ir.Pass("FuseTIR", run, 0, FuseTIR.__doc__)


def _reached(functions: dict[str, ir.BaseFunc]) -> set[str]:
    """Return the functions that public ones reach."""
    stack = [n for n, f in functions.items() if "global_symbol" in f.attrs]  # type: ignore[attr-defined]
    seen: set[str] = set()
    while stack:
        name = stack.pop()
        if name in seen or name not in functions:
            continue
        seen.add(name)
        stack += [v.name_hint for v in ir.walk(functions[name]) if isinstance(v, ir.GlobalVar)]
    return seen
