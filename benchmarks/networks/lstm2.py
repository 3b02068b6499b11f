"""The LSTM of two layers."""

from dataclasses import replace

from benchmarks.networks import lstm
from benchmarks.networks.lstm import SIZES

__all__ = ["SIZES", "export", "inputs", "network"]

NETWORK = replace(lstm.NETWORK, make=lambda: lstm.Lstm(2))
network, export, inputs = NETWORK.network, NETWORK.export, NETWORK.inputs
