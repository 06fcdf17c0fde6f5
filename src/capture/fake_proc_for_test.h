// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <string>
#include <system_error>

#include "sys/fd.h"
#include "sys/procfs.h"

namespace kansoku::capture {

/// A folder laid out like /proc.
class FakeProc : public ::testing::Test {
 protected:
  FakeProc() {
    std::string pattern = (std::filesystem::temp_directory_path() / "kansoku_proc_XXXXXX").string();
    EXPECT_NE(::mkdtemp(pattern.data()), nullptr);
    root_ = pattern;
  }
  ~FakeProc() override {
    std::error_code ignored;
    std::filesystem::remove_all(root_, ignored);
  }
  void add(std::int32_t pid, std::int32_t parent, const std::string& comm,
           const std::string& environ, std::uint64_t start_ticks = 100) const {
    const std::string folder = fmt::format("{}/{}", root_, pid);
    std::filesystem::create_directories(folder);
    const std::string stat =
        fmt::format("{} ({}) S {} 1 1 0 -1 4194304 1 0 0 0 5 6 0 0 20 0 1 0 {} 1 2 3\n", pid, comm,
                    parent, start_ticks);
    EXPECT_TRUE(sys::write_file(folder + "/stat", stat));
    EXPECT_TRUE(sys::write_file(folder + "/cmdline", comm + std::string("\0-c\0x", 5)));
    EXPECT_TRUE(sys::write_file(folder + "/environ", environ));
  }
  static std::string rank(int rank, int world_size = 2) {
    return fmt::format("PATH=/bin{0}RANK={1}{0}WORLD_SIZE={2}{0}MASTER_PORT=1{0}", '\0', rank,
                       world_size);
  }
  [[nodiscard]] sys::Procfs procfs() const { return sys::Procfs(root_); }
  std::string root_;
};

}  // namespace kansoku::capture
