"""Regions: runs of operator calls in A-normal form, each of which becomes one Relax function.

A region grows binding by binding (:meth:`Region.add`); what it becomes is up to a pass.
"""

from __future__ import annotations

from contextlib import ExitStack
from typing import Any

from weft import ir, relax
from weft.relay.expr import Call, Function, Tuple, TupleGetItem, Var
from weft.relay.from_relax import Bindings
from weft.relay.op.annotation import BARRIERS
from weft.relay.op.registry import get, has
from weft.relay.to_relax import RelaxBuilder


def is_operator(value: ir.Expr) -> bool:
    """Whether an operation is a call of tensor operators: one that Relax knows, or of a group of them."""
    if not isinstance(value, Call) or not _is_tensors(value.ty):
        return False
    if isinstance(value.op, Function):
        return bool(value.op.attrs.get("Primitive"))
    if not isinstance(value.op, ir.Op) or not has(value.op.name) or value.op.name in BARRIERS:
        return False
    return get(value.op).expand is not None


def is_glue(value: ir.Expr) -> bool:
    """Whether an operation only names tensors, packs them or takes them out of tuples."""
    return isinstance(value, (Tuple, TupleGetItem, ir.Constant, Var)) and _is_tensors(value.ty)


def _is_tensors(ty: ir.Type | None) -> bool:
    if isinstance(ty, ir.TupleType):
        return all(map(_is_tensors, ty.fields))
    return isinstance(ty, ir.TensorType)


class Region(RelaxBuilder):
    """A region that grows; its Relax function gets a parameter for each tensor that comes from outside.

    Parameters
    ----------
    outside : dict
        By variable, the values of bindings outside that are glue: constants and tuples are looked through.
    """

    def __init__(self, outside: dict[Var, Any]) -> None:
        super().__init__(relax.BlockBuilder())
        self.outside = outside
        self.members: list[tuple[Var, Any]] = []
        self.before: Bindings = []
        self._args: list[tuple[Any, ir.ExprVar]] = []
        self._elements: list[tuple[Any, ir.ExprVar]] = []
        self._stack = ExitStack()
        self._stack.enter_context(self.bb.function("main"))
        self._dataflow = self._stack.enter_context(ExitStack())
        self._dataflow.enter_context(self.bb.dataflow())

    def takes(self, value: ir.Expr) -> bool:
        """Whether the dimensions that an operation takes from tensors are known before the region runs."""
        if not isinstance(value, Call) or not isinstance(value.op, ir.Op):
            return True
        for spec, arg in zip(get(value.op).inputs, value.args, strict=False):
            made = self.env.get(arg) if spec.kind == "values" else None
            if made is not None and not self._is_known(made):
                return False
        return True

    def _is_known(self, tensor: ir.Expr) -> bool:
        return any(p is tensor for _, p in self._args) or self.values.of(tensor) is not None

    def add(self, var: Var, value: ir.Expr) -> None:
        """Take a binding in."""
        self.define(var, self.convert(value))
        self.members.append((var, value))

    def abandon(self, error: BaseException) -> None:
        """Leave the function under construction behind, because of an error."""
        self._stack.__exit__(type(error), error, error.__traceback__)

    @property
    def args(self) -> list[Any]:
        """The expressions outside that the function's tensor parameters stand for."""
        return [a for a, _ in self._args]

    @property
    def element_args(self) -> list[Any]:
        """The tensors outside whose elements are dimensions, for the parameters that are shapes."""
        return [a for a, _ in self._elements]

    def leaves(self, outputs: list[Var]) -> list[Any]:
        """List the Relax tensors that variables are made of."""
        return [leaf for v in outputs for leaf in _leaves(self.env[v])]

    def finish(self, outputs: list[Var]) -> ir.IRModule:
        """Return the module of the region's function ``main``, which returns the tensors of `outputs`."""
        results = [self.bb.emit_output(leaf) if _is_local(leaf, self._args) else leaf for leaf in self.leaves(outputs)]
        self._dataflow.close()
        self.bb.emit_func_output(ir.Tuple(tuple(results)), [p for _, p in (*self._args, *self._elements)])
        self._stack.close()
        return self.bb.get()

    def assembled(self, outputs: list[Var], leaves: list[Any]) -> Bindings:
        """Bind variables to what expressions for the tensors of :meth:`leaves` make of them."""
        rest, made = iter(leaves), []
        for v in outputs:
            value = _assembled(self.env[v], rest, v.ty, made)
            made.append((v, value))
        return made

    def free(self, var: Var) -> Any:
        """Make a parameter of a tensor from outside; a tuple is taken apart in front of the region."""
        glue = self.outside.get(var)
        seen = self._looked_through(glue) if glue is not None else None
        if seen is not None:
            return self.convert(seen)
        if not isinstance(var.ty, ir.TupleType):
            made = self.param(var)
            self._args.append((var, made))
            return made
        fields = []
        for i, ty in enumerate(var.ty.fields):
            field = Var(f"{var.name_hint}_{i}", ty)
            self.before.append((field, TupleGetItem(var, i, ty=ty)))
            fields.append(self.convert(field))
        return self.bb.atom(ir.Tuple(tuple(fields)))

    def _looked_through(self, value: ir.Expr) -> Any:
        """Return the expression that a value outside is, where it is a constant, a tuple or a field of a tuple."""
        while isinstance(value, Var) and value in self.outside:
            value = self.outside[value]
        if isinstance(value, TupleGetItem):
            whole = self._looked_through(value.tuple_value)
            return whole.fields[value.index] if isinstance(whole, Tuple) else None
        return value if isinstance(value, (Tuple, ir.Constant, Var)) else None

    def name_elements(self, tensor: ir.Expr, n: int) -> tuple[ir.PrimExpr, ...]:
        """Make a parameter of the elements of a tensor from outside, as a shape."""
        dims = tuple(self.fresh_dim() for _ in range(n))
        source = next(a for a, p in self._args if p is tensor)
        self._elements.append((source, ir.ExprVar(self.bb.fresh_name("elements"), ir.ShapeType(dims, n))))
        return dims


def _is_local(leaf: ir.Expr, args: list[tuple[Any, ir.ExprVar]]) -> bool:
    return isinstance(leaf, (ir.ExprVar, ir.TupleGetItem)) and not any(p is leaf for _, p in args)


def _leaves(value: ir.Expr) -> list[Any]:
    """The tensors in the value of a variable, in order."""
    if isinstance(value, ir.Tuple):
        return [leaf for f in value.fields for leaf in _leaves(f)]
    if isinstance(value.ty, ir.TupleType):
        return [leaf for i, t in enumerate(value.ty.fields) for leaf in _leaves(ir.TupleGetItem(value, i, ty=t))]
    return [value]


def _assembled(value: ir.Expr, leaves: Any, ty: Any, made: Bindings) -> Any:
    """Put the tensors of :func:`_leaves` together again; tuples inside of tuples are bound in `made`."""
    if not isinstance(value.ty, ir.TupleType):
        return next(leaves)
    fields: list[Any] = []
    for i, t in enumerate(ty.fields):
        part = value.fields[i] if isinstance(value, ir.Tuple) else ir.TupleGetItem(value, i, ty=value.ty.fields[i])
        field = _assembled(part, leaves, t, made)
        if isinstance(field, Tuple):
            made.append((Var("fields", t), field))
            field = made[-1][0]
        fields.append(field)
    return Tuple(tuple(fields), ty=ty)
