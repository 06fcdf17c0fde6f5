// SPDX-License-Identifier: Apache-2.0
#include "simulate/workload/gang_replay.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "common/rng.h"
#include "simulate/workload/internal/week.h"

namespace kansoku::simulate {
namespace {

using internal::nanos_of;

Job job_of(int submit_s, int duration_s, int gpus) {
  Job job;
  job.submit = std::chrono::seconds(submit_s);
  job.duration = std::chrono::seconds(duration_s);
  job.gpus = gpus;
  job.gpu_milli = 1000;
  return job;
}

// 4 GPUs. The gang of 4 waits for both; the single job behind it must not overtake.
TEST(GangReplay, StrictOrderByHand) {
  const std::vector<Job> jobs{job_of(0, 10, 2), job_of(1, 20, 1), job_of(2, 5, 4),
                              job_of(3, 1, 1),  job_of(30, 2, 9), job_of(31, 1, 1)};
  EXPECT_THAT(gang_waits(jobs, 4), testing::ElementsAre(0, 0, 19, 23, 0, 1));
  const GangReplay replay = replay_gangs(jobs, 4);
  EXPECT_EQ(replay.jobs, 6);
  EXPECT_EQ(replay.clamped_jobs, 1);
  EXPECT_DOUBLE_EQ(replay.mean_wait_s, 43.0 / 6);
  EXPECT_DOUBLE_EQ(replay.p50_wait_s, 0.5);
}

TEST(GangReplay, CapAndJobsThatTakeNoPart) {
  std::vector<Job> jobs{job_of(0, 1000, 1), job_of(1, 1, 0), job_of(2, 1, 1)};
  jobs.push_back(job_of(3, 1, 1));
  jobs.back().duration = Nanos{-1};
  EXPECT_THAT(gang_waits(jobs, 1, std::chrono::seconds(100)), testing::ElementsAre(0, 98));
  EXPECT_DOUBLE_EQ(offered_gpus(jobs, std::chrono::seconds(50), std::chrono::seconds(100)),
                   101 / 50.0);
  EXPECT_EQ(gpus_for_load(jobs, std::chrono::seconds(50), 0.8, std::chrono::seconds(100)), 2);
  EXPECT_TRUE(gang_waits({}, 1).empty());
  EXPECT_EQ(replay_gangs({}, 1).mean_wait_s, 0);
}

TEST(GangReplay, ACopyGoesOnFromTheSameState) {
  GangQueue queue(2);
  EXPECT_EQ(queue.submit(job_of(0, 10, 2)), std::chrono::seconds(0));
  GangQueue other = queue;
  EXPECT_EQ(queue.submit(job_of(4, 1, 1)), std::chrono::seconds(6));
  EXPECT_EQ(other.submit(job_of(1, 1, 2)), std::chrono::seconds(9));
  EXPECT_EQ(queue.submit(job_of(5, 1, 1)), std::chrono::seconds(5));
}

// One GPU: Lindley's recursion, wait = max(0, wait before + service before - gap).
TEST(GangReplay, OneGpuIsLindley) {
  RandomStream random(1, "lindley");
  std::vector<Job> jobs;
  Nanos at{0};
  for (int i = 0; i < 2000; ++i) {
    Job job = job_of(0, 0, 1);
    job.submit = at;
    job.duration = nanos_of(-std::log(random.uniform()) * 0.8);
    jobs.push_back(job);
    at += nanos_of(-std::log(random.uniform()));
  }
  const auto waits = gang_waits(jobs, 1);
  Nanos wait{0};
  for (std::size_t i = 0; i < jobs.size(); ++i) {
    EXPECT_DOUBLE_EQ(waits[i], internal::seconds(wait));
    if (i + 1 < jobs.size())
      wait = std::max(Nanos{0}, wait + jobs[i].duration - (jobs[i + 1].submit - jobs[i].submit));
  }
}

// M/M/5 at .7: Wq = .251892 (Erlang C).
TEST(GangReplay, SingleGpuJobsAreAnMMc) {
  RandomStream random(2, "mmc");
  std::vector<Job> jobs;
  Nanos at{0};
  for (int i = 0; i < 400'000; ++i) {
    Job job = job_of(0, 0, 1);
    at += nanos_of(-std::log(random.uniform()) / 3.5);
    job.submit = at;
    job.duration = nanos_of(-std::log(random.uniform()));
    jobs.push_back(job);
  }
  EXPECT_NEAR(replay_gangs(jobs, 5).mean_wait_s, 0.251892, 0.012);
}

}  // namespace
}  // namespace kansoku::simulate
