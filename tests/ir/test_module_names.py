"""Functions of a module under other names."""

from tests.refusals import refuses
from weft import error, ir, script

MODULE = script.from_source("""
@I.ir_module
class Module:
    @T.prim_func
    def f(A: T.Buffer((4,), "int32")):
        for i in range(4):
            A[i] = A[i] + 1
    @R.function
    def main(x: R.Tensor((4,), "int32")):
        cls = Module
        return R.call_tir_inplace(cls.f, (x,), [0], out_ty=R.Tensor((4,), "int32"))
""")


def test_calls_follow_new_names():
    made = MODULE.replace_global_vars({"f": "g"})
    assert sorted(v.name_hint for v in made.get_global_vars()) == ["g", "main"]
    assert "cls.g" in made.script() and "cls.f" not in made.script()
    refuses(error.WeftError, "nothing", MODULE.replace_global_vars, {"nothing": "g"})


def test_functions_beside_an_expression():
    func, other = MODULE["main"], MODULE["f"]
    made = ir.IRModule.from_expr(func, {"f": other})
    assert made["main"] is func and made["f"] is other
