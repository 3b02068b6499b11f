"""Where buffers are used: the innermost block or loop that has all uses of one."""

from itertools import takewhile

from weft import ir
from weft.tir.buffer import Buffer, BufferLoad
from weft.tir.function import PrimFunc
from weft.tir.stmt import AttrStmt, BlockRealize, BufferStore, For, Stmt

_Path = tuple[Stmt, ...]


def buffer_access_lca(func: PrimFunc) -> dict[Buffer, Stmt | None]:
    """Return for each buffer that a function uses the innermost block or loop with all of its uses, or None.

    What a reduction accumulates is used by all steps of its loops, and so is what a block addresses by variables that
    are neither data parallel nor reduced. Global memory is outside of all loops that launch blocks of threads.
    """
    found = _Uses({b.data: b for _, b in func.buffer_map})
    found.visit(func.body, ())
    for buffer, path in found.lca.items():
        if buffer.scope == "global":
            for launch in found.launches:
                path = _common(path, launch)
            found.lca[buffer] = path
    return {buffer: path[-1] if path else None for buffer, path in found.lca.items()}


def _common(a: _Path, b: _Path) -> _Path:
    return tuple(x for x, _ in takewhile(lambda pair: pair[0] is pair[1], zip(a, b, strict=False)))


class _Uses:
    """Visits a function; paths are the blocks and loops around a place, outermost first."""

    def __init__(self, memory: dict[ir.Var, Buffer]) -> None:
        self.memory = memory
        self.lca: dict[Buffer, _Path] = {}
        self.launches: list[_Path] = []
        self.matched: set[Buffer] = set()
        self.outside: dict[ir.Var, _Path] = {}

    def use(self, buffer: Buffer, path: _Path) -> None:
        """Note that a buffer is used at a place."""
        owner = self.memory.setdefault(buffer.data, buffer)
        if owner is not buffer:
            self.use(owner, path)
        if buffer not in self.matched:
            self.lca[buffer] = _common(self.lca[buffer], path) if buffer in self.lca else path

    def visit(self, node: ir.Node, path: _Path) -> None:
        """Visit a node."""
        if isinstance(node, For):
            self.outside[node.loop_var] = path
            path = (*path, node)
            if node.thread_binding is not None and node.thread_binding.thread_tag.startswith("blockIdx"):
                self.launches.append(path)
        elif isinstance(node, AttrStmt) and node.attr_key == "thread_extent":
            if node.node.thread_tag.startswith("blockIdx"):
                self.launches.append(path)
        elif isinstance(node, BlockRealize):
            self.block(node, path)
            return
        elif isinstance(node, (BufferLoad, BufferStore)):
            self.use(node.buffer, path)
        elif isinstance(node, ir.Var) and node in self.memory:
            self.use(self.memory[node], path)
        if not isinstance(node, Buffer):
            for child in ir.children(node):
                self.visit(child, path)

    def block(self, realize: BlockRealize, path: _Path) -> None:
        """Visit a block: what it carries from step to step is used outside of the loops that step."""
        block = realize.block
        inner = (*path, block)
        self.memory.update((b.data, b) for b in block.alloc_buffers)
        around: dict[ir.Var, _Path] = {}
        for iv, value in zip(block.iter_vars, realize.iter_values, strict=True):
            loops = [self.outside[v] for v in ir.find(value, ir.Var) if v in self.outside]
            if iv.iter_type != "data_par" and loops:
                around[iv.var] = min(loops, key=len)
                carries = () if iv.iter_type == "reduce" else block.writes
                for region in carries:
                    self.use(region.buffer, around[iv.var])
        reduced = [around[iv.var] for iv in block.iter_vars if iv.iter_type == "reduce" and iv.var in around]
        opaque = {iv.var for iv in block.iter_vars if iv.iter_type != "reduce"} & set(around)
        for region in (*(block.reads if opaque else ()), *(block.writes if around else ())):
            steps = [around[v] for v in ir.find(region.region, ir.Var) if v in opaque]
            writes = reduced if any(region is w for w in block.writes) else []
            self.use(region.buffer, min([inner, *steps, *writes], key=len))
        for match in block.match_buffers:
            self.use(match.source.buffer, inner)
            self.matched.add(match.buffer)
        for child in (*realize.iter_values, realize.predicate):
            self.visit(child, path)
        for part in (block.init, block.body):
            if part is not None:
                self.visit(part, inner)
