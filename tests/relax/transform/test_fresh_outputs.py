"""Results share memory with no argument, no constant and no other result; what is a kernel's result is not copied."""

from itertools import combinations

import numpy as np
import pytest

import weft
from tests import onnx_models
from weft import relax, runtime, script

HEAD = "@I.ir_module\nclass Module:\n"
V = 'R.Tensor((4,), "float32")'
PROGRAMS = {
    "argument": (f"def main(x: {V}):\n return x", 1),
    "view": (f"def main(x: {V}):\n y = R.reshape(x, R.shape([2, 2]))\n return y", 1),
    "view of a view": (
        f"def main(x: {V}):\n y = R.expand_dims(x, axis=[0])\n z = R.flatten(y)\n w = R.squeeze(y)\n return (z, w)",
        2,
    ),
    "constant": (f"def main(x: {V}):\n y = R.add(x, x)\n return (y, R.const([1, 2], 'float32'))", 1),
    "twice": (f"def main(x: {V}):\n y = R.add(x, x)\n return (y, y)", 1),
    "result and its view": (
        f"def main(x: {V}):\n y = R.add(x, x)\n z = R.reshape(y, R.shape([2, 2]))\n return (z, y)",
        1,
    ),  # noqa: E501
    "nested tuples": (f"def main(x: {V}):\n y = R.add(x, x)\n t = (y, (x, y))\n return (t, y)", 3),
    "items": (f"def main(x: {V}):\n y = R.add(x, x)\n t = (y, x)\n a = t[0]\n b = t[1]\n return (b, a, t)", 3),
    "a tuple argument": (f"def main(p: R.Tuple({V}, {V})):\n return p", 2),
    "branches": (
        f"def main(x: {V}):\n y = R.add(x, x)\n c = R.less(R.sum(x), R.const(0.0, 'float32'))\n"
        " if c:\n  r = y\n else:\n  r = x\n return r",
        1,
    ),
    "branches of tuples": (
        f"def main(x: {V}):\n y = R.add(x, x)\n c = R.less(R.sum(x), R.const(0.0, 'float32'))\n"
        " if c:\n  r = (y, R.add(y, x))\n else:\n  r = (R.multiply(x, x), x)\n return r",
        1,
    ),
    "a match_cast": (
        f"def main(x: {V}):\n n = T.int64()\n y = R.match_cast(x, R.Tensor((n,), 'float32'))\n return y",
        1,
    ),  # noqa: E501
    "a public function's result": (
        f"def main(x: {V}):\n y = Module.f(x)\n return y\n@R.function\ndef f(x: {V}):\n return x",
        1,
    ),  # noqa: E501
    "a private function's result": (
        f"def main(x: {V}):\n y = Module.f(x)\n return y\n@R.function(private=True)\ndef f(x: {V}) -> {V}:\n return x",
        1,
    ),  # noqa: E501
    "a closure's result": (
        f"def main(x: {V}):\n @R.function\n def f(v: {V}) -> {V}:\n  return x\n y = f(x)\n return y",
        1,
    ),  # noqa: E501
    "a packed function's": (
        f"def main(x: {V}):\n y = R.call_pure_packed('test.fresh.same', x, ty_args=({V},))\n return y",
        1,
    ),
}


@weft.register_func("test.fresh.same", override=True)
def same(x):
    return x


def module(text):
    text = "@R.function\n" + text
    return script.from_source(HEAD + "".join(f"    {line}\n" for line in text.replace("\n ", "\n    ").splitlines()))


def tensors(value):
    return [value] if isinstance(value, runtime.Tensor) else [t for v in value for t in tensors(v)]


def copies(executable):
    return executable.as_text().count("call  vm.builtin.to_device")


@pytest.mark.parametrize("pipeline", ["default", "zero"])
@pytest.mark.parametrize("name", PROGRAMS)
def test_results_are_the_callers_alone(name, pipeline):
    text, most = PROGRAMS[name]
    executable = relax.build(module(text), "llvm", relax_pipeline=pipeline)
    assert copies(executable) <= most + ("public" in name), executable.as_text()
    machine = relax.VirtualMachine(executable, weft.cpu())
    for sign in (1, -1):
        x = sign * np.arange(1, 5, dtype="float32")
        x = weft.runtime.tensor(x)
        given = [x, weft.runtime.tensor(x.numpy().copy())] if "tuple argument" in name else [x]
        argument = tuple(given) if len(given) > 1 else x
        first = [t.numpy() for t in tensors(machine["main"](argument))]
        kept = [a.copy() for a in first]
        for a, b in combinations([*first, *(g.numpy() for g in given)], 2):
            assert not np.shares_memory(a, b)
        for a in first:
            a.fill(77)
        assert abs(x.numpy()).max() == 4
        for a, b in zip(kept, tensors(machine["main"](argument)), strict=True):
            np.testing.assert_array_equal(a, b.numpy())


def test_no_kernels_result_is_copied():
    executable = weft.Session(onnx_models.linear()[0]).executable
    assert copies(executable) == 0
    text = executable.as_text()
    kernels = [
        x for x in text.splitlines() if x.startswith("  call  ") and "vm.builtin" not in x and "shape_func" not in x
    ]
    assert len(kernels) == 1, text


def test_private_functions_are_left_alone():
    mod = module(f"def main(x: {V}):\n return x")
    main = mod["main"].without_attr("global_symbol")
    private = mod.with_functions({v: main for v, _ in mod.items()})
    assert relax.transform.FreshOutputs()(private)["main"] is main


LOOP = f"""
    @R.function
    def main(n: R.Tensor((), "int64"), x: {V}) -> {V}:
        done = R.equal(n, R.const(0, "int64"))
        if done:
            r = x
        else:
            r = Module.again(n, x)
        return r

    @R.function(private=True)
    def again(n: R.Tensor((), "int64"), x: {V}) -> {V}:
        odd = R.equal(R.mod(n, R.const(2, "int64")), R.const(1, "int64"))
        if odd:
            r = Module.main(R.subtract(n, R.const(1, "int64")), R.add(x, x))
        else:
            r = Module.other(R.subtract(n, R.const(2, "int64")), x)
        return r

    @R.function(private=True)
    def other(n: R.Tensor((), "int64"), x: {V}) -> {V}:
        stop = R.less(n, R.const(0, "int64"))
        if stop:
            r = R.const([1.0, 2.0, 3.0, 4.0], "float32")
        else:
            r = Module.main(n, x)
        return r
"""


@pytest.mark.parametrize("exec_mode", ["bytecode", "compiled"])
def test_calls_at_the_end_stay_there(exec_mode):
    """Copies are made where a branch ends without a call: 30,000 calls deep is no depth at all."""
    executable = weft.compile(script.from_source(HEAD + LOOP), "llvm", exec_mode=exec_mode)
    run = relax.VirtualMachine(executable, weft.cpu())["main"]
    x = weft.runtime.tensor(np.arange(4, dtype="float32"))
    for n, expected in ((0, x.numpy()), (30_000, x.numpy()), (30_001, 2 * x.numpy()), (-2, np.float32([1, 2, 3, 4]))):
        for _ in range(2):
            out = run(weft.runtime.tensor(np.int64(n)), x).numpy()
            np.testing.assert_array_equal(out, expected)
            assert not np.shares_memory(out, x.numpy())
            out.fill(9)
