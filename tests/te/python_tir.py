"""Runs statements of scheduled tensor expressions on NumPy arrays, by translating them to Python; slow and obvious."""

import numpy as np

from weft import ir, tir

_BINARY = {
    ir.Add: "+", ir.Sub: "-", ir.Mul: "*", ir.Div: "/", ir.FloorDiv: "//", ir.FloorMod: "%", ir.LT: "<", ir.LE: "<=",
    ir.GT: ">", ir.GE: ">=",
    ir.EQ: "==", ir.NE: "!=", ir.And: "and", ir.Or: "or",
}  # fmt: skip


class Program:
    """A PrimFunc as a Python function of arrays (and ints for scalar parameters)."""

    def __init__(self, func):
        self.lines, self.names, self.dtypes = [], {}, {}
        params = []
        buffers = {id(p): b for p, b in func.buffer_map}
        for p in func.params:
            params.append(self.name(buffers[id(p)] if id(p) in buffers else p, "a"))
        self.lines.append(f"def run({', '.join(params)}):")
        known = {id(p) for p in func.params}
        for _, b in func.buffer_map:
            for d, extent in enumerate(b.shape):
                if isinstance(extent, ir.Var) and id(extent) not in known:
                    known.add(id(extent))
                    self.lines.append(f"  {self.name(extent)} = {self.name(b)}.shape[{d}]")
        self.stmt(func.body, 1)
        scope = {"np": np, "dtypes": self.dtypes, "choose": lambda c, a, b: a if c else b}
        exec("\n".join(self.lines), scope)  # noqa: S102 - our own text
        self.run = scope["run"]

    def name(self, node, prefix="v"):
        return self.names.setdefault(id(node), f"{prefix}{len(self.names)}")

    def expr(self, e):
        kind = type(e)
        if isinstance(e, ir.Var):
            return self.name(e)
        if kind in (ir.IntImm, ir.FloatImm):
            return f"float('{e.value}')" if kind is ir.FloatImm else str(e.value)
        if kind in _BINARY:
            return f"({self.expr(e.a)} {_BINARY[kind]} {self.expr(e.b)})"
        if kind in (ir.Min, ir.Max):
            return f"{kind.__name__.lower()}({self.expr(e.a)}, {self.expr(e.b)})"
        if kind is ir.Not:
            return f"(not {self.expr(e.a)})"
        if kind is ir.Cast:
            return self.expr(e.value)
        if kind is tir.BufferLoad:
            return f"load({self.name(e.buffer)}, {', '.join(map(self.expr, e.indices))},)"
        if kind is ir.Select:
            return f"({self.expr(e.true_value)} if {self.expr(e.condition)} else {self.expr(e.false_value)})"
        if kind is ir.CallIntrin and e.op.name == "tir.likely":
            return self.expr(e.args[0])
        if kind is ir.CallIntrin and e.op.name == "tir.if_then_else":
            c, a, b = map(self.expr, e.args)
            return f"({a} if {c} else {b})"
        raise NotImplementedError(str(e))

    def stmt(self, s, depth):
        pad = "  " * depth
        kind = type(s)
        if kind is tir.SeqStmt:
            for x in s.seq:
                self.stmt(x, depth)
        elif kind is tir.For:
            self.lines.append(
                f"{pad}for {self.name(s.loop_var)} in "
                f"range({self.expr(s.min)}, {self.expr(s.min)} + {self.expr(s.extent)}):"
            )
            self.stmt(s.body, depth + 1)
        elif kind is tir.IfThenElse:
            self.lines.append(f"{pad}if {self.expr(s.condition)}:")
            self.stmt(s.then_case, depth + 1)
        elif kind is tir.BufferStore:
            index = ", ".join(map(self.expr, s.indices))
            self.lines.append(f"{pad}assert all(0 <= i < n for i, n in zip(({index},), {self.name(s.buffer)}.shape))")
            self.lines.append(f"{pad}{self.name(s.buffer)}[{index}] = {self.expr(s.value)}")
        elif kind is tir.AllocBuffer:
            name = self.name(s.buffer)
            shape = ", ".join(map(self.expr, s.buffer.shape))
            self.dtypes[name] = ir.numpy_dtype(s.buffer.dtype)
            self.lines.append(f"{pad}{name} = np.full(({shape},), 77, dtypes['{name}'])")
            self.stmt(s.body, depth)
        elif kind is tir.LetStmt:
            self.lines.append(f"{pad}{self.name(s.var)} = {self.expr(s.value)}")
            self.stmt(s.body, depth)
        elif kind is tir.AttrStmt:
            self.stmt(s.body, depth)
        else:
            raise NotImplementedError(kind.__name__)


def run(func, *args):
    """Run a PrimFunc; loads outside of a buffer fail instead of wrapping around."""
    program = Program(func)

    def load(array, *index):
        assert all(0 <= i < n for i, n in zip(index, array.shape, strict=True)), (
            f"load at {index} of shape {array.shape}"
        )
        return array[index].item()

    program.run.__globals__["load"] = load
    program.run(*args)
