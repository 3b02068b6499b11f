"""The first file that a process of Weft's own runs: it finds Weft where its parent did, and ends when that does.

The interpreter is isolated, so that neither the current folder nor the environment says what is imported; see
:func:`weft.runtime.process.command`, which gives the arguments as JSON: the program, where Weft is, further places of
packages, the parent and whether to watch it.
"""

import importlib
import importlib.util
import json
import os
import runpy
import select
import sys
import threading


def watch(parent: int) -> None:
    """End this process when nobody can ask it any more, whatever it is at: there is nobody to answer either."""
    asking = select.poll()
    asking.register(0, 0)  # that the other end was closed is reported all the same
    while not asking.poll(1000) and os.getppid() == parent:
        pass
    os._exit(0)


def _main() -> None:
    program, package, places, parent, watched = json.loads(sys.argv.pop(1))
    if watched:
        threading.Thread(target=watch, args=(parent,), daemon=True).start()
    sys.path += [p for p in places if p not in sys.path]  # behind those of the installation
    if program.endswith(".py"):
        runpy.run_path(program, run_name="__main__")
        return
    spec = importlib.util.spec_from_file_location(
        "weft", f"{package}/__init__.py", submodule_search_locations=[package]
    )
    assert spec is not None and spec.loader is not None
    weft = sys.modules["weft"] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(weft)
    try:
        importlib.import_module(program).main()
    except (BrokenPipeError, KeyboardInterrupt):
        os._exit(1)  # the parent is gone, or told to go: nothing is left to say or to flush


if __name__ == "__main__":
    _main()
