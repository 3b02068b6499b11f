"""Plain triples as targets, machines that describe themselves, and code for machines that are not this one."""

import re

import pytest

import weft
from tests.refusals import refuses
from weft import error, rpc, te, tir
from weft.target import Target
from weft.target.remote import options_from_facts


def sums():
    n = te.var("n")
    a = te.placeholder((n,), name="a")
    return te.create_prim_func([a, te.compute((n,), lambda i: a[i] * 2.0 + 1.0, name="b")])


@pytest.mark.parametrize(
    ("text", "triple", "bits", "registers", "abi"),
    [
        ("aarch64-linux-gnu", "aarch64-linux-gnu", 128, 32, ""),
        ("arm64", "aarch64-linux-gnu", 128, 32, ""),
        ("armv7", "armv7-linux-gnueabihf", 128, 16, ""),
        ("riscv64-linux-gnu", "riscv64-linux-gnu", 64, 32, "lp64d"),
        ("riscv64 -mattr=+v,+zvl256b", "riscv64-linux-gnu", 256, 32, "lp64d"),
        ("x86_64 -mcpu=haswell", "x86_64-linux-gnu", 256, 16, ""),
        ("x86_64-linux-musl -mcpu=skylake-avx512", "x86_64-linux-musl", 512, 32, ""),
    ],
)
def test_a_plain_triple_is_a_target(text, triple, bits, registers, abi):
    target = Target(text)
    assert (target.kind.name, target.triple, target.abi) == ("llvm", triple, abi)
    assert (target.vector_bits, target.num_vector_registers) == (bits, registers)
    assert str(Target(str(target))) == str(target)


@pytest.mark.parametrize("text", ["aarch65-linux-gnu", "x86-64", "mips"])
def test_what_is_no_triple_is_no_target(text):
    refuses(error.InvalidArgument, text, Target, text)


@pytest.mark.parametrize(
    ("target", "instruction"),
    [
        ("aarch64-linux-gnu", r"fmla\s+v\d+\.4s|ld1\b|ldp\s+q"),
        ("aarch64-linux-gnu -mattr=+sve -vector-width=256", r"\bz\d+\.s"),
        ("riscv64-linux-gnu -mattr=+v,+zvl256b", r"vsetv?i?vli"),
    ],
)
def test_kernels_use_the_vectors_of_their_machine(target, instruction):
    assert re.search(instruction, weft.build(sums(), target=target).get_source("asm"))


@pytest.mark.parametrize("target", ["aarch64", "armv7", "riscv64"])
def test_code_for_another_machine_is_kept_and_not_run(target):
    if Target(target).is_host:
        pytest.skip("this is such a machine")
    module = weft.build(sums(), target=target)
    x, y = weft.runtime.empty((3,), "float32"), weft.runtime.empty((3,), "float32")
    refuses(error.CodegenError, "for another machine", module["main"], x, y)


def test_members_of_tensors_lie_where_pointers_are_short():
    """A DLTensor's number of dimensions is the fourth word where pointers have 32 bits."""
    assert re.search(r"ldr\s+r\d+, \[r\d+, #12\]|ldm", weft.build(sums(), target="armv7").get_source("asm"))


def test_functions_of_arm_take_floats_in_their_registers():
    """What the C library has under ``gnueabihf`` does, and helpers have the names of that ABI."""
    x = te.placeholder((4,), "int64", name="x")
    y = te.compute((4,), lambda i: tir.call_pure_extern("float32", "sinf", x[i].astype("float32")), name="y")
    text = weft.build(te.create_prim_func([x, y]), target="armv7").get_source("asm")
    assert "__aeabi_l2f" in text and "__floatdisf" not in text
    assert re.search(r"vmov[.f32]*\s+s0,", text)


FACTS = "architecture=aarch64\nfeatures=neon,sve\nvector_bits=512\ncores=4\nl2_cache_bytes=1048576\nnew_fact=yes\n"


def test_a_machine_describes_itself():
    machine = Target(options_from_facts(FACTS)).machine
    assert {"neon", "sve"} <= machine.features
    assert (machine.vector_bits, machine.cores, machine.l2_cache_bytes) == (512, 4, 1 << 20)
    scalable = Target(options_from_facts("architecture=riscv64\nfeatures=a,c,d,f,m,v\nvector_bits=256\n"))
    assert scalable.vector_bits == 256
    assert "zvl256b" in scalable.features


@pytest.mark.parametrize(
    "facts", ["", "architecture=vax", "architecture=aarch64\ncores=many", "architecture=riscv64\ncores=0"]
)
def test_a_wrong_description_is_refused(facts):
    refuses(error.InvalidArgument, "", options_from_facts, facts)


def test_the_target_of_a_session_is_its_machine():
    with rpc.LocalSession() as session:
        found = Target.from_device(session.cpu())
        assert found.triple.split("-")[0] == Target("llvm").triple.split("-")[0]
        assert found.num_cores == Target("llvm").num_cores
        assert found.vector_bits == Target("llvm").vector_bits
        built = weft.build(sums(), target=found)
    assert built["main"] is not None
