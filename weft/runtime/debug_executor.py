"""A graph executor that says of each node how long it took and what it computed, in files of a folder, too."""

from __future__ import annotations

import json
import shutil
import tempfile
import weakref
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from weft.error import InvalidArgument
from weft.runtime import graph_executor
from weft.runtime.device import Device, DeviceLike
from weft.runtime.device import device as as_device
from weft.runtime.module import Module
from weft.runtime.params import save_param_dict_to_file
from weft.runtime.regular_file import write_file
from weft.runtime.tensor import Tensor, empty
from weft.runtime.timing import BenchmarkResult


def create(
    graph_json_str: str | Mapping[str, Any],
    libmod: Module | None,
    device: DeviceLike | Sequence[DeviceLike],
    dump_root: str | None = None,
) -> GraphModuleDebug:
    """Make an executor that is watched; the parameters are those of :class:`GraphModuleDebug`."""
    made = graph_executor.create(graph_json_str, libmod, device)
    return GraphModuleDebug(made.module, device, graph_json_str, dump_root)


class GraphModuleDebug(graph_executor.GraphModule):
    """An executor that times nodes, and writes their outputs and times.

    Parameters
    ----------
    module : Module
        A graph executor's module.
    device : Device or list of Device
        Where it runs.
    graph_json_str : str
        The graph.
    dump_root : str, optional
        The folder of the files; by default a temporary one, which :meth:`exit` removes.
    """

    def __init__(self, module: Any, device: Any, graph_json_str: Any, dump_root: str | None = None) -> None:
        super().__init__(module)
        first = device[0] if isinstance(device, (list, tuple)) else device
        root = Path(dump_root) if dump_root else Path(tempfile.mkdtemp(prefix="tvmdbg_"))
        self._dump_root: Path | None = None if dump_root else root
        where = as_device(first) if isinstance(first, (str, Device)) else Device(*first.__dlpack_device__())
        self._where = where if self.module.kind == "rpc" else Device("cpu")
        folder = root / f"_tvmdbg_device_{str(where).replace(':', '_').replace('(', '_').replace(')', '')}"
        folder.mkdir(parents=True, exist_ok=True)
        self._dump_path = str(folder)
        self.debug_datum = DebugResult(graph_json_str, self._dump_path)
        self._forget = weakref.finalize(self, shutil.rmtree, root, True) if self._dump_root else None

    def run(
        self,
        number: int = 10,
        repeat: int = 1,
        min_repeat_ms: int = 1,
        limit_zero_time_iterations: int = 100,
        cooldown_interval_ms: int = 0,
        repeats_to_cooldown: int = 1,
        sort_by_time: bool = False,
        **input_dict: Any,
    ) -> None:
        """Run the graph once, write what its nodes compute and how long each takes, and print that.

        Parameters
        ----------
        number, repeat, min_repeat_ms, limit_zero_time_iterations, cooldown_interval_ms, repeats_to_cooldown
            As in :meth:`Module.time_evaluator`, for each node.
        sort_by_time : bool
            Whether the table begins with the longest.
        **input_dict
            Inputs by name.
        """
        super().run(**input_dict)
        outputs = []
        for place, node in enumerate(self.debug_datum.nodes):
            for slot, (shape, dtype) in enumerate(node["outputs"]):
                target = empty(shape, dtype, self._where)
                if slot == 0:  # of a node with several outputs the executor shows the first
                    target = self.debug_get_output(place, target).copyto(Device("cpu"))
                    outputs.append((f"{node['name']}____{slot}", target))
        timing = (number, repeat, min_repeat_ms, limit_zero_time_iterations, cooldown_interval_ms, repeats_to_cooldown)
        times = [self.run_individual_node(i, *timing) for i in range(len(self.debug_datum.nodes))]
        self.debug_datum.record(dict(outputs), [t.results for t in times])
        self.debug_datum.display_debug_result(sort_by_time)

    def run_individual(
        self,
        number: int,
        repeat: int = 1,
        min_repeat_ms: int = 0,
        limit_zero_time_iterations: int = 100,
        cooldown_interval_ms: int = 0,
        repeats_to_cooldown: int = 1,
    ) -> list[float]:
        """Return the seconds that each node takes; the parameters are those of :meth:`Module.time_evaluator`."""
        timing = (number, repeat, min_repeat_ms, limit_zero_time_iterations, cooldown_interval_ms, repeats_to_cooldown)
        return [self.run_individual_node(i, *timing).mean for i in range(len(self.debug_datum.nodes))]

    def run_individual_node(
        self,
        index: int,
        number: int = 10,
        repeat: int = 1,
        min_repeat_ms: int = 0,
        limit_zero_time_iterations: int = 100,
        cooldown_interval_ms: int = 0,
        repeats_to_cooldown: int = 1,
    ) -> BenchmarkResult:
        """Time a node; inputs take no time.

        Raises
        ------
        InvalidArgument
            When the graph has no such node.
        """
        nodes = self.debug_datum.nodes
        if not 0 <= index < len(nodes):
            raise InvalidArgument("the graph has no such node", expected=f"0 to {len(nodes) - 1}", found=str(index))
        if nodes[index]["op"] == "param":
            return BenchmarkResult([0.0] * repeat)
        timed = self.module.time_evaluator(
            "run_node",
            self._where,
            number=number,
            repeat=repeat,
            min_repeat_ms=min_repeat_ms,
            limit_zero_time_iterations=limit_zero_time_iterations,
            cooldown_interval_ms=cooldown_interval_ms,
            repeats_to_cooldown=repeats_to_cooldown,
        )
        return timed(index)

    def debug_get_output(self, node: str | int, out: Any = None) -> Any:
        """Run up to a node, by name or number, and return its first output, in `out` where there is one."""
        if out is None:
            place = node if isinstance(node, int) else [n["name"] for n in self.debug_datum.nodes].index(node)
            shape, dtype = self.debug_datum.nodes[place]["outputs"][0]
            out = empty(shape, dtype, self._where)
        return super().debug_get_output(node, out)

    def profile(self, collectors: Any = None, **input_dict: Any) -> Any:
        """Run once and tell how long each node took."""
        return super().profile(**input_dict)

    def exit(self) -> None:
        """Remove the folder, unless a caller named it."""
        if self._forget is not None:
            self._forget()


