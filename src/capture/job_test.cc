// SPDX-License-Identifier: Apache-2.0
#include "capture/job.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <map>

#include "capture/fake_proc_for_test.h"
#include "sys/fd.h"
#include "trace/reader.h"
#include "trace/writer.h"

namespace kansoku::capture {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::Pair;

using Environ = std::map<std::string, std::string>;

std::string facts(const Environ& environ) {
  const RankFacts facts = rank_facts(environ);
  return fmt::format("{} {} {} {}", facts.job, facts.rank, facts.local_rank, facts.world_size);
}

const std::string kNothing = " -1 -1 -1";

TEST(RankFacts, ReadsTorchrun) {
  EXPECT_EQ(facts({{"RANK", "3"},
                   {"WORLD_SIZE", "8"},
                   {"LOCAL_RANK", "1"},
                   {"MASTER_ADDR", "10.0.0.1"},
                   {"MASTER_PORT", "29500"}}),
            "10.0.0.1:29500 3 1 8");
  EXPECT_EQ(facts({{"RANK", "0"}, {"WORLD_SIZE", "1"}, {"MASTER_PORT", "29500"}}),
            "localhost:29500 0 -1 1");
  EXPECT_EQ(facts({{"RANK", "0"}, {"WORLD_SIZE", "1"}}), "localhost: 0 -1 1");
}

TEST(RankFacts, ReadsOpenMpi) {
  EXPECT_EQ(facts({{"OMPI_COMM_WORLD_RANK", "1"},
                   {"OMPI_COMM_WORLD_SIZE", "4"},
                   {"OMPI_COMM_WORLD_LOCAL_RANK", "0"},
                   {"PMIX_NAMESPACE", "prterun-host-1@1"}}),
            "mpi-prterun-host-1@1 1 0 4");
  EXPECT_EQ(facts({{"OMPI_COMM_WORLD_RANK", "1"},
                   {"OMPI_COMM_WORLD_SIZE", "4"},
                   {"OMPI_MCA_ess_base_jobid", "42"}}),
            "mpi-42 1 -1 4");
}

TEST(RankFacts, ReadsSlurm) {
  EXPECT_EQ(facts({{"SLURM_PROCID", "7"},
                   {"SLURM_NTASKS", "16"},
                   {"SLURM_LOCALID", "3"},
                   {"SLURM_JOB_ID", "991"},
                   {"SLURM_STEP_ID", "0"}}),
            "slurm-991.0 7 3 16");
}

TEST(RankFacts, PrefersTheInnermostLauncher) {
  const Environ both{{"RANK", "5"},         {"WORLD_SIZE", "8"},   {"MASTER_PORT", "1"},
                     {"SLURM_PROCID", "0"}, {"SLURM_NTASKS", "1"}, {"SLURM_JOB_ID", "9"}};
  EXPECT_EQ(facts(both), "localhost:1 5 -1 8");
  Environ broken = both;
  broken["RANK"] = "five";
  EXPECT_EQ(facts(broken), "slurm-9. 0 -1 1");
}

TEST(RankFacts, SaysNothingWithoutARankOfAWorld) {
  EXPECT_EQ(facts({}), kNothing);
  EXPECT_EQ(facts({{"RANK", "0"}}), kNothing);
  EXPECT_EQ(facts({{"WORLD_SIZE", "4"}}), kNothing);
  EXPECT_EQ(facts({{"RANK", "4"}, {"WORLD_SIZE", "4"}}), kNothing);
  EXPECT_EQ(facts({{"RANK", "0"}, {"WORLD_SIZE", "0"}}), kNothing);
  EXPECT_EQ(facts({{"SLURM_JOB_ID", "9"}}), kNothing);
}

TEST(RankFacts, RefusesNumbersThatAreNone) {
  for (const char* number : {"", " ", "x", "-1", "+1", "1 ", " 1", "0x1", "1.0", "1e3", "1\n",
                             "1048576", "2147483648", "99999999999999999999"}) {
    EXPECT_EQ(facts({{"RANK", number}, {"WORLD_SIZE", "1048575"}}), kNothing) << number;
    EXPECT_EQ(facts({{"RANK", "0"}, {"WORLD_SIZE", number}}), kNothing) << number;
    EXPECT_EQ(facts({{"RANK", "0"}, {"WORLD_SIZE", "2"}, {"LOCAL_RANK", number}}),
              "localhost: 0 -1 2")
        << number;
  }
  EXPECT_EQ(facts({{"RANK", "1048574"}, {"WORLD_SIZE", "1048575"}}),
            "localhost: 1048574 -1 1048575");
  // Not cut down to a number.
  EXPECT_EQ(facts({{"RANK", std::string(128, '0') + "x"}, {"WORLD_SIZE", "2"}}), kNothing);
  EXPECT_EQ(facts({{"RANK", std::string(200, '0') + "1"}, {"WORLD_SIZE", "2"}}),
            "localhost: 1 -1 2");
}

TEST(RankFacts, CutsNames) {
  const std::string text(100'000, 'x');
  const RankFacts found = rank_facts(
      {{"RANK", "0"}, {"WORLD_SIZE", "1"}, {"MASTER_ADDR", text}, {"MASTER_PORT", text}});
  EXPECT_EQ(found.job, std::string(128, 'x') + ":" + std::string(128, 'x'));
}

TEST(Wrapper, IsWhatStartsRanks) {
  for (const char* name : {"bash", "sh", "env", "torchrun", "mpirun", "srun", "numactl"})
    EXPECT_TRUE(is_wrapper(name)) << name;
  for (const char* name : {"", "python", "python3.11", "bash2", "Bash", "train"})
    EXPECT_FALSE(is_wrapper(name)) << name;
}

TEST_F(FakeProc, DescribesAProcess) {
  add(10, 1, "python", rank(1), 77);
  const auto process = describe_process(procfs(), 10);
  ASSERT_TRUE(process) << process.error().what;
  EXPECT_EQ(process->pid, 10);
  EXPECT_EQ(process->parent_pid, 1);
  EXPECT_EQ(process->start_ticks, 77U);
  EXPECT_EQ(process->name, "python");
  EXPECT_EQ(process->cmdline(), "python -c x");
  EXPECT_THAT(process->arguments, ElementsAre("python", "-c", "x"));
  EXPECT_EQ(process->facts.rank, 1);
  EXPECT_EQ(process->facts.job, "localhost:1");
  EXPECT_EQ(describe_process(procfs(), 11).error().code, Code::kNotFound);
}

TEST_F(FakeProc, WhatMultiprocessingSpawnedIsKnownByWhoSpawnedIt) {
  const auto spawned = [&](std::int32_t pid, std::string_view module) {
    const std::string code =
        fmt::format("from multiprocessing.{} import main; main({})", module, pid);
    EXPECT_TRUE(sys::write_file(fmt::format("{}/{}/cmdline", root_, pid),
                                std::string("python3") + '\0' + "-c" + '\0' + code + '\0'));
  };
  add(10, 1, "python3", "");
  add(11, 10, "python3", "");
  add(12, 11, "python3", "");
  spawned(11, "forkserver");
  spawned(12, "spawn");
  EXPECT_THAT(describe_process(procfs(), 12)->started_by, ElementsAre("python3", "-c", "x"));
  EXPECT_THAT(describe_process(procfs(), 10)->started_by, IsEmpty());
  add(13, 13, "python3", "");  // its own parent, as no process is
  spawned(13, "spawn");
  EXPECT_THAT(describe_process(procfs(), 13)->started_by, IsEmpty());
}

TEST_F(FakeProc, DescribesAProcessThatHidesItsEnvironment) {
  add(10, 1, "python", rank(1));
  std::filesystem::remove(root_ + "/10/environ");
  std::filesystem::remove(root_ + "/10/cmdline");
  const auto process = describe_process(procfs(), 10);
  ASSERT_TRUE(process);
  EXPECT_EQ(process->facts.rank, trace::kNoRank);
  EXPECT_EQ(process->cmdline(), "");
}

TEST_F(FakeProc, IgnoresAnEnvironmentThatIsTooLarge) {
  const std::string filler = "X=" + std::string(100, 'x') + std::string(1, '\0');
  std::string environ;
  while (environ.size() < (std::size_t{9} << 20))
    environ += filler;
  add(10, 1, "python", rank(1) + environ);
  const auto process = describe_process(procfs(), 10);
  ASSERT_TRUE(process);
  EXPECT_EQ(process->facts.rank, trace::kNoRank);
  add(11, 1, "python", rank(1) + environ.substr(0, std::size_t{7} << 20));
  EXPECT_EQ(describe_process(procfs(), 11)->facts.rank, 1);
}

TEST_F(FakeProc, TakesTheFirstOfEqualVariables) {
  add(10, 1, "python", rank(1) + rank(0));
  EXPECT_EQ(describe_process(procfs(), 10)->facts.rank, 1);
}

TEST_F(FakeProc, CutsALongCommandLine) {
  add(10, 1, "python", "");
  EXPECT_TRUE(sys::write_file(root_ + "/10/cmdline", std::string(5000, 'x')));
  EXPECT_EQ(describe_process(procfs(), 10)->cmdline().size(), 1024U);
}

TEST_F(FakeProc, CutsTheArgumentsOfALongCommandLine) {
  add(10, 1, "python", "");
  const std::string word(1000, 'x');
  EXPECT_TRUE(sys::write_file(root_ + "/10/cmdline",
                              "two words" + std::string(1, '\0') + word + '\0' + word + '\0'));
  const auto process = describe_process(procfs(), 10);
  ASSERT_TRUE(process);
  EXPECT_THAT(process->arguments, ElementsAre("two words", word, std::string(13, 'x')));
  EXPECT_EQ(process->cmdline().size(), 1024U);
}

TEST_F(FakeProc, FindsTheJobsAndTheirRanks) {
  add(5, 1, "torchrun", "");
  add(10, 5, "python", rank(0));
  add(11, 10, "python", rank(0));  // a data-loader worker
  add(12, 5, "python", rank(1));
  add(13, 5, "bash", rank(1, 2));  // a shell that carries a rank's environment
  add(20, 1, "bash", "RANK=0" + std::string(1, '\0') + "WORLD_SIZE=1");
  add(30, 1, "python", "RANK=9" + std::string(1, '\0') + "WORLD_SIZE=2");
  const auto jobs = find_jobs(procfs());
  ASSERT_EQ(jobs.size(), 1U);  // the job of 20 has a shell only
  EXPECT_EQ(jobs[0].name, "localhost:1");
  EXPECT_EQ(jobs[0].world_size, 2);
  EXPECT_EQ(jobs[0].processes.size(), 4U);
  EXPECT_THAT(jobs[0].rank_pids, ElementsAre(Pair(0, 10), Pair(1, 12)));
}

TEST_F(FakeProc, TellsJobsOfTwoContainersApartThatHaveOneLoopbackAddress) {
  for (const auto& [pid, number] : {std::pair(10, 0), {11, 1}, {20, 0}, {21, 1}}) {
    add(pid, 1, "python", rank(number));
    const std::string folder = fmt::format("{}/{}/ns", root_, pid);
    std::filesystem::create_directories(folder);
    if (pid % 10 == 0) {
      EXPECT_TRUE(sys::write_file(folder + "/net", ""));
    } else {
      std::filesystem::create_hard_link(fmt::format("{}/{}/ns/net", root_, pid - 1),
                                        folder + "/net");
    }
  }
  const auto jobs = find_jobs(procfs());
  ASSERT_EQ(jobs.size(), 2U);
  EXPECT_EQ(jobs[0].name, "localhost:1");
  EXPECT_THAT(jobs[0].rank_pids, ElementsAre(Pair(0, 10), Pair(1, 11)));
  EXPECT_EQ(jobs[1].name, "localhost:1#2");
  EXPECT_THAT(jobs[1].rank_pids, ElementsAre(Pair(0, 20), Pair(1, 21)));
}

TEST_F(FakeProc, WhoGaveItsRightsUpForTheRanksIsOfTheirJob) {
  add(10, 1, "runuser", rank(0));
  add(11, 10, "python", rank(0));
  add(12, 1, "python", rank(1));
  if (::chown((root_ + "/10").c_str(), 1234, 0) != 0) GTEST_SKIP() << "needs root";
  const auto jobs = find_jobs(procfs());
  ASSERT_EQ(jobs.size(), 1U);
  EXPECT_EQ(jobs[0].name, "localhost:1");
  EXPECT_EQ(jobs[0].processes.size(), 3U);
  EXPECT_THAT(jobs[0].rank_pids, ElementsAre(Pair(0, 11), Pair(1, 12)));
}

TEST_F(FakeProc, TheJobWhoseRanksBeganFirstHasTheName) {
  add(10, 1, "python", rank(0), 500);
  add(20, 1, "python", rank(0), 300);
  if (::chown((root_ + "/10").c_str(), 1234, 0) != 0) GTEST_SKIP() << "needs root";
  const auto jobs = find_jobs(procfs());
  ASSERT_EQ(jobs.size(), 2U);
  EXPECT_THAT(jobs[0].rank_pids, ElementsAre(Pair(0, 20)));
  EXPECT_EQ(jobs[1].name, "localhost:1#2");
}

TEST_F(FakeProc, FindsARankBelowAShellThatCarriesItToo) {
  add(10, 1, "bash", rank(0));
  add(11, 10, "python", rank(0));
  add(12, 11, "python", rank(0));
  const auto jobs = find_jobs(procfs());
  ASSERT_EQ(jobs.size(), 1U);
  EXPECT_THAT(jobs[0].rank_pids, ElementsAre(Pair(0, 11)));
}

TEST_F(FakeProc, WalksTheTreeOfAProcess) {
  add(10, 1, "a", "");
  add(11, 10, "b", "");
  add(12, 11, "c", "");
  add(13, 10, "d", "");
  add(14, 2, "e", "");
  add(15, 16, "f", "");  // two that claim each other as parent
  add(16, 15, "g", "");
  EXPECT_THAT(ProcessForest(procfs()).tree(10), ElementsAre(10, 11, 12, 13));
  EXPECT_THAT(ProcessForest(procfs()).tree(15), ElementsAre(15, 16));
  EXPECT_THAT(ProcessForest(procfs()).tree(999), ElementsAre(999));
  const std::vector<std::int32_t> both{15, 12};
  EXPECT_THAT(ProcessForest(procfs()).trees(both), ElementsAre(12, 15, 16));
}

TEST_F(FakeProc, ListsNoJobsWhereThereIsNothing) {
  EXPECT_THAT(find_jobs(procfs()), IsEmpty());
  EXPECT_THAT(find_jobs(sys::Procfs("/no/such/folder")), IsEmpty());
}

}  // namespace
}  // namespace kansoku::capture
