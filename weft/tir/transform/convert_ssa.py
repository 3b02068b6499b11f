"""ConvertSSA: each variable is defined once in a module."""

from __future__ import annotations

from collections.abc import Generator, Iterable
from contextlib import contextmanager
from typing import Any

from weft import ir
from weft.tir.buffer import Buffer
from weft.tir.function import PrimFunc
from weft.tir.stmt import AllocBuffer, AttrStmt, Block, BlockRealize, For, LetStmt


@ir.module_pass(name="ConvertSSA")
def convert_ssa(mod: ir.IRModule) -> ir.IRModule:
    """Give a variable that is defined again a twin for the new scope.

    Requires: Any form; a variable is used inside of one of its definitions.
    Ensures: The same form, and no variable has two definitions in the module; launches of one thread axis in one
        function are one definition. What has been so stays the very same.
    Before::

        @T.prim_func
        def f(A: T.Buffer((16,), "int32")):
            for i in range(16):
                A[i] = 1

    After::

        @T.prim_func
        def f(A: T.Buffer((16,), "int32")):
            for i in range(16):
                A[i] = 1
    Cost: Linear.
    Source: TVM's ``ConvertSSA``.
    """
    state = _Ssa()
    functions = {v: state.function(f) if isinstance(f, PrimFunc) else f for v, f in mod.items()}
    return mod if all(functions[v] is f for v, f in mod.items()) else mod.with_functions(functions)


def defined_once(func: PrimFunc) -> PrimFunc:
    """Do what the pass does to one function."""
    return _Ssa().function(func)


def _vars_of(buffer: Buffer) -> list[ir.Var]:
    """List the variables that declaring a buffer defines, unless they are known."""
    return ir.find((buffer.data, buffer.shape, buffer.strides, buffer.elem_offset), ir.Var)


class _Ssa:
    """What has a definition already, and what stands for each variable in the scope under way."""

    def __init__(self) -> None:
        self.seen: set[ir.Var] = set()
        self.now: dict[ir.Var, ir.Var] = {}
        self.launched: dict[ir.Var, ir.Var] = {}
        self.buffers: dict[Any, Buffer] = {}

    @contextmanager
    def defining(self, variables: Iterable[ir.Var]) -> Generator[None]:
        """Define variables for a scope."""
        saved, self.now = self.now, dict(self.now)
        for v in dict.fromkeys(variables):
            self.now[v] = type(v)(v.name, v.dtype) if v in self.seen else v
            self.seen.add(v)
        yield
        self.now = saved

    def function(self, func: PrimFunc) -> PrimFunc:
        """Rewrite a function, whose threads are its own."""
        self.launched = {}
        implied = [v for _, b in func.buffer_map for v in _vars_of(b)]
        with self.defining([*func.params, *implied]):
            params = tuple(self.visit(p) for p in func.params)
            buffer_map = tuple((self.visit(p), self.visit(b)) for p, b in func.buffer_map)
            body = self.visit(func.body)
        if body is func.body and all(a is b for a, b in zip(params, func.params, strict=True)):
            return func
        return func.replace(params=params, buffer_map=buffer_map, body=body)

    def visit(self, node: ir.Node) -> Any:
        """Rewrite a node in the scope under way."""
        if isinstance(node, ir.Var):
            return self.now.get(node, node)
        if isinstance(node, Buffer):
            new = tuple(self.now.get(v, v) for v in _vars_of(node))
            if all(a is b for a, b in zip(new, _vars_of(node), strict=True)):
                return node
            if (node, new) not in self.buffers:
                self.buffers[node, new] = ir.rebuild(node, self.visit)
            return self.buffers[node, new]
        if isinstance(node, For):
            ends = self.visit(node.min), self.visit(node.extent)
            with self.defining([node.loop_var]):
                new = ir.rebuild(node, self.visit)
            return ir.with_fields(new, min=ends[0], extent=ends[1])
        if isinstance(node, (LetStmt, ir.Let)):
            value = self.visit(node.value)
            with self.defining([node.var]):
                new = ir.rebuild(node, self.visit)
            return ir.with_fields(new, value=value)
        if isinstance(node, AllocBuffer):
            with self.defining([node.buffer.data]):
                return ir.rebuild(node, self.visit)
        if isinstance(node, AttrStmt) and isinstance(node.node, ir.IterVar):
            return self.launch(node)
        if isinstance(node, BlockRealize):
            values = self.visit_all(node.iter_values)
            predicate = self.visit(node.predicate)
            return ir.with_fields(node, iter_values=values, predicate=predicate, block=self.block(node.block))
        return ir.rebuild(node, self.visit)

    def visit_all(self, nodes: tuple[Any, ...]) -> tuple[Any, ...]:
        """Rewrite several; the same tuple where nothing changes."""
        new = tuple(self.visit(n) for n in nodes)
        return nodes if all(a is b for a, b in zip(new, nodes, strict=True)) else new

    def block(self, block: Block) -> Block:
        """Rewrite a block, which defines its axes and the buffers that it allocates or names."""
        matched = [v for m in block.match_buffers for v in _vars_of(m.buffer) if v not in self.now]
        own = [*(i.var for i in block.iter_vars), *(b.data for b in block.alloc_buffers)]
        own += [m.buffer.data for m in block.match_buffers] + matched
        with self.defining(own):
            return ir.rebuild(block, self.visit)

    def launch(self, node: AttrStmt) -> Any:
        """Rewrite the launch of a thread axis, which its function defines at the first one."""
        var = node.node.var
        if var not in self.launched:
            with self.defining([var]):
                self.launched[var] = self.now[var]
        saved, self.now = self.now, {**self.now, var: self.launched[var]}
        new = ir.rebuild(node, self.visit)
        self.now = saved
        return new
