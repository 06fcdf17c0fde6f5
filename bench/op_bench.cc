// SPDX-License-Identifier: Apache-2.0
// Time of single instructions on the software device, for a warp whose lanes hold values of their
// own: bench_op [ROUNDS[9]] [PART OF A NAME] [INSTRUCTION SET]. For each form a kernel: a loop over
// many copies of the instruction, run by one warp. A round measures every form once, in processor
// time, so that a load on the machine meets all forms alike.
#include <fmt/format.h>
#include <time.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "bench_util.h"
#include "common/isa.h"
#include "common/parse.h"
#include "gpu/exec/executor.h"
#include "gpu/ptx/parser.h"
#include "op_cases.h"

namespace kansoku::bench {
namespace {

using namespace kansoku::gpu;

constexpr std::uint32_t kCopies = 64;  // of the instruction, a round of the loop
constexpr std::uint32_t kTrialRounds = 20;
constexpr double kSampleNs = 5e5;
constexpr std::uint64_t kDeviceBytes = std::uint64_t{1} << 24;
constexpr std::uint64_t kInputBytes = 8192;  // of words that are read, then of those written
constexpr std::uint32_t kThreads = 32;
constexpr std::string_view kReference = "fma.f32";

double processor_ns() {
  timespec now{};
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) * 1e9 + static_cast<double>(now.tv_nsec);
}

/// Values of the operands of op_cases.h, three of each kind; all of ordinary size.
constexpr std::string_view kKernel = R"(.version 8.0
.target sm_80
.address_size 64
.const .align 4 .b8 table[64];
.visible .entry k(.param .u64 in, .param .u32 rounds)
{{
	.reg .b32 %r<30>; .reg .f32 %f<10>; .reg .f64 %fd<10>; .reg .b64 %rd<30>; .reg .b16 %h<20>;
	.reg .pred %p<10>;
	.shared .align 16 .b8 tile[4096];
	mov.u32 %r20, %tid.x;
	ld.param.u64 %rd10, [in];
	ld.param.u32 %r21, [rounds];
	mul.wide.u32 %rd11, %r20, 4;
	add.u64 %rd12, %rd10, %rd11;     // words side by side
	mul.wide.u32 %rd13, %r20, 8;
	add.u64 %rd14, %rd10, %rd13;
	mul.wide.u32 %rd15, %r20, 16;
	add.u64 %rd16, %rd10, %rd15;
	mul.wide.u32 %rd17, %r20, 2;
	add.u64 %rd18, %rd10, %rd17;
	cvt.u64.u32 %rd19, %r20;
	add.u64 %rd20, %rd10, %rd19;
	ld.global.u32 %r1, [%rd12];
	ld.global.u32 %r2, [%rd12+128];
	ld.global.u32 %r3, [%rd12+256];
	ld.global.f32 %f1, [%rd12+384];
	ld.global.f32 %f2, [%rd12+512];
	ld.global.f32 %f3, [%rd12+640];
	ld.global.u32 %r4, [%rd12+768];  // two halves
	ld.global.u32 %r5, [%rd12+896];
	ld.global.u32 %r6, [%rd12+1024];
	ld.global.u32 %r7, [%rd12+1152]; // two bfloats
	ld.global.u32 %r8, [%rd12+1280];
	ld.global.u32 %r9, [%rd12+1408];
	mov.b32 {{%h1, %h4}}, %r4;
	mov.b32 {{%h2, %h5}}, %r5;
	mov.b32 {{%h3, %h6}}, %r6;
	mov.b32 {{%h7, %h10}}, %r7;
	mov.b32 {{%h8, %h11}}, %r8;
	mov.b32 {{%h9, %h12}}, %r9;
	cvt.f64.f32 %fd1, %f1;
	cvt.f64.f32 %fd2, %f2;
	cvt.f64.f32 %fd3, %f3;
	and.b32 %r10, %r1, 31;
	cvt.u64.u32 %rd1, %r1;
	cvt.u64.u32 %rd2, %r2;
	shl.b32 %r11, %r10, 2;
	mov.u32 %r12, tile;
	add.u32 %r13, %r12, %r11;        // words of shared memory in any order
	cvt.u64.u32 %rd21, %r11;
	add.u64 %rd22, %rd10, %rd21;
	mul.wide.u32 %rd23, %r10, 8;
	add.u64 %rd23, %rd10, %rd23;     // pairs of words
	shl.b32 %r14, %r20, 2;
	add.u32 %r14, %r14, %r12;        // side by side
	shl.b32 %r15, %r20, 4;
	add.u32 %r15, %r15, %r12;
	setp.gt.s32 %p1, %r1, 0;
	mov.u32 %r22, 0;
loop:
{}	add.u32 %r22, %r22, 1;
	setp.lt.u32 %p9, %r22, %r21;
	@%p9 bra loop;
	ret;
}}
)";

