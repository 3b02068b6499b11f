"""The model zoo: networks with random weights, each written for PyTorch and exported to ONNX with dynamic axes.

Every module has ``export(path)``, which writes the ONNX file, and ``inputs(rng, size)``, which makes the feeds of one
of the five sizes 0 to 4. :mod:`benchmarks.zoo` exports on demand.
"""
