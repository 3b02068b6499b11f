"""Relax: the graph-level dialect with symbolic shapes.

Read in this order: ``expr``, ``core_ops``, ``infer``, ``block_builder``, ``rewriter``, ``transform/``, ``pipeline``,
``vm/``, ``build``.
"""

import typing

from weft._aliases import names_of
from weft.ir import (
    AnyType,
    FuncType,
    PackedFuncType,
    PrimType,
    ShapeType,
    TensorType,
    TupleType,
    Type,
    VDevice,
    constant,
    shape_expr,
    tensor_type,
)
from weft.relax import analysis, backend, dpl, op, run, transform
from weft.relax import expr_operators as _expr_operators  # its import puts operators on expressions
from weft.relax import spec as _spec  # its import registers the forms of the pipeline
from weft.relax.binding_rewrite import DataflowBlockRewrite
from weft.relax.block_builder import BlockBuilder
from weft.relax.core_ops import (
    call_dps_packed,
    call_inplace_packed,
    call_packed,
    call_pure_packed,
    call_tir,
    call_tir_inplace,
    call_tir_with_grad,
    invoke_closure,
    invoke_pure_closure,
    make_closure,
)
from weft.relax.expr import *  # noqa: F403 - the nodes
from weft.relax.expr_functor import PyExprMutator, PyExprVisitor
from weft.relax.infer import get_shape_of
from weft.relax.kernel_builder import processes_ahead, schedule_kernel
from weft.relax.pipeline import get_default_pipeline, get_pipeline, register_pipeline
from weft.relax.recompile import kernels_from_json, kernels_to_json, recompilable_kernels
from weft.relax.rename import copy_with_new_vars
from weft.relax.rewriter import rewrite_bindings
from weft.relax.script import printing as _printing  # its import registers print rules
from weft.relax.vm import ExecBuilder, vm_codegen
from weft.relax.vm_build import build, compile_kernels, compile_with_callers
from weft.runtime import VirtualMachine, VMExecutable, VMInstrumentReturnKind

if typing.TYPE_CHECKING:  # compiling asks for none of them
    from weft.relax import testing, training
    from weft.relax.base_py_module import BasePyModule
    from weft.relax.interpreter import Interpreter, MachineOnly, UnscheduledKernels
    from weft.relax.tuning import TuningResult, extract_tasks, tune_relax

StructInfo = Type  # struct info is the type since 0.20
TensorStructInfo = TensorType
ShapeStructInfo = ShapeType
TupleStructInfo = TupleType
PrimStructInfo = PrimType
FuncStructInfo = FuncType
ObjectStructInfo = AnyType
ObjectType = AnyType

__getattr__ = names_of(
    "weft.relax",
    {
        "testing": "",
        "training": "",
        "BasePyModule": "weft.relax.base_py_module",
        **dict.fromkeys(("Interpreter", "MachineOnly", "UnscheduledKernels"), "weft.relax.interpreter"),
        **dict.fromkeys(("TuningResult", "extract_tasks", "tune_relax"), "weft.relax.tuning"),
    },
    listed=True,
)
