"""Scratch folders, the system's compiler, worker processes."""

import ctypes
import os
import subprocess
import time
from pathlib import Path

import pytest

from weft.error import CodegenError, MissingDependency
from weft.support import cc, popen_pool, utils


def test_tempdir(tmp_path):
    with utils.tempdir() as folder:
        Path(folder.relpath("a.txt")).write_text("a")
        assert folder.listdir() == ["a.txt"] and folder / "a.txt" == folder.relpath("a.txt")
        path = folder.path
    assert not Path(path).exists()
    kept = utils.tempdir(str(tmp_path / "kept"))
    kept.remove()
    assert (tmp_path / "kept").is_dir()


def test_compile_and_link(tmp_path):
    source = tmp_path / "f.c"
    source.write_text("int f(int x) { return x + 1; }\n")
    cc.run_compiler(["-c", "-fPIC", "-o", str(tmp_path / "f.o"), str(source)])
    cc.create_shared(tmp_path / "f.so", tmp_path / "f.o")
    assert ctypes.CDLL(str(tmp_path / "f.so")).f(2) == 3
    main = tmp_path / "main.c"
    main.write_text("int f(int); int main(void) { return f(41); }\n")
    cc.create_staticlib(tmp_path / "libf.a", [tmp_path / "f.o"])
    cc.create_executable(tmp_path / "main", [main, tmp_path / "libf.a"])
    assert subprocess.run([tmp_path / "main"], check=False).returncode == 42
    source.write_text("int f(int x) { return y; }\n")
    with pytest.raises(CodegenError, match="y. undeclared"):
        cc.create_shared(tmp_path / "g.so", source)
    with pytest.raises(MissingDependency, match="no-such-compiler"):
        cc.create_shared(tmp_path / "g.so", source, cc="no-such-compiler")


def test_worker():
    worker = popen_pool.PopenWorker()
    worker.send(divmod, (7, 2))
    assert worker.recv() == (3, 1)
    worker.send(divmod, (7, 0))
    with pytest.raises(ZeroDivisionError):
        worker.recv()
    worker.send(time.sleep, (30,), timeout=0.2)
    with pytest.raises(TimeoutError):
        worker.recv()
    assert not worker.is_alive()
    worker.send(os._exit, (3,))
    with pytest.raises(ChildProcessError):
        worker.recv()
    worker.send(abs, (-3,))
    assert worker.recv() == 3
    worker.kill()
