#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""tools/check_bans.py finds every planted ban, and nothing else."""
import unittest

from checker import SPDX, CheckerTest

FIX, LATER = "FIX" + "ME", "TO" + "DO"  # the marks, not in this file
WORKPLACE = "/" + "work/x/y"

BANNED = [
    "std::cerr << std::endl;",
    "std::cout << 1;",
    "std::chrono::steady_clock::now();",
    "using C = std::chrono::system_clock;",
    "std::random_device seed;",
    "int a = rand();",
    "::std::srand(1);",
    "std::normal_distribution<double> d;",
    "std::regex r;",
    "int b = std::stoi(text);",
    "int c = atoi(text);",
    "double d = std::strtod(text, nullptr);",
    "assert(a == b);",
    "auto* p = new int;",
    "delete p;",
    "delete[] p;",
    "try { f(); } catch ( ... ) { }",
    "for (int i : v | std::views::filter(odd)) f(i);",
    "for (int i : std::ranges::views::iota(3)) f(i);",
]
FINE = r"""
// std::endl, new and delete in a comment; assert(x) too
/* catch (...) { rand(); } */
const char* text = "delete new std::regex assert(x) catch (...)";
const char* raw = R"x(new "thing" atoi(1))x";
X(const X&) = delete;
static_assert(sizeof(int) == 4);
std::chrono::steady_clock::time_point epoch();
int renew(int new_count), operand(int);
int value = rng.rand(); int w = table->stoi(3); int y = my::atoi(3);
auto owned = std::unique_ptr<Owner>(new Owner(std::move(impl)));
std::unique_ptr<Owner> other(new Owner);
char quote = '"'; int big = 1'000'000; char c = '\''; delete_later();
void* operator new(std::size_t); void operator delete(void*);
"""


class CheckBans(CheckerTest):
    SCRIPT = "check_bans.py"

    def test_clean_tree_passes(self):
        self.plant("src/trace/a.cc", SPDX + FINE)
        self.plant("tools/run.py", "#!/usr/bin/env python3\n# SPDX-License-Identifier: Apache-2.0\n")
        self.plant("README.md", "The network/" + WORKPLACE[1:] + " and ./" + WORKPLACE[1:] + " are relative.\n")
        self.assertIn("3 files, 0 lines excused", self.expect_clean())

    def test_every_ban(self):
        self.plant("src/trace/a.cc", SPDX + "\n".join(BANNED) + "\n")
        output = self.expect_problems(*(f"src/trace/a.cc:{line}: " for line in range(2, len(BANNED) + 2)))
        self.assertIn("std::make_unique", output)

    def test_places_where_it_is_allowed(self):
        self.plant("src/sys/clock.cc", SPDX + "auto t = std::chrono::steady_clock::now();\nstd::random_device d;\n")
        self.plant("src/cli/main.cc", SPDX + "std::cout << 1;\n")
        self.plant("src/wire/probes.bpf.c", "/* SPDX-License-Identifier: GPL-2.0 */\nint new = delete(3);\n")
        self.expect_clean()

    def test_comments_begin_with_their_subject(self):
        halves = ["/// Whether a probe is on.", "// Of these.", "int a;  // what it costs", "int b;  // Where it is", "/* Who waits. */",
                  "/* Fine.", " * What follows is not. */", "///< Where it goes.", "//What, without a blank"]
        self.plant("src/trace/a.cc", SPDX + "\n".join(halves) + "\n")
        self.plant("tests/gpu/a.cu", SPDX + "// What a kernel does.\n")
        output = self.expect_problems(*(f"src/trace/a.cc:{line}: a comment begins with" for line in (2, 3, 4, 5, 6, 8, 9)),
                                      "tests/gpu/a.cu:2: a comment begins with `What`")
        self.assertIn("`True if ...`", output)
        self.plant("src/trace/a.cc", SPDX + """// A wrapped sentence that says
// what it does, and where. Offset
// of it, by What-if Analysis
// What-if Analysis.
int f(int /*what*/);  // of the trace
int b;  // Whatever comes, Office hours
const char* text = "// What is this?";
const char* raw = R"(
// Whether it counts
)";
// What the library says  // allowed: a quotation
""")
        self.plant("tests/gpu/a.cu", SPDX)
        self.assertIn("2 files, 1 lines excused", self.expect_clean())

    def test_excuses_need_a_reason(self):
        self.plant("src/trace/a.cc", SPDX + "} catch (...) {  // allowed: the edge of a library that throws\n"
                   "} catch (...) {  // allowed:\n} catch (...) {  // allowed\nint a = 0;  // allowed: nothing to excuse\n")
        self.expect_problems("src/trace/a.cc:3: catch (...): `allowed:` without a reason", "src/trace/a.cc:4: catch (...): catch what")
        self.plant("src/trace/a.cc", SPDX + "} catch (...) {  // allowed: the edge of a library that throws\n")
        self.assertIn("1 files, 1 lines excused", self.expect_clean())
        self.assertIn("a.cc:2: catch (...): allowed: the edge of a library that throws", self.expect_clean("--list"))

    def test_marks_everywhere_even_in_comments(self):
        self.plant("src/trace/a.cc", SPDX + f"// {LATER}: later\nint a;  /* {FIX} */\nint {LATER}s;\n")
        self.plant("docs/a.md", f"text\n{LATER} text\n")
        self.plant("tests/corpus/x/a", f"{LATER}\n")
        self.plant("docs/a.png", f"\0{LATER}\n")
        self.expect_problems("src/trace/a.cc:2: ", "src/trace/a.cc:3: ", "docs/a.md:2: ")

    def test_paths_of_one_machine(self):
        self.plant("docs/a.md", f"see {WORKPLACE}\n`{WORKPLACE}`\nhttps://host{WORKPLACE}\n")
        self.expect_problems("docs/a.md:1: ", "docs/a.md:2: ")

    def test_licence_lines(self):
        self.plant("src/trace/a.h", "#pragma once\n")
        self.plant("src/trace/b.h", "\n\n\n" + SPDX)
        self.plant("tools/run", "#!/bin/sh\n")
        self.plant("docs/a.md", "no licence line needed\n")
        self.plant("tests/data/x.py", "no licence line needed\n")
        self.expect_problems("src/trace/a.h:1: no SPDX", "src/trace/b.h:1: no SPDX", "tools/run:1: no SPDX")


if __name__ == "__main__":
    unittest.main()
