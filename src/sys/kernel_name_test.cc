// SPDX-License-Identifier: Apache-2.0
#include "sys/kernel_name.h"

#include <gtest/gtest.h>

namespace kansoku::sys {
namespace {

TEST(KernelName, IsShort) {
  EXPECT_EQ(short_kernel_name("_Z5saxpyfPKfPf"), "saxpy");
  EXPECT_EQ(short_kernel_name("saxpy"), "saxpy");
  EXPECT_EQ(short_kernel_name("_Z9mul_mat_qIL9ggml_type12ELi128ELb0EEvPKc"),
            "mul_mat_q<Q4_K, 128>");
  EXPECT_EQ(short_kernel_name("_Z9mul_mat_qIL9ggml_type12ELi128ELb1EEvPKc"),
            "mul_mat_q<Q4_K, 128, true>");
}

TEST(KernelName, HasNoNamespaces) {
  EXPECT_EQ(short_kernel_name("_ZN12_GLOBAL__N_13addEPf"), "add");
  EXPECT_EQ(short_kernel_name("_ZN2at6native4fillIiEEvPT_S2_"), "fill<int>");
  EXPECT_EQ(short_kernel_name("_ZN2at6native4fillINS0_7FunctorIfEEEEvPT_"), "fill<Functor<float>>");
}

TEST(KernelName, HasShortArguments) {
  EXPECT_EQ(short_kernel_name("_Z11k_bin_bcastIXadL_Z6op_addffEEfJPKfEEvv"),
            "k_bin_bcast<op_add, float, float const*>");
  EXPECT_EQ(short_kernel_name("_Z10cpy_scalarIXadL_Z5cpy_1IffEvPKcPcEEEvv"),
            "cpy_scalar<cpy_1<float, float>>");
}

TEST(KernelName, OfWhatIsNoNameIsTheText) {
  EXPECT_EQ(short_kernel_name(""), "");
  EXPECT_EQ(short_kernel_name("_Zbroken"), "_Zbroken");
  EXPECT_EQ(short_kernel_name("a<b"), "a<b");
  EXPECT_EQ(short_kernel_name("<>"), "<>");
  EXPECT_EQ(short_kernel_name("name with (brackets"), "(brackets");
}

TEST(KernelName, OfAnUnknownValueOfAnEnumerationKeepsTheNumber) {
  EXPECT_EQ(short_kernel_name("_Z1kIL9ggml_type4EEvv"), "k<ggml_type 4>");
}

}  // namespace
}  // namespace kansoku::sys
