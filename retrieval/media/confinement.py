"""What the decoder child may still do once it has what it needs: compute, read, write its pipe.

In: limits of memory and time. Out: a process that opens no file, no socket and no program, and the
names of the nets that this system could not spread. Imports nothing of the project; run as a
program it confines itself and prints those names.

Three nets, each for what slips through the one before. Resource limits hold on every POSIX system:
no room for another file descriptor. Landlock (Linux 5.13) refuses paths, TCP and signals to others;
a system-call filter refuses sockets and new processes. Where the kernel lacks one, the others hold.
"""

from __future__ import annotations

import ctypes
import os
import platform
import struct
import sys

PICTURES_KEPT = 17  # HEVC and H.264 may lean on sixteen pictures, and make one
ROOM_FOR_PICTURES = 3 << 30  # those of 8K in ten bits are 1.7 GB

_SET_NO_NEW_PRIVILEGES = 38
_SET_SYSTEM_CALL_FILTER = 22
_LANDLOCK_CREATE, _LANDLOCK_RESTRICT = 444, 446  # the same number on every architecture
_X32_CALLS = 0x40000000

# Numbers on (x86_64, aarch64); None where that machine has no such call.
_FORBIDDEN_CALLS = {
    "socket": (41, 198),
    "socketpair": (53, 199),
    "connect": (42, 203),
    "bind": (49, 200),
    "listen": (50, 201),
    "sendto": (44, 206),
    "sendmsg": (46, 211),
    "execve": (59, 221),
    "execveat": (322, 281),
    "fork": (57, None),
    "vfork": (58, None),
    "ptrace": (101, 117),
    "process_vm_readv": (310, 270),
    "process_vm_writev": (311, 271),
    "kill": (62, 129),
    "tkill": (200, 130),
    "tgkill": (234, 131),
    "rt_sigqueueinfo": (129, 138),
    "rt_tgsigqueueinfo": (297, 240),
    "pidfd_open": (434, 434),
    "pidfd_send_signal": (424, 424),
    "pidfd_getfd": (438, 438),
    "process_madvise": (440, 440),
    "process_mrelease": (448, 448),
    "open_by_handle_at": (304, 265),
    "mount": (165, 40),
    "unshare": (272, 97),
    "setns": (308, 268),
    "bpf": (321, 280),
    "perf_event_open": (298, 241),
    "userfaultfd": (323, 282),
    "io_uring_setup": (425, 425),
    "keyctl": (250, 219),
}
_CLONE, _CLONE3 = (56, 220), 435
_IS_THREAD = 0x10000  # the flag of clone that tells a new thread from a new process
_MACHINES = {"x86_64": (0, 0xC000003E), "aarch64": (1, 0xC00000B7)}
_ALLOW, _REFUSE, _UNKNOWN = 0x7FFF0000, 0x00050001, 0x00050026  # run; EPERM; ENOSYS


PATHS, CALLS = "Landlock", "the system-call filter"


def confine_process(memory_bytes: int, cpu_seconds: int, *, has_threads: bool) -> list[str]:
    """Give up, for good, whatever decoding an open file does not need; returns the nets that are
    missing.

    One file descriptor may still be opened: the demuxer takes a second handle of its file.
    """
    missing = limit_resources(memory_bytes, cpu_seconds)
    free = os.dup(0)
    os.close(free)
    missing += _limit("RLIMIT_NOFILE", free + 1)
    if not has_threads:
        missing += _limit("RLIMIT_NPROC", 0)  # threads count, too; root is not counted
    if sys.platform != "linux":
        return [*missing, PATHS, CALLS]
    library = ctypes.CDLL(None, use_errno=True)
    # Without it, the kernel takes neither of the two from a normal user: their answers tell.
    library.prctl(_SET_NO_NEW_PRIVILEGES, 1, 0, 0, 0)
    nets = ((PATHS, _forbid_paths), (CALLS, _forbid_calls))
    return missing + [name for name, spread in nets if not spread(library)]


