// SPDX-License-Identifier: Apache-2.0
#include "sys/process.h"

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>

namespace kansoku::sys {
namespace {

/// A folder of its own, and PATH as it was afterwards.
class FindProgram : public testing::Test {
 protected:
  FindProgram() {
    std::filesystem::create_directories(folder_ / "first/tool");  // a folder of that name
    std::filesystem::create_directories(folder_ / "second");
    add("first/text", 0644);
    add("second/tool", 0755);
    add("second/text", 0755);
    const std::string path = (folder_ / "first").string() + ":" + (folder_ / "second").string();
    ::setenv("PATH", path.c_str(), 1);
  }
  ~FindProgram() override {
    ::setenv("PATH", path_.c_str(), 1);
    std::filesystem::remove_all(folder_);
  }
  void add(const char* name, mode_t mode) const {
    std::ofstream{folder_ / name} << "#!/bin/sh\n";
    ::chmod((folder_ / name).c_str(), mode);
  }

  const std::filesystem::path folder_ =
      std::filesystem::temp_directory_path() / ("kansoku-find-" + std::to_string(::getpid()));
  const std::string path_ = std::getenv("PATH");
};

TEST_F(FindProgram, TakesTheFirstThatMayBeExecuted) {
  EXPECT_EQ(find_program("tool"), (folder_ / "second/tool").string());
  EXPECT_EQ(find_program("text"), (folder_ / "second/text").string());
  EXPECT_FALSE(find_program("nothing"));
  EXPECT_FALSE(find_program(""));
}

TEST_F(FindProgram, LooksForAPathNowhereElse) {
  const std::string tool = (folder_ / "second/tool").string();
  EXPECT_EQ(find_program(tool), tool);
  EXPECT_FALSE(find_program((folder_ / "first/text").string()));
  EXPECT_FALSE(find_program("./tool"));
}

TEST_F(FindProgram, AnEmptyEntryIsTheWorkingFolder) {
  const std::string here = std::filesystem::current_path().string();
  ::setenv("PATH", ":/nowhere", 1);
  std::filesystem::current_path(folder_ / "second");
  EXPECT_EQ(find_program("tool"), "./tool");
  std::filesystem::current_path(here);
}

}  // namespace
}  // namespace kansoku::sys
