// SPDX-License-Identifier: Apache-2.0
// Synthetic hosts that publish summaries, for tests and examples/collect:
//   fleet_hosts URL HOSTS MINUTES [HOSTS_A_JOB] [LATE_HOST]
// publishes what HOSTS hosts would have said in MINUTES minutes, of which the present one is the
// last: its ranks are told of until the next one is over. Rank 5 of each job is slower in
// feature_0; with MINUTES above 2 job 0 has an incident on all of its hosts; LATE_HOST stops after
// its first minute. Ends once the server has everything.
#include <fmt/format.h>

#include <cstdio>
#include <string>
#include <vector>

#include "common/parse.h"
#include "fleet/bus.h"
#include "fleet/hosts_for_test.h"
#include "fleet/nats_bus.h"
#include "sys/clock.h"

namespace {

using namespace kansoku;  // NOLINT(google-build-using-namespace)
using fleet::test::HostForTest;

constexpr std::int64_t kMinute = 60'000'000'000;
constexpr Nanos kPatience = std::chrono::minutes{10};  // only a broken program takes so long

int number(char** argv, int argc, int index, int otherwise) {
  return index < argc ? parse_int<int>(argv[index]).value_or(otherwise) : otherwise;
}

int fail(const Error& error) {
  fmt::print(stderr, "fleet_hosts: {}\n", error.what);
  return 1;
}

}  // namespace

int main(int argc, char** argv) {
  const int host_count = number(argv, argc, 2, 0), minutes = number(argv, argc, 3, 0);
  const int hosts_a_job = number(argv, argc, 4, 4), late = number(argv, argc, 5, -1);
  if (host_count < 1 || minutes < 1 || hosts_a_job < 1) {
    fmt::print(stderr, "usage: fleet_hosts URL HOSTS MINUTES [HOSTS_A_JOB] [LATE_HOST]\n");
    return 2;
  }
  const sys::RealClock clock;
  fleet::NatsOptions options;
  options.url = argv[1];
  options.limits.outgoing_messages = 1'000'000;
  options.limits.outgoing_bytes = std::size_t{1} << 30;
  const auto bus = fleet::connect_nats(options, clock);
  if (!bus) return fail(bus.error());
  const std::int64_t begin_ns = (sys::wall_time_ns() / kMinute - minutes + 1) * kMinute;
  std::vector<HostForTest> hosts;
  for (int i = 0; i < host_count; ++i)
    hosts.emplace_back(HostForTest::Options{
        .index = i, .hosts_a_job = hosts_a_job, .begin_ns = begin_ns, .with_rows = true});
  std::uint64_t bytes = 0;
  for (int minute = 1; minute <= minutes; ++minute) {
    for (int i = 0; i < host_count; ++i) {
      HostForTest& host = hosts[static_cast<std::size_t>(i)];
      if (minute == 2 && minutes > 2 && i < hosts_a_job)
        host.add_incident(fmt::format("{:016x}", i), 70 + i, 100, 3);
      if (i == late && minute > 1) continue;
      const std::string message = host.minute(minute);
      bytes += message.size();
      const auto subject = fmt::format("{}.node{:04}", fleet::kSummarySubject, i);
      if (const auto sent = (*bus)->publish(subject, message); !sent) return fail(sent.error());
    }
  }
  if (const auto flushed = (*bus)->flush(kPatience); !flushed) return fail(flushed.error());
  const fleet::BusStatus status = (*bus)->status();
  fmt::print("{} hosts, {} messages, {} bytes, {} dropped\n", host_count, status.sent, bytes,
             status.dropped_outgoing);
  return status.dropped_outgoing == 0 ? 0 : 1;
}
