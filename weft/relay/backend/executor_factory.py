"""What ``relay.build`` returns, under TVM's names."""

from weft.relay.build_module import GraphExecutorFactoryModule

__all__ = ["GraphExecutorFactoryModule"]
