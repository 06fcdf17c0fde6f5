// SPDX-License-Identifier: Apache-2.0
#include "capture/internal/process_table.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "capture/fake_proc_for_test.h"
#include "capture/job.h"

namespace kansoku::capture {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using Work = ProcessTable::Work;

/// A process as the test tells of it.
struct Told {
  std::int32_t pid{0}, parent{1};
  std::string job{};  // "" = no rank
  std::int32_t rank{trace::kNoRank};
  std::string name{"python"}, command{"python train.py"};
  std::uint32_t user{0};
  std::uint64_t network{1};
  std::uint64_t start_ticks{100};
  std::int32_t world_size{2};  // of its job, if it has one
};

class ProcessTableTest : public FakeProc {
 protected:
  Observed* add(const Told& told) {
    FakeProc::add(told.pid, told.parent, told.name, "", told.start_ticks);
    JobProcess process;
    process.pid = told.pid;
    process.parent_pid = told.parent;
    process.start_ticks = told.start_ticks;
    process.name = told.name;
    if (!told.command.empty()) process.arguments = {told.command};
    process.owner = {told.user, told.network};
    if (!told.job.empty()) process.facts = {told.job, told.rank, told.rank, told.world_size};
    return table_.add(std::move(process), boot_time(1));
  }
  /// "rank 1 of job"; of workers also whose.
  std::string place(std::int32_t pid) {
    table_.settle(boot_time(now_ns_));
    const Place& place = table_.processes().at(pid).place;
    const std::string rank = place.rank < 0 ? "" : fmt::format(" {}", place.rank);
    const std::string owner =
        place.role == Role::kWorker ? fmt::format(" for {}", place.owner) : std::string();
    return fmt::format("{}{} of {}{}", role_name(place.role), rank, place.job, owner);
  }
  std::string job_of(std::int32_t pid) {
    table_.settle(boot_time(now_ns_));
    return table_.processes().at(pid).place.job;
  }

  /// As connected(): processes that `talks_` gives one number talk to each other.
  std::vector<std::size_t> connected(std::span<const std::int32_t> pids) const {
    std::map<int, std::size_t> first;
    std::vector<std::size_t> out;
    for (std::size_t i = 0; i < pids.size(); ++i) {
      const auto known = talks_.find(pids[i]);
      out.push_back(known == talks_.end() ? i : first.emplace(known->second, i).first->second);
    }
    return out;
  }
  /// It communicates as `rank` of a group of `size`, with those of the same number.
  void seat(std::int32_t pid, std::int32_t rank, std::int32_t size, int talks) {
    talks_[pid] = talks;
    table_.note_work(pid, Work::kCommunicates);
    EXPECT_TRUE(table_.note_seat({pid, 0x1000, rank, size}));
  }

