#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""tools/check_docs.py finds links that lead nowhere and pages that are too long, and nothing else."""
import unittest

from checker import CheckerTest


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
            self.plant(f"docs/{name}", "line\n" * lines)
        self.expect_problems("docs/b.md: 121 lines, at most 120")


if __name__ == "__main__":
    unittest.main()
