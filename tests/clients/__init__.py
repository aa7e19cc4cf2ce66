"""Unmodified clients against a real server. They run in an environment of their own."""
