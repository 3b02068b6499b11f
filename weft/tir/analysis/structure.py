"""The statement tree: children, paths, loops above a block, and rewriting along a path."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, TypeGuard

import msgspec

from weft import arith, ir
from weft.arith.form import conjuncts
from weft.tir import stmt as stmts
from weft.tir.buffer import Buffer, BufferRegion

replace_node = msgspec.structs.replace
"""Return a copy of a node with some fields changed."""

_IS_STMT = ir.SubclassTable(stmts.Stmt)
_children = ir.Dispatch(
    "statement children",
    covers=(stmts.Stmt,),
    default=lambda s: tuple([v for f in s.__struct_fields__ if _IS_STMT[type(v := getattr(s, f))]]),
)
_children.on(stmts.BufferStore, stmts.Evaluate)(lambda s: ())
_children.on(stmts.SeqStmt)(lambda s: s.seq)
_children.on(stmts.For)(lambda s: (s.body,))
_children.on(stmts.BlockRealize)(lambda s: (s.block,))
_children.on(stmts.Block)(lambda s: (s.body,) if s.init is None else (s.init, s.body))
_children.on(stmts.IfThenElse)(lambda s: (s.then_case,) if s.else_case is None else (s.then_case, s.else_case))


def stmt_children(stmt: stmts.Stmt) -> tuple[stmts.Stmt, ...]:
    """Return the statements directly inside `stmt`, in order of execution."""
    return _children(stmt)


def statements(stmt: stmts.Stmt, into_blocks: bool = True) -> Iterator[stmts.Stmt]:
    """Yield `stmt` and the statements below it, parents first; bodies of blocks below it only where `into_blocks`."""
    stack = [stmt]
    while stack:
        s = stack.pop()
        yield s
        if into_blocks or s is stmt or type(s) is not stmts.Block:
            stack += _children.rule[type(s)](s)[::-1]


_JUMPS = {"tir.continue_loop": 1, "tir.break_loop": 2}


def jump(stmt: stmts.Stmt) -> int:
    """Return 1 for a statement that continues its loop, 2 for one that leaves it, 0 for any other."""
    call = stmt.value if isinstance(stmt, stmts.Evaluate) else None
    return _JUMPS.get(getattr(call.op, "name", ""), 0) if isinstance(call, ir.CallIntrin) else 0


def jumps_out(stmt: stmts.Stmt) -> Iterator[int]:
    """Yield the jumps in a statement that belong to a loop around it."""
    if jump(stmt):
        yield jump(stmt)
    elif not isinstance(stmt, (stmts.For, stmts.While)):
        for s in stmt_children(stmt):
            yield from jumps_out(s)


def map_children(stmt: stmts.Stmt, f: Callable[[stmts.Stmt], stmts.Stmt]) -> stmts.Stmt:
    """Return `stmt` with `f` applied to the statements directly inside; itself where nothing changed."""
    if type(stmt) is stmts.SeqStmt:
        new = [f(s) for s in stmt.seq]
        for a, b in zip(new, stmt.seq, strict=True):
            if a is not b:
                return stmts.seq(*new)
        return stmt
    changes = {}
    for name in stmt.__struct_fields__:
        old = getattr(stmt, name)
        if _IS_STMT[type(old)]:
            new_child = f(old)
            if new_child is not old:
                changes[name] = new_child
    return replace_node(stmt, **changes) if changes else stmt


def replace_stmt(root: stmts.Stmt, old: stmts.Stmt, new: stmts.Stmt) -> stmts.Stmt:
    """Replace the statement `old`, that very node, below `root`."""
    path = path_to(root, lambda s: s is old)
    assert path is not None, "the statement to replace is not in the tree"
    return rebuild_path(path, new)


def rebuild_path(path: list[stmts.Stmt], new: stmts.Stmt | None) -> stmts.Stmt:
    """Put `new` in place of the end of `path` and rebuild its ancestors."""
    below, current = path[-1], new
    for parent in reversed(path[:-1]):
        assert current is not None
        current = map_children(parent, lambda s, b=below, c=current: c if s is b else s)  # type: ignore[misc]
        below = parent
    assert current is not None
    return current


def remove_stmt(root: stmts.Stmt, old: stmts.Stmt) -> stmts.Stmt:
    """Remove `old` below `root`, with the loops and sequences that it leaves empty.

    Its enclosing block must keep something.
    """
    path = path_to(root, lambda s: s is old)
    assert path is not None
    while len(path) > 1 and not (isinstance(path[-2], stmts.SeqStmt) and len(path[-2].seq) > 1):
        assert not isinstance(path[-2], stmts.Block), "a block cannot lose its whole body"
        path = path[:-1]
    parent = path[-2]
    assert isinstance(parent, stmts.SeqStmt)
    rest = stmts.seq(*[s for s in parent.seq if s is not path[-1]])
    return rebuild_path(path[:-1], rest)


def path_to(root: stmts.Stmt, found: Callable[[stmts.Stmt], bool]) -> list[stmts.Stmt] | None:
    """Return the statements from `root` down to the first for which `found` holds."""
    path: list[stmts.Stmt] = []

    def go(s: stmts.Stmt) -> bool:
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

    def __init__(self, root: stmts.Stmt) -> None:
        self.root = root
        self._parents: dict[stmts.Stmt, stmts.Stmt] = {}
        self._named: dict[Any, stmts.Stmt] = {}
        stack = [root]
        while stack:
            s = stack.pop()
            kind = type(s)
            if kind is stmts.For:
                self._named.setdefault(s.loop_var, s)  # type: ignore[attr-defined]
            elif kind is stmts.BlockRealize:
                self._named.setdefault(s.block.name_hint, s)  # type: ignore[attr-defined]
            below = _children.rule[kind](s)
            for child in below:
                self._parents.setdefault(child, s)
            stack += below[::-1]

    def to(self, stmt: stmts.Stmt) -> list[stmts.Stmt] | None:
        """Return the statements from the root down to `stmt`, that very node; None where it is not below."""
        path = [stmt]
        while path[-1] is not self.root:
            parent = self._parents.get(path[-1])
            if parent is None:
                return None
            path.append(parent)
        return path[::-1]

    def named(self, name: ir.Var | str) -> list[stmts.Stmt] | None:
        """Return the statements from the root down to the loop of a variable or the realization of a block."""
        found = self._named.get(name)
        return None if found is None else self.to(found)


def child_realizes(stmt: stmts.Stmt) -> list[stmts.BlockRealize]:
    """List the block realizations below `stmt` that are not inside another block below it, in order."""
    result: list[stmts.BlockRealize] = []
    stack = [*stmt_children(stmt)[::-1]] if isinstance(stmt, stmts.Block) else [stmt]
    while stack:
        s = stack.pop()
        if isinstance(s, stmts.BlockRealize):
            result.append(s)
        else:
            stack += _children.rule[type(s)](s)[::-1]
    return result


def blocks_in(stmt: stmts.Stmt) -> list[stmts.Block]:
    """List all blocks below `stmt`, outer ones first."""
    return [s for s in statements(stmt) if type(s) is stmts.Block]


def calls(node: object, name: str) -> bool:
    """Whether an expression is a call of an intrinsic."""
    return isinstance(node, ir.CallIntrin) and getattr(node.op, "name", "") == f"tir.{name}"


def is_condition(node: object) -> TypeGuard[ir.Select | ir.CallIntrin]:
    """Whether a node chooses one of two values."""
    return isinstance(node, ir.Select) or calls(node, "if_then_else")


def used_vars(*nodes: Any) -> set[ir.Var]:
    """Return the variables that occur in `nodes`."""
    return set(ir.find(nodes, ir.Var))


def subst_stmt(stmt: ir.Node | tuple[Any, ...], mapping: Mapping[Any, ir.PrimExpr]) -> Any:
    """Replace variables in a statement, expression or tuple; variables of an equal mapping keep identity."""
    mapping = {k: v for k, v in mapping.items() if k is not v}
    return ir.substitute(stmt, mapping) if mapping else stmt


def clone_fresh(
    stmt: stmts.Stmt, rename: Callable[[str], str]
) -> tuple[stmts.Stmt, dict[ir.Var, ir.Var], dict[str, str]]:
    """Copy a statement with fresh loop and block variables and block names, to stand beside the original.

    Returns
    -------
    (Stmt, dict, dict)
        The copy, the new variable of each old one, the new name of each block.
    """
    variables: dict[ir.Var, ir.Var] = {}
    names: dict[str, str] = {}
    for s in statements(stmt):
        if isinstance(s, stmts.For):
            variables[s.loop_var] = replace_node(s.loop_var)
        elif isinstance(s, stmts.Block):
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
            if isinstance(hit, stmts.Block):
                hit = replace_node(hit, name_hint=names[hit.name_hint])
            memo[node] = hit
        return hit

    return go(stmt), variables, names


def iter_values_of(realize: stmts.BlockRealize) -> dict[ir.Var, ir.PrimExpr]:
    """Map the variables of a block to the values that its realization gives them."""
    return {iv.var: value for iv, value in zip(realize.block.iter_vars, realize.iter_values, strict=True)}


def fresh_iter_var(iv: ir.IterVar) -> ir.IterVar:
    """Copy an iteration variable with a new variable."""
    return replace_node(iv, var=replace_node(iv.var))


def subst_regions(regions: tuple[BufferRegion, ...], mapping: Mapping[ir.Var, ir.PrimExpr]) -> tuple[BufferRegion, ...]:
    """Replace variables in regions; the buffers stay."""
    return tuple(replace_node(r, region=subst_stmt(r.region, mapping)) for r in regions)


def init_nest(realize: stmts.BlockRealize, loops: list[stmts.For], name: str) -> stmts.Stmt:
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
    kept = [c for c in conjuncts(realize.predicate) if used_vars(c).isdisjoint(dropped)]
    predicate = ir.all_of(*(subst_stmt(c, loop_map) for c in kept))
    assert block.init is not None
    init_block = stmts.Block(
        tuple(iv for iv, _, _ in pairs),
        (),
        subst_regions(block.writes, to_new),
        name,
        subst_stmt(block.init, to_new),
        annotations=block.annotations,
    )
    body: stmts.Stmt = stmts.BlockRealize(
        tuple(subst_stmt(value, loop_map) for _, _, value in pairs), predicate, init_block
    )
    return around([replace_node(f, loop_var=loop_map[f.loop_var]) for f in chosen], body)


def empty_inits(stmt: stmts.Stmt) -> Iterator[tuple[list[ir.PrimExpr], stmts.For, stmts.Stmt]]:
    """Yield for each reduction that may be empty its extents, its outermost loop, and the nest that runs its init.

    Where an extent is 0 the block itself never runs; the nest leaves the identity that the sum of nothing is.
    """
    stack: list[tuple[stmts.Stmt, tuple[stmts.For, ...]]] = [(stmt, ())]
    while stack:
        s, loops = stack.pop()
        if isinstance(s, stmts.BlockRealize) and s.block.init is not None:
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
        inner = () if isinstance(s, stmts.Block) else (*loops, s) if isinstance(s, stmts.For) else loops
        stack.extend((c, inner) for c in stmt_children(s))


def knowing_dimensions(buffer_map: Iterable[tuple[ir.Var, Buffer]]) -> arith.Analyzer:
    """Return an analyzer that knows that no dimension of a function's buffers is negative."""
    analyzer = arith.Analyzer()
    analyzer.mark_global_non_neg(*(d for _, buffer in buffer_map for d in buffer.shape))
    return analyzer


