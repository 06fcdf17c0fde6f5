// SPDX-License-Identifier: Apache-2.0
#include "diff/internal/names.h"

#include <gtest/gtest.h>

#include <string>

namespace kansoku::diff {
namespace {

TEST(CanonicalKernel, SpellingsOfOneNameAreOne) {
  const std::string gemm = "gemm<float,128,64>";
  for (const char* spelling :
       {"void gemm<float, 128, 64>(float const*, float*, int)", "gemm<float, 128, 64>",
        "void gemm< float, 128, 64 >(float*) [clone .kd]",
        "void (anonymous namespace)::gemm<float, 128, 64>(int)"})
    EXPECT_EQ(canonical_kernel(spelling), gemm) << spelling;
  EXPECT_EQ(canonical_kernel("_ZN7softmax3runIfEEvPT_"), "softmax::run<float>");
  EXPECT_EQ(canonical_kernel("void scale<unsigned int>(unsigned int*)"), "scale<unsigned int>");
  EXPECT_EQ(canonical_kernel("triton_poi_fused_3"), "triton_poi_fused_3");
}

TEST(CanonicalKernel, KeepsWhatItDoesNotUnderstand) {
  EXPECT_EQ(canonical_kernel(""), "");
  EXPECT_EQ(canonical_kernel("(int)"), "(int)");
  EXPECT_EQ(canonical_kernel("_Z99x"), "_Z99x");
  EXPECT_EQ(canonical_kernel("operator< (a"), "operator<(a");
  EXPECT_EQ(canonical_kernel(std::string(100'000, '(')).size(), 16384U);
}

TEST(FamilyOf, LeavesOutArgumentsAndNumbers) {
  EXPECT_EQ(family_of("gemm<float,128,64>"), "gemm");
  EXPECT_EQ(family_of("a<b<c>>::run<d>"), "a::run");
  EXPECT_EQ(family_of("volta_sgemm_128x64_nn"), family_of("volta_sgemm_32x128_nn"));
  EXPECT_EQ(family_of("triton_poi_fused_12"), "triton_poi_fused_#");
}

TEST(ShownName, IsShort) {
  EXPECT_EQ(shown_name("at::native::elementwise_kernel<4,at::native::AddFunctor<float>>", 72),
            "elementwise_kernel<4, AddFunctor<float>>");
  EXPECT_EQ(shown_name("abcdefghij", 8), "abcde...");
  EXPECT_EQ(shown_name("\xc3\xa4\xc3\xa4\xc3\xa4\xc3\xa4\xc3\xa4", 8), "\xc3\xa4\xc3\xa4...");
}

TEST(Unnumbered, JoinsNumberedRanges) {
  EXPECT_EQ(unnumbered("iteration 17 of 200"), "iteration # of #");
}

TEST(Names, FunctorsSayWhatAKernelComputes) {
  const auto of = [](const char* name) { return functors_of(canonical_kernel(name)); };
  EXPECT_EQ(
      of("void k<4, silu_kernel(at::TensorIteratorBase&)::{lambda()#1}, Array<char*, 2> >(int)"),
      of("void k<8, silu_kernel(at::TensorIteratorBase&)::{lambda()#2}, Array<char*, 2> >(int)"));
  EXPECT_EQ(of("void k<4, MulFunctor<float> >(int)"), of("void k<8, MulFunctor<double> >(int)"));
  EXPECT_NE(of("void k<4, MulFunctor<float> >(int)"), of("void k<4, AddFunctor<float> >(int)"));
  EXPECT_EQ(of("gemm<128, 64, float>"), "");
  EXPECT_EQ(of("gemm"), "");
}

}  // namespace
}  // namespace kansoku::diff
