"""Random well-typed Relay programs, whole programs as text, and the executors that must agree on them."""
