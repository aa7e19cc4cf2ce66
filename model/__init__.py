"""The engine: scheduler, block pool, prefix index and tensors. All of it can be recomputed."""
