"""Tests mirror the folders of `weft`."""

import weft.ffi  # noqa: F401 - before a test imports tvm_ffi, which by itself imports PyTorch: four seconds a process
