"""Functions of external compilers, as literals where they are called or as functions of the module."""

from collections.abc import Callable, Sequence
from typing import Any

from weft.error import InvalidArgument
from weft.ir import IRModule, Node, Pass
from weft.relay.expr import Call, Expr, Function, GlobalVar, is_external
from weft.relay.transform.copying import body_for_call
from weft.relay.walk import rewrite


def OutlineCompilerFunctionsWithExistingGlobalSymbols(compiler_filter: str = "") -> Pass:
    """Make the pass that moves the function literals of external compilers into the module, by their global symbol.

    Parameters
    ----------
    compiler_filter : str
        The compiler; by default all.

    Source: TVM's ``OutlineCompilerFunctionsWithExistingGlobalSymbols``.
    """

    def outline(mod: IRModule) -> IRModule:
        """Move the literals; equal names mean one function."""
        moved: dict[str, Function] = {}

        def rule(e: Node) -> Any:
            if type(e) is not Call or not is_external(e.op, compiler_filter):
                return e
            name = str(e.op.attrs["global_symbol"])  # type: ignore[attr-defined]
            if name in mod:
                raise InvalidArgument(
                    f"the module has a function '{name}' already",
                    where=e.span,
                    help="give the literal another global_symbol",
                )
            moved.setdefault(name, e.op)  # type: ignore[arg-type]
            return Call(GlobalVar(name, ty=moved[name].ty), e.args, e.attrs, e.ty_args, ty=e.ty, span=e.span)

        kept = {v: rewrite(f, rule) if type(f) is Function and not is_external(f) else f for v, f in mod.items()}
        return mod.with_functions({**kept, **{GlobalVar(n): f for n, f in moved.items()}})

    return Pass("OutlineCompilerFunctionsWithExistingGlobalSymbols", outline, 0, outline.__doc__)


def MarkCompilerFunctionsAsExtern(compiler_filter: str = "") -> Pass:
    """Make the pass that gives the module's functions of external compilers ``Extern=1`` in place of what they had.

    Such a function is compiled already, and the build leaves it out.

    Parameters
    ----------
    compiler_filter : str
        The compiler; by default all.

    Source: TVM's ``MarkCompilerFunctionsAsExtern``.
    """

    def mark(mod: IRModule) -> IRModule:
        """Replace the attributes."""
        return _over(mod, lambda f: f.replace(attrs={"Extern": 1}) if is_external(f, compiler_filter) else f)

    return Pass("MarkCompilerFunctionsAsExtern", mark, 0, mark.__doc__)


def InlineCompilerFunctionsBoundTo(global_vars: Sequence[Any]) -> Pass:
    """Make the pass that takes functions back from an external compiler: their bodies stand where they were called.

    Functions with ``Composite`` inside of them are written out, too.

    Parameters
    ----------
    global_vars : sequence of GlobalVar or str
        The functions.

    Source: TVM's ``InlineCompilerFunctionsBoundTo``.
    """
    names = {getattr(v, "name_hint", v) for v in global_vars}

    def inline(mod: IRModule) -> IRModule:
        """Write the bodies out; the functions go."""
        bodies = {n: rewrite(mod[n], _composite_written_out) for n in names if n in mod}

        def rule(e: Expr) -> Any:
            if type(e) is not Call or type(e.op) is not GlobalVar or e.op.name_hint not in bodies:
                return e
            return body_for_call(bodies[e.op.name_hint], e.args, e.ty_args, [False] * len(e.args))

        kept = mod.with_functions({v: f for v, f in mod.items() if v.name_hint not in names})
        return _over(kept, lambda f: rewrite(f, rule))

    return Pass("InlineCompilerFunctionsBoundTo", inline, 0, inline.__doc__)


def _composite_written_out(e: Expr) -> Any:
    if type(e) is not Call or type(e.op) is not Function or not e.op.attrs.get("Composite"):
        return e
    return body_for_call(e.op, e.args, e.ty_args, [False] * len(e.args))


def _over(mod: IRModule, change: Callable[[Function], Any]) -> IRModule:
    return mod.with_functions({v: change(f) if type(f) is Function else f for v, f in mod.items()})
