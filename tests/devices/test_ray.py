"""Candidates are compiled and measured in a Ray cluster, here of two nodes on this machine."""

import re

import pytest

from tests import onnx_models
from tests.devices import missing
from tests.tune.test_measure import CASES, crashes, doubled, good, hangs, outcome
from weft import target, tune
from weft.cli import main
from weft.tir.schedule import default_schedule


@pytest.fixture(scope="module")
def cluster():
    try:
        from ray.cluster_utils import Cluster
    except ImportError:
        missing("the package ray is missing: pip install 'weft[ray]'")
    memory = {"object_store_memory": 80 << 20, "include_dashboard": False}
    cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 2, **memory})
    cluster.add_node(num_cpus=2, object_store_memory=80 << 20)
    yield cluster
    import ray

    ray.shutdown()
    cluster.shutdown()


def test_candidates_and_models_are_tuned_there(cluster, tmp_path, monkeypatch, capsys):
    workers, runner = tune.ray_workers(cluster.address, 2)
    assert len(workers) == 2
    with tune.Measurer(target.Target("llvm"), 2, workers=workers, runner=runner) as measurer:
        measurer.prepare(default_schedule(doubled(), target.Target("llvm")), CASES)
        good(measurer)
        crashed = outcome(measurer, crashes)  # told by the node, which knows the signal, not by the cluster's silence
        assert crashed.state == "crashed" and "signal 11" in crashed.why
        good(measurer)
        monkeypatch.setattr(tune.measure, "_RUN_SECONDS", 1.0)
        assert outcome(measurer, hangs).state == "hung"
        monkeypatch.undo()
        good(measurer)
        runner.ray.kill(runner.actor)  # as if its node were lost: the next request finds another
        assert outcome(measurer, default_schedule(doubled(), target.Target("llvm"))).state in ("crashed", "measured")
        good(measurer)
    model, output = tmp_path / "m.onnx", tmp_path / "t.json"
    model.write_bytes(onnx_models.linear()[0].SerializeToString())
    options = ["--ray", cluster.address, "--threads", "1", "--trials", "2", "--shape", "x=64,8", "-o", str(output)]
    assert main(["tune", str(model), *options]) == 0
    assert re.search(r"measured [12] candidates", capsys.readouterr().out)
