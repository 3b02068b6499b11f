"""MergeCompilerRegions: neighbouring regions of one external compiler become one."""

from typing import Any

from weft.ir import Pass
from weft.relay.analysis.annotated_regions import BEGIN, END, AnnotatedRegion, AnnotatedRegionSet, annotation_of
from weft.relay.expr import Call, Expr, Function
from weft.relay.transform.typed_pass import over_typed_functions, with_types
from weft.relay.walk import rewrite, rewrite_with_original


@with_types
def MergeCompilerRegions() -> Pass:
    """Make the pass that merges regions that AnnotateTarget made, as far as none comes to depend on itself.

    A region takes in those of the same compiler that it takes values from, unless one of another compiler stands
    between them. Annotations inside of what is merged go. The cost is quadratic in the number of regions at worst.

    Source: TVM's ``MergeCompilerRegions``.
    """
    return Pass("MergeCompilerRegions", over_typed_functions(_merge), 0, MergeCompilerRegions.__doc__)


def _merge(func: Function) -> Function:
    regions = AnnotatedRegionSet(func)
    apart: dict[AnnotatedRegion, set[AnnotatedRegion]] = {}
    seen: set[AnnotatedRegion] = set()

    def visit(expr: Expr) -> Any:
        if annotation_of(expr, END) is not None:
            region = regions.get_region(expr)
            if region is not None and region not in seen:
                seen.add(region)
                _take_in(region, regions, apart)
        return expr

    def without_inner(old: Call, new: Any) -> Any:
        if annotation_of(old, BEGIN) is None or annotation_of(old.args[0], END) is None:
            return new
        inner = regions.get_region(old) is regions.get_region(old.args[0])
        return new.args[0].args[0] if inner else new

    rewrite(func, visit)
    return rewrite_with_original(func, without_inner)


def _take_in(region: AnnotatedRegion, regions: AnnotatedRegionSet, apart: dict[Any, set[Any]]) -> None:
    """Merge the regions that one takes values from into it; `apart` has what a region must not be merged with."""
    sources = list(dict.fromkeys(r for b in region.args if (r := regions.get_region(b.args[0])) is not None))
    apart[region] = {regions.whole(m) for r in sources for m in apart.get(r, ())}
    apart[region] |= {r for r in sources if r.target != region.target}
    for source in sources:
        if source.target == region.target and source not in apart[region]:
            regions.merge(source, region)
