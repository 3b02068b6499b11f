"""Regions: runs of operator calls in A-normal form, each of which becomes one Relax function.

A region grows binding by binding (:meth:`Region.add`) and is then taken through Relax's passes. Regions of equal
structure are taken through them once.
"""

from __future__ import annotations

from contextlib import ExitStack
from typing import Any

from weft import ir
from weft.ir import Function as RelaxFunction
from weft.ir import IRModule, Op, Pass, PrimExpr, TensorType, fingerprint
from weft.ir import TupleType as IRTupleType
from weft.relax import BlockBuilder
from weft.relay.expr import Call, Function, Tuple, TupleGetItem, Var
from weft.relay.from_relax import Bindings, from_relax
from weft.relay.op.annotation import BARRIERS
from weft.relay.op.registry import get, has
from weft.relay.to_relax import RelaxBuilder
from weft.relay.transform.kernels import KernelTable
from weft.relay.transform.plain_dims import with_plain_dims

__all__ = ["Kernels", "Region", "is_glue", "is_operator"]


def is_operator(value: Any) -> bool:
    """Whether an operation is a call of tensor operators: one that Relax knows, or of a group of them."""
    if not isinstance(value, Call) or not _is_tensors(value.ty):
        return False
    if isinstance(value.op, Function):
        return bool(value.op.attrs.get("Primitive"))
    if not isinstance(value.op, Op) or not has(value.op.name) or value.op.name in BARRIERS:
        return False
    return get(value.op).expand is not None


def is_glue(value: Any) -> bool:
    """Whether an operation only names tensors, packs them or takes them out of tuples."""
    return isinstance(value, (Tuple, TupleGetItem, ir.Constant, Var)) and _is_tensors(value.ty)


def _is_tensors(ty: Any) -> bool:
    if isinstance(ty, IRTupleType):
        return all(map(_is_tensors, ty.fields))
    return isinstance(ty, TensorType)


class Kernels(KernelTable):
    """The kernels of the module that is made, and what regions became.

    Parameters
    ----------
    mod : IRModule
        The module.
    passes : Pass
        What takes a region to calls of kernels.
    """

    def __init__(self, mod: IRModule, passes: Pass) -> None:
        super().__init__(mod)
        self.passes = passes
        self._lowered: dict[str, tuple[RelaxFunction, IRModule]] = {}

    def lower(self, mod: IRModule) -> tuple[RelaxFunction, IRModule]:
        """Return the legalized form of a region's function ``main``, and the module with its kernels."""
        key = "".join(fingerprint(f) for _, f in mod.items())
        known = self._lowered.get(key)
        if known is None:
            done = self.passes(mod)
            known = self._lowered[key] = done["main"], done  # type: ignore[assignment]
        return known