class DebugResult:
    """What a graph's nodes are, what they computed and how long that took.

    Parameters
    ----------
    graph_json : mapping or str
        The graph.
    dump_path : str
        The folder of the files.
    """

    def __init__(self, graph_json: Any, dump_path: str) -> None:
        graph = graph_json if isinstance(graph_json, Mapping) else json.loads(graph_json)
        self.folder = Path(dump_path)
        rows, names = graph["node_row_ptr"], [str(n["name"]) for n in graph["nodes"]]
        shapes, dtypes = (graph["attrs"][k][1] for k in ("shape", "dltype"))
        self.nodes: list[dict[str, Any]] = []
        for i, node in enumerate(graph["nodes"]):
            attrs = node.get("attrs") or node.get("param") or {}
            self.nodes.append(
                {
                    "name": names[i],
                    "op": "param" if node["op"] == "null" else str(attrs.get("func_name", node["op"])),
                    "inputs": [names[entry[0]] for entry in node["inputs"]],
                    "attrs": dict(attrs),
                    "outputs": [(tuple(shapes[e]), str(dtypes[e])) for e in range(rows[i], rows[i + 1])],
                }
            )
        shown = [{k: n[k] for k in ("name", "op", "inputs", "attrs")} for n in self.nodes]
        dumped = {**graph, "nodes": [{**n, "shape": self.nodes[i]["outputs"][0][0]} for i, n in enumerate(shown)]}
        write_file(self.folder / "_tvmdbg_graph_dump.json", json.dumps(dumped, indent=1))
        self._outputs: dict[str, Tensor] = {}
        self._times: list[list[float]] = []

    def get_graph_nodes(self) -> list[dict[str, Any]]:
        """Return name, operator, inputs and attributes of each node; inputs of the graph are of operator ``param``."""
        return self.nodes

    def get_graph_node_output_num(self, node: Mapping[str, Any]) -> int:
        """Return the number of outputs of a node."""
        return 1 if node["op"] == "param" else int(node["attrs"]["num_outputs"])

    def get_output_tensors(self) -> dict[str, Tensor]:
        """Return what the nodes computed in the last run, by ``name____0``."""
        return self._outputs

    def record(self, outputs: dict[str, Tensor], times: list[list[float]]) -> None:
        """Keep what a run computed and the seconds of each node, and write both."""
        self._outputs, self._times = outputs, times
        save_param_dict_to_file(outputs, self.folder / "output_tensors.params")
        events, now = [], 0.0
        for node, seconds in zip(self.nodes, times, strict=True):
            end = now + 1e6 * sum(seconds) / len(seconds)
            for phase, ts in (("B", now), ("E", end)):
                events.append({"ts": ts, "tid": 1, "pid": 1, "name": node["name"], "ph": phase})
            now = end
        trace = {"displayTimeUnit": "ns", "traceEvents": events}
        write_file(self.folder / "_tvmdbg_execution_trace.json", json.dumps(trace))

    def get_debug_result(self, sort_by_time: bool = True) -> str:
        """Return a table of the nodes that compute: their times, shapes, inputs and outputs."""
        head = ["Node Name", "Ops", "Time(us)", "Time(%)", "Shape", "Inputs", "Outputs", "Measurements(us)"]
        means = [1e6 * sum(t) / len(t) for t in self._times]
        total, rows = sum(means), []
        for node, mean, times in zip(self.nodes, means, self._times, strict=True):
            if node["op"] != "param":
                share = 100 * mean / total if total else 0.0
                cells = [
                    node["name"],
                    node["op"],
                    f"{mean:.3f}",
                    f"{share:.3f}",
                    str(node["outputs"][0][0]),
                    str(len(node["inputs"])),
                    str(len(node["outputs"])),
                    str([round(1e6 * t, 3) for t in times]),
                ]
                rows.append((mean, cells))
        if sort_by_time:
            rows.sort(key=lambda r: -r[0])
        lines = [cells for _, cells in rows] + [["Total_time", "-", f"{total:.3f}", "-", "-", "-", "-", "-"]]
        widths = [max(len(line[i]) for line in [head, *lines]) for i in range(len(head))]
        ruled = [head, ["-" * len(h) for h in head], *lines]
        return "\n".join("".join(c.ljust(w) + "  " for c, w in zip(line, widths, strict=True)) for line in ruled)

    def display_debug_result(self, sort_by_time: bool = True) -> None:
        """Print the table."""
        print(self.get_debug_result(sort_by_time))
