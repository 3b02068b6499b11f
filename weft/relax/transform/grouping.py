"""Groups of bindings become private functions, and calls of them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from weft import error, ir
from weft.relax.analysis import free_symbolic_vars
from weft.relax.block_builder import BlockBuilder
from weft.relax.core_ops import is_op
from weft.relax.expr import Binding, DataflowBlock, DataflowVar, MatchCast, SeqExpr, Var, VarBinding
from weft.relax.infer import function_type, type_of
from weft.relax.rename import replace_value, variables, with_sequences
from weft.relax.rewriter import all_bindings
from weft.relax.transform.partition import Group


def group_functions(
    func: ir.Function, groups: Mapping[Any, Group], bb: BlockBuilder, lift_constants: bool = True
) -> ir.Function:
    """Outline the groups of a function's dataflow blocks; equal groups share a function of the module.

    Parameters
    ----------
    groups : mapping of Var to Group
        Groups of one node without attributes stay as they are.
    lift_constants : bool
        Whether constants are arguments of a group, rather than part of it.
    """
    state = _Grouping(func, groups, bb, lift_constants)
    return func.replace(body=state.seq(func.body))


class _Grouping:
    def __init__(self, func: ir.Function, groups: Mapping[Any, Group], bb: BlockBuilder, lift_constants: bool) -> None:
        self.groups, self.bb, self.lift_constants = groups, bb, lift_constants
        self.values: dict[Any, Any] = {b.var: b.value for b in all_bindings(func) if not isinstance(b, MatchCast)}

    def seq(self, seq: Any) -> Any:
        if not isinstance(seq, SeqExpr):
            return seq
        return ir.with_fields(seq, blocks=tuple(self.block(b) for b in seq.blocks))

    def block(self, block: Any) -> Any:
        if isinstance(block, DataflowBlock):
            return self.dataflow(block)
        bindings = tuple(replace_value(b, with_sequences(b.value, self.seq)) for b in block.bindings)
        return ir.with_fields(block, bindings=bindings)

    def group_of(self, var: Var) -> Group | None:
        """Return the group that a variable belongs to, if it becomes a function."""
        group = self.groups[var].root if var in self.groups else None
        return None if group is None or (group.num_nodes == 1 and not group.attrs) else group

    def dataflow(self, block: DataflowBlock) -> DataflowBlock:
        made: dict[Group, _GroupFunction] = {}
        for b in block.bindings:
            group = self.group_of(b.var)
            if group is not None:
                made.setdefault(group, _GroupFunction(self.lift_constants, self.values)).append(b)
        if not made:
            return block
        order = self.sorted(block, made)
        out: list[Any] = []
        for b in order:
            group = self.group_of(b.var)
            if group is None:
                out.append(b)
            elif made[group].outputs and made[group].bindings[-1] is b:
                out += made[group].call(self.bb, group.attrs, [x.var for x in order])
        return DataflowBlock(tuple(out), span=block.span)

    def sorted(self, block: DataflowBlock, made: dict[Group, _GroupFunction]) -> list[Any]:
        """Order the bindings so that groups follow those that they need, and note what leaves each group."""
        owner: dict[Any, Any] = {b.var: self.group_of(b.var) or b for b in block.bindings}
        needs: dict[Any, list[Any]] = {o: [] for o in owner.values()}
        for b in block.bindings:
            for v in dict.fromkeys(reversed(variables(b.value))):
                if v in owner and owner[v] is not owner[b.var]:
                    needs[owner[b.var]].append(owner[v])
                    if isinstance(owner[v], Group):
                        made[owner[v]].output(v)
        members: dict[Any, list[Any]] = {}
        for b in block.bindings:
            members.setdefault(owner[b.var], []).append(b)
        order: list[Any] = []
        done: set[Any] = set()
        active: set[Any] = set()
        for b in block.bindings:
            stack = [(owner[b.var], False)]
            while stack:
                node, ready = stack.pop()
                if ready:
                    active.discard(node)
                    done.add(node)
                    order += members[node]
                elif node in active:
                    raise error.InvalidArgument("groups of operators need each other's results", found=b.var.name_hint)
                elif node not in done:
                    active.add(node)
                    stack.append((node, True))
                    stack += [(n, False) for n in reversed(needs[node]) if n not in done]
        return order


class _GroupFunction:
    """A function under construction: its bindings, what it takes and what it returns."""

    def __init__(self, lift_constants: bool, values: Mapping[Any, Any]) -> None:
        self.lift_constants, self.values = lift_constants, values
        self.name = "fused"
        self.bindings: list[Any] = []
        self.defined: set[Any] = set()
        self.outputs: list[Any] = []
        self.args: list[Any] = []
        self.params: list[Any] = []
        self.inlined: dict[Any, Any] = {}
        self.n_constants = 0
        self.picked: dict[Any, list[int] | None] = {}  # of tuples: the fields that are read, None for all

    def append(self, binding: Binding) -> None:
        """Add a binding in order."""
        value = binding.value
        if isinstance(value, ir.TupleGetItem):
            self.need(value.tuple_value)
            picked = self.picked.get(value.tuple_value)
            if picked is not None and value.index not in picked:
                picked.append(value.index)
        else:
            whole = self._operands(value) if isinstance(value, ir.Call) else (value,)
            parts = [p for e in whole for p in (e.fields if isinstance(e, ir.Tuple) else (e,))]
            for part in parts if isinstance(value, (ir.Call, ir.Tuple)) else variables(value):
                self.need(part)
                if isinstance(getattr(part, "ty", None), ir.TupleType):
                    self.picked[part] = None
        self.defined.add(binding.var)
        if not isinstance(binding.var, DataflowVar):
            self.output(binding.var)
        self.bindings.append(binding)

    def _operands(self, call: ir.Call) -> tuple[Any, ...]:
        """Take the operands of a call, and its name as a part of the function's."""
        if is_op(call, "call_tir") or is_op(call, "call_tir_inplace"):
            self.name += "_" + call.args[0].name_hint  # type: ignore[attr-defined]
            return (call.args[1],)
        own = call.op.name if isinstance(call.op, ir.Op) else getattr(call.op, "name_hint", "")
        self.name += ("_" + own.removeprefix("fused_")) if own else ""
        return call.args

    def need(self, expr: ir.Expr) -> None:
        """Make a parameter of what comes from outside."""
        if any(a is expr for a in self.args) or expr in self.defined or expr in self.inlined:
            return
        if isinstance(expr, (ir.GlobalVar, ir.ExternFunc)) or (
            isinstance(expr, ir.Constant) and not self.lift_constants
        ):
            return
        value = expr
        while isinstance(value, ir.ExprVar) and value in self.values:
            value = self.values[value]
        if _is_inlinable(value):
            if value is not expr:
                self.inlined[expr] = value
            return
        if isinstance(expr, ir.ExprVar):
            name = expr.name_hint
        else:
            name = f"param_{self.n_constants}"
            self.n_constants += 1
        ty = type_of(expr)
        self.args.append(expr)
        self.params.append(Var(name, ty))
        if isinstance(ty, ir.TupleType):
            self.picked.setdefault(expr, [])

    def output(self, var: Var) -> None:
        """Note that something else reads a variable."""
        if var not in self.outputs:
            self.outputs.append(var)

    def call(self, bb: BlockBuilder, attrs: Mapping[str, Any], order: list[Any]) -> list[VarBinding]:
        """Make the function, and the bindings that call it."""
        func = self.function(attrs)
        gvar = bb.add_func(func, self.name.replace(".", "_"))
        last = self.bindings[-1]
        parts: list[Any] = []
        for i, a in enumerate(self.args):
            if isinstance(a, ir.TupleGetItem):
                self.args[i] = DataflowVar("lv", a.ty)
                parts.append(VarBinding(self.args[i], a))
        call = ir.Call(gvar, tuple(self.args), span=last.value.span, ty=func.ret_ty)
        if len(self.outputs) == 1:
            return [*parts, VarBinding(self.outputs[0], call, span=last.span)]
        var = DataflowVar("lv", func.ret_ty, span=last.span)
        fields = sorted(self.outputs, key=order.index)
        items = [VarBinding(v, ir.TupleGetItem(var, self.outputs.index(v), ty=v.ty)) for v in fields]
        return [*parts, VarBinding(var, call, span=last.span), *items]

    def function(self, attrs: Mapping[str, Any]) -> ir.Function:
        """Make the function of the group."""
        fields = self._split_tuples()
        renamed: dict[Any, Any] = {**self.inlined, **dict(zip(self.args, self.params, strict=True))}
        bindings: list[Any] = []
        for b in self.bindings:
            value = b.value
            if isinstance(value, ir.TupleGetItem) and (value.tuple_value, value.index) in fields:
                renamed[b.var] = fields[value.tuple_value, value.index]
                continue
            value = _replaced(value, renamed)
            var = (Var if b.var in self.outputs else DataflowVar)(b.var.name_hint, b.var.ty, span=b.var.span)
            renamed[b.var] = var
            bindings.append(VarBinding(var, value, span=b.span))
        results = [renamed[v] for v in self.outputs]
        result = results[0] if len(results) == 1 else ir.Tuple(tuple(results))
        ty = type_of(result)
        if isinstance(result, ir.Tuple):
            result = ir.Tuple(result.fields, ty=ty)
        body = SeqExpr((DataflowBlock(tuple(bindings)),), result, ty=ty)
        func = ir.Function(tuple(self.params), body, ty, True, ir.Attrs.of({**attrs, "Primitive": True}))
        return with_free_dims(func, self.args)

    def _split_tuples(self) -> dict[tuple[Any, int], Any]:
        """Take the fields that are read, where nothing reads a whole tuple; return their parameters."""
        found: dict[tuple[Any, int], Any] = {}
        for whole, places in self.picked.items():
            if not places or whole not in self.args:
                continue
            at = next(i for i, a in enumerate(self.args) if a is whole)
            name, ty = self.params[at].name_hint, type_of(whole)
            params = [Var(f"{name}_{i}", ty.fields[i]) for i in places]  # type: ignore[attr-defined]
            self.args[at : at + 1] = [ir.TupleGetItem(whole, i, ty=p.ty) for i, p in zip(places, params, strict=True)]
            self.params[at : at + 1] = params
            found.update({(whole, i): p for i, p in zip(places, params, strict=True)})
        return found


