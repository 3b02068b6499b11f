"""AlterOpImpl: kernels of named operators become others, which may expect their tensors in another layout."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from weft import error, ir, op, te, tir
from weft.relax.block_builder import BlockBuilder
from weft.relax.core_ops import call_tir, is_op
from weft.relax.rewriter import rewrite_bindings
from weft.tir.schedule import IndexMap

OPERATOR = "operator_name"
"""The attribute of a kernel that says which operator it computes."""


def AlterOpImpl(
    op_impl_map: Mapping[str, tir.PrimFunc],
    op_buffer_transforms: Mapping[str, Sequence[IndexMap | Callable[..., Any]]],
    *_separators: object,
) -> ir.Pass:
    """Make the pass that calls other kernels in the place of those with an attribute ``operator_name``.

    Arguments are brought into the layout that the other kernel expects, and its results back, by ``layout_transform``.
    Separators of axes, which TVM 0.18 takes behind the layouts, say nothing about memory here.

    Parameters
    ----------
    op_impl_map : mapping from str to PrimFunc
        From the name of an operator to its kernel.
    op_buffer_transforms : mapping from str to list of IndexMap or callable
        From the name to the layout of each argument, then of each result; an empty list where nothing moves.

    Raises
    ------
    InvalidArgument
        When an operator has another number of layouts than its calls have arguments and results.
    """

    def run(mod: ir.IRModule) -> ir.IRModule:
        """Replace the kernels."""
        state = _Altered(mod, op_impl_map, op_buffer_transforms)
        for gvar, func in mod.items():
            if isinstance(func, ir.Function):
                state.bb.update_func(gvar, rewrite_bindings(func, mod, state.rule, state.bb))
        return mod.with_functions(state.bb.get().functions) if state.made else mod

    return ir.Pass("AlterOpImpl", run, 0, AlterOpImpl.__doc__)


class _Altered:
    """The kernels that calls got so far."""

    def __init__(self, mod: ir.IRModule, kernels: Mapping[str, tir.PrimFunc], layouts: Mapping[str, Any]) -> None:
        self.mod, self.kernels, self.layouts, self.bb = mod, kernels, layouts, BlockBuilder(mod)
        self.made: dict[Any, ir.GlobalVar] = {}

    def rule(self, binding: Any, value: Any, bb: BlockBuilder) -> ir.Expr | None:
        """Return what a call of a kernel becomes."""
        callee: Any = value.args[0] if is_op(value, "call_tir") else None
        kernel: Any = self.mod[callee] if callee in self.mod else None
        name: Any = kernel.attrs.get(OPERATOR) if isinstance(kernel, tir.PrimFunc) else None
        if name not in self.kernels:
            return None
        args = list(value.args[1].fields)
        types: list[Any] = [t for ty in value.ty_args for t in (ty.fields if isinstance(ty, ir.TupleType) else (ty,))]
        maps, count = [_moving(m) for m in self.layouts.get(name, ())], len(args) + len(types)
        if maps and len(maps) != count:
            raise error.InvalidArgument(
                f"AlterOpImpl: the layouts of '{name}'",
                where=value.span,
                expected=f"{len(args)} of arguments and {len(types)} of results, or none",
                found=str(len(maps)),
            )
        maps = maps or [None] * count
        move = op.make_call("layout_transform")
        moved = [a if m is None else bb.emit(move(a, index_map=m)) for a, m in zip(args, maps, strict=False)]
        parts = list(zip(types, maps[len(args) :], strict=True))
        outs = [t if m is None else ir.tensor_type(m.map_shape(t.shape), t.dtype) for t, m in parts]
        other = self.added(name, self.kernels[name], name.replace(".", "_") + "_replacement", name)
        whole: ir.Expr = call_tir(other, moved, outs, *value.args[2:])
        if all(m is None for _, m in parts):
            return whole
        whole = bb.emit(whole)
        if len(parts) == 1:
            return self.back(whole, *parts[0])
        items = [self.back(bb.emit(ir.TupleGetItem(whole, i)), *p) for i, p in enumerate(parts)]
        return ir.Tuple(tuple(map(bb.atom, items)))

    def added(self, key: Any, func: tir.PrimFunc, name: str, operator: str) -> ir.GlobalVar:
        """Add a kernel of an operator, once."""
        if key not in self.made:
            self.made[key] = self.bb.add_func(func.without_attr("global_symbol").with_attr(OPERATOR, operator), name)
        return self.made[key]

    def back(self, value: ir.Expr, ty: Any, layout: Any) -> ir.Expr:
        """Bring a result back, without the places that its layout added."""
        if layout is None:
            return value
        inverse, padded = layout.non_surjective_inverse(ty.shape)
        new = self.bb.atom(op.make_call("layout_transform")(value, index_map=inverse))
        if padded is ir.FALSE or ir.as_int(padded) == 0:
            return new
        key = len(ty.shape), str(ty.dtype)
        return call_tir(self.added(key, _beginning(*key), "remove_pad", "remove_pad"), [new], ty)


def _beginning(rank: int, dtype: str) -> tir.PrimFunc:
    """Make the kernel that takes the beginning of each dimension."""
    longer, shorter = ([ir.Var(f"{p}{i}", "int64") for i in range(rank)] for p in "pi")
    data = te.placeholder(longer, dtype, name="input")
    return te.create_prim_func([data, te.compute(shorter, lambda *i: data(*i), name="output")])


def _moving(layout: Any) -> IndexMap | None:
    """Return a layout as a map, without the separators that may stand beside it; None where every element stays."""
    layout = layout[0] if isinstance(layout, (tuple, list)) else layout
    layout = IndexMap.from_func(layout) if layout is not None and not isinstance(layout, IndexMap) else layout
    return None if layout is None or layout.initial_indices == layout.final_indices else layout
