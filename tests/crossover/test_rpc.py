"""Clients, servers, trackers and proxies of Weft and Apache TVM work with each other."""

import os
import subprocess
import sys
from contextlib import contextmanager

import pytest

from tests import clock
from tests.crossover.test_crossover import ROOT, TVM, needs_tvm
from tests.relax_models import model
from weft import relax

PROGRAMS = str(ROOT / "tests/crossover/rpc_programs.py")
ENVIRONMENT = os.environ | {"PYTHONPATH": str(ROOT)}


def command(package, *words):
    return [str(TVM) if package == "tvm" else sys.executable, PROGRAMS, package, *map(str, words)]


@contextmanager
def running(package, *words):
    """A process that listens; its port."""
    process = subprocess.Popen(
        command(package, *words), stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=ENVIRONMENT
    )
    try:
        port = process.stdout.readline().strip()
        assert port.isdigit(), f"{package} {words} did not start; standard error says why"
        yield port
    finally:
        process.stdin.close()
        process.stdout.close()
        try:
            process.wait(10)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def done(package, *words):
    found = clock.run(command(package, *words), env=ENVIRONMENT)
    assert found.returncode == 0, found.stderr[-3000:]
    return found.stdout


@pytest.fixture(scope="module")
def library(tmp_path_factory):
    path = str(tmp_path_factory.mktemp("rpc") / "model.so")
    relax.build(model(lambda x: relax.op.add(x, x), (3, 4)), "llvm").export_library(path, host="tvm")
    return path


@needs_tvm
@pytest.mark.parametrize(("client", "server"), [("tvm", "weft"), ("weft", "tvm"), ("weft", "weft")])
def test_clients_and_servers(client, server, library):
    with running(server, "serve", "key") as port:
        done(client, "use", library, "key", port)


@needs_tvm
@pytest.mark.parametrize(
    ("client", "tracker", "server"), [("tvm", "weft", "weft"), ("weft", "weft", "tvm"), ("tvm", "weft", "tvm")]
)
def test_trackers(client, tracker, server, library):
    with running(tracker, "track") as port, running(server, "serve", "key", port):
        done(client, "use", library, "key", port, "tracked")


@needs_tvm
@pytest.mark.parametrize(("client", "server"), [("tvm", "weft"), ("weft", "tvm")])
def test_proxies(client, server, library):
    with running("weft", "proxy") as port, running(server, "serve", "key", "", port):
        done(client, "use", library, "key", port)


@needs_tvm
def test_speed():
    """Copies are far faster than Apache TVM's, in the same run."""
    taken = {}
    for package in ("tvm", "weft"):
        with running(package, "serve", "key") as port:
            taken[package] = [float(n) for n in done(package, "bench", "key", port).split()]
    print({p: dict(zip(("call us", "to ms", "from ms"), t, strict=True)) for p, t in taken.items()})
    assert taken["tvm"][1] > 1.2 * taken["weft"][1]
    assert taken["tvm"][2] > 1.2 * taken["weft"][2]
