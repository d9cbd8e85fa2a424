"""A confined process reads the file it holds and writes its pipe; it can do nothing else."""

from __future__ import annotations

import ctypes
import os
import subprocess
import sys
from pathlib import Path

import pytest

CONFINEMENT = Path(__file__).parents[3] / "retrieval" / "media" / "confinement.py"
PROGRAM = """
import os, runpy, socket, sys, threading
confine = runpy.run_path(sys.argv[1])["confine_process"]
victim = sys.argv[2]
confine(1 << 30, 10, has_threads=sys.argv[3] == "threads")
attempts = {
    "read another file": lambda: os.open(victim, os.O_RDONLY),
    "write a file": lambda: os.open(victim + ".new", os.O_WRONLY | os.O_CREAT),
    "list a folder": lambda: os.listdir("/"),
    "remove a file": lambda: os.unlink(victim),
    "make a folder": lambda: os.mkdir(victim + ".d"),
    "make a link": lambda: os.symlink("a", victim + ".l"),
    "open an internet socket": lambda: socket.socket(socket.AF_INET, socket.SOCK_STREAM),
    "send a datagram": lambda: socket.socket(socket.AF_INET, socket.SOCK_DGRAM),
    "open a local socket": lambda: socket.socket(socket.AF_UNIX),
    "open a pipe": os.pipe,
    "fork": os.fork,
    "run a program": lambda: os.execv("/bin/true", ["true"]),
    "signal its parent": lambda: os.kill(os.getppid(), 0),
    "take more memory": lambda: bytearray(1 << 30),
    "start a thread": lambda: threading.Thread(target=int).start(),
}
for name, attempt in attempts.items():
    try:
        attempt()
        print("could", name)
    except (OSError, MemoryError, RuntimeError):
        pass
print("read", os.read(0, 5).decode())
"""


def has_landlock() -> bool:
    return sys.platform == "linux" and ctypes.CDLL(None).syscall(444, None, 0, 1) > 0


@pytest.mark.skipif(not has_landlock(), reason="this kernel cannot confine a process by path")
@pytest.mark.parametrize("mode", ["alone", "threads"])
def test_a_confined_process_can_only_read_what_it_holds(mode: str, tmp_path: Path) -> None:
    victim = tmp_path / "secret.txt"
    victim.write_text("movie")
    with victim.open("rb") as film:
        done = subprocess.run(
            [sys.executable, "-P", "-c", PROGRAM, str(CONFINEMENT), str(victim), mode],
            stdin=film,
            capture_output=True,
            text=True,
            timeout=120,
        )
    expected = ["could start a thread"] if mode == "threads" or os.geteuid() == 0 else []
    assert done.stdout.splitlines() == [*expected, "read movie"], done.stderr
    assert sorted(each.name for each in tmp_path.iterdir()) == ["secret.txt"]
