// SPDX-License-Identifier: Apache-2.0
#include "fleet/hosts_for_test.h"

#include <fmt/format.h>

#include <utility>

#include "common/json.h"

namespace kansoku::fleet::test {
namespace {

constexpr std::int64_t kSecond = 1'000'000'000;

SummaryWriter writer_of(const HostForTest::Options& options) {
  SummaryOptions own;
  own.host = fmt::format("node{:04}", options.index);
  own.boot_id = options.boot_id;
  own.epoch_ns = options.begin_ns + options.epoch;
  own.budget.bytes_per_second = options.bytes_per_second;
  for (int i = 0; i < options.features; ++i)
    own.features.push_back(fmt::format("feature_{}", i));
  if (options.with_rows)
    own.axes.assign(own.features.size(), {ClusterAxis::Scale::kLog, 1e-3, 0.1});
  return SummaryWriter::create(std::move(own), boot_time(0)).value();
}

}  // namespace

HostForTest::HostForTest(const Options& options)
    : options_(options),
      random_(static_cast<std::uint64_t>(options.index), "host"),
      writer_(writer_of(options)) {
  const int number = options.index / options.hosts_a_job;
  const int first = options.index % options.hosts_a_job * options.ranks;
  SummaryJob job{fmt::format("key{:04}", number),
                 fmt::format("train {}", number),
                 options.ranks * options.hosts_a_job,
                 {}};
  for (int i = 0; i < options.ranks; ++i)
    job.ranks.push_back(first + i);
  job_ = writer_.set_job(std::move(job)).value();
  values_.resize(static_cast<std::size_t>(options.features));
}

void HostForTest::add_incident(const std::string& id, int begin_s, int end_s, int score) {
  const auto time = [&](int seconds) {
    return std::to_string(seconds == 0 ? 0 : options_.begin_ns + seconds * kSecond);
  };
  writer_.add_incident(job_, id,
                       Json::object()
                           .set("schema", "kansoku.watch_incident/1")
                           .set("id", id)
                           .set("begin_ns", time(begin_s))
                           .set("end_ns", time(end_s))
                           .set("kind", "latency_spike")
                           .set("score", score)
                           .set("summary", fmt::format("score {}", score))
                           .dump());
}

std::string HostForTest::minute(int minute) {
  const int first = options_.index % options_.hosts_a_job * options_.ranks;
  for (int second = 0; second < 60; ++second) {
    for (int rank = first; rank < first + options_.ranks; ++rank) {
      for (std::size_t i = 0; i < values_.size(); ++i) {
        const bool is_slow = rank == 5 && i == 0;
        values_[i] = (is_slow ? 1.5 : 1) * options_.factor * static_cast<double>(i + 1) *
                     (1 + 0.2 * random_.uniform());
      }
      writer_.add_window(job_, rank, values_);
    }
  }
  writer_.add_counter("lost", 1);
  const std::int64_t elapsed = minute * 60 * kSecond;
  return writer_.take(boot_time(elapsed), options_.begin_ns + elapsed);
}

}  // namespace kansoku::fleet::test
