"""``python -m weft.driver.tvmc compile|run|tune``: the driver on the command line, with TVM's options.

Options that name a target's kind, an executor or a runtime stand as TVM spells them: ``--target-llvm-mcpu=haswell``,
``--executor-graph-link-params=1``. They are open, and so is this parser, unlike that of the ``weft`` command.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import weft
from weft.auto_scheduler import HardwareParams
from weft.error import WeftError, is_defect
from weft.relay.build_options import Executor, Runtime
from weft.runtime import read_arrays
from weft.target import Target
from weft.tvmc.autotuner import tune_model
from weft.tvmc.compiler import compile_model
from weft.tvmc.frontends import load_model, parse_shape_string
from weft.tvmc.model import TVMCException, TVMCPackage, get_top_results
from weft.tvmc.runner import run_module

_MODEL = """
    FILE                          the model
    --model-format=               onnx, tflite, pytorch or relay; by default the file's name says it
    --input-shapes=               shapes of inputs, "x:[1,3,224,224] ids:[1,128]"
    --target=llvm                 what to compile for
    --target-host=                where the executor itself runs
    --desired-layout=             a layout for convolutions, "NHWC" or "NHWC:HWIO"
    --desired-layout-ops=         other operators for it, separated by commas
    --mixed-precision             compute in a narrower type where that is safe
    --mixed-precision-calculation-type=float16   which type
"""
_COMMANDS = {
    "compile": f"""{_MODEL}
    -o --output=module.tar        the package to write
    -f --output-format=so         so, or tar for objects that are linked later
    -O --opt-level=3              of the passes
    --cross-compiler=             what links another machine's library
    --cross-compiler-options=     words of its command line
    --dump-code=                  texts to write beside the package: relay,ll,asm
    --pass-config=                an option of the passes, name=value; may be repeated
    --disabled-pass=              passes to leave out, separated by commas
    --tuning-records=             the log that tune wrote
    --executor=graph              graph, or aot
    --runtime=cpp                 cpp
    --use-vm                      compile for the virtual machine of Relay
    --module-name=default         the library's function that makes an executor
    --print-pass-times            print how long each pass took
    --print-ir-before=            print the program before passes, [name,name]
    --print-ir-after=             and after them
""",
    "run": """
    PATH                          the package
    -i --inputs=                  an .npz file with inputs by name
    -o --outputs=                 the .npz file to write
    --device=cpu                  cpu, cuda, cl or vulkan
    --fill-mode=random            what inputs without a value are filled with: random, zeros or ones
    --print-time                  time the runs and print a table
    --print-top=0                 print so many of the largest values of the first output, and their places
    --profile                     print the time of each kernel
    --end-to-end                  count the way of inputs and outputs, too
    --repeat=1                    how often to time
    --number=1                    runs that are timed together
    --rpc-tracker=                the tracker of the devices, host[:port]
    --rpc-key=                    the kind of device
""",
    "tune": f"""{_MODEL}
    -o --output=                  the log to write
    --tuning-records=             an earlier log to begin from
    --trials=10000                configurations to measure, of all tasks together
    --early-stopping=0            end a task after so many without a better one
    --tuner=xgb                   ga, gridsearch, random or xgb
    --tasks=all                   all, list to print them only, or their places, 0,3
    --enable-autoscheduler        search without templates
    --include-simple-tasks        search for kernels without a reduction, too
    --log-estimated-latency       write total_latency.tsv
    --min-repeat-ms=0             how long the runs of a measurement take together at least
    --number=10                   runs that are timed together
    --repeat=1                    how often to time
    --timeout=10                  seconds for one configuration
    --parallel=4                  processes that compile
    --num-cores=0                 of the machine that is tuned for
    --vector-unit-bytes=0         of it
    --cache-line-bytes=0          of it
    --rpc-tracker=                the tracker of the devices, host[:port]
    --rpc-key=                    the kind of device
