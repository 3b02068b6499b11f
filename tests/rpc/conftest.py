import pytest

from tests.rpc import functions
from weft import rpc


@pytest.fixture(scope="session")
def server():
    """One server for all tests; what a test leaves in its session goes with the session."""
    server = rpc.Server("127.0.0.1", port=0, key="tests", silent=True, server_init_callback=functions.register)
    yield server
    server.terminate()


@pytest.fixture(params=["local", "server", "tcp"])
def remote(request):
    """A session with this process, one with a server of this machine, and one with a server by TCP."""
    if request.param == "local":
        functions.register()
        with rpc.LocalSession() as session:
            yield session
    else:
        server = request.getfixturevalue("server")
        host = "127.1" if request.param == "tcp" else "127.0.0.1"
        with rpc.connect(host, server.port, key="tests") as session:
            yield session


@pytest.fixture
def resident():
    """Bytes that a session's process has in memory."""

    def read(session):
        pid = session.get_function("tests.rpc.pid")()
        with open(f"/proc/{pid}/statm") as file:
            return int(file.read().split()[1]) * 4096

    return read
