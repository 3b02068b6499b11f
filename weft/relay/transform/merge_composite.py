"""MergeComposite: what matches a pattern becomes a function that stands for one operation of an outside library."""

from collections.abc import Callable, Sequence
from typing import Any

from weft.ir import IRModule, module_pass
from weft.relay.dataflow_pattern.pattern import DFPattern
from weft.relay.dataflow_pattern.rewrite import partition
from weft.relay.expr import Function
from weft.relay.infer import infer_module

Entry = tuple[str, DFPattern] | tuple[str, DFPattern, Callable[[Any], bool]]


@module_pass(name="relay.MergeComposite")
def merge_composite(mod: IRModule, pattern_table: Sequence[Entry]) -> IRModule:
    """Make a function with the attribute ``Composite`` of each match, and call it there.

    Requires: Any form.
    Ensures: Types are inferred. Matches are calls of functions whose ``Composite`` is the pattern's name.
    With ``pattern_table=[("mine.add_relu", is_op("nn.relu")(is_op("add")(wildcard(), wildcard())))]``, before::

        def @main(%x: Tensor[(2), float32], %y: Tensor[(2), float32]) { nn.relu(add(%x, %y)) }

    After::

        def @main(%x: Tensor[(2), float32], %y: Tensor[(2), float32]) -> Tensor[(2), float32] {
          %1 = fn (%a: Tensor[(2), float32], %b: Tensor[(2), float32],
                   PartitionedFromPattern="add_nn.relu_", Composite="mine.add_relu") -> Tensor[(2), float32] {
            nn.relu(add(%a, %b))
          };
          %1(%x, %y)
        }

    Parameters
    ----------
    pattern_table : sequence of (name, pattern) or (name, pattern, check)
        Tried in order; `check` is asked of each match, whose types are inferred.
    Cost: That of matching, once a pattern.
    Source: TVM's ``MergeComposite``.
    """
    for name, pattern, *check in pattern_table:
        mod = infer_module(mod)
        merged = {
            v: partition(pattern, f, {"Composite": name}, *check) if type(f) is Function else f for v, f in mod.items()
        }
        mod = mod.with_functions(merged)
    return infer_module(mod)
