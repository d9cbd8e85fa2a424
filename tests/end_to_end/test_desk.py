"""An analyst's hour in a real browser: upload, wait, play the match, decide by key, undo, bulk.

Real server, PostgreSQL, worker and Chromium, which Debian builds with H.264. Without one the tests
are skipped, and say so.
"""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from retrieval.database import connect, transaction
from tests.end_to_end.conftest import PATIENCE, Site, open_site, wait_until
from tests.vcl_plugin import world
from vcl_plugin.claims.settlement import settle_claims
from vcl_plugin.demo.footage import Clip, render_edit, render_reference

CHROMIUM = os.environ.get("CHROMIUM") or shutil.which("chromium") or shutil.which("google-chrome")
playwright = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
pytestmark = pytest.mark.skipif(
    CHROMIUM is None, reason="no Chromium is installed (apt-get install chromium)"
)

MOST_DRIFT = 0.1  # seconds between what both players show
MOST_STEPPED_DRIFT = 0.4
SAMPLES = 15  # one after the other that must be within it
MILLISECONDS = 1000 * PATIENCE
# Drift and how far the upload has moved, for so many moments of play, a tenth of a second apart.
WATCH = """async (samples) => {
    const seen = [];
    for (let each = 0; each < samples; each += 1) {
        await new Promise((done) => setTimeout(done, 100));
        seen.push([pair.referenceAt(pair.query.currentTime) - pair.reference.currentTime,
                   pair.query.currentTime, pair.query.paused || pair.reference.paused]);
    }
    return seen;
}"""

MOMENT = """() => [pair.query.currentTime, pair.reference.currentTime,
    pair.referenceAt(pair.query.currentTime) - pair.reference.currentTime]"""


@dataclass(frozen=True)
class Served:
    site: Site
    url: str
    key: str
    films: Path


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """A site with one reference, a worker and `vcl serve`."""
    films = tmp_path_factory.mktemp("desk-films")
    harbour = render_reference(films / "harbour.mp4", seed=1, seconds=40, size=(160, 120))
    other = render_reference(films / "other.mp4", seed=9, seconds=10, size=(160, 120))
    render_edit(
        films / "evening.mp4",
        [Clip(other, 0, 6, is_copy=False), Clip(harbour, 8, 36)],
        size=(160, 120),
    )
    with open_site() as site:
        site.vcl("asset", "add", "Harbour", "--owner", "Northlight")
        added = site.vcl("reference", "add", harbour, "--asset", "Harbour", "--wait")
        assert added.returncode == 0, added.stderr
        key = site.vcl("key", "add", "ana", "--role", "manager").stdout.split()[-1]
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        server = subprocess.Popen(
            [sys.executable, "-m", "vcl_plugin.cli", "serve", "--port", str(port)],
            env=site.environment,
            stderr=(site.home / "serve.log").open("wb"),
        )
        url = f"http://127.0.0.1:{port}"
        try:
            wait_until(lambda: answers(f"{url}/readyz"))
            yield Served(site, url, key, films)
        finally:
            server.send_signal(signal.SIGTERM)
            server.wait(timeout=60)


@pytest.fixture
def page(served: Served) -> Iterator[Any]:
    """A page of a browser that has logged in; what goes wrong in it fails the test."""
    wrong: list[str] = []
    with playwright.sync_playwright() as tools:
        browser = tools.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        page = browser.new_page(viewport={"width": 1280, "height": 800})
        page.set_default_timeout(MILLISECONDS)
        page.on("pageerror", lambda error: wrong.append(str(error)))
        page.on("console", lambda said: said.type == "error" and wrong.append(said.text))
        page.goto(f"{served.url}/login#{served.key}")  # as `vcl demo` prints it
        page.wait_for_url("**/claims")
        yield page
        browser.close()
    assert wrong == []


def answers(url: str) -> bool:
    try:
        with urllib.request.urlopen(url, timeout=5) as answer:
            return bool(answer.status == 200)
    except OSError:
        return False


def moves_together(page: Any) -> bool:
    """Whether both films play, and show the same for a while."""
    first, *rest = page.evaluate(WATCH, SAMPLES)
    apart = max(abs(drift) for drift, _, _ in (first, *rest))
    has_moved = rest[-1][1] > first[1] and not any(is_paused for _, _, is_paused in rest)
    return has_moved and apart < MOST_DRIFT


def runs_backwards(page: Any) -> bool:
    """Whether the reference goes back as the upload goes on, a few frames apart at most."""
    moments = []
    for _ in range(3):
        page.wait_for_timeout(300)
        moments.append(page.evaluate(MOMENT))
    (first, _, last) = moments
    apart = max(abs(drift) for _, _, drift in moments)
    return last[0] > first[0] and last[1] < first[1] and apart < MOST_STEPPED_DRIFT


