"""The description of a machine: from a target's text, features and options, from this machine, or by default."""

import dataclasses

import pytest

from weft import error, ir, te
from weft import machine as module
from weft.cli.main import main
from weft.compile_key import compile_key
from weft.machine import OPTION_OF, OPTIONS, UNKNOWN, Machine, host_facts, machine_of
from weft.relax.pipeline import graph_passes
from weft.target import Target
from weft.tir.schedule import default_schedule
from weft.topi.matmul import matmul_packed
from weft.tune.hardware import Hardware

X86 = "llvm -mtriple=x86_64-unknown-linux-gnu -mcpu=x86-64-v4"
ARM = "llvm -mtriple=aarch64-linux-gnu -mattr=+neon"
TEXTS = ["llvm", "llvm -mattr=-avx2", X86, ARM, "c", f"{X86} -l2-cache-bytes=1048576 -num-cores=3 -matrix-tiles=off"]


@pytest.mark.parametrize("text", TEXTS)
def test_text_and_dict_round_trip(text):
    target = Target(text)
    for again in (Target(str(target)), Target(target.export()), Target(target)):
        assert again == target and again.machine == target.machine
    assert Machine(**{**target.machine.described(), "features": target.machine.features}) == target.machine


@pytest.mark.parametrize("field", sorted(OPTION_OF))
def test_every_number_has_an_option(field):
    described = Target(f"{X86} -{OPTION_OF[field]}=128").machine
    assert described == dataclasses.replace(Target(X86).machine, **{field: 128})
    for wrong in ("0", "-1", "much"):
        with pytest.raises(error.InvalidArgument, match=f"option '-{OPTION_OF[field]}' of target 'llvm' is a .*number"):
            Target(f"{X86} -{OPTION_OF[field]}={wrong}")


def test_measurements_count_for_the_machine_where_they_were_made(monkeypatch):
    """Also of kinds whose text has no features."""
    here = Hardware.of(Target("c"))
    monkeypatch.setattr(module, "_caches", lambda _: {"l2_cache_bytes": 77 << 10})
    assert Hardware.of(Target("c")) != here and "l2-cache-bytes=78848" in here.differences(Hardware.of(Target("c")))


def test_names_of_tvm():
    assert OPTIONS["num-cores"] == "cores" and OPTIONS["vector-width"] == "vector_bits"
    assert Target("cuda -l2_cache_size_bytes=5000").machine.l2_cache_bytes == 5000
    with pytest.raises(error.InvalidArgument, match="256 bytes"):
        Target("llvm -cache-line-bytes=48")


def test_unknown_is_one_default():
    assert machine_of(None) is UNKNOWN and UNKNOWN.machine is UNKNOWN
    assert Target("nvptx").machine == UNKNOWN
    assert UNKNOWN.vector_bits == 128 and UNKNOWN.panel_columns == 8


def test_what_a_target_describes_is_not_this_machine(monkeypatch):
    before = {text: Target(text).machine for text in (X86, ARM)}
    monkeypatch.setattr(module.os, "sched_getaffinity", lambda _: set(range(77)))
    monkeypatch.setattr(module, "_caches", lambda _: {"l1_cache_bytes": 1 << 15, "l2_cache_bytes": 77 << 10})
    assert (Target("llvm").machine.cores, Target("llvm").machine.l2_cache_bytes) == (77, 77 << 10)
    assert Target("c -mcpu=native").machine == Target("llvm -mcpu=native").machine == Target("llvm").machine
    text = Target("llvm").identity
    assert "-l2-cache-bytes=78848" in text and "-num-cores=77" in text and str(Target("llvm")) == "llvm"
    assert {text: Target(text).machine for text in before} == before
    assert before[X86] == Machine(features=before[X86].features, vector_bits=512, vector_registers=32)
    assert (before[ARM].vector_bits, before[ARM].vector_registers) == (128, 32)


def test_the_last_cache_is_shared(monkeypatch):
    monkeypatch.setattr(module, "_caches", lambda _: {"l3_cache_bytes": 260 << 20})
    assert host_facts()["l3_cache_bytes"] == UNKNOWN.l3_cache_bytes
    monkeypatch.setattr(module, "_caches", lambda _: {})
    assert "l2_cache_bytes" not in host_facts(), "what the system does not say is assumed"


def product(target, packed):
    x = te.placeholder((64, 576), name="x")
    if packed:
        w = te.placeholder((16, 576, 32), name="w")
        return default_schedule(te.create_prim_func([x, w, matmul_packed(x, w, 512)]), target)
    w, k = te.placeholder((576, 128), name="w"), te.reduce_axis((0, 576), "k")
    made = te.compute((64, 128), lambda i, j: te.sum(x[i, k] * w[k, j], axis=k), name="y")
    return default_schedule(te.create_prim_func([x, w, made]), target)


@pytest.mark.parametrize(("packed", "bytes_"), [(True, 4 << 20), (False, 1 << 20)], ids=["tile", "order of loops"])
def test_another_cache_is_another_schedule(packed, bytes_):
    """1.2 MB of panels stay in a cache of 4 MB, and 300 KB of columns leave one of 1 MB."""
    usual, other = Target(X86), Target(f"{X86} -l2-cache-bytes={bytes_}")
    assert str(product(usual, packed)) == str(product(UNKNOWN_512, packed))
    assert str(product(usual, packed)) != str(product(other, packed))
    assert compile_key("internal", ["f"], usual) != compile_key("internal", ["f"], other)


UNKNOWN_512 = Machine(vector_bits=512, vector_registers=32)


def test_graph_passes_ask_the_machine():
    """Without a target, passes are for the current one, or this machine."""
    with Target(X86) as target:
        assert [p.name for p in graph_passes()] == [p.name for p in graph_passes(target)]
    narrow = graph_passes(Target("llvm -mtriple=x86_64-unknown-linux-gnu -mcpu=x86-64"))
    assert "CompressWeights" not in [p.name for p in narrow]
    assert "FuseAttention" not in [p.name for p in graph_passes("cuda")]


def test_tasks_take_as_long_as_waking_a_thread():
    x = te.placeholder((ir.int64(16), ir.int64(1024)), name="x")
    func = te.create_prim_func([x, te.compute(x.shape, lambda i, j: x[i, j] * 2.0, name="y")])
    assert "parallel" not in str(default_schedule(func, dataclasses.replace(UNKNOWN, wake_ns=1 << 16)))
    assert "parallel" in str(default_schedule(func, dataclasses.replace(UNKNOWN, wake_ns=128)))
    assert "parallel" not in str(default_schedule(func, dataclasses.replace(UNKNOWN, wake_ns=128, cores=1)))


def test_doctor_prints_every_field(capsys):
    assert main(["doctor"]) == 0
    printed = capsys.readouterr().out
    for field in dataclasses.fields(Machine):
        assert f"  {field.name}\t" in printed
    assert f"l2_cache_bytes\t{Target('llvm').machine.l2_cache_bytes}\t" in printed
