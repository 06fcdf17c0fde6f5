// SPDX-License-Identifier: Apache-2.0
#include "sys/process_memory.h"

#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cstring>
#include <string_view>
#include <vector>

namespace kansoku::sys {
namespace {

constexpr std::size_t kPage = 4096;

/// Three pages in a row, full of 'a' to 'c'; behind them there is nothing.
class ProcessMemory : public testing::Test {
 protected:
  void SetUp() override {
    void* const made =
        ::mmap(nullptr, 4 * kPage, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    ASSERT_NE(made, MAP_FAILED);
    pages_ = static_cast<char*>(made);
    for (std::size_t i = 0; i < 3; ++i)
      std::memset(pages_ + i * kPage, static_cast<char>('a' + i), kPage);
    ASSERT_EQ(::munmap(pages_ + 3 * kPage, kPage), 0);
  }
  void TearDown() override { ::munmap(pages_, 3 * kPage); }

  [[nodiscard]] std::uint64_t at(std::size_t offset) const {
    return reinterpret_cast<std::uint64_t>(pages_) + offset;
  }
  static std::string read(std::int32_t pid, std::uint64_t address, std::size_t bytes) {
    std::string out(bytes, '-');
    out.resize(read_process_memory(pid, address,
                                   std::as_writable_bytes(std::span(out.data(), out.size()))));
    return out;
  }
  char* pages_{nullptr};
};

TEST_F(ProcessMemory, IsReadOfTheOwnProcess) {
  EXPECT_EQ(read(::getpid(), at(kPage - 2), 4), "aabb");
  EXPECT_EQ(read(::getpid(), at(0), 3 * kPage),
            std::string(kPage, 'a') + std::string(kPage, 'b') + std::string(kPage, 'c'));
  EXPECT_EQ(read(::getpid(), at(0), 0), "");
}

TEST_F(ProcessMemory, IsReadUpToThePageThatIsNotThere) {
  EXPECT_EQ(read(::getpid(), at(3 * kPage - 4), 8), "cccc");
  EXPECT_EQ(read(::getpid(), at(3 * kPage), 8), "");
  EXPECT_EQ(read(::getpid(), 0, 8), "");
  EXPECT_EQ(read(::getpid(), ~std::uint64_t{0} - 3, 8), "");
  ASSERT_EQ(::mprotect(pages_ + kPage, kPage, PROT_NONE), 0);
  EXPECT_EQ(read(::getpid(), at(kPage - 4), 8), "aaaa");
  EXPECT_EQ(read(::getpid(), at(kPage), 8), "");
}

TEST_F(ProcessMemory, OfAChildIsThatOfTheChild) {
  std::array<int, 2> ready{}, over{};
  ASSERT_EQ(::pipe(ready.data()), 0);
  ASSERT_EQ(::pipe(over.data()), 0);
  const pid_t child = ::fork();
  if (child == 0) {
    std::memcpy(pages_, "child", 6);
    char byte = 0;
    const bool is_told =
        ::write(ready[1], &byte, 1) == 1 && ::close(over[1]) == 0 && ::read(over[0], &byte, 1) == 0;
    ::_exit(is_told ? 0 : 1);
  }
  char byte = 0;
  ASSERT_EQ(::read(ready[0], &byte, 1), 1);
  EXPECT_EQ(read_process_text(child, at(0), 64), "child");
  EXPECT_EQ(read(::getpid(), at(0), 5), "aaaaa");
  for (const int end : {ready[0], ready[1], over[0], over[1]})
    ::close(end);
  int status = -1;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
  // No process has that number until it is used again, which takes all the others first.
  EXPECT_EQ(read(child, at(0), 5), "");
  EXPECT_EQ(read_process_text(child, at(0), 64), "");
}

TEST_F(ProcessMemory, OfNoProcessIsNone) {
  EXPECT_EQ(read(-1, at(0), 4), "");
  EXPECT_EQ(read(0x7fffffff, at(0), 4), "");
}

TEST_F(ProcessMemory, TextsEndWithinTheLimit) {
  std::memcpy(pages_ + 8, "abc", 4);
  for (const auto& [limit, expected] : std::vector<std::pair<std::size_t, std::string_view>>{
           {0, ""}, {3, ""}, {4, "abc"}, {5, "abc"}, {3 * kPage, "abc"}})
    EXPECT_EQ(read_process_text(::getpid(), at(8), limit), expected) << limit;
  EXPECT_EQ(read_process_text(::getpid(), at(11), 64), "") << "it is empty";
}

TEST_F(ProcessMemory, TextsCrossPages) {
  pages_[2 * kPage + 1] = '\0';
  const std::string expected = "a" + std::string(kPage, 'b') + "c";
  EXPECT_EQ(read_process_text(::getpid(), at(kPage - 1), kPage + 3), expected);
  EXPECT_EQ(read_process_text(::getpid(), at(kPage - 1), kPage + 2), "");
}

TEST_F(ProcessMemory, TextsAtTheEndOfMemoryNeedAnEnd) {
  EXPECT_EQ(read_process_text(::getpid(), at(3 * kPage - 3), 64), "");
  pages_[3 * kPage - 1] = '\0';
  EXPECT_EQ(read_process_text(::getpid(), at(3 * kPage - 3), 64), "cc");
  EXPECT_EQ(read_process_text(::getpid(), at(3 * kPage), 64), "");
  EXPECT_EQ(read_process_text(::getpid(), 0, 64), "");
}

}  // namespace
}  // namespace kansoku::sys
