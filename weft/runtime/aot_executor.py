"""The executor of models compiled ahead of time: one native function, and storage for what goes in and out."""

from weft.error import InvalidArgument
from weft.runtime.graph_executor import GraphModule


class AotModule(GraphModule):
    """Runs the entry function of a model; it is a graph executor whose graph has one node.

    Parameters
    ----------
    module : Module
        What ``lib["default"](device)`` returned.
    """

    def get_input_name(self, index: int) -> str:
        """Return the name of an input by its place."""
        names = list(self.get_input_info()[0])
        if not 0 <= index < len(names):
            raise InvalidArgument(f"input {index} of {len(names)}", expected=f"0 to {len(names) - 1}")
        return names[index]
