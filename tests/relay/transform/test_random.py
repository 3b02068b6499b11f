"""Every pass of the language keeps the values of random programs, also with its options and behind the others."""

import pytest
from hypothesis import HealthCheck, given, settings

from tests.pairs import part
from tests.relay.programs.check import Disagreement, equal, run, show
from tests.relay.programs.draw import programs
from weft.relay import transform
from weft.relay.transform import infer_type

ANF = transform.ToANormalForm(bind_constants=False)
CHAINS = {
    "names": [ANF, transform.LambdaLift(), transform.ToGraphNormalForm()],
    "eta": [transform.EtaExpand(expand_constructor=True, expand_global_var=True), ANF, transform.InlinePrimitives()],
    "inline": [transform.Inline(used_once=True), transform.EliminateCommonSubexpr(), transform.LambdaLift()],
    "once": [ANF, transform.DeadCodeElimination(inline_once=True), transform.ToBasicBlockNormalForm()],
    "partial": [transform.PartialEvaluate(), transform.DeadCodeElimination(), ANF, transform.LambdaLift()],
    "partial again": [transform.LambdaLift(), transform.PartialEvaluate(max_steps=20), transform.PartialEvaluate()],
    "simplify": [
        transform.SimplifyInference(),
        transform.SimplifyExpr(),
        transform.CanonicalizeOps(),
        transform.CanonicalizeCast(),
        transform.DynamicToStatic(),
        transform.FoldConstant(),
    ],
}


@pytest.mark.parametrize("chain", CHAINS)
@settings(max_examples=part(15), deadline=None, suppress_health_check=list(HealthCheck))
@given(program=programs(fuel=30))
def test_values_stay(chain, program):
    mod, args = program
    typed = infer_type(mod)
    value, result = run("debug", typed, args), typed
    for step in CHAINS[chain]:
        result = infer_type(step(result))
        got = run("debug", result, args)
        if not equal(value, got):
            raise Disagreement(f"{step.name}: {show(got)} instead of {show(value)}", typed, args, result)
