#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Makes the simulator's reports of a run, a sweep and a fit, draws them in headless Chromium and measures the pages.

simulation_screenshot.py KANSOKU [FOLDER]: light and dark, 1280 and 400 pixels wide. Nothing may be wider than the window, no
two texts of a chart may touch, no error may be reported. With FOLDER pages and pictures stay there. Exit status 77 (skipped)
without Chromium.
"""
import html
import json
import os
import random
import re
import shutil
import subprocess
import sys
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))
LIMIT_S = 600  # of one program; only one that hangs takes so long
COLLECT = """<script>
window.wrong = [];
addEventListener("error", (event) => wrong.push(event.message));
addEventListener("securitypolicyviolation", (event) => wrong.push("policy: " + event.violatedDirective));
</script>"""
MEASURE = """<script>
const box = (node) => node.getBoundingClientRect();
const touch = (a, b) => Math.min(a.right, b.right) - Math.max(a.left, b.left) > 1 && Math.min(a.bottom, b.bottom) - Math.max(a.top, b.top) > 3;
const touching = [], outside = [], small = [];
for (const svg of document.querySelectorAll(".plot > svg")) {
  const frame = box(svg), texts = [...svg.querySelectorAll("text")];
  texts.forEach((text, i) => {
    const own = box(text);
    if (own.left < frame.left - 2 || own.right > frame.right + 2 || own.bottom > frame.bottom + 2 || own.top < frame.top - 2) outside.push(text.textContent);
    if (own.height < 10) small.push(text.textContent + ": " + own.height);
    for (const other of texts.slice(i + 1)) if (touch(own, box(other))) touching.push(text.textContent + " | " + other.textContent);
  });
  for (const mark of svg.querySelectorAll(".mark, .line, .whisker, .bar")) {
    const own = box(mark);
    if (own.left < frame.left - 2 || own.right > frame.right + 2 || own.bottom > frame.bottom + 2 || own.top < frame.top - 8) outside.push(mark.getAttribute("class"));
  }
}
for (const section of document.querySelectorAll("section"))
  for (const node of section.querySelectorAll("figure, p, h1, h2, .scroll, .figures > div, dd"))
    if (box(node).right > box(section).right + 1) outside.push(node.tagName + " " + node.textContent.slice(0, 40));
