"""Boxes and regions: the cases of the shared operators, whose references they have."""

import tests.op.cases  # noqa: F401 - registers them
from tests.op.contract import CASES as SHARED
from tests.relay.op.contract import SIZES, Case, Sizes, call, cases
from weft.op import get_op_def

_LACKS = {"aligned", "soft_nms_sigma"}  # attributes that Relay's operators do not have


def _same(name: str, shared: str) -> None:
    definition = get_op_def(f"vision.{shared}")
    for make in SHARED[f"vision.{shared}"]:
        if _LACKS & set(make(Sizes(SIZES[0], name)).attrs):
            continue

        @cases(f"vision.{name}")
        def case(s: Sizes, name: str, make=make) -> Case:
            made = make(s)
            attrs = {k: made.attrs.get(k, a.default) for k, a in definition.attrs.items()}
            lacks = _LACKS | ({"score_threshold"} if name.endswith("non_max_suppression") else set())
            given = {k: v for k, v in attrs.items() if k not in lacks}
            return call(*made.inputs, expect=lambda *x: definition.reference(*x, **attrs), **given)


for _name in ("roi_align", "roi_pool", "get_valid_counts", "non_max_suppression"):
    _same(_name, _name)
_same("all_class_non_max_suppression", "class_boxes")
