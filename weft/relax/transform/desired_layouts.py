"""ConvertLayout as programs ask for it: operators in the layouts that they name, and others as their operands come."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from weft import ir, op, tir
from weft.relax.block_builder import BlockBuilder
from weft.relax.expr import Binding, DataflowBlock, DataflowVar, MatchCast, SeqExpr
from weft.relax.rewriter import rewrite_bindings
from weft.relax.transform.infer_layout import has_blocks, infer_layouts, initial_layout
from weft.relax.transform.panels import permute
from weft.tir.schedule import IndexMap


def converted(
    func: ir.Function,
    mod: ir.IRModule,
    desired_layouts: Mapping[str, Sequence[str]],
    layout_cb: Callable[[ir.Call], Mapping[str, Sequence[str]]] | None,
) -> ir.Function:
    """Bring the operators of dataflow blocks into wanted layouts; values keep theirs while operators can follow."""
    wanted = {str(k): [str(v) for v in layouts] for k, layouts in desired_layouts.items()}
    return _Converter(func, wanted, layout_cb).run(mod)


class _Converter:
    """The layouts of a function's variables so far."""

    def __init__(self, func: ir.Function, wanted: Any, layout_cb: Any) -> None:
        self.func, self.wanted, self.layout_cb = func, wanted, layout_cb
        self.layouts: dict[Any, Any] = {}
        blocks = func.body.blocks if isinstance(func.body, SeqExpr) else ()
        self.inside = {b.var for block in blocks if isinstance(block, DataflowBlock) for b in block.bindings}

    def run(self, mod: ir.IRModule) -> ir.Function:
        """Return the function, converted."""
        return rewrite_bindings(self.func, mod, self.rule)

    def rule(self, binding: Binding, value: ir.Expr, bb: BlockBuilder) -> Any:
        """Convert a binding."""
        if binding.var not in self.inside:
            return None
        if isinstance(binding, MatchCast):
            return self.match_cast(binding, value, bb)
        if isinstance(value, ir.Call):
            return self.call(binding, value, bb)
        kept = isinstance(binding.var, DataflowVar)
        if isinstance(value, ir.Tuple):
            made = ir.Tuple(value.fields, span=value.span) if kept else self.to_initial(value)
            return self.bound(binding, made, self.of(value), bb)
        if isinstance(value, ir.TupleGetItem):
            whole = value.tuple_value if kept else self.to_initial(value.tuple_value)
            item = ir.TupleGetItem(whole, value.index, span=value.span)  # whose type is that of the value now
            return self.bound(binding, item, self.of(whole)[value.index], bb)
        return value if kept else self.to_initial(value)

    def bound(self, binding: Binding, value: ir.Expr, layout: Any, bb: BlockBuilder) -> Any:
        """Bind a value and note its layout; what leaves the block has its own."""
        own = initial_layout(binding.var.ty)
        if layout == own or not isinstance(binding.var, DataflowVar):
            return value if layout != own or value is not binding.value else None
        var = bb.emit(value)
        self.layouts[var] = layout
        return var

    def call(self, binding: Binding, call: ir.Call, bb: BlockBuilder) -> Any:
        """Convert a call, and back what leaves the block."""
        wanted = self.wanted if self.layout_cb is None else self.layout_cb(call)
        have = tuple(map(self.of, call.args))
        found = infer_layouts(binding.value, have, wanted)
        own = initial_layout(binding.var.ty)
        inputs = tuple(initial_layout(a.ty) for a in binding.value.args)
        args = [self.to(a, v) for a, v in zip(call.args, found.inputs if found else inputs, strict=True)]
        if found is None:
            return call if have == inputs else ir.Call(call.op, tuple(args), call.attrs, call.ty_args, span=call.span)
        if found.output == own and have == inputs == tuple(found.inputs):
            return call
        name = call.op.name.removeprefix("relax.")  # type: ignore[union-attr]
        new = op.make_call(name)(*args, **dict(found.attrs.items))
        if isinstance(binding.var, DataflowVar) or found.output == own:
            return self.bound(binding, new, found.output, bb)
        var = bb.emit(new)
        self.layouts[var] = found.output
        return self.to(var, own)

    def match_cast(self, binding: Any, value: Any, bb: BlockBuilder) -> Any:
        """Check the dimensions where they lie now."""
        layout, ty = self.of(value), binding.ty
        if layout is None or layout == _initial(layout):
            return None
        if has_blocks(layout):
            return self.to_initial(value)
        if not isinstance(ty, ir.TensorType) or ty.shape is None or not isinstance(binding.var, DataflowVar):
            return self.to_initial(value)
        shape = tuple(ty.shape[ord(c) - ord("A")] for c in layout)
        var = bb.match_cast(value, ir.TensorType(shape, ty.dtype, ty.ndim, ty.vdevice))
        self.layouts[var] = layout
        return var

    def of(self, e: ir.Expr) -> Any:
        """Return the layout that a value has."""
        if isinstance(e, ir.Tuple):
            return tuple(self.of(f) for f in e.fields)
        return self.layouts[e] if e in self.layouts else initial_layout(e.ty)

    def to_initial(self, e: ir.Expr) -> Any:
        """Return a value in the order that the program gave it."""
        return self.to(e, _initial(self.of(e)))

    def to(self, e: ir.Expr, layout: Any, have: Any = None) -> Any:
        """Return a value in a layout, from the one that it has."""
        have = self.of(e) if have is None else have
        if layout is None or have == layout:
            return e
        if isinstance(have, tuple):
            fields = e.fields if isinstance(e, ir.Tuple) else [ir.TupleGetItem(e, i) for i in range(len(have))]
            return ir.Tuple(tuple(self.to(f, to, v) for f, to, v in zip(fields, layout, have, strict=True)))
        if has_blocks(have) or has_blocks(layout):
            return op.make_call("layout_transform")(e, index_map=_index_map(have, layout))
        return permute(e, tuple(have.index(c) for c in layout))


def _index_map(have: str, layout: str) -> IndexMap:
    """Return where the elements of a tensor in one layout lie in another."""
    variables = tuple(ir.Var(f"i{n}", "int32") for n in range(sum(map(str.isalpha, have))))
    return IndexMap(variables, tir.BijectiveLayout(have, layout).forward_index(variables))


def _initial(layout: Any) -> Any:
    """Return the order that the program gave what has a layout."""
    if isinstance(layout, tuple):
        return tuple(_initial(v) for v in layout)
    return layout and "".join(sorted(c for c in layout if c.isupper()))
