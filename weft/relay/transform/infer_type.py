"""InferType: every expression has its type."""

from weft.ir import IRModule, module_pass
from weft.relay.infer import infer_module


@module_pass(ensures="relay.typed")
def infer_type(mod: IRModule) -> IRModule:
    """Give every expression its type, by unification over the whole module.

    Requires: Any form. Types may be left out where the use of a value tells them.
    Ensures: Every expression has a type; so have variables, and functions have their result's. Calls of polymorphic
        functions have type arguments. What had its types before keeps its identity.
    Before::

        def @twice(%x, %y: Tensor[(2, 3), float32]) {
          let %z = add(%x, %y);
          (%z, less(%x, %y))
        }

        def @main(%a: Tensor[(3), float32]) {
          @twice(%a, exp(zeros(shape=[2, 3], dtype="float32")))
        }

    After::

        def @twice(%x: Tensor[(3), float32], %y: Tensor[(2, 3), float32])
            -> (Tensor[(2, 3), float32], Tensor[(2, 3), bool]) {
          let %z: Tensor[(2, 3), float32] = add(%x, %y);
          (%z, less(%x, %y))
        }

        def @main(%a: Tensor[(3), float32]) -> (Tensor[(2, 3), float32], Tensor[(2, 3), bool]) {
          @twice(%a, exp(zeros(shape=[2, 3], dtype="float32")))
        }
    Cost: Linear in expressions, but for facts that wait for each other.
    Source: TVM's ``InferType``; unification after Hindley, Milner and Damas.
    """
    return infer_module(mod)
