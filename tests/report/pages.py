# SPDX-License-Identifier: Apache-2.0
"""Draws pages in headless Chromium, light and dark, 1280 and 400 pixels wide, and measures them: nothing may be wider than the window, no
two texts of a chart may touch, no error may be reported."""
import html
import json
import os
import re
import subprocess
import sys
import tempfile

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
import kit  # noqa: E402

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


def run(make, checks, text):
    """The whole of a test: `make(KANSOKU, folder)` gives pages by kind, `checks` a function a kind."""
    def main(report):
        kansoku, *folders = kit.words(text, 1, 2)
        kit.need_tool("chromium")
        with tempfile.TemporaryDirectory() as own:
            folder = os.path.abspath((folders or [own])[0])
            os.makedirs(folder, exist_ok=True)
            pages = make(kansoku, folder)
            for (kind, width, theme), seen in measure(pages, folder, bool(folders)).items():
                name, wrong = f"{kind}-{theme}-{width}", []

                def want(good, text, wrong=wrong):
                    wrong += [] if good else [text]
                check_layout(name, seen, width, want)
                checks[kind](seen, want)
                red = int(re.search(r"\d+", seen["background"]).group())
                want(red > 200 if theme == "light" else red < 60, f"background {seen['background']}")
                print(f"{name}: {len(seen['charts'])} charts, tables of {seen['rows']} rows, {seen['height']} pixels high")
                report.judge(name, wrong)
    kit.run(main)
