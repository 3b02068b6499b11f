"""LowerMath: functions of float32 become polynomials, so that no loop calls out of its vectors."""

from __future__ import annotations

from typing import Any

from weft.ir import CallIntrin, Cast, DataType, IRModule, Let, Op, Var, find, function_pass, rewrite, walk, with_lanes
from weft.tir.analysis.structure import calls
from weft.tir.function import PrimFunc
from weft.tir.intrin import INTRINSICS
from weft.tir.transform.math_float32 import POLYNOMIALS
from weft.tir.transform.math_float64 import POLYNOMIALS64, WAVES64
from weft.tir.transform.math_scaled import SCALED


@function_pass(kind=PrimFunc)
def lower_math(
    func: PrimFunc,
    mod: IRModule,
    *,
    scaled_lanes: tuple[int, ...] = (),
    library: bool = True,
    functions: tuple[str, ...] = (),
) -> PrimFunc:
    """Write out exp, log, tanh, erf, ... of float32, scalar or vector; of 16-bit floats through float32.

    Requires: No blocks.
    Ensures: The same form; those intrinsics remain on single numbers of float64, and for sin, cos and tan of far ones.
    Before::

        @T.prim_func
        def f(A: T.Buffer((16,), "float32"), B: T.Buffer((16,), "float32")):
            B[0] = T.hypot(A[0], A[1])

    After::

        @T.prim_func
        def f(A: T.Buffer((16,), "float32"), B: T.Buffer((16,), "float32")):
            x = T.float32()
            x_1 = T.float32()
            a = T.float64()
            b = T.float64()
            B[0] = T.Let(
                T.Let(
                    T.Select(
                        T.fabs(x) == T.float32("inf") or T.fabs(x_1) == T.float32("inf"),
                        T.float32("inf"),
                        T.Let(
                            T.Let(T.Cast("float32", T.sqrt(T.fma(a, a, b * b))), where={b: T.Cast("float64", x_1)}),
                            where={a: T.Cast("float64", x)},
                        ),
                    ),
                    where={x_1: A[1]},
                ),
                where={x: A[0]},
            )

    Options:
        ``scaled_lanes``: lengths of float32 vectors that the target multiplies by powers of two in one instruction.
        ``library``: whether the target has a C library; without it, functions of single numbers of float64 are written
        out as those of vectors are, but for sin, cos and tan; and fmod, which asks it for great quotients, is not.
        ``functions``: the names of those to write out, such as ``"tir.erf"``; all of them where it is empty.
    Cost: Linear; some 20 to 60 nodes for each call.
    Source: Polynomials fitted by ``weft``'s own scripts; arguments are reduced as in Cody and Waite, 1980.
    """
    names = frozenset(functions or (POLYNOMIALS if library else POLYNOMIALS.keys() - {"tir.fmod"}))
    found = list(find(func.body, CallIntrin))
    if not any(getattr(c.op, "name", None) in names for c in found):
        return func
    choices = (c.args for c in found if len(c.args) == 3)
    done = {x for first, far, _ in choices if calls(first, "any_lane") for x in walk(far)}  # arguments far out

    def rule(node: Any) -> Any:
        return node if node in done else _rule(node, scaled_lanes, library, names)

    return func.replace(body=rewrite(func.body, rule, only=(CallIntrin,)))


def _rule(node: Any, scaled_lanes: tuple[int, ...], library: bool, names: frozenset[str]) -> Any:
    if not isinstance(node.op, Op) or node.op.name not in names:
        return node
    polynomial = POLYNOMIALS.get(node.op.name)
    if polynomial is None or len(node.args) != INTRINSICS[node.op.name.removeprefix("tir.")].n_args:
        return node
    dt = DataType(node.dtype)
    written = POLYNOMIALS64 | WAVES64 if dt.lanes > 1 else {} if library else POLYNOMIALS64
    if not dt.is_float or (dt.bits > 32 and node.op.name not in written):
        return node
    if dt.bits > 32:
        polynomial = written[node.op.name]
    elif dt.lanes in scaled_lanes:
        polynomial = SCALED.get(node.op.name, polynomial)
    wide = with_lanes("float32" if dt.bits <= 32 else "float64", dt.lanes)
    args = [a if dt.bits >= 32 else Cast(wide, a) for a in node.args]
    variables = [a if isinstance(a, Var) else Var("x", wide) for a in args]
    result = polynomial(*variables)
    for v, a in zip(reversed(variables), reversed(args), strict=True):
        if v is not a:
            result = Let(v, a, result)
    return result if dt.bits >= 32 else Cast(dt, result)
