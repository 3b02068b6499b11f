"""The ``weft`` command: parses the line, runs the command, turns errors into messages and exit codes.

Exit codes: 0 done, 1 an error of the model, a file or the data, 2 a command line that makes no sense, 130 interrupted.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from typing import Any

import cyclopts

import weft
from weft.cli.cache import cache
from weft.cli.check import check
from weft.cli.compile import compile_model
from weft.cli.doctor import doctor
from weft.cli.inspect import inspect_model
from weft.cli.profile import profile
from weft.cli.run import run
from weft.cli.tune import tune
from weft.error import InternalError, WeftError
from weft.exec.query_rpc_tracker import query_tracker
from weft.exec.rpc_proxy import rpc_proxy
from weft.exec.rpc_server import rpc_server
from weft.exec.rpc_tracker import rpc_tracker

__all__ = ["app", "main"]

app = cyclopts.App(
    name="weft",
    help="Compile trained models to native code, run them, and look inside.",
    version=weft.__version__,
    result_action="return_value",
)
app.command(compile_model, name="compile")
app.command(run, name="run")
app.command(inspect_model, name="inspect")
app.command(profile, name="profile")
app.command(check, name="check")
app.command(tune, name="tune")
app.command(doctor, name="doctor")
app.command(cache, name="cache")
app.command(rpc_server, name=["rpc-server", "serve-rpc"])
app.command(rpc_tracker, name="rpc-tracker")
app.command(rpc_proxy, name="rpc-proxy")
app.command(query_tracker, name="query-tracker")


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command line.

    Parameters
    ----------
    arguments : sequence of str, optional
        The words after ``weft``; those of the process by default.

    Returns
    -------
    int
        The exit code.
    """
    try:
        app(sys.argv[1:] if arguments is None else list(arguments), exit_on_error=False)
        sys.stdout.flush()
    except cyclopts.CycloptsError:
        return 2  # cyclopts has printed what is wrong
    except InternalError:
        raise
    except WeftError as e:
        _complain(e)
        return 1
    except BrokenPipeError:  # the reader of a pipe has seen enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    except KeyboardInterrupt:
        return 130
    return 0


def _complain(error: Any) -> None:
    sys.stdout.flush()
    print(f"error: {error}", file=sys.stderr)
