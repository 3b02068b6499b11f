"""``torch.export``'s programs in, Relax out."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from weft import error, ir, relax, te
from weft.frontend.dataflow import to_dataflow
from weft.frontend.torch import registry
from weft.frontend.torch.graph import Converter, Graph, as_real, calls, constant, find_custom, mutates
from weft.frontend.torch.node import stop_unless

if TYPE_CHECKING:
    import torch


def from_exported_program(
    exported_program: torch.export.ExportedProgram,
    *,
    keep_params_as_input: bool = False,
    unwrap_unit_return_tuple: bool = False,
    no_bind_return_tuple: bool = False,
    custom_convert_map: Mapping[str, Converter] | None = None,
    run_ep_decomposition: bool = True,
) -> ir.IRModule:
    """Convert what ``torch.export.export`` returns.

    Parameters
    ----------
    exported_program : torch.export.ExportedProgram
        Its dynamic dimensions become symbolic dimensions, whose ranges are the function's attributes
        ``tir_var_lower_bound`` and ``tir_var_upper_bound``. Complex inputs and results are what
        ``torch.view_as_real`` makes of them.
    keep_params_as_input : bool
        Parameters and buffers are inputs behind the program's own; their values are the function's attribute
        ``params``. Otherwise they are constants, which share PyTorch's memory; those that the program writes to have
        memory of their own, so that each call of an executable sees what the last one wrote.
    unwrap_unit_return_tuple : bool
        A tuple of one result is that result.
    no_bind_return_tuple : bool
        A tuple of results stands in the function's end without a variable.
    custom_convert_map : mapping, optional
        Converters by the operator's name (``"my_op.default"`` or ``"ns.my_op.default"``), which come before Weft's own:
        ``converter(node, importer)`` returns an expression. ``importer.retrieve_args(node)`` are the arguments,
        ``importer.env`` maps nodes to expressions, ``importer.block_builder`` binds new ones.
    run_ep_decomposition : bool
        Take operators apart that have no converter, as ``ExportedProgram.run_decompositions`` does.

    Returns
    -------
    IRModule
        With the function ``main``.

    Raises
    ------
    UnsupportedOperator
        Lists all operators that have no converter.
    ModelImportError
        For what Weft cannot express; the message names the node.
    """
    if not hasattr(exported_program, "graph_signature"):
        found, wanted = type(exported_program).__name__, "what torch.export.export(module, args) returns"
        raise error.InvalidArgument("this is no exported program", expected=wanted, found=found)
    custom = custom_convert_map or {}
    opened = _opened(exported_program.graph_module, custom) if run_ep_decomposition else exported_program.graph
    if opened is None:
        exported_program = exported_program.run_decompositions(_decompositions(exported_program, custom))
    importer = ExportedProgramImporter(exported_program, custom)
    importer.graph = exported_program.graph if opened is None else opened
    return importer.module(keep_params_as_input, unwrap_unit_return_tuple, no_bind_return_tuple)


def _opened(root: Any, custom: Mapping[str, Converter]) -> Any:
    """A graph of calls that have converters and write to no tensor; None where PyTorch has to take all apart."""
    known = Graph(root, custom)

    def is_known(node: Any) -> bool:
        return known.has_converter(node) and not mutates(node)

    if all(map(is_known, calls(root.graph.nodes))):
        return root.graph
    from weft.frontend.torch.apart import taken_apart  # which imports PyTorch

    graph = taken_apart(root, is_known)
    return graph if graph is not None and all(map(is_known, calls(graph.nodes))) else None


def _decompositions(program: Any, custom: Mapping[str, Converter]) -> Any:
    """PyTorch's table, without the operators that are converted whole, for complex tensors too where there are any."""
    import torch

    graph = Graph(program.graph_module, custom)
    missing = {node.target for node in calls(program.graph.nodes) if not graph.has_converter(node)}
    table = torch.export.default_decompositions()
    for target in list(table.keys()):
        whole = registry.find(target) is not None or find_custom(custom, target) is not None
        if whole and target not in missing:
            table.pop(target)
    return table


def _is_linear(e: Any) -> bool:
    """Whether a size is a sum of multiples, quotients by numbers and remainders of symbols."""
    kind = type(e).__name__
    few = kind == "Add" or sum(not a.is_Integer for a in e.args) <= 1
    known = e.is_Symbol or e.is_Integer or kind in ("Add", "Mul", "FloorDiv", "CleanDiv", "Mod", "PythonMod")
    return known and few and all(map(_is_linear, e.args))


