"""AttachGlobalSymbol and NormalizeGlobalVar: the functions of a module are exported under their names."""

from weft import ir, tir
from weft.relax.block_builder import with_public_names


@ir.module_pass(opt_level=0)
def attach_global_symbol(mod: ir.IRModule) -> ir.IRModule:
    """Set ``global_symbol`` on functions that lack it.

    Requires: Anything.
    Ensures: Every function has ``global_symbol``.
    Before::

        @T.prim_func(private=True)
        def f(A: T.Buffer((16,), "float32"), B: T.Buffer((16,), "float32")):
            B[0] = A[0]

    After::

        @T.prim_func
        def f(A: T.Buffer((16,), "float32"), B: T.Buffer((16,), "float32")):
            B[0] = A[0]
    Cost: Linear.
    Source: TVM's ``AttachGlobalSymbol``.
    """
    functions = {}
    for gvar, func in mod.items():
        if isinstance(func, (ir.Function, tir.PrimFunc)) and not func.attrs.get("global_symbol"):
            func = func.with_attr("global_symbol", gvar.name_hint)
        functions[gvar] = func
    return mod.with_functions(functions)


def NormalizeGlobalVar() -> ir.Pass:
    """Make the pass that names public functions as they are exported; private ones of these names get others."""
    return ir.Pass("NormalizeGlobalVar", with_public_names, 0, NormalizeGlobalVar.__doc__)
