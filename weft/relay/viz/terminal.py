"""Programs as trees of text, from what a function returns down to its inputs."""

from weft.relay.viz.interface import DefaultVizParser, Plotter, VizEdge, VizGraph, VizNode
from weft.runtime import write_file


class TermVizParser(DefaultVizParser):
    """Says of each expression what it is."""


class TermNode:
    """A node of a tree: what it is, and whether it was shown already."""

    def __init__(self, viz_node: VizNode) -> None:
        self.type = viz_node.type_name
        self.other_info = viz_node.detail.replace("\n", ", ")


class TermGraph(VizGraph):
    """A function as a tree; what is read several times is a tree of its own once, and only named again."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._nodes: dict[str, TermNode] = {}
        self._reads: dict[str, list[str]] = {}

    def node(self, viz_node: VizNode) -> None:
        """Add a node."""
        self._nodes[viz_node.identity] = TermNode(viz_node)

    def edge(self, viz_edge: VizEdge) -> None:
        """Add an edge."""
        self._reads.setdefault(viz_edge.end, []).append(viz_edge.start)

    def render(self) -> str:
        """Return the tree as text."""
        read = {start for starts in self._reads.values() for start in starts}
        lines: list[str] = []
        shown: set[str] = set()
        waiting = [(i, 0) for i in self._nodes if i not in read][::-1]
        while waiting:
            identity, depth = waiting.pop()
            node = self._nodes.get(identity)
            if node is None:
                continue
            again = identity in shown
            told = f" {node.other_info}" if node.other_info else ""
            lines.append("   " * depth + f"|--{'(again) ' if again else ''}{node.type}{told}")
            if not again:
                shown.add(identity)
                waiting += [(r, depth + 1) for r in self._reads.get(identity, ())][::-1]
        return "\n".join([f"@{self._name}", *lines])


class TermPlotter(Plotter):
    """Prints trees, or writes them to a file."""

    def __init__(self) -> None:
        self._name_to_graph: dict[str, TermGraph] = {}

    def create_graph(self, name: str) -> TermGraph:
        """Return an empty tree."""
        self._name_to_graph[name] = TermGraph(name)
        return self._name_to_graph[name]

    def render(self, filename: str | None) -> None:
        """Print all trees, or write them."""
        text = "\n".join(graph.render() for graph in self._name_to_graph.values())
        if filename is None:
            print(text)
        else:
            write_file(filename, text)
