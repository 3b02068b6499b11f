"""Pictures of programs: text of a tree, and graphs that parsers and plotters of a user make."""

from weft.contrib import relay_viz

import weft
from weft import relay


def program():
    x, w = relay.var("x", shape=(2, 3)), relay.var("w", shape=(4, 3))
    y = relay.nn.relu(relay.nn.dense(x, w))
    return weft.IRModule.from_expr(relay.Function([x, w], relay.Tuple([y, relay.exp(y)])))


def test_the_tree_in_a_terminal(capsys):
    relay_viz.RelayVisualizer(program()).render()
    text = capsys.readouterr().out
    assert text.startswith("@main\n|--Function")
    assert text.count("Call nn.dense") == 1
    assert "(again) Call nn.relu" in text
    assert "name_hint: w, type: Tensor[(4, 3), float32]" in text


def test_a_users_parser_and_plotter():
    class Graph(relay_viz.VizGraph):
        def __init__(self):
            self.nodes, self.edges = {}, []

        def node(self, viz_node):
            self.nodes[viz_node.identity] = f"{viz_node.type_name}|{viz_node.detail}"

        def edge(self, viz_edge):
            self.edges.append((viz_edge.start, viz_edge.end))

    class Plotter(relay_viz.Plotter):
        graphs, rendered = {}, None

        def create_graph(self, name):
            return self.graphs.setdefault(name, Graph())

        def render(self, filename):
            self.rendered = filename

    plotter = Plotter()
    relay_viz.RelayVisualizer(program(), plotter=plotter, parser=relay_viz.TermVizParser()).render("out")
    (graph,) = plotter.graphs.values()
    assert plotter.rendered == "out"
    kinds = sorted(text.partition("|")[0] for text in graph.nodes.values())
    assert kinds == ["Call exp", "Call nn.dense", "Call nn.relu", "Function", "Tuple", "Var(Input)", "Var(Input)"]
    assert all(start in graph.nodes and end in graph.nodes for start, end in graph.edges)
    assert len(graph.edges) == 9  # operands, and what the function takes and returns