std::vector<std::uint32_t> input_words() {
  std::vector<std::uint32_t> words(12 * kThreads);
  Rng rng(1);
  const auto kind_of = [](std::size_t i) { return i / (3 * kThreads); };
  for (std::size_t i = 0; i < words.size(); ++i) {
    const auto any = static_cast<std::uint32_t>(rng.below(std::uint64_t{1} << 32));
    const std::uint32_t sign = any & 0x80008000;
    switch (kind_of(i)) {
      case 0:
        words[i] = any;
        break;
      case 1:  // 0.25 to 4 in magnitude
        words[i] = (any & 0x80ffffff) + 0x3e800000 + (any >> 1 & 0x01000000);
        break;
      case 2:
        words[i] = sign | ((any & 0x0fff0fff) + 0x34003400);
        break;
      default:
        words[i] = sign | ((any & 0x01ff01ff) + 0x3e803e80);
    }
  }
  return words;
}

/// One form, loaded, and its measurements: an entry a round.
class Runner {
 public:
  static Result<Runner> open(const OpCase& op, exec::Memory& memory, std::uint64_t input, Isa isa) {
    std::string body;
    for (std::uint32_t i = 0; i < kCopies; ++i)
      body += fmt::format("\t{};\n", op.text);
    TRY(ptx::Module module,
        ptx::parse_module(fmt::format(fmt::runtime(std::string(kKernel)), body)));
    TRY(exec::Program program, exec::Program::load(std::move(module), memory, isa));
    TRY(const std::size_t kernel, program.find_kernel("k"));
    static_cast<void>(kernel);
    Runner runner(op, std::move(program), memory, input);
    TRY(const double trial, runner.ns_for(kTrialRounds));
    runner.rounds_ = static_cast<std::uint32_t>(
        std::clamp(kSampleNs / std::max(trial, 1.0) * kTrialRounds, 10.0, 1e6));
    return runner;
  }
  Result<void> sample() {
    TRY(const double ns, ns_for(rounds_));
    samples_.push_back(ns / rounds_ / kCopies / op_->warps);
    return {};
  }
  [[nodiscard]] const OpCase& op() const { return *op_; }
  [[nodiscard]] double median_ns() const { return stats::median(samples_); }

 private:
  Runner(const OpCase& op, exec::Program program, const exec::Memory& memory, std::uint64_t input)
      : op_(&op), program_(std::move(program)), memory_(&memory), input_(input) {}

  Result<double> ns_for(std::uint32_t rounds) {
    std::array<std::byte, 12> params{};
    std::memcpy(params.data(), &input_, sizeof input_);
    std::memcpy(params.data() + sizeof input_, &rounds, sizeof rounds);
    exec::LaunchOptions options;
    options.block = {kThreads * op_->warps, 1, 1};
    options.params = params;
    const double begin = processor_ns();
    TRY(const auto fault, exec::launch(program_, 0, *memory_, options));
    if (fault) return Error{kansoku::Code::kInternal, fault->text()};
    return processor_ns() - begin;
  }

  const OpCase* op_;
  exec::Program program_;
  const exec::Memory* memory_;
  std::uint64_t input_;
  std::uint32_t rounds_{0};
  std::vector<double> samples_;
};

Result<void> run(std::size_t rounds, std::string_view part, Isa isa) {
  TRY(exec::Memory memory, exec::Memory::create(kDeviceBytes));
  const auto words = input_words();
  TRY(const std::uint64_t input, memory.allocate(kInputBytes));
  std::memcpy(reinterpret_cast<void*>(static_cast<std::uintptr_t>(input)), words.data(),
              words.size() * sizeof words[0]);
  std::vector<Runner> runners;
  for (const OpCase& op : op_cases()) {
    if (op.name != kReference && op.name.find(part) == std::string_view::npos) continue;
    auto runner = Runner::open(op, memory, input, isa);
    if (runner) {
      runners.push_back(std::move(*runner));
    } else {
      fmt::print("bench gpu_op form={} run=no reason=\"{}\"\n", op.name, runner.error().what);
    }
  }
  for (std::size_t round = 0; round < rounds; ++round) {
    for (Runner& runner : runners)
      TRY_VOID(runner.sample());
  }
  const auto reference = std::find_if(runners.begin(), runners.end(),
                                      [](const Runner& r) { return r.op().name == kReference; });
  for (const Runner& runner : runners) {
    fmt::print("bench gpu_op form={} ns_per_warp={:.1f} by_fma={:.2f} rounds={} isa={}\n",
               runner.op().name, runner.median_ns(), runner.median_ns() / reference->median_ns(),
               rounds, isa_name(isa));
  }
  return {};
}

}  // namespace
}  // namespace kansoku::bench

int main(int argc, char** argv) {
  using namespace kansoku;
  const auto rounds = argc > 1 ? parse_int<std::size_t>(argv[1]) : std::size_t{9};
  const auto isa = argc > 3 ? isa_from_name(argv[3]) : best_isa();
  if (argc > 4 || !rounds || *rounds == 0 || !isa || *isa > best_isa()) {
    fmt::print(stderr, "usage: bench_op [ROUNDS] [PART OF A NAME] [x86-64-v2|-v3|-v4]\n");
    return 2;
  }
  const Result<void> done = bench::run(*rounds, argc > 2 ? argv[2] : "", *isa);
  if (done) return 0;
  fmt::print(stderr, "bench_op: {}\n", done.error().what);
  return 1;
}
