"""Networks that are compiled here for what another machine says of itself, and run there, agree with ONNX Runtime here.

Every network is compiled once: that Weft agrees with it on this machine is tested elsewhere; a sweep has all networks.
Inputs are parts of those that networks are timed with, as emulators compute each number of a vector by a function.
"""

import numpy as np
import pytest

from benchmarks import zoo
from benchmarks.peer import peer_session
from tests.devices.test_remote_machines import Running
from weft import environment, frontend, relax
from weft.runtime import tensor
from weft.target import Target

pytestmark = pytest.mark.skipif(environment.DEVICES.read() != "1", reason="minutes: make test-devices runs it")
NETWORKS = {"mobilenet_v3": lambda v: v[..., :97, :65], "decoder_step": lambda v: v}
if environment.SWEEP.read():
    NETWORKS |= {"minilm": lambda v: v[:, :9], "text_recogniser": lambda v: v[..., :101]}


@pytest.fixture(scope="module")
def machines():
    """Servers that were started, by processor."""
    started = {}
    yield started
    for server in started.values():
        server.end()


@pytest.mark.parametrize(
    ("processor", "network"),
    [("x86_64", "decoder_step"), *((there, name) for there in ("aarch64", "riscv64", "armv7") for name in NETWORKS)],
)
def test_networks_agree_with_this_machine(machines, processor, network, tmp_path):
    if processor not in machines:
        machines[processor] = Running(processor)
    path, part = zoo.onnx_path(network), NETWORKS[network]
    feeds = {name: np.ascontiguousarray(part(v)) for name, v in zoo.inputs(network, 0, seed=2).items()}
    peer = peer_session(path)
    expected = peer.run(None, feeds)
    mod = frontend.onnx.from_onnx(path)
    with machines[processor].connect() as remote:
        target = Target.from_device(remote.cpu())
        assert target.triple.startswith(processor)
        relax.build(mod, target).export_library(tmp_path / "network.so")
        remote.upload(tmp_path / "network.so")
        vm = relax.VirtualMachine(remote.load_module("network.so"), remote.cpu())
        assert vm.get_function_arity("main") == len(feeds)
        vm.set_input("main", *(tensor(feeds[i.name], remote.cpu()) for i in peer.get_inputs()))
        vm.invoke_stateful("main")
        outputs = vm.get_outputs("main")
        found = [output.numpy() for output in (outputs if isinstance(outputs, tuple) else (outputs,))]
    assert len(found) == len(expected)
    for f, e in zip(found, expected, strict=True):
        np.testing.assert_allclose(f, e, rtol=1e-4, atol=1e-4 * np.abs(e).max(initial=0.0))
