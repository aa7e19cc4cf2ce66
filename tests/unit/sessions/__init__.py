"""Tests of the sessions layer."""
