// SPDX-License-Identifier: Apache-2.0
#include "capture/llm/names.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <iterator>
#include <vector>

#include "sys/elf.h"
#include "sys/procfs.h"

// As in ggml: a table of names, and one of symbols behind it. Exported (-rdynamic).
namespace {
struct Tables {
  std::array<const char*, 4> names{"NONE", "ADD", "MUL_MAT", "FLASH_ATTN_EXT"};
  std::array<const char*, 2> symbols{"x+y", "X*Y"};
};
const Tables kTables;
}  // namespace
// Without a sanitizer's instructions: its table is found in its code.
extern "C" [[gnu::noinline, gnu::no_sanitize_thread]] const char* ggml_op_name(int op);
const char* ggml_op_name(int op) {
  return kTables.names.data()[op];  // as ggml does: without a check
}
extern "C" [[gnu::noinline]] const char* ggml_version();
const char* ggml_version() {
  return "0.9.9-test";
}

namespace kansoku::capture::llm {
namespace {

using ::testing::ElementsAre;

std::vector<sys::Mapping> mappings_of(const std::string& end) {
  const auto all = sys::Procfs().maps(::getpid());
  EXPECT_TRUE(all.has_value());
  std::vector<sys::Mapping> out;
  std::copy_if(all->begin(), all->end(), std::back_inserter(out),
               [&](const sys::Mapping& one) { return one.path.find(end) != std::string::npos; });
  return out;
}

TEST(EngineNames, AreReadFromTheTableOfTheRunningLibrary) {
  ASSERT_STREQ(ggml_op_name(1), "ADD");
  ASSERT_STREQ(ggml_version(), "0.9.9-test");
  const auto file = sys::ElfFile::open("/proc/self/exe").value();
  const auto bias = sys::load_bias(*file, mappings_of("capture_llm_test"));
  ASSERT_TRUE(bias.has_value());
  const auto names = read_engine_names(::getpid(), *file, *bias);
  ASSERT_TRUE(names.has_value()) << names.error().what;
  EXPECT_THAT(names->ops, ElementsAre("NONE", "ADD", "MUL_MAT", "FLASH_ATTN_EXT"))
      << "up to the table behind it";
  EXPECT_EQ(names->version, "0.9.9-test");
  EXPECT_EQ(names->op("MUL_MAT"), 2U);
  EXPECT_FALSE(names->op("MUL_MAT_ID").has_value());
}

TEST(EngineNames, AreNotGuessedWhereTheTableCannotBeRead) {
  const auto file = sys::ElfFile::open("/proc/self/exe").value();
  const auto elsewhere = read_engine_names(::getpid(), *file, 0x1000);
  ASSERT_FALSE(elsewhere.has_value());
  EXPECT_EQ(elsewhere.error().code, Code::kUnsupported);
}

// The library's table before and after the dynamic linker went over it: somewhere else, so that the
// test can fill it in.
TEST(EngineNames, AreAwaitedUntilTheirTableIsRelocated) {
  static std::array<std::uint64_t, 8> table{};
  const auto file = sys::ElfFile::open("/proc/self/exe").value();
  const auto real = sys::load_bias(*file, mappings_of("capture_llm_test"));
  ASSERT_TRUE(real.has_value());
  const auto address = [](const void* at) { return reinterpret_cast<std::uint64_t>(at); };
  const std::uint64_t bias = *real + address(table.data()) - address(&kTables);
  const auto code = [&] {
    const auto names = read_engine_names(::getpid(), *file, bias);
    return names.has_value() ? Code::kInternal : names.error().code;
  };
  EXPECT_EQ(code(), Code::kUnavailable) << "empty";
  table[0] = address(kTables.names[0]);
  EXPECT_EQ(code(), Code::kUnavailable) << "half of it";
  for (std::size_t i = 0; i < kTables.names.size(); ++i)
    table.at(i) = address(kTables.names.at(i)) - bias;
  EXPECT_EQ(code(), Code::kUnavailable) << "addresses in the file";
  for (std::size_t i = 0; i < kTables.names.size(); ++i)
    table.at(i) = address(kTables.names.at(i));
  const auto names = read_engine_names(::getpid(), *file, bias);
  ASSERT_TRUE(names.has_value()) << names.error().what;
  EXPECT_THAT(names->ops, ElementsAre("NONE", "ADD", "MUL_MAT", "FLASH_ATTN_EXT"));
}

TEST(EngineNames, OfAProcessThatHasEndedAreUnavailable) {
  const auto file = sys::ElfFile::open("/proc/self/exe").value();
  const auto bias = sys::load_bias(*file, mappings_of("capture_llm_test"));
  ASSERT_TRUE(bias.has_value());
  const pid_t child = ::fork();
  if (child == 0) ::_exit(0);
  siginfo_t info{};
  ASSERT_EQ(::waitid(P_PID, static_cast<id_t>(child), &info, WEXITED | WNOWAIT), 0);
  const auto ended = read_engine_names(child, *file, *bias);
  ASSERT_EQ(::waitpid(child, nullptr, 0), child);
  ASSERT_FALSE(ended.has_value()) << "its parent has not asked for it yet";
  EXPECT_EQ(ended.error().code, Code::kUnavailable);
  const auto nobody = read_engine_names(0x7fffffff, *file, *bias);
  ASSERT_FALSE(nobody.has_value()) << "no such process";
  EXPECT_EQ(nobody.error().code, Code::kUnavailable);
}

TEST(EngineNames, NeedTheFunction) {
  const auto libc = mappings_of("/libc.so.6");
  ASSERT_FALSE(libc.empty());
  const auto file = sys::ElfFile::open(libc.front().path).value();
  const auto names = read_engine_names(::getpid(), *file, 0);
  ASSERT_FALSE(names.has_value());
  EXPECT_EQ(names.error().code, Code::kNotFound);
}

}  // namespace
}  // namespace kansoku::capture::llm
