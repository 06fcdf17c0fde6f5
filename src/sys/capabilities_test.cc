// SPDX-License-Identifier: Apache-2.0
#include "sys/capabilities.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <string>

namespace kansoku::sys {
namespace {

using ::testing::Each;
using ::testing::Field;
using ::testing::Ne;
using ::testing::SizeIs;

constexpr std::uint64_t bit(Capability capability) {
  return std::uint64_t{1} << static_cast<unsigned>(capability);
}

TEST(Capabilities, WhatIsMissingHasANameAndAPurpose) {
  EXPECT_THAT(missing_capabilities(~std::uint64_t{0}), SizeIs(0));
  const auto all = missing_capabilities(0);
  EXPECT_THAT(all, SizeIs(6));
  EXPECT_EQ(all[0].name, "CAP_BPF");
  EXPECT_THAT(all, Each(Field(&CapabilityInfo::purpose, Ne(""))));
  const auto some = missing_capabilities(bit(Capability::kSysAdmin) | bit(Capability::kNetAdmin));
  ASSERT_THAT(some, SizeIs(2));
  EXPECT_EQ(some[0].name, "CAP_SYS_PTRACE");
  EXPECT_TRUE(has_capability(bit(Capability::kSysAdmin), Capability::kBpf));
  EXPECT_FALSE(has_capability(bit(Capability::kSysAdmin), Capability::kSysPtrace));
  EXPECT_FALSE(has_capability(bit(Capability::kBpf), Capability::kSysAdmin));
}

/// The mask behind `name` in /proc/self/status.
std::string status_line(const std::string& name) {
  std::ifstream file("/proc/self/status");
  std::string line;
  while (std::getline(file, line)) {
    if (line.starts_with(name)) return line.substr(name.size() + 2);
  }
  return "none";
}

/// Runs `body` in a child, whose number of failures is the result.
template <class Body>
int failures_in_child(Body body) {
  const pid_t child = ::fork();
  if (child == 0) ::_exit(body());
  int status = 0;
  EXPECT_EQ(::waitpid(child, &status, 0), child);
  return WIFEXITED(status) ? WEXITSTATUS(status) : 255;
}

/// Counts what is not so, with a line on standard error that says what.
struct Checks {
  int failed{0};
  void expect(bool is_so, const char* what) {
    if (is_so) return;
    ++failed;
    std::fprintf(stderr, "in the child: not so: %s\n", what);
  }
};

bool is_root_with_rights() {
  const auto set = effective_capabilities();
  constexpr std::uint64_t kNeeded =
      bit(Capability::kBpf) | bit(Capability::kSysPtrace) | bit(Capability::kDacReadSearch);
  return ::geteuid() == 0 && set && (*set & kNeeded) == kNeeded;
}

TEST(Capabilities, NothingIsLeftButWhatIsKept) {
  if (!is_root_with_rights()) GTEST_SKIP() << "needs root";
  const std::string path =
      ::testing::TempDir() + "kansoku-capabilities-" + std::to_string(getpid());
  std::ofstream(path) << "secret";
  ASSERT_EQ(::chown(path.c_str(), 12345, 12345), 0);
  ASSERT_EQ(::chmod(path.c_str(), 0600), 0);
  EXPECT_EQ(failures_in_child([&] {
              Checks checks;
              const std::array<Capability, 2> kept{Capability::kSysPtrace, Capability::kBpf};
              const auto done = keep_only(kept);
              checks.expect(done.has_value(), "keep_only");
              for (const char* const name : {"CapEff", "CapPrm", "CapBnd"})
                checks.expect(status_line(name) == "0000008000080000", name);
              for (const char* const name : {"CapInh", "CapAmb"})
                checks.expect(status_line(name) == "0000000000000000", name);
              checks.expect(::open(path.c_str(), O_WRONLY) < 0 && errno == EACCES, "no writing");
              checks.expect(::open(path.c_str(), O_RDONLY) < 0 && errno == EACCES, "no reading");
              checks.expect(::chown(path.c_str(), 0, 0) < 0 && errno == EPERM,
                            "no change of owner");
              // The C library's asks every thread; a sanitizer's keeps its rights.
              checks.expect(::syscall(SYS_setuid, 12345) < 0 && errno == EPERM, "no new user");
              checks.expect(::prctl(PR_SET_SECUREBITS, 0UL, 0UL, 0UL, 0UL) < 0, "locked");
              checks.expect(::prctl(PR_GET_NO_NEW_PRIVS, 0UL, 0UL, 0UL, 0UL) == 1, "no new rights");
              const auto left = effective_capabilities();
              checks.expect(left && *left == (bit(Capability::kSysPtrace) | bit(Capability::kBpf)),
                            "left");
              return checks.failed;
            }),
            0);
  // Reading alone may be kept.
  EXPECT_EQ(failures_in_child([&] {
              Checks checks;
              const std::array<Capability, 1> kept{Capability::kDacReadSearch};
              checks.expect(keep_only(kept).has_value(), "keep_only");
              checks.expect(::open(path.c_str(), O_RDONLY) >= 0, "reading");
              checks.expect(::open(path.c_str(), O_WRONLY) < 0 && errno == EACCES, "no writing");
              // A second time: less still, though CAP_SETPCAP is gone.
              checks.expect(keep_only({}).has_value() && effective_capabilities().value_or(1U) == 0,
                            "again");
              return checks.failed;
            }),
            0);
  ::unlink(path.c_str());
}

/// Root that starts a program has what was kept from it no more than before.
TEST(Capabilities, ProgramsThatAreStartedGetNothingBack) {
  if (!is_root_with_rights()) GTEST_SKIP() << "needs root";
  EXPECT_EQ(failures_in_child([] {
              if (!keep_only({})) return 100;
              ::execl("/bin/sh", "sh", "-c",
                      "grep -q '^CapEff:.0000000000000000' /proc/self/status && "
                      "grep -q '^CapBnd:.0000000000000000' /proc/self/status",
                      nullptr);
              return 101;
            }),
            0);
}

/// Without CAP_SETPCAP the bounding set stays, but a program of root with the bit to become it does
/// not become it.
TEST(Capabilities, AnOrdinaryUserGetsNothingNew) {
  if (!is_root_with_rights()) GTEST_SKIP() << "needs root";
  const std::string path = ::testing::TempDir() + "kansoku-id-" + std::to_string(getpid());
  std::filesystem::copy_file("/usr/bin/id", path);
  ASSERT_EQ(::chmod(path.c_str(), 04755), 0);
  const auto run = [&](bool gives_up) {
    return failures_in_child([&] {
      if (::setgid(12345) != 0 || ::setuid(12345) != 0) return 100;
      if (gives_up && !keep_only({})) return 101;
      ::execl("/bin/sh", "sh", "-c", "test \"$($0 -u)\" = 12345", path.c_str(), nullptr);
      return 102;
    });
  };
  const int otherwise = run(false);
  const int status = run(true);
  ::unlink(path.c_str());
  EXPECT_EQ(status, 0);
  if (otherwise == 0) GTEST_SKIP() << "no program becomes root in " << ::testing::TempDir();
}

}  // namespace
}  // namespace kansoku::sys
