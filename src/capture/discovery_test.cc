// SPDX-License-Identifier: Apache-2.0
#include "capture/internal/discovery.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "capture/watcher.h"

namespace kansoku::capture {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

/// A folder laid out like /proc.
class DiscoveryProc {
 public:
  DiscoveryProc() : root_(::testing::TempDir() + "kansoku-discovery-XXXXXX") {
    EXPECT_NE(::mkdtemp(root_.data()), nullptr);
  }
  ~DiscoveryProc() { std::filesystem::remove_all(root_); }
  void put(int pid, std::uint64_t pages, const std::string& library) {
    const std::string folder = root_ + "/" + std::to_string(pid);
    std::filesystem::create_directories(folder);
    std::ofstream(folder + "/statm") << pages << " 10 5 1 0 3 0\n";
    std::ofstream(folder + "/maps")
        << "7f0000000000-7f0000001000 r-xp 00000000 08:01 42 " << library << "\n";
  }
  void remove(int pid) { std::filesystem::remove_all(root_ + "/" + std::to_string(pid)); }
  [[nodiscard]] const std::string& root() const { return root_; }

 private:
  std::string root_;
};

struct Watched {
  std::vector<std::int32_t> found;
  Discovery::OnFound on_found = [this](std::int32_t pid, const std::vector<sys::Mapping>& maps) {
    EXPECT_EQ(maps.size(), 1U);
    found.push_back(pid);
  };
};

TEST(Discovery, FindsAProcessThatLoadsALibraryLater) {
  DiscoveryProc proc;
  const sys::Procfs procfs(proc.root());
  Discovery discovery(procfs, 10);
  Watched watched;
  proc.put(5, 100, "/usr/bin/python3.11");
  BootTime now = boot_time(1'000'000'000);
  discovery.add(5, now);
  discovery.poll(now + milliseconds{100}, watched.on_found);
  EXPECT_TRUE(watched.found.empty());
  discovery.poll(now + milliseconds{250}, watched.on_found);
  EXPECT_EQ(discovery.size(), 1U);
  proc.put(5, 900, "/usr/lib/x86_64-linux-gnu/libtorch_cpu.so.1.13");
  for (int i = 0; i < 20 && watched.found.empty(); ++i)
    discovery.poll(now += milliseconds{200}, watched.on_found);
  EXPECT_EQ(watched.found, std::vector<std::int32_t>{5});
  EXPECT_EQ(discovery.size(), 0U);
}

TEST(Discovery, ReadsMappingsOnlyOfProcessesThatGrew) {
  DiscoveryProc proc;
  const sys::Procfs procfs(proc.root());
  Discovery discovery(procfs, 10);
  Watched watched;
  proc.put(5, 100, "/usr/bin/sleep");
  BootTime now = boot_time(0);
  discovery.add(5, now);
  discovery.poll(now += seconds{1}, watched.on_found);
  proc.put(5, 100, "/usr/lib/libnccl.so.2");  // no larger: nobody looks
  discovery.poll(now += seconds{100}, watched.on_found);
  EXPECT_TRUE(watched.found.empty());
}

TEST(Discovery, ShortLivedProcessesLeaveNothing) {
  DiscoveryProc proc;
  const sys::Procfs procfs(proc.root());
  Discovery discovery(procfs, 5000);
  Watched watched;
  BootTime now = boot_time(0);
  for (int pid = 10; pid < 3010; ++pid)
    discovery.add(pid, now);
  for (int i = 0; i < 3000 / static_cast<int>(Discovery::kGlancesPerPoll) + 2; ++i)
    discovery.poll(now += milliseconds{200}, watched.on_found);
  EXPECT_EQ(discovery.size(), 0U);
  EXPECT_EQ(discovery.over_limit(), 0U);
}

TEST(Discovery, ThoseThatAreGoneDoNotDelayTheOneThatIsThere) {
  DiscoveryProc proc;
  const sys::Procfs procfs(proc.root());
  Discovery discovery(procfs, 16'384);
  Watched watched;
  BootTime now = boot_time(0);
  for (int pid = 10; pid < 1510; ++pid)
    discovery.add(pid, now);
  proc.put(5'000, 900, "/usr/lib/libcuda.so.550.54.15");
  discovery.add(5'000, now);
  discovery.poll(now += milliseconds{200}, watched.on_found);
  EXPECT_EQ(watched.found, std::vector<std::int32_t>{5'000});
}

TEST(Discovery, ReadsNoMoreMappingsAtOnceThanItMay) {
  DiscoveryProc proc;
  const sys::Procfs procfs(proc.root());
  Discovery discovery(procfs, 100);
  Watched watched;
  BootTime now = boot_time(0);
  for (int pid = 1; pid <= 50; ++pid) {
    proc.put(pid, 900, "/usr/lib/libcuda.so.1");
    discovery.add(pid, now);
  }
  discovery.poll(now += milliseconds{200}, watched.on_found);
  EXPECT_EQ(watched.found.size(), Discovery::kLooksPerPoll);
}

TEST(Discovery, IsBounded) {
  DiscoveryProc proc;
  const sys::Procfs procfs(proc.root());
  Discovery discovery(procfs, 3);
  for (int pid = 1; pid <= 5; ++pid)
    discovery.add(pid, boot_time(0));
  EXPECT_EQ(discovery.size(), 3U);
  EXPECT_EQ(discovery.over_limit(), 2U);
  discovery.add(2, boot_time(1));  // one it has already: an exec
  EXPECT_EQ(discovery.over_limit(), 2U);
}

TEST(AiLibrary, GoesByTheNameOfTheFile) {
  for (const char* name :
       {"libcuda.so.1", "libcudart.so.12", "libnccl.so.2", "libtorch_cpu.so", "libtorch.so.2.4",
        "libgloo.so.0", "libpython3.11.so.1.0", "libggml-base.so", "libllama.v0.5.0.so",
        "libOpenCL.so.1", "libjax_common.so", "libtensorflow_cc.so.2", "libamdhip64.so.6"})
    EXPECT_TRUE(is_ai_library(name)) << name;
  for (const char* name : {"libc.so.6", "python3.11", "", "notlibtorch.so", "libtorch.txt"})
    EXPECT_FALSE(is_ai_library(name)) << name;
}

}  // namespace
}  // namespace kansoku::capture
