#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""tools/check_layers.py finds every planted arrow, and nothing else."""
import unittest

from checker import CheckerTest

LAYERS = """# arrows
common:
wire:          # C headers only
trace:  common
trace/deep: common
cli:  common trace
"""
LIBRARIES = """fmt/:  *
protozero/:  trace
json/:       common
json/fwd.hpp: public common
gtest/:      tests
"""


class CheckLayers(CheckerTest):
    SCRIPT = "check_layers.py"

    def setUp(self):
        super().setUp()
        self.plant("src/layers.txt", LAYERS)
        self.plant("src/third_party.txt", LIBRARIES)
        for module in ("common", "wire", "trace", "trace/deep", "cli"):
            self.plant(f"src/{module}/README.md", f"# {module}: page\n")
        self.plant("src/wire/ring.h", "#include <linux/types.h>\n")
        self.plant("src/common/json.h", '#include <json/fwd.hpp>\n#include <string>\n#include "common/internal/text.h"\n')
        self.plant("src/common/internal/text.h", "#include <json/all.hpp>\n")
        self.plant("src/trace/reader.cc", '#include <protozero/reader.hpp>\n#include <fmt/format.h>\n#include "common/json.h"\n')
        self.plant("src/trace/deep/deep.h", '#include "common/json.h"\n')
        self.plant("src/cli/main.cc", '#include "trace/reader.h"\n#include "common/json.h"\n  #  include "cli/commands.h"\n#include <sys/stat.h>\n')

    def test_clean_tree_passes(self):
        self.assertIn("13 includes of 6 files in 5 modules", self.expect_clean())

    def test_arrows_that_are_not_listed(self):
        self.plant("src/trace/up.cc", '#include "common/json.h"\n#include "cli/commands.h"\n')
        self.plant("src/trace/down.cc", '#include "trace/deep/deep.h"\n')
        self.plant("src/common/json.cc", '/* long\n comment */ #include "wire/ring.h"\n')
        self.expect_problems(
            'src/trace/up.cc:2: trace -> cli: "cli/commands.h" is not allowed; trace may name: common',
            'src/trace/down.cc:1: trace -> trace/deep',
            'src/common/json.cc:2: common -> wire: "wire/ring.h" is not allowed; common may name: no module')

    def test_comments_and_strings_are_no_includes(self):
        self.plant("src/common/json.cc", '// #include "cli/a.h"\n/*\n#include "cli/b.h"\n*/\nconst char* t = R"(\n)";\n')
        self.expect_clean()

    def test_folders_that_are_not_listed(self):
        self.plant("src/loose.cc", "")
        self.plant("src/util/text.h", "")
        self.plant("src/cli/a.cc", '#include "util/text.h"\n#include "text.h"\n')
        self.expect_problems("src/loose.cc:1: in no module", "src/util/text.h:1: in no module",
                             'src/cli/a.cc:1: cli -> "util/text.h": in no module', 'src/cli/a.cc:2: cli -> "text.h": in no module')

    def test_internal_headers(self):
        self.plant("src/trace/internal/x.h", '#include "trace/internal/y.h"\n#include "common/internal/text.h"\n')
        self.expect_problems('src/trace/internal/x.h:2: trace -> common: "common/internal/text.h" is internal to common')

    def test_headers_for_tests(self):
        self.plant("src/trace/writer.cc", '#include "trace/fake_for_test.h"\n')
        self.plant("src/trace/fake_for_test.cc", '#include "trace/fake_for_test.h"\n')
        self.expect_problems('src/trace/writer.cc:1: trace -> trace: "trace/fake_for_test.h" is for tests only')

    def test_tests_are_exempt(self):
        for name in ("a_test.cc", "a_bench.cc", "a_fuzz.cc", "a_for_test.h"):
            self.plant(f"src/common/{name}", '#include "cli/commands.h"\n#include <gtest/gtest.h>\n#include <unknown/x.h>\n')
        self.expect_clean()

    def test_arrows_that_nothing_uses(self):
        self.plant("src/layers.txt", LAYERS.replace("trace/deep: common\n", "trace/deep: common wire\n").replace("cli:  common", "cli:  common trace/deep"))
        self.plant("src/trace/deep/deep_test.cc", '#include "wire/ring.h"\n')
        self.plant("src/cli/main.cc", '#include "trace/reader.h"\n// #include "trace/deep/deep.h"\n#include "common/json.h"\n')
        self.expect_problems("src/layers.txt:5: trace/deep -> wire: no #include uses this arrow", "src/layers.txt:6: cli -> trace/deep: no #include")

    def test_modules_that_are_not_there(self):
        self.plant("src/layers.txt", LAYERS.replace("cli:", "store: common\ncli:").replace("common trace\n", "common trace store\n"))
        self.plant("src/store/README.md", "# store: later\n")
        self.expect_problems("src/layers.txt:6: store: no sources in src/store")

    def test_third_party(self):
        self.plant("src/cli/a.cc", "#include <protozero/reader.hpp>\n#include <gtest/gtest.h>\n#include <curl/curl.h>\n")
        self.plant("src/cli/b.cc", "#include <vector>\n#include <elf.h>\n#include <netinet/in.h>\n#include <zlib.h>\n")
        self.plant("src/trace/a.h", "#include <protozero/reader.hpp>\n#include <json/fwd.hpp>\n")
        self.expect_problems("src/cli/a.cc:1: cli -> <protozero/reader.hpp>: not allowed; it belongs to: trace",
                             "src/cli/a.cc:2: cli -> <gtest/gtest.h>: not allowed; it belongs to: tests",
                             "src/cli/a.cc:3: cli -> <curl/curl.h>: not in src/third_party.txt",
                             "src/cli/b.cc:4: cli -> <zlib.h>: not in src/third_party.txt",
                             "src/trace/a.h:1: trace -> <protozero/reader.hpp>: a third-party header in a public header",
                             "src/trace/a.h:2: trace -> <json/fwd.hpp>: not allowed")

    def test_form_of_the_tables(self):
        self.plant("src/layers.txt", LAYERS.replace("common:\n", "common: trace\n") + "cli: common\nno colon\nx: x nowhere\n")
        self.plant("src/third_party.txt", LIBRARIES + "z.h: zip\n")
        self.expect_problems("src/layers.txt:2: common -> trace: names a lower line (4)",
                             "src/layers.txt:7: cli is listed twice (first in line 6)", "src/layers.txt:8: expected",
                             "src/layers.txt:9: x -> x: names a lower line", "src/layers.txt:9: x -> nowhere: no such module",
                             "src/third_party.txt:6: z.h: no module zip")

    def test_cmake_repeats_the_arrows(self):
        self.plant("src/CMakeLists.txt", "kansoku_module(common LINK x)\n# kansoku_module(none)\nkansoku_module(trace DEPS common)\n"
                   "kansoku_module(trace/deep\n  DEPS common trace LINK y)\nkansoku_module(cli DEPS trace EXCLUDE wire)\n"
                   "kansoku_module(other)\n")
        self.expect_problems("src/CMakeLists.txt:4: trace/deep -> trace: DEPS", "src/CMakeLists.txt:7: kansoku_module(other)")

    def test_large_folders(self):
        for i in range(31):
            self.plant(f"src/trace/internal/part{i}.h", "")
            self.plant(f"src/trace/internal/part{i}_test.cc", "")
        self.expect_problems("src/trace/internal: 31 files, at most 30")
        self.plant("src/trace/README.md", "# trace: page\n\nOne folder: each file is one field of the format.\n")
        self.expect_clean()

    def test_pages(self):
        self.plant("src/cli/README.md", "# cli: page\n" + "line\n" * 40)
        self.plant("src/common/README.md", "# common: page\n" + "line\n" * 39)
        self.plant("src/layers.txt", LAYERS + "store:\n")
        self.plant("src/store/store.h", "")
        self.expect_problems("src/cli/README.md:41: 41 lines", "src/store/README.md:1: missing")

    def test_pages_begin_with_the_module(self):
        self.plant("src/cli/README.md", "#cli : page\n")
        self.plant("src/trace/deep/README.md", "# deep: page\n")
        self.plant("src/common/README.md", "# common\n")
        self.plant("src/wire/README.md", "")
        self.expect_problems("src/cli/README.md:1: begins `# cli: words`", "src/trace/deep/README.md:1: begins `# trace/deep: words`",
                             "src/common/README.md:1: begins `# common: words`", "src/wire/README.md:1: begins `# wire: words`")


if __name__ == "__main__":
    unittest.main()