class Region(RelaxBuilder):
    """A region that grows; its Relax function gets a parameter for each tensor that comes from outside.

    Parameters
    ----------
    outside : dict
        By ``id`` of variable, the values of bindings outside that are glue: constants and tuples are looked through.
    """

    def __init__(self, outside: dict[int, Any]) -> None:
        super().__init__(BlockBuilder())
        self.outside = outside
        self.members: list[tuple[Var, Any]] = []
        self.n_operators = 0
        self.before: Bindings = []
        self._args: list[tuple[Any, ir.ExprVar]] = []
        self._elements: list[tuple[Any, ir.ExprVar]] = []
        self._stack = ExitStack()
        self._stack.enter_context(self.bb.function("main", []))
        self._dataflow = self._stack.enter_context(ExitStack())
        self._dataflow.enter_context(self.bb.dataflow())

    def takes(self, value: Any) -> bool:
        """Whether the dimensions that an operation takes from tensors are known before the region runs."""
        if not isinstance(value, Call) or not isinstance(value.op, Op):
            return True
        for spec, arg in zip(get(value.op).inputs, value.args, strict=False):
            made = self.env.get(id(arg)) if spec.kind == "values" else None
            if made is not None and not self._is_known(made):
                return False
        return True

    def _is_known(self, tensor: Any) -> bool:
        return any(p is tensor for _, p in self._args) or self.values.of(tensor) is not None

    def add(self, var: Var, value: Any) -> None:
        """Take a binding in."""
        try:
            self.define(var, self.convert(value))
        except BaseException:
            self._stack.close()
            raise
        self.members.append((var, value))
        self.n_operators += is_operator(value)

    def free(self, var: Any) -> Any:
        """Make a parameter of a tensor from outside; a tuple is taken apart in front of the region."""
        glue = self.outside.get(id(var))
        seen = self._looked_through(glue) if glue is not None else None
        if seen is not None:
            return self.convert(seen)
        if not isinstance(var.ty, IRTupleType):
            made = self.param(var)
            self._args.append((var, made))
            return made
        fields = []
        for i, ty in enumerate(var.ty.fields):
            field = Var(f"{var.name_hint}_{i}", ty)
            self.before.append((field, TupleGetItem(var, i, ty=ty)))
            fields.append(self.convert(field))
        return self.bb.normalize(ir.Tuple(tuple(fields)))

    def _looked_through(self, value: Any) -> Any:
        """Return the expression that a value outside is, where it is a constant, a tuple or a field of a tuple."""
        while isinstance(value, Var) and id(value) in self.outside:
            value = self.outside[id(value)]
        if isinstance(value, TupleGetItem):
            whole = self._looked_through(value.tuple_value)
            return whole.fields[value.index] if isinstance(whole, Tuple) else None
        return value if isinstance(value, (Tuple, ir.Constant, Var)) else None

    def name_elements(self, tensor: Any, n: int) -> tuple[PrimExpr, ...]:
        """Make a parameter of the elements of a tensor from outside, as a shape."""
        dims = tuple(self.fresh_dim() for _ in range(n))
        source = next(a for a, p in self._args if p is tensor)
        self._elements.append((source, ir.ExprVar(self.bb.fresh_name("elements"), ir.ShapeType(dims, n))))
        return dims

    def close(self, outputs: list[Var], kernels: Kernels) -> Bindings:
        """Return the region's bindings in the lowered form; of its variables, `outputs` are bound."""
        leaves: list[Any] = []
        for v in outputs:
            leaves += _leaves(self.env[id(v)])
        results = [self.bb.emit_output(leaf) if _is_local(leaf, self._args) else leaf for leaf in leaves]
        self._dataflow.close()
        params = [p for _, p in (*self._args, *self._elements)]
        self.bb.emit_func_output(ir.Tuple(tuple(results)), params)
        self._stack.close()
        made, derived = with_plain_dims(self.bb.get())
        func, mod = kernels.lower(made)
        bindings, atoms = from_relax(
            func, [a for a, _ in self._args], [a for a, _ in self._elements], derived,
            lambda g: kernels.add(mod[g], g.name_hint),
        )  # fmt: skip
        rest = iter(atoms)
        named = [(v, _assembled(self.env[id(v)], rest, v.ty)) for v in outputs]
        used = _used(bindings + named)
        return [b for b in self.before if id(b[0]) in used] + _renamed(bindings, named)


def _is_local(leaf: Any, args: list[tuple[Any, ir.ExprVar]]) -> bool:
    return isinstance(leaf, (ir.ExprVar, ir.TupleGetItem)) and not any(p is leaf for _, p in args)


def _leaves(value: Any) -> list[Any]:
    """The tensors in the value of a variable, in order."""
    if isinstance(value, ir.Tuple):
        return [leaf for f in value.fields for leaf in _leaves(f)]
    if isinstance(value.ty, IRTupleType):
        return [leaf for i, t in enumerate(value.ty.fields) for leaf in _leaves(ir.TupleGetItem(value, i, ty=t))]
    return [value]


def _assembled(value: Any, leaves: Any, ty: Any) -> Any:
    """Put the tensors of :func:`_leaves` together again."""
    if isinstance(value.ty, IRTupleType):
        parts = value.fields if isinstance(value, ir.Tuple) else [ir.TupleGetItem(value, i, ty=t)
                                                                   for i, t in enumerate(value.ty.fields)]  # fmt: skip
        return Tuple(tuple(_assembled(p, leaves, t) for p, t in zip(parts, ty.fields, strict=True)), ty=ty)
    return next(leaves)


def _used(bindings: Bindings) -> set[int]:
    return {id(n) for _, value in bindings for n in ir.walk(value) if isinstance(n, Var)}


def _renamed(bindings: Bindings, named: Bindings) -> Bindings:
    """Bind the region's variables: in place of those that the lowered form made up, where they are just that."""
    own = {id(v): i for i, (v, _) in enumerate(bindings)}
    renamed: dict[Any, Any] = {}
    rest: Bindings = []
    for v, value in named:
        at = own.get(id(value))
        if at is not None and value not in renamed:
            renamed[value] = v
            bindings[at] = v, bindings[at][1]
        else:
            rest.append((v, value))
    return [(v, ir.substitute(value, renamed)) for v, value in (*bindings, *rest)]
