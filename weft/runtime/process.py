"""How processes of Weft's own are started."""

import json
import os
import sys
from collections.abc import Sequence
from pathlib import Path

_PACKAGE = Path(__file__).resolve().parent.parent


def command(program: str, *args: str, watched: bool = True) -> Sequence[str]:
    """Return the command line of a process that runs a program of Weft's, and nothing that lies where it is started.

    Parameters
    ----------
    program : str
        A module of Weft, whose ``main`` is called, or the path of a ``.py`` file.
    watched : bool
        Whether the process ends as soon as its standard input is closed, or this process ends.
    """
    here, root = os.path.realpath(os.curdir), str(_PACKAGE.parent)
    places = [p for p in sys.path if Path(p).is_absolute() and (os.path.realpath(p) != here or p == root)]
    told = json.dumps([program, str(_PACKAGE), [*places, root], os.getpid(), watched])
    return [sys.executable, "-I", *["-B"] * sys.flags.dont_write_bytecode, str(_PACKAGE / "_start.py"), told, *args]
