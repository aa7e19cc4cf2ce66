"""Tests of `splice doctor`."""
