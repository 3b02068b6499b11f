"""Targets: forms, canonical text, features, errors."""

from shutil import which

import pytest

import weft
from tests.refusals import refuses
from tests.target.programs import vector
from weft import error, ffi, te
from weft.target import Target, get_source, host_features


def test_forms():
    assert Target("llvm").kind.name == "llvm"
    assert Target({"kind": "llvm", "mcpu": "haswell"}) == Target("llvm -mcpu=haswell")
    assert Target(Target("llvm -mcpu=haswell")).cpu == "haswell"
    assert Target("llvm", host="llvm -mcpu=haswell").host == Target("llvm -mcpu=haswell")
    assert Target("llvm --host=llvm").host is not None
    assert str(Target("llvm -num-cores 2 -mcpu=skylake")) == str(Target("llvm -num-cores=2 -mcpu=skylake"))
    assert hash(Target("llvm -num-cores=2")) == hash(Target("llvm --num-cores=2"))


def test_text_round_trips():
    for text in ("llvm -mcpu=haswell", "llvm -mtriple=aarch64-linux-gnu -mattr=+neon", "llvm -num-cores=3"):
        assert Target(str(Target(text))) == Target(text)


def test_features_decide_widths():
    assert Target("llvm -mcpu=x86-64 -mtriple=x86_64-linux-gnu").vector_bits == 128
    haswell = Target("llvm -mcpu=haswell -mtriple=x86_64-linux-gnu")
    assert (haswell.vector_bits, haswell.num_vector_registers) == (256, 16)
    wide = Target("llvm -mcpu=x86-64-v4 -mtriple=x86_64-linux-gnu")
    assert (wide.vector_bits, wide.num_vector_registers) == (512, 32)
    assert Target("llvm -mtriple=aarch64-linux-gnu").num_vector_registers == 32
    assert Target("llvm -mattr=+avx2,+fma").features >= {"avx2", "avx", "fma"}
    assert "avx512f" not in Target("llvm -mattr=+avx512f,-avx512f").features


def test_the_host_is_described_by_its_features():
    host = Target("llvm")
    assert host.features == host_features()
    assert host.is_host
    assert host.num_cores >= 1


def test_current_target():
    assert Target.current() is None
    with Target("llvm -mcpu=haswell") as t:
        assert Target.current() is t
    refuses(error.InvalidArgument, "with Target", Target.current, allow_none=False)


@pytest.mark.parametrize(
    ("text", "near"),
    [
        ("llvm -mcp=haswell", "-mcpu"),
        ("lvm", "llvm"),
        ("llvm -num-core=2", "-num-cores"),
        ("nvptx -mcpu=sm80", "-mcpu=sm_80"),
        ("nvptx -mcu=sm_80", "-mcpu"),
        ("nvpt", "nvptx"),
    ],
)
def test_what_is_unknown_suggests_the_near_one(text, near):
    refuses(error.InvalidArgument, f"did you mean '{near}'", Target, text)


@pytest.mark.parametrize("text", ["", "llvm mcpu=haswell"])
def test_malformed(text):
    refuses(error.InvalidArgument, "", Target, text)


def test_nvptx_describes_a_device():
    device = Target("nvptx -mcpu=sm_90a")
    assert (device.triple, device.cpu, device.is_host) == ("nvptx64-nvidia-cuda", "sm_90a", False)
    assert not device.features and device.vector_bits == 128
    assert Target("nvptx").cpu == "sm_70"
    assert Target(str(device)) == device
    assert Target("nvptx -mattr=+ptx78").attribute_string == "+ptx78" and device.attribute_string == "+ptx80"


@pytest.mark.parametrize("attribute", ["+ptx60", "+ptx79", "-ptx80", "+avx2"])
def test_nvptx_takes_a_version_of_ptx_that_has_the_architecture(attribute):
    refuses(error.InvalidArgument, r"(?s)PTX that has sm_80.*\+ptx70", Target, f"nvptx -mcpu=sm_80 -mattr={attribute}")


