"""The desk in a real browser: what the queue weighs, claims decided by keys alone, pictures.

    vcl demo --serve                      # prints an address that ends in a key
    python benchmarks/desk.py --url http://127.0.0.1:8080 --key KEY \\
        --fill demo-output/uploads --images docs/images/desk

`--fill` sends the films of a folder again under other names, so that there are claims to decide.
Needs Chromium and the extra `dev`.
"""

from __future__ import annotations

import argparse
import io
import shutil
import statistics
import tempfile
import time
from pathlib import Path
from typing import Any

import av
import httpx
from PIL import Image
from playwright.sync_api import Browser, Page, sync_playwright

DECISIONS = ("c", "m", "c", "r3")  # keys, in turn
LOADS = 5
PATIENCE = 300_000
# What an analyst needs before deciding: both films at the match, and moving.
PLAYS = """() => typeof pair !== "undefined" && pair.wants && !pair.query.paused
    && pair.query.readyState >= 3 && pair.reference.readyState >= 3"""
TITLES = ("evening news, part 3", "BEST OF 2026 !!!", "my holiday", "re-upload", "full film HD")
ODD = ("x\u202egpj.mp4", "<b>bold</b> & 'quoted'", "a very long title " * 24, "\u200b", "汽车 漂移")


def fill(url: str, key: str, folder: Path, count: int) -> None:
    """Send films again, each with other bytes around the same pictures, and wait for searches."""
    films = [each for each in sorted(folder.glob("*.mp4")) if each.stem != "innocent"]
    headers = {"Authorization": f"Bearer {key}"}
    with httpx.Client(base_url=url, headers=headers, timeout=120) as client:
        asked = []
        for number in range(count):
            title = ODD[number] if number < len(ODD) else f"{TITLES[number % 5]} {number}"
            facts = {"title": title, "uploader": f"user {number % 7}", "external_id": f"v-{number}"}
            with tempfile.NamedTemporaryFile(suffix=".mp4") as file:
                remux(films[number % len(films)], Path(file.name), str(time.time_ns()))
                body = {"file": (f"{number}.mp4", Path(file.name).read_bytes())}
                answer = client.post("/api/v1/uploads", data=facts, files=body).raise_for_status()
            asked.append(answer.json()["search_id"])
        for search in asked:
            while client.get(f"/api/v1/searches/{search}", params={"wait": 30}).json()[
                "status"
            ] not in ("done", "incomplete", "failed"):
                pass


def remux(source: Path, target: Path, comment: str) -> None:
    """The same pictures in a file of other bytes."""
    with av.open(str(source)) as given, av.open(str(target), "w") as made:
        made.metadata["comment"] = comment
        stream = made.add_stream_from_template(given.streams.video[0])
        for packet in given.demux(given.streams.video[0]):
            if packet.dts is not None:
                packet.stream = stream
                made.mux(packet)


def log_in(browser: Browser, url: str, key: str, **options: Any) -> Page:
    page = browser.new_context(**options).new_page()
    page.set_default_timeout(PATIENCE)
    page.goto(f"{url}/login#{key}")
    page.wait_for_url("**/claims")
    return page


def weigh_queue(browser: Browser, url: str, key: str) -> dict[str, Any]:
    """Bytes over the line and milliseconds to the first paint, with nothing in the cache."""
    page = log_in(browser, url, key)
    tools = page.context.new_cdp_session(page)
    tools.send("Network.enable")
    tools.send("Network.setCacheDisabled", {"cacheDisabled": True})
    loaded = [0.0]
    tools.on("Network.loadingFinished", lambda each: loaded.append(each["encodedDataLength"]))
    paints, sizes = [], []
    for _ in range(LOADS):
        loaded.clear()
        page.goto(f"{url}/claims?status=all", wait_until="networkidle")
        sizes.append(sum(loaded))
        paints.append(
            page.evaluate("performance.getEntriesByName('first-contentful-paint')[0].startTime")
        )
    rows = page.locator("tr[data-claim]").count()
    page.context.close()
    return {"rows": rows, "bytes": max(sizes), "paints": sorted(paints)}


