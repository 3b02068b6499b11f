"""Operators that move elements and operators that multiply matrices, for the passes that narrow what these work on."""

PRODUCTS = frozenset({"matmul", "nn.conv1d", "nn.conv2d", "nn.conv3d"})

VIEWS = frozenset(
    "batch_flatten expand_dims flatten nn.batch_flatten nn.max_pool1d nn.max_pool2d nn.max_pool3d permute_dims reshape "
    "squeeze".split()
)
"""Operators whose results are elements of their first operand and of nothing else: they hold for any order of numbers,
so rounding or scaling may come before or after."""

SELECTIONS = VIEWS | frozenset("concat nn.pad nn.relu stack strided_slice take".split())
"""Also those with elements of several operands, or zeros: rounding may come before or after, scaling may not."""
