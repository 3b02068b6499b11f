"""WEFT_DUMP_DIR: what a compilation leaves there."""

import re

import numpy as np
import pytest

import weft
from tests import onnx_models
from weft import error, ir, relax, relay, runtime, te, tir
from weft.relax.op import add, multiply


@pytest.fixture
def dumps(tmp_path, monkeypatch):
    monkeypatch.setenv("WEFT_DUMP_DIR", str(tmp_path / "dumps"))
    monkeypatch.setenv("WEFT_CACHE_DIR", str(tmp_path / "cache"))
    return tmp_path / "dumps"


UNARY = "exp abs ceil floor negative round sign sqrt square rsqrt trunc sigmoid tanh sin cos log erf".split()


def program(kernels=1):
    """Each kernel of a chain has another operator; products are held apart by being returned."""
    bb, x = relax.BlockBuilder(), relax.Var("x", relax.TensorStructInfo((tir.Var("n", "int64"), 4), "float32"))
    with bb.function("main", [x]), bb.dataflow():
        outputs, value = [], x
        for name in UNARY[:kernels]:
            value = bb.emit(getattr(relax.op, name)(bb.emit(add(value, relax.const(1.0)))))
            outputs.append(bb.emit_output(bb.emit(multiply(value, value))))
        bb.emit_func_output(tuple(outputs) if kernels > 1 else outputs[0])
    return bb.get()


def folders(dumps):
    return sorted(p.name for p in dumps.iterdir())


def files(folder):
    return {p.name for p in folder.iterdir() if p.is_file()}


def test_every_stage_that_changed_is_a_file_and_the_summary_names_all(dumps):
    with ir.PassContext(instruments=[seen := ir.TimePasses()]):
        relax.build(program(), "llvm")
    assert folders(dumps) == ["0001-main"]
    top = dumps / "0001-main"
    lines = [line.split(maxsplit=1) for line in (top / "summary.txt").read_text().splitlines()]
    told = dict(line.split(": ") for _, line in lines)
    changed = {name for name in told.values() if name != "no change"}
    assert changed | {"summary.txt", "bytecode.txt"} == files(top)
    assert told["LambdaLift"] == "no change" and re.fullmatch(r"\d{3}-FuseOps\.py", told["FuseOps"])
    numbers = [int(name[:3]) for name in told.values() if name[:3].isdigit()]
    assert numbers == sorted(set(numbers))  # as the passes ran
    assert {"Normalize", "FuseOps", "LegalizeOps", "VMShapeLower"} <= {k for k in seen.times_ms if k in told}
    before, after = ((top / told[name]).read_text() for name in ("given", "FuseOps"))
    assert "R.exp" in before and "fused" not in before and "fused_add_exp_multiply" in after


def test_a_kernel_has_its_stages_schedule_trace_and_code(dumps):
    relax.build(program(), "llvm")
    kernel = dumps / "0001-main" / "kernels" / "fused_add_exp_multiply_kernel"
    assert {"000-given.py", "001-ScheduleTIR.py", "summary.txt"} <= files(kernel)
    assert "sch.vectorize" in (kernel / "trace.py").read_text()
    assert "T.vectorized" in (kernel / "001-ScheduleTIR.py").read_text()
    assert "define" in (kernel / "emitted.ll").read_text() and "define" in (kernel / "optimised.ll").read_text()
    assert re.search(r"\bret", (kernel / "assembly.s").read_text())


def test_nothing_comes_from_the_cache_or_goes_into_it(dumps):
    for _ in range(2):
        relax.build(program(), "llvm")
    first, second = (dumps / name / "kernels" / "fused_add_exp_multiply_kernel" for name in ("0001-main", "0002-main"))
    assert files(first) == files(second) and runtime.cache.statistics().entries == 0


def test_kernels_that_processes_beside_would_compile_are_dumped(dumps, monkeypatch):
    monkeypatch.setenv("WEFT_COMPILE_PROCESSES", "4")
    executable = relax.build(program(17), "llvm")
    kernels = dumps / "0001-main" / "kernels"
    assert len([k for k in kernels.iterdir() if (k / "assembly.s").exists()]) == len(list(kernels.iterdir())) >= 17
    assert len(relax.VirtualMachine(executable, weft.cpu())["main"](np.zeros((2, 4), "float32"))) == 17


def test_a_session_dumps_under_the_name_of_its_file(dumps, tmp_path, monkeypatch):
    import onnx

    monkeypatch.setenv("WEFT_MODEL_CACHE", "1")
    onnx.save(onnx_models.add(), tmp_path / "my model.onnx")
    for count in (1, 2):
        weft.Session(tmp_path / "my model.onnx")
        assert folders(dumps)[count - 1] == f"000{count}-my_model"
        assert (dumps / f"000{count}-my_model" / "bytecode.txt").exists()


def test_other_ways_to_compile_dump_too(dumps):
    a = te.placeholder((8,), name="A")
    s = te.create_schedule(te.compute((8,), lambda i: a[i] * 2.0, name="B").op)
    weft.build(s, [a, s.outputs[0].output(0)], "llvm", name="twice")
    x = relay.var("x", shape=(2, 2))
    relay.build(relay.Function([x], relay.exp(x)), "llvm")
    relay.vm.compile(relay.Function([x], relay.exp(x)), target="llvm")
    assert folders(dumps) == ["0001-twice", "0002-main", "0003-main"]
    for name in folders(dumps):
        assert all((k / "assembly.s").exists() for k in (dumps / name / "kernels").iterdir())


def test_a_folder_that_cannot_be_written_is_refused(tmp_path, monkeypatch):
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("WEFT_DUMP_DIR", str(tmp_path / "file"))
    with pytest.raises(error.InvalidArgument, match="WEFT_DUMP_DIR cannot be written"):
        relax.build(program(), "llvm")