""",
}


_PARAMETERS = {
    "compile": {
        "output": "package_path",
        "cross_compiler": "cross",
        "cross_compiler_options": "cross_options",
        "pass_config": "pass_context_configs",
        "module_name": "mod_name",
    },
    "run": {"print_time": "benchmark"},
    "tune": {"output": "tuning_records", "tuning_records": "prior_records", "tasks": "tasks_filter"},
}
"""Parameters of the functions behind the commands that have another name than their options."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command line; the process's by default.

    Returns
    -------
    int
        0 done, 1 an error of the model, a file or the data, 2 a command line that makes no sense.
    """
    parser = argparse.ArgumentParser("tvmc", description="Compile, run and tune models.")
    parser.add_argument("--version", action="version", version=weft.__version__)
    commands = parser.add_subparsers(dest="command", required=True)
    for name, options in _COMMANDS.items():
        _add(commands.add_parser(name), options)
    try:
        words, more = _without_open_options(sys.argv[1:] if arguments is None else arguments)
        values = vars(parser.parse_args(words))
        names = _PARAMETERS[command := values.pop("command")]
        given = {names.get(name, name): value for name, value in values.items() if name != "verbose"}
        {"compile": _compile, "run": _run, "tune": _tune}[command](given, more)
    except SystemExit as e:  # the parser has printed what is wrong
        return e.code if isinstance(e.code, int) else 2
    except (WeftError, OSError) as e:
        if isinstance(e, WeftError) and is_defect(e):
            raise
        print(f"Error: {e}", file=sys.stderr)
        return 1
    return 0


_main = main  # TVM's name of it with arguments


def _add(parser: argparse.ArgumentParser, options: str) -> None:
    """Add the options that a text lists, one a line: names, the default behind "=" if it takes a value, and help."""
    for line in filter(None, map(str.strip, options.splitlines())):
        names, _, text = line.partition("  ")
        *others, last = names.split()
        name, takes, default = last.partition("=")
        how: dict[str, Any] = {"help": text.strip()}
        if last.startswith("-") and not takes:
            how["action"] = "store_true"
        elif name == "--pass-config":
            how["action"] = "append"
        elif takes:
            how |= {"type": int, "default": int(default)} if default.isdigit() else {"default": default or None}
        parser.add_argument(*others, name, **how)
    parser.add_argument("-v", "--verbose", action="count", default=0, help="accepted; errors say all there is")


def _without_open_options(words: Sequence[str]) -> tuple[list[str], dict[str, dict[str, dict[str, Any]]]]:
    """The words without options such as ``--target-llvm-mcpu haswell``, and ``{"target": {"llvm": {"mcpu": ...}}}``."""
    found: dict[str, dict[str, dict[str, Any]]] = {"target": {}, "executor": {}, "runtime": {}}
    others, waiting = list[str](), list(words)
    while waiting:
        name, equals, value = (word := waiting.pop(0)).partition("=")
        of, *kind = name.removeprefix("--").split("-", 2)
        if len(kind) < 2 or of not in found:
            others.append(word)
            continue
        if not equals:
            value = waiting.pop(0) if waiting else ""
        found[of].setdefault(kind[0], {})[kind[1]] = json.loads(value) if value.isdigit() else value
    return others, found


def tracker_host_port_from_cli(rpc_tracker_str: str | None) -> tuple[str | None, int | None]:
    """The host and the port of ``"10.0.0.4:9190"``; 9090 where it says none, and nothing of nothing."""
    if not rpc_tracker_str:
        return None, None
    host, _, port = rpc_tracker_str.partition(":")
    if port and not port.isdigit():
        raise TVMCException("malformed --rpc-tracker", expected="host:port", found=rpc_tracker_str)
    return host, int(port or 9090)


def _loaded(given: dict[str, Any]) -> Any:
    """Read the model that options name, and take them out."""
    path, form, shapes = (given.pop(n) for n in ("FILE", "model_format", "input_shapes"))
    if not Path(path).is_file():
        raise TVMCException(f"Input file '{path}' doesn't exist, is a broken symbolic link, or a directory.")
    return load_model(path, form, parse_shape_string(shapes) if shapes else None)


def _compile(given: dict[str, Any], more: Any) -> None:
    for kind, choice in (("executor", Executor), ("runtime", Runtime)):
        given[kind] = choice(given[kind], more[kind].get(given[kind]))
    compile_model(_loaded(given), additional_target_options=more["target"], **given)


def _run(given: dict[str, Any], more: Any) -> None:
    path, top, output = (given.pop(n) for n in ("PATH", "print_top", "outputs"))
    host, port = tracker_host_port_from_cli(given.pop("rpc_tracker"))
    inputs = dict(read_arrays(i)) if (i := given.pop("inputs")) else {}
    result = run_module(TVMCPackage(path), inputs=inputs, hostname=host, port=port or 9090, **given)
    if given["benchmark"]:
        print(result.format_times())
    if top:
        print(get_top_results(result, top))
    if output:
        result.save(output)


def _tune(given: dict[str, Any], more: Any) -> None:
    host, port = tracker_host_port_from_cli(given.pop("rpc_tracker"))
    sizes = {n: size for n in ("num_cores", "vector_unit_bytes", "cache_line_bytes") if (size := given.pop(n))}
    machine = replace(HardwareParams.of(Target(given["target"])), **sizes) if sizes else None
    where = {"hostname": host, "port": port, "hardware_params": machine, "additional_target_options": more["target"]}
    tune_model(_loaded(given), **where, **given)
