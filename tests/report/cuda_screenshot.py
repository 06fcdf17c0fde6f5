#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Makes the pages of device work of recordings, draws them in headless Chromium and measures them.

cuda_screenshot.py KANSOKU [FOLDER]: with FOLDER pages and pictures stay there. Exit status 77 (skipped) without Chromium.
"""
import os
import subprocess

import pages

HERE = os.path.dirname(os.path.abspath(__file__))
RECORDINGS = os.path.join(os.path.dirname(HERE), "data", "recordings")
KINDS = ("cuda_four_ranks", "cuda_pageable", "cuda_pool", "cuda_synchronisation")


def make_pages(program, folder):
    made = {}
    for kind in KINDS:
        made[kind] = os.path.join(folder, kind + ".html")
        done = subprocess.run([program, "cuda", "report", os.path.join(RECORDINGS, kind + ".pftrace"), "--html", made[kind], "--force"],
                              capture_output=True, text=True, timeout=pages.LIMIT_S)
        assert done.returncode in (0, 10), done.stderr
    return made


def check_all(seen, want):
    headings = seen["headings"]
    for heading in ("Where the devices' time goes", "The worst step on the device", "Kernels", "The recording"):
        want(heading in headings, f"no section {heading!r} among {headings}")
    want(any(heading.startswith("Device memory of ") for heading in headings), f"no memory among {headings}")


def check_four_ranks(seen, want):
    want("Rank 2: all kernels take longer" in seen["heading"], f"heading {seen['heading']!r}")


def check_pageable(seen, want):
    check_all(seen, want)
    want("copies instead of computing" in seen["heading"], f"heading {seen['heading']!r}")


def check_pool(seen, want):
    check_all(seen, want)
    want(seen["titles"] == ["Live device memory" + seen["titles"][0][len("Live device memory"):]], f"charts {seen['titles']}")


def check_synchronisation(seen, want):
    want("waits for it" in seen["heading"], f"heading {seen['heading']!r}")


CHECKS = {"cuda_four_ranks": check_four_ranks, "cuda_pageable": check_pageable, "cuda_pool": check_pool,
          "cuda_synchronisation": check_synchronisation}

if __name__ == "__main__":
    pages.run(make_pages, CHECKS, __doc__)
