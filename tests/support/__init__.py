"""Fakes and fixtures that several tests share."""
