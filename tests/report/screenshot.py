#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Draws the report of a recorded straggler in headless Chromium and looks at the picture.

screenshot.py KANSOKU TRACE RANK [FOLDER]: TRACE holds a job in which RANK is slow. Light and dark, wide and narrow. With
FOLDER the pictures stay there. Exit status 77 (skipped) without Chromium.
"""
import html
import json
import os
import re
import subprocess
import tempfile

import PIL.Image

import pages
import kit

MEASURE = """<script>
document.body.dataset.measured = JSON.stringify({
  overflow: document.documentElement.scrollWidth - innerWidth,
  cells: document.querySelectorAll("#heat .cell").length,
  phases: [...document.querySelectorAll("#phases svg text.soft")].map((t) => t.textContent),
  widths: [...document.querySelectorAll("#phases .phase")].reduce((sums, r) => {
    sums[r.getAttribute("y")] = (sums[r.getAttribute("y")] || 0) + Number(r.getAttribute("width")); return sums; }, {}),
  spans: document.querySelectorAll("#worst .span").length,
  rows: document.querySelectorAll("#functions tbody tr").length,
  heading: document.querySelector("h1").textContent,
  heat: document.querySelector("#heat svg").getBoundingClientRect().toJSON(),
  background: getComputedStyle(document.body).backgroundColor,
});
</script>"""


def warmth(image, box, index):
    """How much redder than blue the middle of one row of the heat map is, on average."""
    y = int(box["top"] + (index + 0.45) * 34)
    pixels = [image.getpixel((x, y)) for x in range(int(box["left"]) + 80, int(box["right"]) - 10, 3)]
    return sum(p[0] - p[2] for p in pixels) / len(pixels)


def check(page, folder, width, theme, culprit):
    name = f"{theme}-{width}"
    address = f"file://{page}#{theme}"
    dom = pages.chromium(f"--window-size={width},1600", "--dump-dom", address)
    seen = json.loads(html.unescape(re.search(r'data-measured="([^"]*)"', dom).group(1)))
    picture = os.path.join(folder, name + ".png")
    pages.chromium(f"--window-size={width},1600", f"--screenshot={picture}", address)
    ranks = len(seen["phases"])
    wrong = []

    def want(good, text):
        if not good:
            wrong.append(text)

    want(seen["overflow"] <= 0, f"the page is {seen['overflow']} pixels wider than the window")
    want(ranks == 4, f"{ranks} rows of phases")
    want(seen["cells"] >= 4 * 10 and seen["cells"] % 4 == 0, f"{seen['cells']} cells in the heat map")
    bars = list(seen["widths"].values())
    want(max(bars) - min(bars) < 0.1 * max(bars), f"phases of one step differ in length: {bars}")
    want(seen["spans"] >= 8, f"{seen['spans']} spans in the worst step")
    want(seen["rows"] >= 1, "no functions")
    want(seen["heading"].startswith(f"Rank {culprit} slows"), f"heading {seen['heading']!r}")
    with PIL.Image.open(picture) as file:
        image = file.convert("RGB")
    warm = [warmth(image, seen["heat"], rank) for rank in range(ranks)]
    others = [value for rank, value in enumerate(warm) if rank != culprit]
    want(warm[culprit] > max(others) + 40, f"rank {culprit} does not stand out in the heat map: {warm}")
    corner = sum(image.getpixel((2, 2))) / 3
    want(corner > 200 if theme == "light" else corner < 60, f"background brightness {corner}")
    print(f"{name}: {seen['cells']} cells, {seen['spans']} spans, warmth by rank {[round(w) for w in warm]}")
    return wrong


def main(report):
    kansoku, trace, culprit, *folders = kit.words(__doc__, 3, 4)
    kit.need_tool("chromium")
    with tempfile.TemporaryDirectory() as own:
        folder = (folders or [own])[0]
        os.makedirs(folder, exist_ok=True)
        page_of, page = os.path.join(own, "report.html"), os.path.join(own, "measured.html")
        run = subprocess.run([kansoku, "diagnose", trace, "--html", page_of], check=False, capture_output=True, text=True)
        kit.expect(run.returncode == 10, str(run))
        with open(page_of, encoding="utf-8") as source, open(page, "w", encoding="utf-8") as out:
            out.write(source.read().replace("</body>", MEASURE + "</body>"))
        for theme in ("light", "dark"):
            for width in (1280, 500):  # Chromium opens no narrower window
                report.part(f"{theme}-{width}", check, page, folder, width, theme, int(culprit))


if __name__ == "__main__":
    kit.run(main)
