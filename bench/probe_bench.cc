// SPDX-License-Identifier: Apache-2.0
// Cost of one probe hit, by the class of the instruction under the probe and by attach mode: the
// same call with the probe attached and detached, in pairs; and how long attaching and detaching
// takes.
#include <fmt/format.h>
#include <unistd.h>

#include <chrono>
#include <span>
#include <string>
#include <vector>

#include "bench_util.h"
#include "capture/bpf/engine.h"
#include "capture/bpf/exits.h"
#include "capture/bpf/sites.h"
#include "sys/clock.h"
#include "sys/elf.h"

#define BENCH_TARGET(name, prologue, epilogue)                                     \
  extern "C" long name(long value);                                                \
  asm(".text\n.globl " #name "\n.type " #name ", @function\n" #name ":\n" prologue \
      "\nlea 1(%rdi), %rax\n" epilogue "\nret\n.size " #name ", . - " #name "\n")

BENCH_TARGET(bench_push, "push %rbx", "pop %rbx");
BENCH_TARGET(bench_nop, "nop", "");
BENCH_TARGET(bench_nop5, ".byte 0x0f, 0x1f, 0x44, 0x00, 0x00", "");
BENCH_TARGET(bench_jmp, "jmp 1f\n1:", "");
BENCH_TARGET(bench_other, "xor %eax, %eax", "");
BENCH_TARGET(bench_endbr_push, "endbr64\npush %rbx", "pop %rbx");
// A branch that only its return follows, as the check of the stack's guard.
BENCH_TARGET(bench_guard, "push %rbx\ntest %rsp, %rsp\nje 2f", "pop %rbx\nret\n2: ud2");

namespace kansoku::bench {
namespace {

using capture::bpf::AttachMode;
using capture::bpf::Engine;
using capture::bpf::UprobeSpec;

struct Target {
  const char* symbol;
  long (*function)(long);
};
constexpr Target kTargets[]{{"bench_push", bench_push},   {"bench_nop", bench_nop},
                            {"bench_nop5", bench_nop5},   {"bench_jmp", bench_jmp},
                            {"bench_other", bench_other}, {"bench_endbr_push", bench_endbr_push},
                            {"bench_guard", bench_guard}};
constexpr int kPairs = 15;
constexpr int kCallsOn = 3000;
constexpr int kCallsOff = 200'000;

double ns_per_call(const Clock& clock, long (*function)(long), int calls) {
  const BootTime begin = clock.now();
  long value = 0;
  for (int i = 0; i < calls; ++i)
    value = function(value);
  const Nanos took = clock.now() - begin;
  if (value != calls) fmt::print("bench probe_hit wrong_result={}\n", value);
  return static_cast<double>(took.count()) / calls;
}

Result<double> hit_ns(Engine& engine, const Clock& clock, const Target& target,
                      std::span<const UprobeSpec> specs, bool with_return) {
  std::vector<double> differences;
  for (int pair = 0; pair < kPairs; ++pair) {
    TRY_VOID(engine.attach_uprobes("/proc/self/exe", specs, with_return));
    const double on = ns_per_call(clock, target.function, kCallsOn);
    engine.detach_all();
    engine.drain([](std::span<const std::byte>) {});
    differences.push_back(on - ns_per_call(clock, target.function, kCallsOff));
  }
  return stats::median(differences);
}

// Probes of both kinds: an instant, and one record a call where the attach mode can.
constexpr std::uint32_t kInstant = 0, kCall = 1, kPair = 2;

Result<void> describe_probes(Engine& engine) {
  constexpr std::array<std::pair<std::uint32_t, int>, 3> kProbes{
      {{kInstant, WIRE_PROBE_INSTANT}, {kCall, WIRE_PROBE_AT_END}, {kPair, 0}}};
  for (const auto& [index, flags] : kProbes) {
    wire_probe probe{};
    probe.sinks = WIRE_SINK_RING;
    probe.flags = static_cast<std::uint8_t>(flags);
    TRY_VOID(engine.describe_probe(index, probe));
  }
  return {};
}

/// Begin and end of a call at the function's own exits.
std::vector<UprobeSpec> own_exits(sys::ElfFile& file, const sys::Symbol& symbol,
                                  const capture::bpf::Site& site) {
  std::vector<UprobeSpec> specs{{*file.file_offset(site.address), 0, kCall | WIRE_COOKIE_CALL}};
  for (const auto& exit :
       capture::bpf::find_exits(file, symbol, {.entry_site = site.address}).exits)
    specs.push_back({*file.file_offset(exit.address), 0, exit.cookie(kCall)});
  return specs;
}

Result<void> run_mode(AttachMode mode, const Clock& clock) {
  TRY(const auto engine, Engine::create({.forced = mode, .has_totals = false}));
  TRY_VOID(engine->observe_process(::getpid()));
  TRY_VOID(describe_probes(*engine));
  TRY(const auto file, sys::ElfFile::open("/proc/self/exe"));
  for (const Target& target : kTargets) {
    const sys::Symbol* symbol = file->find_symbol(target.symbol);
    if (symbol == nullptr)
      return Error{Code::kNotFound, fmt::format("find {}: not exported", target.symbol)};
    const auto site = capture::bpf::pick_site(*file, *symbol, {true, true});
    const UprobeSpec entry{*file->file_offset(site.address), 0, kInstant | WIRE_COOKIE_INSTANT};
    const bool is_session = mode == AttachMode::kSession;
    const UprobeSpec call{entry.file_offset, 0, is_session ? kCall : kPair};
    const UprobeSpec naive{*file->file_offset(symbol->address), 0, kInstant | WIRE_COOKIE_INSTANT};
    const auto exits = own_exits(*file, *symbol, site);
    TRY(const double entry_ns, hit_ns(*engine, clock, target, {&entry, 1}, false));
    TRY(const double call_ns, hit_ns(*engine, clock, target, {&call, 1}, true));
    TRY(const double exits_ns, hit_ns(*engine, clock, target, exits, false));
    TRY(const double naive_ns, hit_ns(*engine, clock, target, {&naive, 1}, false));
    fmt::print(
        "bench probe_hit mode={} function={} class={} offset={} entry_ns={:.0f} "
        "entry_and_return_ns={:.0f} entry_and_exit_ns={:.0f} ratio_vs_probe_at_symbol={:.3f}\n",
        capture::bpf::attach_mode_name(mode), target.symbol,
        capture::bpf::site_class_name(site.site_class), site.offset_bytes, entry_ns, call_ns,
        exits_ns, entry_ns / naive_ns);
  }
  return {};
}

}  // namespace
}  // namespace kansoku::bench

int main(int argc, char** argv) {  // [session|multi|perf]
  namespace bench = kansoku::bench;
  const kansoku::sys::RealClock clock;
  for (const auto mode :
       {bench::AttachMode::kSession, bench::AttachMode::kMulti, bench::AttachMode::kPerf}) {
    if (argc > 1 && kansoku::capture::bpf::attach_mode_name(mode) != argv[1]) continue;
    if (const auto done = bench::run_mode(mode, clock); !done) {
      fmt::print("bench probe_hit mode={} failed: {}\n",
                 kansoku::capture::bpf::attach_mode_name(mode), done.error().what);
      return 1;
    }
  }
  return 0;
}
