"""The engine: scheduler, block pool, prefix index and tensors. Everything here may be recomputed."""
