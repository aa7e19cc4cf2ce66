"""Tests; the tree below unit/ mirrors the source."""
