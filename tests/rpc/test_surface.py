"""The rest of what TVM's programs ask of `rpc`: programs over pipes, every parameter of timing, names, retries."""

import socket
import sys
import time

import numpy as np
import pytest

import weft
from tests.refusals import refuses
from tests.rpc import functions
from weft import error, rpc
from weft.frontend.common import pairs
from weft.rpc.tracker import Tracker

SERVES_PIPES = f"""#!{sys.executable}
import sys
sys.path[:0] = {sys.path!r}
import weft.rpc
from weft.rpc.channel import PipeChannel
from weft.rpc.service import Service
Service(PipeChannel(*map(int, sys.argv[1:]))).run()
"""


@pytest.fixture
def program(tmp_path):
    """A program that serves one session over pipes."""
    path = tmp_path / "server"
    path.write_text(SERVES_PIPES)
    path.chmod(0o700)
    return path


def used(session):
    with session:
        functions.travels(session, 3, 0x4001)
        assert session.get_function("testing.echo")("text") == "text"
        session.upload(b"content", "file")
        assert session.listdir() == "file"


def test_programs_serve_over_pipes(program, server, tmp_path):
    used(rpc.PopenSession(program))
    used(rpc.PopenSession(program.read_bytes()))
    used(rpc.connect("127.0.0.1", server.port, "tests", session_constructor_args=["rpc.PopenSession", str(program)]))
    (tmp_path / "plain").write_text("no program")
    for wrong, said in (("none", "does not exist"), ("plain", "not executable")):
        refuses(error.RPCError, said, rpc.PopenSession, tmp_path / wrong)
    program.write_text("no program")
    refuses(error.RPCError, "cannot be started", rpc.PopenSession, program)


def evaluator(remote, name, number=1, repeat=1, least_ms=0, zeros=100, cool_ms=0, to_cool=1, flushed=0, before=""):
    timed = remote.get_function("runtime.RPCTimeEvaluator")
    return timed(None, name, 1, 0, number, repeat, least_ms, zeros, cool_ms, to_cool, flushed, before)


def test_every_parameter_of_timing(remote):
    """How often a function is called, after what, and how long that takes."""
    kept, forget = remote.get_function("tests.rpc.kept"), remote.get_function("tests.rpc.forget")

    def calls(*args, name="tests.rpc.keep", **parameters):
        forget()
        start = time.monotonic()
        data = evaluator(remote, name, **parameters)(*args)
        assert np.all(np.frombuffer(data) > 0) and len(data) == 8 * parameters.get("repeat", 1)
        return kept(), time.monotonic() - start

    assert calls(0, number=3, repeat=4)[0] == 1 + 12  # the first call is to warm up
    assert calls(0, number=2, repeat=3, flushed=4096)[0] == 1 + 6
    assert calls(0.0, name="tests.rpc.sleep", number=1)[1] < 10
    assert calls(0, number=1, least_ms=5)[0] > 50
    for flushed in (0, 4096):
        assert calls(0, repeat=5, cool_ms=30, to_cool=2, flushed=flushed)[1] > 0.09  # after repeats 0, 2 and 4
    assert calls(0.001, name="tests.rpc.sleep", repeat=3, before="tests.rpc.keep")[0] == 3
    refuses(ValueError, r"no such|no function", evaluator(remote, "tests.rpc.keep", before="no such function"), 0)
    refuses(ValueError, "no function", evaluator, remote, "no such function")


def test_what_runs_before_a_timing_is_the_last_thing_that_does():
    """So that a cache that it flushes is not filled again by the call that warms up."""
    order = []
    with rpc.LocalSession() as session:
        weft.register_func("tests.rpc.timed", lambda: order.append("timed"), override=True)
        weft.register_func("tests.rpc.before", lambda: order.append("before"), override=True)
        evaluator(session, "tests.rpc.timed", number=2, repeat=2, before="tests.rpc.before")()
    assert order == ["timed", *["before", "timed", "timed"] * 2]


def test_devices_by_name(remote):
    kinds = "cpu:1 cuda:2 gpu:2 cl:4 vulkan:7 metal:8 rocm:10 ext_dev:12 hexagon:16 webgpu:15"
    for name, kind in pairs(kinds).items():
        device = getattr(remote, name)(9)
        assert (device.device_type % rpc.base.RPC_SESS_MASK, device.device_id) == (int(kind), 9)
        assert device.device_type // rpc.base.RPC_SESS_MASK == remote._tbl_index + 1
        assert not device.exist
    assert remote.cpu().exist and remote.device("llvm").exist
    assert remote.system_lib().type_key == "rpc"


def test_names_that_are_not_there():
    refuses(AttributeError, "PopenSession", getattr, rpc, "with_minrpc")
    refuses(AttributeError, "no attribute", getattr, rpc, "no_such_name")
    with pytest.raises(error.InvalidArgument, match="constructor as a list"):
        rpc.connect("127.0.0.1", 1, session_constructor_args="rpc.PopenSession")


def test_a_server_that_is_gone_is_asked_for_so_often():
    """A tracker may still know a server that cannot be reached."""
    tracker = Tracker("127.0.0.1", port=0, silent=True)
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    with functions.tracker_link(tracker.port) as offers:
        for i in range(2):
            rpc.base.sendjson(offers, [rpc.base.TrackerCode.PUT, "gone", (port, f"gone:{i}"), "127.0.0.1"])
            rpc.base.recvjson(offers)
        client = rpc.connect_tracker("127.0.0.1", tracker.port)
        assert client.summary()["queue_info"]["gone"] == {"free": 2, "pending": 0}
        refuses(error.RPCError, "after 2 tries", client.request, "gone", max_retry=2)
        client.close()
    tracker.terminate()
