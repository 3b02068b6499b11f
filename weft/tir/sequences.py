"""Statements and expressions built by TVM's helper functions: sequences, results, conversions."""

from typing import Any

from weft import error, ir
from weft.spelling import also_called
from weft.tir.stmt import Evaluate, SeqStmt, Stmt, seq
from weft.tir.typing import Value


@also_called(val="value")
def ret(value: Value) -> ir.PrimExpr:
    """Build the expression that returns a value from the function."""
    found = ir.as_expr(value)
    return ir.CallIntrin(found.dtype, ir.Op.get("tir.ret"), (found,))


def Return(value: Value) -> Stmt:
    """Build the statement that returns a value from the function."""
    return Evaluate(ret(value))


@also_called(expr="value")
def convert(value: object) -> Any:
    """Convert numbers, strings and lists of them to expressions; what is an expression stays as it is."""
    return tuple(convert(v) for v in value) if isinstance(value, (list, tuple)) else ir.as_expr(value)


def stmt_seq(*args: Any) -> Stmt:
    """Run statements one after another; an expression is evaluated for its effect."""
    return seq(*(a if isinstance(a, Stmt) else Evaluate(ir.as_expr(a)) for a in args))


def stmt_list(stmt: Stmt) -> list[Stmt]:
    """List the statements of a sequence, of sequences inside it, too; any other statement alone."""
    return [s for part in stmt.seq for s in stmt_list(part)] if isinstance(stmt, SeqStmt) else [stmt]


def get_vscale_expr(dtype: str, min_size: int = 128) -> ir.PrimExpr:
    """Return how many elements a scalable vector has, `min_size` bits times ``vscale``."""
    bits = ir.DataType(dtype).bits
    if min_size % bits:
        raise error.InvalidArgument(
            "a scalable vector holds whole elements", expected=f"a multiple of {bits} bits", found=str(min_size)
        )
    return ir.vscale() * (min_size // bits)
