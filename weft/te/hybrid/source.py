"""Hybrid script as text: the statements of a scheduled function, written as a script again."""

from typing import Any

from weft import error, ir, tir
from weft.spelling import unused_name

_OPERATORS = {
    ir.Add: "+",
    ir.Sub: "-",
    ir.Mul: "*",
    ir.Div: "/",
    ir.FloorDiv: "//",
    ir.FloorMod: "%",
    ir.EQ: "==",
    ir.NE: "!=",
    ir.LT: "<",
    ir.LE: "<=",
    ir.GT: ">",
    ir.GE: ">=",
    ir.And: "and",
    ir.Or: "or",
}
_LOOPS = {
    tir.ForKind.SERIAL: "range",
    tir.ForKind.PARALLEL: "parallel",
    tir.ForKind.VECTORIZED: "vectorize",
    tir.ForKind.UNROLLED: "unroll",
}


class Writer:
    """Writes statements as lines, giving each variable and buffer a name of its own."""

    def __init__(self) -> None:
        self.names: dict[Any, str] = {}
        self.lines: list[str] = []

    def name(self, thing: ir.Var | tir.Buffer) -> str:
        """Name a variable or a buffer."""
        if thing not in self.names:
            base = "".join(c if c.isalnum() else "_" for c in thing.name)
            self.names[thing] = unused_name(base, set(self.names.values()))
        return self.names[thing]

    def expr(self, e: Any) -> str:
        """Write an expression."""
        if isinstance(e, ir.Var):
            return self.name(e)
        if isinstance(e, (ir.IntImm, ir.FloatImm)):
            value = bool(e.value) if e.dtype == "bool" else e.value
            return str(value) if e.dtype in ("int32", "float32", "bool") else f"{e.dtype}({value})"
        if isinstance(e, ir.StringImm):
            return repr(e.value)
        if type(e) in _OPERATORS:
            return f"({self.expr(e.a)} {_OPERATORS[type(e)]} {self.expr(e.b)})"
        if isinstance(e, (ir.Min, ir.Max)):
            return f"{type(e).__name__.lower()}({self.expr(e.a)}, {self.expr(e.b)})"
        if isinstance(e, ir.Not):
            return f"(not {self.expr(e.a)})"
        if isinstance(e, ir.Cast):
            return f"{e.dtype}({self.expr(e.value)})"
        if isinstance(e, tir.BufferLoad):
            return self.element(e.buffer, e.indices)
        if isinstance(e, ir.Select):
            return f"({self.expr(e.true_value)} if {self.expr(e.condition)} else {self.expr(e.false_value)})"
        if isinstance(e, ir.CallIntrin):
            args = [self.expr(a) for a in e.args]
            name = getattr(e.op, "name", "").removeprefix("tir.")
            return (
                f"({args[1]} if {args[0]} else {args[2]})" if name == "if_then_else" else f"{name}({', '.join(args)})"
            )
        raise error.InvalidArgument("hybrid script cannot say this expression", found=str(e))

    def element(self, buffer: tir.Buffer, indices: Any) -> str:
        """Write an element of a buffer."""
        return f"{self.name(buffer)}[{', '.join(map(self.expr, indices))}]"

    def stmt(self, s: Any, depth: int) -> None:
        """Write a statement."""
        if isinstance(s, tir.SeqStmt):
            for child in s.seq:
                self.stmt(child, depth)
        elif isinstance(s, tir.For):
            bounds = ([] if ir.is_const_int(s.min, 0) else [s.min]) + [ir.add(s.min, s.extent)]
            loop = f"{_LOOPS.get(s.kind, 'range')}({', '.join(map(self.expr, bounds))})"
            if s.thread_binding is not None:
                loop = f'bind("{s.thread_binding.thread_tag}", {self.expr(s.extent)})'
            self.line(f"for {self.name(s.loop_var)} in {loop}:", depth)
            self.stmt(s.body, depth + 1)
        elif isinstance(s, tir.BufferStore):
            self.line(f"{self.element(s.buffer, s.indices)} = {self.expr(s.value)}", depth)
        elif isinstance(s, tir.AllocBuffer):
            shape = ", ".join(map(self.expr, s.buffer.shape))
            self.line(f'{self.name(s.buffer)} = allocate(({shape},), "{s.buffer.dtype}", "{s.buffer.scope}")', depth)
            self.stmt(s.body, depth)
        elif isinstance(s, tir.IfThenElse):
            self.line(f"if {self.expr(s.condition)}:", depth)
            self.stmt(s.then_case, depth + 1)
            if s.else_case is not None:
                self.line("else:", depth)
                self.stmt(s.else_case, depth + 1)
        elif isinstance(s, tir.AssertStmt):
            self.line(f"assert {self.expr(s.condition)}, {self.expr(s.message)}", depth)
            self.stmt(s.body, depth)
        elif isinstance(s, tir.AttrStmt):
            self.stmt(s.body, depth)
        elif not isinstance(s, tir.Evaluate) or not isinstance(s.value, ir.IntImm):
            raise error.InvalidArgument("hybrid script cannot say this statement", found=str(s))

    def line(self, text: str, depth: int) -> None:
        """Write a line."""
        self.lines.append("    " * depth + text)


def write(func: tir.PrimFunc, n_inputs: int, name: str) -> str:
    """Write a function as a hybrid script: the first `n_inputs` parameters go in, the others are returned."""
    writer = Writer()
    names = [writer.name(func.buffer_of(p) or p) for p in func.params]
    for p in func.params[n_inputs:]:
        buffer = func.buffer_of(p)
        assert buffer is not None
        shape = ", ".join(map(writer.expr, buffer.shape))
        writer.line(f'{writer.name(buffer)} = output_tensor(({shape},), "{buffer.dtype}")', 1)
    writer.stmt(func.body, 1)
    writer.line(f"return {', '.join(names[n_inputs:])}", 1)
    return "\n".join([f"def {name}({', '.join(names[:n_inputs])}):", *writer.lines, ""])
