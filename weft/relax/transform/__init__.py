"""Relax passes, in the order of the default pipeline (``weft.relax.pipeline``)."""

from weft.ir import passes_inside
from weft.ir.pass_decorators import function_pass
from weft.relax.transform.alter_op_impl import AlterOpImpl
from weft.relax.transform.annotate_pattern import annotate_tir_op_pattern
from weft.relax.transform.attach_extern import EXTERNAL_MODULES, AttachExternModules
from weft.relax.transform.attach_symbol import NormalizeGlobalVar, attach_global_symbol
from weft.relax.transform.bind_params import BindParams
from weft.relax.transform.bind_symbolic_vars import BindSymbolicVars, UpdateParamType
from weft.relax.transform.block_pass import dataflowblock_pass
from weft.relax.transform.call_tir_rewrite import call_tir_rewrite
from weft.relax.transform.canonicalize import canonicalize_bindings
from weft.relax.transform.check_relations import check_relations, refuted_relation
from weft.relax.transform.combine_matmul import combine_parallel_matmul
from weft.relax.transform.common_subexpr import EliminateCommonSubexpr
from weft.relax.transform.compress_weights import compress_weights
from weft.relax.transform.concat_in_place import concat_in_place
from weft.relax.transform.convert_layout import convert_layout
from weft.relax.transform.convert_to_dataflow import convert_to_dataflow
from weft.relax.transform.cse import dead_code_elimination, eliminate_common_subexpr
from weft.relax.transform.decompose_norm import DecomposeOpsForInference, DecomposeOpsForTraining
from weft.relax.transform.decompose_ops import decompose_ops
from weft.relax.transform.expand_tuple_arguments import expand_tuple_arguments
from weft.relax.transform.fold_batch_norm import fold_batch_norm
from weft.relax.transform.fold_constant import fold_constant
from weft.relax.transform.fold_kernels import FoldConstant
from weft.relax.transform.fold_quantization import fold_quantization
from weft.relax.transform.fresh_outputs import fresh_outputs
from weft.relax.transform.fuse_attention import fuse_attention
from weft.relax.transform.fuse_by_pattern import FuseOpsByPattern, FusionPattern, PatternCheckContext
from weft.relax.transform.fuse_kernels import FuseOps
from weft.relax.transform.fuse_ops import fuse_ops, fusion_groups
from weft.relax.transform.fuse_private import FuseTIR
from weft.relax.transform.fuse_tir import fuse_tir
from weft.relax.transform.gradient import Gradient
from weft.relax.transform.inline_private import inline_private_functions
from weft.relax.transform.join_convolutions import join_convolutions
from weft.relax.transform.lambda_lift import lambda_lift
from weft.relax.transform.lazy_params import lazy_transform_params
from weft.relax.transform.legalize_ops import FastMathTransform, LegalizeOps
from weft.relax.transform.lower_builtin import kill_after_last_use, lower_alloc_tensor, lower_runtime_builtin
from weft.relax.transform.lower_ops import legalize_mutable, lower_ops
from weft.relax.transform.matmul_algebra import (
    AdjustMatmulOrder,
    ExpandMatmulOfSum,
    FuseTransposeMatmul,
    ReorderPermuteDimsAfterConcat,
    ReorderTakeAfterMatmul,
)
from weft.relax.transform.merge_composite import merge_composite_functions
from weft.relax.transform.meta_schedule import MetaScheduleApplyDatabase, MetaScheduleTuneIRMod, MetaScheduleTuneTIR
from weft.relax.transform.mixed_precision import to_mixed_precision
from weft.relax.transform.model_params import bundle_model_params, lift_transform_params
from weft.relax.transform.module_rewriter import rewriter_of
from weft.relax.transform.normalize import normalize
from weft.relax.transform.normalize_blocks import Normalize
from weft.relax.transform.pack_nbits import pack_nbits
from weft.relax.transform.plan_memory import plan_memory
from weft.relax.transform.prim_values import ComputePrimValue
from weft.relax.transform.products_in_bfloat16 import products_in_bfloat16
from weft.relax.transform.reshape_before_slice import reshape_before_slice
from weft.relax.transform.rewrite_reshape import remove_redundant_reshape, rewrite_dataflow_reshape
from weft.relax.transform.run_codegen import RunCodegen
from weft.relax.transform.schedule_tir import schedule_tir
from weft.relax.transform.split_to_slices import split_to_slices
from weft.relax.transform.static_plan import StaticPlanBlockMemory
from weft.relax.transform.stream_outputs import stream_outputs
from weft.relax.transform.to_non_dataflow import remove_purity_checking, to_non_dataflow
from weft.relax.transform.topological_sort import topological_sort
from weft.relax.transform.unused_interface import remove_unused_outputs, remove_unused_parameters
from weft.relax.transform.use_inplace_calls import DataflowUseInplaceCalls
from weft.relax.transform.vdevice import UpdateVDevice, realize_vdevice
from weft.relax.transform.vm_shape_lower import vm_shape_lower
from weft.relax.transform.vm_shape_packed import VMShapeLower
from weft.relax.transform.widen_conv1d import widen_conv1d

CallTIRRewrite = call_tir_rewrite
FoldBatchnormToConv2D = fold_batch_norm
RealizeVDevice = realize_vdevice
UpdateParamStructInfo = UpdateParamType
VMBuiltinLower = lower_runtime_builtin

__getattr__, __dir__ = passes_inside("weft.relax.transform")  # those that nothing above names
