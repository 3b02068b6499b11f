"""How operators take part in fusion: the pattern of each, as FuseOps and tuners ask for it (``TOpPattern``)."""

from weft.ir import Op, register_op_attr


class OpPattern:
    """Kinds of operators, from what joins everything to what joins nothing."""

    ELEMWISE = 0
    BROADCAST = 1
    INJECTIVE = 2
    COMM_REDUCE = 3
    OUT_ELEMWISE_FUSABLE = 4
    TUPLE = 7
    OPAQUE = 8


_KINDS = {
    OpPattern.ELEMWISE: """
        abs acos acosh asin asinh atan atanh bitwise_not cast cast_like ceil clip copy cos cosh dyn.full dyn.ones
        dyn.zeros erf exp fast_erf fast_exp fast_tanh fixed_point_multiply floor full full_like isfinite isinf isnan
        log log10 log2 logical_not negative nn.leaky_relu nn.relu ones ones_like qnn.simulated_dequantize
        qnn.simulated_quantize reinterpret round rsqrt sigmoid sign sin sinh sqrt tan tanh trunc zeros zeros_like""",
    OpPattern.BROADCAST: """
        add bitwise_and bitwise_or bitwise_xor broadcast_to broadcast_to_like divide dyn.broadcast_to equal
        expand_dims floor_divide floor_mod greater greater_equal left_shift less less_equal logical_and logical_or
        logical_xor maximum minimum mod multiply nn.bias_add nn.prelu not_equal power repeat right_shift subtract tile
        trunc_divide trunc_mod where""",
    OpPattern.INJECTIVE: """
        adv_index concatenate contrib_reverse_reshape dyn.expand_dims dyn.image.resize2d dyn.nn.pad dyn.nn.upsampling
        dyn.nn.upsampling3d dyn.reshape dyn.squeeze dyn.strided_slice dyn.tile einsum gather gather_nd
        image.affine_grid image.crop_and_resize image.grid_sample image.resize1d image.resize2d image.resize3d
        invert_permutation layout_transform matrix_set_diag meshgrid ndarray_size nn.batch_flatten
        nn.batch_to_space_nd nn.bitpack nn.depth_to_space nn.dilate nn.mirror_pad nn.pad nn.space_to_batch_nd
        nn.space_to_depth nn.upsampling nn.upsampling3d reshape reshape_like reverse reverse_sequence sequence_mask
        slice_like sparse_reshape split squeeze stack strided_set strided_slice take transpose trilu unravel_index
        vision.yolo_reorg""",
    OpPattern.COMM_REDUCE: """
        all any argmax argmin collapse_sum_like collapse_sum_to max mean min prod sum variance""",
    OpPattern.OUT_ELEMWISE_FUSABLE: """
        dyn.one_hot image.dilation2d nn.adaptive_avg_pool1d nn.adaptive_avg_pool2d nn.adaptive_avg_pool3d
        nn.adaptive_max_pool1d nn.adaptive_max_pool2d nn.adaptive_max_pool3d nn.avg_pool1d nn.avg_pool2d
        nn.avg_pool2d_grad nn.avg_pool3d nn.batch_matmul nn.contrib_conv2d_NCHWc nn.contrib_dense_pack nn.conv1d
        nn.conv1d_transpose nn.conv2d nn.conv2d_transpose nn.conv3d nn.conv3d_transpose nn.correlation
        nn.deformable_conv2d nn.dense nn.fast_softmax nn.global_avg_pool2d nn.global_max_pool2d nn.log_softmax
        nn.matmul nn.max_pool1d nn.max_pool2d nn.max_pool2d_grad nn.max_pool3d nn.nll_loss nn.softmax one_hot
        vision.roi_align vision.roi_pool""",
}
_RENAMES = "reshape contrib_reverse_reshape reshape_like dyn.reshape nn.batch_flatten expand_dims squeeze dyn.squeeze"


def register_pattern(op_name: str, pattern: int, level: int = 10) -> None:
    """Say of which kind an operator is.

    Parameters
    ----------
    pattern : int
        One of :class:`OpPattern`.
    level : int
        A registration replaces those of lower levels.
    """
    register_op_attr(op_name, "TOpPattern", pattern, level)


def pattern_of(op: Op) -> int:
    """Return the kind of an operator; one that nothing is known of joins nothing."""
    found = op.get_attr("TOpPattern")
    return OpPattern.OPAQUE if found is None else int(found)


def renames_dimensions(op: Op) -> bool:
    """Whether an operator's result has the elements of its first argument in their order (``TReshapeOp``)."""
    return bool(op.get_attr("TReshapeOp"))


for _kind, _names in _KINDS.items():
    for _name in _names.split():
        register_op_attr(_name, "TOpPattern", int(_kind))
for _name in _RENAMES.split():
    register_op_attr(_name, "TReshapeOp", True)
for _name in """on_device vm.invoke_tvm_op vm.reshape_tensor vm.shape_of memory.alloc_storage memory.alloc_tensor
        memory.kill annotation.checkpoint debug""".split():
    register_op_attr(_name, "TNonComputational", True)
