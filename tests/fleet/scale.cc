// SPDX-License-Identifier: Apache-2.0
// The collector under HOSTS hosts for MINUTES minutes, one message a host and minute: bytes a
// message, processor time a message and a report, memory. Fails where not all is taken in; with
// --limit also where a minute takes more than half a minute, which is the machine's affair, too.
//   fleet_scale [HOSTS] [MINUTES] [RANKS] [FEATURES] [--limit]
#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <ctime>
#include <string>
#include <string_view>
#include <vector>

#include "common/parse.h"
#include "fleet/collector.h"
#include "fleet/hosts_for_test.h"
#include "sys/fd.h"

namespace {

using namespace kansoku;  // NOLINT(google-build-using-namespace)
using fleet::test::HostForTest;
using fleet::test::kBeginNs;

int number(char** argv, int argc, int index, int otherwise) {
  return index < argc ? parse_int<int>(argv[index]).value_or(otherwise) : otherwise;
}

/// Resident memory in MiB.
double resident_mib() {
  const auto text = sys::read_file("/proc/self/statm", 4096);
  if (!text) return 0;
  const std::size_t begin = text->find(' ') + 1;
  const auto pages = parse_int<std::uint64_t>(
      std::string_view(*text).substr(begin, text->find(' ', begin) - begin));
  return static_cast<double>(pages.value_or(0)) * 4096 / (1 << 20);
}

/// Processor time of this process, seconds: the machine may be shared.
double cpu_s() {
  timespec time{};
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &time);
  return static_cast<double>(time.tv_sec) + 1e-9 * static_cast<double>(time.tv_nsec);
}

}  // namespace

int main(int argc, char** argv) {
  const bool has_limit = argc > 1 && std::string_view(argv[argc - 1]) == "--limit";
  argc -= has_limit ? 1 : 0;
  const int host_count = number(argv, argc, 1, 10'000), minutes = number(argv, argc, 2, 15);
  const int ranks = number(argv, argc, 3, 8), features = number(argv, argc, 4, 40);
  constexpr int kHostsAJob = 16;
  fleet::Collector collector;
  double add_s = 0, worst_minute_s = 0;
  std::uint64_t bytes = 0, refused = 0;
  const double before_mib = resident_mib();
  for (int minute = 1; minute <= minutes; ++minute) {
    double minute_s = 0;
    for (int i = 0; i < host_count; ++i) {
      HostForTest::Options options{.index = i,
                                   .ranks = ranks,
                                   .hosts_a_job = kHostsAJob,
                                   .features = features,
                                   .begin_ns = kBeginNs,
                                   .with_rows = true};
      options.epoch = minute;  // a fresh writer each minute, so that none has to be kept
      HostForTest host(options);
      const std::string message = host.minute(minute);
      bytes += message.size();
      const fleet::CollectorTime now{boot_time(minute * 60'000'000'000),
                                     kBeginNs + minute * 60'000'000'000};
      const double begin = cpu_s();
      if (!collector.add(as_bytes(message), now)) ++refused;
      minute_s += cpu_s() - begin;
    }
    add_s += minute_s;
    worst_minute_s = std::max(worst_minute_s, minute_s);
  }
  const double messages = static_cast<double>(host_count) * minutes;
  const fleet::CollectorTime end{boot_time(minutes * 60'000'000'000),
                                 kBeginNs + minutes * 60'000'000'000};
  const double begin = cpu_s();
  const fleet::FleetReport report = collector.report(end);
  const double report_s = cpu_s() - begin;
  const double json_begin = cpu_s();
  const std::size_t json_bytes = report.to_json().dump().size();
  fmt::print("{} hosts, {} minutes, {} ranks and {} features a host, {} hosts a job\n", host_count,
             minutes, ranks, features, kHostsAJob);
  fmt::print(
      "message: {:.0f} bytes; {:.1f} us to take in; a minute of all hosts: {:.2f} s at most\n",
      static_cast<double>(bytes) / messages, 1e6 * add_s / messages, worst_minute_s);
  fmt::print("memory: {:.0f} MiB of sketches, {:.0f} MiB resident more than at the start\n",
             static_cast<double>(collector.sketch_bytes()) / (1 << 20),
             resident_mib() - before_mib);
  fmt::print("report: {} jobs in {:.2f} s; JSON {:.1f} MB in {:.2f} s\n", report.jobs.size(),
             report_s, static_cast<double>(json_bytes) * 1e-6, cpu_s() - json_begin);
  const bool is_good = refused == 0 && (!has_limit || worst_minute_s < 30) &&
                       report.hosts.size() == static_cast<std::size_t>(host_count);
  return is_good ? 0 : 1;
}
