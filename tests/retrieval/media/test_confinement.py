"""A confined process reads the file it holds and writes its pipe; it can do nothing else."""

from __future__ import annotations

import ctypes
import os
import subprocess
import sys
from pathlib import Path

import pytest

from retrieval.media.video import read_frames
from tests.hostile.films import write_film

CONFINEMENT = Path(__file__).parents[3] / "retrieval" / "media" / "confinement.py"
PROGRAM = """
import ctypes, os, platform, runpy, socket, sys, threading
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
    "hold a process": lambda: os.pidfd_open(os.getppid()),
    "take more memory": lambda: bytearray(1 << 30),
    "start a thread": lambda: threading.Thread(target=int).start(),
}
def call(number, *arguments):
    library = ctypes.CDLL(None, use_errno=True)
    if library.syscall(number, *arguments) < 0:
        raise OSError(ctypes.get_errno(), "refused")
if platform.machine() == "x86_64":
    me = os.getpid()
    attempts["signal a thread"] = lambda: call(234, me, me, 0)
    attempts["signal a thread by its number"] = lambda: call(200, me, 0)
    attempts["queue a signal"] = lambda: call(129, me, 0, bytes(128))
    attempts["queue a signal for a thread"] = lambda: call(297, me, me, 0, bytes(128))
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


# A kernel without Landlock, as a container's filter makes one: its calls answer ENOSYS. Then the
# decoder is started by whatever is given.
WITHOUT_LANDLOCK = """
import ctypes, struct, sys
library = ctypes.CDLL(None)
steps = [(0x20, 0, 0, 0), (0x15, 0, 1, 444), (0x06, 0, 0, 0x00050026), (0x06, 0, 0, 0x7FFF0000)]
program = ctypes.create_string_buffer(b"".join(struct.pack("<HBBI", *each) for each in steps))
assert library.prctl(38, 1, 0, 0, 0) == 0
header = struct.pack("@HP", len(steps), ctypes.addressof(program))
assert library.prctl(22, 2, header, 0, 0) == 0
"""
DECODE = """
import logging, pathlib
from retrieval.errors import ServiceUnavailable
from retrieval.media.video import read_frames
logging.basicConfig()
path, must = sys.argv[1], sys.argv[2] == "yes"
try:
    for _ in range(2):
        print(sum(len(frames) for _, frames in read_frames(path, must_confine=must)))
except ServiceUnavailable as error:
    print(error.code)
"""


def without_landlock(program: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", WITHOUT_LANDLOCK + program, *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=120)


@pytest.mark.skipif(not has_landlock(), reason="there is no Landlock to take away")
def test_confinement_that_fails_is_told_and_refused_where_it_is_required(tmp_path: Path) -> None:
    film = str(write_film(tmp_path / "film.mp4", "libx264"))
    done = without_landlock(DECODE, film, "no")
    assert done.stdout.split() == ["3", "3"], done.stderr
    assert done.stderr.count("decoders are not confined by Landlock") == 1
    assert without_landlock(DECODE, film, "yes").stdout.split() == ["unconfined"]
    assert [len(each.frames) for each in read_frames(film, must_confine=True)] == [3]
    asked = without_landlock(
        "from retrieval.site import doctor\nprint(doctor._check_confinement())"
    )
    assert "not confined by Landlock" in asked.stdout, asked.stderr


@pytest.mark.skipif(not has_landlock(), reason="there is no Landlock to take away")
def test_without_landlock_the_other_nets_still_hold(tmp_path: Path) -> None:
    victim = tmp_path / "secret.txt"
    victim.write_text("movie")
    with victim.open("rb") as film:
        done = subprocess.run(
            [
                *(sys.executable, "-P", "-c", WITHOUT_LANDLOCK + PROGRAM),
                *(str(CONFINEMENT), str(victim), "threads"),
            ],
            stdin=film,
            capture_output=True,
            text=True,
            timeout=120,
        )
    # One descriptor is free for the demuxer, so a path can be opened; nothing can leave by it.
    assert set(done.stdout.splitlines()) <= {
        *("could read another file", "could write a file", "could list a folder"),
        *("could remove a file", "could make a folder", "could make a link"),
        *("could start a thread", "read movie"),
    }, done.stderr
    assert "read movie" in done.stdout
