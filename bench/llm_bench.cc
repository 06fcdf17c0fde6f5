// SPDX-License-Identifier: Apache-2.0
// Cost of looking at a model. Without arguments: a hit of each kind, against a program that does
// nothing, over a million calls each. With PID COUNTER LEVEL PAIRS WINDOW_MS: a running generation,
// whose tokens are the first 8 bytes of the file COUNTER, with the level on and off in random
// order: processor time a token, hits times price, and the observer's own time.
#include <fmt/format.h>

#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

#include "bench_util.h"
#include "capture/bpf/model_engine.h"
#include "capture/llm/live.h"
#include "capture/pack.h"
#include "common/bytes.h"
#include "common/parse.h"
#include "sys/clock.h"
#include "sys/fd.h"
#include "sys/procfs.h"
#include "trace/reader.h"

namespace kansoku::bench {
namespace {

using capture::bpf::ModelEngine;

struct Role {
  const char* name;
  std::uint32_t role;
};
constexpr Role kRoles[]{{"operator", WIRE_MODEL_OPERATOR},
                        {"barrier", WIRE_MODEL_BARRIER},
                        {"schedule", WIRE_MODEL_SCHEDULE}};
constexpr int kRounds = 25, kCalls = 40'000, kCallsWithData = 4'000;

Result<void> bench_hits() {
  TRY(const auto engine, ModelEngine::create({}));
  for (const std::size_t data_bytes : {std::size_t{0}, std::size_t{256} << 10}) {
    const int calls = data_bytes == 0 ? kCalls : kCallsWithData;
    ModelEngine::Measured what{.rounds = kRounds, .calls = calls, .data_bytes = data_bytes};
    TRY(const double bare, engine->measure_hit(what));
    for (const Role& one : kRoles) {
      what.role = one.role;
      TRY(const double hit, engine->measure_hit(what));
      fmt::print(
          "bench llm_hit role={} data_kib={} bare_ns={:.0f} hit_ns={:.0f} more_ns={:.0f} "
          "calls={}\n",
          one.name, data_bytes >> 10, bare * 1e9, hit * 1e9, (hit - bare) * 1e9, kRounds * calls);
    }
  }
  TRY(const double stepped, engine->measure_hit({.place = ModelEngine::Place::kStepped,
                                                 .role = WIRE_MODEL_BARRIER,
                                                 .rounds = kRounds,
                                                 .calls = kCalls}));
  fmt::print("bench llm_hit role=barrier single_stepped=1 hit_ns={:.0f} calls={}\n", stepped * 1e9,
             kRounds * kCalls);
  const ModelEngine::Price& price = engine->price();
  fmt::print("bench llm_price emulated_ns={:.0f} caches_ns={:.0f} stepped_ns={:.0f}\n",
             price.emulated * 1e9, price.caches * 1e9, price.stepped * 1e9);
  return {};
}

struct Reading {
  double cpu{0};  // seconds of the target
  double wall{0};
  std::uint64_t tokens{0};
};

class Job {
 public:
  Job(std::int32_t pid, std::string counter) : pid_(pid), counter_(std::move(counter)) {}
  [[nodiscard]] Reading read(const Clock& clock) const {
    Reading out;
    for (const std::int32_t tid : sys::Procfs().tids(pid_)) {
      const auto text = sys::read_file(fmt::format("/proc/{}/task/{}/schedstat", pid_, tid), 4096);
      if (!text) continue;
      out.cpu += static_cast<double>(
                     parse_int<std::uint64_t>(std::string_view(*text).substr(0, text->find(' ')))
                         .value_or(0)) *
                 1e-9;
    }
    if (const auto bytes = sys::read_file(counter_, 8); bytes && bytes->size() == 8)
      std::memcpy(&out.tokens, bytes->data(), 8);
    out.wall = static_cast<double>((clock.now() - BootTime{}).count()) * 1e-9;
    return out;
  }

