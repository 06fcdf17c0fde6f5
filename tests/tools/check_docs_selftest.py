#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""tools/check_docs.py finds links that lead nowhere, pages that are too long, pages that a formatter bent, and nothing else."""
import unittest

from checker import CheckerTest

# As clang-format 14 left it.
BENT = """#capture / llm : a model in inference, from outside

Start with `source.h`.It finds the libraries of llama.cpp and ggml in the observed processes,
    attaches the places of the
        wanted level,
and hands the records of `bpf / model_engine.h` to `decoder.h`, which writes trace events.

- Which functions are probed say packs:
probes with a `model` role.- `layout.h` : the table of struct offsets.
number is never guessed.-
"""


class CheckDocs(CheckerTest):
    SCRIPT = "check_docs.py"

    def test_links_that_lead_somewhere(self):
        self.plant("README.md", "# Title\n\n[a](docs/a.md), [b](docs/a.md#the-second-part), [c](#title),\n[wrapped\ntext](https://x.org)\n")
        self.plant("docs/a.md", "# A\n\n## The `second` part\n\n[up](../README.md) [image](images/x.svg)\n\n    [no link](nowhere.md)\n\n`[x](y.md)`\n")
        self.plant("docs/images/x.svg", "<svg/>\n")
        self.assertIn("docs: 2 pages, 5 links\n", self.expect_clean())

    def test_links_that_lead_nowhere(self):
        self.plant("docs/a.md", "# A\n\nSee [b](b.md) and [c](#no-such-heading),\n[d](../README.md#gone).\n")
        self.plant("README.md", "# Here\n")
        self.expect_problems("docs/a.md:3: link to b.md: no docs/b.md", "docs/a.md:3: link to #no-such-heading: docs/a.md has no heading",
                             "docs/a.md:4: link to ../README.md#gone: README.md has no heading gone")

    def test_headings_that_are_alike(self):
        self.plant("docs/a.md", "# A\n\n## Limits\n\n## Limits\n\n[first](#limits) [second](#limits-1) [third](#limits-2)\n")
        self.expect_problems("link to #limits-2")

    def test_long_pages(self):
        for name, lines in (("a.md", 120), ("b.md", 121), ("formats/c.md", 500), ("measurements/d.md", 500)):
            self.plant(f"docs/{name}", "# A\n" + "line\n" * (lines - 1))
        self.expect_problems("docs/b.md: 121 lines, at most 120")

    def test_pages_begin_with_a_heading(self):
        self.plant("docs/a.md", "## A\n")
        self.plant("docs/b.md", "\n# B\n")
        self.plant("docs/c.md", "")
        self.expect_problems("docs/a.md:1: a page begins", "docs/b.md:1: a page begins", "docs/c.md:1: a page begins")

    def test_a_page_that_clang_format_took_for_code(self):
        self.plant("src/x/README.md", BENT)
        self.expect_problems("README.md:1: a page begins", "README.md:1: a heading is", "README.md:1: a space before a colon",
                             "README.md:3: a sentence begins", "README.md:4: indented as code", "README.md:6: spaces around the slash",
                             "README.md:9: a space before a colon", "README.md:9: an item of a list", "README.md:10: an item of a list")

    def test_tables_that_are_broken(self):
        self.plant("docs/a.md", "# A\n\n| a | b |\n|---|---|\n| 1 |\n    2 |\n| 1 | 2 |\n\n"
                   "| a | b |\n|---|---|\n| 1 | 2\n| 1 | 2 | 3 |\n")
        self.expect_problems("a.md:5: a row of 1 cells in a table of 2", "a.md:6: indented as code", "a.md:7: a row without a table",
                             "a.md:11: a row of a table ends in another line", "a.md:12: a row of 3 cells")

    def test_what_no_formatter_did(self):
        self.plant("docs/a.md", "# A\n\n* item\n  more:\n\n  | a | b |\n  |---|---|\n  | `x \\| y` | Boost.Math |\n\n1. one\n    two\n\n"
                   "Text: `a / b`, `x.h`. `y.h`: #2.\n\n    #include <a>  # comment\n\n```\n#if A : B.-\n```\n")
        self.expect_clean()


if __name__ == "__main__":
    unittest.main()
