"""Visitor classes over Relax, as users of TVM write them. The compiler itself uses tables and ``weft.ir.walk``.

Each kind of expression has a method, ``visit_call_`` for :class:`Call`, that a subclass overrides. What is inherited
visits the operands; a mutator's methods return the replacement.
"""

from __future__ import annotations

from typing import Any

from weft import ir
from weft.relax.block_builder import BlockBuilder
from weft.relax.expr import Binding, BindingBlock, DataflowBlock, DataflowVar, MatchCast, SeqExpr, VarBinding
from weft.relax.infer import function_type
from weft.spelling import also_called

_METHODS: dict[type, str] = {
    ir.Call: "visit_call_",
    ir.Constant: "visit_constant_",
    ir.DataTypeImm: "visit_data_type_imm_",
    DataflowVar: "visit_dataflow_var_",
    ir.ExprStringImm: "visit_string_imm_",
    ir.ExprVar: "visit_var_",
    ir.ExternFunc: "visit_extern_func_",
    ir.Function: "visit_function_",
    ir.GlobalVar: "visit_global_var_",
    ir.If: "visit_if_",
    ir.Op: "visit_op_",
    ir.PrimValue: "visit_prim_value_",
    SeqExpr: "visit_seq_expr_",
    ir.ShapeExpr: "visit_shape_expr_",
    ir.Tuple: "visit_tuple_",
    ir.TupleGetItem: "visit_tuple_getitem_",
}


def mutator(cls: type) -> type:
    """Mark a visitor or mutator class (TVM's decorators; the class itself, its ``_cls``, is all that they need)."""
    cls._cls = cls  # type: ignore[attr-defined] - what programs derive from
    return cls


visitor = mutator


def _operands(e: ir.Node) -> list[Any]:
    """List what an expression is made of, in order of evaluation; sequences and functions are not asked."""
    if isinstance(e, ir.Call):
        return [e.op, *e.args]
    if isinstance(e, ir.Tuple):
        return list(e.fields)
    if isinstance(e, ir.TupleGetItem):
        return [e.tuple_value]
    return [e.cond, e.true_branch, e.false_branch] if isinstance(e, ir.If) else []


class _Functor:
    """Finds the method of an expression or binding."""

    @ir.descending
    def visit_expr(self, expr: ir.Node) -> Any:
        """Visit an expression by the method of its kind."""
        name = _METHODS.get(type(expr))
        return getattr(self, name)(expr) if name is not None else self.visit_expr_post_order(expr)

    def visit_expr_post_order(self, expr: Any) -> Any:
        """Visit what an expression is made of."""
        raise NotImplementedError

    def visit_binding(self, binding: Any) -> Any:
        """Visit a binding."""
        return self.visit_match_cast_(binding) if isinstance(binding, MatchCast) else self.visit_var_binding_(binding)

    def visit_var_binding_(self, binding: VarBinding) -> Any:
        """Visit ``var = value``."""
        raise NotImplementedError

    def visit_match_cast_(self, binding: MatchCast) -> Any:
        """Visit ``var = match_cast(value, ty)``."""
        raise NotImplementedError

    def visit_binding_block(self, block: BindingBlock) -> Any:
        """Visit a block."""
        local = isinstance(block, DataflowBlock)
        return self.visit_dataflow_block_(block) if local else self.visit_binding_block_(block)

    def visit_binding_block_(self, block: BindingBlock) -> Any:
        """Visit the bindings of a block."""
        for b in block.bindings:
            self.visit_binding(b)

    visit_dataflow_block_ = visit_binding_block_

    def visit_var_def(self, var: ir.ExprVar) -> Any:
        """Visit a variable where it is introduced."""
        return self.visit_dataflow_var_def_(var) if isinstance(var, DataflowVar) else self.visit_var_def_(var)

    def visit_var_def_(self, var: ir.ExprVar) -> Any:
        """Visit a plain variable where it is introduced."""
        return var

    def visit_dataflow_var_def_(self, var: DataflowVar) -> Any:
        """Visit a dataflow variable where it is introduced."""
        return var


def _inherited(self: Any, expr: ir.Node) -> Any:
    return self.visit_expr_post_order(expr)


_inherited.__doc__ = "Visit what the expression is made of."
for _name in _METHODS.values():
    setattr(_Functor, _name, _inherited)


class PyExprVisitor(_Functor):
    """Visits every expression, binding and variable of a program."""

    def visit_expr_post_order(self, expr: Any) -> None:
        """Visit what an expression is made of."""
        if isinstance(expr, ir.Function):
            for p in expr.params:
                self.visit_var_def(p)
            self.visit_expr(expr.body)
        elif isinstance(expr, SeqExpr):
            for block in expr.blocks:
                self.visit_binding_block(block)
            self.visit_expr(expr.body)
        else:
            for e in _operands(expr):
                self.visit_expr(e)

    def visit_var_binding_(self, binding: Binding) -> None:
        """Visit the value, then the variable."""
        self.visit_expr(binding.value)
        self.visit_var_def(binding.var)

    visit_match_cast_ = visit_var_binding_


