"""Tests of `splice chat`."""
