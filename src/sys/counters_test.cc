// SPDX-License-Identifier: Apache-2.0
// Figures that are read again and again: processes, pressure, control groups.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <filesystem>
#include <fstream>
#include <vector>

#include "sys/cgroup.h"
#include "sys/pressure.h"
#include "sys/process_counters.h"
#include "sys/wait_for_test.h"

namespace kansoku::sys {
namespace {

constexpr std::string_view kStat =
    "42 (a) b (c) S 7 42 42 0 -1 4194304 100 0 9 0 11 22 0 0 20 0 3 0 98765 1000000 250 1844\n";

class CounterFiles : public ::testing::Test {
 protected:
  CounterFiles()
      : root_(::testing::TempDir() + "kansoku-counters-" + std::to_string(::getpid()) + "-" +
              ::testing::UnitTest::GetInstance()->current_test_info()->name()) {
    std::filesystem::remove_all(root_);
  }
  ~CounterFiles() override { std::filesystem::remove_all(root_); }
  void file(const std::string& path, std::string_view text) const {
    const std::filesystem::path at = root_ + "/" + path;
    std::filesystem::create_directories(at.parent_path());
    std::ofstream(at) << text;
  }
  [[nodiscard]] Result<CgroupCpuSampler> cpu_of(std::int32_t pid) const {
    return CgroupCpuSampler::open(
        pid, {.proc_root = root_ + "/proc", .cgroup_root = root_ + "/fs", .own_pid = 3});
  }
  std::string root_;
};

TEST_F(CounterFiles, ProcessFromRecordedText) {
  file("42/stat", kStat);
  file("42/io", "rchar: 1\nwchar: 2\nread_bytes: 4096\nwrite_bytes: 8192\ncancelled: 1\n");
  file("42/schedstat", "123456 789 10\n");
  const auto sampler = ProcessSampler::open(42, {.proc_root = root_, .main_schedule = true});
  ASSERT_TRUE(sampler) << sampler.error().what;
  EXPECT_EQ(sampler->start_ticks(), 98765U);
  auto counters = sampler->sample();
  ASSERT_TRUE(counters) << counters.error().what;
  EXPECT_EQ(counters->state, 'S');
  EXPECT_EQ(counters->user_ns,
            11 * std::uint64_t{1'000'000'000} / static_cast<std::uint64_t>(sysconf(_SC_CLK_TCK)));
  EXPECT_EQ(counters->system_ns, 2 * counters->user_ns);
  EXPECT_EQ(counters->minor_faults, 100U);
  EXPECT_EQ(counters->major_faults, 9U);
  EXPECT_EQ(counters->threads, 3U);
  EXPECT_EQ(counters->resident_bytes, 250U * static_cast<unsigned>(sysconf(_SC_PAGESIZE)));
  EXPECT_EQ(counters->read_bytes, 4096U);
  EXPECT_EQ(counters->written_bytes, 8192U);
  EXPECT_EQ(counters->main_run_ns, 123456U);
  EXPECT_EQ(counters->main_wait_ns, 789U);
  file("42/task/42/stat",
       "42 (b) R 7 42 42 0 -1 4194304 60 0 5 0 22 11 0 0 20 0 3 0 98765 1 1 1\n");
  const auto thread = ProcessSampler::open(42, {.proc_root = root_, .main_thread_only = true});
  ASSERT_TRUE(thread) << thread.error().what;
  EXPECT_EQ(thread->sample()->minor_faults, 60U);
  EXPECT_EQ(thread->sample()->user_ns, counters->system_ns);
  file("42/io", "read_bytes: x\nwrite_bytes: -1\n");  // the same files with other text
  file("42/schedstat", "12\n");
  counters = sampler->sample();
  EXPECT_EQ(counters->read_bytes, std::nullopt);
  EXPECT_EQ(counters->written_bytes, std::nullopt);
  EXPECT_EQ(counters->main_wait_ns, std::nullopt);
  file("42/stat", "42 (b) R 7 42 42 0 -1 4194304 100 0 9 0 11 22 0 0 20 0 3 0 98766 1 1 1\n");
  EXPECT_EQ(sampler->sample().error().code, Code::kNotFound);  // another process
  file("42/stat", "42 (b");
  EXPECT_EQ(sampler->sample().error().code, Code::kCorrupt);
  EXPECT_EQ(ProcessSampler::open(43, {.proc_root = root_}).error().code, Code::kNotFound);
}

TEST(ProcessCounters, OfThisProcess) {
  const auto sampler = ProcessSampler::open(::getpid());
  ASSERT_TRUE(sampler) << sampler.error().what;
  const auto before = sampler->sample();
  ASSERT_TRUE(before) << before.error().what;
  constexpr std::size_t kBytes = std::size_t{64} << 20;
  void* const memory =
      ::mmap(nullptr, kBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  ASSERT_NE(memory, MAP_FAILED);
  for (std::size_t i = 0; i < kBytes; i += 4096)
    static_cast<volatile char*>(memory)[i] = 1;
  const auto after = sampler->sample();
  ::munmap(memory, kBytes);
  ASSERT_TRUE(after);
  EXPECT_GE(after->resident_bytes, before->resident_bytes + kBytes / 2);
  EXPECT_GT(after->minor_faults, before->minor_faults);
  EXPECT_GE(after->threads, 1U);
  EXPECT_GE(after->user_ns + after->system_ns, before->user_ns + before->system_ns);
}

TEST(ProcessCounters, AProcessThatEnds) {
  const pid_t child = ::fork();
  if (child == 0) {
    ::pause();
    ::_exit(0);
  }
  const auto sampler = ProcessSampler::open(child);
  ASSERT_TRUE(sampler) << sampler.error().what;
  EXPECT_TRUE(sampler->sample());
  ::kill(child, SIGKILL);
  siginfo_t info{};
  ASSERT_EQ(::waitid(P_PID, static_cast<id_t>(child), &info, WEXITED | WNOWAIT), 0);
  const auto dead = sampler->sample();
  ASSERT_TRUE(dead) << dead.error().what;
  EXPECT_EQ(dead->state, 'Z');
  EXPECT_EQ(dead->resident_bytes, 0U);
  ASSERT_EQ(::waitpid(child, nullptr, 0), child);
  const auto gone = sampler->sample();
  ASSERT_FALSE(gone);
  EXPECT_EQ(gone.error().code, Code::kNotFound);
}

TEST(Pressure, FromText) {
  const auto both = parse_pressure(
      "some avg10=4.72 avg60=6.74 avg300=7.08 total=26909044928\n"
      "full avg10=0.00 avg60=0.00 avg300=0.00 total=12\n");
  EXPECT_EQ(both.some_us, 26909044928U);
  EXPECT_EQ(both.full_us, 12U);
  for (const char* const text :
       {"", "\n\n", "some", "some total=", "some total=x", "other total=5", " total=5",
        "some total=99999999999999999999999", "some total=5 6"}) {
    EXPECT_EQ(parse_pressure(text).some_us, std::nullopt) << text;
    EXPECT_EQ(parse_pressure(text).full_us, std::nullopt) << text;
  }
}

TEST_F(CounterFiles, PressureOfHostAndGroup) {
  file("cpu", "some avg10=0 total=7\n");
  file("cpu.pressure", "some avg10=0 total=8\nfull avg10=0 total=9\n");
  file("memory.pressure", "garbage");
  const auto host = PressureSampler::open_host(root_);
  ASSERT_TRUE(host) << host.error().what;
  const auto first = host->sample();
  EXPECT_EQ(first->cpu.some_us, 7U);
  EXPECT_EQ(first->cpu.full_us, std::nullopt);
  EXPECT_EQ(first->io.some_us, std::nullopt);
  const auto group = PressureSampler::open_cgroup(root_);
  ASSERT_TRUE(group) << group.error().what;
  EXPECT_EQ(group->sample()->cpu.full_us, 9U);
  EXPECT_EQ(group->sample()->memory.full_us, std::nullopt);
  const auto none = PressureSampler::open_host(root_ + "/none");
  ASSERT_FALSE(none);
  EXPECT_EQ(none.error().code, Code::kUnavailable);
  EXPECT_FALSE(none.error().hint.empty());
}

TEST(Pressure, OfThisHost) {
  const auto host = PressureSampler::open_host();
  if (!host) GTEST_SKIP() << host.error().what;
  const auto first = host->sample(), second = host->sample();
  ASSERT_TRUE(second) << second.error().what;
  EXPECT_GE(second->cpu.some_us.value_or(0), first->cpu.some_us.value_or(1));
}

TEST_F(CounterFiles, CgroupOfVersionTwo) {
  file("proc/7/cgroup", "0::/user.slice/job\n");
  file("fs/user.slice/job/cpu.stat",
       "usage_usec 500\nuser_usec 1\nnr_periods 10\nnr_throttled 4\nthrottled_usec 30\n");
  auto group = cpu_of(7);
  ASSERT_TRUE(group) << group.error().what;
  const auto cpu = group->sample();
  EXPECT_EQ(cpu->used_ns, 500'000U);
  EXPECT_EQ(cpu->periods, 10U);
  EXPECT_EQ(cpu->throttled_periods, 4U);
  EXPECT_EQ(cpu->throttled_ns, 30'000U);
  file("fs/user.slice/job/cpu.stat", "usage_usec 700\n");
  EXPECT_EQ(group->sample()->used_ns, 700'000U);
}

TEST_F(CounterFiles, AProcessThatIsMovedIsFollowed) {
  file("proc/7/cgroup", "0::/one\n");
  file("fs/one/cpu.stat", "usage_usec 1\n");
  file("fs/other/cpu.stat", "usage_usec 20\n");
  auto group = cpu_of(7);
  EXPECT_EQ(group->sample()->used_ns, 1'000U);
  file("proc/7/cgroup", "0::/other\n");
  EXPECT_EQ(group->sample()->used_ns, 20'000U);
  file("proc/7/cgroup", "0::/nowhere\n");
  EXPECT_EQ(group->sample().error().code, Code::kUnavailable);
  file("proc/7/cgroup", "0::/one\n");
  EXPECT_EQ(group->sample()->used_ns, 1'000U);
}

TEST_F(CounterFiles, GroupsOutsideOfTheOwnNamespaceAreFoundInTheTreeOfTheHost) {
  file("proc/3/cgroup", "0::/\n");
  file("fs/cgroup.procs", "1\n2\n");
  file("fs/pods/agent/main/cgroup.procs", "30\n3\n");
  file("proc/7/cgroup", "0::/../../job/main\n");
  file("fs/pods/job/main/cpu.stat", "usage_usec 500\n");
  file("proc/8/cgroup", "0::/../../../system.slice\n");
  file("fs/system.slice/cpu.stat", "usage_usec 7\n");
  file("proc/9/cgroup", "0::/../../../../etc\n");
  file("fs/etc/cpu.stat", "usage_usec 9\n");
  file("proc/10/cgroup", "0::/../../job/../../../etc\n");
  EXPECT_EQ(cpu_of(7)->sample()->used_ns, 500'000U);
  EXPECT_EQ(cpu_of(8)->sample()->used_ns, 7'000U);
  for (const std::int32_t pid : {9, 10})
    EXPECT_FALSE(cpu_of(pid)->sample()) << pid;
}

TEST_F(CounterFiles, AnAgentBelowTheGroupOfItsNamespaceKnowsWhereThatBegins) {
  file("proc/3/cgroup", "0::/init\n");
  file("fs/pods/agent/init/cgroup.procs", "3\n");
  file("proc/7/cgroup", "0::/../job\n");
  file("fs/pods/job/cpu.stat", "usage_usec 500\n");
  EXPECT_EQ(cpu_of(7)->sample()->used_ns, 500'000U);
}

TEST_F(CounterFiles, WhereTheTreeContradictsTheOwnPathNothingIsKnownOfTheRest) {
  file("proc/3/cgroup", "0::/init\n");
  file("fs/pods/agent/main/cgroup.procs", "3\n");
  file("proc/7/cgroup", "0::/../job\n");
  file("fs/pods/job/cpu.stat", "usage_usec 500\n");
  EXPECT_FALSE(cpu_of(7)->sample());
}

TEST_F(CounterFiles, WhereOnlyTheOwnPartOfTheTreeIsMountedNothingIsKnownOfTheRest) {
  file("proc/3/cgroup", "0::/\n");
  file("proc/7/cgroup", "0::/../job\n");
  file("fs/job/cpu.stat", "usage_usec 500\n");  // another one of that name
  EXPECT_FALSE(cpu_of(7)->sample());
}

TEST_F(CounterFiles, RoomForMemoryIsThatOfTheNarrowestGroupOrTheHost) {
  const auto room = [this](std::int32_t pid) {
    return memory_room(pid,
                       {.proc_root = root_ + "/proc", .cgroup_root = root_ + "/fs", .own_pid = 3});
  };
  EXPECT_FALSE(room(7).has_value());
  file("proc/meminfo", "MemTotal: 9 kB\nMemAvailable:    4000 kB\nBuffers: 1 kB\n");
  EXPECT_EQ(room(7)->bytes, 4000U * 1024U) << "no group is known";
  file("proc/7/cgroup", "0::/pod/job\n");
  file("fs/pod/job/memory.max", "max\n");
  file("fs/pod/job/memory.current", "500\n");
  EXPECT_EQ(room(7)->bytes, 4000U * 1024U) << "a group without limit";
  EXPECT_EQ(room(7)->group, "");
  file("fs/pod/memory.max", "3000\n");
  file("fs/pod/memory.current", "1000\n");
  EXPECT_EQ(room(7)->bytes, 2000U) << "that of the group around it";
  EXPECT_EQ(room(7)->group, "/pod");
  EXPECT_EQ(room(7)->limit_bytes, 3000U);
  file("fs/pod/job/memory.max", "400\n");
  EXPECT_EQ(room(7)->bytes, 0U) << "above its limit already";
  file("proc/8/cgroup", "5:memory:/old\n0::/\n");
  file("fs/memory/old/memory.limit_in_bytes", "7000\n");
  file("fs/memory/old/memory.usage_in_bytes", "6000\n");
  EXPECT_EQ(room(8)->bytes, 1000U) << "version 1";
  file("proc/meminfo", "MemAvailable: many kB\n");
  EXPECT_EQ(room(8)->bytes, 1000U);
}

TEST_F(CounterFiles, QuotasOfGroupsAroundItCountToo) {
  file("proc/7/cgroup", "0::/pod/job\n");
  file("fs/pod/job/cpu.stat", "usage_usec 500\nthrottled_usec 30\n");
  file("fs/pod/cpu.stat", "usage_usec 900\nthrottled_usec 5\n");
  file("fs/cpu.stat", "usage_usec 9000\nthrottled_usec 1000\n");  // of the host
  EXPECT_EQ(cpu_of(7)->sample()->throttled_ns, 35'000U);
  EXPECT_EQ(cpu_of(7)->sample()->used_ns, 500'000U);
  file("proc/8/cgroup", "0::/pod/free\n");
  file("fs/pod/free/cpu.stat", "usage_usec 500\n");
  EXPECT_EQ(cpu_of(8)->sample()->throttled_ns, 5'000U);
}

TEST_F(CounterFiles, LimitsOfAProcess) {
  const auto limits = [this](std::int32_t pid) {
    return cpu_limits(pid,
                      {.proc_root = root_ + "/proc", .cgroup_root = root_ + "/fs", .own_pid = 3});
  };
  EXPECT_EQ(limits(7).error().code, Code::kNotFound);
  file("proc/7/status", "Name:\tx\nCpus_allowed:\tf\nCpus_allowed_list:\t0-3,8\n");
  EXPECT_EQ(limits(7)->cpus, "0-3,8");
  EXPECT_EQ(limits(7)->cpu_count, 5U);
  EXPECT_FALSE(limits(7)->quota_cpus);
  file("proc/7/cgroup", "0::/pod/job\n");
  file("fs/pod/job/cpu.max", "max 100000\n");
  EXPECT_FALSE(limits(7)->quota_cpus);
  file("fs/pod/cpu.max", "50000 100000\n");
  EXPECT_EQ(limits(7)->quota_cpus, 0.5);
  EXPECT_EQ(limits(7)->quota_group, "/pod");
  file("fs/pod/job/cpu.max", "20000 10000\n");
  EXPECT_EQ(limits(7)->quota_group, "/pod") << "the least counts";
  file("proc/8/status", "Cpus_allowed_list:\t1\n");
  file("proc/8/cgroup", "5:cpu,cpuacct:/old\n");
  file("fs/cpu,cpuacct/old/cpu.cfs_quota_us", "30000\n");
  file("fs/cpu,cpuacct/old/cpu.cfs_period_us", "10000\n");
  EXPECT_EQ(limits(8)->quota_cpus, 3.0);
  file("fs/cpu,cpuacct/old/cpu.cfs_quota_us", "-1\n");
  EXPECT_FALSE(limits(8)->quota_cpus);
}

TEST(CountCpus, OfHostileLists) {
  EXPECT_EQ(count_cpus("0"), 1U);
  EXPECT_EQ(count_cpus("0-1,4-5"), 4U);
  for (const char* const text : {"", "x", "1-", "-1", "3-2", "0-4294967295", "0,,1", "1-2-3"})
    EXPECT_EQ(count_cpus(text), 0U) << text;
}

TEST_F(CounterFiles, CgroupOfVersionOneAndBoth) {
  file("proc/7/cgroup", "5:cpu,cpuacct:/job\n4:memory:/job\n1:name=systemd:/x\n0::/other\n");
  file("fs/cpu,cpuacct/job/cpu.stat", "nr_periods 10\nnr_throttled 4\nthrottled_time 77\n");
  file("fs/unified/other/cpu.stat", "usage_usec 500\n");
  auto group = cpu_of(7);
  ASSERT_TRUE(group) << group.error().what;
  EXPECT_EQ(group->sample()->throttled_ns, 77U);
  EXPECT_EQ(group->sample()->used_ns, std::nullopt);
}

TEST_F(CounterFiles, HostileGroups) {
  for (const char* const text : {"", "0", "0:", "0::", "::", "0::/../../etc", "\n\n:\n",
                                 "9:cpu:/../..\n9:memory:/..", "cpu,memory"}) {
    file("proc/7/cgroup", text);
    const auto cpu = cpu_of(7)->sample();
    ASSERT_FALSE(cpu) << text;
    EXPECT_EQ(cpu.error().code, Code::kUnavailable) << text;
  }
  EXPECT_EQ(cpu_of(8).error().code, Code::kNotFound);
  EXPECT_EQ(parse_cpu_stat("throttled_usec 18446744073709551615").throttled_ns, std::nullopt);
  EXPECT_EQ(parse_cpu_stat("nr_periodsx 1\nnr_periods\nnr_throttled -1").periods, std::nullopt);
}

/// On hosts with version 1 of the processor controller, where one may be made; else skipped.
TEST(Cgroup, AQuotaIsSeen) {
  const std::string folder = "/sys/fs/cgroup/cpu/kansoku-test-" + std::to_string(::getpid());
  if (::mkdir(folder.c_str(), 0700) != 0) GTEST_SKIP() << "may not make " << folder;
  std::ofstream(folder + "/cpu.cfs_period_us") << 10'000;
  std::ofstream(folder + "/cpu.cfs_quota_us") << 1'000;
  const pid_t child = ::fork();
  if (child == 0) {
    volatile std::uint64_t turns = 0;
    while (true)
      turns = turns + 1;
  }
  std::ofstream(folder + "/cgroup.procs") << child;
  auto group = CgroupCpuSampler::open(child);
  ASSERT_TRUE(group) << group.error().what;
  CgroupCpu seen;
  const auto is_seen = [&] {  // the kernel counts one after the other
    return seen.throttled_ns.value_or(0) != 0 && seen.throttled_periods.value_or(0) != 0;
  };
  EXPECT_TRUE(poll_for_test([&] {
    seen = group->sample().value();
    return is_seen();
  }));
  ::kill(child, SIGKILL);
  ::waitpid(child, nullptr, 0);
  EXPECT_GT(seen.throttled_periods.value_or(0), 0U);
  EXPECT_GT(seen.throttled_ns.value_or(0), 0U);
  EXPECT_EQ(::rmdir(folder.c_str()), 0);
  const auto gone = group->sample();
  ASSERT_FALSE(gone);
  EXPECT_EQ(gone.error().code, Code::kNotFound);
}

constexpr const char* kId = "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef";
constexpr const char* kUid = "11111111-2222-3333-4444-555555555555";

TEST(ContainerNames, OfKnownRuntimes) {
  const std::string id = kId, uid = kUid, slice = "11111111_2222_3333_4444_555555555555";
  const std::string pod = "/kubepods.slice/kubepods-pod" + slice + ".slice";
  const std::vector<std::tuple<std::string, std::string, std::string>> cases{
      {"/docker/" + id, "docker", ""},
      {"/system.slice/docker-" + id + ".scope", "docker", ""},
      {"/user.slice/user@1000.service/app.slice/docker-" + id + ".scope/init", "docker", ""},
      {"/kubepods/besteffort/pod" + uid + "/" + id, "", uid},
      {pod + "/cri-containerd-" + id + ".scope", "containerd", uid},
      {pod + "/crio-" + id + ".scope", "cri-o", uid},
      {"/kubepods-burstable-pod" + slice + ".slice:cri-containerd:" + id, "containerd", uid},
      {"/machine.slice/libpod-" + id + ".scope/container", "podman", ""},
      {"/docker/" + std::string(64, 'a') + pod + "/cri-containerd-" + id + ".scope", "containerd",
       uid},
      {"/../../docker/" + id, "docker", ""},  // from another namespace
  };
  for (const auto& [path, runtime, pod_uid] : cases) {
    const Container wanted{runtime, id, pod_uid};
    for (const std::string& text : {"0::" + path + "\n", "3:cpu:" + path, "1:x:/\n0::" + path}) {
      const auto found = parse_container(text);
      ASSERT_TRUE(found) << text;
      EXPECT_EQ(*found, wanted) << text;
    }
  }
}

TEST(ContainerNames, NothingElse) {
  const std::string id = kId;
  for (const std::string& text : std::vector<std::string>{
           "", "/", "0::/", "0::/user.slice/session-1.scope", "0::/docker/" + id.substr(1),
           "0::/x" + id, "0::/libpod-conmon-" + id + ".scope", "0::/crio-conmon-" + id + ".scope",
           "0::/docker/" + std::string(64, 'G'), "0::/pod" + std::string(kUid) + "/x",
           std::string(100'000, '/'), std::string("0::/a\0b", 7)})
    EXPECT_FALSE(parse_container(text)) << text.substr(0, 100);
  EXPECT_FALSE(container_of(0));
}

}  // namespace
}  // namespace kansoku::sys
