// SPDX-License-Identifier: Apache-2.0
#include "capture/bpf/engine.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <fstream>
#include <functional>
#include <map>
#include <stdexcept>
#include <string>
#include <thread>

#include "capture/bpf/calls_for_test.h"
#include "capture/bpf/python_str_for_test.h"
#include "capture/bpf/sites.h"
#include "sys/elf.h"
#include "sys/process.h"

// Functions with known first instructions. Each returns its argument plus one, so that a probe that
// harms the call shows. The symbol is exported (-rdynamic), so .dynsym has it.
#define PROBE_TARGET(name, prologue, epilogue)                                     \
  extern "C" long name(long value);                                                \
  asm(".text\n.globl " #name "\n.type " #name ", @function\n" #name ":\n" prologue \
      "\nlea 1(%rdi), %rax\n" epilogue "\nret\n.size " #name ", . - " #name "\n")

PROBE_TARGET(target_push, "push %rbx", "pop %rbx");
PROBE_TARGET(target_nop, "nop", "");
PROBE_TARGET(target_nop4, ".byte 0x0f, 0x1f, 0x40, 0x00", "");
PROBE_TARGET(target_nop5, ".byte 0x0f, 0x1f, 0x44, 0x00, 0x00", "");
PROBE_TARGET(target_jmp, "jmp 1f\nud2\n1:", "");
PROBE_TARGET(target_jcc, "je 1f\n1:", "");
PROBE_TARGET(target_endbr_push, "endbr64\npush %rbp", "pop %rbp");
PROBE_TARGET(target_endbr_nop5, "endbr64\n.byte 0x0f, 0x1f, 0x44, 0x00, 0x00", "");
PROBE_TARGET(target_slow, "xor %eax, %eax\nmov %rdi, %rcx", "");
// Data lies below rsp when the 5-byte nop runs: kernels that make a call of it overwrite them.
PROBE_TARGET(target_red_zone,
             "movq %rdi, -8(%rsp)\n.byte 0x0f, 0x1f, 0x44, 0x00, 0x00\nmovq -8(%rsp), %rdi", "");
// The first cheap instruction is a loop head: probed there, one call would count four times.
PROBE_TARGET(target_loop, "mov $4, %eax\n1: nop\ndec %eax\njnz 1b", "");
// The first cheap instruction comes after an argument register was overwritten.
PROBE_TARGET(target_clobber, "mov %rdi, %rsi\nxchg %rdi, %rsi\nnop", "");

// The kernel refuses prefixed instructions of this kind.
PROBE_TARGET(target_locked, "lock orl $0, -8(%rsp)", "");

// Its second return value is that of a jump to another function.
PROBE_TARGET(target_tail, "test %rdi, %rdi\njne 1f\njmp target_push\n1:", "");

extern "C" {
[[gnu::noinline, gnu::used]] long target_throws(long value) {
  if (value < 0) throw std::invalid_argument("negative");
  return value + 1;
}
void (*change_inside_for_test)(void*) = nullptr;
void* change_argument_for_test = nullptr;
[[gnu::noinline, gnu::used]] long target_changes(long value) {
  change_inside_for_test(change_argument_for_test);
  return value + 1;
}
[[gnu::noinline, gnu::used]] long target_catches(long value) {
  try {
    const long first = target_throws(-value);
    return first + target_throws(value);
  } catch (const std::invalid_argument&) {
    return value + 1;
  }
}
}

namespace kansoku::capture::bpf {
namespace {

using Function = long (*)(long);
const std::map<std::string, Function> kTargets{{"target_push", target_push},
                                               {"target_nop", target_nop},
                                               {"target_nop4", target_nop4},
                                               {"target_nop5", target_nop5},
                                               {"target_jmp", target_jmp},
                                               {"target_jcc", target_jcc},
                                               {"target_endbr_push", target_endbr_push},
                                               {"target_endbr_nop5", target_endbr_nop5},
                                               {"target_slow", target_slow},
                                               {"target_red_zone", target_red_zone},
                                               {"target_loop", target_loop},
                                               {"target_clobber", target_clobber}};

Site site_of(sys::ElfFile& file, const std::string& name, SiteNeeds needs = {true, true}) {
  const sys::Symbol* symbol = file.find_symbol(name);
  EXPECT_NE(symbol, nullptr) << name;
  return symbol == nullptr ? Site{} : pick_site(file, *symbol, needs);
}

class Prologue : public ::testing::Test {
 protected:
  void SetUp() override {
    auto file = sys::ElfFile::open("/proc/self/exe");
    ASSERT_TRUE(file.has_value());
    file_ = std::move(file).value();
  }
  std::unique_ptr<sys::ElfFile> file_;
};

TEST_F(Prologue, TakesTheFirstCheapInstruction) {
  const auto expect = [&](const std::string& name, std::uint32_t offset, SiteClass site_class) {
    const Site site = site_of(*file_, name);
    EXPECT_EQ(site.offset_bytes, offset) << name;
    EXPECT_EQ(site_class_name(site.site_class), site_class_name(site_class)) << name;
  };
  expect("target_push", 0, SiteClass::kPush);
  expect("target_nop", 0, SiteClass::kNop);
  expect("target_nop4", 0, SiteClass::kNop);
  expect("target_nop5", 5, SiteClass::kOther);
  expect("target_jmp", 0, SiteClass::kJump);
  expect("target_jcc", 0, SiteClass::kBranch);
  expect("target_endbr_push", 4, SiteClass::kPush);
  expect("target_endbr_nop5", 0, SiteClass::kEndbr);
  expect("target_slow", 0, SiteClass::kOther);
}

TEST_F(Prologue, RefusesAFiveByteNop) {
  EXPECT_EQ(site_of(*file_, "target_red_zone", {false, true}).offset_bytes, 0U);
}

TEST_F(Prologue, RefusesALoopHead) {
  const Site site = site_of(*file_, "target_loop");
  EXPECT_EQ(site.offset_bytes, 0U);
  EXPECT_NE(site.reason.find("loop"), std::string_view::npos) << site.reason;
  EXPECT_TRUE(site.is_once);
}

TEST_F(Prologue, StopsWhereArgumentsAreOverwritten) {
  EXPECT_EQ(site_of(*file_, "target_clobber").offset_bytes, 0U);
  EXPECT_NE(site_of(*file_, "target_clobber", {false, true}).offset_bytes, 0U);
}

TEST_F(Prologue, SaysWhereTheKernelTakesNoProbe) {
  EXPECT_TRUE(site_of(*file_, "target_slow").is_probeable);
  EXPECT_FALSE(site_of(*file_, "target_locked").is_probeable);
  EXPECT_FALSE(site_of(*file_, "target_locked", {.at_entry = true}).is_probeable);
}

struct Counts {
  std::vector<std::pair<char, std::uint32_t>> order;  // 'b' or 'e' and the probe
  std::vector<std::uint64_t> returned;                // first argument of ends
  std::map<std::uint32_t, int> begins, ends, slices, instants;
  std::map<std::uint32_t, std::vector<std::uint64_t>> first_args;
};

Counts drain(Engine& engine) {
  Counts counts;
  engine.drain([&](std::span<const std::byte> record) {
    const auto* head = reinterpret_cast<const wire_event*>(record.data());
    if (head->kind == WIRE_BEGIN) ++counts.begins[head->probe];
    if (head->kind == WIRE_END) ++counts.ends[head->probe];
    if (head->kind == WIRE_SLICE) ++counts.slices[head->probe];
    if (head->kind == WIRE_INSTANT) ++counts.instants[head->probe];
    if (head->kind == WIRE_BEGIN || head->kind == WIRE_END)
      counts.order.emplace_back(head->kind == WIRE_BEGIN ? 'b' : 'e', head->probe);
    if (head->kind == WIRE_END && head->layout != WIRE_PLAIN)
      counts.returned.push_back(reinterpret_cast<const wire_args*>(record.data())->args[0]);
    if (head->kind == WIRE_BEGIN && head->layout != WIRE_PLAIN) {
      counts.first_args[head->probe].push_back(
          reinterpret_cast<const wire_args*>(record.data())->args[0]);
    }
  });
  return counts;
}

class EngineModes : public ::testing::TestWithParam<AttachMode> {
 protected:
  void SetUp() override {
    engine_ = engine_for_test(GetParam());
    if (!engine_) GTEST_SKIP() << "needs root and bpf";
    auto file = sys::ElfFile::open("/proc/self/exe");
    ASSERT_TRUE(file.has_value());
    file_ = std::move(file).value();
  }
  void describe(std::uint32_t index, const wire_probe& probe) {
    const auto described = engine_->describe_probe(index, probe);
    ASSERT_TRUE(described.has_value()) << described.error().what;
  }
  void attach_exits(const std::string& name, std::uint32_t index, int flags = 0) {
    describe(index, probe_for_test(WIRE_SINK_RING, flags));
    attach_described(name, index, false);
  }
  void attach_described(const std::string& name, std::uint64_t cookie, bool wants_value) {
    const auto attached = engine_->attach_uprobes(
        "/proc/self/exe", call_specs_for_test(*file_, name, cookie, wants_value), false);
    ASSERT_TRUE(attached.has_value()) << attached.error().what;
  }
  std::unique_ptr<Engine> engine_;
  std::unique_ptr<sys::ElfFile> file_;
};

/// True if `function` threw the targets' exception.
bool throws(Function function, long argument) {
  try {
    static_cast<void>(function(argument));
    return false;
  } catch (const std::invalid_argument&) {
    return true;
  }
}

TEST_P(EngineModes, AnExceptionComesThroughACallWhoseExitsAreProbed) {
  attach_exits("target_throws", 5);
  for (int i = 0; i < 10; ++i)
    EXPECT_EQ(throws(target_throws, i % 2 == 0 ? i : -i), i % 2 != 0) << i;
  Counts counts = drain(*engine_);
  EXPECT_EQ(counts.begins[5], 10);
  EXPECT_EQ(counts.ends[5], 9) << "the next call shows that one is over";
  EXPECT_EQ(engine_->counters().begun_again, 4U) << "one behind each exception but the last";
  target_throws(1);
  counts = drain(*engine_);
  EXPECT_THAT(counts.order,
              ::testing::ElementsAre(std::pair('e', 5U), std::pair('b', 5U), std::pair('e', 5U)));
}

TEST_P(EngineModes, WhatAnExceptionEndedEndsBeforeTheCallThatCaughtIt) {
  attach_exits("target_throws", 5);
  attach_exits("target_catches", 6);
  EXPECT_EQ(target_catches(3), 4);
  EXPECT_THAT(drain(*engine_).order,
              ::testing::ElementsAre(std::pair('b', 6U), std::pair('b', 5U), std::pair('e', 5U),
                                     std::pair('e', 6U)));
}

TEST_P(EngineModes, NestedCallsEndInsideOut) {
  attach_exits("nested_for_test", 5);
  EXPECT_EQ(nested_for_test(7), 7);
  Counts counts = drain(*engine_);
  EXPECT_EQ(counts.begins[5], 7);
  EXPECT_EQ(counts.ends[5], 7);
  // One more than are remembered is not told at all.
  constexpr int kRemembered = 16;
  EXPECT_EQ(nested_for_test(kRemembered + 1), kRemembered + 1);
  counts = drain(*engine_);
  EXPECT_EQ(counts.begins[5], kRemembered);
  EXPECT_EQ(counts.ends[5], kRemembered);
  EXPECT_EQ(engine_->counters().calls_too_deep, 1U);
}

TEST_P(EngineModes, AReturnedValueIsReadAtTheExitAndNotAtAJump) {
  wire_probe returned = probe_for_test(WIRE_SINK_RING);
  add_capture_for_test(returned, WIRE_RETURN);
  describe(5, returned);
  attach_described("target_tail", 5, true);
  EXPECT_EQ(target_tail(41), 42);
  EXPECT_EQ(target_tail(0), 1);  // by a jump
  Counts counts = drain(*engine_);
  EXPECT_EQ(counts.ends[5], 2);
  EXPECT_THAT(counts.returned, ::testing::ElementsAre(42));
}

TEST_P(EngineModes, ASliceIsWrittenAtTheExitOfACallThatReturned) {
  attach_exits("target_throws", 5, WIRE_PROBE_AT_END);
  for (int i = 0; i < 10; ++i)
    throws(target_throws, i % 2 == 0 ? i : -i);
  Counts counts = drain(*engine_);
  EXPECT_EQ(counts.slices[5], 5);
  EXPECT_TRUE(counts.order.empty());
}

TEST_P(EngineModes, TwoProbesOfOneFunctionSeeItsCallsBoth) {
  attach_exits("target_throws", 5);
  attach_exits("target_throws", 6);
  for (int i = 0; i < 4; ++i)
    throws(target_throws, i % 2 == 0 ? i : -i);
  Counts counts = drain(*engine_);
  for (const std::uint32_t probe : {5U, 6U}) {
    EXPECT_EQ(counts.begins[probe], 4);
    EXPECT_EQ(counts.ends[probe], 3) << "the last one was an exception";
  }
}

TEST_P(EngineModes, AnExitOfACallThatBeganUnseenIsNone) {
  describe(5, probe_for_test(WIRE_SINK_RING));
  std::vector<UprobeSpec> exits = call_specs_for_test(*file_, "target_throws", 5);
  exits.erase(exits.begin());
  ASSERT_TRUE(engine_->attach_uprobes("/proc/self/exe", exits, false).has_value());
  attach_exits("target_catches", 6);  // calls it twice, and is open meanwhile
  EXPECT_EQ(target_catches(0), 2);
  Counts counts = drain(*engine_);
  EXPECT_EQ(counts.begins[6], 1);
  EXPECT_EQ(counts.ends[6], 1);
  EXPECT_EQ(counts.order.size(), 2U);
}

TEST_P(EngineModes, ReadsOfARegisterWhatItsTypeHolds) {
  constexpr long kValue = 0x1122334455667788;
  const UprobeSpec spec{*file_->file_offset(site_of(*file_, "target_push").address), 0,
                        5 | WIRE_COOKIE_INSTANT};
  ASSERT_TRUE(engine_->attach_uprobes("/proc/self/exe", {&spec, 1}, false).has_value());
  for (const auto& [size, expected] : std::map<std::uint8_t, std::uint64_t>{
           {1, 0x88}, {2, 0x7788}, {4, 0x55667788}, {8, 0x1122334455667788}}) {
    wire_probe argument = probe_for_test(WIRE_SINK_RING, WIRE_PROBE_INSTANT);
    add_capture_for_test(argument, 0, size);
    describe(5, argument);
    EXPECT_EQ(target_push(kValue), kValue + 1);
    std::uint64_t read = 0;
    engine_->drain([&](std::span<const std::byte> record) {
      read = reinterpret_cast<const wire_args*>(record.data())->args[0];
    });
    EXPECT_EQ(read, expected) << int{size};
  }
}

TEST_P(EngineModes, CountsEveryCallOfEveryPrologueExactly) {
  constexpr int kCalls = 100;
  std::vector<UprobeSpec> specs;
  std::uint32_t index = 0;
  wire_probe first_argument = probe_for_test(WIRE_SINK_RING);
  add_capture_for_test(first_argument, 0);
  for (const auto& [name, function] : kTargets) {
    ASSERT_TRUE(engine_->describe_probe(index, first_argument).has_value());
    const auto offset = file_->file_offset(site_of(*file_, name).address);
    ASSERT_TRUE(offset.has_value());
    specs.push_back({*offset, 0, index++});
  }
  const auto attached = engine_->attach_uprobes("/proc/self/exe", specs, true);
  ASSERT_TRUE(attached.has_value()) << attached.error().what;
  for (const auto& [name, function] : kTargets) {
    for (long i = 0; i < kCalls; ++i)
      ASSERT_EQ(function(i), i + 1) << name;
  }
  engine_->detach_all();
  const Counts counts = drain(*engine_);
  index = 0;
  for (const auto& [name, function] : kTargets) {
    EXPECT_EQ(counts.begins.at(index), kCalls) << name;
    EXPECT_EQ(counts.ends.at(index), kCalls) << name;
    for (std::uint64_t i = 0; i < kCalls; ++i)
      EXPECT_EQ(counts.first_args.at(index)[i], i) << name;
    ++index;
  }
  EXPECT_EQ(engine_->counters().ring_full, 0U);
}

// Linux 6.18 makes a call of a 5-byte nop under a probe; a child has the call without its target.
TEST_P(EngineModes, AForkedChildCallsWhatItsParentHasCalled) {
  std::uint32_t index = 0;
  for (const auto& [name, function] : kTargets) {
    if (name == "target_loop") continue;
    attach_exits(name, index++);
  }
  for (const auto& [name, function] : kTargets) {
    for (long i = 0; i < 10; ++i)
      ASSERT_EQ(function(i), i + 1) << name;
    const pid_t child = fork();
    if (child == 0) _exit(function(6) == 7 ? 7 : 1);
    int status = 0;
    ASSERT_EQ(waitpid(child, &status, 0), child);
    EXPECT_TRUE(WIFEXITED(status)) << name << ": signal " << WTERMSIG(status);
    EXPECT_EQ(WEXITSTATUS(status), 7) << name;
  }
}

TEST_P(EngineModes, ReadsTextsOfPython) {
  using Kind = PythonStrForTest::Kind;
  wire_probe text = probe_for_test(WIRE_SINK_RING, WIRE_PROBE_INSTANT);
  add_capture_for_test(text, 0, 8, WIRE_TEXT_PYTHON);
  describe(5, text);
  const UprobeSpec spec{*file_->file_offset(site_of(*file_, "target_push").address), 0,
                        5 | WIRE_COOKIE_INSTANT};
  ASSERT_TRUE(engine_->attach_uprobes("/proc/self/exe", {&spec, 1}, false).has_value());
  const auto read = [&](const PythonStrForTest& str) {
    target_push(static_cast<long>(reinterpret_cast<std::intptr_t>(str.object())));
    std::string out;
    engine_->drain([&](std::span<const std::byte> record) {
      const auto* seen = reinterpret_cast<const wire_text*>(record.data());
      out = seen->head.failed_args != 0 ? "failed" : seen->text;
    });
    return out;
  };
  for (const bool has_ready : {true, false}) {
    EXPECT_EQ(read({"Optimizer.step#SGD.step", has_ready}), "Optimizer.step#SGD.step");
    EXPECT_EQ(read({"ab", has_ready}), "ab");
    EXPECT_EQ(read({"", has_ready}), "");
    EXPECT_EQ(read({"a wide one", has_ready, Kind::kWide}), "failed");
    EXPECT_EQ(read({"looks like one", has_ready, Kind::kNoStr}), "failed");
  }
  target_push(8);  // no address
  std::uint16_t failed = 0;
  engine_->drain([&](std::span<const std::byte> record) {
    failed = reinterpret_cast<const wire_event*>(record.data())->failed_args;
  });
  EXPECT_EQ(failed, 1);
}

/// Totals of a probe in this process.
wire_total total_of(Engine& engine, std::uint32_t probe) {
  wire_total out{};
  const auto read = engine.read_totals([&](const ProbeTotal& total) {
    const bool is_it = total.tgid == static_cast<std::uint32_t>(::getpid()) &&
                       total.probe == probe && total.kind == WIRE_TOTAL_CALL;
    if (is_it) out = *total.total;
    return true;
  });
  EXPECT_TRUE(read.has_value()) << read.error().what;
  return out;
}

// At its own exits, by the kernel's return probe, and as a pair of places.
TEST_P(EngineModes, OneProbeWithBothSinksTellsBothExactly) {
  constexpr int kCalls = 50;
  constexpr std::uint32_t kExits = 5, kReturn = 6, kPair = 7;
  wire_probe both = probe_for_test(WIRE_SINK_RING | WIRE_SINK_TOTALS);
  add_capture_for_test(both, 0);
  both.factors = 1;
  for (const std::uint32_t index : {kExits, kReturn})
    describe(index, both);
  describe(kPair, probe_for_test(WIRE_SINK_RING | WIRE_SINK_TOTALS));
  attach_described("target_push", kExits, false);
  const auto place = [&](const std::string& name) {
    return *file_->file_offset(site_of(*file_, name).address);
  };
  const UprobeSpec by_return{place("target_nop"), 0, kReturn};
  ASSERT_TRUE(engine_->attach_uprobes("/proc/self/exe", {&by_return, 1}, true).has_value());
  const std::array pair{UprobeSpec{place("target_jmp"), 0, kPair | WIRE_COOKIE_PAIR_BEGIN},
                        UprobeSpec{place("target_jcc"), 0, kPair | WIRE_COOKIE_PAIR_END}};
  ASSERT_TRUE(engine_->attach_uprobes("/proc/self/exe", pair, false).has_value());
  for (long i = 0; i < kCalls; ++i) {
    ASSERT_EQ(target_push(i), i + 1);
    ASSERT_EQ(target_nop(i), i + 1);
    target_jmp(i);
    target_jcc(i);
  }
  Counts counts = drain(*engine_);
  for (const std::uint32_t index : {kExits, kReturn, kPair}) {
    EXPECT_EQ(counts.begins[index], kCalls) << index;
    EXPECT_EQ(counts.ends[index], kCalls) << index;
    const wire_total total = total_of(*engine_, index);
    EXPECT_EQ(total.entries, static_cast<std::uint64_t>(kCalls)) << index;
    EXPECT_EQ(total.count, static_cast<std::uint64_t>(kCalls)) << index;
    EXPECT_EQ(total.bytes, index == kPair ? 0U : std::uint64_t{kCalls * (kCalls - 1) / 2}) << index;
  }
  EXPECT_EQ(engine_->counters().hits, std::uint64_t{3 * kCalls});
}

// Totals take a call inside of one of the same function for a part of it; records tell of each.
TEST_P(EngineModes, BothSinksKeepTheirOwnCountOfNestedCalls) {
  describe(5, probe_for_test(WIRE_SINK_RING | WIRE_SINK_TOTALS));
  attach_described("nested_for_test", 5, false);
  EXPECT_EQ(nested_for_test(7), 7);
  EXPECT_THROW(nested_for_test(0), std::invalid_argument);
  EXPECT_EQ(nested_for_test(2), 2);
  Counts counts = drain(*engine_);
  EXPECT_EQ(counts.begins[5], 10);
  EXPECT_EQ(counts.ends[5], 10);
  const wire_total total = total_of(*engine_, 5);
  EXPECT_EQ(total.entries, 3U);
  EXPECT_EQ(total.count, 2U);
  EXPECT_EQ(total.dropped, 1U);
}

TEST_P(EngineModes, AnEndGoesToWhomItsBeginWasTold) {
  describe(5, probe_for_test(WIRE_SINK_TOTALS));
  attach_described("target_changes", 5, false);
  // While it is open, another sink is added and the first taken away.
  static Engine* engine = nullptr;
  engine = engine_.get();
  const wire_probe ring_only = probe_for_test(WIRE_SINK_RING);
  change_inside_for_test = [](void* probe) {
    EXPECT_TRUE(engine->describe_probe(5, *static_cast<wire_probe*>(probe)).has_value());
  };
  wire_probe later = ring_only;
  change_argument_for_test = &later;
  EXPECT_EQ(target_changes(1), 2);
  Counts counts = drain(*engine_);
  EXPECT_TRUE(counts.order.empty()) << "its begin was not recorded";
  EXPECT_EQ(total_of(*engine_, 5).count, 1U);
  later = probe_for_test(0);
  EXPECT_EQ(target_changes(1), 2);
  counts = drain(*engine_);
  EXPECT_EQ(counts.begins[5], 1);
  EXPECT_EQ(counts.ends[5], 1);
  EXPECT_EQ(target_changes(1), 2);
  EXPECT_TRUE(drain(*engine_).order.empty()) << "nobody wants it";
  EXPECT_EQ(total_of(*engine_, 5).entries, 1U);
}

// By whom this thread is woken while `wait` waits, with how often.
std::map<std::uint32_t, int> wakers(Engine& engine, const std::function<void()>& wait) {
  static_cast<void>(drain(engine));
  wait();
  std::map<std::uint32_t, int> out;
  engine.drain([&](std::span<const std::byte> record) {
    const auto* head = reinterpret_cast<const wire_event*>(record.data());
    if (head->kind != WIRE_WAKE) return;
    const auto* change = reinterpret_cast<const wire_switch*>(record.data());
    if (change->next_tid == static_cast<std::uint32_t>(::gettid())) ++out[head->tid];
  });
  return out;
}

// Timers are told apart where the kernel says where it counts the interrupts that it serves.
TEST_P(EngineModes, TellsWhoWakesAThread) {
  constexpr int kTimes = 20;
  ASSERT_TRUE(engine_->attach_scheduler().has_value());
  std::array<int, 2> there{}, back{};
  ASSERT_EQ(::pipe(there.data()), 0);
  ASSERT_EQ(::pipe(back.data()), 0);
  std::atomic<std::uint32_t> partner{0};
  std::thread answering([&] {
    partner = static_cast<std::uint32_t>(::gettid());
    for (char byte = 0; ::read(there[0], &byte, 1) == 1;)
      EXPECT_EQ(::write(back[1], &byte, 1), 1);
  });
  const auto by_partner = wakers(*engine_, [&] {
    for (int i = 0; i < kTimes; ++i) {
      char byte = 0;
      EXPECT_EQ(::write(there[1], &byte, 1), 1);
      EXPECT_EQ(::read(back[0], &byte, 1), 1);
    }
  });
  // The answer may be there before this thread has gone to sleep.
  for (const auto& [waker, count] : by_partner)
    EXPECT_TRUE(waker == partner || waker == 0) << waker << " " << count;
  ::close(there[1]);
  answering.join();
  for (const int end : {there[0], back[0], back[1]})
    ::close(end);
  const auto by_timer = wakers(*engine_, [] {
    for (int i = 0; i < kTimes; ++i)
      ::usleep(1000);  // allowed: what is tested is how a sleep ends
  });
  int all = 0;
  for (const auto& [waker, count] : by_timer)
    all += count;
  EXPECT_GE(all, kTimes / 2);
  std::ifstream symbols("/proc/kallsyms");
  bool is_told = false;
  for (std::string line; std::getline(symbols, line);)
    is_told = is_told || line.ends_with(" __preempt_count") || line.ends_with(" pcpu_hot");
  if (is_told) {
    EXPECT_EQ(by_timer.size(), 1U);
    EXPECT_TRUE(by_timer.contains(0));
  }
}

TEST_P(EngineModes, ForgetsAProcess) {
  engine_->forget_process(::getpid());
  describe(0, probe_for_test(WIRE_SINK_RING));
  const UprobeSpec spec{*file_->file_offset(site_of(*file_, "target_push").address), 0, 0};
  ASSERT_TRUE(engine_->attach_uprobes("/proc/self/exe", {&spec, 1}, true).has_value());
  target_push(1);
  EXPECT_TRUE(drain(*engine_).begins.empty());
}

TEST_P(EngineModes, DetachedProbesAreSilent) {
  describe(0, probe_for_test(WIRE_SINK_RING, WIRE_PROBE_INSTANT));
  const UprobeSpec spec{*file_->file_offset(site_of(*file_, "target_push").address), 0,
                        WIRE_COOKIE_INSTANT};
  ASSERT_TRUE(engine_->attach_uprobes("/proc/self/exe", {&spec, 1}, false).has_value());
  target_push(1);
  engine_->detach_all();
  target_push(1);
  EXPECT_EQ(drain(*engine_).instants.at(0), 1);
}

INSTANTIATE_TEST_SUITE_P(AllModes, EngineModes,
                         ::testing::Values(AttachMode::kSession, AttachMode::kMulti,
                                           AttachMode::kPerf),
                         [](const auto& mode) {
                           return std::string(attach_mode_name(mode.param));
                         });

TEST(Engine, WritesOneSliceAtTheReturn) {
  auto engine = Engine::create({.ring_bytes = 1U << 20, .forced = AttachMode::kSession});
  if (!engine) GTEST_SKIP() << "needs root, bpf and uprobe sessions: " << engine.error().what;
  ASSERT_TRUE((*engine)->observe_process(::getpid()).has_value());
  auto file = sys::ElfFile::open("/proc/self/exe");
  ASSERT_TRUE(file.has_value());
  const UprobeSpec spec{*(*file)->file_offset(site_of(**file, "target_push").address), 0, 0};
  ASSERT_TRUE(
      (*engine)->describe_probe(0, probe_for_test(WIRE_SINK_RING, WIRE_PROBE_AT_END)).has_value());
  ASSERT_TRUE((*engine)->attach_uprobes("/proc/self/exe", {&spec, 1}, true).has_value());
  for (int i = 0; i < 7; ++i)
    target_push(i);
  EXPECT_EQ(drain(**engine).slices.at(0), 7);
}

TEST(Engine, CountsWhatAFullRingDrops) {
  auto engine = Engine::create({.ring_bytes = 4096});
  if (!engine) GTEST_SKIP() << "needs root and bpf: " << engine.error().what;
  ASSERT_TRUE((*engine)->observe_process(::getpid()).has_value());
  auto file = sys::ElfFile::open("/proc/self/exe");
  ASSERT_TRUE(file.has_value());
  const UprobeSpec spec{*(*file)->file_offset(site_of(**file, "target_push").address), 0,
                        WIRE_COOKIE_INSTANT};
  ASSERT_TRUE(
      (*engine)->describe_probe(0, probe_for_test(WIRE_SINK_RING, WIRE_PROBE_INSTANT)).has_value());
  ASSERT_TRUE((*engine)->attach_uprobes("/proc/self/exe", {&spec, 1}, false).has_value());
  constexpr std::uint64_t kCalls = 1000;
  for (std::uint64_t i = 0; i < kCalls; ++i)
    target_push(1);
  (*engine)->detach_all();
  const auto received = static_cast<std::uint64_t>(drain(**engine).instants[0]);
  EXPECT_LT(received, kCalls);
  EXPECT_EQ(received + (*engine)->counters().ring_full, kCalls);
}

TEST(Engine, ObservesChildrenFromTheirFirstInstruction) {
  auto engine = Engine::create({.ring_bytes = 1U << 20});
  if (!engine) GTEST_SKIP() << "needs root and bpf: " << engine.error().what;
  ASSERT_TRUE((*engine)->attach_lifecycle().has_value());
  auto child = sys::Child::start({"/bin/sh", "-c", "/bin/true; /bin/true"}, {});
  ASSERT_TRUE(child.has_value());
  ASSERT_TRUE((*engine)->observe_process(child->pid()).has_value());
  child->release();
  EXPECT_EQ(child->wait(), 0);
  std::map<int, int> kinds;
  (*engine)->drain([&](std::span<const std::byte> record) {
    ++kinds[reinterpret_cast<const wire_event*>(record.data())->kind];
  });
  EXPECT_GE(kinds[WIRE_FORK], 1);  // the shell runs its last command itself
  EXPECT_EQ(kinds[WIRE_EXEC], 3);
  EXPECT_EQ(kinds[WIRE_EXIT], kinds[WIRE_FORK] + 1);
}

TEST(Engine, TellsOfEveryExecWhereThatIsWanted) {
  for (const bool all_execs : {true, false}) {
    auto engine = Engine::create({.ring_bytes = 1U << 20, .all_execs = all_execs});
    if (!engine) GTEST_SKIP() << "needs root and bpf: " << engine.error().what;
    ASSERT_TRUE((*engine)->attach_lifecycle().has_value());
    auto child = sys::Child::start({"/bin/true"}, {});
    ASSERT_TRUE(child.has_value());
    child->release();
    EXPECT_EQ(child->wait(), 0);
    int execs = 0;
    (*engine)->drain([&](std::span<const std::byte> record) {
      const auto* head = reinterpret_cast<const wire_event*>(record.data());
      const bool is_it = head->tgid == static_cast<std::uint32_t>(child->pid());
      execs += is_it && head->kind == WIRE_EXEC ? 1 : 0;
    });
    EXPECT_EQ(execs, all_execs ? 1 : 0);
  }
}

// The kernel ends the main thread then; the process goes on under its pid.
TEST(Engine, ExecByAnotherThreadEndsNoProcess) {
  auto engine = Engine::create({.ring_bytes = 1U << 20});
  if (!engine) GTEST_SKIP() << "needs root and bpf: " << engine.error().what;
  ASSERT_TRUE((*engine)->attach_lifecycle().has_value());
  auto child =
      sys::Child::start({"/usr/bin/python3", "-c",
                         "import os, threading\n"
                         "threading.Thread(target=os.execv,\n"
                         "                 args=('/bin/sh', ['sh', '-c', 'exit 7'])).start()\n"
                         "while True: os.sched_yield()"},
                        {});
  ASSERT_TRUE(child.has_value());
  ASSERT_TRUE((*engine)->observe_process(child->pid()).has_value());
  child->release();
  EXPECT_EQ(child->wait(), 7);
  std::vector<int> kinds;
  (*engine)->drain([&](std::span<const std::byte> record) {
    const auto* head = reinterpret_cast<const wire_event*>(record.data());
    kinds.push_back(head->kind);
    EXPECT_EQ(head->tgid, static_cast<std::uint32_t>(child->pid()));
    if (head->kind == WIRE_EXIT) {
      EXPECT_EQ(head->tid, head->tgid);
      EXPECT_EQ(head->probe, 7U << 8U) << "as wait() gives it";
    }
  });
  EXPECT_THAT(kinds, ::testing::ElementsAre(WIRE_EXEC, WIRE_EXEC, WIRE_EXIT));
}

}  // namespace
}  // namespace kansoku::capture::bpf
