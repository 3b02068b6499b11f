"""tvm.contrib.download: files of this machine and of a server; what cannot be fetched leaves nothing behind."""

import threading
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer

import pytest
from weft.contrib.download import download, download_testdata

import weft
from weft import error


class Cut(SimpleHTTPRequestHandler):
    def copyfile(self, source, outputfile):
        outputfile.write(source.read()[:10] if "short" in self.path else source.read())

    def log_message(self, *_):
        pass


@pytest.fixture
def site(tmp_path):
    (tmp_path / "a.bin").write_bytes(bytes(range(200)))
    (tmp_path / "short.bin").write_bytes(bytes(200))
    server = ThreadingHTTPServer(("127.0.0.1", 0), partial(Cut, directory=tmp_path))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    server.server_close()


def test_a_path_an_address_and_a_server(site, tmp_path):
    source = tmp_path / "a.bin"
    for n, url in enumerate((str(source), source.as_uri(), f"{site}/a.bin")):
        download(url, tmp_path / f"new{n}" / "b.bin")
        assert (tmp_path / f"new{n}" / "b.bin").read_bytes() == source.read_bytes()


def test_what_is_there_is_fetched_again_only_where_asked(site, tmp_path):
    there = tmp_path / "there.bin"
    there.write_bytes(bytes(200))
    download(f"{site}/a.bin", there)
    download(f"{site}/a.bin", there, size_compare=True)
    assert there.read_bytes() == bytes(200)
    download(f"{site}/a.bin", there, overwrite=True)
    assert there.read_bytes()[5] == 5
    there.write_bytes(b"1")
    download(f"{site}/a.bin", there, size_compare=True)
    assert there.stat().st_size == 200


@pytest.mark.parametrize("name", ["short.bin", "absent.bin"])
def test_what_cannot_be_fetched_leaves_nothing(site, tmp_path, name):
    there = tmp_path / "folder" / "b.bin"
    with pytest.raises(error.EvaluationError, match="(bytes came|404: File not found)\\s*help: without a network"):
        download(f"{site}/{name}", there, retries=2)
    assert not list(there.parent.iterdir())
    with pytest.raises(error.EvaluationError, match="cannot fetch 'no address'"):
        download("no address", there)


def test_test_data_has_a_folder(tmp_path, monkeypatch):
    monkeypatch.setenv("TEST_DATA_ROOT_PATH", str(tmp_path / "root"))
    (tmp_path / "x.txt").write_text("here")
    path = weft.contrib.download.download_testdata(str(tmp_path / "x.txt"), "y.txt", module=["tf", "net"])
    assert path == str(tmp_path / "root" / "tf" / "net" / "y.txt") == download_testdata("", "y.txt", ["tf", "net"])
    assert open(path).read() == "here"  # noqa: PTH123
