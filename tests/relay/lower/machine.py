"""Runs first-order programs through the lowering passes, code generation and the virtual machine."""

import numpy as np

import weft
from weft import ir, relax, relay, target
from weft.relay import transform as t
from weft.relay.expr import let_chain
from weft.relay.vm.codegen import CodeUnit
from weft.runtime.relay_vm import Executable, VirtualMachine

TARGET = target.Target("llvm")


def typed(program):
    """The module of a program: text, a function or a module."""
    mod = relay.fromtext(program) if isinstance(program, str) else program
    if not isinstance(mod, ir.IRModule):
        mod = ir.IRModule({relay.GlobalVar("main"): mod})
    return t.InferType()(mod)


def lowered(program, *passes):
    """The module after LowerRegions and the passes given."""
    return ir.Sequential([t.ToANormalForm(), t.InferType(), t.LowerRegions(TARGET), *passes])(typed(program))


def machine(mod):
    unit = CodeUnit(mod)
    code = unit.compile()
    pool = unit.constants
    exe = Executable.from_parts(
        code, pool.values, list(unit.primitives), relax.compile_kernels(mod, TARGET), pool.devices
    )
    return VirtualMachine(exe, weft.cpu())


def run(program, *args, passes=None):
    """Compile and run ``main``; arrays, or tuples of them."""
    mod = lowered(program, *(default_passes() if passes is None else passes))
    return values(machine(mod).invoke("main", *args))


def default_passes():
    return [t.ManifestAlloc(TARGET), t.MemoryPlan()]


def values(result):
    if isinstance(result, (tuple, list)):
        return tuple(values(r) for r in result)
    return result.numpy() if hasattr(result, "numpy") else np.asarray(result)


def check(program, *inputs, passes=None, rtol=1e-4, atol=1e-5):
    """Compare the machine with the interpreter, on several lists of arguments."""
    mod = lowered(program, *(default_passes() if passes is None else passes))
    vm = machine(mod)
    expected = relay.create_executor("debug", mod=typed(program)).evaluate()
    for args in inputs:
        equal(values(vm.invoke("main", *args)), values(expected(*args)), rtol, atol)
    return mod


def equal(found, wanted, rtol, atol):
    if isinstance(wanted, tuple):
        assert isinstance(found, tuple) and len(found) == len(wanted)
        for f, w in zip(found, wanted, strict=True):
            equal(f, w, rtol, atol)
        return
    assert found.dtype == wanted.dtype and found.shape == wanted.shape
    np.testing.assert_allclose(found, wanted, rtol=rtol, atol=atol)


def bindings(mod, name="main"):
    return let_chain(mod[name].body)[0]


def calls(mod, op, name="main"):
    """The calls of an operator in the chain of a function's lets."""
    return [v for _, v in bindings(mod, name) if isinstance(v, ir.Call) and getattr(v.op, "name", None) == op]


def kernels(mod, op="vm.call_kernel", name="main"):
    """The kernels that a function calls, in order."""
    return [c.args[0].name_hint for c in calls(mod, op, name)]
