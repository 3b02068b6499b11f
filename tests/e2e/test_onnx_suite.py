"""The node cases of the ONNX backend suite for the importer's operators; what fails is listed by name."""

from functools import lru_cache
from pathlib import Path

import pytest

from benchmarks import onnx_suite
from tests.pairs import share

SHARDS = 4
LIST = Path(__file__).parent / "onnx_suite_failures.txt"


@lru_cache(maxsize=1)
def cases():
    return onnx_suite.cases()


@lru_cache(maxsize=1)
def chosen() -> list[str]:
    """Each operator with each choice of attributes; `tests/frontend/test_backend_suite.py` asks what all mean."""
    graphs = {name: case.model.graph for name, case in cases().items()}
    attributes = {
        name: frozenset(a.name for node in graph.node for a in node.attribute) for name, graph in graphs.items()
    }
    return share({n: ((frozenset(onnx_suite.operators_of(g)), attributes[n]),) for n, g in graphs.items()}, 16)


def listed() -> set[str]:
    """Names of the cases that are known to fail, one a line, each under a comment with the reason."""
    return {line for line in LIST.read_text().splitlines() if line and not line.startswith("#")}


@pytest.mark.parametrize("shard", range(SHARDS))
def test_cases_pass(shard):
    wrong = []
    for name in chosen()[shard::SHARDS]:
        try:
            onnx_suite.run_case(cases()[name], "weft")
        except Exception as e:  # every kind of failure is a result here
            if name not in listed():
                wrong.append(f"{name}: {type(e).__name__}: {e}")
        else:
            if name in listed():
                wrong.append(f"{name} passes: take it off the list in {LIST.name}")
    assert not wrong, "\n".join(wrong)


def test_at_most_a_twentieth_is_listed():
    assert listed() <= cases().keys()
    assert len(listed()) <= 0.05 * len(cases())
