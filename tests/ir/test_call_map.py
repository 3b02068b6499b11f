"""Which functions of a module name which others, across dialects."""

from weft import ir, runtime, script
from weft.ir.analysis import collect_call_map


def test_calls_across_dialects():
    mod = script.from_source("""
@I.ir_module
class Module:
    @R.function
    def main(x: R.Tensor((4,), "float32")):
        cls = Module
        y = R.call_tir(cls.kernel, (x,), out_ty=R.Tensor((4,), "float32"))
        return cls.again(cls.again(y))
    @R.function
    def again(x: R.Tensor((4,), "float32")) -> R.Tensor((4,), "float32"):
        return Module.again(x)
    @T.prim_func(private=True)
    def kernel(A: T.Buffer((4,), "float32"), B: T.Buffer((4,), "float32")):
        for i in range(4):
            B[i] = A[i]
""")
    found = {v.name_hint: [called.name_hint for called in callees] for v, callees in collect_call_map(mod).items()}
    assert found == {"main": ["kernel", "again"], "again": ["again"], "kernel": []}
    assert runtime.relax_vm.VirtualMachine is runtime.vm.VirtualMachine and ir.Array is runtime.container.Array
