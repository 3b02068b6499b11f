"""A package is run, here or on a device of a tracker or server."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

import weft.runtime
from weft import rpc
from weft.runtime import graph_executor, relay_vm
from weft.runtime.relay_executable import Executable
from weft.runtime.timing import BenchmarkResult
from weft.tvmc.model import TVMCException, TVMCPackage, TVMCResult

_FILLS: dict[str, Any] = {
    "zeros": np.zeros,
    "ones": np.ones,
    "random": lambda shape, dtype: np.random.default_rng(0).uniform(0, 2 if dtype == "bool" else 10, shape),
}


def run_module(
    tvmc_package: TVMCPackage,
    device: str,
    hostname: str | None = None,
    port: int | str = 9090,
    rpc_key: str | None = None,
    inputs: Mapping[str, Any] | None = None,
    fill_mode: str = "random",
    benchmark: bool = False,
    repeat: int = 10,
    number: int = 10,
    profile: bool = False,
    end_to_end: bool = False,
    options: Mapping[str, Any] | None = None,
) -> TVMCResult:
    """Run a package.

    Parameters
    ----------
    tvmc_package : TVMCPackage
        What :func:`compile_model` made.
    device : str
        ``"cpu"``, ``"cuda"``, ``"cl"``, ``"vulkan"``.
    hostname, port, rpc_key : str and int, optional
        A server that runs it instead; with a key it is a tracker, which is asked for such a device.
    inputs : mapping of str to array, optional
        Inputs by name; others are made as `fill_mode` says: ``"random"``, ``"zeros"`` or ``"ones"``.
    benchmark : bool
        Whether it is timed: `repeat` times, each the mean of `number` runs; with `end_to_end` the way of inputs and
        outputs is in the time.
    profile : bool
        Whether the time of each kernel is printed.
    options : mapping, optional
        Must be left out: those of microcontrollers.

    Raises
    ------
    TVMCException
        When an input is unknown, or an option makes no sense.
    """
    if options:
        raise TVMCException("microcontrollers are no targets", found=f"options={options!r}")
    session: Any = weft.runtime if hostname is None else _connected(hostname, int(port), rpc_key)
    dev = session.device({"cl": "opencl"}.get(device, device), 0)
    timing = {"repeat": repeat, "number": number, "end_to_end": end_to_end} if benchmark else None
    if hostname is None:
        lib = session.load_module(tvmc_package.lib_path)
    else:
        session.upload(tvmc_package.lib_path)
        lib = session.load_module(tvmc_package.lib_name)
    run = _run_machine if tvmc_package.type == "vm" else _run_graph
    outputs, times = run(tvmc_package, lib, dev, inputs or {}, fill_mode, timing, profile)
    return TVMCResult({f"output_{i}": o for i, o in enumerate(outputs)}, times)


def _connected(host: str, port: int, key: str | None) -> Any:
    return rpc.connect_tracker(host, port).request(key, session_timeout=1000) if key else rpc.connect(host, port)


def _run_graph(
    package: TVMCPackage, lib: Any, dev: Any, given: Any, fill: str, timing: Any, profile: bool
) -> tuple[list[Any], BenchmarkResult]:
    assert package.graph is not None and package.params is not None
    module = graph_executor.create(package.graph, lib, dev)
    module.load_params(package.params)
    inputs = make_inputs_dict(*get_input_info(package.graph, package.params), given, fill)
    if profile:
        print(module.profile(**inputs))
    module.set_input(**inputs)
    module.run()
    outputs = [module.get_output(i).numpy() for i in range(module.get_num_outputs())]
    return outputs, BenchmarkResult([]) if timing is None else module.benchmark(dev, **timing, **inputs)


def _run_machine(
    package: TVMCPackage, lib: Any, dev: Any, given: Any, fill: str, timing: Any, profile: bool
) -> tuple[list[Any], BenchmarkResult]:
    executable = Executable.load_exec(package.code, lib)
    if missing := [n for n in executable.get_function_params("main") if n not in given]:
        raise TVMCException(
            f"input '{missing[0]}' has no value", help="a virtual machine's shapes are not known before"
        )
    machine = relay_vm.VirtualMachine(executable, dev)
    made = machine.invoke("main", **given)
    outputs = [o.numpy() for o in (made if isinstance(made, Sequence) else [made])]
    if profile:
        print(machine.profile(**given))
    return outputs, BenchmarkResult([]) if timing is None else machine.benchmark(dev, **timing, **given)


def get_input_info(graph_str: str, params: bytes | bytearray) -> tuple[dict[str, Sequence[int]], dict[str, str]]:
    """Shapes and data types of a graph's inputs by name, parameters not among them."""
    graph, inner = json.loads(graph_str), weft.runtime.load_param_dict(params)
    inputs = {
        name: graph["node_row_ptr"][i] for i in graph["arg_nodes"] if (name := graph["nodes"][i]["name"]) not in inner
    }
    shapes, dtypes = (graph["attrs"][key][1] for key in ("shape", "dltype"))
    return {name: shapes[i] for name, i in inputs.items()}, {name: dtypes[i] for name, i in inputs.items()}


def generate_tensor_data(shape: Sequence[int], dtype: str, fill_mode: str) -> np.ndarray[Any, Any]:
    """An array of ``"zeros"``, ``"ones"`` or ``"random"`` numbers from 0 to 10, always the same.

    Raises
    ------
    TVMCException
        When there is no such way to fill it.
    """
    if fill_mode not in _FILLS:
        raise TVMCException("unknown fill mode", expected=" or ".join(_FILLS), found=repr(fill_mode))
    return _FILLS[fill_mode](tuple(shape), dtype).astype(weft.runtime.numpy_dtype(dtype))


def make_inputs_dict(
    shape_dict: Mapping[str, Sequence[int]],
    dtype_dict: Mapping[str, str],
    inputs: Mapping[str, Any] | None = None,
    fill_mode: str = "random",
) -> dict[str, Any]:
    """All inputs by name: those that are given, and others filled.

    Raises
    ------
    TVMCException
        When one that is given is unknown.
    """
    given = inputs or {}
    if unknown := [name for name in given if name not in shape_dict]:
        raise TVMCException(f"the model has no input '{unknown[0]}'", expected=", ".join(shape_dict) or "no inputs")
    return {
        name: given[name] if name in given else generate_tensor_data(shape, dtype_dict[name], fill_mode)
        for name, shape in shape_dict.items()
    }
