// SPDX-License-Identifier: Apache-2.0
#include "capture/job_names.h"

#include <gtest/gtest.h>

namespace kansoku::capture {
namespace {

JobProcess rank_process(std::int32_t pid, std::int32_t rank, const std::string& job,
                        std::uint32_t user, std::uint64_t network) {
  JobProcess process;
  process.pid = pid;
  process.name = "python3";
  process.facts.job = job;
  process.facts.rank = rank;
  process.owner = {user, network};
  return process;
}

TEST(JobNames, AreTheEnvironmentsOrTheProgramAndItsPid) {
  JobProcess process;
  process.pid = 12;
  process.name = "llama";
  JobNames names;
  EXPECT_EQ(names.name_of(process), "llama/12");
  process.facts.job = "host:29500";
  EXPECT_EQ(names.name_of(process), "host:29500");
}

TEST(JobNames, TellContainersAndUsersApart) {
  const std::string here = "127.0.0.1:29500", there = "10.0.0.7:29500";
  JobNames names;
  EXPECT_EQ(names.name_of(rank_process(1, 0, here, 0, 100)), here);
  EXPECT_EQ(names.name_of(rank_process(2, 1, here, 0, 100)), here);
  EXPECT_EQ(names.name_of(rank_process(3, 0, here, 0, 200)), here + "#2");
  EXPECT_EQ(names.name_of(rank_process(4, 0, here, 1000, 100)), here + "#3");
  // Ranks of one job may well be in several namespaces of one host.
  EXPECT_EQ(names.name_of(rank_process(5, 0, there, 0, 100)), there);
  EXPECT_EQ(names.name_of(rank_process(6, 1, there, 0, 200)), there);
  names.end_window();
  EXPECT_EQ(names.name_of(rank_process(3, 0, here, 0, 200)), here + "#2");
  names.end_window();  // of the others nobody is left
  names.end_window();
  EXPECT_EQ(names.name_of(rank_process(7, 0, here, 0, 300)), here);
}

}  // namespace
}  // namespace kansoku::capture
