"""Random programs, parts of them on a second CPU device, give what the interpreter gives on one."""

import random

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import weft
from tests.relay.programs.check import Disagreement, equal, show
from tests.relay.programs.draw import programs
from weft import error, relay
from weft.ir import Op, TensorType
from weft.relay.machine_values import from_machine, to_machine
from weft.relay.transform import InferType
from weft.relay.walk import rewrite
from weft.runtime.relay_vm import VirtualMachine

DEVICES = [weft.cpu(0), weft.cpu(1)]
SAID = ("on two devices", "only tensors are copied")


def scattered(mod, seed):
    """Annotate some calls of operators with one of two devices."""
    rng = random.Random(seed)

    def annotated(e):
        if isinstance(e, relay.Call) and isinstance(e.op, Op) and isinstance(e.ty, TensorType) and rng.random() < 0.5:
            return relay.annotation.on_device(e, rng.choice(DEVICES))
        return e

    typed = InferType()(mod)
    out = typed.copy()
    for v, f in typed.items():
        if isinstance(f, relay.Function):
            out[v] = f.replace(body=rewrite(f.body, annotated))
    return InferType()(out)


def check(program, seed):
    """Compare; False for programs that the planner refuses with words."""
    mod, args = program
    expected = relay.create_executor("debug", mod).evaluate()(*args)
    there = scattered(mod, seed)
    main = there["main"]
    try:
        exe = relay.vm.compile(there, ["llvm", "llvm"])
    except (error.InvalidArgument, error.LoweringError) as e:
        if any(s in str(e) for s in SAID):
            return False
        raise Disagreement(f"two devices: {e}", there, args) from e
    vm = VirtualMachine(exe, DEVICES)
    given_args = [to_machine(a, p.ty) for a, p in zip(args, main.params, strict=True)]
    got = from_machine(vm.invoke("main", *given_args), main.ret_type, there, vm.invoke_closure)
    if not equal(expected, got):
        raise Disagreement(f"two devices: {show(got)} instead of {show(expected)}", there, args)
    return True


def test_random_programs_over_two_devices():
    compared = []

    @settings(max_examples=25, deadline=None, suppress_health_check=list(HealthCheck))
    @given(programs(fuel=40), st.integers(0, 1000))
    def draw(program, seed):
        compared.append(check(program, seed))

    draw()
    assert sum(compared) >= 10, f"the planner refused {compared.count(False)} of {len(compared)} programs"
