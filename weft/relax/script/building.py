"""Functions built statement by statement, in the words of ``R``: ``with function(): x = arg("x", ty); emit(...)``."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from weft import ir
from weft.error import InvalidArgument
from weft.ir.text.building import IRBuilder
from weft.relax.analysis.types import BaseCheckResult, type_base_check, type_outside
from weft.relax.block_builder import BlockBuilder
from weft.relax.core_ops import as_relax
from weft.relax.expr import MatchCast, VarBinding
from weft.relax.infer import function_type
from weft.relax.script.annotation import Note, as_type
from weft.relax.vocabulary import Value

_FUNCTIONS: ir.Ambient[Any] = ir.Ambient("FunctionFrame")


class ModuleFrame:
    """A module under construction."""

    def __init__(self) -> None:
        self.functions: dict[str, ir.BaseFunc] = {}

    def __enter__(self) -> ModuleFrame:
        IRBuilder.current().module = self
        return self

    def __exit__(self, kind: object, *exc: object) -> None:
        builder = IRBuilder.current()
        builder.module = None
        if kind is None:
            builder.result = ir.IRModule(dict(self.functions))


class FunctionFrame:
    """A function under construction.

    Parameters
    ----------
    is_pure : bool
    is_private : bool
        Whether it has no symbol of its own.
    """

    def __init__(self, is_pure: bool = True, is_private: bool = False) -> None:
        self.is_pure, self.is_private = is_pure, is_private
        self.name = ""
        self.ret_ty: Any = None
        self.result: Any = None
        self.attrs: dict[str, Any] = {}
        self.params: list[ir.ExprVar] = []
        self.names: dict[Any, str] = {}
        self.block: BlockFrame | None = None
        self.bb = BlockBuilder()

    def __enter__(self) -> FunctionFrame:
        self.scope = self.bb.scope()
        self.inner = self.scope.__enter__()
        return _FUNCTIONS.enter(self)

    def __exit__(self, *exc: Any) -> None:
        _FUNCTIONS.leave(self)
        try:
            if exc[0] is None:
                self.names |= {v: n for v, n in IRBuilder.current().names.items() if isinstance(v, ir.ExprVar)}
                IRBuilder.current().add(self.name, self._function())
        finally:
            self.scope.__exit__(*exc)

    def _function(self) -> ir.Function:
        if self.result is None or not (self.name or self.is_private):
            lacks = "result" if self.result is None else "name"
            help = "call R.func_name and R.func_ret_value"
            raise InvalidArgument(f"function '{self.name}' has no {lacks}", help=help)
        body = self.bb.finish(self.inner, self.result)
        params = tuple(self.params)
        attrs = self.attrs if self.is_private else {**self.attrs, "global_symbol": self.name}
        ret_ty = type_outside(params, body)
        if self.ret_ty is not None and type_base_check(self.ret_ty, ret_ty) != BaseCheckResult.PASS:
            raise InvalidArgument(
                f"the result of '{self.name}' has another type", expected=f"{self.ret_ty}", found=f"{ret_ty}"
            )
        func = ir.Function(params, body, ret_ty, self.is_pure, ir.Attrs.of(attrs))
        return self._named(func.replace(ty=function_type(func)))

    def _named(self, func: ir.Function) -> ir.Function:
        called = {v: type(v)(name, v.ty, span=v.span) for v, name in self.names.items() if name != v.name_hint}

        def rename(node: ir.Node) -> Any:
            return called[node] if node in called else ir.rebuild(node, rename)

        return rename(func) if called else func


class BlockFrame:
    """A dataflow block under construction; ``output_vars`` are those of :meth:`output`."""

    def __init__(self, frame: FunctionFrame) -> None:
        self.frame = frame
        self.output_vars: list[ir.ExprVar] = []

    def __enter__(self) -> BlockFrame:
        self.frame.bb.open_block(self.frame.inner, dataflow=True)
        self.frame.block = self
        return self

    def __exit__(self, *exc: object) -> None:
        self.frame.bb.open_block(self.frame.inner, dataflow=False)
        self.frame.block = None

    def output(self, *variables: Any) -> None:
        """Make variables visible behind the block."""
        for v in variables:
            shown: Any = self.frame.bb.visible(v)
            names = IRBuilder.current().names
            if v in names:
                names[shown] = names.pop(v)
            self.output_vars.append(shown)


def open_function() -> FunctionFrame | None:
    """Return the function under construction."""
    return _FUNCTIONS.current


def _frame() -> FunctionFrame:
    if _FUNCTIONS.current is None:
        raise InvalidArgument("there is no function under construction", help="use `with R.function():`")
    return _FUNCTIONS.current


def func_name(name: str) -> None:
    """Set the name of the function."""
    _frame().name = name


def arg(name: str, ty: Note) -> ir.ExprVar:
    """Add a parameter to the function; of equal names, later ones get numbers."""
    frame = _frame()
    frame.params.append(ir.ExprVar(name, as_type(ty)))
    return frame.params[-1]


def func_ret_type(ret_ty: Note) -> None:
    """Demand a type of the function's result, which may be more exact."""
    _frame().ret_ty = as_type(ret_ty)


def func_ret_value(value: Value) -> None:
    """Set the function's result."""
    frame = _frame()
    frame.result = frame.bb.normalize(as_relax(value), atom=True)


def emit(value: ir.Expr, annotate_ty: Note = None) -> ir.ExprVar:
    """Bind a value to a new variable."""
    bb = _frame().bb
    return bb.emit(value) if annotate_ty is None else bb.match_cast(value, as_type(annotate_ty))


def emit_with_type(op: str | ir.Expr, args: Iterable[Value], ty_args: Note) -> ir.Expr:
    """Bind a call of something whose result has the given type; in a program's text the call is the value itself."""
    types = ty_args if isinstance(ty_args, (list, tuple)) else [ty_args]
    callee = ir.Op.get(op) if isinstance(op, str) else op
    call = ir.Call(callee, tuple(as_relax(a) for a in args), ty_args=tuple(as_type(t) for t in types))
    return call if _FUNCTIONS.current is None else _frame().bb.emit(call)


def emit_match_cast(value: ir.Expr, ty: Note) -> ir.ExprVar:
    """Bind a value whose type is checked at run time."""
    return _frame().bb.match_cast(value, as_type(ty))


def emit_var_binding(value: VarBinding | MatchCast) -> ir.ExprVar:
    """Add a binding; return its variable."""
    bb = _frame().bb
    if isinstance(value, MatchCast):
        bb.emit_normalized(value)
    else:
        bb.emit_normalized(type(value)(value.var, bb.normalize(value.value), span=value.span))
    return value.var


WORDS = {
    "arg": arg,
    "emit": emit,
    "emit_match_cast": emit_match_cast,
    "emit_var_binding": emit_var_binding,
    "emit_with_ty": emit_with_type,
    "emit_with_type": emit_with_type,
    "func_name": func_name,
    "func_ret_ty": func_ret_type,
    "func_ret_type": func_ret_type,
    "func_ret_value": func_ret_value,
}
"""The names of ``R`` that make sense inside of a function under construction only."""