def with_free_dims(func: ir.Function, args: list[ir.Expr]) -> ir.Function:
    """Return a function that is taken out of another one: dimensions that no parameter names come as one more.

    Parameters
    ----------
    func : Function
        Without a type.
    args : list of Expr
        What it is called with, to which the dimensions are added.
    """
    free = free_symbolic_vars(func)
    if free:
        args.append(ir.shape_expr(tuple(free)))
        func = func.replace(params=(*func.params, Var("tir_vars", args[-1].ty)))
    return func.replace(ty=function_type(func))


def _replaced(expr: Any, renamed: Mapping[Any, Any]) -> Any:
    """Replace operands, constants among them."""
    if expr in renamed:
        return renamed[expr]
    if isinstance(expr, ir.Call):
        args = tuple(_replaced(a, renamed) for a in expr.args)
        return ir.Call(_replaced(expr.op, renamed), args, expr.attrs, expr.ty_args, span=expr.span, ty=expr.ty)
    if isinstance(expr, ir.Tuple):
        return ir.Tuple(tuple(_replaced(f, renamed) for f in expr.fields), span=expr.span, ty=expr.ty)
    if isinstance(expr, ir.TupleGetItem):
        return ir.TupleGetItem(_replaced(expr.tuple_value, renamed), expr.index, span=expr.span, ty=expr.ty)
    return expr


def _is_inlinable(expr: ir.Expr) -> bool:
    """Whether an operand is a scalar, a shape or a tuple of them without symbolic variables."""
    if isinstance(expr, ir.Tuple):
        return all(_is_inlinable(f) for f in expr.fields)
    if isinstance(expr, (ir.PrimValue, ir.ShapeExpr)):
        return not ir.find(expr, ir.Var)
    return isinstance(expr, (ir.ExprStringImm, ir.DataTypeImm))
