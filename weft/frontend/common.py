"""What all importers share."""

from weft import ir, runtime


def pairs(text: str) -> dict[str, str]:
    """A table of words: ``pairs("Add:add Sub:subtract")``."""
    return dict(pair.split(":") for pair in text.split())


def detach_params(mod: ir.IRModule) -> tuple[ir.IRModule, dict[str, list[runtime.Tensor]]]:
    """Take the weights that importers keep as the attribute ``params`` off a module's functions.

    Returns
    -------
    (mod, params)
        The module without them, and for each function that had some its weights in the order of its last parameters.
    """
    params: dict[str, list[runtime.Tensor]] = {}
    functions = {}
    for var, func in mod.items():
        held = func.attrs.get("params") if isinstance(func, ir.Function) else None
        if held is not None:
            params[var.name_hint] = list(held)
            func = func.without_attr("params")
        functions[var] = func
    return mod.with_functions(functions), params
