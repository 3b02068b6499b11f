"""ScheduleTIR: every unscheduled TIR function gets the loop structure that the schedule rules choose for the target."""

from weft.ir import IRModule, function_pass
from weft.target import Target
from weft.tir import PrimFunc
from weft.tir.schedule import default_schedule
from weft.tune import Tuned, current_database


@function_pass(kind=PrimFunc, name="ScheduleTIR", opt_level=0)
def schedule_tir(func: PrimFunc, mod: IRModule, *, target: Target | str | None, tuned: Tuned | None = None) -> PrimFunc:
    """Schedule TIR functions by rule.

    Requires: TIR in block form; functions with attribute ``tir.is_scheduled`` are left as they are.
    Ensures: The same functions, scheduled for `target`; as records of `tuned`, or of the current tuning database, say.
    With ``target="llvm -mtriple=x86_64-linux-gnu -mcpu=x86-64"``, before::

        @T.prim_func
        def f(A: T.Buffer((16,), "float32"), B: T.Buffer((16,), "float32")):
            for i in range(16):
                with T.block("B"):
                    v = T.axis.spatial(16, i)
                    B[v] = A[v] + T.float32(1)

    After::

        @T.prim_func
        def f(A: T.Buffer((16,), "float32"), B: T.Buffer((16,), "float32")):
            T.func_attr({"tir.is_scheduled": True})
            for i_0 in range(4):
                for i_1 in T.vectorized(4):
                    with T.sblock("B"):
                        v = T.axis.spatial(16, i_0 * 4 + i_1)
                        B[v] = A[v] + 1.0
    Cost: Some milliseconds a function.
    Source: DESIGN section 5.
    """
    if func.attrs.get("tir.is_scheduled"):
        return func
    target = Target.of(target)
    tuned = tuned if tuned is not None else Tuned(current_database(), target)
    scheduled = tuned.schedule(func) or target.attribute("tir.schedule", default_schedule)(func, target)
    return scheduled.with_attr("tir.is_scheduled", True)
