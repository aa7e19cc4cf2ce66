"""Tests of one module each, fakes below it."""
