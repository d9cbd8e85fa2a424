"""Video files become frames, or an error with a stable code; nothing else."""

from __future__ import annotations

import gzip
import json
import os
import socket
import struct
from fractions import Fraction
from pathlib import Path
from typing import Any

import av
import numpy as np
import pytest

from retrieval.errors import BadVideo
from retrieval.media import child, video
from retrieval.media.completeness import missing_bytes
from retrieval.media.video import FrameReader, hash_file, probe_video, read_frames

CODECS = {
    "mp4": "libx264",
    "mkv": "libx264",
    "mov": "libx264",
    "webm": "libvpx",
    "avi": "mpeg4",
    "mpg": "mpeg2video",
}
FILM_8K = Path(__file__).with_name("8k-10-bit.mp4.gz")
MPEG = ("mpeg1video", "mpeg2video")  # know a few frame rates only


def paint(number: int, size: tuple[int, int] = (96, 64)) -> np.ndarray:
    """A frame that carries its own number: grey level `number` on the left, a ramp on the right."""
    frame = np.zeros((size[1], size[0], 3), np.uint8)
    frame[:, : size[0] // 2] = number
    frame[:, size[0] // 2 :] = np.linspace(0, 255, size[1], dtype=np.uint8)[:, None, None]
    return frame


def write(
    path: Path,
    seconds: float = 4.0,
    fps: int = 10,
    size: tuple[int, int] = (96, 64),
    codec: str | None = None,
    stamps: list[float] | None = None,
    gop: int = 12,
    rotation: int = 0,
    options: dict[str, str] | None = None,
) -> Path:
    """A video whose frame at second t has grey level 20 + 40 * floor(t)."""
    codec = codec or CODECS[path.suffix[1:]]
    stamps = stamps if stamps is not None else [n / fps for n in range(round(seconds * fps))]
    with av.open(str(path), "w") as container:
        stream: Any = container.add_stream(codec, rate=25 if codec in MPEG else fps)
        stream.width, stream.height = size
        stream.pix_fmt = "yuvj420p" if codec == "mjpeg" else "yuv420p"
        stream.gop_size = gop
        stream.bit_rate = 2_000_000
        stream.options = options or {}
        if codec not in MPEG:
            stream.codec_context.time_base = Fraction(1, 1000)
        if rotation:
            stream.set_display_rotation(rotation)
        for stamp in stamps:
            frame = av.VideoFrame.from_ndarray(paint(level(stamp), size), format="rgb24")
            if codec in MPEG:
                frame.pts, frame.time_base = round(stamp * 25), Fraction(1, 25)
            else:
                frame.pts, frame.time_base = round(stamp * 1000), Fraction(1, 1000)
            container.mux(stream.encode(frame))
        container.mux(stream.encode(None))
    return path


def write_audio(path: Path) -> Path:
    with av.open(str(path), "w") as container:
        stream: Any = container.add_stream("aac", rate=16000)
        tone = np.sin(np.arange(16000) / 10).astype(np.float32)[None]
        frame = av.AudioFrame.from_ndarray(tone, format="fltp", layout="mono")
        frame.sample_rate = 16000
        container.mux(stream.encode(frame))
        container.mux(stream.encode(None))
    return path


def level(second: float) -> int:
    return 20 + 40 * int(second % 5)


def levels(path: Path, **options: Any) -> list[int]:
    """The grey level of every sampled frame's left half."""
    return [
        round(float(frame[:, : frame.shape[1] // 2 - 8].mean()))
        for batch in read_frames(path, **options)
        for frame in batch.frames
    ]


def assert_levels(found: list[int], expected: list[int]) -> None:
    assert len(found) == len(expected), found
    assert np.abs(np.array(found) - np.array(expected)).max() <= 8, (found, expected)


def code_of(path: Path, **options: Any) -> str:
    with pytest.raises(BadVideo) as caught:
        list(read_frames(path, **options))
    assert str(path) in str(caught.value), "the sentence names the file"
    return caught.value.code


@pytest.mark.parametrize("suffix", CODECS)
def test_every_container_gives_one_frame_a_second(suffix: str, tmp_path: Path) -> None:
    fps = 25 if suffix == "mpg" else 10
    path = write(tmp_path / f"film.{suffix}", seconds=4, fps=fps)
    assert_levels(levels(path), [level(second) for second in range(4)])
    reader = read_frames(path)
    assert sum(len(batch.frames) for batch in reader) == 4
    assert reader.seconds == pytest.approx(4, abs=0.1)


def test_ogv_decodes(tmp_path: Path) -> None:
    # The wheel has no Theora encoder; the container is what this is about.
    path = tmp_path / "film.ogv"
    write(tmp_path / "film.webm", seconds=3)
    with av.open(str(tmp_path / "film.webm")) as source, av.open(str(path), "w", "ogg") as target:
        stream = target.add_stream_from_template(source.streams.video[0])
        for packet in source.demux(video=0):
            if packet.size:
                packet.stream = stream
                target.mux(packet)
    assert_levels(levels(path), [level(second) for second in range(3)])


def test_seconds_are_the_middles_of_the_spans_they_stand_for(tmp_path: Path) -> None:
    path = write(tmp_path / "film.mp4", seconds=3)
    (batch,) = read_frames(path)
    assert batch.seconds.tolist() == [0.5, 1.5, 2.5]
    assert batch.frames.shape == (3, 64, 96, 3)


def test_another_rate_samples_the_middles_of_its_own_intervals(tmp_path: Path) -> None:
    path = write(tmp_path / "film.mp4", seconds=3)
    (batch,) = read_frames(path, fps=2.0)
    assert batch.seconds.tolist() == [0.25, 0.75, 1.25, 1.75, 2.25, 2.75]


def test_variable_frame_rate_follows_the_clock_and_not_the_count(tmp_path: Path) -> None:
    stamps = [0, 0.1, 0.2, 0.3, 1.0, 1.05, 1.1, 1.15, 2.0, 4.0, 4.9]
    path = write(tmp_path / "film.mkv", stamps=stamps, codec="libx264")
    assert_levels(levels(path)[:4], [level(0), level(1), level(2), level(2)])


def test_a_clock_that_starts_late_is_counted_from_its_start(tmp_path: Path) -> None:
    stamps = [100 + n / 10 for n in range(40)]
    path = write(tmp_path / "film.mkv", stamps=stamps, codec="libx264")
    assert_levels(levels(path), [level(second) for second in range(4)])


@pytest.mark.parametrize("gop", [1, 5, 12, 50, 600])
def test_films_joined_end_to_end_are_seen_whole(gop: int, tmp_path: Path) -> None:
    """As `cat a.ts b.ts` makes them: the second film's clock starts again."""
    first = write(tmp_path / "a.ts", seconds=20, fps=25, codec="libx264", gop=gop)
    second = write(tmp_path / "b.ts", seconds=15, fps=25, codec="libx264", gop=gop)
    path = tmp_path / "joined.ts"
    path.write_bytes(first.read_bytes() + second.read_bytes() + first.read_bytes())
    seconds = [*range(20), *range(15), *range(20)]
    assert_levels(levels(path), [level(second) for second in seconds])


@pytest.mark.parametrize("codec", ["mpeg1video", "mpeg2video"])
def test_joined_program_streams_are_seen_whole(codec: str, tmp_path: Path) -> None:
    first = write(tmp_path / "a.mpg", seconds=12, fps=25, codec=codec, gop=5)
    path = tmp_path / "joined.mpg"
    path.write_bytes(first.read_bytes() * 2)
    assert_levels(levels(path), [level(second) for second in [*range(12), *range(12)]])


def test_frames_cut_away_by_an_edit_list_are_not_seen(tmp_path: Path) -> None:
    path = write(tmp_path / "film.mp4", seconds=5, gop=5, options={"bf": "0"})
    cut = tmp_path / "cut.mp4"
    cut.write_bytes(with_edit_list(path.read_bytes(), start=2.0, length=3.0))
    assert_levels(levels(cut), [level(second) for second in (2, 3, 4)])


def with_edit_list(content: bytes, start: float, length: float) -> bytes:
    """The same MP4 whose one edit shows `length` seconds from `start`."""
    place = content.index(b"elst")
    version, count = struct.unpack(">II", content[place + 4 : place + 12])
    assert (version, count) == (0, 1), "an edit list of version 0 with one entry"
    header = content.index(b"mvhd") + 4
    film_scale = struct.unpack(">I", content[header + 12 : header + 16])[0]
    track_header = content.index(b"mdhd") + 4
    track_scale = struct.unpack(">I", content[track_header + 12 : track_header + 16])[0]
    entry = struct.pack(">II", int(length * film_scale), int(start * track_scale))
    return content[: place + 12] + entry + content[place + 20 :]


def test_rotated_pictures_are_turned_upright(tmp_path: Path) -> None:
    plain = write(tmp_path / "plain.mp4", seconds=1)
    turned = write(tmp_path / "turned.mp4", seconds=1, rotation=90)
    (upright,) = read_frames(plain)
    (rotated,) = read_frames(turned)
    expected = np.rot90(upright.frames[0]).astype(int)
    assert rotated.frames.shape == (1, 96, 64, 3)
    assert np.abs(rotated.frames[0].astype(int) - expected).mean() < 4
    (scaled,) = read_frames(turned, size=(40, 60))
    assert scaled.frames.shape == (1, 60, 40, 3)


def test_odd_sizes_come_out_whole(tmp_path: Path) -> None:
    path = write(tmp_path / "film.avi", seconds=2, size=(101, 67), codec="mjpeg")
    (batch,) = read_frames(path)
    assert batch.frames.shape == (2, 67, 101, 3)
    assert np.abs(batch.frames[1].astype(int) - paint(level(1), (101, 67))).mean() < 6


def test_a_single_frame_is_a_video_of_one_frame(tmp_path: Path) -> None:
    path = write(tmp_path / "film.mp4", stamps=[0.0])
    assert_levels(levels(path), [level(0)])


@pytest.mark.parametrize("gop", [1, 3, 25, 600])
def test_skipping_between_keyframes_never_changes_a_frame(gop: int, tmp_path: Path) -> None:
    path = write(tmp_path / "film.mp4", seconds=9.7, fps=25, gop=gop)
    with av.open(str(path)) as container:
        every = [(frame.time, frame.to_ndarray(format="rgb24")) for frame in container.decode()]
    times = np.array([time for time, _ in every])
    for batch in read_frames(path):
        for second, frame in zip(batch.seconds, batch.frames, strict=True):
            expected = every[int(np.searchsorted(times, second + 1e-6)) - 1][1]
            assert np.abs(frame.astype(int) - expected).mean() < 2, second


@pytest.mark.parametrize("size", [(96, 64), (1280, 720)])
def test_a_scaled_frame_is_at_most_a_tenth_of_a_second_early(
    size: tuple[int, int], tmp_path: Path
) -> None:
    path, rate = tmp_path / "film.mp4", 25
    with av.open(str(path), "w") as container:
        stream: Any = container.add_stream("libx264", rate=rate)
        stream.width, stream.height = size
        stream.pix_fmt = "yuv420p"
        stream.options = {"bf": "3", "b-pyramid": "normal", "qp": "12"}
        for number in range(4 * rate):
            grey = 20 + 2 * number  # two levels a frame
            picture = np.full((size[1], size[0], 3), grey, np.uint8)
            container.mux(stream.encode(av.VideoFrame.from_ndarray(picture, format="rgb24")))
        container.mux(stream.encode(None))
    seconds, greys = [], []
    for batch in read_frames(path, size=(32, 32)):
        seconds += list(batch.seconds)
        greys += [float(frame.mean()) for frame in batch.frames]
    assert seconds == [0.5, 1.5, 2.5, 3.5]
    shown = (np.array(greys) - 20) / 2 / rate
    early = np.array(seconds) - shown
    assert early.max() < 0.16, early  # a frame lasts .04, and two levels are a coder's error
    assert early.min() > -0.08, early


def test_batches_hold_no_more_frames_than_asked(tmp_path: Path) -> None:
    path = write(tmp_path / "film.mp4", seconds=5)
    assert [len(batch.frames) for batch in read_frames(path, batch_frames=2)] == [2, 2, 1]
    assert len(levels(path, max_frames=3)) == 3


def test_a_reader_left_early_ends_its_child(tmp_path: Path) -> None:
    path = write(tmp_path / "film.mp4", seconds=5)
    with read_frames(path, batch_frames=1) as reader:
        next(iter(reader))
        process = reader._child._process
    assert process.poll() is not None


def test_the_probe_tells_what_the_container_says(tmp_path: Path) -> None:
    info = probe_video(write(tmp_path / "film.mp4", seconds=4))
    assert (info.width, info.height, info.codec) == (96, 64, "h264")
    assert not info.has_audio


def test_names_with_any_character_are_read(tmp_path: Path) -> None:
    path = write(tmp_path / "film.mp4", seconds=1)
    for name in ("http:a b.mp4", "ключ – 'x\".mp4", "%d.mp4", "-i.mp4", "concat:film.mp4"):
        odd = path.rename(tmp_path / name)
        assert len(levels(odd)) == 1, name
        path = odd


def test_a_missing_file_says_so(tmp_path: Path) -> None:
    assert code_of(tmp_path / "film.mp4") == "missing"


def test_a_directory_says_so(tmp_path: Path) -> None:
    assert code_of(tmp_path) == "is_directory"


def test_an_empty_file_says_so(tmp_path: Path) -> None:
    path = tmp_path / "film.mp4"
    path.touch()
    assert code_of(path) == "empty"


def test_what_is_no_regular_file_is_unreadable(tmp_path: Path, monkeypatch: Any) -> None:
    monkeypatch.chdir(tmp_path)  # socket paths must be short
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind("film.mp4")
        assert code_of(Path("film.mp4")) == "unreadable"


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
def test_a_file_without_permission_is_unreadable(tmp_path: Path) -> None:
    path = write(tmp_path / "film.mp4", seconds=1)
    path.chmod(0)
    assert code_of(path) == "unreadable"


def test_text_named_mp4_is_not_a_video(tmp_path: Path) -> None:
    path = tmp_path / "film.mp4"
    path.write_text("this is not a film\n" * 100)
    assert code_of(path) == "not_video"


def test_a_picture_is_not_a_video(tmp_path: Path) -> None:
    from PIL import Image

    path = tmp_path / "film.mp4"
    Image.fromarray(paint(9)).save(path, "PNG")
    assert code_of(path) == "not_video"


def test_a_playlist_cannot_open_other_files(tmp_path: Path) -> None:
    film = write(tmp_path / "film.mp4", seconds=1)
    path = tmp_path / "list.mp4"
    path.write_text(f"ffconcat version 1.0\nfile '{film}'\n")
    assert code_of(path) == "not_video"
    path.write_text(f"#EXTM3U\n#EXT-X-TARGETDURATION:1\n#EXTINF:1,\n{film}\n#EXT-X-ENDLIST\n")
    assert code_of(path) == "not_video"


def test_an_mp4_cut_before_its_index_is_truncated(tmp_path: Path) -> None:
    path = write(tmp_path / "film.mp4", seconds=4)
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])
    assert code_of(path) == "truncated"


@pytest.mark.parametrize("suffix", ["mp4", "mkv", "avi"])
def test_a_film_that_lost_its_second_half_is_truncated(suffix: str, tmp_path: Path) -> None:
    path = write(tmp_path / f"film.{suffix}", seconds=20)
    if suffix == "mp4":
        path = faststart(path)
    whole = path.read_bytes()
    with path.open("rb") as file:
        assert missing_bytes(file.fileno()) == 0
    path.write_bytes(whole[: len(whole) // 2])
    assert code_of(path) == "truncated"


def faststart(path: Path) -> Path:
    """The same film with its index in front."""
    moved = path.with_name(f"front-{path.name}")
    options = {"movflags": "faststart"}
    with av.open(str(path)) as source, av.open(str(moved), "w", options=options) as target:
        stream = target.add_stream_from_template(source.streams.video[0])
        for packet in source.demux(video=0):
            if packet.size:
                packet.stream = stream
                target.mux(packet)
    return moved


def test_audio_alone_has_no_video_stream(tmp_path: Path) -> None:
    assert code_of(write_audio(tmp_path / "song.mp4")) == "no_video_stream"


def spoil_packets(path: Path) -> Path:
    """The same film with noise in every packet."""
    spoilt = path.with_name(f"spoilt-{path.name}")
    rng = np.random.default_rng(0)
    with av.open(str(path)) as source, av.open(str(spoilt), "w") as target:
        stream = target.add_stream_from_template(source.streams.video[0])
        for packet in source.demux(video=0):
            if packet.size:
                noise = av.Packet(rng.bytes(packet.size))
                noise.pts, noise.dts, noise.time_base = packet.pts, packet.dts, packet.time_base
                noise.stream = stream
                target.mux(noise)
    return spoilt


def test_a_film_of_noise_packets_gives_no_frames(tmp_path: Path) -> None:
    path = write(tmp_path / "film.mkv", seconds=2, codec="libx264")
    assert code_of(spoil_packets(path)) == "no_frames"


def test_a_film_of_noise_packets_is_not_tried_to_its_end(tmp_path: Path) -> None:
    path = write(tmp_path / "film.mkv", seconds=60, fps=100, size=(32, 32))
    with pytest.raises(BadVideo, match="5001 parts of it cannot be decoded") as caught:
        list(read_frames(spoil_packets(path)))
    assert caught.value.code == "no_frames"


def test_a_decoder_that_hangs_is_too_slow(tmp_path: Path, monkeypatch: Any) -> None:
    path = write(tmp_path / "film.mp4", seconds=1)
    sleeper = tmp_path / "sleeper.py"
    sleeper.write_text("import time; time.sleep(60)")
    monkeypatch.setattr(child, "DECODER", sleeper)
    assert code_of(path, timeout=0.3) == "too_slow"


def test_a_decoder_that_used_up_its_processor_time_is_too_slow(
    tmp_path: Path, monkeypatch: Any
) -> None:
    path = write(tmp_path / "film.mp4", seconds=1)
    burner = tmp_path / "burner.py"
    burner.write_text(
        "import runpy\n"
        f"limits = runpy.run_path({str(child.DECODER.with_name('confinement.py'))!r})\n"
        "limits['limit_resources'](1 << 30, 1)\n"
        "while True: pass\n"
    )
    monkeypatch.setattr(child, "DECODER", burner)
    assert code_of(path, timeout=60) == "too_slow"


def test_a_long_film_may_take_the_decoder_longer_than_it_keeps_us_waiting(
    tmp_path: Path, monkeypatch: Any
) -> None:
    path = write(tmp_path / "film.mp4", seconds=1)
    spy, seen = tmp_path / "spy.py", tmp_path / "seen.json"
    spy.write_text(f"import sys; open({str(seen)!r}, 'w').write(sys.argv[1])")
    monkeypatch.setattr(child, "DECODER", spy)
    assert code_of(path, timeout=600.0, max_frames=36_000) == "decoder_died"
    assert json.loads(seen.read_text())["cpu_seconds"] > 36_000


def test_a_decoder_that_crashes_costs_one_video(tmp_path: Path, monkeypatch: Any) -> None:
    path = write(tmp_path / "film.mp4", seconds=1)
    crasher = tmp_path / "crasher.py"
    crasher.write_text("import os, signal; os.kill(os.getpid(), signal.SIGSEGV)")
    monkeypatch.setattr(child, "DECODER", crasher)
    assert code_of(path) == "decoder_died"
    monkeypatch.undo()
    assert len(levels(path)) == 1


def test_a_decoder_that_wants_too_much_memory_is_stopped(tmp_path: Path, monkeypatch: Any) -> None:
    path = write(tmp_path / "film.mp4", seconds=1, size=(1280, 720))
    monkeypatch.setattr(video, "DECODER_MEMORY", 1 << 20)
    assert code_of(path) == "too_large"


def test_8k_in_ten_bits_is_not_refused_as_too_large(tmp_path: Path) -> None:
    """Fourteen grey pictures of HEVC that lean on six others; encoding them takes a minute."""
    path = tmp_path / "8k.mp4"
    path.write_bytes(gzip.decompress(FILM_8K.read_bytes()))
    with read_frames(path, size=(32, 32)) as reader:
        assert (reader.info.width, reader.info.height) == (7680, 4320)
        assert sum(len(frames) for _, frames in reader) == 3


def test_only_large_pictures_get_more_memory(tmp_path: Path) -> None:
    path = write(tmp_path / "film.mp4", seconds=1, size=(1280, 720))
    with read_frames(path) as reader:
        limits = Path(f"/proc/{reader.child_id}/limits").read_text()
    [most] = [line.split()[3] for line in limits.splitlines() if "address space" in line]
    assert int(most) < 1.1 * video.DECODER_MEMORY


def test_time_spent_on_the_frames_is_not_the_decoders(tmp_path: Path) -> None:
    import time

    path = write(tmp_path / "film.mp4", seconds=4)
    with FrameReader(path, fps=1.0, batch_frames=1, max_frames=10, timeout=5.0) as reader:
        before = reader._child.patience
        for _ in reader:
            time.sleep(0.2)
    assert before - reader._child.patience < 0.4


def test_the_decoder_sees_no_secret_of_the_environment(tmp_path: Path, monkeypatch: Any) -> None:
    path = write(tmp_path / "film.mp4", seconds=1)
    spy, seen = tmp_path / "spy.py", tmp_path / "seen.txt"
    spy.write_text(f"import os; open({str(seen)!r}, 'w').write(' '.join(os.environ))")
    monkeypatch.setattr(child, "DECODER", spy)
    monkeypatch.setenv("VCL_DATABASE_URL", "postgresql://user:secret@host/db")
    assert code_of(path) == "decoder_died"
    assert "VCL_DATABASE_URL" not in seen.read_text().split()


def test_a_hash_names_the_content_and_not_the_file(tmp_path: Path) -> None:
    (tmp_path / "a.mp4").write_bytes(b"film")
    (tmp_path / "b.mkv").write_bytes(b"film")
    (tmp_path / "c.mp4").write_bytes(b"other film")
    assert hash_file(tmp_path / "a.mp4") == hash_file(tmp_path / "b.mkv")
    assert hash_file(tmp_path / "a.mp4") != hash_file(tmp_path / "c.mp4")
    with pytest.raises(BadVideo) as caught:
        hash_file(tmp_path / "d.mp4")
    assert caught.value.code == "missing"
