// SPDX-License-Identifier: Apache-2.0
// An operation of a whole warp must equal that of its lanes one by one.
#include <bit>

#include "common/rng.h"
#include "gpu/exec/kernel_for_test.h"

namespace kansoku::gpu::exec {
namespace {

class Lanes : public KernelTest {
 protected:
  using Words = std::vector<std::uint32_t>;

  /// `threads` times four words: sources, and a place for the result. Halves of all kinds.
  static Words half_words(std::size_t threads) {
    constexpr std::uint16_t kSpecial[] = {0,      0x8000, 1,      0x8001, 0x03ff, 0x0400, 0x3c00,
                                          0x7bff, 0xfbff, 0x7c00, 0xfc00, 0x7e00, 0x7c01, 0xffff,
                                          0x7f80, 0xff80, 0x7f7f, 0x007f, 0x0080, 0x3f80};
    Rng rng(7);
    const auto half = [&]() -> std::uint32_t {
      return rng.below(4) == 0 ? kSpecial[rng.below(std::size(kSpecial))]
                               : static_cast<std::uint16_t>(rng.below(1 << 16));
    };
    Words words(4 * threads);
    for (std::uint32_t& word : words)
      word = half() | half() << 16;
    // Products that lie between two halves, or bfloats, and a small number that decides.
    for (std::size_t i = 0; i + 16 < words.size(); i += 32) {
      const auto odd = static_cast<std::uint32_t>(2 * rng.below(20) + 1);
      const std::uint32_t sign = rng.below(2) == 0 ? 0 : 0x80008000;
      words[i] = 0x3e003e00;
      words[i + 1] = 0x3c003c00 | odd << 16 | odd;
      words[i + 2] = 0x00010001 | sign;
      words[i + 16] = 0x3fc03fc0;
      words[i + 17] = 0x3f803f80 | odd << 16 | odd;
      words[i + 18] = 0x20002000 | sign;
    }
    return words;
  }
  /// out = op(words), each thread's own, or the same for the threads of a block: those take the
  /// way of single lanes.
  Words apply(const std::string& op, const Words& words, bool is_same) {
    const Program program = kernel(fmt::format(R"(
	.reg .b16 %h<10>;
	mul.wide.u32 %rd4, {}, 16;
	add.u64 %rd4, %rd1, %rd4;
	ld.global.u32 %r4, [%rd4];
	ld.global.u32 %r5, [%rd4+4];
	ld.global.u32 %r6, [%rd4+8];
	cvt.u16.u32 %h4, %r4;
	cvt.u16.u32 %h5, %r5;
	cvt.u16.u32 %h6, %r6;
	mov.u16 %h7, 0;
	mov.u32 %r7, 0;
	{};
	cvt.u32.u16 %r8, %h7;
	xor.b32 %r7, %r7, %r8;
	st.global.u32 [%rd4+12], %r7;)",
                                               is_same ? "%r10" : "%r1", op),
                                   "", 16);
    const auto threads = static_cast<std::uint32_t>(words.size() / 4);
    options_.block = {32, 1, 1};
    options_.grid = {is_same ? threads : threads / 32, 1, 1};
    return run_on(program, words);
  }
};

TEST_P(Lanes, HalvesAreThoseOfSingleLanes) {
  const Words words = half_words(2048);
  std::vector<std::string> ops;
  for (const char* const type : {"f16", "bf16"}) {
    for (const bool is_pair : {false, true}) {
      const std::string suffix = fmt::format("{}{}", type, is_pair ? "x2" : "");
      const char* const r = is_pair ? "%r" : "%h";
      for (const char* const op : {"add", "sub", "mul", "min", "max", "min.NaN"})
        ops.push_back(fmt::format("{0}.{1} {2}7, {2}4, {2}5", op, suffix, r));
      ops.push_back(fmt::format("fma.rn.{0} {1}7, {1}4, {1}5, {1}6", suffix, r));
      ops.push_back(fmt::format("fma.rn.relu.{0} {1}7, {1}4, {1}5, {1}6", suffix, r));
      ops.push_back(fmt::format("tanh.approx.{0} {1}7, {1}4", suffix, r));
      ops.push_back(fmt::format("neg.{0} {1}7, {1}4", suffix, r));
    }
  }
  for (const char* const op :
       {"add.ftz.f16x2 %r7, %r4, %r5", "mul.sat.f16x2 %r7, %r4, %r5",
        "fma.rn.ftz.f16x2 %r7, %r4, %r5, %r6", "fma.rn.sat.f16 %h7, %h4, %h5, %h6",
        "ex2.approx.f16x2 %r7, %r4", "ex2.approx.ftz.bf16x2 %r7, %r4",
        "dp4a.s32.u32 %r7, %r4, %r5, %r6", "dp4a.u32.u32 %r7, %r4, %r5, %r6",
        "prmt.b32 %r7, %r4, %r5, %r6", "sin.approx.f32 %r7, %r4", "cos.approx.ftz.f32 %r7, %r4",
        "lg2.approx.f32 %r7, %r4", "ex2.approx.f32 %r7, %r4", "tanh.approx.f32 %r7, %r4",
        "rsqrt.approx.f32 %r7, %r4", "sqrt.rn.f32 %r7, %r4", "cvt.rzi.s32.f32 %r7, %r4",
        "cvt.rn.f16x2.f32 %r7, %r4, %r5"})
    ops.emplace_back(op);
  for (const std::string& op : ops)
    EXPECT_EQ(apply(op, words, false), apply(op, words, true)) << op;
}

TEST_P(Lanes, ShufflesOfWholeWarpsAreThoseOfAnyGroup) {
  const Words words = half_words(512);
  for (const char* const mode : {"up", "down", "bfly", "idx"}) {
    // The mask from memory, so that the handler for any group runs, and the one for whole warps.
    const auto with_mask = [&](const char* mask) {
      return apply(fmt::format("or.b32 %r9, %r6, -1; shfl.sync.{}.b32 %r7|%p1, %r4, %r5, %r6, {}; "
                               "selp.b32 %r8, 1, 0, %p1; xor.b32 %r7, %r7, %r8",
                               mode, mask),
                   words, false);
    };
    EXPECT_EQ(with_mask("-1"), with_mask("%r9")) << mode;
  }
}

/// Each thread loads four words from its place and stores their turn to another.
TEST_P(Lanes, GroupsOfValuesAtAnyPlaces) {
  constexpr std::uint32_t kThreads = 256;
  Words words(8 * kThreads);
  for (std::uint32_t i = 0; i < words.size(); ++i)
    words[i] = i * 0x01010101U + 3;
  for (const char* const place : {"mov.u32 %r5, %r1", "xor.b32 %r5, %r1, 85", "shr.u32 %r5, %r1, 4",
                                  "and.b32 %r5, %r1, 15", "sub.u32 %r5, 255, %r1"}) {
    for (const std::uint32_t width : {32U, 16U, 8U, 256U}) {
      const Program program = kernel(fmt::format(R"(
	.reg .b16 %h<10>;
	mov.u32 %r13, %tid.y;
	mad.lo.u32 %r1, %r13, %r11, %r12;
	{};
	mul.wide.u32 %rd4, %r5, 16;
	add.u64 %rd4, %rd1, %rd4;
	ld.global.v4.u32 {{%r6, %r7, %r8, %r9}}, [%rd4];
	ld.global.v2.u16 {{%h1, %h2}}, [%rd4+4];
	ld.global.u32 %r14, [%rd4+12];
	cvt.u32.u16 %r15, %h2;
	xor.b32 %r6, %r6, %r15;
	xor.b32 %r7, %r7, %r14;
	mul.wide.u32 %rd5, %r1, 16;
	add.u64 %rd5, %rd1, %rd5;
	st.global.v4.u32 [%rd5+4096], {{%r9, %r8, %r7, %r6}};)",
                                                 place),
                                     "", 16);
      options_.block = {width, kThreads / width, 1};
      options_.grid = {1, 1, 1};
      const Words made = run_on(program, words);
      for (std::uint32_t i = 0; i < kThreads; ++i) {
        const std::string_view form(place);
        const std::uint32_t from = form.starts_with("mov")   ? i
                                   : form.starts_with("xor") ? i ^ 85
                                   : form.starts_with("shr") ? i >> 4
                                   : form.starts_with("and") ? i & 15
                                                             : 255 - i;
        const std::uint32_t* const in = &words[4 * from];
        const Words wanted{in[3], in[2], in[1] ^ in[3], in[0] ^ in[1] >> 16};
        ASSERT_EQ(
            Words(made.begin() + 4 * kThreads + 4 * i, made.begin() + 4 * kThreads + 4 * i + 4),
            wanted)
            << place << " width " << width << " thread " << i;
      }
    }
  }
}

