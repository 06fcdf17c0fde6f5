// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "gpu/exec/executor.h"
#include "gpu/ptx/parser.h"
#include "gpu/ptx/verifier.h"

namespace kansoku::gpu::exec {

/// Small kernels on a device of 64 MiB, once with each instruction set that the machine has:
///   class MyTest : public KernelTest {};
///   INSTANTIATE_TEST_SUITE_P(AllInstructionSets, MyTest, KernelTest::all_isas(),
///                            KernelTest::isa_of_case);
class KernelTest : public ::testing::TestWithParam<Isa> {
 public:
  static auto all_isas() { return ::testing::Values(Isa::kV2, Isa::kV3, Isa::kV4); }
  static std::string isa_of_case(const ::testing::TestParamInfo<Isa>& info) {
    std::string name(isa_name(info.param));
    std::erase(name, '-');
    return name;
  }

 protected:
  using Words = std::vector<std::uint32_t>;

  KernelTest() : memory_(Memory::create(std::uint64_t{64} << 20).value()) {
    options_.block = {32, 1, 1};
  }
  void SetUp() override {
    if (GetParam() > best_isa()) GTEST_SKIP() << "this machine lacks " << isa_name(GetParam());
  }

  Program load(std::string_view functions) {
    auto module = ptx::parse_module(
        fmt::format(".version 8.0\n.target sm_80\n.address_size 64\n{}", functions));
    EXPECT_TRUE(module) << (module ? "" : module.error().what);
    EXPECT_THAT(ptx::verify(*module), ::testing::IsEmpty());
    auto program = Program::load(std::move(*module), memory_, GetParam());
    EXPECT_TRUE(program) << (program ? "" : program.error().what);
    return std::move(*program);
  }
  /// A kernel k(out, n) with the usual registers; %r1 is the thread's index in the grid, %rd3 its
  /// place in `out`, `out_bytes` a thread.
  Program kernel(std::string_view body, std::string_view before = "", std::uint32_t out_bytes = 4) {
    return load(fmt::format(R"({}
.visible .entry k(.param .u64 out, .param .u32 n)
{{
	.reg .b32 %r<40>; .reg .b64 %rd<30>; .reg .pred %p<10>; .reg .f32 %f<10>;
	mov.u32 %r10, %ctaid.x;
	mov.u32 %r11, %ntid.x;
	mov.u32 %r12, %tid.x;
	mad.lo.u32 %r1, %r10, %r11, %r12;
	ld.param.u64 %rd1, [out];
	ld.param.u32 %r2, [n];
	mul.wide.u32 %rd2, %r1, {};
	add.u64 %rd3, %rd1, %rd2;
{}
	ret;
}})",
                            before, out_bytes, body));
  }
  /// Error of loading a kernel without parameters; empty: none.
  std::string refusal_of(std::string_view body, std::string_view before = "") {
    auto module = ptx::parse_module(fmt::format(
        ".version 8.0\n.target sm_80\n{}.visible .entry k()\n{{\n.reg .b32 %r<9>;\n{}\n}}\n",
        before, body));
    if (!module) return module.error().what;
    const auto program = Program::load(std::move(*module), memory_, GetParam());
    return program ? program->kernels()[0].refusal : program.error().what;
  }

  template <class T>
  std::uint64_t upload(const std::vector<T>& values) {
    const std::uint64_t address = memory_.allocate(values.size() * sizeof(T)).value();
    std::memcpy(at(address), values.data(), values.size() * sizeof(T));
    return address;
  }
  template <class T = std::uint32_t>
  std::vector<T> download(std::uint64_t address, std::size_t count) {
    std::vector<T> values(count);
    std::memcpy(values.data(), at(address), count * sizeof(T));
    return values;
  }
  static void* at(std::uint64_t address) {
    return reinterpret_cast<void*>(static_cast<std::uintptr_t>(address));
  }

  /// Runs kernel k on `words` and gives its results; it must come to its end.
  Words run_on(const Program& program, const Words& words, std::uint32_t n = 0) {
    const std::uint64_t out = upload(words);
    EXPECT_EQ(launch_with(program, out, n), "");
    Words values = download(out, words.size());
    EXPECT_TRUE(memory_.free(out));
    return values;
  }
  Words run(const Program& program, std::size_t count, std::uint32_t n = 0) {
    return run_on(program, Words(count), n);
  }
  /// Fault that ended kernel k on `words`; empty: it ran to its end.
  std::string fault_on(const Program& program, const Words& words, std::uint32_t n = 0) {
    const std::uint64_t out = upload(words);
    std::string fault = launch_with(program, out, n);
    EXPECT_TRUE(memory_.free(out));
    return fault;
  }
  std::string fault_of(const Program& program, std::size_t count, std::uint32_t n = 0) {
    return fault_on(program, Words(count), n);
  }
  std::string launch_with(const Program& program, std::uint64_t out, std::uint32_t n) {
    std::array<std::byte, 12> params{};
    std::memcpy(params.data(), &out, sizeof out);
    std::memcpy(params.data() + 8, &n, sizeof n);
    options_.params = params;
    const auto fault = launch(program, 0, memory_, options_);
    if (!fault) return fault.error().what;
    return *fault ? (*fault)->text() : "";
  }

  Memory memory_;
  LaunchOptions options_;
};

}  // namespace kansoku::gpu::exec
