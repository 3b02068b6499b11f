"""Register an instruction: loops over one block that say what it computes, and the call that computes it."""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from weft import arith, ir, tir
from weft.tir.analysis.access import access_regions, whole_region
from weft.tir.schedule import TensorIntrin


class Operand(NamedTuple):
    """A buffer that an instruction takes; where `strided`, its call knows the strides as variables."""

    shape: tuple[int, ...]
    dtype: str
    scope: str = "global"
    factor: int = 1
    strided: bool = False
    align: int = 64

    def buffer(self, name: str, called: bool) -> tir.Buffer:
        """Declare it as `name`."""
        strides = [ir.Var(f"{name}_s{i}", "int32") for i in range(len(self.shape))] if called and self.strided else ()
        return tir.decl_buffer(
            self.shape,
            self.dtype,
            name,
            scope=self.scope,
            offset_factor=self.factor,
            strides=strides,
            data_alignment=self.align,
        )


def register_instruction(
    name: str,
    operands: Sequence[Operand],
    loops: str,
    extents: Sequence[int],
    store: Callable[..., tir.Stmt],
    call: Callable[..., tir.Stmt],
) -> TensorIntrin:
    """Register what an instruction computes under a name, and its call.

    Parameters
    ----------
    operands : sequence of Operand
        What it takes; the last one is written.
    loops : str
        ``S`` for each loop over elements, ``R`` for one over terms of a sum.
    store : callable
        From the operands and the loops' variables to what is stored.
    call : callable
        From the operands to the statement that does all of it.
    """

    def function(called: bool) -> tir.PrimFunc:
        buffers = [o.buffer(n, called) for n, o in zip("ABC"[-len(operands) :], operands, strict=True)]
        *reads, written = map(whole_region, buffers)
        root = tir.Block(
            (),
            (written, *reads) if "R" in loops else tuple(reads),
            (written,),
            "root",
            call(*buffers) if called else described(buffers),
        )
        handles = tuple(ir.Var(f"{b.name}_handle", "handle") for b in buffers)
        buffer_map = tuple(zip(handles, buffers, strict=True))
        return tir.PrimFunc(handles, tir.BlockRealize((), ir.TRUE, root), None, buffer_map)

    def described(buffers: Sequence[tir.Buffer]) -> tir.Stmt:
        around = [ir.Var(f"i{n}", "int32") for n in range(len(loops))]
        axes = [
            ir.IterVar(
                ir.Range.from_min_extent(ir.const(0), ir.const(e)),
                ir.Var(f"v{n}", "int32"),
                "reduce" if kind == "R" else "data_par",
            )
            for n, (kind, e) in enumerate(zip(loops, extents, strict=True))
        ]
        body = store(*buffers, *(a.var for a in axes))
        block = tir.Block(tuple(axes), *access_regions([body], arith.Analyzer()), "update", body)
        out: tir.Stmt = tir.BlockRealize(tuple(around), ir.TRUE, block)
        for v, e in reversed(list(zip(around, extents, strict=True))):
            out = tir.For(v, ir.const(0), ir.const(e), tir.ForKind.SERIAL, out)
        return out

    return TensorIntrin.register(name, function(False), function(True), override=True)


def adds(written: tir.Buffer, at: Sequence[Any], a: ir.PrimExpr, b: ir.PrimExpr) -> tir.Stmt:
    """Add a product, in the type of what is written, to its element."""
    product = ir.cast(written.dtype, a) * ir.cast(written.dtype, b)
    return tir.BufferStore(written, tir.BufferLoad(written, tuple(at)) + product, tuple(at))


def fills_zero(to: Callable[..., Any] = lambda *at: at) -> Callable[..., tir.Stmt]:
    """Return what stores zero at `to` of each point."""
    return lambda written, *at: tir.BufferStore(written, ir.const(0, written.dtype), to(*at))


def runs(thread: str, extent: int, body: Callable[[ir.Var], tir.Stmt]) -> tir.Stmt:
    """Run a statement for each number below `extent`, on threads of a kind or, where that is empty, in turn."""
    var = ir.Var("tx" if thread else "n", "int32")
    axis = ir.IterVar(None, ir.Var(thread, "int32"), "thread", thread) if thread else None
    kind = tir.ForKind.THREAD_BINDING if thread else tir.ForKind.SERIAL
    return tir.For(var, ir.const(0), ir.const(extent), kind, body(var), axis)
