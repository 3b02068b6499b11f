"""Models of other tools as Relay programs: what the importers make, with Relay's operators.

The importers are those of ``weft.frontend.onnx``, ``torch`` and ``tflite``; ``weft.relay.import_relax`` converts what
they make.
"""

from __future__ import annotations

import importlib
import json
from collections.abc import Callable, Mapping, Sequence
from os import PathLike
from typing import TYPE_CHECKING, Any

from weft import ir, runtime
from weft.error import InvalidArgument, require
from weft.frontend.common import detach_params
from weft.ir import Constant, IRModule, PrimExpr, TensorType, as_int
from weft.relax.transform import BindSymbolicVars
from weft.relay import Function, Var, op, transform
from weft.relay.expr_functor import ExprMutator
from weft.relay.import_relax import import_relax
from weft.relay.walk import subexpressions, substitute

if TYPE_CHECKING:
    import onnx
    import torch

__all__ = ["ChangeDatatype", "from_onnx", "from_pytorch", "from_tflite"]

Params = dict[str, runtime.Tensor]


def from_onnx(
    model: onnx.ModelProto | bytes | str | PathLike[str],
    shape: Mapping[str, Sequence[Any]] | None = None,
    dtype: str | Mapping[str, str] | None = None,
    opset: int | None = None,
    freeze_params: bool = True,
    convert_config: Mapping[str, Any] | None = None,
    export_node_renamed_model_path: str | None = None,
) -> tuple[IRModule, Params]:
    """Import an ONNX model.

    Parameters
    ----------
    model : onnx.ModelProto, bytes, str or os.PathLike
        The model.
    shape : mapping of str to shape, optional
        Input shapes in place of the model's; an ``Any`` is a dimension that is not known.
    dtype : str or mapping of str to str, optional
        Input data types in place of the model's; a string, as TVM has it, changes none.
    opset : int, optional
        The opset, in place of the model's.
    freeze_params : bool
        Whether weights become constants. Otherwise they are parameters of ``main`` and the second result.
    convert_config : mapping, optional
        TVM's ``use_nt_batch_matmul``, which chooses between equal forms of a product; there is one here.
    export_node_renamed_model_path : str, optional
        Must be left out: nodes keep their names.

    Returns
    -------
    (IRModule, dict of str to Tensor)
        The function ``main``, and the values of those of its parameters that are weights.

    Raises
    ------
    ModelImportError
        When the model is malformed, naming the node.
    UnsupportedOperator
        Listing all operators that the importer lacks, or naming what Relay has no form for.
    """
    if export_node_renamed_model_path is not None:
        raise InvalidArgument("from_onnx renames no nodes", found="export_node_renamed_model_path")
    shapes = {k: [_dimension(k, i, d) for i, d in enumerate(v)] for k, v in shape.items()} if shape else None
    importer = importlib.import_module("weft.frontend.onnx")
    mod = importer.from_onnx(
        model, shapes, None if isinstance(dtype, str) else dtype, opset, keep_params_in_input=not freeze_params
    )
    described = json.loads(mod["main"].attrs["weft.io"])["inputs"]
    return _as_relay(mod, [i["name"] for i in described], {})


def from_tflite(
    model: object,
    shape_dict: Mapping[str, Sequence[int]] | None = None,
    dtype_dict: Mapping[str, str] | None = None,
    op_converter: Mapping[str, Any] | None = None,
) -> tuple[IRModule, Params]:
    """Import a TFLite model.

    Parameters
    ----------
    model, shape_dict, dtype_dict, op_converter
        Those of ``weft.relax.frontend.tflite.from_tflite``, which says what it raises.

    Returns
    -------
    (IRModule, dict of str to Tensor)
        The function ``main`` with weights as constants; no parameter of it is a weight.
    """
    importer = importlib.import_module("weft.frontend.tflite")
    mod = importer.from_tflite(model, shape_dict, dtype_dict, op_converter)
    return _as_relay(mod, [p.name_hint for p in mod["main"].params], {})


def _dimension(name: str, i: int, d: Any) -> int | str:
    known = as_int(d) if isinstance(d, PrimExpr) else d
    return f"{name}_{i}" if known is None else known


def _as_relay(mod: IRModule, inputs: Sequence[str], weights: Mapping[str, str]) -> tuple[IRModule, Params]:
    """Convert an imported module, whose weights are its last parameters.

    `inputs` are the names of the first parameters; `weights` names the weights, where they have another name.
    Weights that nothing reads are left out.
    """
    plain, held = detach_params(mod)
    made = import_relax(plain)
    main: Any = made["main"]
    tensors = held.get("main", [])
    own = main.params[: len(main.params) - len(tensors)]
    used = set(subexpressions(main.body))
    behind = {p: t for p, t in zip(main.params[len(own) :], tensors, strict=True) if p in used}
    names = [
        *inputs,
        *(p.name_hint for p in own[len(inputs) :]),
        *(weights.get(p.name_hint, p.name_hint) for p in behind),
    ]
    new = {p: Var(name, p.ty) for p, name in zip((*own, *behind), names, strict=True)}
    made[made.get_global_var("main")] = Function(tuple(new.values()), substitute(main.body, new))
    params = {new[p].name_hint: t.data if isinstance(t, Constant) else t for p, t in behind.items()}
    return transform.InferType()(made), params