def decide_by_keys(browser: Browser, url: str, key: str, count: int) -> list[float]:
    """Seconds from a decision's key until the next claim's films play, for so many claims."""
    page = log_in(browser, url, key, viewport={"width": 1280, "height": 800})
    page.keyboard.press("j")
    page.keyboard.press("Enter")
    page.wait_for_function(PLAYS)
    took = []
    for number in range(count):
        before = page.url
        began = time.monotonic()
        for each in DECISIONS[number % len(DECISIONS)]:
            page.keyboard.press(each)
        page.wait_for_url(lambda now, before=before: now != before)
        page.wait_for_selector("#undo form")
        page.wait_for_function(PLAYS)
        took.append(time.monotonic() - began)
    page.context.close()
    return took


def take_pictures(browser: Browser, url: str, key: str, folder: Path, claim: int) -> None:
    """Every page in light, dark, and on a telephone."""
    folder.mkdir(parents=True, exist_ok=True)
    ways = {
        "light": {"viewport": {"width": 1280, "height": 800}, "color_scheme": "light"},
        "dark": {"viewport": {"width": 1280, "height": 800}, "color_scheme": "dark"},
        "390": {"viewport": {"width": 390, "height": 844}, "color_scheme": "light"},
    }
    for way, options in ways.items():
        page = browser.new_context(**options).new_page()
        page.set_default_timeout(PATIENCE)
        page.goto(f"{url}/login")
        keep_picture(page, folder / f"login-{way}.webp")
        page.context.close()
        page = log_in(browser, url, key, **options)
        search = page.goto(f"{url}/search") and page.get_attribute(
            "td a[href^='/searches/']", "href"
        )
        for name, path in (
            ("queue", "/claims?status=all"),
            ("claim", f"/claims/{claim}?status=all"),
            ("search", "/search"),
            ("found", search),
            ("references", "/references"),
            ("owners", "/owners"),
            ("reports", "/reports"),
        ):
            page.goto(f"{url}{path}")
            page.wait_for_load_state("networkidle")
            if name == "claim":
                page.wait_for_function(PLAYS)
                page.wait_for_timeout(3000)
                page.keyboard.press(" ")  # films that play on a busy machine show frames of before
                page.wait_for_timeout(1500)
            if name == "queue" and way != "390":
                for each in "jxjxj":
                    page.keyboard.press(each)
            keep_picture(page, folder / f"{name}-{way}.webp")
        page.context.close()


def keep_picture(page: Page, path: Path) -> None:
    Image.open(io.BytesIO(page.screenshot())).convert("RGB").save(path, quality=82, method=6)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--url", default="http://127.0.0.1:8080")
    parser.add_argument("--key", required=True)
    parser.add_argument("--fill", type=Path, help="folder of films to send again")
    parser.add_argument("--films", type=int, default=24, help="how many films to send")
    parser.add_argument("--claims", type=int, default=20, help="how many claims to decide")
    parser.add_argument("--images", type=Path, help="where pictures of the pages are written")
    parser.add_argument("--claim", type=int, default=1, help="the claim that is pictured")
    asked = parser.parse_args()
    if asked.fill:
        fill(asked.url, asked.key, asked.fill, asked.films)
    program = shutil.which("chromium") or shutil.which("google-chrome")
    with sync_playwright() as tools:
        browser = tools.chromium.launch(executable_path=program, args=["--no-sandbox"])
        weight = weigh_queue(browser, asked.url, asked.key)
        print(
            f"queue of {weight['rows']} rows: {weight['bytes'] / 1000:.1f} kB, first paint "
            f"{statistics.median(weight['paints']):.0f} ms (of {LOADS} cold loads: "
            f"{', '.join(f'{each:.0f}' for each in weight['paints'])})"
        )
        if asked.claims:
            took = decide_by_keys(browser, asked.url, asked.key, asked.claims)
            print(
                f"{len(took)} claims by keys: median {statistics.median(took):.2f} s, "
                f"slowest {max(took):.2f} s"
            )
            print("seconds each:", " ".join(f"{each:.2f}" for each in took))
        if asked.images:
            take_pictures(browser, asked.url, asked.key, asked.images, asked.claim)
        browser.close()


if __name__ == "__main__":
    main()
