"""BlockBuilder: builds Relax functions in normal form, inferring types as it goes.

Source: TVM's ``relax.BlockBuilder``, whose method names it keeps.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, cast

from weft import ir, tir
from weft.error import InvalidArgument, own_errors
from weft.relax.analysis.types import type_outside
from weft.relax.core_ops import as_relax, call_tir, null_value
from weft.relax.expr import Binding, BindingBlock, DataflowBlock, DataflowVar, MatchCast, SeqExpr, Var, VarBinding
from weft.relax.infer import function_type, type_of
from weft.relax.normal_form import ATOMS, NORMAL_FORM
from weft.relax.rename import rename_vars, replace_value
from weft.relax.te_bridge import prim_func_from_te
from weft.spelling import also_called, counted_name, take_name, unused_name


class _Frame:
    """Bindings of one block under construction."""

    __slots__ = ("bindings", "dataflow", "operands", "outputs")

    def __init__(self, dataflow: bool) -> None:
        self.bindings: list[Any] = []
        self.operands: dict[ir.Expr, Var] = {}  # what nested expressions are bound to: one that is shared, once
        self.dataflow = dataflow
        self.outputs: set[ir.Expr] = set()


class _Scope:
    """Finished blocks of one function or branch under construction."""

    __slots__ = ("attrs", "blocks", "frame", "is_pure", "name", "params", "private", "result")

    def __init__(
        self, name: str | None, params: Sequence[Var] | None, attrs: Any, is_pure: bool, private: bool = False
    ) -> None:
        self.name, self.attrs, self.is_pure, self.private = name, attrs, is_pure, private
        self.params = None if params is None else tuple(params)
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
        self.as_written = False  # operators' ``FNormalize`` waits, as while a text is read

    # --- functions and blocks --------------------------------------------------------------------------------------

    @staticmethod
    def current() -> BlockBuilder | None:
        """Return the builder whose ``with bb.function(...)`` is innermost, or None."""
        return BlockBuilder._open.current

    @contextmanager
    def function(
        self, name: str, params: Any = None, attrs: Any = None, pure: bool = True, private: bool = False
    ) -> Generator[BlockBuilder, None, None]:
        """Build a function; call :meth:`emit_func_output` before the end of the ``with``.

        Parameters
        ----------
        params : Var or sequence of Var, optional
            Without them :meth:`emit_func_output` takes them.
        private : bool
            Whether the function has no symbol of its own.
        """
        params = _params(params)
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
        finally:
            del self._scopes[depth:]
            BlockBuilder._open.leave(self)

    def _finish_function(self, scope: _Scope, result: ir.Expr) -> ir.GlobalVar:
        self._close_block(scope)
        assert scope.name is not None and scope.params is not None
        scope.result = result
        body = SeqExpr(tuple(scope.blocks), result, ty=type_of(result))
        attrs = ir.Attrs.of(ir.said(dict(ir.Attrs.of(scope.attrs).pairs)))
        if not scope.private:
            attrs = attrs.with_(global_symbol=scope.name)
        func = ir.Function(scope.params, body, type_outside(scope.params, body), scope.is_pure, attrs)
        return self._add(func.replace(ty=function_type(func)), scope.name)

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
        if frame is None or not frame.bindings:
            return
        made = (DataflowBlock if frame.dataflow else BindingBlock)(tuple(frame.bindings))
        if scope.blocks and type(made) is type(scope.blocks[-1]) is BindingBlock:  # as the text has them: one
            made = BindingBlock((*scope.blocks.pop().bindings, *made.bindings))
        scope.blocks.append(made)

    @contextmanager
    def scope(self, dataflow: bool = False) -> Generator[_Scope, None, None]:
        """Collect bindings apart, for a branch or a nested function; ``finish(scope, result)`` makes the sequence."""
        self._begin_block(dataflow)
        try:
            yield self._scopes[-1]
        finally:
            self._scopes.pop()

    @contextmanager
    def testing_scope(self, def_vars: Sequence[ir.Var] = ()) -> Generator[BlockBuilder, None, None]:
        """Build a dataflow block outside of any function, to see what expressions become; it is dropped.

        Parameters
        ----------
        def_vars : sequence of Var
            Symbolic variables that are known in it.
        """
        given: Any = def_vars
        if any(not isinstance(v, ir.Var) for v in given):
            raise InvalidArgument("def_vars are symbolic variables", found=repr(def_vars))
        with self.scope(dataflow=True):
            yield self

    def _begin_binding_block(self) -> None:
        """Begin a block that :meth:`_end_block` returns."""
        self._begin_block(False)

    def _begin_dataflow_block(self) -> None:
        self._begin_block(True)

    def _begin_block(self, dataflow: bool) -> None:
        scope = _Scope(None, (), None, True)
        scope.frame = _Frame(dataflow)
        self._scopes.append(scope)

    def _end_block(self) -> BindingBlock:
        """Return the block that was begun last."""
        return self.block_of(self._scopes.pop())

    @staticmethod
    def block_of(scope: _Scope) -> BindingBlock:
        """Return the block of a scope that is under construction."""
        frame = scope.frame
        assert frame is not None
        return (DataflowBlock if frame.dataflow else BindingBlock)(tuple(frame.bindings))

    def add_block(self, scope: _Scope, block: BindingBlock) -> None:
        """Go on with a copy of a block as the last one of a scope."""
        self.open_block(scope, isinstance(block, DataflowBlock))
        assert scope.frame is not None
        scope.frame.bindings += block.bindings

    def open_block(self, scope: _Scope, dataflow: bool) -> None:
        """Begin another block of a scope."""
        self._close_block(scope)
        scope.frame = _Frame(dataflow)

    def next_block(self, dataflow: bool) -> None:
        """Begin another block of the function or branch under construction."""
        self.open_block(self._scope(), dataflow)

    @property
    def is_open(self) -> bool:
        """Whether there is a block to bind in."""
        return bool(self._scopes)

    @property
    def can_interrupt(self) -> bool:
        """Whether the block under construction belongs to a function, which takes others behind it."""
        return self._scope().name is not None

    @property
    def in_dataflow(self) -> bool:
        """Whether the block under construction is a dataflow block."""
        return self._frame().dataflow

    def current_block_is_dataflow(self) -> bool:
        """Whether the block under construction is a dataflow block."""
        return self.in_dataflow

    def bindings(self) -> list[Any]:
        """The bindings of the block under construction."""
        return self._frame().bindings

    def drop(self, before: int) -> None:
        """Take the bindings of the block under construction back, but the first ones."""
        frame = self._frame()
        gone = {b.var for b in frame.bindings[before:]}
        del frame.bindings[before:]
        frame.operands = {e: v for e, v in frame.operands.items() if v not in gone}

    def finish(self, scope: _Scope, result: ir.Expr) -> SeqExpr:
        """Make a sequence of what `scope` collected, with an atom as result."""
        self._close_block(scope)
        return SeqExpr(tuple(scope.blocks), result, ty=type_of(result))

    # --- bindings --------------------------------------------------------------------------------------------------

    @also_called(name_prefix="hint")
    def fresh_name(self, hint: str) -> str:
        """Return a variable name that this builder has not given yet: ``lv``, ``lv1``, ``lv2``."""
        return counted_name(hint.replace(".", "_") or "v", self._names, "")

    get_unique_name = fresh_name

    def emit(self, expr: Any, name_hint: str = "") -> Var:
        """Bind the normal form of `expr` to a new variable and return it."""
        value = self.normalize(_value(expr))
        dataflow = self._frame().dataflow
        return self._bind(value, name_hint or ("lv" if dataflow else "gv"), dataflow)

    @also_called(output="expr")
    def emit_output(self, expr: ir.Expr, name_hint: str = "") -> Var:
        """Bind `expr` to a variable that is visible outside of the dataflow block."""
        return self._bind(self.normalize(_value(expr)), name_hint or "gv", False)

    def _bind(self, value: ir.Expr, hint: str, dataflow: bool) -> Var:
        var = (DataflowVar if dataflow else Var)(self.fresh_name(hint), value.ty, span=self.span)  # type: ignore[attr-defined]
        self._frame().bindings.append(VarBinding(var, value, span=self.span))
        return var

    def visible(self, value: ir.Expr) -> ir.Expr:
        """Return a variable for `value` that may be used behind the dataflow block under construction.

        A variable of the block's own becomes one in its place; other values are bound.
        """
        if not isinstance(value, DataflowVar):
            return value if isinstance(value, ATOMS) else self.emit_output(value)
        frame = self._frame()
        shown = Var(value.name_hint, value.ty, span=value.span)
        renamed: dict[ir.Expr, ir.Expr] = {value: shown}
        frame.bindings = [_renamed(b, renamed) for b in frame.bindings]
        frame.operands = {e: shown if v is value else v for e, v in frame.operands.items()}
        return shown

    @also_called(struct_info="ty")
    def match_cast(self, value: ir.Expr, ty: ir.Type, name_hint: str = "") -> Var:
        """Check at run time that `value` has type `ty` and name its new symbolic variables."""
        source = self.atom(_value(value))
        dataflow = self._frame().dataflow
        name = self.fresh_name(name_hint or ("lv" if dataflow else "gv"))
        var = (DataflowVar if dataflow else Var)(name, ty, span=self.span)
        self._frame().bindings.append(MatchCast(var, source, ty, span=self.span))
        return var

    def emit_normalized(self, binding: Binding) -> None:
        """Append a binding that is already in normal form."""
        self._frame().bindings.append(binding)

    def lookup_binding(self, var: Var) -> ir.Expr | None:
        """Return the value that a variable of the function under construction is bound to; None of another."""
        for scope in reversed(self._scopes):
            frames = [scope.frame.bindings] if scope.frame is not None else []
            for bindings in (*frames, *(block.bindings for block in scope.blocks)):
                found = next((b for b in bindings if b.var is var), None)
                if found is not None:
                    return found.value
        return None

    @own_errors("building the function")
    def emit_func_output(self, output: Any, params: Any = None) -> ir.GlobalVar:
        """Set the result of the function, and its parameters unless it has them; return its global variable.

        Raises
        ------
        InvalidArgument
            When there is a result already, or parameters are missing or given twice.
        """
        scope = self._scope()
        if scope.result is not None:
            raise InvalidArgument(f"function '{scope.name}' has a result already", help="emit_func_output comes once")
        if (scope.params is None) == (params is None):
            problem = "has no parameters" if params is None else "has its parameters already"
            raise InvalidArgument(
                f"function '{scope.name}' {problem}",
                help="pass them to bb.function(name, params) or to bb.emit_func_output(result, params)",
            )
        if params is not None:
            scope.params = _params(params)
        self._close_block(scope)
        result = self.normalize(_value(output))
        if not isinstance(result, (ir.ExprVar, ir.Constant, ir.Tuple, ir.ShapeExpr, ir.PrimValue)):
            result = self.emit(result, "gv")
        return self._finish_function(scope, result)

    def emit_te(
        self,
        func: Callable[..., Any],
        *args: Any,
        primfunc_name_hint: str | None = None,
        name_hint: str = "",
        **kwargs: Any,
    ) -> Var:
        """Bind the result of a te function applied to Relax values, as a call of the TIR function made of it.

        Parameters
        ----------
        name_hint : str
            Of the variable. Further keyword arguments are those of :meth:`call_te`.
        """
        return self.emit(self.call_te(func, *args, primfunc_name_hint=primfunc_name_hint, **kwargs), name_hint)

    def call_te(
        self,
        func: Callable[..., Any],
        *args: Any,
        primfunc_name_hint: str | None = None,
        primfunc_attrs: Mapping[str, Any] | None = None,
        **kwargs: Any,
    ) -> ir.Call:
        """Make the call of :meth:`emit_te` without binding it; the TIR function gets `primfunc_attrs`."""
        atoms = [self.atom(a) if isinstance(a, ir.Expr) else a for a in args]
        given = kwargs.pop("ty_args", None) or kwargs.pop("sinfo_args", None)
        made = prim_func_from_te(func, atoms, kwargs)
        prim = made.func.with_attr(dict(primfunc_attrs)) if primfunc_attrs else made.func
        gvar = self.add_func(prim, primfunc_name_hint or getattr(func, "__name__", "te_func").strip("<>"))
        return call_tir(gvar, made.args, given or made.out_types)

    def call_te_with_grad(
        self,
        func: Callable[..., Any],
        *args: Any,
        te_grad_name: str,
        te_grad_kwargs: Mapping[str, Any] | None = None,
        **kwargs: Any,
    ) -> ir.Call:
        """Make the call of :meth:`call_te`, through which ``Gradient`` goes by a registered te function."""
        call = self.call_te(func, *args, **kwargs)
        attrs = ir.Attrs.of(te_grad_name=te_grad_name, te_grad_kwargs=dict(te_grad_kwargs or {}))
        return ir.Call(ir.Op.get("relax.call_tir_with_grad"), call.args, attrs, call.ty_args)

    @also_called(func_name="name_hint")
    def add_func(self, func: ir.Expr, name_hint: str) -> ir.GlobalVar:
        """Add a function, or find one of equal structure, and return its global variable."""
        key = ir.fingerprint(func.without_attr("global_symbol") if isinstance(func, tir.PrimFunc) else func)
        known = self._funcs_by_fingerprint.get(key)
        if known is not None and known in self.module:
            return known
        gvar = self._add(func, name_hint)
        self._funcs_by_fingerprint[key] = gvar
        return gvar

    def _add(self, func: ir.Expr, name_hint: str) -> ir.GlobalVar:
        name = unused_name(name_hint.replace(".", "_"), self.module, "")
        if isinstance(func, tir.PrimFunc) and "global_symbol" in func.attrs:
            func = func.with_attr("global_symbol", name)
        self.module[name] = func
        return self.module.get_global_var(name)

    @also_called(gv="gvar", updated_func="func")
    def update_func(self, gvar: ir.GlobalVar, func: ir.Expr) -> None:
        """Replace a function."""
        self._funcs_by_fingerprint = {k: v for k, v in self._funcs_by_fingerprint.items() if v is not gvar}
        self.module[gvar] = func

    def get(self) -> ir.IRModule:
        """Return the module built so far."""
        return self.module.copy()

    def finalize(self) -> ir.IRModule:
        """Return the module, in which each public function has the name of its symbol."""
        return with_public_names(self.module)

    # --- normal form -----------------------------------------------------------------------------------------------

    def normalize(self, expr: ir.Expr, *, atom: bool = False) -> ir.Expr:
        """Return the normal form of `expr` with types, ready to be bound; what is nested in it is bound.

        Parameters
        ----------
        atom : bool
            Whether the result must be an atom, as that of :meth:`atom` is.
        """
        return self.atom(expr) if atom else cast(ir.Expr, NORMAL_FORM(as_relax(expr), self))

    def atom(self, expr: ir.Expr) -> ir.Expr:
        """Return an atom for `expr`: itself, or the variable that its normal form is bound to, once in a block.

        Outside of a block, where nothing can be bound, the normal form itself.
        """
        bound = self._frame().operands.get(expr) if self.is_open else None
        if bound is not None:
            return bound
        result: Any = NORMAL_FORM(as_relax(expr), self)
        if isinstance(result, (*ATOMS, ir.Tuple, ir.Op)) or not self.is_open:
            return cast(ir.Expr, result)
        frame = self._frame()
        frame.operands[expr] = var = self._bind(result, "lv" if frame.dataflow else "gv", frame.dataflow)
        return var


def _renamed(binding: Any, renamed: dict[ir.Expr, ir.Expr]) -> Any:
    var: Any = renamed.get(binding.var, binding.var)
    return replace_value(binding, rename_vars(binding.value, renamed), var)


def _params(params: Any) -> tuple[Var, ...] | None:
    if params is None:
        return None
    made = (params,) if isinstance(params, ir.ExprVar) else tuple(getattr(params, "fields", params))
    wrong = next((p for p in made if not isinstance(p, ir.ExprVar)), None)
    if wrong is not None:
        raise InvalidArgument("a parameter is a variable", expected="relax.Var", found=repr(wrong))
    return made


def _value(value: Any) -> ir.Expr:
    return null_value() if value is None else as_relax(value)


def with_public_names(mod: ir.IRModule) -> ir.IRModule:
    """Return a module whose public functions have the names of their symbols; private ones make way.

    The module itself where they have them.
    """
    attrs: dict[str, Any] = {v.name_hint: getattr(f, "attrs", ir.Attrs.of()) for v, f in mod.items()}
    wanted = {name: a.get("global_symbol") or name for name, a in attrs.items()}
    if all(old == new for old, new in wanted.items()):
        return mod.copy()
    public = {name for name, a in attrs.items() if "global_symbol" in a}
    taken = {wanted[name] for name in public}
    for name in wanted.keys() - public:
        wanted[name] = take_name(name, taken, "")
    gvars = {
        v: ir.GlobalVar(wanted[v.name_hint], ty=v.ty) for v, _ in mod.items() if wanted[v.name_hint] != v.name_hint
    }
    changed = {
        gvars.get(v, v): ir.rewrite(f, lambda n: gvars.get(n, n) if isinstance(n, ir.GlobalVar) else n)
        for v, f in mod.items()
    }
    return ir.IRModule(changed, mod.attrs, mod.global_infos)
