"""The ``weft`` command: parses the line, runs the command, turns errors into messages and exit codes.

Exit codes: 0 done, 1 an error of the model, a file or the data, 2 a command line that makes no sense, 130 interrupted.
"""

import os
import sys
from collections.abc import Sequence
from typing import Any

import cyclopts

import weft
from weft.error import WeftError, is_defect
from weft.garbage import collect_rarely

app = cyclopts.App(
    name="weft",
    help="Compile trained models to native code, run them, and look inside.",
    version=weft.__version__,
    result_action="return_value",
)
# By their places, so that a command loads what it needs itself, and no other's.
app.command("weft.cli.compile:compile_model", name="compile")
app.command("weft.cli.run:run", name="run")
app.command("weft.cli.inspect:inspect_model", name="inspect")
app.command("weft.cli.profile:profile", name="profile")
app.command("weft.cli.check:check", name="check")
app.command("weft.cli.tune:tune", name="tune")
app.command("weft.cli.quantize:quantize", name="quantize")
app.command("weft.cli.doctor:doctor", name="doctor")
app.command("weft.cli.cache:cache", name="cache")
app.command("weft.cli.config:config", name="config")
app.command("weft.exec.rpc_server:rpc_server", name=["rpc-server", "serve-rpc"])
app.command("weft.exec.rpc_tracker:rpc_tracker", name="rpc-tracker")
app.command("weft.exec.rpc_proxy:rpc_proxy", name="rpc-proxy")
app.command("weft.exec.query_rpc_tracker:query_tracker", name="query-tracker")


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
    if arguments is None:  # the process is this command's
        collect_rarely()
    try:
        app(sys.argv[1:] if arguments is None else list(arguments), exit_on_error=False)
        sys.stdout.flush()
    except cyclopts.CycloptsError:
        return 2  # cyclopts has printed what is wrong
    except WeftError as e:
        if is_defect(e):
            raise
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
