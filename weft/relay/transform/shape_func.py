"""Shape functions: from the shapes of tensors, and tensors of dimensions, to the shapes and sizes of what is allocated.

A shape function is a TIR function of int64 vectors. It has one output for each shape, and a scalar for each size and
for each number that kernels take.
"""

from __future__ import annotations

from typing import Any

from weft import arith, ir
from weft.tir import AssertStmt, Buffer, BufferLoad, BufferStore, LetStmt, PrimFunc, Stmt, decl_buffer, seq
from weft.tir.exact import checked
from weft.tir.intrin import message


class ShapeFunction:
    """A shape function under construction.

    Parameters
    ----------
    shapes : tuple of tuple of PrimExpr
        The shapes of the tensors whose shapes it takes; bare variables among the dimensions are defined there.
    elements : tuple of tuple of PrimExpr
        What the elements of the tensors of dimensions are called.
    dtypes : list of (str, int)
        The data types and ranks of these tensors.
    derived : tuple of (Var, PrimExpr)
        Further variables and what they are.
    checks : tuple of (PrimExpr, PrimExpr, str, str)
        What has to be equal, the class of the error that says that it is not, and what the error says is compared.
    """

    def __init__(
        self, shapes: Any, elements: Any, dtypes: list[tuple[str, int]], derived: Any, checks: Any = ()
    ) -> None:
        self.shapes, self.elements, self.dtypes, self.derived = shapes, elements, dtypes, derived
        self.checks = checks
        self.outputs: list[tuple[ir.PrimExpr, ...] | ir.PrimExpr] = []
        self._analyzer = arith.Analyzer()

    def output(self, value: Any) -> int:
        """Ask for a shape (a tuple) or a number, and return the place of the output that it is."""
        wanted = tuple(map(self.simplify, value)) if isinstance(value, tuple) else self.simplify(value)
        for i, known in enumerate(self.outputs):
            if isinstance(known, tuple) == isinstance(wanted, tuple) and ir.structural_equal(known, wanted):
                return i
        self.outputs.append(wanted)
        return len(self.outputs) - 1

    def simplify(self, dim: ir.PrimExpr) -> ir.PrimExpr:
        """Simplify a dimension."""
        return self._analyzer.simplify(ir.cast("int64", dim))

    def build(self) -> PrimFunc:
        """Make the function."""
        params: list[tuple[ir.Var, Buffer]] = []

        def buffer(name: str, shape: tuple[int, ...], dtype: str = "int64") -> Buffer:
            made = decl_buffer(shape, dtype, name, data_alignment=ir.DataType(dtype).itemsize)
            params.append((ir.Var(name, "handle"), made))
            return made

        known: list[tuple[ir.Var, ir.PrimExpr]] = []
        sources = [(s, buffer(f"shape{i}", (len(s),)), True) for i, s in enumerate(self.shapes)]
        for i, (e, (dtype, ndim)) in enumerate(zip(self.elements, self.dtypes, strict=True)):
            sources.append((e, buffer(f"values{i}", (len(e),) * ndim, dtype), ndim == 1))
        for dims, source, vector in sources:
            for i, d in enumerate(dims):
                if isinstance(d, ir.Var) and not any(v is d for v, _ in known):
                    known.append((d, ir.cast("int64", BufferLoad(source, (ir.const(i, "int64"),) if vector else ()))))
        stores: list[Stmt] = []
        for i, out in enumerate(self.outputs):
            if isinstance(out, tuple):
                made = buffer(f"out{i}", (len(out),))
                stores += [BufferStore(made, d, (ir.const(k, "int64"),)) for k, d in enumerate(out)]
            else:
                stores.append(BufferStore(buffer(f"out{i}", ()), out, ()))
        wanted = [(s.value, "a shape", False) for s in stores if isinstance(s, BufferStore)]
        body = checked([*wanted, *((v, f"the size {d.name}", False) for d, v in self.derived)], seq(*stores))
        for found, expected, kind, what in reversed(self.checks):
            text = message(what.replace("%", "%%") + "\n  expected %lld, found %lld", expected, found)
            body = AssertStmt(ir.equal(found, expected), text, body, kind)
        for v, value in reversed([*known, *self.derived]):
            body = LetStmt(v, value, body)
        attrs = ir.Attrs.of({"tir.is_scheduled": True, "tir.noalias": True})
        return PrimFunc(tuple(p for p, _ in params), body, None, tuple(params), attrs)


def with_scalar_buffers(func: PrimFunc, n: int, n_outputs: int) -> PrimFunc:
    """Make the last `n` parameters of a scheduled kernel, numbers, scalar buffers in front of its outputs."""
    rest, numbers = func.params[: len(func.params) - n], func.params[len(func.params) - n :]
    scalars = [(ir.Var(v.name, "handle"), decl_buffer((), v.dtype, v.name, data_alignment=8)) for v in numbers]
    made = {old: _without(old, numbers) for _, old in func.buffer_map}
    body = ir.substitute(func.body, {old: new for old, new in made.items() if old is not new})
    for v, (_, b) in zip(numbers, scalars, strict=True):
        body = LetStmt(v, BufferLoad(b, ()), body)
    at = len(rest) - n_outputs
    return func.replace(
        params=(*rest[:at], *(h for h, _ in scalars), *rest[at:]),
        body=body,
        buffer_map=(*((p, made[b]) for p, b in func.buffer_map), *scalars),
    )


def _without(buffer: Buffer, numbers: tuple[ir.Var, ...]) -> Buffer:
    """Return a buffer whose extents are variables of their own where they depend on `numbers`."""
    among = set(numbers)
    shape = tuple(ir.Var("extent", "int64") if any(n in among for n in ir.walk(d)) else d for d in buffer.shape)
    return ir.with_fields(buffer, shape=shape)
