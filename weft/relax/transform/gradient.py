"""Gradient: to a function, another that also returns what its result changes by when its parameters change.

Reverse mode: the adjoint of the result is 1, and each binding, from the last to the first, adds to the adjoints of its
operands what its operator's rule (``FPrimalGradient``) says.

Source: Griewank and Walther, *Evaluating Derivatives*, 2008; TVM's ``Gradient``.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from weft import ir, op
from weft.error import InvalidArgument, UnsupportedOperator
from weft.relax import gradient_more_rules as gradient_more_rules  # its import registers rules
from weft.relax.block_builder import BlockBuilder
from weft.relax.core_ops import is_op
from weft.relax.expr import Binding, DataflowBlock, DataflowVar, MatchCast, Var, VarBinding
from weft.relax.gradient_rules import te_gradient_of
from weft.relax.infer import function_type, type_of
from weft.relax.rename import copy_with_new_vars
from weft.relax.rewriter import all_bindings, rewrite_bindings
from weft.relax.unused import remove_all_unused


def Gradient(
    func_name: str, require_grads: ir.ExprVar | Sequence[ir.ExprVar] | None = None, target_index: int = 0
) -> ir.Pass:
    """Make the pass that adds ``<func_name>_adjoint``, which returns the results and the tuple of adjoints.

    The function has one dataflow block; the result that is differentiated is a float scalar.

    Parameters
    ----------
    require_grads : Var or sequence of Var, optional
        Parameters, or variables of the block, whose adjoints are returned; by default all parameters.
    target_index : int
        Which result is differentiated, where there are several.
    """
    given = isinstance(require_grads, Sequence)
    wanted = require_grads if given or require_grads is None else [require_grads]

    def run(mod: ir.IRModule) -> ir.IRModule:
        """Add the function."""
        func = mod[func_name] if func_name in mod else None
        if not isinstance(func, ir.Function):
            raise InvalidArgument(f"the module has no Relax function '{func_name}'")
        places = _places(func, wanted)
        state = _Adjoint(copy_with_new_vars(func), mod, places, target_index)
        new, new_module = state.function(), state.bb.get()
        out = mod.with_functions(new_module.functions).copy()
        name = f"{func_name}_adjoint"
        out[name] = new.with_attr("global_symbol", name)
        return out

    return ir.Pass("Gradient", run, 0, Gradient.__doc__)


def _places(func: ir.Function, wanted: Sequence[Any] | None) -> list[int]:
    """Return which of a function's variables need adjoints."""
    if wanted is None:
        return list(range(len(func.params)))
    places = []
    for v in wanted:
        at = next((i for i, own in enumerate(_variables(func)) if own is v), None)
        if at is None or at in places:
            problem = "is no variable of the function" if at is None else "is asked for twice"
            raise InvalidArgument(f"'{getattr(v, 'name_hint', v)}' {problem}")
        if not _is_float(type_of(v)):
            raise InvalidArgument(f"'{v.name_hint}' has no gradient: it is no float tensor", found=str(v.ty))
        places.append(at)
    return places


def _variables(func: ir.Function) -> list[Any]:
    return [*func.params, *(b.var for b in all_bindings(func))]


def _is_float(ty: ir.Type) -> bool:
    if isinstance(ty, ir.TupleType):
        return all(_is_float(f) for f in ty.fields)
    return isinstance(ty, ir.TensorType) and bool(ty.dtype) and ir.DataType(ty.dtype).is_float


