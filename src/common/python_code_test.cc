// SPDX-License-Identifier: Apache-2.0
#include "common/python_code.h"

#include <gtest/gtest.h>

namespace kansoku {
namespace {

TEST(PythonCode, IsTheProgramsOwn) {
  for (const char* const own : {"/home/me/train.py", "/opt/job/model/layers.py", "train.py",
                                "models/resnet.py", "/workspace/torch/train.py"})
    EXPECT_TRUE(is_own_python_file(own)) << own;
}

TEST(PythonCode, IsPythonsOrAPackages) {
  for (const char* const other :
       {"", "<frozen runpy>", "<string>", "/usr/lib/python3.11/selectors.py",
        "/usr/lib/python3/dist-packages/torch/distributed/distributed_c10d.py",
        "/opt/venv/lib/python3.12/site-packages/torch/_tensor.py", "/usr/lib64/python3.9/socket.py",
        "selectors.py", "torch/nn/modules/module.py", "asyncio/base_events.py", "threading.py"})
    EXPECT_FALSE(is_own_python_file(other)) << other;
}

TEST(PythonName, IsReadOrRefused) {
  for (const char* text : {"", "f", "a.py", "a.py(", "a.py(x): f", "a.py(3)", "a.py(-1): f"})
    EXPECT_FALSE(parse_python_name(text)) << text;
  const auto name = parse_python_name("/srv/a.b/run.py(12): <module>");
  ASSERT_TRUE(name);
  EXPECT_EQ(name->file, "/srv/a.b/run.py");
  EXPECT_EQ(name->function, "<module>");
}

}  // namespace
}  // namespace kansoku
