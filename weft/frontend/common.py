"""What all importers share."""

from __future__ import annotations

from weft.ir import Function, IRModule
from weft.runtime import Tensor


def detach_params(mod: IRModule) -> tuple[IRModule, dict[str, list[Tensor]]]:
    """Take the weights that importers keep as the attribute ``params`` off a module's functions.

    Returns
    -------
    (mod, params)
        The module without them, and for each function that had some its weights in the order of its last parameters.
    """
    params: dict[str, list[Tensor]] = {}
    functions = {}
    for var, func in mod.items():
        held = func.attrs.get("params") if isinstance(func, Function) else None
        if held is not None:
            params[var.name_hint] = list(held)
            func = func.without_attr("params")
        functions[var] = func
    return mod.with_functions(functions), params