class PyExprMutator(_Functor):
    """Rewrites a program: ``builder_`` is the block builder that new bindings go to; unchanged parts stay themselves.

    Parameters
    ----------
    mod : IRModule, optional
        Where functions that are called are found; ``builder_.get()`` has it with what was added.
    """

    def __init__(self, mod: ir.IRModule | None = None) -> None:
        self.builder_ = BlockBuilder(mod)
        self._renamed: dict[ir.ExprVar, Any] = {}
        self._values: dict[ir.ExprVar, ir.Expr] = {}

    def visit_expr_post_order(self, expr: Any) -> Any:
        """Return an expression with its parts rewritten; itself if none changed."""
        if isinstance(expr, ir.ExprVar):
            return self._renamed.get(expr, expr)
        if isinstance(expr, ir.Function):
            return self._function(expr)
        if isinstance(expr, SeqExpr):
            return self._sequence(expr)
        old = _operands(expr)
        if isinstance(expr, ir.If):
            new = [self.visit_expr(expr.cond), *[self.with_new_scope(b) for b in old[1:]]]
        else:
            new = [self.visit_expr(e) for e in old]
        if all(a is b for a, b in zip(old, new, strict=True)):
            return expr
        if isinstance(expr, ir.Call):
            return ir.Call(new[0], tuple(new[1:]), expr.attrs, expr.ty_args, span=expr.span)
        if isinstance(expr, ir.Tuple):
            return ir.Tuple(tuple(new), span=expr.span)
        if isinstance(expr, ir.TupleGetItem):
            return ir.TupleGetItem(new[0], expr.index, span=expr.span)
        return ir.If(*new, span=expr.span)

    def with_new_scope(self, expr: ir.Expr) -> Any:
        """Rewrite a branch or a function's body; what it emits stays inside."""
        if isinstance(expr, SeqExpr):
            return self.visit_expr(expr)
        with self.builder_.scope() as inner:
            self.builder_.open_block(inner, dataflow=False)
            body = self.visit_expr(expr)
            if body is expr and not self.builder_.bindings():
                return expr
            return self.builder_.finish(inner, self.builder_.atom(body))

    def _function(self, func: ir.Function) -> ir.Function:
        params = tuple(self.visit_var_def(p) for p in func.params)
        self._renamed.update((p, q) for p, q in zip(func.params, params, strict=True) if p is not q)
        body = self.with_new_scope(func.body)
        if body is func.body and all(p is q for p, q in zip(func.params, params, strict=True)):
            return func
        new = func.replace(params=params, body=body)
        if not ir.structural_equal(body.ty, getattr(func.body, "ty", None)):
            new = new.replace(ret_ty=body.ty)
        return new.replace(ty=function_type(new))

    def _sequence(self, seq: SeqExpr) -> SeqExpr:
        with self.builder_.scope() as inner:
            for block in seq.blocks:
                self.builder_.add_block(inner, self.visit_binding_block(block))
            body = self.builder_.atom(self.visit_expr(seq.body))
            new = self.builder_.finish(inner, body)
        old, now = ([b for block in s.blocks for b in block.bindings] for s in (seq, new))
        same = body is seq.body and len(old) == len(now) and all(a is b for a, b in zip(old, now, strict=True))
        return seq if same else new

    def visit_binding_block_(self, block: BindingBlock) -> BindingBlock:
        """Return a block of its kind of what the bindings became."""
        with self.builder_.scope(isinstance(block, DataflowBlock)) as inner:
            super().visit_binding_block_(block)
            return self.builder_.block_of(inner)

    visit_dataflow_block_ = visit_binding_block_

    def visit_var_binding_(self, binding: VarBinding) -> None:
        """Emit the binding with its value rewritten."""
        value = self.builder_.normalize(self.visit_expr(binding.value))
        var = self._defined(binding, value)
        unchanged = value is binding.value and var is binding.var
        self._emit(binding if unchanged else VarBinding(var, value, span=binding.span))

    def visit_match_cast_(self, binding: MatchCast) -> None:
        """Emit the binding with its value rewritten."""
        value = self.builder_.atom(self.visit_expr(binding.value))
        var = self.visit_var_def(binding.var)
        self.set_var_remap(binding.var, var)
        unchanged = value is binding.value and var is binding.var
        self._emit(binding if unchanged else MatchCast(var, value, binding.ty, span=binding.span))

    def _emit(self, binding: Binding) -> None:
        self._values[binding.var] = binding.value
        self.builder_.emit_normalized(binding)

    def _defined(self, binding: VarBinding, value: ir.Expr) -> ir.ExprVar:
        """Return the variable of a rewritten binding: a new one where the type changed."""
        var = self.visit_var_def(binding.var)
        if value is not binding.value and value.ty is not None:
            var = self.with_type(var, value.ty)
        self.set_var_remap(binding.var, var)
        return var

    @also_called(struct_info="ty")
    def with_type(self, var: ir.ExprVar, ty: ir.Type | None) -> ir.ExprVar:
        """Return a variable of this type: the same where it has it, else a new one of the name."""
        same = var.ty is ty or (ty is not None and var.ty is not None and ir.structural_equal(var.ty, ty))
        return var if same else type(var)(var.name_hint, ty, span=var.span)

    with_struct_info = with_type

    @also_called(vid="var", old_var="var")
    def set_var_remap(self, var: ir.ExprVar, new_var: ir.Expr) -> None:
        """Replace a variable in what is visited from here on."""
        if new_var is not var:
            self._renamed[var] = new_var

    @also_called(vid="var")
    def get_var_remap(self, var: ir.ExprVar) -> Any:
        """Return what a variable was replaced by, or itself."""
        return self._renamed.get(var, var)

    def lookup_binding(self, var: ir.ExprVar) -> ir.Expr | None:
        """Return the rewritten value of a variable, or None."""
        return self._values.get(var)