class _Adjoint:
    """The adjoints found so far, while bindings are walked backwards."""

    def __init__(self, func: ir.Function, mod: ir.IRModule, places: list[int], target: int) -> None:
        seq: Any = func.body
        if len(seq.blocks) != 1 or not isinstance(seq.blocks[0], DataflowBlock):
            raise InvalidArgument(
                "Gradient takes functions of one dataflow block",
                found=", ".join(type(block).__name__ for block in seq.blocks),
                help="put all bindings into one `with R.dataflow():`; branches have no gradients",
            )
        self.func, self.seq, self.places = func, seq, places
        self.bb = BlockBuilder(mod)
        self.adjoint: dict[Any, Any] = {}
        self.target = self._target(seq.body, target)
        self.forward = _Checkpoints(seq.blocks[0].bindings, func.params, self.bb)

    @staticmethod
    def _target(result: ir.Expr, index: int) -> Any:
        results = result.fields if isinstance(result, ir.Tuple) else (result,)
        if not 0 <= index < len(results):
            raise InvalidArgument("target_index names no result", expected=f"0..{len(results) - 1}", found=str(index))
        ty = type_of(results[index])
        if not isinstance(results[index], ir.ExprVar) or not _is_float(ty) or getattr(ty, "ndim", -1) != 0:
            raise InvalidArgument("what is differentiated must be a float scalar", found=str(ty))
        return results[index]

    def function(self) -> ir.Function:
        """Make the function that returns adjoints, too."""
        with self.bb.scope(dataflow=True) as scope:
            for b in self.forward.bindings:
                self.bb.emit_normalized(b)
            ty = self.target.ty
            self.set(self.target, op.make_call("ones")(ir.shape_expr(ty.shape), ty.dtype))
            for b in reversed(self.forward.bindings):
                if b.var in self.adjoint:
                    self.back(b)
            outs = []
            for var in (_variables(self.func)[i] for i in self.places):
                known = self.forward.renamed.get(var, var)
                if known not in self.adjoint:
                    self.set(known, self.zeros(type_of(known)))
                outs.append(self.bb.emit_output(self.adjoint[known], f"{var.name_hint}_adjoint_out"))
            result: Any = ir.Tuple((self.seq.body, ir.Tuple(tuple(outs))))
            body = self.bb.finish(scope, self.bb.normalize(result, atom=False))
        made = self.func.replace(body=body, ret_ty=body.ty)
        made = _plain_kernels(remove_all_unused(made.replace(ty=function_type(made))), self.bb.module)
        return made.replace(ty=function_type(made))

    def set(self, var: Var, value: ir.Expr) -> None:
        """Bind the adjoint of a variable."""
        self.adjoint[var] = self.bb.emit(value, f"{var.name_hint}_adjoint")

    def back(self, b: Binding) -> None:
        """Add to the adjoints of the operands of a binding."""
        value, g = b.value, self.adjoint[b.var]
        if isinstance(b, MatchCast) or isinstance(value, (ir.If, ir.Function)):
            raise InvalidArgument("Gradient does not go through this binding", where=b.span, found=b.var.name_hint)
        if isinstance(value, ir.Call):
            self.back_call(b, value, g)
        elif isinstance(value, ir.TupleGetItem):
            self.back_item(value.tuple_value, value.index, g)
        elif isinstance(value, (ir.ExprVar, ir.Tuple)):
            self.update(value, g)

    def back_call(self, b: Binding, call: ir.Call, g: ir.Expr) -> None:
        if not isinstance(call.op, ir.Op):
            raise UnsupportedOperator("Gradient goes through operators only", where=b.span, found=str(call.op))
        rule = call.op.get_attr("FPrimalGradient")
        var, again = self.forward.again(b)
        if is_op(call, "call_tir_with_grad"):
            self.back_kernel(call, again, g)
            return
        if rule is None:
            raise UnsupportedOperator(
                f"{call.op.name} has no gradient", where=b.span, help="register_gradient(op_name, fn) gives it one"
            )
        partials = rule(var, again, g, self.bb)
        for operand, partial in zip(call.args, partials, strict=True):
            if not is_op(partial, "grad.no_grad"):
                self.update(operand, partial)

    def back_kernel(self, call: Any, again: Any, g: ir.Expr) -> None:
        """Ask the registered te function of a kernel."""
        partials: Any = te_gradient_of(again, g, self.bb)
        for i, operand in enumerate(call.args[1].fields):
            many = isinstance(partials.ty, ir.TupleType)
            self.update(operand, ir.TupleGetItem(partials, i) if many else partials)

    def back_item(self, whole: Any, index: int, g: ir.Expr) -> None:
        if whole not in self.adjoint:
            fields = list(self.zeros(type_of(whole)).fields)
            fields[index] = g
        else:
            known = self.adjoint[whole]
            n = len(type_of(whole).fields)  # type: ignore[attr-defined]
            fields = [self.field(known, i) for i in range(n)]
            fields[index] = self.plus(fields[index], g)
        self.set(whole, ir.Tuple(tuple(fields)))

    def field(self, value: ir.Expr, i: int) -> Any:
        """Take a field of an adjoint, of a tuple that is written down without a binding."""
        return value.fields[i] if isinstance(value, ir.Tuple) else self.typed(ir.TupleGetItem(value, i))

    def update(self, operand: ir.Expr, partial: ir.Expr) -> None:
        """Add an adjoint to that of an operand, field by field for tuples."""
        if isinstance(operand, ir.Tuple):
            partial = self.typed(partial)
            if not isinstance(partial, (ir.ExprVar, ir.Tuple)):
                partial = self.bb.emit(partial)
            for i, f in enumerate(operand.fields):
                self.update(f, self.field(partial, i))
        elif isinstance(operand, ir.ExprVar) and not isinstance(operand, ir.GlobalVar):
            new = self.typed(partial)
            self.set(operand, self.plus(self.adjoint[operand], new) if operand in self.adjoint else new)

    def plus(self, a: ir.Expr, b: ir.Expr) -> ir.Expr:
        """Add adjoints, field by field for tuples."""
        ty = type_of(a)
        if isinstance(ty, ir.TupleType):
            pairs = range(len(ty.fields))
            return ir.Tuple(tuple(self.plus(self.field(a, i), self.field(b, i)) for i in pairs))
        return op.make_call("add")(a, b)

    def typed(self, expr: ir.Expr) -> Any:
        """Infer the type of an expression, binding what is nested in it."""
        return self.bb.normalize(expr, atom=False)

    def zeros(self, ty: ir.Type) -> Any:
        """Make the adjoint of what nothing depends on."""
        if isinstance(ty, ir.TupleType):
            return ir.Tuple(tuple(self.zeros(f) for f in ty.fields))
        if not isinstance(ty, ir.TensorType) or ty.shape is None:
            raise InvalidArgument("the adjoint of a value needs its shape", found=str(ty))
        return op.make_call("zeros")(ir.shape_expr(ty.shape), ty.dtype)


