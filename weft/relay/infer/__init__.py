"""Type inference: unification over a whole module.

Read in this order: ``unify``, ``state``, ``operators``, ``pending``, ``data_types``, ``constraints``, ``rebuild``.
"""

from weft.relay.infer.program import infer, infer_module, infer_type, inferred_type
