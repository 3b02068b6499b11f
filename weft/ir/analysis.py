"""Questions about modules of any dialect."""

from __future__ import annotations

from weft.ir.expr import GlobalVar
from weft.ir.module import IRModule
from weft.ir.walk import find


def collect_call_map(module: IRModule) -> dict[GlobalVar, list[GlobalVar]]:
    """Return which functions of a module each of its functions names, each once, in the order written."""
    known = {v.name_hint: v for v, _ in module.items()}
    return {
        v: list(dict.fromkeys(known[n.name_hint] for n in find(f, GlobalVar) if n.name_hint in known))
        for v, f in module.items()
    }