class _Checkpoints:
    """The bindings without marks; between ``start_checkpoint`` and ``end_checkpoint`` values are computed again."""

    def __init__(self, bindings: Any, params: Any, bb: BlockBuilder) -> None:
        self.bb = bb
        self.kept: dict[Any, Any] = {p: p for p in params}
        self.values: dict[Any, Any] = {}
        self.bindings: list[Any] = []
        self.renamed: dict[Any, Any] = {}
        again: set[Any] = set()  # what is computed again, and so what uses it, up to the end of its part
        for b in bindings:
            value = _renamed(b.value, self.renamed)
            start, end = (is_op(value, f"grad.{n}_checkpoint") for n in ("start", "end"))
            if start or end:
                source = value.args[0]
                if not isinstance(b.var, DataflowVar) and isinstance(source, DataflowVar):
                    self.bindings.append(VarBinding(b.var, source, span=b.span))
                    self.kept[b.var] = b.var
                else:
                    self.renamed[b.var] = source
                if start:
                    again.add(b.var)
                    self.kept[source] = source
                continue
            if any(v in again for v in _vars(b.value)):
                again.add(b.var)
            else:
                self.kept[b.var] = b.var
            self.values[b.var] = value
            self.bindings.append(b if value is b.value else VarBinding(b.var, value, span=b.span))

    def again(self, b: Binding) -> tuple[Any, ir.Call]:
        """Return the value of a binding and its call, over values that are there or are computed again."""
        call = _renamed(b.value, {v: self.value(v) for v in _vars(b.value)})
        if b.var not in self.kept:
            self.kept[b.var] = self.bb.emit(call, f"{b.var.name_hint}_cp")
        return self.kept[b.var], call

    def value(self, var: Var) -> Any:
        """Return a variable that is there, or compute it again."""
        if var not in self.kept and var in self.values:
            value = self.values[var]
            again = _renamed(value, {v: self.value(v) for v in _vars(value)})
            self.kept[var] = self.bb.emit(again, f"{var.name_hint}_cp")
        return self.kept.get(var, var)


