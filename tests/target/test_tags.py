"""Tags, described kinds and targets by functions."""

import pytest

import weft
from tests.refusals import refuses
from weft import error, target
from weft import target as targets


def test_tags():
    nano = target.Target("nvidia/jetson-nano", "nvidia/geforce-rtx-2080-ti")
    assert (nano.kind, nano.arch, nano.attrs["registers_per_block"]) == ("cuda", "sm_53", 32768)
    assert nano.host is not None and nano.host.arch == "sm_75" and nano.tag == "nvidia/jetson-nano"
    changed = target.Target({"tag": "nvidia/nvidia-a100", "l2_cache_size_bytes": 12345})
    assert changed.arch == "sm_80" and changed.l2_cache_size_bytes == 12345
    assert "nvidia/nvidia-a100" in targets.list_tags()
    targets.register_tag("mine/board", {"kind": "llvm", "num-cores": 3}, override=True)
    assert target.Target("mine/board").num_cores == 3
    refuses(error.InvalidArgument, "already", targets.register_tag, "mine/board", {"kind": "llvm"})


def test_texts():
    assert target.Target("cuda --host nvidia/jetson-nano").host.arch == "sm_53"
    assert target.Target('{"kind": "cuda", "arch": "sm_80"}').arch == "sm_80"
    spaced = target.Target({"kind": "vulkan", "device_name": "a GPU of mine"})
    assert target.Target(str(spaced)).attrs["device_name"] == "a GPU of mine"
    given = target.Target("cuda -model=unknown -libs=cublas,cudnn")
    assert (given.model, given.libs, given.keys) == ("unknown", ["cublas", "cudnn"], ["cuda", "gpu"])
    refuses(error.InvalidArgument, "is no JSON", target.Target, "{kind: llvm}")
    refuses(error.InvalidArgument, "is no mapping", target.Target, {"kind": "llvm", "libs": {"a": "b"}})
    refuses(error.InvalidArgument, "a string or dictionary", target.Target, "cuda", 12.5)


def test_functions():
    assert targets.cuda(arch="sm_80", options="-libs=cublas").libs == ["cublas"]
    board = targets.arm_cpu("rasp4b64")
    assert board.keys == ["arm_cpu", "cpu"] and board.mcpu == "cortex-a72" and board.device_name == "arm_cpu"
    assert targets.mali().device_name == "mali" and targets.intel_graphics().thread_warp_size == 16
    assert target.Target("llvm").with_host("c").host.kind == "c"


def test_described_kinds():
    for kind in target.Target.list_kinds():
        assert weft.device_from_target(kind).device_type == target.Target(kind).get_target_device_type()
    both = target.Target({"kind": "composite", "devices": ["cuda", "opencl"]})
    assert [t.kind.name for t in both.attrs["devices"]] == ["cuda", "opencl"]
    refuses(error.CodegenError, "no code generator", weft.build, weft.IRModule({}), target="metal")
    assert target.Target({"kind": "webgpu", "supports_subgroups": True}).thread_warp_size == 32
    with pytest.raises(error.InvalidArgument, match="requires supports_subgroups=true"):
        target.Target({"kind": "webgpu", "thread_warp_size": 32})


def test_of_a_device():
    assert target.Target.from_device("cpu").kind == "llvm" and target.Target.from_device(weft.cpu()).kind == "llvm"
    refuses(error.InvalidArgument, "no such device", target.Target.from_device, "metal")


def test_features():
    here = target.Target("llvm -mattr=+avx2")
    assert here.features.has_avx2 and not here.features.has_absent
    assert targets.codegen.target_has_features("avx2", here)
    assert targets.codegen.llvm_get_vector_width(target.Target("llvm -mcpu=haswell")) == 256
