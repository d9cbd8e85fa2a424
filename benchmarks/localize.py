"""Our TransVCL against the release's arithmetic on the same pairs: ratios, memory, long videos.

    python benchmarks/localize.py                 ratios at 60, 300, 600 and 1200 frames, 1 x 8
    python benchmarks/localize.py --shipped       what ships (`transvcl`), with and without a copy
    python benchmarks/localize.py --memory        peak memory of one 1200 x 1200 pair
    python benchmarks/localize.py --long          a 2-hour pair: peak memory and seconds
    python benchmarks/localize.py --runtimes      torch, ONNX Runtime, OpenVINO

Both sides run in one process on one thread, turn by turn; times are CPU time, so that other
programs on the machine disturb them little, and a ratio is the median over the turns. The weights
are the golden tests' random ones: no speed here depends on what a network has learnt, except the
line "sparse", where objectness is rare as in a trained detector and classes are skipped.
"""

from __future__ import annotations

import argparse
import os
import resource
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

for variable in ("OMP_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ[variable] = "1"  # before numpy and torch read it

ROOT = Path(__file__).parents[1]
sys.path[:0] = [str(ROOT), str(ROOT / "benchmarks"), str(ROOT / "tests" / "vcl_plugin" / "model")]

import numpy as np  # noqa: E402
import torch  # noqa: E402
from golden_weights import golden_pair, golden_state_dict  # noqa: E402
from padded_transvcl import run_padded  # noqa: E402
from torch import Tensor  # noqa: E402

from vcl_plugin import load_localizer  # noqa: E402
from vcl_plugin.localize.detection import TransVCLLocalizer  # noqa: E402
from vcl_plugin.model import SMALL, TransVCL  # noqa: E402
from vcl_plugin.model.fast.frozen import FrozenTransVCL  # noqa: E402
from vcl_plugin.model.fast.runtime import installed_runtimes  # noqa: E402

CANDIDATES = 8
MIN_SCORE = 0.1


def golden_network() -> TransVCL:
    model = TransVCL()
    model.load_state_dict(golden_state_dict(), strict=True)
    return model.eval()


def sparse_network() -> TransVCL:
    """Golden weights whose objectness is as rare as a trained detector's."""
    model = golden_network()
    with torch.no_grad():
        for prediction in model.head.obj_preds:
            prediction.bias -= 4.0  # type: ignore[operator]
    return model


def candidates(frames: int) -> tuple[Tensor, list[Tensor]]:
    query = golden_pair("bench", frames, frames)[0]
    references = [golden_pair(f"bench{i}", frames, frames)[1] for i in range(CANDIDATES)]
    references[0] = golden_pair("bench", frames, frames)[1]  # one of them holds a copy
    return torch.from_numpy(query), [torch.from_numpy(each) for each in references]


def run_ours(
    network: FrozenTransVCL, query: Tensor, references: list[Tensor], min_score: float
) -> list[tuple[float, Tensor]]:
    state = network.encode(query, 0)
    results = []
    for reference in references:
        match = network.match(state, network.encode(reference, 1))
        boxes = network.detect(network.picture(match)[None], min_score)[0]
        results.append((match.video_logit, boxes))
    return results


def take_turns(contestants: dict[str, Callable[[], Any]], turns: int) -> dict[str, np.ndarray]:
    """CPU seconds of each contestant in each turn; the first, cold turn is left out."""
    seconds: dict[str, list[float]] = {name: [] for name in contestants}
    for _ in range(turns + 1):
        for name, run in contestants.items():
            start = time.process_time()
            run()
            seconds[name].append(time.process_time() - start)
    return {name: np.asarray(each[1:]) for name, each in seconds.items()}


def compare_ratios(sizes: list[int], turns: int) -> None:
    model, sparse = golden_network(), sparse_network()
    network, lazy = FrozenTransVCL(model), FrozenTransVCL(sparse)
    print(f"1 x {CANDIDATES} candidates, {turns} turns, detector pyramid: {network.runtime.name}")
    print("frames  rival, pairs one by one / all at once   ours     ratio            sparse ratio")
    for frames in sizes:
        query, references = candidates(frames)
        assert_same(run_padded(model, query, references), run_ours(network, query, references, 0))
        assert_same(
            run_padded(sparse, query, references), run_ours(lazy, query, references, MIN_SCORE)
        )
        contestants: dict[str, Callable[[], Any]] = {
            "one": lambda q=query, r=references: run_padded(model, q, r, 1),
            "all": lambda q=query, r=references: run_padded(model, q, r, CANDIDATES),
            "ours": lambda q=query, r=references: run_ours(network, q, r, 0),
            "sparse": lambda q=query, r=references: run_ours(lazy, q, r, MIN_SCORE),
        }
        seconds = take_turns(contestants, turns)
        one, both, ours = (1000 * np.median(seconds[k]) / 8 for k in ("one", "all", "ours"))
        ratio, ratio_all, ratio_sparse = (
            np.median(seconds[a] / seconds[b])
            for a, b in (("one", "ours"), ("all", "ours"), ("one", "sparse"))
        )
        print(
            f"{frames:6d}  {one:8.0f} ms / {both:.0f} ms a pair {'':10s} {ours:6.0f} ms  "
            f"{ratio:.2f} / {ratio_all:.2f} {'':6s} {ratio_sparse:.2f}",
            flush=True,
        )


def assert_same(rival: list[tuple[float, Tensor]], ours: list[tuple[float, Tensor]]) -> None:
    """Equal logits, and equal rows wherever the score can be reported."""
    for (their_logit, theirs), (our_logit, mine) in zip(rival, ours, strict=True):
        assert abs(their_logit - our_logit) < 1e-3, (their_logit, our_logit)
        told = theirs[:, 4] * theirs[:, 5] >= MIN_SCORE + 1e-3
        # The rival's own float32 lies up to 0.2 pixels from float64; ours lies within 0.03.
        worst = (theirs[told, :4] - mine[told, :4]).abs().max() if told.any() else torch.zeros(())
        assert float(worst) < 0.5, float(worst)
        scores = (theirs[told, 4:] - mine[told, 4:]).abs()
        assert not told.any() or float(scores.max()) < 2e-3, float(scores.max())


def compare_runtimes(turns: int) -> None:
    for label, model in (("paper", golden_network()), ("small", TransVCL(SMALL).eval())):
        networks = {name: FrozenTransVCL(model, runtime=name) for name in installed_runtimes()}
        first = next(iter(networks.values()))
        query, references = candidates(300)
        match = first.match(first.encode(query, 0), first.encode(references[0], 1))
        picture = first.picture(match)[None]
        seconds = take_turns(
            {name: lambda n=each, p=picture: n.detect(p) for name, each in networks.items()}, turns
        )
        medians = ", ".join(f"{k} {1000 * np.median(v):.1f} ms" for k, v in seconds.items())
        print(f"detector of preset {label}: {medians}")


def measure_alone(task: str) -> None:
    """Runs `task` in a process of its own and prints its peak resident memory."""
    subprocess.run([sys.executable, __file__, "--alone", task], check=True)


def run_alone(task: str) -> None:
    megabytes = 1024.0
    torch.set_num_threads(1)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / megabytes
    start = time.perf_counter()
    if task == "padded":
        query, reference = (torch.from_numpy(each) for each in golden_pair("m", 1200, 1200))
        run_padded(golden_network(), query, [reference])
        said = "rival, 1200 x 1200"
    elif task == "ours":
        TransVCLLocalizer(golden_network(), "cpu").localize(*golden_pair("m", 1200, 1200))
        said = "ours, preset paper, 1200 x 1200"
    else:
        preset = golden_network() if task == "two-hours-paper" else TransVCL(SMALL).eval()
        found = TransVCLLocalizer(preset, "cpu").localize(*golden_pair("h", 7200, 7200))
        said = f"ours, preset {task.rsplit('-')[-1]}, 7200 x 7200, {len(found)} segments"
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / megabytes
    seconds = time.perf_counter() - start
    print(f"{said}: peak {peak:.0f} MB ({before:.0f} MB after imports), {seconds:.1f} s")


def make_film(frames: int, seed: int) -> np.ndarray:
    """Shots of three to nine seconds, each drifting away from its first frame."""
    draw = np.random.default_rng(seed)
    rows: list[np.ndarray] = []
    while len(rows) < frames:
        length = int(draw.integers(3, 10))
        base, drift = draw.standard_normal((2, 256))
        rows += [base + 0.7 * drift * step / length for step in range(length)]
    film = np.array(rows[:frames], np.float32)
    return film / np.linalg.norm(film, axis=1, keepdims=True)


def compare_shipped(sizes: list[int], turns: int) -> None:
    """The whole path of `load_localizer("transvcl")` beside the release's network alone."""
    model, localizer = golden_network(), load_localizer("transvcl", device="cpu")
    print("frames   release     with a copy        without one")
    for frames in sizes:
        other, reference = make_film(frames, 1), make_film(frames, 2)
        copied = other.copy()
        copied[frames // 4 : frames // 2] = reference[frames // 4 : frames // 2]
        assert localizer.localize(copied, reference)
        assert not localizer.localize(other, reference)
        tensors = torch.from_numpy(copied), [torch.from_numpy(reference)]
        contestants: dict[str, Callable[[], Any]] = {
            "release": lambda t=tensors: run_padded(model, t[0], t[1], 1),
            "copy": lambda q=copied, r=reference: localizer.localize(q, r),
            "none": lambda q=other, r=reference: localizer.localize(q, r),
        }
        seconds = take_turns(contestants, turns)
        release, copy, none = (1000 * np.median(seconds[k]) for k in ("release", "copy", "none"))
        with_copy, without = (
            np.median(seconds["release"] / seconds[name]) for name in ("copy", "none")
        )
        print(
            f"{frames:6d}  {release:5.0f} ms  {copy:6.1f} ms, {with_copy:4.1f}x  "
            f"{none:6.1f} ms, {without:5.1f}x",
            flush=True,
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--frames", type=int, nargs="+", default=[60, 300, 600, 1200])
    parser.add_argument("--turns", type=int, default=5)
    for section in ("shipped", "memory", "long", "runtimes"):
        parser.add_argument(f"--{section}", action="store_true")
    parser.add_argument("--alone", help=argparse.SUPPRESS)
    chosen = parser.parse_args()
    torch.set_num_threads(1)
    if chosen.alone:
        run_alone(chosen.alone)
        return
    if chosen.shipped:
        compare_shipped(chosen.frames, chosen.turns)
        return
    if chosen.memory:
        measure_alone("padded")
        measure_alone("ours")
    if chosen.long:
        measure_alone("two-hours-small")
        measure_alone("two-hours-paper")
    if chosen.runtimes:
        compare_runtimes(chosen.turns)
    if not (chosen.memory or chosen.long or chosen.runtimes):
        compare_ratios(chosen.frames, chosen.turns)


if __name__ == "__main__":
    main()
