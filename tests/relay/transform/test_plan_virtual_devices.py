"""PlanDevices over virtual devices: what is held together is on one device, copies stand where ``on_device`` allows."""

import numpy as np
import pytest

import weft
from weft import error, ir, relay
from weft.relay.transform import PlanDevices
from weft.target import Target, VirtualDevice, make_compilation_config

CPU, GPU = VirtualDevice("cpu", Target("llvm")), VirtualDevice("cuda", Target("cuda"))
IN_A, IN_B = (VirtualDevice("cpu", Target("llvm"), scope) for scope in "AB")
CONFIG = make_compilation_config(ir.PassContext(config={"relay.fallback_device_type": 2}), ["llvm", "cuda"], "llvm")
META = {"VirtualDevice": [CPU, GPU, IN_A, IN_B]}
HEADER = "def @main(%x: Tensor[(2, 3), float32], %y: Tensor[(2, 3), float32])"


def at(n):
    return f"virtual_device=meta[VirtualDevice][{n}]"


def parse(text):
    return weft.parser.parse(text, "text", None, META)


def planned(before, header=HEADER):
    return PlanDevices(CONFIG)(parse(f"{header} {{ {before} }}"))


# Name: the program, where its parameters and its result are, the program with copies.
CASES = {
    "nothing is said": ("add(%x, %y)", "111", "add(%x, %y)"),
    "an operator on the CPU": (
        f"%0 = add(%x, %x); %1 = on_device(%0, {at(0)}); subtract(%1, %y)",
        "011",
        f"%0 = add(%x, %x); %1 = on_device(%0, {at(0)}, constrain_result=True);"
        f"%2 = device_copy(%1, src_{at(0)}, dst_{at(1)}); subtract(%2, %y)",
    ),
    "the result of a function": (f"%0 = add(%x, %y); on_device(%0, {at(0)})", "000", "add(%x, %y)"),
    "an element, not the tuple": (
        f"let %t = split(%x, indices_or_sections=3, axis=1); %0 = on_device(%t, {at(0)}); add(%0.0, %y)",
        "011",
        f"%0 = split(%x, indices_or_sections=3, axis=1); let %t = on_device(%0, {at(0)}, constrain_result=True);"
        f"%1 = %t.0; %2 = on_device(%1, {at(0)}, constrain_result=True);"
        f"%3 = device_copy(%2, src_{at(0)}, dst_{at(1)}); add(%3, %y)",
    ),
    "through a closure": (
        f"let %f = fn (%a: Tensor[(2, 3), float32]) {{ %0 = exp(%a); on_device(%0, {at(0)}) }}; add(%f(%x), %y)",
        "000",
        f"let %f = fn (%a {{{at(0)}}}: Tensor[(2, 3), float32], {at(0)}) {{ exp(%a) }}; add(%f(%x), %y)",
    ),
    "a copy to where it is": (f"%0 = device_copy(%x, src_{at(1)}, dst_{at(1)}); add(%0, %y)", "111", "add(%x, %y)"),
}


@pytest.mark.parametrize("name", CASES)
def test_copies_stand_where_devices_change(name):
    before, places, after = CASES[name]
    x, y, result = places
    made = planned(before)
    ty = "Tensor[(2, 3), float32]"
    header = f"def @main(%x {{{at(x)}}}: {ty}, %y {{{at(y)}}}: {ty}, {at(result)})"
    wanted = relay.transform.InferType()(parse(f"{header} {{ {after} }}"))
    ir.assert_structural_equal(made, wanted, map_free_vars=True)
    ir.assert_structural_equal(PlanDevices(CONFIG)(made), made, map_free_vars=True)  # planned once and for all
    ir.assert_structural_equal(relay.fromtext(made.astext()), made, map_free_vars=True)
    args = np.random.default_rng(0).standard_normal((2, 2, 3)).astype("float32")
    plain = parse(f"{HEADER} {{ {before} }}")
    results = [relay.create_executor("debug", m).evaluate()(*args).numpy() for m in (plain, made)]
    np.testing.assert_array_equal(*results)


def test_scopes_flow_to_what_says_none():
    text = f"""
    def @there(%p {{{at(3)}}}: Tensor[(2), float32], {at(3)}) -> Tensor[(2), float32] {{ %p }}
    def @main(%x {{{at(0)}}}: Tensor[(2), float32], %y {{{at(2)}}}: Tensor[(2), float32], {at(3)}) {{
      %0 = on_device(%x, {at(0)}, constrain_body=False);
      %1 = on_device(%y, {at(0)}, constrain_body=False);
      add(@there(%0), @there(%1))
    }}"""
    main = PlanDevices(CONFIG)(parse(text))["main"]
    assert main.attrs["param_virtual_devices"] == (IN_B, IN_A)
    copies = [c for c in ir.walk(main) if isinstance(c, ir.Call) and getattr(c.op, "name", "") == "device_copy"]
    assert [(c.attrs["src_device"], c.attrs["dst_device"]) for c in copies] == [(IN_A, IN_B)]


@pytest.mark.parametrize(
    ("header", "before", "places"),
    [
        ("%x: Tensor[(?, 3), float32]", f"vm.shape_of(on_device(%x, {at(1)}, constrain_result=True))", [GPU, CPU]),
        ("%n: int64", f"memory.alloc_storage(%n, {at(1)})", [CPU, GPU]),
        (
            "%x: Tensor[(6), float32], %s: Tensor[(2), int64]",
            "vm.reshape_tensor(%x, %s, newshape=[2, 3])",
            [GPU, CPU, GPU],
        ),
    ],
)
def test_shapes_and_sizes_are_on_the_host(header, before, places):
    attrs = planned(before, f"def @main({header})")["main"].attrs
    assert [*attrs["param_virtual_devices"], attrs["virtual_device"]] == places


@pytest.mark.parametrize(
    ("before", "what"),
    [
        (f"add(on_device(%x, {at(0)}, constrain_result=1), on_device(%y, {at(1)}, constrain_result=1))", "two devices"),
        ('on_device(%x, virtual_device="opencl:0")', "no target"),
    ],
)
def test_devices_that_cannot_be(before, what):
    with pytest.raises(error.InvalidArgument, match=what):
        planned(before)


def test_the_default_device_has_a_target():
    with pytest.raises(error.InvalidArgument, match="no target"):
        make_compilation_config(ir.PassContext(config={"relay.fallback_device_type": 4}), "llvm")
    for targets, default in (("cuda", GPU), ({"cuda": "cuda", "cpu": "llvm"}, CPU)):
        assert make_compilation_config(None, targets).default_primitive_virtual_device == default
