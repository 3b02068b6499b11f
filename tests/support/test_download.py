"""tvm.contrib.download: files of this machine and of a server; what cannot be fetched leaves nothing behind."""

import threading
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from weft.contrib.download import download, download_testdata

from weft import error

DATA = bytes(range(200))


class Cut(SimpleHTTPRequestHandler):
    def copyfile(self, source, outputfile):
        outputfile.write(source.read()[: 10 if "short" in self.path else None])


@pytest.fixture
def site(tmp_path):
    for name in ("a.bin", "short.bin"):
        (tmp_path / name).write_bytes(DATA)
    with ThreadingHTTPServer(("127.0.0.1", 0), partial(Cut, directory=tmp_path)) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()


def test_what_is_there_is_fetched_again_only_where_asked(site, tmp_path):
    there = tmp_path / "folder" / "b.bin"
    for url in (str(tmp_path / "a.bin"), (tmp_path / "a.bin").as_uri(), f"{site}/a.bin"):
        download(url, there, overwrite=True)
        assert there.read_bytes() == DATA
        for options, length in (({}, 7), ({"size_compare": True}, 200)):
            there.write_bytes(bytes(7))
            download(url, there, **options)
            assert there.stat().st_size == length
    path = there.with_name("c.bin")
    for url in (f"{site}/short.bin", f"{site}/absent.bin", "no address"):
        with pytest.raises(error.EvaluationError, match=r"cannot fetch '[\s\S]*help: without a network.*c\.bin"):
            download(url, path, retries=2)
    assert [p.name for p in there.parent.iterdir()] == ["b.bin"]


def test_test_data_has_a_folder(tmp_path, monkeypatch):
    monkeypatch.setenv("TEST_DATA_ROOT_PATH", str(tmp_path / "root"))
    (tmp_path / "x.txt").write_text("here")
    path = download_testdata(str(tmp_path / "x.txt"), "y.txt", module=["tf", "net"])
    assert path == str(tmp_path / "root" / "tf" / "net" / "y.txt") == download_testdata("", "y.txt", ["tf", "net"])
    assert Path(path).read_text() == "here"
