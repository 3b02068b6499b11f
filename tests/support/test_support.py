"""Scratch folders, the system's compiler, worker processes."""

import ctypes
import os
import subprocess
import tarfile
import time
from pathlib import Path

from tests.refusals import refuses
from weft.error import CodegenError, ExecutableError, InvalidArgument, MissingDependency
from weft.support import cc, pickle_memoize, popen_pool, tar, utils

CALLS = []


def test_tempdir(tmp_path):
    with utils.tempdir() as folder:
        Path(folder.relpath("a.txt")).write_text("a")
        assert folder.listdir() == ["a.txt"] and folder / "a.txt" == folder.relpath("a.txt")
        path = folder.path
    assert not Path(path).exists()
    utils.tempdir(str(tmp_path / "kept")).remove()
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
    refuses(CodegenError, "y. undeclared", cc.create_shared, tmp_path / "g.so", source)
    refuses(MissingDependency, "no-such-compiler", cc.create_shared, tmp_path / "g.so", source, cc="no-such-compiler")


def test_worker():
    worker = popen_pool.PopenWorker()
    worker.send(divmod, (7, 2))
    assert worker.recv() == (3, 1)
    worker.send(divmod, (7, 0))
    refuses(ZeroDivisionError, "", worker.recv)
    worker.send(time.sleep, (30,), timeout=0.2)
    refuses(TimeoutError, "", worker.recv)
    assert not worker.is_alive()
    worker.send(os._exit, (3,))
    refuses(ChildProcessError, "", worker.recv)
    worker.send(abs, (-3,))
    assert worker.recv() == 3
    worker.kill()


def test_the_time_to_start_is_not_the_function_s_and_has_an_end(monkeypatch):
    slow = popen_pool.PopenWorker(time.sleep, (1.2,))
    slow.send(abs, (-3,), timeout=1.0)
    assert slow.recv() == 3
    monkeypatch.setattr(popen_pool, "_STARTING", 0.1)
    hung = popen_pool.PopenWorker(time.sleep, (60,))
    hung.send(abs, (-3,), timeout=0.1)
    refuses(TimeoutError, "", hung.recv)


def test_workers_are_renewed():
    worker, seen = popen_pool.PopenWorker(os.umask, (0o123,), maximum_uses=2), []
    for _ in range(3):
        worker.send(os.getpid)
        seen.append(worker.recv())
    assert seen[0] == seen[1] != seen[2]
    refuses(ProcessLookupError, "", os.kill, seen[0], 0)
    worker.send(os.umask, (0,))
    assert worker.recv() == 0o123


def test_pools_of_workers():
    pool = popen_pool.PopenPoolExecutor(max_workers=2, timeout=0.5)
    slow, dead, good = pool.submit(time.sleep, 30), pool.submit(os._exit, 3), pool.submit(divmod, 7, 2)
    refuses(TimeoutError, "", slow.result)
    refuses(ChildProcessError, "", dead.result)
    assert good.result() == (3, 1)
    kinds = popen_pool.StatusKind
    ends = list(pool.map_with_error_catching(len, ["abc", 3]))
    assert ends[0] == (kinds.COMPLETE, 3) and ends[1].status is kinds.EXCEPTION
    pool.shutdown()
    refuses(RuntimeError, "shutdown", pool.submit, abs, 1)


def test_cross_compiler(tmp_path):
    one, two = tmp_path / "f.c", tmp_path / "g.c"
    one.write_text("int f(void) { return VALUE; }\n")
    two.write_text("int g(void) { return 1; }\n")
    link = cc.cross_compiler(cc.compiler()[0], options=["-DVALUE=7"], add_files=[str(two)])
    link(str(tmp_path / "f.so"), [str(one)], options=["-O1"])
    made = ctypes.CDLL(str(tmp_path / "f.so"))
    assert (made.f(), made.g(), link.output_format) == (7, 1, "so") and "-linux" in link.get_target_triple()
    assert cc.get_target_by_dump_machine(None)() is cc.get_target_by_dump_machine("no-such-compiler")() is None
    called = []
    link = cc.cross_compiler(lambda *args, options: called.append((args, options)), ["-a"], output_format="x")
    link("out", ["in"], ["-b"])
    link("out", ["in"])
    assert called == [(("out", ["in"]), ["-a", "-b"]), (("out", ["in"]), ["-a"])]
    assert link.output_format == "x" and link.get_target_triple is None and cc.get_cc() is not None


def test_archives(tmp_path):
    (tmp_path / "a").write_text("a")
    tar.tar(tmp_path / "x.tar", [str(tmp_path / "a")])
    tar.untar(tmp_path / "x.tar", tmp_path / "out")
    assert (tmp_path / "out/a").read_text() == "a" and utils.which("no-such-program") is None
    refuses(InvalidArgument, "one name", tar.tar, tmp_path / "y.tar", [str(tmp_path / "a")] * 2)
    with tarfile.open(tmp_path / "z.tar", "w") as out:
        out.add(tmp_path / "a", arcname="../outside")
    for name in ("z.tar", "a"):
        refuses(ExecutableError, "files alone", tar.untar, tmp_path / name, tmp_path / "out")
    assert not (tmp_path / "outside").exists()


def test_memoized_results_are_of_their_arguments():
    def define(base, key="k"):
        @pickle_memoize.memoize(key)
        def f(*args):
            CALLS.append(args)
            return base, args

        return f

    assert define(1)(2, ("a", 3)) == define(1)(2, ("a", 3)) == (1, (2, ("a", 3))) and len(CALLS) == 1
    found = [str(define(b)(x)[1]) for b, x in ((1, 1), (1, 1.0), (1, True), (2, 1))]
    assert found == ["(1,)", "(1.0,)", "(True,)", "(1,)"] and len(CALLS) == 5
    assert define(1, "other")(1) and len(CALLS) == 6
    refuses(InvalidArgument, "by position", define(1), [1])


def test_folders_that_stay(tmp_path):
    with utils.TempDirectory.set_keep_for_debug():
        kept = utils.tempdir()
    gone, stays = utils.tempdir(), utils.tempdir(keep_for_debug=True)
    paths = [Path(t.path) for t in (kept, stays, gone)]
    del kept, stays, gone
    assert [p.exists() for p in paths] == [True, True, False]
    for p in paths[:2]:
        p.rmdir()


def test_the_compiler_runs_where_it_is_told(tmp_path):
    (tmp_path / "part.c").write_text("int seven(void) { return 7; }")
    cc.create_shared("lib.so", "part.c", cwd=str(tmp_path))
    assert ctypes.CDLL(str(tmp_path / "lib.so")).seven() == 7
