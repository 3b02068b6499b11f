"""The statement tree: children, paths, loops above a block, and rewriting along a path."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import msgspec

from weft import ir
from weft.tir.buffer import BufferRegion
from weft.tir.stmt import (
    AllocBuffer,
    Block,
    BlockRealize,
    BufferStore,
    Evaluate,
    For,
    IfThenElse,
    SeqStmt,
    Stmt,
    While,
    seq,
)

replace_node = msgspec.structs.replace
"""Return a copy of a node with some fields changed."""

_IS_STMT = ir.SubclassTable(Stmt)
_children = ir.Dispatch(
    "statement children",
    covers=(Stmt,),
    default=lambda s: tuple([v for f in s.__struct_fields__ if _IS_STMT[type(v := getattr(s, f))]]),
)
_children.on(BufferStore, Evaluate)(lambda s: ())
_children.on(SeqStmt)(lambda s: s.seq)
_children.on(For)(lambda s: (s.body,))
_children.on(BlockRealize)(lambda s: (s.block,))
_children.on(Block)(lambda s: (s.body,) if s.init is None else (s.init, s.body))
_children.on(IfThenElse)(lambda s: (s.then_case,) if s.else_case is None else (s.then_case, s.else_case))


def stmt_children(stmt: Stmt) -> tuple[Stmt, ...]:
    """Return the statements directly inside `stmt`, in order of execution."""
    return _children(stmt)


def statements(stmt: Stmt, into_blocks: bool = True) -> Iterator[Stmt]:
    """Yield `stmt` and the statements below it, parents first; bodies of blocks below it only where `into_blocks`."""
    stack = [stmt]
    while stack:
        s = stack.pop()
        yield s
        if into_blocks or s is stmt or type(s) is not Block:
            stack += _children.rule[type(s)](s)[::-1]


_JUMPS = {"tir.continue_loop": 1, "tir.break_loop": 2}


def jump(stmt: Stmt) -> int:
    """Return 1 for a statement that continues its loop, 2 for one that leaves it, 0 for any other."""
    call = stmt.value if isinstance(stmt, Evaluate) else None
    return _JUMPS.get(getattr(call.op, "name", ""), 0) if isinstance(call, ir.CallIntrin) else 0


def jumps_out(stmt: Stmt) -> Iterator[int]:
    """Yield the jumps in a statement that belong to a loop around it."""
    if jump(stmt):
        yield jump(stmt)
    elif not isinstance(stmt, (For, While)):
        for s in stmt_children(stmt):
            yield from jumps_out(s)


def map_children(stmt: Stmt, f: Callable[[Stmt], Stmt]) -> Stmt:
    """Return `stmt` with `f` applied to the statements directly inside; itself where nothing changed."""
    if type(stmt) is SeqStmt:
        new = [f(s) for s in stmt.seq]
        for a, b in zip(new, stmt.seq, strict=True):
            if a is not b:
                return seq(*new)
        return stmt
    changes = {}
    for name in stmt.__struct_fields__:
        old = getattr(stmt, name)
        if _IS_STMT[type(old)]:
            new_child = f(old)
            if new_child is not old:
                changes[name] = new_child
    return replace_node(stmt, **changes) if changes else stmt


def replace_stmt(root: Stmt, old: Stmt, new: Stmt) -> Stmt:
    """Replace the statement `old`, that very node, below `root`."""
    path = path_to(root, lambda s: s is old)
    assert path is not None, "the statement to replace is not in the tree"
    return rebuild_path(path, new)


def rebuild_path(path: list[Stmt], new: Stmt | None) -> Stmt:
    """Put `new` in place of the end of `path` and rebuild its ancestors."""
    below, current = path[-1], new
    for parent in reversed(path[:-1]):
        assert current is not None
        current = map_children(parent, lambda s, b=below, c=current: c if s is b else s)  # type: ignore[misc]
        below = parent
    assert current is not None
    return current


def remove_stmt(root: Stmt, old: Stmt) -> Stmt:
    """Remove `old` below `root`, with the loops and sequences that it leaves empty.

    Its enclosing block must keep something.
    """
    path = path_to(root, lambda s: s is old)
    assert path is not None
    while len(path) > 1 and not (isinstance(path[-2], SeqStmt) and len(path[-2].seq) > 1):
        assert not isinstance(path[-2], Block), "a block cannot lose its whole body"
        path = path[:-1]
    parent = path[-2]
    assert isinstance(parent, SeqStmt)
    rest = seq(*[s for s in parent.seq if s is not path[-1]])
    return rebuild_path(path[:-1], rest)


def path_to(root: Stmt, found: Callable[[Stmt], bool]) -> list[Stmt] | None:
    """Return the statements from `root` down to the first for which `found` holds."""
    path: list[Stmt] = []

    def go(s: Stmt) -> bool:
        path.append(s)
        if found(s):
            return True
        for c in _children.rule[type(s)](s):
            if go(c):
                return True
        path.pop()
        return False

    return path if go(root) else None


class Paths:
    """The ways from a statement down to those below it, found in one visit: of schedules, which ask many times."""

    def __init__(self, root: Stmt) -> None:
        self.root = root
        self._parents: dict[Stmt, Stmt] = {}
        self._named: dict[Any, Stmt] = {}
        stack = [root]
        while stack:
            s = stack.pop()
            kind = type(s)
            if kind is For:
                self._named.setdefault(s.loop_var, s)  # type: ignore[attr-defined]
            elif kind is BlockRealize:
                self._named.setdefault(s.block.name_hint, s)  # type: ignore[attr-defined]
            below = _children.rule[kind](s)
            for child in below:
                self._parents.setdefault(child, s)
            stack += below[::-1]

    def to(self, stmt: Stmt) -> list[Stmt] | None:
        """Return the statements from the root down to `stmt`, that very node; None where it is not below."""
        path = [stmt]
        while path[-1] is not self.root:
            parent = self._parents.get(path[-1])
            if parent is None:
                return None
            path.append(parent)
        return path[::-1]

    def named(self, name: ir.Var | str) -> list[Stmt] | None:
        """Return the statements from the root down to the loop of a variable or the realization of a block."""
        found = self._named.get(name)
        return None if found is None else self.to(found)


def child_realizes(stmt: Stmt) -> list[BlockRealize]:
    """List the block realizations below `stmt` that are not inside another block below it, in order."""
    result: list[BlockRealize] = []

    def go(s: Stmt) -> None:
        if isinstance(s, BlockRealize):
            result.append(s)
            return
        for c in stmt_children(s):
            go(c)

    for c in stmt_children(stmt) if isinstance(stmt, Block) else (stmt,):
        go(c)
    return result


def blocks_in(stmt: Stmt) -> list[Block]:
    """List all blocks below `stmt`, outer ones first."""
    return [s for s in statements(stmt) if type(s) is Block]


def used_vars(*nodes: Any) -> set[ir.Var]:
    """Return the variables that occur in `nodes`."""
    return set(ir.find(nodes, ir.Var))


def subst_stmt(stmt: ir.Node | tuple[Any, ...], mapping: Mapping[Any, ir.PrimExpr]) -> Any:
    """Replace variables in a statement, expression or tuple; variables of an equal mapping keep identity."""
    mapping = {k: v for k, v in mapping.items() if k is not v}
    return ir.substitute(stmt, mapping) if mapping else stmt


def clone_fresh(stmt: Stmt, rename: Callable[[str], str]) -> tuple[Stmt, dict[ir.Var, ir.Var], dict[str, str]]:
    """Copy a statement with fresh loop and block variables and block names, to stand beside the original.

    Returns
    -------
    (Stmt, dict, dict)
        The copy, the new variable of each old one, the new name of each block.
    """
    variables: dict[ir.Var, ir.Var] = {}
    names: dict[str, str] = {}
    for s in statements(stmt):
        if isinstance(s, For):
            variables[s.loop_var] = replace_node(s.loop_var)
        elif isinstance(s, Block):
            names[s.name_hint] = rename(s.name_hint)
            for iv in s.iter_vars:
                variables[iv.var] = replace_node(iv.var)
    memo: dict[Any, Any] = dict(variables)

    def go(node: Any) -> Any:
        if not isinstance(node, ir.Node):
            return node
        hit = memo.get(node)
        if hit is None:
            hit = ir.rebuild(node, go)
            if isinstance(hit, Block):
                hit = replace_node(hit, name_hint=names[hit.name_hint])
            memo[node] = hit
        return hit

    return go(stmt), variables, names


def iter_values_of(realize: BlockRealize) -> dict[ir.Var, ir.PrimExpr]:
    """Map the variables of a block to the values that its realization gives them."""
    return {iv.var: value for iv, value in zip(realize.block.iter_vars, realize.iter_values, strict=True)}


def fresh_iter_var(iv: ir.IterVar) -> ir.IterVar:
    """Copy an iteration variable with a new variable."""
    return replace_node(iv, var=replace_node(iv.var))


def subst_regions(regions: tuple[BufferRegion, ...], mapping: Mapping[ir.Var, ir.PrimExpr]) -> tuple[BufferRegion, ...]:
    """Replace variables in regions; the buffers stay."""
    return tuple(replace_node(r, region=subst_stmt(r.region, mapping)) for r in regions)


def conjuncts(condition: ir.PrimExpr) -> list[ir.PrimExpr]:
    """Split a condition at its ``and``s."""
    if isinstance(condition, ir.And):
        return conjuncts(condition.a) + conjuncts(condition.b)
    return [] if isinstance(condition, ir.IntImm) and condition.value else [condition]


def init_nest(realize: BlockRealize, loops: list[For], name: str) -> Stmt:
    """Build the loops over a reduction block's spatial variables that run its init, as block `name`.

    `loops` are those around the block from the one before which the init is to run.
    """
    block = realize.block
    pairs = [
        (fresh_iter_var(iv), iv.var, value)
        for iv, value in zip(block.iter_vars, realize.iter_values, strict=True)
        if iv.iter_type == "data_par"
    ]
    to_new = {old: iv.var for iv, old, _ in pairs}
    needed: set[ir.Var] = set()
    for _, _, value in pairs:
        needed |= used_vars(value)
    chosen = [f for f in loops if f.loop_var in needed]
    loop_map = {f.loop_var: replace_node(f.loop_var) for f in chosen}
    dropped = {f.loop_var for f in loops} - set(loop_map)
    predicate: ir.PrimExpr = ir.TRUE
    for c in conjuncts(realize.predicate):
        if used_vars(c).isdisjoint(dropped):
            predicate = ir.logical_and(predicate, subst_stmt(c, loop_map))
    assert block.init is not None
    init_block = Block(
        tuple(iv for iv, _, _ in pairs),
        (),
        subst_regions(block.writes, to_new),
        name,
        subst_stmt(block.init, to_new),
        annotations=block.annotations,
    )
    body: Stmt = BlockRealize(tuple(subst_stmt(value, loop_map) for _, _, value in pairs), predicate, init_block)
    for f in reversed(chosen):
        body = replace_node(f, loop_var=loop_map[f.loop_var], body=body)
    return body


def empty_inits(stmt: Stmt) -> Iterator[tuple[list[ir.PrimExpr], For, Stmt]]:
    """Yield for each reduction that may be empty its extents, its outermost loop, and the nest that runs its init.

    Where an extent is 0 the block itself never runs; the nest leaves the identity that the sum of nothing is.
    """
    stack: list[tuple[Stmt, tuple[For, ...]]] = [(stmt, ())]
    while stack:
        s, loops = stack.pop()
        if isinstance(s, BlockRealize) and s.block.init is not None:
            reducing = [
                (iv.dom.extent, value)
                for iv, value in zip(s.block.iter_vars, s.iter_values, strict=True)
                if iv.iter_type == "reduce" and iv.dom is not None
            ]
            extents = [e for e, _ in reducing if not isinstance(e, ir.IntImm) or e.value == 0]
            fed = used_vars(*[v for _, v in reducing])
            at = next((i for i, f in enumerate(loops) if f.loop_var in fed), None)
            if extents and at is not None:
                yield extents, loops[at], init_nest(s, list(loops[at:]), s.block.name_hint)
        inner = () if isinstance(s, Block) else (*loops, s) if isinstance(s, For) else loops
        stack.extend((c, inner) for c in stmt_children(s))


def fresh_definitions(node: Stmt) -> dict[Any, Any]:
    """What to put for the loop variables and the buffers that a statement defines, where a second copy of it stands."""
    fresh: dict[Any, Any] = {}
    for n in ir.walk(node):
        if isinstance(n, For):
            fresh[n.loop_var] = ir.Var(n.loop_var.name, n.loop_var.dtype)
        elif isinstance(n, AllocBuffer):
            own = replace_node(n.buffer, data=ir.Var(n.buffer.data.name, n.buffer.data.dtype))
            fresh.update({n.buffer: own, n.buffer.data: own.data})
    return fresh
