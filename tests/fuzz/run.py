"""The fuzzers for as long as is asked: `python -m tests.fuzz.run --minutes 5` (or `make fuzz`).

In: minutes and a first seed. Out: rounds of every fuzz test, each with the next seed; exit code 1
with the failing example as soon as there is one, which then becomes an @example of its test.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import time
from collections.abc import Sequence

EXAMPLES = 300  # a test and round


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz.run", description=__doc__)
    parser.add_argument("--minutes", type=float, default=5.0)
    parser.add_argument("--seed", type=int, default=1)
    chosen = parser.parse_args(arguments)
    started = time.monotonic()
    rounds = 0
    while rounds == 0 or time.monotonic() - started < 60 * chosen.minutes:
        seed = chosen.seed + rounds
        done = subprocess.run(
            [
                *(sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider"),
                *("--numprocesses", "0", f"--hypothesis-seed={seed}", "tests/fuzz"),
            ],
            env={**os.environ, "FUZZ_EXAMPLES": str(EXAMPLES)},
        )
        rounds += 1
        if done.returncode:
            print(f"seed {seed} found something after {time.monotonic() - started:.0f} s")
            return 1
    minutes = (time.monotonic() - started) / 60
    print(f"{rounds} rounds of {EXAMPLES} examples a test in {minutes:.1f} minutes: clean")
    return 0


if __name__ == "__main__":
    sys.exit(main())