def status_of(served: Served, claim: int) -> str:
    return str(served.site.sql("SELECT status FROM claims WHERE id = %s", claim)[0][0])


def test_a_film_is_uploaded_found_played_and_decided_by_key(page: Any, served: Served) -> None:
    page.goto(f"{served.url}/search")
    page.set_input_files("#files", served.films / "evening.mp4")
    page.wait_for_url("**/searches/*")
    page.wait_for_selector("text=Claims >> visible=true")
    page.click("td a[href^='/claims/']")
    page.wait_for_url("**/claims/*")
    claim = int(page.url.split("/claims/")[1].split("?")[0])
    # The match begins to play by itself, from its first second on.
    wait_until(lambda: moves_together(page))
    segment = page.evaluate("pair.segment")
    assert segment["query_start"] == pytest.approx(6, abs=2)
    assert segment["reference_start"] == pytest.approx(8, abs=2)
    page.select_option("[data-do=rate]", "1.5")
    page.evaluate("document.activeElement.blur()")
    wait_until(lambda: moves_together(page))
    assert page.evaluate("pair.query.playbackRate") == 1.5
    # A reversed copy is stepped: no browser plays backwards.
    page.evaluate("() => { pair.segments[0].is_reversed = true; pair.setRate(1); pair.go(0); }")
    wait_until(lambda: runs_backwards(page))
    page.evaluate("() => { pair.segments[0].is_reversed = false; pair.go(0); }")
    wait_until(lambda: moves_together(page))
    # Frame by frame, both at once.
    page.keyboard.press(" ")
    before = page.evaluate("[pair.query.currentTime, pair.reference.currentTime]")
    page.keyboard.press(".")
    page.wait_for_function("() => !pair.query.seeking && !pair.reference.seeking")
    after = page.evaluate("[pair.query.currentTime, pair.reference.currentTime]")
    assert 0 < after[0] - before[0] < 0.2
    # Decided, taken back, and decided again, without the mouse.
    assert status_of(served, claim) == "potential"
    page.keyboard.press("c")
    page.wait_for_selector("#undo form")
    assert status_of(served, claim) == "active"
    page.keyboard.press("z")
    wait_until(lambda: status_of(served, claim) == "potential")
    page.wait_for_load_state()
    page.goto(f"{served.url}/claims/{claim}")
    page.keyboard.press("r")
    page.keyboard.press("3")
    wait_until(lambda: status_of(served, claim) == "released")
    [(reason, actor)] = served.site.sql(
        "SELECT reason, actor FROM claim_events WHERE claim_id = %s ORDER BY id DESC LIMIT 1", claim
    )
    assert (reason, actor) == ("fair_use", "ana")


def test_fifty_claims_are_selected_and_released_at_once_and_back(page: Any, served: Served) -> None:
    with transaction(connect(served.site.database_url)) as connection:
        world.add_reference(connection, "tram", "Ostrava", "Night Tram")
        for number in range(50):
            world.add_upload(connection, f"bulk {number}", "somebody")
            world.record(connection, f"bulk {number}", "tram", world.segment(0, 20 + number))
            settle_claims(connection, f"bulk {number}")
    page.goto(f"{served.url}/claims")
    page.fill("#text", "bulk")
    page.wait_for_url("**text=bulk**")
    page.wait_for_selector("tr[data-claim]:nth-child(50)")
    page.evaluate("document.activeElement.blur()")
    page.keyboard.press("j")
    assert page.text_content("tr[aria-current] bdi") == "bulk 49"  # what is most at stake
    page.check("#all")
    assert page.text_content("#selected") == "50 selected"
    page.evaluate("document.activeElement.blur()")
    page.keyboard.press("r")
    page.keyboard.press("1")
    page.wait_for_selector("#undo form")
    assert "50 claims" in page.text_content("#undo")
    assert released(served) == 50
    page.keyboard.press("z")
    wait_until(lambda: released(served) == 0)


def released(served: Served) -> int:
    [(count,)] = served.site.sql(
        "SELECT count(*) FROM claims JOIN videos ON videos.id = query_id "
        "WHERE title LIKE 'bulk %%' AND claims.status = 'released' "
        "AND claims.reason = 'misidentified'"
    )
    return int(count)


def test_the_claim_page_reads_without_scripts(served: Served) -> None:
    with playwright.sync_playwright() as tools:
        browser = tools.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        page = browser.new_context(java_script_enabled=False).new_page()
        page.set_default_timeout(MILLISECONDS)
        page.goto(f"{served.url}/login")
        page.fill("#key", served.key)
        page.click("button.primary")
        page.goto(f"{served.url}/claims?status=all")
        page.click("a.open >> nth=0")
        page.wait_for_selector("text=Segments")
        page.wait_for_selector("text=History")
        browser.close()
