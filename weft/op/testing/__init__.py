"""NumPy references of operators, for tests (``tvm.topi.testing``)."""

from weft.op.testing.convolutions import (
    conv1d_ncw_python,
    conv1d_transpose_ncw_python,
    conv2d_backward_weight_python,
    conv2d_hwcn_python,
    conv2d_nchw_python,
    conv2d_nhwc_python,
    conv2d_transpose_nchw_python,
    conv2d_transpose_nhwc_python,
    conv3d_ncdhw_python,
    conv3d_ndhwc_python,
    conv3d_transpose_ncdhw_python,
    depthwise_conv2d_python_nchw,
    depthwise_conv2d_python_nhwc,
    group_conv1d_ncw_python,
    group_conv1d_transpose_ncw_python,
)
from weft.op.testing.displaced import (
    correlation_nchw_python,
    crop_and_resize_python,
    deformable_conv2d_nchw_python,
    deformable_conv2d_nhwc_python,
    roi_align_nchw_python,
    roi_align_nhwc_python,
)
from weft.op.testing.moves import (
    batch_to_space_nd_python,
    depth_to_space_python,
    dilate_python,
    gather_nd_python,
    gather_python,
    matrix_set_diag,
    reorg_python,
    searchsorted_ref,
    sequence_mask,
    slice_axis_python,
    space_to_batch_nd_python,
    space_to_depth_python,
    strided_set_python,
    strided_slice_python,
)
from weft.op.testing.schedules import (
    compare_numpy_tvm,
    dispatch,
    get_broadcast_schedule,
    get_conv2d_nchw_implement,
    get_elemwise_schedule,
    get_injective_schedule,
    get_reduce_schedule,
)
from weft.op.testing.values import (
    adaptive_pool,
    affine_grid_python,
    batch_matmul,
    batch_norm,
    dense,
    grid_sample_python,
    group_norm_python,
    instance_norm_python,
    l2_normalize_python,
    layer_norm_python,
    log_softmax_python,
    lrn_python,
    nll_loss,
    one_hot,
    pool_grad_nchw,
    poolnd_python,
    relu_python,
    resize1d_python,
    resize2d_python,
    resize3d_python,
    rms_norm_python,
    softmax_python,
)
from weft.op.vision import get_valid_counts as get_valid_counts_python
from weft.op.vision import non_max_suppression as non_max_suppression_python
from weft.op.vision import roi_pool as roi_pool_nchw_python
