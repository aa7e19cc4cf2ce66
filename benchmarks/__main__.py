"""`python -m benchmarks PROGRAM`: measures, and writes what it measured into the documents."""

import importlib
import sys

PROGRAMS = {
    "architectures": "hold every architecture against plain transformers, and write their table",
    "divergence": "how far `fast` mode's logits are from float32, with the embedded model",
    "gpu": "check turns, forks, rewinds and eviction on a CUDA card, and time a new turn",
    "micro": "time what bookkeeping costs behind histories of up to 32,000 tokens",
    "multiturn": "drive running servers, Splice and peers, with the same chats",
    "packing": "many at once in one process: what a bound on a step's time does for whom",
    "reuse": "time a new turn behind a long history with the embedded model",
    "tiers": "time restoring, and conversations that return, with and without tiers and to peers",
}


def main() -> int:
    """Run the program named first; the rest of the command line is its own."""
    if len(sys.argv) < 2 or sys.argv[1] not in PROGRAMS:
        print("usage: python -m benchmarks PROGRAM [options]\n")
        print("\n".join(f"  {name:13} {text}" for name, text in PROGRAMS.items()))
        return 2
    # Only the program asked for is imported: `gpu` must run where the others' needs are missing.
    program = importlib.import_module(f"benchmarks.{sys.argv[1]}")
    exit_code: int = program.main(sys.argv[2:])
    return exit_code


if __name__ == "__main__":
    sys.exit(main())
