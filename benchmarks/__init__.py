"""What Splice costs and saves, measured. `python -m benchmarks --help` lists the programs."""