def _vars(expr: Any) -> list[Any]:
    from_ = {ir.Call: lambda e: e.args, ir.Tuple: lambda e: e.fields, ir.TupleGetItem: lambda e: (e.tuple_value,)}
    if isinstance(expr, ir.ExprVar):
        return [expr]
    parts = from_.get(type(expr))
    return [v for p in parts(expr) for v in _vars(p)] if parts else []


def _renamed(expr: ir.Expr, renamed: dict[Any, Any]) -> Any:
    if expr in renamed:
        return renamed[expr]
    if isinstance(expr, ir.Call):
        return ir.with_fields(expr, args=tuple(_renamed(a, renamed) for a in expr.args))
    if isinstance(expr, ir.Tuple):
        return ir.with_fields(expr, fields=tuple(_renamed(f, renamed) for f in expr.fields))
    if isinstance(expr, ir.TupleGetItem):
        return ir.with_fields(expr, tuple_value=_renamed(expr.tuple_value, renamed))
    return expr


def _plain_kernels(func: ir.Function, mod: ir.IRModule) -> ir.Function:
    """Call kernels without the note of their gradients."""

    def rule(_binding: object, value: Any, _bb: BlockBuilder) -> ir.Expr | None:
        if not is_op(value, "call_tir_with_grad"):
            return None
        return ir.Call(ir.Op.get("relax.call_tir"), value.args, ty_args=value.ty_args, span=value.span, ty=value.ty)

    return rewrite_bindings(func, mod, rule)


def pullback(func: ir.Function) -> ir.Function:
    """Make the function that takes adjoints back from the result of a function to its parameters.

    Parameters
    ----------
    func : Function
        One dataflow block of operators that have gradients.

    Returns
    -------
    Function
        It has the same parameters and, behind them, the adjoint of the result (for a tuple, of its type), and returns
        the tuple of the adjoints of the float parameters.
    """
    places = [i for i, p in enumerate(func.params) if _is_float(type_of(p))]
    func = rewrite_bindings(func, ir.IRModule(), _taken_apart)
    return _Pullback(copy_with_new_vars(func), ir.IRModule(), places, 0).function()


def _taken_apart(_binding: object, value: ir.Expr, _bb: BlockBuilder) -> ir.Expr | None:
    """Write an operator without a gradient of its own as simpler ones, if its declaration says how."""
    if not isinstance(value, ir.Call) or not isinstance(value.op, ir.Op):
        return None
    if value.op.name.removeprefix("relax.") not in op.list_ops() or value.op.get_attr("FPrimalGradient") is not None:
        return None
    decompose = op.get_op_def(value.op).decompose
    return None if decompose is None else decompose(*value.args, **dict(value.attrs.items))


class _Pullback(_Adjoint):
    """The adjoints of a function whose result's adjoint is a parameter."""

    @staticmethod
    def _target(result: Any, index: int) -> Any:
        return result

    def function(self) -> ir.Function:
        """Make the function that returns adjoints."""
        seed = ir.ExprVar("adjoint", type_of(self.target))
        params = [*self.func.params, seed]
        with self.bb.function("pullback", params):
            with self.bb.dataflow():
                for b in self.forward.bindings:
                    self.bb.emit_normalized(b)
                self.update(self.target, seed)
                for b in reversed(self.forward.bindings):
                    if b.var in self.adjoint:
                        self.back(b)
                wanted = [self.func.params[i] for i in self.places]
                found = [self.adjoint[p] if p in self.adjoint else self.zeros(type_of(p)) for p in wanted]
                out = self.bb.emit_output(ir.Tuple(tuple(found)))
            self.bb.emit_func_output(out)
        made: Any = self.bb.get()["pullback"]
        return remove_all_unused(made)
