"""The client package: talk to a Splice server from Python. Imports no torch."""
