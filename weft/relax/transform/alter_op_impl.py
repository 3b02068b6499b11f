"""AlterOpImpl: kernels of named operators become others, which may expect their tensors in another layout."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from weft import error, ir, te, tir
from weft.op import make_call
from weft.relax.block_builder import BlockBuilder
from weft.relax.core_ops import call_tir, is_op
from weft.relax.rewriter import rewrite_bindings
from weft.tir.schedule import IndexMap

OPERATOR = "operator_name"
"""The attribute of a kernel that says which operator it computes."""

Transform = IndexMap | Callable[..., Any]


Separators = Mapping[str, Sequence[Sequence[int]] | None]


def AlterOpImpl(
    op_impl_map: Mapping[str, tir.PrimFunc],
    op_buffer_transforms: Mapping[str, Sequence[Transform]],
    op_buffer_axis_separators: Separators | None = None,
    op_buffer_input_axis_separators: Separators | None = None,
) -> ir.Pass:
    """Make the pass that calls other kernels in the place of those with an attribute ``operator_name``.

    Arguments are brought into the layout that the other kernel expects, and its results back, by ``layout_transform``.

    Parameters
    ----------
    op_impl_map : mapping from str to PrimFunc
        From the name of an operator to its kernel.
    op_buffer_transforms : mapping from str to list of IndexMap or callable
        From the name to the layout of each argument, then of each result; an empty list where nothing moves.

    op_buffer_axis_separators, op_buffer_input_axis_separators : mapping, optional
        From the name to the attributes of this name that each ``layout_transform`` gets.

    Raises
    ------
    InvalidArgument
        When an operator has another number of layouts than its calls have arguments and results.
    """
    separators = {"axis_separators": op_buffer_axis_separators or {},
                  "input_axis_separators": op_buffer_input_axis_separators or {}}  # fmt: skip

    def run(mod: ir.IRModule) -> ir.IRModule:
        """Replace the kernels."""
        state = _Altered(mod, op_impl_map, op_buffer_transforms, separators)
        for gvar, func in mod.items():
            if isinstance(func, ir.Function):
                new = rewrite_bindings(func, mod, state.rule, state.bb)
                if new is not func:
                    state.bb.update_func(gvar, new)
        return mod.with_functions(state.bb.get().functions) if state.made else mod

    return ir.Pass("AlterOpImpl", run, 0, AlterOpImpl.__doc__)


class _Altered:
    """The kernels that calls got so far."""

    def __init__(
        self, mod: ir.IRModule, kernels: Mapping[str, tir.PrimFunc], layouts: Mapping[str, Sequence[Any]],
        separators: Mapping[str, Separators],
    ) -> None:  # fmt: skip
        self.separators = separators
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
        types = [t for ty in value.ty_args for t in (ty.fields if isinstance(ty, ir.TupleType) else (ty,))]
        maps = [_index_map(m) for m in self.layouts.get(name, ())]
        if maps and len(maps) != len(args) + len(types):
            raise error.InvalidArgument(f"AlterOpImpl: the layouts of '{name}'", where=value.span,
                                        expected=f"{len(args)} of arguments and {len(types)} of results, or none",
                                        found=str(len(maps)))  # fmt: skip
        maps = maps or [None] * (len(args) + len(types))
        attrs: list[dict[str, Any]] = [{} for _ in maps]
        for key, of in self.separators.items():
            for place, given in zip(attrs, of.get(name) or (), strict=False):
                place |= {key: tuple(int(i) for i in given)}
        moved = [
            a if m is None or _is_identity(m) else bb.emit(make_call("layout_transform")(a, index_map=m, **more))
            for a, m, more in zip(args, maps, attrs, strict=False)
        ]
        behind, after = maps[len(args) :], attrs[len(args) :]
        outs = [
            t if m is None else ir.tensor_type(m.map_shape(t.shape), t.dtype)
            for t, m in zip(types, behind, strict=True)
        ]
        call = call_tir(self.kernel(name), moved, outs, *value.args[2:])
        if all(m is None or _is_identity(m) for m in behind):
            return call
        whole = bb.emit(call)
        if len(types) == 1:
            return self.restored(whole, types[0], behind[0], after[0], bb)
        parts = enumerate(zip(types, behind, after, strict=True))
        return ir.Tuple(tuple([bb.atom(self.restored(bb.emit(ir.TupleGetItem(whole, i)), *z, bb)) for i, z in parts]))

    def kernel(self, name: str) -> ir.GlobalVar:
        """Add the other kernel of an operator, once."""
        if name not in self.made:
            func = self.kernels[name].without_attr("global_symbol").with_attr(OPERATOR, name)
            self.made[name] = self.bb.add_func(func, name.replace(".", "_") + "_replacement")
        return self.made[name]

    def restored(self, value: ir.Expr, ty: Any, layout: Any, attrs: dict[str, Any], bb: BlockBuilder) -> ir.Expr:
        """Bring a result back, without the places that its layout added."""
        if layout is None or _is_identity(layout):
            return value
        inverse, padded = layout.non_surjective_inverse(ty.shape)
        back = make_call("layout_transform")(value, index_map=inverse, **attrs)
        full = padded is ir.FALSE or ir.as_int(padded) == 0
        return back if full else call_tir(self.without_padding(ty), [bb.emit(back)], ty)

    def without_padding(self, ty: Any) -> ir.GlobalVar:
        """Return the kernel that takes the beginning of each dimension."""
        key = (len(ty.shape), str(ty.dtype))
        if key not in self.made:
            longer, shorter = ([ir.Var(f"{p}{i}", "int64") for i in range(key[0])] for p in "pi")
            data = te.placeholder(longer, ty.dtype, name="input")
            taken = te.compute(shorter, lambda *i: data(*i), name="output")
            func = te.create_prim_func([data, taken]).without_attr("global_symbol").with_attr(OPERATOR, "remove_pad")
            self.made[key] = self.bb.add_func(func, "remove_pad")
        return self.made[key]


def _index_map(layout: Any) -> IndexMap | None:
    """Return a layout as a map, without the separators that may stand beside it; None where nothing moves."""
    layout = layout[0] if isinstance(layout, (tuple, list)) else layout
    return IndexMap.from_func(layout) if layout is not None and not isinstance(layout, IndexMap) else layout


def _is_identity(layout: IndexMap) -> bool:
    """Whether a layout leaves every element where it is."""
    ends = layout.final_indices
    return len(ends) == len(layout.initial_indices) and all(
        a is b for a, b in zip(layout.initial_indices, ends, strict=True)
    )
