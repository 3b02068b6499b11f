"""Programs that measure Weft beside its peers in the same run: latency, accuracy, conformance, compile time."""
