"""The worker: wires all parts together and runs them."""
