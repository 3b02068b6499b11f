"""Ways into Relax: importers, a package for each format of other tools, and ``nn``, in which models are written.

``relay`` makes Relay programs of what the importers make.
"""

from weft import _aliases

_INSIDE = dict.fromkeys(("nn", "onnx", "relay", "stablehlo", "tflite", "torch", "weights"), "")
__getattr__ = _aliases.names_of("weft.frontend", {**_INSIDE, "detach_params": "weft.frontend.common"}, listed=True)
