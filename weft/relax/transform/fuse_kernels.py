"""FuseOps of programs that call kernels: by what ``op_pattern`` says of each, groups become functions."""

from weft import ir
from weft.relax.block_builder import BlockBuilder
from weft.relax.transform.grouping import group_functions
from weft.relax.transform.partition import Graph, partition

_MOST = 256


def FuseOps(fuse_opt_level: int = -1) -> ir.Pass:
    """Make the pass that groups calls of kernels, in dataflow blocks, into functions with ``Primitive``.

    What a kernel allows is its attribute ``op_pattern`` (see ``AnnotateTIROpPattern``); other operations stay alone. A
    group is called ``fused_`` and the names of its kernels; constants are arguments. The default pipeline groups
    operators before they are lowered (``fuse_ops``).

    Parameters
    ----------
    fuse_opt_level : int
        0 leaves everything as it is; by default the level of the context.
    """

    def run(mod: ir.IRModule) -> ir.IRModule:
        """Group the kernels."""
        context = ir.PassContext.current()
        graph = Graph(mod)
        group = ("Primitive", "Codegen")
        plain = ((v, f) for v, f in mod.items() if isinstance(f, ir.Function) and not any(map(f.attrs.get, group)))
        funcs = dict(plain)
        for f in funcs.values():
            graph.add_function(f)
        level = context.opt_level if fuse_opt_level < 0 else fuse_opt_level
        groups = partition(graph, level, int(context.config.get("relax.FuseOps.max_depth", _MOST)))
        bb = BlockBuilder(mod)
        for gvar, f in funcs.items():
            new = group_functions(f, groups, bb)
            if new is not f:
                bb.update_func(gvar, new)
        return mod.with_functions(bb.get().functions)

    return ir.Pass("FuseOps", run, 1, FuseOps.__doc__)
