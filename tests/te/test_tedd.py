"""Pictures of schedules: stages, loops and what made them, by the names that TVM's have."""

import re

import pytest
from weft.contrib import tedd

from weft import error, te, topi


def test_stages_and_tensors():
    a = te.placeholder((8, 16), name="A")
    text = tedd.viz_dataflow_graph(te.create_schedule(topi.nn.softmax(a).op), output_dot_string=True)
    assert text.startswith('digraph "Dataflow Graph" {') and text.count("{") == text.count("}")
    made = re.findall(r"Stage_(\d+):O_0 -> Tensor_(\d+)_0", text)
    assert len(made) >= 4 and all(s == t for s, t in made)
    assert "Tensor_0_0 -> Stage_1:I_0" in text and "[8, 16]<br/>float32" in text


def test_loops_and_what_splits_and_fuses_them(tmp_path):
    n, m = te.var("n"), te.var("m")
    a, k = te.placeholder((n, m), name="A"), te.reduce_axis((0, m), "k")
    b = te.compute((n,), lambda i: te.sum(a[i, k], axis=k), name="B")
    s = te.create_schedule(b.op)
    s[b].fuse(*s[b].split(k, factor=16))
    path = tmp_path / "loops.dot"
    assert tedd.viz_itervar_relationship_graph(s, dot_file_path=str(path)) is None
    text = path.read_text()
    assert "(kDataPar)<br/>range(min=0, ext=n)" in text and "(kCommReduce)<br/>range(min=0, ext=m)" in text
    for edge in (
        "IterVar_1_1:itervar -> Split_Relation_1_0:Input",
        "Split_Relation_1_0:Outer -> IterVar_1_2:itervar",
        "Split_Relation_1_0:Inner -> IterVar_1_3:itervar",
        "IterVar_1_2:itervar -> Fuse_Relation_1_1:Outer",
        "Fuse_Relation_1_1:Output -> IterVar_1_4:itervar",
    ):
        assert edge in text


def test_where_stages_run():
    a = te.placeholder((8, 4), name="A")
    b = te.compute((8, 4), lambda i, j: a[i, j] < 1.0, name="B")
    c = te.compute((8, 4), lambda i, j: te.if_then_else(b[i, j], a[i, j], 0.0), name="C")
    s = te.create_schedule(c.op)
    s.cache_read(a, "shared", [b])
    s[b].compute_at(s[c], s[c].op.axis[0])
    s[c].vectorize(s[c].op.axis[1])
    text = tedd.viz_schedule_tree(s, output_dot_string=True)
    assert re.search(r"A_shared<br/>Scope: shared.*ax0\(kDataPar\)", text)
    assert re.search(r"j\(kVectorized\)", text) and "ROOT [label=ROOT]" in text
    assert re.search(r'Stage_2 -> Stage_3:itervar0 \[color="#000000"\]', text)
    assert "&lt;" in text and "A[i, j] <" not in text  # what a body says is text in the label


def test_a_picture_is_not_shown_without_what_shows_it(monkeypatch):
    import sys

    monkeypatch.setitem(sys.modules, "graphviz", None)
    a = te.placeholder((4,), name="A")
    with pytest.raises(error.MissingDependency, match="graphviz"):
        tedd.viz_dataflow_graph(te.create_schedule(te.compute((4,), lambda i: a[i]).op), show_svg=True)
