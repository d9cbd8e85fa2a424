"""Hostile files end in a reason within their limits; what is readable in truth is read.

A sample of the corpus; `python -m tests.hostile.run` judges all of it.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from pathlib import Path

import pytest

from retrieval.errors import BadVideo
from retrieval.media import child
from retrieval.media.video import read_frames
from tests.hostile.corpus import READY, HostileFile, build_corpus
from tests.hostile.run import Listener, judge, judge_all, listening

# Every how many files of a family one is judged here.
STRIDES = {
    "truncated": 12,
    "flipped": 7,
    "spliced": 9,
    "misnamed": 4,
    "foreign": 5,
    "playlists": 3,
    "names": 2,
    "clocks": 5,
    "headers": 3,
    "file-system": 1,
}


class Corpus:
    def __init__(self, root: Path, listener: Listener) -> None:
        self.root = root
        self.listener = listener
        self.files = build_corpus(root, seed=0, port=listener.port)

    def family(self, name: str) -> list[HostileFile]:
        return [file for file in self.files if file.family == name]

    def find(self, name: str) -> HostileFile:
        [found] = [file for file in self.files if file.path.name == name]
        return found


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Corpus]:
    with listening() as listener:
        yield Corpus(tmp_path_factory.mktemp("hostile"), listener)


def test_the_corpus_is_large_and_its_families_are_all_judged(corpus: Corpus) -> None:
    assert len(corpus.files) >= 200
    assert {file.family for file in corpus.files} == set(STRIDES)
    assert len({file.path for file in corpus.files}) == len(corpus.files)


@pytest.mark.parametrize("family", STRIDES)
def test_each_file_has_an_outcome_that_is_right_for_it(family: str, corpus: Corpus) -> None:
    files = corpus.family(family)[:: STRIDES[family]]
    verdicts = judge_all(files, corpus.root)
    assert len(verdicts) == len(files)
    assert [(each.file.path, each.outcome) for each in verdicts if not each.is_right] == []
    assert all(each.message for each in verdicts if each.outcome != READY)
    assert corpus.listener.count_visitors() == 0, "an address in a playlist was followed"


def test_a_still_of_ten_hours_is_ten_hours_of_frames(corpus: Corpus) -> None:
    verdict = judge(corpus.find("ten-hour-still.mkv"), corpus.root)
    assert (verdict.outcome, verdict.frames) == (READY, 36_000)


def test_a_million_frames_a_second_are_one_second(corpus: Corpus) -> None:
    verdict = judge(corpus.find("million-fps.mp4"), corpus.root)
    assert (verdict.outcome, verdict.frames) == (READY, 1)


ANSWERS = {
    "a message of four gigabytes": b"I" + struct.pack("<I", 0xFFFFFFFF),
    "an answer that is no JSON": b"I" + struct.pack("<I", 3) + b"\xff{}",
    "an answer with other fields": b"I" + struct.pack("<I", 9) + b'{"a": [1]}'[:9],
    "a list for an answer": b"I" + struct.pack("<I", 2) + b"[]",
    "an error without a code": b"E" + struct.pack("<I", 2) + b"{}",
    "an error nobody knows": b"E" + struct.pack("<I", 29) + b'{"code": "x", "reason": "boo"}'[:29],
    "half a message": b"I" + struct.pack("<I", 900) + b"{",
    "nothing": b"",
}
INFO = (
    b'{"duration": 1, "width": 2, "height": 2, "fps": 1, "codec": "x", "container": "y",'
    b' "has_audio": false}'
)
FRAMES = {
    "a frame smaller than it says": b"F" + struct.pack("<dIIH", 0.5, 60_000, 60_000, 0) + bytes(12),
    "a frame without a head": b"F\0",
    "the repetition of nothing": b"R",
    "an end that is no JSON": b"D\xff",
    "an end without its second": b"D{}",
    "an end that is a list": b"D[]",
    "an end of no number": b'D{"seconds": null}',
    "an end beyond all numbers": b'D{"seconds": 1' + b"0" * 400 + b"}",
}


def play(answer: bytes, folder: Path, monkeypatch: pytest.MonkeyPatch, then: str = "") -> str:
    """The reason a reader gives when its decoder says `answer`."""
    puppet, film = folder / "puppet.py", folder / "film.mp4"
    puppet.write_text(f"import os, time\nos.write(1, {answer!r})\n{then}")
    film.write_bytes(b"anything")
    monkeypatch.setattr(child, "DECODER", puppet)
    with pytest.raises(BadVideo) as caught:
        list(read_frames(film, timeout=2.0))
    return caught.value.code


@pytest.mark.parametrize("name", ANSWERS)
def test_a_decoder_that_was_taken_over_costs_one_video(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert play(ANSWERS[name], tmp_path, monkeypatch) == "decoder_died"


@pytest.mark.parametrize("name", FRAMES)
def test_a_frame_or_an_end_that_is_none_costs_one_video(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kind, body = FRAMES[name][:1], FRAMES[name][1:]
    message = kind + struct.pack("<I", len(body)) + body
    answer = b"I" + struct.pack("<I", len(INFO)) + INFO + message
    assert play(answer, tmp_path, monkeypatch) == "decoder_died"


def test_a_decoder_that_closes_its_pipe_and_stays_is_ended(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    then = "os.close(1); time.sleep(600)"
    assert play(b"", tmp_path, monkeypatch, then) == "decoder_died"
