// SPDX-License-Identifier: Apache-2.0
#include "simulate/workload/workload.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <string>
#include <vector>

namespace kansoku::simulate {
namespace {

using namespace std::chrono_literals;
using testing::AnyOf;
using testing::ElementsAre;

Job job_at(Nanos submit, std::uint32_t name = 0, std::uint32_t group = 0) {
  Job job;
  job.submit = submit;
  job.name = name;
  job.group = group;
  return job;
}

std::vector<std::uint32_t> names_of(const Workload& workload) {
  std::vector<std::uint32_t> out;
  for (const Job& job : workload.jobs)
    out.push_back(job.name);
  return out;
}

TEST(Workload, SortingIsStableAndEdgesFollow) {
  Workload workload;
  workload.jobs = {job_at(5ns, 1), job_at(3ns, 2), job_at(5ns, 3), job_at(0ns, 4), job_at(3ns, 5)};
  workload.edges = {{1, 0}, {3, 0}, {3, 1}, {1, 0}};  // by name: 2 -> 1, 4 -> 1, 4 -> 2, again
  sort_jobs(workload);
  EXPECT_THAT(names_of(workload), ElementsAre(4, 2, 5, 1, 3));
  ASSERT_EQ(workload.edges.size(), 3U);
  EXPECT_EQ(workload.edges[0].parent, 0U);  // 4 -> 2
  EXPECT_EQ(workload.edges[0].child, 1U);
  EXPECT_EQ(workload.edges[1].parent, 0U);  // 4 -> 1
  EXPECT_EQ(workload.edges[1].child, 3U);
  EXPECT_EQ(workload.edges[2].parent, 1U);  // 2 -> 1
  EXPECT_EQ(workload.edges[2].child, 3U);
  sort_jobs(workload);
  EXPECT_THAT(names_of(workload), ElementsAre(4, 2, 5, 1, 3));
}

TEST(Workload, SortingNothing) {
  Workload workload;
  sort_jobs(workload);
  EXPECT_TRUE(workload.jobs.empty());
}

TEST(Intern, FindsAndAppends) {
  std::vector<std::string> table{"", "a", "a"};
  InternLookup lookup(table);
  EXPECT_EQ(intern(table, "", lookup), 0U);
  EXPECT_EQ(intern(table, "a", lookup), 1U);
  EXPECT_EQ(intern(table, "b", lookup), 3U);
  EXPECT_EQ(intern(table, "b", lookup), 3U);
  EXPECT_EQ(lookup.find(table, "c"), std::nullopt);
  EXPECT_THAT(table, ElementsAre("", "a", "a", "b"));
}

TEST(Intern, ManyTexts) {
  std::vector<std::string> table{""};
  InternLookup lookup(table);
  for (int round = 0; round < 2; ++round) {
    for (std::uint32_t i = 1; i < 20000; ++i)
      ASSERT_EQ(intern(table, "text " + std::to_string(i), lookup), i);
  }
  EXPECT_EQ(table.size(), 20000U);
}

/// The hash of workload.cc, to make texts that collide.
std::uint32_t hash_of(std::string_view text) {
  std::uint64_t hash = 0xcbf29ce484222325;
  for (const char c : text)
    hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3;
  return static_cast<std::uint32_t>(hash ^ (hash >> 32));
}

TEST(Intern, CollidingTextsAreFoundAfterGrowing) {
  // 300 texts whose hashes have the low 12 bits in common crowd every table that they fill.
  std::vector<std::string> colliding;
  for (int i = 0; colliding.size() < 300; ++i) {
    std::string text = std::to_string(i);
    if ((hash_of(text) & 0xFFF) == 5) colliding.push_back(std::move(text));
  }
  std::vector<std::string> table;
  InternLookup lookup(table);
  for (std::uint32_t i = 0; i < 300; ++i)
    ASSERT_EQ(intern(table, colliding[i], lookup), i);
  for (std::uint32_t i = 300; i < 5000; ++i)
    ASSERT_EQ(intern(table, "other " + std::to_string(i), lookup), i);
  for (std::uint32_t i = 0; i < 300; ++i)
    ASSERT_EQ(lookup.find(table, colliding[i]), i);
  EXPECT_EQ(table.size(), 5000U);
}

TEST(Workload, SessionsAreCutByGroup) {
  Workload workload;
  workload.groups = {"", "u", "v"};
  workload.jobs = {job_at(0s, 0, 1),   job_at(100s, 0, 2), job_at(120s, 0, 1),
                   job_at(240s, 0, 1), job_at(361s, 0, 1), job_at(361s, 0, 2)};
  // Exactly the gap is the same session; the other group's jobs in between do not count.
  EXPECT_THAT(sessions(workload, 120s), ElementsAre(0, 1, 0, 0, 2, 3));
  EXPECT_THAT(sessions(workload, 1h), ElementsAre(0, 1, 0, 0, 0, 1));
  EXPECT_THAT(sessions(Workload{}, 120s), ElementsAre());
}

TEST(Workload, GpuSeconds) {
  Job whole;
  whole.duration = 10s;
  whole.gpus = 8;
  whole.gpu_milli = 1000;
  EXPECT_DOUBLE_EQ(gpu_seconds(whole), 80);
  Job shared = whole;
  shared.gpus = 1;
  shared.gpu_milli = 250;
  shared.instances = 3;
  EXPECT_DOUBLE_EQ(gpu_seconds(shared), 7.5);
  Job unknown = whole;
  unknown.duration = Nanos{-1};
  EXPECT_DOUBLE_EQ(gpu_seconds(unknown), 0);
  Workload workload;
  workload.jobs = {whole, shared, unknown};
  EXPECT_DOUBLE_EQ(gpu_seconds(workload), 87.5);
}

TEST(Workload, CyclesAreFoundOnTheCycle) {
  Workload workload;
  workload.jobs.resize(6);
  EXPECT_EQ(job_on_cycle(workload), std::nullopt);
  workload.edges = {{0, 1}, {1, 2}, {0, 2}, {2, 3}};
  EXPECT_EQ(job_on_cycle(workload), std::nullopt);
  workload.edges = {{5, 4}, {4, 5}, {5, 0}, {0, 1}, {1, 2}};  // 0, 1 and 2 lie behind it
  EXPECT_THAT(job_on_cycle(workload).value_or(9), AnyOf(4U, 5U));
  workload.edges = {{3, 3}, {3, 0}};
  EXPECT_EQ(job_on_cycle(workload), 3U);
}

TEST(OffsetOf, TakesSpansAndDates) {
  Workload workload;
  workload.epoch = "2017-09-03 06:00:00";
  const auto hours = [&](std::string_view text) {
    return std::chrono::duration_cast<std::chrono::hours>(offset_of(workload, text).value())
        .count();
  };
  EXPECT_EQ(hours("21d"), 21 * 24);
  EXPECT_EQ(hours("2w"), 14 * 24);
  EXPECT_EQ(hours("1y"), 365 * 24);
  EXPECT_EQ(hours("7200"), 2);
  EXPECT_EQ(hours("3h"), 3);
  EXPECT_EQ(hours("0"), 0);
  EXPECT_EQ(hours("2017-09-25"), 22 * 24 - 6);
  EXPECT_EQ(hours("2017-09-03 05:00:00"), -1);
  EXPECT_EQ(offset_of(workload, "soon").error().code, Code::kCorrupt);
  EXPECT_EQ(offset_of(workload, "-1d").error().code, Code::kCorrupt);
  EXPECT_EQ(offset_of(workload, "99999999y").error().code, Code::kCorrupt);
  workload.epoch.clear();
  EXPECT_EQ(offset_of(workload, "2017-09-25").error().code, Code::kUnsupported);
}

}  // namespace
}  // namespace kansoku::simulate
