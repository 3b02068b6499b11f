"""Attributes of operators for the time of a block."""

from __future__ import annotations

from types import TracebackType
from typing import Any

from weft.ir import Op


class TempOpAttr:
    """Give an operator another attribute inside a ``with`` block.

    Parameters
    ----------
    op_name : str
        The operator.
    attr_key : str
        The attribute.
    attr_value : object
        Its value inside the block.
    """

    def __init__(self, op_name: str, attr_key: str, attr_value: Any) -> None:
        self.op, self.attr_key, self.attr_value = Op.get(op_name), attr_key, attr_value

    def __enter__(self) -> TempOpAttr:
        self.older = self.op.get_attr(self.attr_key)
        self.op.reset_attr(self.attr_key)
        self.op.set_attr(self.attr_key, self.attr_value)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.op.reset_attr(self.attr_key)
        if self.older is not None:
            self.op.set_attr(self.attr_key, self.older)