@pytest.mark.parametrize(
    ("target", "message"),
    [
        ("llvm -mcpu", "option '-mcpu' of target 'llvm' has no value"),
        ("llvm -num-cores=many", "option '-num-cores' of target 'llvm' is a number"),
        ("llvm -mtriple=x86_64-linux-gnu -mcpu=haswel", "has no model 'haswel'(.|\n)*-mcpu=haswell"),
        ("llvm -mtriple=x86_64-linux-gnu -mattr=+avx2,+avx1024", "has no feature 'avx1024'(.|\n)*mattr=[+]avx"),
        ("llvm -mtriple=aarch64-linux-gnu -mcpu=cortex-a7", "has no model 'cortex-a7'(.|\n)*cortex-a7"),
        ("llvm -mtriple=aarch64-linux-gnu -mattr=+neom", "has no feature 'neom'(.|\n)*[+]neon"),
    ],
)
def test_values_of_options(target, message):
    refuses(error.InvalidArgument, message, Target, target)


X86 = "llvm -mtriple=x86_64-unknown-linux-gnu"


@pytest.mark.parametrize(
    "more",
    [
        "-mattr=+fma",
        "-mattr=+popcnt",
        "-mattr=-avx2",
        "-mattr=-64bit,-sse2",
        "-mattr=+sse4.2",
        "-mcpu=x86-64",
        "-mcpu=znver4",
        "-mcpu=skylake-avx512 -mattr=-avx512f",
        "-mcpu=knl",
        "-mcpu=native",
    ],
)
def test_features_go_to_llvm(more):
    """Whatever is added or taken away, the baseline of the architecture stays: LLVM ends the process without it."""
    target = Target(f"{X86} {more}")
    x = te.placeholder((8,), name="x")
    func = te.create_prim_func([x, te.compute((8,), lambda i: x[i] * 2)])
    assert "%xmm" in get_source(func, target, "asm")
    assert target.vector_bits == (512 if "avx512f" in target.features else 256 if "avx" in target.features else 128)


def test_features_that_need_others():
    assert {"avx2", "avx", "sse4.2", "fma"} <= Target(f"{X86} -mattr=+avx512bw").features
    assert not {"avx512bw", "avx512f", "avx512vl"} & Target(f"{X86} -mcpu=skylake-avx512 -mattr=-avx512f").features
    off = Target("llvm -mattr=-avx").features
    assert not {f for f in off if f.startswith("avx") or f in ("fma", "f16c")}
    assert off == {f for f in Target("llvm").features if f in off}  # this machine without


def test_targets_in_any_form():
    host = Target("llvm")
    assert Target.canon_target(None) is None and Target.canon_target({"kind": "llvm"}) == host
    made, found = Target.canon_target_and_host("cuda", "llvm")
    assert made is not None and made.host == found == host
    assert Target.canon_target_and_host(None, "llvm") == (None, host)
    assert [str(t) for t in Target.canon_multi_target({0: "llvm", 1: "cuda"})] == ["llvm", "cuda"]
    assert [t.host for t in Target.canon_multi_target_and_host("cuda", "llvm")] == [host]
    mapped, found = Target.canon_target_map_and_host({"cuda": 1, "llvm": 2}, "llvm")
    assert list(mapped.values()) == [1, 2] and found == host
    with host:
        assert Target.target_or_current(None) == host
    refuses(error.InvalidArgument, "none is current", Target.target_or_current, None)


@pytest.mark.parametrize(
    "hook", [lambda text, target: f"// {target.kind}\n{text}", lambda text: f"// {len(text)}\n{text}"]
)
@pytest.mark.parametrize(
    "kind",
    [
        "opencl",
        pytest.param(
            "vulkan", marks=pytest.mark.skipif(not which("glslangValidator"), reason="needs glslangValidator")
        ),
        "webgpu",
    ],
)
def test_hooks_see_the_text_of_kernels(kind, hook):
    name = f"tvm_callback_{kind}_postproc"
    plain = weft.build(vector(te.exp), kind).imported_modules[0].get_source()
    weft.register_global_func(name, hook)
    try:
        text = weft.build(vector(te.exp), kind).imported_modules[0].get_source()
    finally:
        ffi.remove_global_func(name)
    assert text in (f"// {kind}\n{plain}", f"// {len(plain)}\n{plain}")
