"""Scratch folders, the system's compiler, worker processes."""

import ctypes
import os
import subprocess
import sys
import tarfile
import time
from pathlib import Path

import pytest

from weft.error import CodegenError, ExecutableError, InvalidArgument, MissingDependency
from weft.support import cc, pickle_memoize, popen_pool, tar, utils

CALLS = []


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


def test_cross_compiler(tmp_path):
    one, two = tmp_path / "f.c", tmp_path / "g.c"
    one.write_text("int f(void) { return VALUE; }\n")
    two.write_text("static int h(void) { return 1; }\nint g(void) { return h(); }\n")
    link = cc.cross_compiler(cc.compiler()[0], options=["-DVALUE=7"], add_files=[str(two)])
    link(str(tmp_path / "f.so"), [str(one)], options=["-O1"])
    made = ctypes.CDLL(str(tmp_path / "f.so"))
    assert (made.f(), made.g(), link.output_format) == (7, 1, "so") and "-linux" in link.get_target_triple()
    assert cc.get_target_by_dump_machine(None)() is cc.get_target_by_dump_machine("no-such-compiler")() is None
    symbols = cc.get_global_symbol_section_map(str(tmp_path / "f.so"))
    assert {"f": "T", "g": "T"}.items() <= symbols.items() and "h" not in symbols
    called = []
    link = cc.cross_compiler(lambda *args, options: called.append((args, options)), ["-a"], output_format="x")
    link("out", ["in"], ["-b"])
    link("out", ["in"])
    assert called == [(("out", ["in"]), ["-a", "-b"]), (("out", ["in"]), ["-a"])]
    assert link.output_format == "x" and link.get_target_triple is None


def test_archives(tmp_path):
    (tmp_path / "in").mkdir()
    (tmp_path / "in/a").write_text("a")
    tar.tar(tmp_path / "x.tar", [str(tmp_path / "in/a")])
    with utils.tempdir() as folder:
        files = tar.normalize_file_list_by_unpacking_tars(folder, ["b", str(tmp_path / "x.tar")])
        assert files[0] == "b" and Path(files[1]).name == "a" and Path(files[1]).read_text() == "a"
    with pytest.raises(InvalidArgument, match="one name"):
        tar.tar(tmp_path / "y.tar", [str(tmp_path / "in/a")] * 2)
    with tarfile.open(tmp_path / "z.tar", "w") as out:
        out.add(tmp_path / "in/a", arcname="../outside")
    for name in ("z.tar", "in/a"):
        with pytest.raises(ExecutableError, match="files alone"):
            tar.untar(tmp_path / name, tmp_path / "in")
    assert not (tmp_path / "outside").exists()


def test_memoized_results_are_of_their_arguments():
    def define(base, key="k"):
        @pickle_memoize.memoize(key)
        def f(*args):
            CALLS.append(args)
            return base, args

        return f

    assert define(1)(2, ("a", 3)) == define(1)(2, ("a", 3)) == (1, (2, ("a", 3))) and len(CALLS) == 1
    assert [str(define(b)(x)[1]) for b, x in ((1, 1), (1, 1.0), (1, True), (2, 1))] == [
        "(1,)",
        "(1.0,)",
        "(True,)",
        "(1,)",
    ]
    assert len(CALLS) == 5 and define(1, "other")(1) and len(CALLS) == 6
    with pytest.raises(InvalidArgument, match="by position"):
        define(1)([1])


def test_locks_and_paths(tmp_path):
    lock = utils.filelock(str(tmp_path / "lock"))
    ask = f"import fcntl; fcntl.lockf(open({str(tmp_path / 'lock')!r}, 'w'), fcntl.LOCK_EX | fcntl.LOCK_NB)"
    assert subprocess.run([sys.executable, "-S", "-c", ask], capture_output=True, check=False).returncode != 0
    lock.release()
    lock.release()
    assert subprocess.run([sys.executable, "-S", "-c", ask], check=False).returncode == 0
    found = map(utils.is_source_path, ("a.cc", str(tmp_path), "int x;", "a.b c", "f.c\n"))
    assert [*found] == [True, True, False, False, False]
    assert utils.which("sh") and utils.which("no-such-program") is None