const first = document.querySelector("[data-tip]");
if (first) first.dispatchEvent(new PointerEvent("pointermove", { bubbles: true, clientX: 50, clientY: 50 }));
const measured = JSON.stringify({
  wrong, touching, outside, small,
  overflow: document.documentElement.scrollWidth - innerWidth, width: innerWidth, height: document.documentElement.scrollHeight,
  charts: [...document.querySelectorAll(".plot > svg")].map((svg) => [Math.round(box(svg).width), Math.round(box(svg).height)]),
  titles: [...document.querySelectorAll("figcaption")].map((node) => node.textContent),
  headings: [...document.querySelectorAll("h2")].map((node) => node.textContent),
  rows: [...document.querySelectorAll("table")].map((node) => node.querySelectorAll("tbody tr").length),
  marks: [...document.querySelectorAll(".plot")].map((node) => node.querySelectorAll("svg:not(.key) .mark").length),
  tags: [...document.querySelectorAll(".tag")].map((node) => node.textContent),
  tip: document.querySelector(".tip").textContent,
  heading: document.querySelector("h1").textContent.replaceAll("\u00a0", " "), background: getComputedStyle(document.body).backgroundColor,
});
document.querySelector(".tip").style.display = "none";
document.body.dataset.measured = measured;
if (parent !== window) parent.postMessage(measured, "*");
</script>"""
# All views of all pages in one window: a browser starts for seconds, and opens no window narrower than 500 pixels. One upon the other,
# since what lies outside of the window is not drawn.
FRAMES = """<!doctype html><body style="margin:0"><script>
const seen = {};
addEventListener("message", (event) => {
  for (const frame of document.querySelectorAll("iframe"))
    if (frame.contentWindow === event.source) seen[frame.name] = JSON.parse(event.data);
  document.body.dataset.measured = JSON.stringify(seen);
});
</script>%s</body>"""
FRAME = '<iframe name="%s" src="%s" style="border:0;position:absolute;top:0;left:0;width:%dpx;height:%dpx"></iframe>'
VIEWS = ((1280, "light"), (1280, "dark"), (400, "light"))
HEIGHT = 2000


def kansoku(program, *arguments):
    subprocess.run([program, "simulate", *arguments], check=True, capture_output=True, text=True, timeout=LIMIT_S)


def trace(path):
    """Jobs of three weeks: sessions of a few, durations of two kinds. The same every time."""
    chance = random.Random(1)
    rows, at = [], 0.0
    while at < 21 * 86400:
        at += chance.expovariate(1 / 1500)
        moment = at
        for _ in range(1 + int(chance.expovariate(0.5))):
            moment += chance.expovariate(1 / 20)
            duration = chance.lognormvariate(4, 0.6) if chance.random() < 0.6 else chance.lognormvariate(8, 1)
            rows.append((moment, duration, chance.choice((1, 1, 1, 2, 8))))
    with open(path, "w", encoding="utf-8") as out:
        out.write("# epoch 2024-01-01 00:00:00\nsubmit_s,duration_s,gpus\n")
        out.writelines(f"{submit:.3f},{duration:.3f},{gpus}\n" for submit, duration, gpus in sorted(rows))


def make_pages(program, folder):
    experiment = os.path.join(HERE, "simulation.toml")
    pages = {kind: os.path.join(folder, kind + ".html") for kind in ("run", "sweep", "policies", "fit")}
    kansoku(program, "run", experiment, "-q", "--html", pages["run"])
    kansoku(program, "sweep", experiment, "-q", "-r", "3", "--vary", "clusters.training.slots=12,14,18", "--vary",
            "clusters.training.scheduler=fifo,backfill", "--html", pages["sweep"])
    kansoku(program, "sweep", experiment, "-q", "-r", "3", "--vary", "clusters.training.scheduler=fifo,shortest,backfill",
            "--vary", "models.churn.loss=0.04,0.08", "--html", pages["policies"])
    jobs = os.path.join(folder, "jobs.csv")
    trace(jobs)
    kansoku(program, "fit", jobs, "--format", "plain", "--html", pages["fit"])
    return pages


def chromium(*arguments):
    # With a profile of its own: one that runs already would take the address over.
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as profile:
        done = subprocess.run(
            ["chromium", "--headless=new", "--no-sandbox", "--disable-gpu", "--hide-scrollbars", "--no-first-run",
             "--enable-logging=stderr", "--virtual-time-budget=3000", f"--user-data-dir={profile}", *arguments],
            check=True, capture_output=True, text=True, timeout=LIMIT_S)
    told = [line for line in done.stderr.splitlines() if "CONSOLE" in line]
    assert not told, told
    return done.stdout


def draw(folder, frames, *arguments):
    """Draws views of pages, each (name, address, width, height), in one window; returns its document."""
    path = os.path.join(folder, "frames.html")
    with open(path, "w", encoding="utf-8") as out:
        out.write(FRAMES % "".join(FRAME % frame for frame in frames))
    width, height = max(frame[2] for frame in frames), max(frame[3] for frame in frames)
    return chromium(f"--window-size={max(width, 500)},{height}", *arguments, f"file://{path}")


def measure(pages, folder, with_pictures):
    """What MEASURE found in each view of each page, by kind, width and theme."""
    frames = {}
    for kind, page in pages.items():
        own = os.path.join(folder, kind + ".measured.html")
        with open(page, encoding="utf-8") as source, open(own, "w", encoding="utf-8") as out:
            text = source.read()
            out.write(text.replace("<title>", COLLECT + "<title>", 1).replace("</body>", MEASURE + "</body>"))
        for width, theme in VIEWS:
            frames[kind, width, theme] = (f"{kind}-{theme}-{width}", f"file://{own}#{theme}", width, HEIGHT)
    seen = json.loads(html.unescape(re.search(r'data-measured="([^"]*)"', draw(folder, frames.values(), "--dump-dom")).group(1)))
    for name, address, width, _ in frames.values() if with_pictures else ():
        draw(folder, [(name, address, width, min(seen[name]["height"], 12000))], f"--screenshot={os.path.join(folder, name)}.png")
    return {view: seen[frame[0]] for view, frame in frames.items()}


def check_layout(name, seen, width, want):
    want(seen["width"] == width, f"{name}: drawn {seen['width']} pixels wide")
    want(seen["overflow"] <= 0, f"{name}: {seen['overflow']} pixels wider than the window")
    for what in ("wrong", "touching", "outside", "small"):
        want(not seen[what], f"{name}: {what}: {seen[what][:8]}")
    for chart in seen["charts"]:
        want(chart[0] >= min(300, width * 0.7) and chart[1] >= 40, f"{name}: a chart of {chart} pixels")
    want(seen["tip"] != "", f"{name}: no read-out under the pointer")


def check_run(seen, want):
    want("on average; the busiest cluster training is used" in seen["heading"], f"run: heading {seen['heading']!r}")
    want(seen["titles"][:3] == ["Utilisation of the clusters", "Tasks waiting", "Performance of the models"], f"run: {seen['titles']}")
    want(seen["headings"] == ["Over time", "Waiting", "Clusters", "Models", "Stores", "The run"], f"run: {seen['headings']}")
    want(seen["rows"] == [6, 2, 2, 2, 1], f"run: rows of the tables {seen['rows']}")


def check_sweep(seen, want):
    want(seen["heading"].startswith("Lowest mean time in the system of "), f"sweep: heading {seen['heading']!r}")
    want(len(seen["charts"]) >= 4 and all(count == 6 for count in seen["marks"]), f"sweep: marks {seen['marks']}")
    want(seen["rows"] == [6, 5], f"sweep: rows of the tables {seen['rows']}")
    want("clear" in seen["tags"] and len(seen["tags"]) == 25, f"sweep: tags {seen['tags']}")


def check_fit(seen, want):
    want(seen["heading"].startswith("Durations are best described by a "), f"fit: heading {seen['heading']!r}")
    want(seen["marks"][0] == 19, f"fit: {seen['marks']} quantiles")
    want(seen["rows"][0] >= 5 and seen["rows"][1] >= 10, f"fit: rows of the tables {seen['rows']}")
    want(seen["tags"].count("chosen") == 1 and "kept" in seen["tags"], f"fit: tags {seen['tags']}")


CHECKS = {"run": check_run, "sweep": check_sweep, "policies": check_sweep, "fit": check_fit}


def main():
    if len(sys.argv) < 2:
        print(__doc__, file=sys.stderr)
        return 2
    if not shutil.which("chromium"):
        print("skipped: no chromium")
        return 77
    wrong = []

    def want(good, text):
        if not good:
            wrong.append(text)

    with tempfile.TemporaryDirectory() as own:
        folder = os.path.abspath(sys.argv[2]) if len(sys.argv) > 2 else own
        os.makedirs(folder, exist_ok=True)
        pages = make_pages(sys.argv[1], folder)
        for (kind, width, theme), seen in measure(pages, folder, len(sys.argv) > 2).items():
            name = f"{kind}-{theme}-{width}"
            check_layout(name, seen, width, want)
            CHECKS[kind](seen, want)
            red = int(re.search(r"\d+", seen["background"]).group())
            want(red > 200 if theme == "light" else red < 60, f"{name}: background {seen['background']}")
            print(f"{name}: {len(seen['charts'])} charts, tables of {seen['rows']} rows, {seen['height']} pixels high")
    for text in wrong:
        print(f"wrong: {text}", file=sys.stderr)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