def bind_domains(analyzer: arith.Analyzer, block: stmts.Block) -> arith.Analyzer:
    """Tell an analyzer which values the variables of a block have, where that is known; returns the analyzer."""
    for iv in block.iter_vars:
        if iv.dom is not None:
            analyzer.bind(iv.var, iv.dom)
    return analyzer


def loops_around(body: stmts.Stmt, variables: Sequence[ir.Var], extents: Iterable[Any]) -> stmts.Stmt:
    """Put serial loops of variables from 0 around a statement, the first outermost."""
    for v, extent in reversed(list(zip(variables, extents, strict=True))):
        body = stmts.For(v, ir.const(0, v.dtype), extent, stmts.ForKind.SERIAL, body)
    return body


def around(outer: Sequence[Any], body: stmts.Stmt) -> stmts.Stmt:
    """Put statements that have a body around a statement, the first outermost, in place of what they run."""
    for s in reversed(outer):
        body = replace_node(s, body=body)
    return body


def fresh_definitions(node: stmts.Stmt) -> dict[Any, Any]:
    """What to put for the loop variables and the buffers that a statement defines, where a second copy of it stands."""
    fresh: dict[Any, Any] = {}
    for n in ir.walk(node):
        if isinstance(n, stmts.For):
            fresh[n.loop_var] = ir.Var(n.loop_var.name, n.loop_var.dtype)
        elif isinstance(n, stmts.AllocBuffer):
            own = replace_node(n.buffer, data=ir.Var(n.buffer.data.name, n.buffer.data.dtype))
            fresh.update({n.buffer: own, n.buffer.data: own.data})
    return fresh
