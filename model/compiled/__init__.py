"""A step as one compiled function: exported, compiled in a process of its own, loaded."""
