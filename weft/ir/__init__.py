"""The floor of every dialect: nodes, walking, types, scalar and graph expressions, modules, passes.

Read in this order: ``node``, ``dispatch``, ``walk``, ``dtype``, ``scalar``, ``arithmetic``, ``types``, ``expr``,
``module``, ``passes``, then ``structural``, ``serialize``, ``spec`` and ``text/``.
"""

import weft.ffi  # isort: skip - loads tvm_ffi, which would load PyTorch if it came first
import sys

from weft._aliases import names_of
from weft.ir import foreign as _foreign  # its import tells tvm_ffi how nodes are compared
from weft.ir.ambient import Ambient, CallersPool
from weft.ir.any_dim import Any as AnyDim
from weft.ir.arithmetic import *  # noqa: F403
from weft.ir.arithmetic import __all__ as _constructors
from weft.ir.deep import DeepPool, descending, with_deep_stack
from weft.ir.dispatch import Dispatch
from weft.ir.dtype import (
    DataType,
    DataTypeCode,
    HandleType,
    ScalableLanes,
    dtype_of,
    is_float,
    is_integer,
    numpy_dtype,
    vector_of,
    with_lanes,
)
from weft.ir.dump import DumpPrograms, compilation, dumped
from weft.ir.expr import *  # noqa: F403 - all expressions of graphs are
from weft.ir.expr import Var as ExprVar
from weft.ir.expr import __all__ as _expr_names
from weft.ir.intrin_rules import intrin_rule, register_intrin_lowering, register_intrin_rule
from weft.ir.iteration import IterVar, Range
from weft.ir.module import IRModule
from weft.ir.node import (
    DERIVED,
    NO_ATTRS,
    Attrs,
    ImpliedName,
    Node,
    OtherNames,
    SourceName,
    Span,
    SubclassTable,
    make_node,
    own_name,
    said,
    set_printer,
)
from weft.ir.op_attrs import default_op_attr, op_attr, register_op_attr, reset_op_attr
from weft.ir.pass_config import ConfigOption, config_options, near_names, register_config_option
from weft.ir.passes import (
    Pass,
    PassContext,
    PassInstrument,
    PrintIR,
    Sequential,
    TimePasses,
    function_pass,
    module_pass,
    on_verify,
    passes_inside,
    passes_named,
    show_text,
)
from weft.ir.scalar import *  # noqa: F403 - the whole scalar language is this package's face
from weft.ir.scalar import FALSE, TRUE
from weft.ir.scalar import __all__ as _scalar_names
from weft.ir.serialize import load_json, register_json_form, save_json
from weft.ir.structural import (
    assert_structural_equal,
    fingerprint,
    get_first_structural_mismatch,
    structural_equal,
    structural_hash,
)
from weft.ir.text import script as _script  # its import installs the printer
from weft.ir.types import *  # noqa: F403 - all types are this package's
from weft.ir.types import __all__ as _type_names
from weft.ir.walk import CHILD_FIELDS, children, find, post_order, rebuild, rewrite, substitute, walk, with_fields
from weft.reach import operands_first, reached

# Expressions nest: a bicubic sample inlined into its consumers is some hundred levels deep, and each level takes a
# few Python frames.
sys.setrecursionlimit(max(sys.getrecursionlimit(), 12000))

__all__ = [  # pyright: ignore[reportUnsupportedDunderAll] - scalar's names are all of them
    "FALSE",
    "NO_ATTRS",
    "TRUE",
    "Ambient",
    "AnyDim",
    "Attrs",
    "CallersPool",
    "ConfigOption",
    "DataType",
    "DataTypeCode",
    "DeepPool",
    "Dispatch",
    "HandleType",
    "ScalableLanes",
    "own_name",
    "said",
    "DumpPrograms",
    "DERIVED",
    "ExprVar",
    "IRModule",
    "ImpliedName",
    "IterVar",
    "Node",
    "Pass",
    "PassContext",
    "PassInstrument",
    "PrintIR",
    "Range",
    "Sequential",
    "SourceName",
    "Span",
    "SubclassTable",
    "TimePasses",
    "assert_structural_equal",
    "children",
    "find",
    "compilation",
    "config_options",
    "dtype_of",
    "dumped",
    "fingerprint",
    "function_pass",
    "get_first_structural_mismatch",
    "intrin_rule",
    "is_float",
    "is_integer",
    "load_json",
    "make_node",
    "module_pass",
    "near_names",
    "numpy_dtype",
    "on_verify",
    "passes_inside",
    "passes_named",
    "post_order",
    "rebuild",
    "register_config_option",
    "register_json_form",
    "default_op_attr",
    "op_attr",
    "register_op_attr",
    "reset_op_attr",
    "rewrite",
    "save_json",
    "set_printer",
    "show_text",
    "structural_equal",
    "structural_hash",
    "substitute",
    "vector_of",
    "walk",
    "with_deep_stack",
    "with_fields",
    "with_lanes",
    *_scalar_names,
    *_constructors,
    *_expr_names,
    *_type_names,
]

# What TVM has here and Weft in its dialect or its runtime.
_OF_RELAY = ("GlobalTypeVar", "RelayExpr", "TypeCall", "TypeData", "TypeKind", "TypeRelation", "TypeVar")
_CONTAINERS = dict.fromkeys(("Array", "Map"), "weft.runtime.container")
__getattr__ = names_of("weft.ir", dict.fromkeys(_OF_RELAY, "weft.relay") | _CONTAINERS | {"analysis": ""})
