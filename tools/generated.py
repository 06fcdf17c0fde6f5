# SPDX-License-Identifier: Apache-2.0
"""Files that are printed from the source: written, or with --check compared, so that a test keeps them true."""
import os
import sys


def write_or_check(path, text, repair):
    """Writes `text` to `path`; with --check among the arguments only says whether it is there. The exit status; `repair`: the command."""
    if "--check" not in sys.argv[1:]:
        with open(path, "w", encoding="utf-8") as file:
            file.write(text)
        return 0
    if os.path.exists(path):
        with open(path, encoding="utf-8") as file:
            if file.read() == text:
                return 0
    print(f"{os.path.basename(path)} is not as the source says: run {repair}")
    return 1