 private:
  std::int32_t pid_;
  std::string counter_;
};

struct PerToken {
  double cpu{0}, wall{0};
};
std::optional<PerToken> between(const Reading& a, const Reading& b) {
  if (b.tokens <= a.tokens) return std::nullopt;
  const auto tokens = static_cast<double>(b.tokens - a.tokens);
  return PerToken{(b.cpu - a.cpu) / tokens, (b.wall - a.wall) / tokens};
}

Result<void> bench_job(std::int32_t pid, const std::string& counter, trace::ModelLevel level,
                       int pairs, Nanos window) {
  const sys::RealClock clock;
  const sys::Procfs procfs;
  TRY(auto packs, capture::load_packs({KANSOKU_SOURCE_DIR "/share/probes"}));
  capture::llm::SourceOptions options;
  options.probes = capture::llm::take_model_probes(packs);
  options.level = level;
  options.budget = 1;
  TRY(const auto live, capture::llm::Live::create(clock, procfs, options, {pid}));
  const Job job(pid, counter);
  std::vector<double> cpu_share, wall_share, priced;
  double cost = 0, on_wall = 0, observer = 0;
  Rng rng(1);
  for (int pair = 0; pair < pairs; ++pair) {
    std::optional<PerToken> on, off;
    const double cost_before = cost;
    const bool is_on_first = rng.below(2) == 0;
    for (int half = 0; half < 2; ++half) {
      std::vector<Reading> readings;
      const auto wait = [&](BootTime until) {
        readings.push_back(job.read(clock));
        sys::sleep_until(until);
      };
      if ((half == 0) == is_on_first) {
        const double before = static_cast<double>(sys::thread_cpu_time().count()) * 1e-9;
        TRY(const std::string bytes, live->window(
                                         window, [] { return false; }, wait));
        observer += static_cast<double>(sys::thread_cpu_time().count()) * 1e-9 - before;
        on = between(readings.front(), readings.back());
        TRY(const trace::Trace trace, trace::read_trace(as_bytes(bytes)));
        const trace::StringId key = trace.strings.find("cost_ns");
        for (std::size_t i = 0; i < trace.slices.size(); ++i)
          if (const auto* const arg = trace.slice_arg(i, key))
            cost += static_cast<double>(arg->u64) * 1e-9;
        on_wall += static_cast<double>(window.count()) * 1e-9;
      } else {
        const BootTime end = clock.now() + window;
        wait(end);
        readings.push_back(job.read(clock));
        off = between(readings.front(), readings.back());
      }
    }
    if (!on || !off) continue;
    cpu_share.push_back(on->cpu / off->cpu - 1);
    wall_share.push_back(on->wall / off->wall - 1);
    // As the processor time is: of a token without it.
    const double rate = (cost - cost_before) / (static_cast<double>(window.count()) * 1e-9);
    priced.push_back(rate * on->wall / off->cpu);
  }
  if (cpu_share.empty()) return Error{Code::kUnavailable, "bench: no window with tokens"};
  const MedianInterval cpu = median_with_interval(cpu_share),
                       wall = median_with_interval(wall_share);
  fmt::print(
      "bench llm_overhead level={} pairs={} hits_times_price={:.3f}% of_a_token={:.2f}% "
      "cpu={:.2f}% cpu_low={:.2f}% "
      "cpu_high={:.2f}% wall={:.2f}% wall_low={:.2f}% wall_high={:.2f}% observer={:.2f}%\n",
      trace::model_level_name(level), cpu_share.size(), 100 * cost / on_wall,
      100 * median_with_interval(priced).median, 100 * cpu.median, 100 * cpu.low, 100 * cpu.high,
      100 * wall.median, 100 * wall.low, 100 * wall.high, 100 * observer / on_wall);
  return {};
}

Result<void> run(std::span<char*> words) {
  if (words.size() == 1) return bench_hits();
  if (words.size() != 6)
    return Error{Code::kUnsupported, "bench_llm PID COUNTER LEVEL PAIRS WINDOW_MS"};
  const auto pid = parse_int<std::int32_t>(words[1]);
  const auto level = trace::model_level_from_name(words[3]);
  const auto pairs = parse_int<int>(words[4]);
  const auto window = parse_int<std::int64_t>(words[5]);
  if (!pid || !level || !pairs || !window)
    return Error{Code::kUnsupported, "bench_llm: not a number or level"};
  return bench_job(*pid, words[2], *level, *pairs, Nanos{*window * 1'000'000});
}

}  // namespace
}  // namespace kansoku::bench

int main(int argc, char** argv) {
  const auto done = kansoku::bench::run({argv, static_cast<std::size_t>(argc)});
  if (done) return 0;
  fmt::print(stderr, "bench: {}\n", done.error().what);
  return done.error().code == kansoku::Code::kPermission ? 77 : 1;
}
