"""Which slices make a pool, whether it is complete and valid, and which devices a node can use."""
