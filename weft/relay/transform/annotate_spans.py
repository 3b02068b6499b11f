"""AnnotateSpans: every expression has a place, that in the module's own text."""

from weft.ir import IRModule, module_pass
from weft.relay.infer import infer_module
from weft.relay.text import parse


@module_pass
def annotate_spans(mod: IRModule) -> IRModule:
    """Give every expression a place: where it stands in the text of the module.

    Errors of later passes then show the line of that text. The program is printed and parsed, so no node is the same.

    Requires: Any form whose types can be inferred.
    Ensures: The same program, with types, whose expressions have spans in a text called ``GeneratedSource``.
    Before::

        def @main(%x: Tensor[(2), float32]) {
          add(%x, exp(%x))
        }

    After::

        def @main(%x: Tensor[(2), float32]) -> Tensor[(2), float32] {
          add(%x, exp(%x))
        }
    Cost: Linear in the length of the text.
    Source: TVM's ``AnnotateSpans``.
    """
    return infer_module(parse(mod.astext(), "GeneratedSource"))