def from_pytorch(
    script_module: torch.nn.Module | torch.export.ExportedProgram | Callable[..., Any],
    input_infos: Sequence[Any],
    custom_convert_map: Mapping[str, Any] | None = None,
    default_dtype: str = "float32",
    use_parser_friendly_name: bool = False,
    keep_quantized_weight: bool = False,
    export_renamed_c_graph_path: str | None = None,
) -> tuple[IRModule, Params]:
    """Import a PyTorch model.

    Parameters
    ----------
    script_module : torch.jit.ScriptModule, torch.export.ExportedProgram or torch.nn.Module
        What was traced or scripted is exported by PyTorch itself, a module by ``torch.export``.
    input_infos : list of (str, shape) or (str, (shape, dtype))
        Names of the inputs in their order, with their shapes.
    custom_convert_map : mapping, optional
        Converters that come before Weft's own, as ``relax.frontend.torch.from_exported_program`` takes them.
    default_dtype : str
        The data type of inputs for which `input_infos` say none.
    use_parser_friendly_name : bool
        Whether dots in the names of weights become underscores.
    keep_quantized_weight : bool
        Must be False: quantized modules are not imported.
    export_renamed_c_graph_path : str, optional
        Must be left out: no TorchScript graph is made.

    Returns
    -------
    (IRModule, dict of str to Tensor)
        The function ``main``, and the weights, which are its last parameters, by their names in the model.

    Raises
    ------
    UnsupportedOperator
        Lists all operators that have no converter.
    ModelImportError
        For what Weft cannot express.
    """
    if keep_quantized_weight or export_renamed_c_graph_path is not None:
        raise InvalidArgument(
            "from_pytorch keeps no quantized weights and writes no graphs",
            expected="neither keep_quantized_weight nor export_renamed_c_graph_path",
        )
    inputs = [_input_info(i, default_dtype) for i in input_infos]
    program = _exported(script_module, inputs)
    importer = importlib.import_module("weft.frontend.torch")
    mod = importer.from_exported_program(
        program, keep_params_as_input=True, unwrap_unit_return_tuple=True, custom_convert_map=custom_convert_map
    )
    sized = _of_known_sizes(mod, [shape for _, shape, _ in inputs])
    return _as_relay(sized, [name for name, _, _ in inputs], _weight_names(program, use_parser_friendly_name))


def _input_info(info: Any, dtype: str) -> tuple[str, tuple[int, ...], str]:
    """The name, shape and data type of an input."""
    if not isinstance(info, (tuple, list)) or len(info) != 2 or not isinstance(info[0], str):
        raise InvalidArgument(
            "an input is described by its name and shape", expected='("input0", (1, 3, 224, 224))', found=repr(info)
        )
    name, shape = info
    if len(shape) == 2 and isinstance(shape[1], str):
        shape, dtype = shape
    return name, tuple(map(int, shape)), {"float": "float32", "double": "float64", "int": "int32"}.get(dtype, dtype)


def _of_known_sizes(mod: IRModule, shapes: Sequence[tuple[int, ...]]) -> IRModule:
    """Give the dimensions that the exporter left open the sizes that the inputs have."""
    main: Any = mod["main"]
    pairs = (
        (d, n) for p, shape in zip(main.params, shapes, strict=False) for d, n in zip(p.ty.shape, shape, strict=True)
    )
    known = {d: n for d, n in pairs if isinstance(d, ir.Var)}
    return BindSymbolicVars(known, "main")(mod) if known else mod


def _exported(module: Any, inputs: Sequence[tuple[str, tuple[int, ...], str]]) -> Any:
    """Export a model, if that is not what it is."""
    torch = require("torch", extra="torch")
    if isinstance(module, torch.export.ExportedProgram):
        return module
    examples = tuple(torch.zeros(shape, dtype=getattr(torch, dtype)) for _, shape, dtype in inputs)
    if isinstance(module, torch.jit.ScriptModule):
        converter = importlib.import_module("torch._export.converter").TS2EPConverter
        return converter(module, examples).convert()
    return torch.export.export(module.eval(), examples)


def _weight_names(program: Any, friendly: bool) -> dict[str, str]:
    """What the weights, by the name of their placeholder, are called in the model."""
    specs = program.graph_signature.input_specs
    named = {s.arg.name: s.target for s in specs if s.target is not None}
    return {k: v.replace(".", "_") if friendly else v for k, v in named.items()}


@transform.function_pass(opt_level=0, name="ChangeDatatype")
class ChangeDatatype(ExprMutator):
    """The pass that gives parameters of one data type another, and casts constants; types are inferred anew after it.

    Parameters
    ----------
    src, dst : str
        Data types, ``"float32"`` or ``"custom[posites2]32"``.
    """

    def __init__(self, src: str, dst: str) -> None:
        super().__init__()
        self.src, self.dst = src, dst

    def transform_function(self, func: Function, mod: IRModule, ctx: Any) -> Function:
        """Change a function."""
        return self.visit(func)

    def visit_constant(self, expr: Constant) -> Any:
        """Cast a constant of the type."""
        return op.cast(expr, self.dst) if expr.data.dtype == self.src else expr

    def visit_var(self, expr: Var) -> Var:
        """Make a variable of the other type."""
        ty: Any = expr.ty
        return Var(expr.name_hint, TensorType(ty.shape, self.dst)) if getattr(ty, "dtype", "") == self.src else expr

    def visit_function(self, expr: Function) -> Function:
        """Change parameters and body; the type of the result is found again."""
        return self.visit_parts(expr).replace(ret_type=None)
