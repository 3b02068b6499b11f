"""Forty and more architectures with random weights, small enough to compile in seconds: ``benchmarks.torch_zoo``."""
