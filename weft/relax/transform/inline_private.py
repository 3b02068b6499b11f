"""InlinePrivateFunctions: private functions become part of their callers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from weft.error import InvalidArgument
from weft.ir import Call, Expr, Function, GlobalVar, If, IRModule, module_pass, substitute, walk
from weft.relax.analysis import detect_recursion
from weft.relax.block_builder import BlockBuilder
from weft.relax.expr import MatchCast, SeqExpr
from weft.relax.infer import bind_type, type_of
from weft.relax.rename import copy_with_new_vars, rename_vars
from weft.relax.rewriter import all_bindings, rewrite_bindings
from weft.relax.transform.call_sites import called_only

_MARKS = ("Primitive", "primitive", "Composite", "Codegen")


@module_pass
def inline_private_functions(mod: IRModule) -> IRModule:
    """Put the bindings of private functions where the functions are called, and drop the functions.

    Requires: ``relax.normalized``.
    Ensures: ``relax.normalized``. Left are recursive functions, groups of operators (``Primitive``, ``Composite``,
        ``Codegen``), functions that are used as values, and functions with an if that a dataflow block calls.
    Before::

        @R.function
        def main(x: R.Tensor((2,), "float32")):
            a = cls.helper(x)
            return a

        @R.function(private=True)
        def helper(p: R.Tensor(("n",), "float32")):
            b = R.exp(p)
            return b

    After::

        @R.function
        def main(x: R.Tensor((2,), "float32")) -> R.Tensor((2,), "float32"):
            b: R.Tensor((2,), "float32") = R.exp(x)
            return b
    Cost: Linear in what comes out.
    Source: TVM's ``InlinePrivateFunctions``.
    """
    recursive = {v.name_hint for group in detect_recursion(mod) for v in group}
    inlined = {
        name: f
        for name, f in called_only(mod).items()
        if name not in recursive and not any(f.attrs.get(m) for m in _MARKS) and isinstance(f.body, SeqExpr)
    }
    if not inlined:
        return mod
    for name in _innermost_first(inlined):
        inlined[name] = _inline(inlined[name], mod, inlined)
    out = mod.with_functions(
        {
            v: _inline(f, mod, inlined) if isinstance(f, Function) and v.name_hint not in inlined else f
            for v, f in mod.items()
        }
    )
    left = {n.name_hint for v, f in out.items() if v.name_hint not in inlined for n in walk(f) if type(n) is GlobalVar}
    while (
        more := {n.name_hint for name in left & inlined.keys() for n in walk(inlined[name]) if type(n) is GlobalVar}
        - left
    ):
        left |= more
    return out.with_functions(
        {v: inlined.get(v.name_hint, f) for v, f in out.items() if v.name_hint not in inlined or v.name_hint in left}
    )


def inline_functions(func: Function, replacements: Mapping[Any, Function]) -> Function:
    """Return a copy of a function in which calls of some functions of the module are their bindings.

    Parameters
    ----------
    replacements : mapping
        From a global variable, or its name, to the function.

    Raises
    ------
    InvalidArgument
        When two keys have one name, or a function calls itself through others.
    """
    inlined: dict[str, Function] = {}
    for key, value in replacements.items():
        name = key if isinstance(key, str) else key.name_hint
        if name in inlined:
            raise InvalidArgument(f"the function '{name}' is given twice", help="by its variable, or by its name")
        inlined[name] = value
    loops = detect_recursion(IRModule({GlobalVar(n): f for n, f in inlined.items()}))
    if loops:
        raise InvalidArgument("a recursive function has no end to inline", found=loops[0][0].name_hint)
    for name in _innermost_first(inlined):
        inlined[name] = _inline(inlined[name], IRModule(), inlined)
    return _inline(func, IRModule(), inlined)


def _innermost_first(functions: dict[str, Function]) -> list[str]:
    order: dict[str, None] = {}

    def visit(name: str) -> None:
        for n in walk(functions[name]):
            if isinstance(n, GlobalVar) and n.name_hint in functions and n.name_hint not in order:
                visit(n.name_hint)
        order[name] = None

    for name in functions:
        if name not in order:
            visit(name)
    return list(order)


def _inline(func: Function, mod: IRModule, functions: dict[str, Function]) -> Function:
    branching = {n for n, f in functions.items() if any(isinstance(b.value, If) for b in all_bindings(f))}

    def rule(_binding: object, value: Expr, bb: BlockBuilder) -> Expr | None:
        name = value.op.name_hint if isinstance(value, Call) and isinstance(value.op, GlobalVar) else None
        if name not in functions or (bb.in_dataflow and name in branching):
            return None
        return expand(functions[name], value, bb)  # type: ignore[arg-type]

    return rewrite_bindings(func, mod, rule)


def expand(func: Function, call: Call, bb: BlockBuilder) -> Expr:
    """Emit the bindings of a function for one call, and return its result."""
    copy, symbols = copy_with_new_vars(func), dict[Any, Any]()
    for p, a in zip(copy.params, call.args, strict=True):
        if p.ty is not None:
            bind_type(p.ty, type_of(a), symbols, call)
    copy = substitute(copy, symbols)
    renamed: dict[Expr, Expr] = dict(zip(copy.params, call.args, strict=True))
    seq: Any = copy.body
    for block in seq.blocks:
        for b in block.bindings:
            value = rename_vars(b.value, renamed)
            if isinstance(b, MatchCast):
                renamed[b.var] = bb.match_cast(value, b.ty, b.var.name_hint)
            else:
                renamed[b.var] = bb.emit(value, b.var.name_hint)
    return rename_vars(seq.body, renamed)
