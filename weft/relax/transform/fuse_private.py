"""FuseTIR for programs that somebody wrote: kernels that groups become are private."""

from weft import ir, tir
from weft.relax.transform.canonicalize import canonicalize_bindings
from weft.relax.transform.cse import dead_code_elimination
from weft.relax.transform.expand_tuple_arguments import expand_tuple_arguments
from weft.relax.transform.fuse_tir import fuse_tir
from weft.relax.transform.unused_interface import remove_unused_parameters


def FuseTIR() -> ir.Pass:
    """Make the pass that turns groups (functions with ``Primitive``) of kernels into one kernel each.

    Private groups take the elements of tuples, and only what they use. Private functions that nothing calls then are
    removed, and so are values that nothing uses.
    """

    def run(mod: ir.IRModule) -> ir.IRModule:
        """Fuse, then clean up."""
        fused = fuse_tir()(remove_unused_parameters()(expand_tuple_arguments()(mod)))
        groups = {v.name_hint for v, f in mod.items() if isinstance(f, ir.Function)}
        if not any(v.name_hint in groups and isinstance(f, tir.PrimFunc) for v, f in fused.items()):
            return mod
        private = {
            v: f.without_attr("global_symbol") if v.name_hint in groups and isinstance(f, tir.PrimFunc) else f
            for v, f in fused.items()
        }
        return dead_code_elimination()(canonicalize_bindings()(fused.with_functions(private)))

    return ir.Pass("FuseTIR", run, 0, FuseTIR.__doc__)
