"""A target that the compiler does not know: all of it is in this file, and models run on it."""

import numpy as np
import pytest

import weft
from tests.refusals import refuses
from weft import error, relax, runtime, te
from weft.compile_key import compile_key
from weft.relax.pipeline import get_pipeline, graph_passes
from weft.script import relax as R
from weft.target import Target, TargetKind, build, compile_func, get_source, register_target_kind
from weft.target import kind as registry
from weft.target.c import build_c
from weft.target.c.build import source_c
from weft.target.llvm import LLVM
from weft.tir.pipeline import lower
from weft.tir.schedule import default_schedule


class Seen(list):
    """What the kind's functions were called for."""

    def build(self, mod, target):
        self.append("build")
        return build_c(mod, target)

    def schedule(self, func, target):
        self.append("schedule")
        return default_schedule(func, target.machine)

    def passes(self, target, precision, check_indices):
        self.append(f"passes at speed {target.attrs.get('speed')}")
        return graph_passes("c", precision, check_indices)

    def lower(self, func, target):
        self.append("lower")
        return lower(func, target)

    def check(self, target):
        if target.attrs.get("speed") == "0":
            raise error.InvalidArgument("a toy moves")


@pytest.fixture
def seen(monkeypatch):
    monkeypatch.setattr(registry, "_KINDS", dict(registry._KINDS))
    return Seen()


@pytest.fixture
def toy(seen):
    """A generator of whole modules, with its own schedule and passes."""
    kind = TargetKind(
        "toy_c",
        build=seen.build,
        source=source_c,
        source_format="c",
        options=("speed",),
        check=seen.check,
        keys=("toy", "cpu"),
        attributes={"tir.schedule": seen.schedule, "relax.graph_passes": seen.passes},
    )
    return register_target_kind(kind)


def network():
    @weft.script.ir_module
    class Module:
        @R.function
        def main(x: R.Tensor(("n", 8), "float32"), w: R.Tensor((8, 16), "float32")):
            with R.dataflow():
                y = R.matmul(x, w)
                z = R.nn.relu(y)
                R.output(z)
            return z

    return Module


def agrees(executable):
    x, w = (np.random.default_rng(s[0]).standard_normal(s, np.float32) for s in ((5, 8), (8, 16)))
    found = runtime.VirtualMachine(executable, weft.cpu())["main"](x, w).numpy()
    np.testing.assert_allclose(found, np.maximum(x @ w, 0), rtol=1e-5, atol=1e-5)


def test_a_model_runs_on_it(toy, seen, tmp_path):
    assert [compile_key("model", [], t) for t in ("toy_c -speed=9", {"kind": "toy_c"}, Target("toy_c"))] == [None] * 3
    made = weft.compile(network(), target="toy_c -speed=9 -l2-cache-bytes=65536")
    assert seen[0] == "passes at speed 9" and seen.count("build") == 1 and "schedule" in seen
    agrees(made)
    path = tmp_path / "model.so"
    made.export_library(path)
    agrees(weft.runtime.load_module(path))


def test_a_kind_that_only_generates_code_gets_the_rest_from_its_keys(seen):
    register_target_kind(TargetKind("bare", build=seen.build))
    agrees(weft.compile(network(), target="bare"))
    assert seen == ["build"]
    assert [p.name for p in graph_passes("bare")] == [p.name for p in graph_passes("c")]
    assert isinstance(get_pipeline("default", Target("bare")), weft.ir.Pass)


def test_llvm_with_another_lowering(seen):
    """A kind with object code has kernels that are called directly, and nothing of it is in a cache."""
    register_target_kind(TargetKind("checked", build=LLVM.build, compile=LLVM.compile, lower=seen.lower))
    target = Target("checked")
    assert target.machine == Target("llvm").machine
    assert compile_key("internal", ["f"], target) is None and compile_key("internal", ["f"], Target("llvm"))
    agrees(weft.compile(network(), target=target, exec_mode="compiled"))
    assert "lower" in seen


def test_what_is_missing_is_said(toy, seen):
    x = te.placeholder((4,), name="x")
    func = te.create_prim_func([x, te.compute((4,), lambda i: x[i] * 2.0, name="y")])
    assert "weft_fail" in get_source(func, "toy_c")
    refuses(error.InvalidArgument, "did you mean '-speed'", Target, "toy_c -sped=3")
    refuses(error.InvalidArgument, "a toy moves", Target, "toy_c -speed=0")
    refuses(error.InvalidArgument, "there is a target kind 'toy_c' already", register_target_kind, TargetKind("toy_c"))
    refuses(error.CodegenError, "makes no object code", compile_func, func, Target("toy_c"))
    register_target_kind(TargetKind("mute"))
    refuses(error.CodegenError, "'mute' has no code generator", build, func, "mute")
    refuses(error.CodegenError, "'mute' shows no source", get_source, func, "mute")
    assert relax.compile_kernels(weft.IRModule({}), Target("toy_c")) is None
