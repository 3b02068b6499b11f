"""Passes of Relay.

The language: ``scopes``, ``effects``, ``to_a_normal_form``, ``lambda_lift``, ``inline``, ``partial_eval``.
"""

import sys

from weft.ir import Pass as FunctionPass
from weft.ir import PassContext, Sequential, passes_inside
from weft.ir.pass_decorators import function_pass_over, module_pass
from weft.relay.expr import Function
from weft.relay.infer import inferred_type as InferTypeLocal
from weft.relay.transform.annotate_spans import annotate_spans
from weft.relay.transform.annotate_target import AnnotateTarget
from weft.relay.transform.annotate_used_memory import annotate_used_memory
from weft.relay.transform.canonicalize import canonicalize_cast, canonicalize_ops
from weft.relay.transform.combine_parallel import (
    CombineParallelBatchMatmul,
    CombineParallelConv2D,
    CombineParallelDense,
)
from weft.relay.transform.compiler_functions import (
    InlineCompilerFunctionsBoundTo,
    MarkCompilerFunctionsAsExtern,
    OutlineCompilerFunctionsWithExistingGlobalSymbols,
)
from weft.relay.transform.convert_layout import AlterOpLayout, ConvertLayout, LayoutConfig
from weft.relay.transform.dead_code import dead_code_elimination
from weft.relay.transform.defunctionalization import Defunctionalization
from weft.relay.transform.defuse_ops import defuse_ops
from weft.relay.transform.dynamic_to_static import dynamic_to_static
from weft.relay.transform.eliminate_common_subexpr import eliminate_common_subexpr
from weft.relay.transform.eta_expand import eta_expand
from weft.relay.transform.fake_quantization_to_integer import fake_quantization_to_integer
from weft.relay.transform.fast_math import fast_math
from weft.relay.transform.flatten_atrous_conv import flatten_atrous_conv
from weft.relay.transform.flexible_shape import ChangeBatch, FlexibleShapeDispatch
from weft.relay.transform.fold_constant import fold_constant, fold_constant_expr
from weft.relay.transform.fold_explicit_padding import fold_explicit_padding
from weft.relay.transform.fold_scale_axis import BackwardFoldScaleAxis, FoldScaleAxis, ForwardFoldScaleAxis
from weft.relay.transform.fuse_ops import fuse_ops
from weft.relay.transform.gradient import gradient
from weft.relay.transform.infer_type import infer_type
from weft.relay.transform.inline import inline
from weft.relay.transform.inline_primitives import inline_primitives
from weft.relay.transform.lambda_lift import lambda_lift
from weft.relay.transform.lazy_gradient_init import lazy_gradient_init
from weft.relay.transform.legalize import Legalize
from weft.relay.transform.lower_regions import LowerRegions
from weft.relay.transform.manifest_alloc import ManifestAlloc
from weft.relay.transform.manifest_lifetimes import manifest_lifetimes
from weft.relay.transform.memory_plan import MemoryPlan
from weft.relay.transform.merge_compiler_regions import MergeCompilerRegions
from weft.relay.transform.merge_composite import merge_composite
from weft.relay.transform.mixed_precision import ToMixedPrecision
from weft.relay.transform.partial_eval import partial_evaluate
from weft.relay.transform.partition_graph import PartitionGraph
from weft.relay.transform.plan_devices import plan_devices
from weft.relay.transform.plan_virtual_devices import PlanDevices
from weft.relay.transform.recast import recast
from weft.relay.transform.remove_unused_functions import remove_unused_functions
from weft.relay.transform.simplify_expr import simplify_expr
from weft.relay.transform.simplify_inference import simplify_inference
from weft.relay.transform.split_args import SplitArgs
from weft.relay.transform.to_a_normal_form import to_a_normal_form, to_a_normal_form_expr
from weft.relay.transform.to_basic_block_normal_form import to_basic_block_normal_form
from weft.relay.transform.to_cps import ToCPS, UnCPS, to_cps, un_cps
from weft.relay.transform.to_graph_normal_form import to_graph_normal_form
from weft.relay.transform.typed_pass import with_types

ToANormalFormExpr, FoldConstantExpr = to_a_normal_form_expr, fold_constant_expr
EliminateCommonSubexpr = with_types(eliminate_common_subexpr)
MergeComposite = merge_composite
FuseOps = fuse_ops
function_pass = function_pass_over(Function)
build_config = PassContext  # TVM's older name


def BatchingOps() -> Sequential:
    """Make the passes that join operators of one input: convolutions, dense layers, and batches of products."""
    return Sequential([CombineParallelConv2D(), CombineParallelDense(), CombineParallelBatchMatmul()], 0, "BatchingOps")


_ffi_api = sys.modules[__name__]  # TVM's name of the passes as functions of the registry

__getattr__, __dir__ = passes_inside("weft.relay.transform")  # those that nothing above names
