// SPDX-License-Identifier: Apache-2.0
// Cost of a probe at a launch of the CUDA driver: the bare hit, the record of an entry with nine
// arguments, and the same with 32 native frames, of a stub with the same first instruction, in
// alternation, a million calls each; and the cost if the end is seen as well.
#include <fmt/format.h>
#include <unistd.h>

#include <array>
#include <span>
#include <string>
#include <vector>

#include "bench_util.h"
#include "capture/bpf/engine.h"
#include "common/parse.h"
#include "sys/clock.h"
#include "sys/elf.h"

// A launch's arguments, three of them on the stack.
extern "C" long bench_cuda_launch(long function, long grid_x, long grid_y, long grid_z,
                                  long block_x, long block_y, long block_z, long shared,
                                  long stream);
asm(".text\n.globl bench_cuda_launch\n.type bench_cuda_launch, @function\nbench_cuda_launch:\n"
    "push %rbp\nlea 1(%rdi), %rax\npop %rbp\nret\n"
    ".size bench_cuda_launch, . - bench_cuda_launch\n");

namespace kansoku::bench {
namespace {

using capture::bpf::Engine;
using capture::bpf::UprobeSpec;

constexpr int kCalls = 100'000, kDepth = 40;
enum Probe : std::uint32_t { kBare, kEntry, kFrames, kWithEnd, kProbes };
constexpr std::array<const char*, kProbes> kNames{"bare", "entry", "entry_32_frames",
                                                  "entry_and_end"};

[[gnu::noinline]] long calls(const Clock& clock, int count, double& ns) {
  const BootTime begin = clock.now();
  long value = 0;
  for (int i = 0; i < count; ++i)
    value = bench_cuda_launch(value, 1, 2, 3, 4, 5, 6, 7, 8);
  ns = static_cast<double>((clock.now() - begin).count()) / count;
  return value;
}

// Frames below the calls. Reading through the volatile keeps them apart.
[[gnu::noinline]] long below(volatile int& depth, const Clock& clock, int count, double& ns) {
  if (depth == 0) return calls(clock, count, ns);
  depth = depth - 1;
  const long value = below(depth, clock, count, ns);
  depth = depth + 1;
  return value;
}

wire_probe described(Probe which) {
  wire_probe out{};
  if (which == kBare) return out;  // attached, and the program returns at once
  out.sinks = WIRE_SINK_RING;
  out.flags = which == kWithEnd ? 0 : WIRE_PROBE_INSTANT;
  if (which == kFrames) out.flags |= WIRE_PROBE_FRAMES;
  for (std::uint8_t i = 0; i < 9; ++i) {
    wire_capture& capture = out.captures[out.capture_count];
    capture.source = i < 6 ? i : static_cast<std::uint8_t>(WIRE_STACK_POINTER);
    capture.size = i > 0 && i < 8 ? 4 : 8;
    if (i >= 6) capture.offset[capture.step_count++] = static_cast<std::uint16_t>(8 * (i - 5));
    out.at_begin |= static_cast<std::uint16_t>(1U << out.capture_count++);
  }
  return out;
}

void print(const std::array<std::vector<double>, kProbes>& costs, double base, int rounds) {
  const double bare = stats::median(costs[kBare]) - base;
  for (std::uint32_t which = 0; which < kProbes; ++which) {
    const auto found = median_with_interval(costs.at(which));
    fmt::print(
        "bench cuda_hit probe={} first=push calls={} ns={:.0f} low={:.0f} high={:.0f} "
        "over_bare_ns={:.0f}\n",
        kNames.at(which), rounds * kCalls, found.median - base, found.low - base, found.high - base,
        found.median - base - bare);
  }
}

Result<void> run(int rounds) {
  const sys::RealClock clock;
  TRY(const auto engine, Engine::create({.ring_bytes = 128U << 20, .has_totals = false}));
  TRY_VOID(engine->observe_process(::getpid()));
  TRY(const auto file, sys::ElfFile::open("/proc/self/exe"));
  const sys::Symbol* symbol = file->find_symbol("bench_cuda_launch");
  if (symbol == nullptr) return Error{Code::kNotFound, "find bench_cuda_launch: not exported"};
  const std::uint64_t offset = *file->file_offset(symbol->address);
  std::array<std::vector<double>, kProbes> costs;
  std::vector<double> without;
  const auto measure = [&](std::vector<double>& out) {
    double ns = 0;
    volatile int depth = kDepth;
    if (below(depth, clock, kCalls, ns) != kCalls) fmt::print("bench cuda wrong_result\n");
    out.push_back(ns);
  };
  for (std::uint32_t which = 0; which < kProbes; ++which)
    TRY_VOID(engine->describe_probe(which, described(static_cast<Probe>(which))));
  for (int round = 0; round < rounds; ++round) {
    measure(without);
    for (std::uint32_t which = 0; which < kProbes; ++which) {
      const bool has_end = which == kWithEnd;
      const UprobeSpec spec{offset, 0, has_end ? which : which | WIRE_COOKIE_INSTANT};
      TRY(const auto handle, engine->attach_uprobes("/proc/self/exe", {&spec, 1}, has_end));
      measure(costs.at(which));
      engine->detach(handle);
      engine->drain([](std::span<const std::byte>) {});
    }
  }
  print(costs, stats::median(without), rounds);
  fmt::print("bench cuda_hit mode={} call_without_ns={:.2f} lost_records={}\n",
             capture::bpf::attach_mode_name(engine->mode()), stats::median(without),
             engine->counters().ring_full);
  return {};
}

}  // namespace
}  // namespace kansoku::bench

int main(int argc, char** argv) {  // [ROUNDS], of 100,000 calls each
  const int rounds = argc > 1 ? kansoku::parse_int<int>(argv[1]).value_or(15) : 15;
  if (const auto done = kansoku::bench::run(rounds < 1 ? 1 : rounds); !done) {
    fmt::print("bench cuda_hit failed: {}\n", done.error().what);
    return 1;
  }
  return 0;
}
