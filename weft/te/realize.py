"""Turn realized regions into allocations: buffers of the region's size, indexed from its start."""

from typing import Any

from weft import arith, ir, tir

_NOTES = ("double_buffer_scope", "buffer_dim_align")


def realize_buffers(stmt: tir.Stmt) -> tir.Stmt:
    """Replace every :class:`~weft.tir.BufferRealize` by an allocation.

    Requires each buffer to be realized once. Ensures that indices into it start at zero; a mark
    ``double_buffer_scope`` or ``buffer_dim_align`` becomes a note on the allocation.
    """
    analyzer = arith.Analyzer()
    regions: dict[tir.Buffer, tuple[tir.Buffer, tuple[ir.Range, ...]]] = {}

    def collect(node: Any) -> Any:
        if isinstance(node, tir.BufferRealize):
            buffer = node.buffer
            shape = tuple(analyzer.simplify(r.extent) for r in node.bounds)
            small = tir.decl_buffer(
                shape,
                buffer.dtype,
                buffer.name,
                data=buffer.data,
                scope=buffer.scope,
                data_alignment=buffer.data_alignment,
            )
            regions[buffer] = (small, node.bounds)
        return None

    ir.rewrite(stmt, lambda n: n, pre=collect)

    def shift(indices: tuple[ir.PrimExpr, ...], bounds: tuple[ir.Range, ...]) -> tuple[ir.PrimExpr, ...]:
        return tuple(
            i if ir.is_const_int(r.min, 0) else analyzer.simplify(i - r.min)
            for i, r in zip(indices, bounds, strict=True)
        )

    def replace(node: Any) -> Any:
        if isinstance(node, tir.BufferLoad) and node.buffer in regions:
            small, bounds = regions[node.buffer]
            return tir.BufferLoad(small, shift(node.indices, bounds), node.predicate)
        if isinstance(node, tir.BufferStore) and node.buffer in regions:
            small, bounds = regions[node.buffer]
            return tir.BufferStore(small, node.value, shift(node.indices, bounds), node.predicate)
        if isinstance(node, (tir.BufferRegion, tir.Prefetch)) and node.buffer in regions:
            small, bounds = regions[node.buffer]
            ranges = node.region if isinstance(node, tir.BufferRegion) else node.bounds
            moved = shift(tuple(r.min for r in ranges), bounds)
            return type(node)(
                small, tuple(ir.Range.from_min_extent(m, r.extent) for m, r in zip(moved, ranges, strict=True))
            )
        if isinstance(node, tir.BufferRealize):
            return tir.AllocBuffer(regions[node.buffer][0], node.body)
        if (
            isinstance(node, tir.AttrStmt)
            and node.attr_key in _NOTES
            and isinstance(alloc := node.body, tir.AllocBuffer)
        ):
            value: Any = node.value
            if node.attr_key == "buffer_dim_align":
                value = (*(alloc.annotations.get(node.attr_key) or ()), tuple(map(int, node.value.value.split(","))))
            return tir.AllocBuffer(alloc.buffer, alloc.body, ir.Attrs.of(alloc.annotations, **{node.attr_key: value}))
        return node

    return ir.rewrite(stmt, replace)