/// Sums of products out of shared memory, in blocks of several widths: what one handler does for
/// three instructions.
TEST_P(Lanes, ProductsOfSharedTiles) {
  for (const std::uint32_t width : {16U, 32U, 8U}) {
    const std::uint32_t height = 256 / width;
    const Program program = kernel(R"(
	mov.u32 %r13, %tid.y;
	mad.lo.u32 %r14, %r13, %r11, %r12;
	mul.wide.u32 %rd4, %r14, 4;
	mov.u64 %rd5, tile;
	add.u64 %rd6, %rd5, %rd4;
	add.u64 %rd7, %rd1, %rd4;
	ld.global.f32 %f1, [%rd7];
	st.shared.f32 [%rd6], %f1;
	bar.sync 0;
	mul.lo.u32 %r15, %r13, %r11;
	mul.wide.u32 %rd8, %r15, 4;
	add.u64 %rd8, %rd5, %rd8;
	mul.wide.u32 %rd9, %r12, 4;
	add.u64 %rd9, %rd5, %rd9;
	ld.global.f32 %f3, [%rd7+1024];
	ld.shared.f32 %f4, [%rd8];
	ld.shared.f32 %f5, [%rd9];
	fma.rn.f32 %f3, %f4, %f5, %f3;
	ld.shared.f32 %f4, [%rd9+4];
	ld.shared.f32 %f5, [%rd8+8];
	fma.rn.f32 %f3, %f4, %f5, %f3;
	setp.lt.u32 %p1, %r12, 3;
	ld.shared.f32 %f4, [%rd9];
	@%p1 ld.shared.f32 %f4, [%rd8];
	ld.shared.f32 %f5, [%rd8+4];
	fma.rn.f32 %f3, %f4, %f5, %f3;
	add.f32 %f3, %f3, %f5;
	st.global.f32 [%rd7+1024], %f3;)",
                                   ".shared .align 4 .b8 tile[1152];\n");
    options_.block = {width, height, 1};
    options_.grid = {1, 1, 1};
    Words words(512);
    for (std::uint32_t i = 0; i < words.size(); ++i)
      words[i] = std::bit_cast<std::uint32_t>(static_cast<float>(i % 29) - 9.0F);
    const Words made = run_on(program, words);
    const auto tile = [&](std::uint32_t i) {
      return i < 256 ? std::bit_cast<float>(words[i]) : 0.0F;
    };
    for (std::uint32_t y = 0; y < height; ++y) {
      for (std::uint32_t x = 0; x < width; ++x) {
        const std::uint32_t row = y * width;
        const float sum = std::bit_cast<float>(words[256 + row + x]) + tile(row) * tile(x) +
                          tile(x + 1) * tile(row + 2) +
                          (x < 3 ? tile(row) : tile(x)) * tile(row + 1) + tile(row + 1);
        ASSERT_EQ(std::bit_cast<float>(made[256 + row + x]), sum) << width << ": " << x << " " << y;
      }
    }
  }
}

/// Two lines of a tile, the second outside of shared memory: the fault names its own line.
TEST_P(Lanes, AFaultOfASequenceIsThatOfItsLoad) {
  const Program program = kernel(R"(
	mul.wide.u32 %rd4, %r12, 4;
	ld.global.f32 %f3, [%rd3];
	ld.shared.f32 %f4, [%rd4];
	ld.shared.f32 %f5, [%rd4+64];
	fma.rn.f32 %f3, %f4, %f5, %f3;
	st.global.f32 [%rd3], %f3;)",
                                 ".shared .align 4 .b8 tile[128];\n");
  options_.block = {32, 1, 1};
  options_.grid = {1, 1, 1};
  const std::string fault = fault_of(program, 32);
  EXPECT_THAT(fault, ::testing::HasSubstr("thread (16, 0, 0)"));
}

INSTANTIATE_TEST_SUITE_P(AllInstructionSets, Lanes, KernelTest::all_isas(),
                         KernelTest::isa_of_case);

}  // namespace
}  // namespace kansoku::gpu::exec