class ExportedProgramImporter(Graph):
    """One program under conversion."""

    def __init__(self, program: Any, custom: Mapping[str, Converter]) -> None:
        super().__init__(program.graph_module, custom)
        self.program, self.graph = program, program.graph
        kinds = {"BUFFER_MUTATION", "PARAMETER_MUTATION", "USER_INPUT_MUTATION"}
        self.written = {s.target for s in program.graph_signature.output_specs if s.kind.name in kinds}
        self.places: dict[str, Any] = {}
        """The memory of what the program writes to, by the name that the signature gives."""

    def module(self, keep_params: bool, unwrap: bool, unbound: bool) -> ir.IRModule:
        """The module with the program as ``main``."""
        self.refuse_unsupported(self.graph.nodes)
        inputs, held = self._inputs(keep_params)
        attrs = self._ranges() | ({"num_input": len(inputs)} if keep_params else {})
        params = [*inputs, *(var for var, _ in held)]
        with self.bb.function("main", params, attrs=attrs):
            self._demand_guards()
            self._open_inputs()
            for node in self.graph.nodes:
                self.convert(node)
            result = self._result(unwrap)
            self.bb.emit_func_output(result if unbound and isinstance(result, ir.Tuple) else self.bb.emit(result))
        mod = self.bb.get()
        main = to_dataflow(mod["main"])
        if keep_params:
            main = main.with_attr("params", [tensor for _, tensor in held])
        mod.update_func(mod.get_global_var("main"), main)
        return mod

    # --- inputs and results -------------------------------------------------------------------------------------------

    def _inputs(self, keep_params: bool) -> tuple[list[Any], list[tuple[Any, Any]]]:
        """The variables of the program's own inputs, and those of the weights with their values."""
        from torch.export.graph_signature import InputKind

        specs = {spec.arg.name: spec for spec in self.program.graph_signature.input_specs}
        placeholders = [node for node in self.graph.nodes if node.op == "placeholder"]
        self.define_sizes([n.meta["val"] for n in placeholders])
        inputs, held = [], []
        for node in placeholders:
            spec = specs[node.name]
            if spec.kind is InputKind.USER_INPUT:
                self.values[node] = value = self._input(node)
                if isinstance(value, relax.Var):
                    inputs.append(value)
                    self.places |= {node.name: node} if node.name in self.written else {}
                continue
            if spec.kind is InputKind.TOKEN:
                continue
            self.values[node] = value = self._held(spec)
            self.places |= {spec.target: node} if spec.target in self.written else {}
            if keep_params and spec.kind is not InputKind.CONSTANT_TENSOR:
                self.values[node] = relax.Var(node.name, value.ty)
                held.append((self.values[node], value.data))
        return inputs, held

    def _ranges(self) -> dict[str, dict[str, int]]:
        """What PyTorch says of the least and the greatest value of sizes, by their variables' names."""
        known = {str(s): r for s, r in self.program.range_constraints.items() if s in self.symbols.defined}
        least = {name: int(r.lower) for name, r in known.items()}
        most = {name: int(r.upper) for name, r in known.items() if r.upper.is_Integer}
        found = {"tir_var_lower_bound": least, "tir_var_upper_bound": most}
        return {name: bounds for name, bounds in found.items() if bounds}

    def _demand_guards(self) -> None:
        """Check what made PyTorch choose one way of several, but for ranges, which are attributes.

        Conditions that are not linear are about strides and reshapes, which check themselves; that sizes are different
        says that they are not 0 or 1, or not a slice's end.
        """
        from torch._guards import detect_fake_mode

        values = [node.meta["val"] for node in self.graph.nodes if node.op == "placeholder"]
        sizes = getattr(detect_fake_mode(values), "shape_env", None)
        for e in {guard.expr: None for guard in getattr(sizes, "guards", ())}:
            kind, rest = type(e).__name__, any("Mod" in type(a).__name__ for a in e.args)
            chosen = kind == "Equality" or (rest if kind == "Unequality" else len(e.free_symbols) > 1)
            if chosen and all(map(_is_linear, e.args)) and e.free_symbols <= self.symbols.defined.keys():
                stop_unless(self.bb, self.symbols.expression(e), f"the program was exported for {e}", "main")

    def _open_inputs(self) -> None:
        """Copy what the program writes to; split inputs whose last dimension has the parts of complex numbers."""
        for name, node in self.places.items():
            x = self.values[node]
            if isinstance(x, ir.Constant):  # behind a call, which nothing folds
                ty: Any = x.ty
                x = relax.core_ops.call_pure_packed("vm.builtin.reshape", x, ir.shape_expr(ty.shape), ty_args=ty)
            self.places[name] = place = self.bb.emit(x)
            self.values[node] = self.bb.emit(relax.core_ops.call_builtin("vm.builtin.fresh_tensor", [place], place.ty))
        for node, value in list(self.values.items()):
            self.values[node] = self.opened(value, node.meta["val"])

    def _write(self, name: str, value: Any) -> None:
        """Write a buffer's or an input's new value to its place."""
        place = self.places[name]
        call: Any = self.bb.call_te(lambda x: te.compute(x.shape, lambda *i: x[i], name="written"), value)
        kernel, (given,) = call.args[0], call.args[1].fields
        self.bb.emit(relax.core_ops.call_tir_inplace(kernel, (given, place), 1, place.ty))

    def _input(self, node: Any) -> Any:
        value = node.meta["val"]
        if hasattr(value, "dtype"):
            return relax.Var(node.name, self.type_of(value))
        if value is None or isinstance(value, (bool, int, float, str)):
            return value  # torch.export has checked it and compiled it in
        raise error.ModelImportError(
            f"input '{node.name}' is no tensor", expected="a tensor or a constant", found=type(value).__name__
        )

    def _held(self, spec: Any) -> ir.Constant:
        """A parameter, a buffer or a constant."""
        for table in (self.program.state_dict, self.program.constants):
            if spec.target in table:
                tensor = as_real(table[spec.target])
                return constant(tensor.clone() if spec.target in self.written else tensor)
        raise error.ModelImportError(f"'{spec.target}' has no value in the exported program")

    def _result(self, unwrap: bool) -> Any:
        from torch.export.graph_signature import OutputKind

        output = next(node for node in self.graph.nodes if node.op == "output")
        results = []
        for v, spec in zip(output.args[0], self.program.graph_signature.output_specs, strict=True):
            if spec.kind is OutputKind.USER_OUTPUT and v is not None:
                results.append(self.as_tensor(self.value(v)))
            elif spec.target in self.places:
                self._write(spec.target, self.as_tensor(self.value(v)))
        return results[0] if unwrap and len(results) == 1 else ir.Tuple(tuple(results))
