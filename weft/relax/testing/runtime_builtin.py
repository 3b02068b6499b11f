"""The codes of ``vm.builtin.match_shape`` and ``vm.builtin.make_shape``, for programs that call them by hand."""

from weft.runtime.opcodes import MakeShapeCode, MatchShapeCode

__all__ = ["MakeShapeCode", "MatchShapeCode"]
