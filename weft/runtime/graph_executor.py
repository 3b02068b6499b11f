"""The graph executor: runs a graph of kernels, given as JSON, on storage that is bound once.

The JSON is Apache TVM's: ``nodes`` (``null`` for inputs, ``tvm_op`` for calls), ``arg_nodes``, ``heads``,
``node_row_ptr`` and ``attrs`` with ``dltype``, ``shape``, ``storage_id`` and ``device_index`` of each output.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import tvm_ffi

from weft import error, ffi
from weft.runtime.device import Device, DeviceLike
from weft.runtime.device import device as as_device
from weft.runtime.module import Module
from weft.runtime.params import parameter_rows
from weft.runtime.profiler import Profiler, Report
from weft.runtime.tensor import Tensor, numpy_dtype, tensor, unmasked
from weft.runtime.timing import BenchmarkResult, time_function
from weft.spelling import also_called

_create = tvm_ffi.get_global_func("weft.graph_executor")
_factory = tvm_ffi.get_global_func("weft.graph_factory")


def create(
    graph_json_str: str | Mapping[str, Any], libmod: Module | None, device: DeviceLike | Sequence[DeviceLike]
) -> GraphModule:
    """Make an executor for a graph.

    Parameters
    ----------
    graph_json_str : str
        The graph; a parsed one is taken, too.
    libmod : Module or None
        The kernels; functions that it does not have are looked for in the registry.
    device : Device or list of Device
        Where to run.

    Raises
    ------
    ExecutableError
        When the graph is malformed, which the message says of each node, or when functions are missing.
    """
    text = graph_json_str if isinstance(graph_json_str, str) else json.dumps(graph_json_str)
    if libmod is not None and _is_far(libmod):
        devices = device if isinstance(device, (list, tuple)) else [device]
        return GraphModule(libmod._server("weft.graph_executor")(text, libmod, *devices))
    libraries = [] if libmod is None else [_handle(libmod)]
    return GraphModule(Module(_create(text, libraries, *_ffi_devices(device))))


def create_factory(
    graph_json: str, libmod: Module | None, params: Mapping[str, Any], name: str = "default", executor: str = "graph"
) -> Module:
    """Make a module that can be exported, of a graph, its kernels and parameters.

    Its function `name` makes an executor: ``GraphModule(module["default"](device))``.
    """
    module = Module(_factory(executor, name, graph_json, parameter_rows(params)))
    if libmod is not None:
        module.import_module(libmod)
    return module


def _ffi_devices(device: Any) -> list[tvm_ffi.Device]:
    devices = [as_device(d) for d in (device if isinstance(device, (list, tuple)) else [device])]
    return [tvm_ffi.Device(*d.__dlpack_device__()) for d in devices]


def _handle(module: Any) -> Any:
    return module.__tvm_ffi_object__() if hasattr(module, "__tvm_ffi_object__") else module


def _is_far(module: Any) -> bool:
    return getattr(module, "kind", "") == "rpc"


class GraphModule:
    """An executor with its storage; a run does not allocate.

    Runs of one executor wait for each other, and outputs stay what they are until the next run. The executor may be of
    another machine: values are copied to it, and outputs lie there.

    Parameters
    ----------
    module : Module
        What ``lib["default"](device)`` returned, or a graph executor's module.
    """

    def __init__(self, module: Any) -> None:
        self.module = module if isinstance(module, Module) else Module(_handle(module))
        far = _is_far(self.module)
        if not far and self.module.kind != "weft.GraphExecutor":
            raise error.InvalidArgument(
                "not a graph executor",
                expected="what lib['default'](device) returns",
                found=f"a module of kind '{self.module.kind}'",
            )
        self._run = self.module["run"]
        self._set_input = self.module["set_input"]
        self._get_input = self.module["get_input"]
        self._get_output = self.module["get_output"]
        rows = [] if far else self.module["get_input_info"]()  # a client of RPC is sent no list
        self._inputs: dict[str, tuple[str, tuple[int, ...]]] = {
            str(name): (str(dtype), tuple(int(d) for d in shape)) for name, dtype, shape in rows
        }
        self._names = list(self._inputs)
        if far:
            self._set_input = self._copy_there

    def _demand_here(self, what: str, instead: str) -> None:
        if _is_far(self.module):
            raise error.InvalidArgument(f"{what} in the process that runs the graph", help=instead)

    def _copy_there(self, key: str | int, value: Any) -> None:
        self._get_input(key).copyfrom(value)

    def set_input(self, key: str | int | None = None, value: Any = None, **params: Any) -> None:
        """Copy values to inputs.

        Parameters
        ----------
        key : str or int, optional
            The name or place of an input.
        value : array_like
            Its value. Arrays and numbers are converted to the input's dtype where that loses no kind of number,
            or no number at all.
        **params
            Inputs by name. Names that the graph does not have are passed over: compilation may have folded them.
        """
        if key is not None:
            self._set_input(key, self._value(key, value))
        for name, given in params.items():
            if self.get_input_index(name) >= 0:
                self._set_input(name, self._value(name, given))

    def _value(self, key: str | int, value: Any) -> Any:
        if hasattr(value, "__dlpack__") and not isinstance(value, np.ndarray):
            return value
        array, dtype = np.asarray(unmasked(value)), self._dtype(key)
        if dtype is None:
            return array  # which is refused with the names of those that there are
        wanted = numpy_dtype(dtype)
        if array.dtype != wanted:
            if not isinstance(value, np.ndarray) or np.can_cast(array.dtype, wanted, "same_kind"):
                return ffi.convert_argument(array.astype(wanted))
            if array.dtype.kind in "biuf":
                with np.errstate(invalid="ignore"):
                    made = array.astype(wanted)
                array = made if np.array_equal(made, array) else array
        return ffi.convert_argument(array)

    def _dtype(self, key: str | int) -> str | None:
        if _is_far(self.module):
            return str(self._get_input(key).dtype)
        name = self._names[key] if isinstance(key, int) and 0 <= key < len(self._names) else key
        return self._inputs[name][0] if isinstance(name, str) and name in self._inputs else None

    def set_input_zero_copy(self, key: str | int | None = None, value: Any = None, **params: Any) -> None:
        """Let inputs lie where tensors do, which are contiguous and begin at a multiple of 64 bytes."""
        bind = self.module["set_input_zero_copy"]
        for name, given in {**({} if key is None else {key: value}), **params}.items():
            bind(name, _tensor(given))

    @also_called(key="index")
    def set_output_zero_copy(self, index: int, value: Any) -> None:
        """Let an output lie where a tensor does."""
        self.module["set_output_zero_copy"](index, _tensor(value))

    def run(self, **input_dict: Any) -> None:
        """Run the graph, on inputs by name after these are set."""
        for name, value in input_dict.items():
            self._set_input(name, self._value(name, value))
        self._run()

    def get_num_outputs(self) -> int:
        """Return the number of outputs."""
        return int(self.module["get_num_outputs"]())

    def get_num_inputs(self) -> int:
        """Return the number of inputs, parameters included."""
        return int(self.module["get_num_inputs"]())

    def get_input(self, index: str | int, out: Any = None) -> Tensor:
        """Return an input by name or place, or copy it to `out`."""
        return self._fetch(self._get_input, index, out)

    def get_input_index(self, name: str) -> int:
        """Return the place of an input, -1 where there is none of that name."""
        return int(self.module["get_input_index"](name))

    def get_input_info(self) -> tuple[dict[str, tuple[int, ...]], dict[str, str]]:
        """Return shapes and dtypes of the inputs by name, parameters included."""
        self._demand_here("names of inputs are listed", "read graph_json, or ask get_input_index for a name")
        items = self._inputs.items()
        return {name: shape for name, (_, shape) in items}, {name: dtype for name, (dtype, _) in items}

    def get_output(self, index: int, out: Any = None) -> Tensor:
        """Return an output, which the next run overwrites, or copy it to `out`."""
        return self._fetch(self._get_output, index, out)

    def _fetch(self, get: Any, index: Any, out: Any) -> Any:
        if out is None:
            return get(index)
        if _is_far(self.module):
            return get(index).copyto(out)
        get(index, out)
        return out

    def load_params(self, params_bytes: bytes | bytearray) -> None:
        """Set the inputs that saved parameters name; others are passed over."""
        self.module["load_params"](bytes(params_bytes))

    def share_params(self, other: GraphModule, params_bytes: bytes | bytearray) -> None:
        """Let inputs lie where another executor has them: those that saved parameters name."""
        self.module["share_params"](other.module, bytes(params_bytes))

    def debug_get_output(self, node: str | int, out: Any) -> Any:
        """Run up to a node, by name or number, and copy its first output to `out`."""
        self.module["debug_get_output"](node, out)
        return out

    def profile(self, **input_dict: Any) -> Report:
        """Run once and tell how long each node took."""
        self.set_input(**input_dict)
        self._demand_here("nodes are timed", "benchmark() times whole runs where they are")
        nodes = [(i, str(f)) for i, (_, f) in enumerate(self.module["get_nodes"]()) if f]
        run_node, profiler = self.module["run_node"], Profiler()
        for index, function in nodes:
            profiler(None, function, True, None)
            run_node(index)
            profiler(None, function, False, None)
        return profiler.report()

    def benchmark(
        self,
        device: Any,
        func_name: str = "run",
        repeat: int = 5,
        number: int = 5,
        min_repeat_ms: int | None = None,
        limit_zero_time_iterations: int = 100,
        end_to_end: bool = False,
        cooldown_interval_ms: int = 0,
        repeats_to_cooldown: int = 1,
        **kwargs: Any,
    ) -> BenchmarkResult:
        """Time runs without Python in the loop.

        Parameters
        ----------
        device : Device
            Whose clock is used.
        func_name : str
            A function of the executor's module.
        repeat, number, min_repeat_ms, limit_zero_time_iterations, cooldown_interval_ms, repeats_to_cooldown
            As in :meth:`Module.time_evaluator`.
        end_to_end : bool
            Whether setting the inputs and fetching the outputs is in the time; Python is in the loop then.
        **kwargs
            Inputs by name, set before.
        """
        timing: dict[str, Any] = dict(
            dev=as_device(device),
            number=number,
            repeat=repeat,
            min_repeat_ms=min_repeat_ms or 0,
            limit_zero_time_iterations=limit_zero_time_iterations,
            cooldown_interval_ms=cooldown_interval_ms,
            repeats_to_cooldown=repeats_to_cooldown,
        )
        if not end_to_end:
            self.set_input(**kwargs)
            return self.module.time_evaluator(func_name, **timing)()
        host = Device("cpu")

        def whole() -> None:
            self.run(**kwargs)
            for i in range(self.get_num_outputs()):
                tensor(self.get_output(i), host)

        return time_function(tvm_ffi.convert(whole), [], **timing)

    def __getitem__(self, key: str) -> Any:
        """A function of the module."""
        return self.module[key]


def _tensor(value: Any) -> Any:
    """A tensor over the memory of a value."""
    return value if isinstance(value, (Tensor, tvm_ffi.Tensor)) else ffi.convert_argument(value)