def limit_resources(memory_bytes: int | None, cpu_seconds: int) -> list[str]:
    """Memory and time, no file written, no core dump; returns the limits that are missing."""
    missing = []
    if memory_bytes is not None:
        missing = _limit("RLIMIT_AS", memory_bytes, grace=ROOM_FOR_PICTURES)
    # The first limit is told by a signal of its own, which says why; the second is no question.
    missing += _limit("RLIMIT_CPU", cpu_seconds, grace=5)
    return missing + _limit("RLIMIT_FSIZE", 0) + _limit("RLIMIT_CORE", 0)


def make_room(picture_bytes: int) -> None:
    """More memory for a film whose pictures are so large, as far as `limit_resources` left open."""
    try:
        import resource
    except ImportError:
        return
    most, last = resource.getrlimit(resource.RLIMIT_AS)
    if most != resource.RLIM_INFINITY and last != resource.RLIM_INFINITY:
        most = min(most + PICTURES_KEPT * picture_bytes, last)
        resource.setrlimit(resource.RLIMIT_AS, (most, last))


def _limit(name: str, most: int, grace: int = 0) -> list[str]:
    """Set it; returns its name where that fails."""
    try:
        import resource
    except ImportError:  # not a POSIX system: the time limit of the parent remains
        return [name]
    kind = getattr(resource, name, None)
    if kind is None:
        return [name]
    hard = resource.getrlimit(kind)[1]
    last = most + grace
    if hard != resource.RLIM_INFINITY:
        most, last = min(most, hard), min(last, hard)
    try:
        resource.setrlimit(kind, (most, last))
    except (ValueError, OSError):  # macOS refuses an address-space limit
        return [name]
    return []


def _forbid_paths(library: ctypes.CDLL) -> bool:
    """A Landlock ruleset that handles every right and grants none; whether it holds."""
    version = library.syscall(_LANDLOCK_CREATE, None, 0, 1)
    if version < 1:  # not in this kernel, or switched off
        return False
    rights = {1: 13, 2: 14, 3: 15, 4: 15}.get(version, 16)  # each version knows more of them
    ruleset = struct.pack("<Q", (1 << rights) - 1)
    if version >= 4:
        ruleset += struct.pack("<Q", 0b11)  # TCP: bind, connect
    if version >= 6:
        ruleset += struct.pack("<Q", 0b11)  # abstract sockets and signals beyond this process
    handle = library.syscall(_LANDLOCK_CREATE, ruleset, len(ruleset), 0)
    if handle < 0:
        return False
    holds = library.syscall(_LANDLOCK_RESTRICT, handle, 0) == 0
    os.close(handle)
    return bool(holds)


def _forbid_calls(library: ctypes.CDLL) -> bool:
    """A filter under which those calls answer "not permitted", as do those of other machines;
    whether it holds.

    A filter cannot see what is asked of clone3; told that there is none, the C library asks clone.
    """
    if platform.machine() not in _MACHINES:
        return False
    column, architecture = _MACHINES[platform.machine()]
    forbidden = [n for each in _FORBIDDEN_CALLS.values() if (n := each[column]) is not None]
    load, equal, at_least, has_bits, answer = 0x20, 0x15, 0x35, 0x45, 0x06
    refusal = len(forbidden) + 9  # where in the program it stands
    steps = [
        (load, 0, 0, 4),
        (equal, 0, refusal - 2, architecture),
        (load, 0, 0, 0),
        (at_least, refusal - 4, 0, _X32_CALLS),
        *((equal, refusal - place - 1, 0, n) for place, n in enumerate(forbidden, start=4)),
        (equal, 5, 0, _CLONE3),
        (equal, 0, 2, _CLONE[column]),
        (load, 0, 0, 16),  # the first argument
        (has_bits, 0, 1, _IS_THREAD),
        (answer, 0, 0, _ALLOW),
        (answer, 0, 0, _REFUSE),
        (answer, 0, 0, _UNKNOWN),
    ]
    assert steps[refusal] == (answer, 0, 0, _REFUSE)
    program = ctypes.create_string_buffer(b"".join(struct.pack("<HBBI", *each) for each in steps))
    # struct sock_fprog: a count and a pointer, aligned.
    header = struct.pack("@HP", len(steps), ctypes.addressof(program))
    return bool(library.prctl(_SET_SYSTEM_CALL_FILTER, 2, header, 0, 0) == 0)


if __name__ == "__main__":
    print(", ".join(confine_process(1 << 30, 10, has_threads=False)))
