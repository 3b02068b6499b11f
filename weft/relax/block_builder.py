"""BlockBuilder: builds Relax functions in normal form, inferring types as it goes.

Source: TVM's ``relax.BlockBuilder``, whose method names it keeps.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, cast

from weft import ir
from weft.error import InvalidArgument, WeftError, own_errors
from weft.relax.core_ops import as_relax, call_tir
from weft.relax.expr import BindingBlock, DataflowBlock, DataflowVar, MatchCast, SeqExpr, Var, VarBinding
from weft.relax.infer import function_type, infer_call, merge_types, type_of
from weft.relax.rename import rename_vars
from weft.relax.te_bridge import prim_func_from_te
from weft.tir import PrimFunc

__all__ = ["BlockBuilder"]

_ATOMS = (
    ir.ExprVar,
    ir.Constant,
    ir.GlobalVar,
    ir.ShapeExpr,
    ir.PrimValue,
    ir.ExprStringImm,
    ir.DataTypeImm,
    ir.ExternFunc,
)


class _Frame:
    """Bindings of one block under construction."""

    __slots__ = ("bindings", "dataflow", "outputs")

    def __init__(self, dataflow: bool) -> None:
        self.bindings: list[Any] = []
        self.dataflow = dataflow
        self.outputs: set[ir.Expr] = set()


class _Scope:
    """Finished blocks of one function or branch under construction."""

    __slots__ = ("attrs", "blocks", "frame", "is_pure", "name", "params", "private", "result")

    def __init__(
        self, name: str | None, params: Sequence[Var], attrs: Any, is_pure: bool, private: bool = False
    ) -> None:
        self.name, self.params, self.attrs, self.is_pure, self.private = name, tuple(params), attrs, is_pure, private
        self.blocks: list[BindingBlock] = []
        self.frame: _Frame | None = None
        self.result: ir.Expr | None = None


class BlockBuilder:
    """Builds functions binding by binding.

    Parameters
    ----------
    mod : IRModule, optional
        A module to add to; it is not changed.

    Examples
    --------
    >>> bb = BlockBuilder()
    >>> x = Var("x", tensor_type((3, 4), "float32"))
    >>> with bb.function("main", [x]):
    ...     with bb.dataflow():
    ...         y = bb.emit_output(op.add(x, x))
    ...     bb.emit_func_output(y)
    >>> mod = bb.get()
    """

    _open: ir.Ambient[BlockBuilder] = ir.Ambient("BlockBuilder")

    def __init__(self, mod: ir.IRModule | None = None) -> None:
        self.module = mod.copy() if mod is not None else ir.IRModule()
        self._scopes: list[_Scope] = []
        self._names: dict[str, int] = {}
        self._funcs_by_fingerprint: dict[str, ir.GlobalVar] = {}
        self.span: ir.Span | None = None

    # --- functions and blocks --------------------------------------------------------------------------------------

    @staticmethod
    def current() -> BlockBuilder | None:
        """Return the builder whose ``with bb.function(...)`` is innermost, or None."""
        return BlockBuilder._open.current

    @contextmanager
    def function(
        self, name: str, params: Any = None, attrs: Any = None, pure: bool = True, private: bool = False
    ) -> Generator[BlockBuilder, None, None]:
        """Build a function; call :meth:`emit_func_output` before the end of the ``with``."""
        params = [params] if isinstance(params, ir.ExprVar) else list(params or ())
        BlockBuilder._open.enter(self)
        depth = len(self._scopes)
        self._scopes.append(_Scope(name, params, attrs, pure, private))
        try:
            yield self
            scope = self._scopes[-1]
            if scope.result is None:
                raise InvalidArgument(
                    f"function '{name}' has no result", help="call bb.emit_func_output(expr) inside `with bb.function`"
                )
            self._finish_function(scope)
        finally:
            del self._scopes[depth:]
            BlockBuilder._open.leave(self)

    def _finish_function(self, scope: _Scope) -> None:
        self._close_block(scope)
        assert scope.result is not None and scope.name is not None
        body = SeqExpr(tuple(scope.blocks), scope.result, ty=type_of(scope.result))
        attrs = ir.Attrs.of(scope.attrs)
        if not scope.private:
            attrs = attrs.with_(global_symbol=scope.name)
        func = ir.Function(scope.params, body, body.ty, scope.is_pure, attrs)
        self.module[scope.name] = func.replace(ty=function_type(func))

    @contextmanager
    def dataflow(self) -> Generator[BlockBuilder, None, None]:
        """Build a dataflow block: its variables are local unless made by :meth:`emit_output`."""
        scope = self._scope()
        self._close_block(scope)
        scope.frame = _Frame(dataflow=True)
        yield self
        self._close_block(scope)

    def _scope(self) -> _Scope:
        if not self._scopes:
            raise InvalidArgument(
                "there is no function under construction", help="use `with bb.function(name, params):`"
            )
        return self._scopes[-1]

    def _frame(self) -> _Frame:
        scope = self._scope()
        if scope.frame is None:
            scope.frame = _Frame(dataflow=False)
        return scope.frame

    @staticmethod
    def _close_block(scope: _Scope) -> None:
        frame, scope.frame = scope.frame, None
        if frame is not None and frame.bindings:
            scope.blocks.append((DataflowBlock if frame.dataflow else BindingBlock)(tuple(frame.bindings)))

    @contextmanager
    def scope(self, dataflow: bool = False) -> Generator[_Scope, None, None]:
        """Collect bindings apart, for a branch or a nested function; ``finish(scope, result)`` makes the sequence."""
        inner = _Scope(None, (), None, True)
        inner.frame = _Frame(dataflow)
        self._scopes.append(inner)
        try:
            yield inner
        finally:
            self._scopes.pop()

    def open_block(self, scope: _Scope, dataflow: bool) -> None:
        """Begin another block of a scope."""
        self._close_block(scope)
        scope.frame = _Frame(dataflow)

    @property
    def in_dataflow(self) -> bool:
        """Whether the block under construction is a dataflow block."""
        return self._frame().dataflow

    def bindings(self) -> list[Any]:
        """The bindings of the block under construction."""
        return self._frame().bindings

    def finish(self, scope: _Scope, result: ir.Expr) -> SeqExpr:
        """Make a sequence of what `scope` collected, with an atom as result."""
        self._close_block(scope)
        return SeqExpr(tuple(scope.blocks), result, ty=type_of(result))

    # --- bindings --------------------------------------------------------------------------------------------------

    def fresh_name(self, hint: str) -> str:
        """Return a variable name that this builder has not used."""
        n = self._names.get(hint)
        self._names[hint] = 0 if n is None else n + 1
        return (
            hint
            if n is None
            else self.fresh_name(f"{hint}{n}")
            if f"{hint}{n}" in self._names
            else self._remember(f"{hint}{n}")
        )

    def _remember(self, name: str) -> str:
        self._names[name] = 0
        return name

    def emit(self, expr: Any, name_hint: str = "lv") -> Var:
        """Bind the normal form of `expr` to a new variable and return it."""
        value = self.normalize(as_relax(expr), atom=False)
        dataflow = self._frame().dataflow
        return self._bind(value, name_hint if name_hint != "lv" or dataflow else "gv", dataflow)

    def emit_output(self, expr: Any, name_hint: str = "gv") -> Var:
        """Bind `expr` to a variable that is visible outside of the dataflow block."""
        return self._bind(self.normalize(as_relax(expr), atom=False), name_hint, False)

    def _bind(self, value: ir.Expr, hint: str, dataflow: bool) -> Var:
        var = (DataflowVar if dataflow else Var)(self.fresh_name(hint), value.ty, span=self.span)  # type: ignore[attr-defined]
        self._frame().bindings.append(VarBinding(var, value, span=self.span))
        return var

    def match_cast(self, value: Any, ty: ir.Type, name_hint: str = "lv") -> Var:
        """Check at run time that `value` has type `ty` and name its new symbolic variables."""
        source = self.normalize(as_relax(value))
        dataflow = self._frame().dataflow
        var = (DataflowVar if dataflow else Var)(self.fresh_name(name_hint), ty, span=self.span)
        self._frame().bindings.append(MatchCast(var, source, ty, span=self.span))
        return var

    def emit_normalized(self, binding: Any) -> None:
        """Append a binding that is already in normal form."""
        self._frame().bindings.append(binding)

    @own_errors("building the function")
    def emit_func_output(self, output: Any, params: Any = None) -> None:
        """Set the result of the function."""
        scope = self._scope()
        if params is not None:
            scope.params = (params,) if isinstance(params, ir.ExprVar) else tuple(params)
        self._close_block(scope)
        result = self.normalize(as_relax(output), atom=False)
        scope.result = (
            result
            if isinstance(result, (ir.ExprVar, ir.Constant, ir.Tuple, ir.ShapeExpr, ir.PrimValue))
            else self.emit(result, "gv")
        )

    def emit_te(
        self, func: Callable[..., Any], *args: Any, primfunc_name_hint: str | None = None, **kwargs: Any
    ) -> Var:
        """Bind the result of a te function applied to Relax values, as a call of the TIR function made of it."""
        return self.emit(self.call_te(func, *args, primfunc_name_hint=primfunc_name_hint, **kwargs))

    def call_te(
        self,
        func: Callable[..., Any],
        *args: Any,
        primfunc_name_hint: str | None = None,
        primfunc_attrs: Mapping[str, Any] | None = None,
        **kwargs: Any,
    ) -> ir.Call:
        """Make the call of :meth:`emit_te` without binding it; the TIR function gets `primfunc_attrs`."""
        atoms = [self.normalize(a) if isinstance(a, ir.Expr) else a for a in args]
        given = kwargs.pop("ty_args", None) or kwargs.pop("sinfo_args", None)
        made = prim_func_from_te(func, atoms, kwargs)
        prim = made.func.with_attr(dict(primfunc_attrs)) if primfunc_attrs else made.func
        gvar = self.add_func(prim, primfunc_name_hint or getattr(func, "__name__", "te_func").strip("<>"))
        return call_tir(gvar, made.args, given or made.out_types)

    def add_func(self, func: Any, name_hint: str) -> ir.GlobalVar:
        """Add a function, or find one of equal structure, and return its global variable."""
        key = ir.fingerprint(func.without_attr("global_symbol"))
        known = self._funcs_by_fingerprint.get(key)
        if known is not None and known in self.module:
            return known
        n = next(i for i in range(len(self.module) + 1) if f"{name_hint}{i or ''}" not in self.module)
        name = f"{name_hint}{n or ''}"
        if "global_symbol" in func.attrs:
            func = func.with_attr("global_symbol", name)
        self.module[name] = func
        gvar = self.module.get_global_var(name)
        self._funcs_by_fingerprint[key] = gvar
        return gvar

    def update_func(self, gvar: ir.GlobalVar, func: Any) -> None:
        """Replace a function."""
        self.module[gvar] = func

    def get(self) -> ir.IRModule:
        """Return the module built so far."""
        return self.module.copy()

    finalize = get

    # --- normal form -----------------------------------------------------------------------------------------------

    def normalize(self, expr: ir.Expr, *, atom: bool = True) -> ir.Expr:
        """Return the normal form of `expr` with types, binding what is nested.

        Parameters
        ----------
        atom : bool
            Whether the result must be an atom; otherwise it may be an operation on atoms, ready to be bound.
        """
        result: Any = _NORMALIZE(expr, self)
        if atom and not isinstance(result, (*_ATOMS, ir.Tuple, ir.Op)):
            return self._bind(result, "lv" if self._frame().dataflow else "gv", self._frame().dataflow)
        return cast(ir.Expr, result)


# Functions of TIR belong to the module.
_NORMALIZE = ir.Dispatch("normalize", (ir.Expr,), leaves_out=(PrimFunc,))


@_NORMALIZE.on(*_ATOMS, ir.Op)
def _atom(expr: ir.Expr, bb: BlockBuilder) -> ir.Expr:
    if isinstance(expr, ir.Op) or expr.ty is not None or isinstance(expr, ir.GlobalVar):  # type: ignore[attr-defined]
        return expr
    return _with_type(expr, type_of(expr)) if not isinstance(expr, ir.ExprVar) else expr


def _with_type(expr: Any, ty: ir.Type) -> Any:
    fields = {f: getattr(expr, f) for f in expr.__struct_fields__}
    return type(expr)(**{**fields, "ty": ty})


@_NORMALIZE.on(ir.Call)
def _call(expr: ir.Call, bb: BlockBuilder) -> ir.Expr:
    op = expr.op if isinstance(expr.op, (ir.Op, ir.ExternFunc, ir.GlobalVar)) else bb.normalize(expr.op)
    args = tuple([bb.normalize(a) for a in expr.args])
    if expr.ty is not None and op is expr.op and all(a is b for a, b in zip(args, expr.args, strict=True)):
        return expr
    span = expr.span or bb.span
    call = ir.Call(op, args, expr.attrs, expr.ty_args, span=span)
    try:
        ty = infer_call(call, bb.module)
    except WeftError as e:
        if span is not None:  # the call, rather than the operand that does not fit it
            e.where = span
        raise
    return ir.Call(op, args, expr.attrs, expr.ty_args, span=span, ty=ty)


@_NORMALIZE.on(ir.Tuple)
def _tuple(expr: ir.Tuple, bb: BlockBuilder) -> ir.Expr:
    fields = tuple([bb.normalize(f) for f in expr.fields])
    if expr.ty is not None and all(a is b for a, b in zip(fields, expr.fields, strict=True)):
        return expr
    return ir.Tuple(fields, span=expr.span, ty=ir.TupleType(tuple(type_of(f) for f in fields)))


@_NORMALIZE.on(ir.TupleGetItem)
def _tuple_get_item(expr: ir.TupleGetItem, bb: BlockBuilder) -> ir.Expr:
    value = bb.normalize(expr.tuple_value)
    if isinstance(value, ir.Tuple):
        return value.fields[expr.index]
    if value is expr.tuple_value and expr.ty is not None:
        return expr
    new = ir.TupleGetItem(value, expr.index, span=expr.span)
    return _with_type(new, type_of(new))


@_NORMALIZE.on(ir.If)
def _if(expr: ir.If, bb: BlockBuilder) -> ir.Expr:
    cond = bb.normalize(expr.cond)
    true_branch, false_branch = _branch(expr.true_branch, bb), _branch(expr.false_branch, bb)
    if expr.ty is not None and (cond, true_branch, false_branch) == (expr.cond, expr.true_branch, expr.false_branch):
        return expr
    ty = merge_types(type_of(true_branch), type_of(false_branch))
    return ir.If(cond, true_branch, false_branch, span=expr.span, ty=ty)


def _branch(expr: ir.Expr, bb: BlockBuilder) -> SeqExpr:
    """Normalize a sequence of its own, keeping its blocks; the same object when it is in normal form."""
    with bb.scope() as inner:
        if not isinstance(expr, SeqExpr):
            return bb.finish(inner, bb.normalize(expr))
        renamed: dict[ir.Expr, ir.Expr] = {}
        for block in expr.blocks:
            bb.open_block(inner, isinstance(block, DataflowBlock))
            for b in block.bindings:
                _emit_binding(b, bb, renamed)
        bb.open_block(inner, False)
        result = bb.normalize(rename_vars(expr.body, renamed))
        new = bb.finish(inner, result)
    same = expr.ty is not None and result is expr.body and len(new.blocks) == len(expr.blocks)
    return expr if same and all(map(_same_block, new.blocks, expr.blocks)) else new


def _same_block(new: BindingBlock, old: BindingBlock) -> bool:
    return type(new) is type(old) and new.bindings == old.bindings


def _inline_seq(expr: ir.Expr, bb: BlockBuilder) -> ir.Expr:
    """Emit the bindings of a sequence into the current block and return its result as an atom."""
    if not isinstance(expr, SeqExpr):
        return bb.normalize(expr)
    renamed: dict[ir.Expr, ir.Expr] = {}
    for block in expr.blocks:
        for b in block.bindings:
            _emit_binding(b, bb, renamed)
    return bb.normalize(rename_vars(expr.body, renamed))


def _emit_binding(binding: Any, bb: BlockBuilder, renamed: dict[ir.Expr, ir.Expr]) -> None:
    value = rename_vars(binding.value, renamed)
    new = bb.normalize(value, atom=isinstance(binding, MatchCast))
    var = binding.var
    local = isinstance(var, DataflowVar)
    if var.ty is None or (local and not bb.in_dataflow):
        kind = DataflowVar if local and bb.in_dataflow else Var
        typed = kind(var.name_hint, var.ty or new.ty, span=var.span)  # type: ignore[attr-defined]
        renamed[var] = typed
        var = typed
    if new is binding.value and var is binding.var:
        bb.emit_normalized(binding)
    elif isinstance(binding, MatchCast):
        bb.emit_normalized(MatchCast(var, new, binding.ty, span=binding.span))
    else:
        bb.emit_normalized(VarBinding(var, new, span=binding.span))


@_NORMALIZE.on(SeqExpr)
def _seq(expr: SeqExpr, bb: BlockBuilder) -> ir.Expr:
    return _inline_seq(expr, bb)


@_NORMALIZE.on(ir.Function)
def _function(expr: ir.Function, bb: BlockBuilder) -> ir.Expr:
    body = _branch(expr.body, bb)
    if body is expr.body and expr.ret_ty is not None and expr.ty is not None:
        return expr
    func = ir.Function(expr.params, body, expr.ret_ty or body.ty, expr.is_pure, expr.attrs, span=expr.span)
    return func.replace(ty=function_type(func))
