"""Tags, described kinds and targets by functions."""

import pytest

import weft
from weft import target as targets
from weft.error import CodegenError, InvalidArgument
from weft.target import Target


def test_tags():
    nano = Target("nvidia/jetson-nano", "nvidia/geforce-rtx-2080-ti")
    assert (nano.kind, nano.arch, nano.attrs["registers_per_block"]) == ("cuda", "sm_53", 32768)
    assert nano.host is not None and nano.host.arch == "sm_75" and nano.tag == "nvidia/jetson-nano"
    changed = Target({"tag": "nvidia/nvidia-a100", "l2_cache_size_bytes": 12345})
    assert changed.arch == "sm_80" and changed.l2_cache_size_bytes == 12345
    assert "nvidia/nvidia-a100" in targets.list_tags()
    targets.register_tag("mine/board", {"kind": "llvm", "num-cores": 3}, override=True)
    assert Target("mine/board").num_cores == 3
    with pytest.raises(InvalidArgument, match="already"):
        targets.register_tag("mine/board", {"kind": "llvm"})


def test_texts():
    assert Target("cuda --host nvidia/jetson-nano").host.arch == "sm_53"
    assert Target('{"kind": "cuda", "arch": "sm_80"}').arch == "sm_80"
    spaced = Target({"kind": "vulkan", "device_name": "a GPU of mine"})
    assert Target(str(spaced)).attrs["device_name"] == "a GPU of mine"
    given = Target("cuda -model=unknown -libs=cublas,cudnn")
    assert (given.model, given.libs, given.keys) == ("unknown", ["cublas", "cudnn"], ["cuda", "gpu"])
    with pytest.raises(InvalidArgument, match="is no JSON"):
        Target("{kind: llvm}")
    with pytest.raises(InvalidArgument, match="is no mapping"):
        Target({"kind": "llvm", "libs": {"a": "b"}})
    with pytest.raises(InvalidArgument, match="a string or dictionary"):
        Target("cuda", 12.5)


def test_functions():
    assert targets.cuda(arch="sm_80", options="-libs=cublas").libs == ["cublas"]
    board = targets.arm_cpu("rasp4b64")
    assert board.keys == ["arm_cpu", "cpu"] and board.mcpu == "cortex-a72" and board.device_name == "arm_cpu"
    assert targets.mali().device_name == "mali" and targets.intel_graphics().thread_warp_size == 16
    assert Target("llvm").with_host("c").host.kind == "c"


def test_described_kinds():
    for kind in Target.list_kinds():
        assert weft.device_from_target(kind).device_type == Target(kind).get_target_device_type()
    both = Target({"kind": "composite", "devices": ["cuda", "opencl"]})
    assert [t.kind.name for t in both.attrs["devices"]] == ["cuda", "opencl"]
    with pytest.raises(CodegenError, match="no code generator"):
        weft.build(weft.IRModule({}), target="metal")
    assert Target({"kind": "webgpu", "supports_subgroups": True}).thread_warp_size == 32
    with pytest.raises(InvalidArgument, match="requires supports_subgroups=true"):
        Target({"kind": "webgpu", "thread_warp_size": 32})


def test_of_a_device():
    assert Target.from_device("cpu").kind == "llvm" and Target.from_device(weft.cpu()).kind == "llvm"
    with pytest.raises(InvalidArgument, match="no such device"):
        Target.from_device("metal")


def test_features():
    here = Target("llvm -mattr=+avx2")
    assert here.features.has_avx2 and not here.features.has_absent
    assert targets.codegen.target_has_features("avx2", here)
    assert targets.codegen.llvm_get_vector_width(Target("llvm -mcpu=haswell")) == 256