  const sys::Procfs proc_{procfs()};
  std::map<std::int32_t, int> talks_;
  ProcessTable table_{proc_,
                      {.connected = [this](auto pids, auto, BootTime) { return connected(pids); }}};
  std::int64_t now_ns_{1};
};

TEST_F(ProcessTableTest, TellsRanksWorkersLaunchersAndOthersApart) {
  add({.pid = 5, .job = "a:1", .rank = 0, .name = "torchrun"});
  add({.pid = 10, .parent = 5, .job = "a:1", .rank = 0});
  add({.pid = 11, .parent = 10, .job = "a:1", .rank = 0});
  add({.pid = 20, .name = "sshd", .command = "sshd"});
  EXPECT_THAT(table_.settle(boot_time(now_ns_)), ElementsAre(5, 10, 11, 20));
  EXPECT_THAT(table_.settle(boot_time(now_ns_)), IsEmpty()) << "no news";
  EXPECT_EQ(place(5), "launcher 0 of a:1");
  EXPECT_EQ(place(10), "rank 0 of a:1");
  EXPECT_EQ(place(11), "worker 0 of a:1 for 10");
  EXPECT_EQ(place(20), " of sshd/20");
  const Place& rank = table_.processes().at(10).place;
  EXPECT_EQ(rank.world_size, 2);
  EXPECT_FALSE(rank.is_local_job);
}

TEST_F(ProcessTableTest, LooksThroughShellsAndToolsBetweenAWorkerAndItsRank) {
  add({.pid = 10, .job = "a:1", .rank = 3});
  add({.pid = 11, .parent = 10, .job = "a:1", .rank = 3, .name = "sh"});
  add({.pid = 12, .parent = 11, .job = "a:1", .rank = 3, .name = "ffmpeg"});
  FakeProc::add(13, 10, "make", "");  // not observed
  add({.pid = 14, .parent = 13, .job = "a:1", .rank = 3});
  add({.pid = 15, .parent = 10, .job = "b:1", .rank = 3});
  EXPECT_EQ(place(11), "worker 3 of a:1 for 10");
  EXPECT_EQ(place(12), "worker 3 of a:1 for 10");
  EXPECT_EQ(table_.processes().at(12).place.world_size, 2);
  EXPECT_EQ(place(14), "worker 3 of a:1 for 10");
  EXPECT_EQ(place(15), "rank 3 of b:1") << "a job that a rank started";
}

TEST_F(ProcessTableTest, AProgramsForksWorkForIt) {
  add({.pid = 10});
  add({.pid = 11, .parent = 10});
  add({.pid = 12, .parent = 10, .command = "python other.py"});
  EXPECT_EQ(place(11), "worker of python/10 for 10");
  EXPECT_EQ(place(12), " of python/12");
  table_.note_work(11, Work::kComputes);
  EXPECT_EQ(place(11), " of python/11") << "it works itself";
}

TEST_F(ProcessTableTest, ALauncherWithTheEnvironmentOfItsRankIsNotTheRank) {
  add({.pid = 20, .job = "a:1", .rank = 3});
  add({.pid = 30, .parent = 20, .job = "a:1", .rank = 3});
  add({.pid = 31, .parent = 30, .job = "a:1", .rank = 3});
  EXPECT_EQ(place(20), "rank 3 of a:1") << "nobody works yet";
  EXPECT_EQ(place(31), "worker 3 of a:1 for 20");
  table_.note_work(30, Work::kComputes);
  EXPECT_EQ(place(20), "launcher 3 of a:1");
  EXPECT_EQ(place(30), "rank 3 of a:1");
  EXPECT_EQ(place(31), "worker 3 of a:1 for 30");
}

// As torchrun does, which says no rank itself.
TEST_F(ProcessTableTest, WhoHasRanksBelowItAndDoesNoWorkIsTheirLauncher) {
  add({.pid = 5, .command = "python -m torch.distributed.run"});
  add({.pid = 7, .parent = 5, .command = "agent"});
  add({.pid = 9, .parent = 5, .command = "python monitor.py"});
  EXPECT_EQ(place(5), " of python/5") << "nothing is below it";
  add({.pid = 10, .parent = 7, .job = "a:1", .rank = 0});
  add({.pid = 11, .parent = 7, .job = "a:1", .rank = 1});
  EXPECT_EQ(place(5), "launcher of a:1");
  EXPECT_EQ(place(7), "launcher of a:1");
  EXPECT_EQ(place(9), " of python/9");
  EXPECT_FALSE(table_.processes().at(5).place.is_local_job);
  table_.note_work(5, Work::kComputes);
  EXPECT_EQ(place(5), " of python/5") << "it trains, too";
}

// It starts its ranks itself, and its own variables number the hosts.
TEST_F(ProcessTableTest, WhoseEnvironmentNumbersItsHostIsNoRankAboveItsRanks) {
  add({.pid = 5, .job = "a:1", .rank = 0, .start_ticks = 50});
  for (const std::int32_t pid : {10, 11}) {
    add({.pid = pid,
         .parent = 5,
         .job = "a:1",
         .rank = 0,
         .command = fmt::format("python -c spawn_main(pipe_handle={})", pid)});
  }
  EXPECT_EQ(place(5), "rank 0 of a:1") << "nothing else is known yet";
  seat(10, 0, 4, 1);
  seat(11, 1, 4, 1);
  EXPECT_EQ(place(10).substr(0, 10), "rank 0 of ");
  EXPECT_EQ(place(11).substr(0, 10), "rank 1 of ");
  EXPECT_EQ(place(5), "launcher of " + job_of(10));
}

TEST_F(ProcessTableTest, GivesARankToTheOldestOfThoseThatSayTheyAreIt) {
  add({.pid = 30, .job = "a:1", .rank = 3, .start_ticks = 7});
  add({.pid = 20, .job = "a:1", .rank = 3, .start_ticks = 5});
  add({.pid = 40, .job = "a:1", .rank = 3, .start_ticks = 9});
  EXPECT_EQ(place(20), "rank 3 of a:1");
  EXPECT_EQ(place(30), " of python/30");
  EXPECT_EQ(place(40), " of python/40");
  EXPECT_EQ(table_.declared_job(table_.processes().at(40).facts), "a:1");
  table_.remove(20);
  EXPECT_EQ(place(30), "rank 3 of a:1");
}

TEST_F(ProcessTableTest, AWorkerThatOutlivesItsRankIsNotTheRank) {
  add({.pid = 10, .job = "a:1", .rank = 0});
  add({.pid = 11, .parent = 10, .job = "a:1", .rank = 0});
  table_.note_work(10, Work::kComputes);
  EXPECT_EQ(place(11), "worker 0 of a:1 for 10");
  table_.remove(10);
  EXPECT_EQ(place(11), "worker 0 of a:1 for 0");
  add({.pid = 12, .parent = 11, .job = "a:1", .rank = 0});
  EXPECT_EQ(place(12), "worker 0 of a:1 for 11");
  add({.pid = 10, .start_ticks = 900});  // another one of that number
  EXPECT_EQ(place(11), "worker 0 of a:1 for 0");
  table_.remove(11);
  EXPECT_EQ(place(12), "worker 0 of a:1 for 0") << "nor does a worker's";
  add({.pid = 11, .job = "a:1", .rank = 0});  // exec
  EXPECT_EQ(place(11), "rank 0 of a:1");
}

TEST_F(ProcessTableTest, OneThatEndedRightAfterAnExecIsTheRankThatItWas) {
  add({.pid = 10, .job = "a:1", .rank = 1});
  add({.pid = 10, .name = "train", .command = ""});  // a zombie tells its name only
  EXPECT_EQ(place(10), "rank 1 of a:1");
  EXPECT_EQ(table_.processes().at(10).facts.name, "train");
  EXPECT_EQ(table_.processes().at(10).facts.cmdline(), "python train.py");
  add({.pid = 10, .name = "train", .command = "", .start_ticks = 200});
  EXPECT_EQ(place(10), " of train/10") << "another process";
  add({.pid = 11, .job = "a:1", .rank = 0});
  add({.pid = 11, .command = "env -i python train.py"});
  EXPECT_EQ(place(11), " of python/11") << "it lives, and has no rank any more";
}

TEST_F(ProcessTableTest, WhoOutlivesALauncherIsTheRank) {
  add({.pid = 10, .job = "a:1", .rank = 0});
  add({.pid = 11, .parent = 10, .job = "a:1", .rank = 0});
  EXPECT_EQ(place(11), "worker 0 of a:1 for 10");
  table_.remove(10);
  EXPECT_EQ(place(11), "rank 0 of a:1");
}

TEST_F(ProcessTableTest, AYoungerOneWithTheNumberOfAnAncestorIsAnother) {
  FakeProc::add(10, 1, "python", "");
  add({.pid = 11, .parent = 10, .job = "a:1", .rank = 0});
  add({.pid = 10, .job = "a:1", .rank = 0, .start_ticks = 900});
  EXPECT_EQ(place(11), "rank 0 of a:1");
}

TEST_F(ProcessTableTest, GuessesRanksByTheOrderOfStart) {
  const auto spawned = [&](std::int32_t pid, std::uint64_t start_ticks) {
    add({.pid = pid,
         .parent = 5,
         .command = fmt::format("python -c spawn_main(pipe_handle={})", pid),
         .start_ticks = start_ticks});
  };
  add({.pid = 5, .start_ticks = 50});
  spawned(30, 200);
  EXPECT_EQ(place(30), " of python/30");
  table_.note_work(30, Work::kCommunicates);
  EXPECT_EQ(place(30), " of python/30") << "with whom";
  spawned(31, 100);
  spawned(32, 200);
  spawned(33, 300);
  add({.pid = 40, .parent = 5, .job = "b:1", .rank = 1});  // says its rank itself
  add({.pid = 41, .parent = 5, .command = "python serve.py"});
  for (const std::int32_t pid : {31, 32, 40, 41, 77})
    table_.note_work(pid, Work::kCommunicates);
  table_.note_work(33, Work::kComputes);
  EXPECT_EQ(place(31), " of python/31") << "there may be more";
  now_ns_ += 30'000'000'000;
  EXPECT_EQ(place(31), "rank 0 of pid-5");
  EXPECT_EQ(place(30), "rank 1 of pid-5");
  EXPECT_EQ(place(32), "rank 2 of pid-5");
  EXPECT_EQ(place(33), " of python/33");
  EXPECT_EQ(place(40), "rank 1 of b:1");
  EXPECT_EQ(place(41), " of python/41") << "another program of the same shell";
  EXPECT_EQ(place(5), "launcher of pid-5");
  const Place& rank = table_.processes().at(30).place;
  EXPECT_EQ(rank.world_size, 3);
  EXPECT_TRUE(rank.is_local_job);
  table_.remove(31);
  table_.remove(33);
  EXPECT_EQ(place(30), "rank 1 of pid-5") << "the others keep theirs";
  spawned(34, 900);
  table_.note_work(34, Work::kCommunicates);
  EXPECT_EQ(place(34), "rank 0 of pid-5") << "what is free";
  EXPECT_EQ(place(30), "rank 1 of pid-5");
  EXPECT_EQ(place(32), "rank 2 of pid-5");
  table_.remove(30);
  table_.remove(34);
  spawned(35, 901);
  table_.note_work(35, Work::kCommunicates);
  EXPECT_EQ(place(35), "rank 0 of pid-5");
  EXPECT_EQ(table_.processes().at(35).place.world_size, 3) << "above every rank";
}

TEST_F(ProcessTableTest, ARankIsWhatItsGroupSays) {
  add({.pid = 5, .start_ticks = 50});
  for (int i = 0; i < 4; ++i)
    add({.pid = 30 + i, .parent = 5, .start_ticks = 100U + static_cast<std::uint64_t>(i)});
  for (int i = 0; i < 4; ++i)
    seat(30 + i, 3 - i, 4, 1);
  EXPECT_EQ(place(30), "rank 3 of pid-5") << "the order of start says nothing";
  EXPECT_EQ(place(33), "rank 0 of pid-5");
  EXPECT_EQ(table_.processes().at(31).place.world_size, 4);
  seat(30, 0, 2, 1);
  EXPECT_EQ(place(30), "rank 3 of pid-5") << "a smaller group";
  table_.note_seat({31, 0x2000, 0, 4});
  EXPECT_EQ(place(31), "rank 2 of pid-5") << "another one as great";
  EXPECT_FALSE(table_.note_seat({99, 0x1000, 0, 4})) << "nobody's";
  EXPECT_THAT(table_.problems(), IsEmpty());
}

TEST_F(ProcessTableTest, ARankStartsTheOthers) {
  add({.pid = 30, .start_ticks = 50});
  for (int i = 1; i < 3; ++i)
    add({.pid = 30 + i, .parent = 30, .start_ticks = 100});
  for (int i = 0; i < 3; ++i)
    seat(30 + i, i, 3, 1);
  EXPECT_EQ(place(30), "rank 0 of pid-30");
  EXPECT_EQ(place(32), "rank 2 of pid-30");
}

TEST_F(ProcessTableTest, TheEnvironmentIsAHint) {
  for (const std::int32_t pid : {10, 11}) {
    add({.pid = pid, .parent = 5, .job = "a:1", .rank = pid - 10});
    seat(pid, pid - 10, 2, 1);
  }
  EXPECT_EQ(place(10), "rank 0 of a:1") << "it agrees, and has the better name";
  for (const std::int32_t pid : {20, 21}) {
    add({.pid = pid, .parent = 6, .job = "b:1", .rank = 0});
    seat(pid, pid - 20, 2, 2);
  }
  EXPECT_EQ(place(20), "rank 0 of pid-6") << "one of them lies";
  EXPECT_EQ(place(21), "rank 1 of pid-6");
  EXPECT_EQ(place(10), "rank 0 of a:1") << "whatever others in groups of that size say";
}

TEST_F(ProcessTableTest, AGroupSmallerThanTheJobThatTheEnvironmentTellsSaysNothing) {
  for (const std::int32_t pid : {30, 31}) {
    add({.pid = pid, .parent = 5, .job = "c:1", .rank = pid - 25, .world_size = 8});
    seat(pid, pid - 30, 2, 1);
  }
  EXPECT_EQ(place(30), "rank 5 of c:1");
  EXPECT_EQ(place(31), "rank 6 of c:1");
}

// Two of the four ranks of a job may reduce among themselves: each is 0 or 1 there.
TEST_F(ProcessTableTest, ASmallerGroupOfSomeRanksChangesNone) {
  for (int i = 0; i < 4; ++i) {
    add({.pid = 30 + i, .parent = 5});
    seat(30 + i, i, 4, 1);
  }
  EXPECT_EQ(place(32), "rank 2 of pid-5");
  for (const std::int32_t pid : {32, 33})
    seat(pid, pid - 32, 2, 1);
  EXPECT_EQ(place(32), "rank 2 of pid-5");
  EXPECT_EQ(place(33), "rank 3 of pid-5");
  EXPECT_EQ(table_.processes().at(33).place.world_size, 4);
}

TEST_F(ProcessTableTest, AJobThatGrowsKeepsItsNameThoughABetterOneIsFree) {
  for (const std::int32_t pid : {10, 11, 20, 21}) {
    add({.pid = pid, .parent = 5});
    seat(pid, pid % 10, 2, pid / 10);
  }
  ASSERT_EQ(place(20), "rank 0 of pid-5#2");
  table_.remove(10);
  table_.remove(11);
  add({.pid = 22, .parent = 5});
  for (const std::int32_t pid : {20, 21, 22})
    seat(pid, pid % 10, 3, 2);
  EXPECT_EQ(place(20) + place(22), "rank 0 of pid-5#2rank 2 of pid-5#2");
}

TEST_F(ProcessTableTest, ThoseOfOneGroupAreKnownOnceTheyTalk) {
  for (const std::int32_t pid : {10, 11, 20, 21}) {
    add({.pid = pid, .parent = 5});
    seat(pid, pid % 10, 2, pid);
  }
  EXPECT_EQ(place(10), " of python/10");
  talks_ = {{10, 1}, {11, 1}, {20, 2}, {21, 2}};
  EXPECT_EQ(place(10) + place(11), "rank 0 of pid-5rank 1 of pid-5");
  EXPECT_EQ(place(20) + place(21), "rank 0 of pid-5#2rank 1 of pid-5#2")
      << "two jobs of one parent";
}

TEST_F(ProcessTableTest, AWholeGroupOfSiblingsNeedNotBeSeenToTalk) {
  add({.pid = 5, .start_ticks = 50});
  for (const std::int32_t pid : {30, 31}) {
    add({.pid = pid, .parent = 5});
    seat(pid, 31 - pid, 2, pid);
  }
  EXPECT_EQ(place(30), "rank 1 of pid-5");
  EXPECT_EQ(place(31), "rank 0 of pid-5");
  for (const std::int32_t pid : {40, 41}) {
    add({.pid = pid, .parent = 5, .command = "python serve.py"});
    seat(pid, pid - 40, 3, pid);
  }
  EXPECT_EQ(place(40), " of python/40") << "a third one is missing";
}

TEST_F(ProcessTableTest, WhoContradictsItselfHasNoRank) {
  for (const std::int32_t pid : {10, 11, 12}) {
    add({.pid = pid, .parent = 5, .job = "a:1", .rank = pid - 10});
    seat(pid, pid == 12 ? 1 : pid - 10, 3, 1);
  }
  EXPECT_EQ(place(10), " of python/10");
  EXPECT_EQ(place(12), " of python/12");
  EXPECT_THAT(table_.problems(),
              ElementsAre("processes 11 and 12 are both rank 1 of a group of 3: no rank is told of "
                          "their job"));
}

TEST_F(ProcessTableTest, TwoGroupsOfOneProgramAreTwoJobs) {
  add({.pid = 5});
  for (const std::int32_t pid : {30, 31, 40, 41}) {
    add({.pid = pid, .parent = 5, .command = pid < 40 ? "python train.py" : "python serve.py"});
    table_.note_work(pid, Work::kCommunicates);
  }
  EXPECT_EQ(place(30) + place(31), "rank 0 of pid-5#2rank 1 of pid-5#2");
  EXPECT_EQ(place(40) + place(41), "rank 0 of pid-5rank 1 of pid-5");
}

TEST_F(ProcessTableTest, RanksAreGuessedOfOneUserBelowOneProgramOnly) {
  add({.pid = 5});
  add({.pid = 6, .name = "bash"});
  const auto communicates = [&](std::int32_t pid, std::int32_t parent, std::uint32_t user) {
    add({.pid = pid, .parent = parent, .command = "python run.py", .user = user});
    table_.note_work(pid, Work::kCommunicates);
  };
  communicates(30, 5, 0);
  communicates(31, 5, 7);
  communicates(40, 6, 0);
  communicates(41, 6, 0);
  communicates(50, 1, 0);
  communicates(51, 1, 0);
  table_.settle(boot_time(now_ns_));
  now_ns_ += 5'000'000'000;
  EXPECT_EQ(place(30), " of python/30") << "the other is another user's";
  EXPECT_EQ(place(40), " of python/40") << "a shell starts what it is told";
  EXPECT_EQ(place(50), " of python/50") << "who started it is gone";
}

TEST_F(ProcessTableTest, ALongChainWorksForItsFirstOne) {
  constexpr std::int32_t kLast = 300;
  for (std::int32_t pid = 10; pid <= kLast; ++pid)
    add({.pid = pid, .parent = pid == 10 ? 1 : pid - 1, .job = "a:1", .rank = 0});
  EXPECT_EQ(place(kLast), "worker 0 of a:1 for 10");
  table_.note_work(200, Work::kComputes);
  EXPECT_EQ(place(kLast), "worker 0 of a:1 for 200");
  EXPECT_EQ(place(200), "rank 0 of a:1");
}

TEST_F(ProcessTableTest, ManyOwnersOfOneNameHaveANumberEach) {
  constexpr std::int32_t kLast = 400;
  for (std::int32_t pid = 1; pid <= kLast; ++pid)
    add({.pid = pid,
         .job = "127.0.0.1:1",
         .rank = 0,
         .network = static_cast<std::uint64_t>(pid),
         .start_ticks = static_cast<std::uint64_t>(1000 - pid)});
  EXPECT_EQ(job_of(kLast), "127.0.0.1:1");
  EXPECT_EQ(job_of(1), "127.0.0.1:1#400");
}

TEST_F(ProcessTableTest, NewsAreWhoCameAndWhoBeganToWork) {
  EXPECT_FALSE(table_.has_news());
  add({.pid = 5});
  EXPECT_TRUE(table_.has_news());
  table_.settle(boot_time(now_ns_));
  EXPECT_FALSE(table_.has_news());
  table_.note_work(5, Work::kComputes);
  EXPECT_TRUE(table_.has_news());
  table_.settle(boot_time(now_ns_));
  table_.note_work(5, Work::kComputes);
  EXPECT_FALSE(table_.has_news());
  table_.note_work(5, Work::kCommunicates);
  EXPECT_TRUE(table_.has_news());
}

TEST_F(ProcessTableTest, ForkedRanksAndTheirForks) {
  add({.pid = 5});
  add({.pid = 30, .parent = 5});
  add({.pid = 31, .parent = 5});
  add({.pid = 32, .parent = 30});
  EXPECT_EQ(place(30), "worker of python/5 for 5");
  table_.note_work(30, Work::kCommunicates);
  table_.note_work(31, Work::kCommunicates);
  EXPECT_EQ(place(30), "rank 0 of pid-5");
  EXPECT_EQ(place(31), "rank 1 of pid-5");
  EXPECT_EQ(place(32), "worker 0 of pid-5 for 30");
}

TEST_F(ProcessTableTest, TellsContainersAndUsersApart) {
  const std::string here = "127.0.0.1:29500", there = "10.0.0.7:29500";
  add({.pid = 1, .job = here, .rank = 0, .network = 100});
  add({.pid = 2, .job = here, .rank = 1, .network = 100});
  EXPECT_EQ(job_of(2), here);
  add({.pid = 3, .job = here, .rank = 0, .network = 200});
  EXPECT_EQ(job_of(3), here + "#2");
  add({.pid = 4, .job = here, .rank = 0, .user = 1000, .network = 100});
  EXPECT_EQ(job_of(4), here + "#3");
  // Ranks of one job may well be in several namespaces of one host.
  add({.pid = 5, .job = there, .rank = 0, .network = 100});
  add({.pid = 6, .job = there, .rank = 1, .network = 200});
  EXPECT_EQ(job_of(5), there);
  EXPECT_EQ(job_of(6), there);
  table_.remove(1);
  table_.remove(2);
  EXPECT_EQ(job_of(3), here + "#2") << "a name stays";
  add({.pid = 7, .job = here, .rank = 0, .network = 300});
  EXPECT_EQ(job_of(7), here) << "nobody is left that has it";
}

TEST_F(ProcessTableTest, TheJobWhoseRanksBeganFirstHasTheName) {
  add({.pid = 10, .job = "a:1", .rank = 0, .user = 7, .start_ticks = 500});
  add({.pid = 20, .job = "a:1", .rank = 0, .start_ticks = 300});
  add({.pid = 30, .job = "a:1", .rank = 0, .name = "runuser", .user = 9, .start_ticks = 1});
  EXPECT_EQ(job_of(20), "a:1");
  EXPECT_EQ(job_of(10), "a:1#2");
  EXPECT_EQ(job_of(30), "a:1") << "it gave its rights up for those ranks";
}

TEST_F(ProcessTableTest, JobsThatBeganWithinOneTickAreNamedInTheOrderOfTheirNumbers) {
  add({.pid = 10, .job = "127.0.0.1:1", .rank = 0, .network = 900});
  add({.pid = 20, .job = "127.0.0.1:1", .rank = 0, .network = 100});
  EXPECT_EQ(job_of(10), "127.0.0.1:1");
  EXPECT_EQ(job_of(20), "127.0.0.1:1#2");
}

TEST_F(ProcessTableTest, StopsAtItsLimit) {
  ProcessTable table(proc_, {.processes_max = 3});
  const auto add_to = [&](std::int32_t pid) {
    JobProcess process;
    process.pid = pid;
    return table.add(std::move(process), boot_time(1)) != nullptr;
  };
  for (const std::int32_t pid : {1, 2, 3})
    EXPECT_TRUE(add_to(pid));
  EXPECT_EQ(table.over_limit(), 0U);
  EXPECT_FALSE(add_to(4));
  EXPECT_FALSE(add_to(5));
  EXPECT_EQ(table.over_limit(), 2U);
  EXPECT_TRUE(add_to(1)) << "anew, after an exec";
  table.remove(1);
  EXPECT_TRUE(add_to(4));
}

TEST_F(ProcessTableTest, OneUserHasHalfOfASharedOneAtMost) {
  ProcessTable table(proc_, {.processes_max = 4, .is_shared = true});
  const auto add_to = [&](std::int32_t pid, std::uint32_t user) {
    JobProcess process;
    process.pid = pid;
    process.owner.user = user;
    return table.add(std::move(process), boot_time(1)) != nullptr;
  };
  EXPECT_TRUE(add_to(1, 7));
  EXPECT_TRUE(add_to(2, 7));
  EXPECT_TRUE(add_to(2, 7)) << "anew";
  EXPECT_FALSE(add_to(3, 7));
  EXPECT_TRUE(add_to(4, 8));
  table.remove(1);
  EXPECT_TRUE(add_to(3, 7));
}

TEST(IsCounted, ARankOrAPythonProgramOfItsOwn) {
  Observed process;
  EXPECT_FALSE(is_counted(process)) << "a shell";
  process.has_stacks = true;
  EXPECT_TRUE(is_counted(process));
  process.place.role = Role::kWorker;
  EXPECT_FALSE(is_counted(process)) << "it is its owner's";
  process.place.role = Role::kLauncher;
  EXPECT_FALSE(is_counted(process));
  process.place.role = Role::kRank;
  process.has_stacks = false;
  EXPECT_TRUE(is_counted(process));
}

}  // namespace
}  // namespace kansoku::capture
