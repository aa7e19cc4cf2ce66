"""Tests of several modules together."""
