"""How long a list takes on the owner's page after a key was pressed, in a real browser, with
100,000 items.

``python benchmarks/page_search.py [--items N]``. It needs Chromium and Playwright.
"""

from __future__ import annotations

import argparse
import random
import statistics
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from hdpmf.common.data import RatingScale
from hdpmf.common.protocol.titles import TitleSearch
from hdpmf.private.device.device_identity import new_device
from hdpmf.private.device.own_items import load_catalogue
from tests.e2e.browsing import running_chromium
from tests.e2e.served_pages import enter, owner_page

FIRST = [
    "Quiet",
    "Golden",
    "Hidden",
    "Northern",
    "Paper",
    "Last",
    "Silver",
    "Distant",
    "Secret",
    "Broken",
    "Ocean",
]
SECOND = [
    "Harbour",
    "Garden",
    "Signal",
    "Winter",
    "Orchestra",
    "Mountain",
    "Letter",
    "River",
    "Machine",
    "Dream",
]
THIRD = [
    "Night",
    "House",
    "Summer",
    "Stranger",
    "Road",
    "Shadow",
    "Island",
    "City",
    "Queen",
    "Train",
    "Story",
]
TYPED = (
    "the quiet",
    "golden harbour",
    "zz",
    "e",
    "machine dream 77",
    "ocean",
    "winter of the",
    "x9",
)

# From the key to the frame after the list was drawn.
WATCH = """
window.times = []; window.pressed = 0;
field = document.getElementById("search");
field.addEventListener("input", () => { window.pressed = performance.now(); }, true);
new MutationObserver(() => requestAnimationFrame(() => setTimeout(() => {
  if (window.pressed) { window.times.push(performance.now() - window.pressed); window.pressed = 0; }
}))).observe(document.getElementById("found-count"), { childList: true, characterData: true, subtree: true });
field.focus();
"""  # noqa: E501
# Not wait_for_function, which the page's policy forbids.
DRAWN = (
    "new Promise(done => { const look = () => window.pressed ? setTimeout(look, 5) "
    ": done(); look(); })"
)


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--items", type=int, default=100_000)
    items = options.parse_args().items
    chance = random.Random(1)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        with (folder / "items.csv").open("w", encoding="utf-8") as file:
            file.write("item,title,genres,year\n")
            for number in range(items):
                title = " ".join(chance.choice(words) for words in (FIRST, SECOND, THIRD))
                file.write(f"{number},The {title} {number % 997},Drama|War,{1920 + number % 100}\n")
        with new_device(folder / "me.sqlite", scale=RatingScale(1.0, 5.0, 1.0)) as store:
            load_catalogue(store, folder / "items.csv")
            for number in range(0, 3000, 10):
                store.rate(str(number), 4.0)
            search = TitleSearch(load_catalogue(store, folder / "items.csv").table)
        begin = time.process_time()
        for text in TYPED:
            for end in range(1, len(text) + 1):
                search.find(text[:end])
        alone = (time.process_time() - begin) / sum(map(len, TYPED))
        with owner_page(folder / "me.sqlite") as served, running_chromium() as browser:
            page = browser.new_page()
            enter(page, served)
            page.evaluate(WATCH)
            for text in TYPED:
                page.evaluate("field.value = ''; window.pressed = 0")
                for letter in text:
                    page.keyboard.insert_text(letter)
                    page.evaluate(DRAWN)
            times = sorted(page.evaluate("window.times"))
    print(f"{items:,} items, {len(times)} keys: from a key to its list on the screen")
    print(
        f"median {statistics.median(times):.0f} ms, 95 % within "
        f"{times[int(0.95 * len(times))]:.0f} ms, "
        f"longest {times[-1]:.0f} ms; the search alone takes {1000 * alone:.1f} ms of one core"
    )


if __name__ == "__main__":
    main()
