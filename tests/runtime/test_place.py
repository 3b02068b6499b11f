"""Object files placed in the process: they run as linked ones do, and damaged ones are left to the linker."""

import platform
import random
import subprocess
import sys

import numpy as np
import pytest

import weft
from tests.refusals import refusals, refuses
from weft.runtime.place import NotPlaced, place_objects
from weft.te import compute, create_prim_func, exp, placeholder, power, reduce_axis
from weft.te import sum as te_sum

pytestmark = pytest.mark.skipif(
    sys.platform != "linux" or platform.machine() != "x86_64", reason="only x86-64 Linux places objects itself"
)


def _object(name: str, body, shapes) -> bytes:
    arguments = [placeholder(s, name=f"a{i}") for i, s in enumerate(shapes)]
    func = create_prim_func([*arguments, body(*arguments)])
    return weft.target.compile_func(func.with_attr("global_symbol", name), weft.target.Target("llvm"))


@pytest.fixture(scope="module")
def objects() -> list[bytes]:
    k = reduce_axis((0, 37), "k")
    return [
        _object("raised", lambda a: compute((5, 37), lambda i, j: power(a[i, j], exp(a[i, j])) * 3.5), [(5, 37)]),
        _object("rows", lambda a: compute((5,), lambda i: te_sum(a[i, k], axis=k)), [(5, 37)]),
    ]


def test_functions_of_several_objects_run(objects):
    module = weft.runtime.placed_module(objects, ["raised", "rows"])
    assert module is not None
    a = np.random.default_rng(0).uniform(0.5, 1.5, (5, 37)).astype("float32")
    out, sums = np.zeros_like(a), np.zeros(5, "float32")
    module["raised"](a, out)
    module["rows"](a, sums)
    np.testing.assert_allclose(out, a ** np.exp(a) * 3.5, rtol=1e-5)
    np.testing.assert_allclose(sums, a.sum(1), rtol=1e-5)


def test_a_function_keeps_its_code(objects):
    function = weft.runtime.placed_module(objects[1:], ["rows"])["rows"]
    weft.runtime.placed_module(objects[:1], ["raised"])
    sums = np.zeros(5, "float32")
    function(np.ones((5, 37), "float32"), sums)
    assert sums.tolist() == [37.0] * 5


def test_errors_of_arguments_come_through(objects):
    module = weft.runtime.placed_module(objects[1:], ["rows"])
    refuses(ValueError, "rows", module["rows"], np.zeros((4, 37), "float32"), np.zeros(5, "float32"))


def test_a_missing_function_asks_for_a_linker(objects):
    refuses(NotPlaced, "absent", place_objects, objects, ["absent"])
    assert weft.runtime.placed_module(objects, ["absent"]) is None


def test_a_function_defined_twice_asks_for_a_linker(objects):
    refuses(NotPlaced, "twice", place_objects, [objects[0], objects[0]], ["raised"])


def test_a_missing_symbol_of_the_process_asks_for_a_linker(objects):
    assert b"weft_arg_error" in objects[0]
    with pytest.raises(NotPlaced, match="weft_arg_errox"):
        place_objects([objects[0].replace(b"weft_arg_error", b"weft_arg_errox")], ["raised"])


def test_an_object_for_another_machine_is_not_placed():
    k = reduce_axis((0, 8), "k")
    a = placeholder((8,), name="a")
    func = create_prim_func([a, compute((1,), lambda i: te_sum(a[k], axis=k))]).with_attr("global_symbol", "f")
    code = weft.target.compile_func(func, weft.target.Target({"kind": "llvm", "mtriple": "aarch64-linux-gnu"}))
    assert weft.runtime.placed_module([code], ["f"]) is None


def test_damaged_objects_are_not_placed_or_placed_but_never_crash(objects):
    rng = random.Random(0)
    for length in (0, 5, 63, 64, 200, len(objects[0]) - 1):
        refuses(NotPlaced, "", place_objects, [objects[0][:length]], ["raised"])

    def damaged(_):
        data = bytearray(objects[0])
        for _ in range(rng.randrange(1, 6)):
            data[rng.randrange(len(data))] = rng.randrange(256)
        return bytes(data)

    assert refusals(NotPlaced, lambda data: place_objects([data], ["raised"]), map(damaged, range(300))) > 10


def test_a_container_runs_where_no_compiler_is(objects, tmp_path):
    path = tmp_path / "rows.weft"
    weft.runtime.placed_module(objects[1:], ["rows"]).export_library(path, container=True)
    program = f"""
import sys
sys.modules["llvmlite"] = None
import numpy as np, weft.runtime
out = np.zeros(5, "float32")
weft.runtime.load_module({str(path)!r})["rows"](np.ones((5, 37), "float32"), out)
print(out.sum())
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert float(done.stdout) == 5 * 37
