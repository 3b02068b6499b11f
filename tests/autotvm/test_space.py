"""Knobs of templates: candidates, numbers of configurations, and what log files hold of them."""

from tests.refusals import refuses
from weft.autotvm.task.space import ConfigEntity, ConfigSpace, FallbackConfigEntity, get_factors
from weft.error import ScheduleError


def make():
    cfg = ConfigSpace()
    cfg.define_split("x", cfg.axis(12), num_outputs=2)
    cfg.define_knob("unroll", [False, True])
    return cfg


def test_splits_by_policy():
    cfg = ConfigSpace()
    cfg.define_split("all", cfg.axis(12), num_outputs=2)
    assert [e.size for e in cfg.space_map["all"].entities] == [[-1, f] for f in get_factors(12)]
    cfg.define_split("power2", cfg.axis(12), policy="power2", num_outputs=2)
    assert [e.size[1] for e in cfg.space_map["power2"].entities] == [1, 2, 4, 8]
    cfg.define_split("given", cfg.axis(12), policy="candidate", num_outputs=2, candidate=[[3, 4]])
    assert cfg["given"].size == [3, 4]
    refuses(ValueError, "policy", cfg.define_split, "other", cfg.axis(12), policy="other", num_outputs=2)


def test_orders_and_annotations():
    cfg = ConfigSpace()
    axes = [cfg.axis(2), cfg.axis(3), cfg.axis(4)]
    cfg.define_reorder("all", axes, "all")
    assert len(cfg.space_map["all"]) == 6
    cfg.define_reorder("chains", axes, "interleave", spatial=[[axes[0], axes[1]]], reduce=[[axes[2]]])
    assert [tuple(e.perm) for e in cfg.space_map["chains"].entities] == [(0, 1, 2)]
    cfg.define_annotate("ann", axes[:2], "try_unroll_vec")
    assert len(cfg.space_map["ann"]) == 8  # nine less two vectors
    cfg.define_annotate("gpu", axes[:2], "bind_gpu")
    assert cfg["gpu"].anns == ["blockIdx.x", "threadIdx.x"]


def test_numbers_and_knobs():
    cfg = make()
    assert cfg.dims == [6, 2] and len(cfg) == 12
    assert cfg.point2knob(7) == [1, 1] and cfg.knob2point([1, 1]) == 7
    assert cfg.get(7)["x"].size == [-1, 2] and cfg.get(7)["unroll"].val is True
    refuses(IndexError, "", cfg.get, 12)


def test_a_filter_of_all_knobs():
    cfg = make()
    cfg.multi_filter(lambda e: e["unroll"].val and e["x"].size[1] > 2)
    assert len(cfg) == 4 and cfg.range_length == 12
    assert cfg.get_next_index(0) == 8 and cfg.get_next_index(8, -1) is None
    assert cfg.subrange_length(0, 9) == 1
    assert set(cfg.sample_ints(4)) == {8, 9, 10, 11}
    refuses(IndexError, "filter", cfg.get, 0)


def test_log_form_of_a_configuration():
    config = make().get(7)
    entry = config.to_json_dict()
    assert entry == {"index": 7, "code_hash": None, "entity": [["x", "sp", [-1, 2]], ["unroll", "ot", True]]}
    assert str(ConfigEntity.from_json_dict(entry)) == str(config)


def test_fallback_takes_the_largest_divisors_within_limits():
    cfg = FallbackConfigEntity()
    cfg.define_split("n", cfg.axis(49), num_outputs=3)
    cfg.fallback_split("n", [-1, 8, 4])
    assert cfg["n"].size == [7, 7, 1]
    refuses(ScheduleError, "no divisor", cfg.fallback_split, "n", [-1, 1, 0])
