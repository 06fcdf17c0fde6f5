// SPDX-License-Identifier: Apache-2.0
#include "capture/outside/names.h"

#include <gtest/gtest.h>

#include "capture/outside/calls_for_test.h"

namespace kansoku::capture::outside {
namespace {

constexpr std::uint64_t kModule = 0x10, kLibrary = 0x20, kHandle = 0x100, kOther = 0x200;

class NamesTest : public testing::Test {
 protected:
  void get_function(std::uint64_t handle, std::string_view name, std::uint64_t module = kModule) {
    names_.on_end(call_for_test("cuModuleGetFunction",
                                {{Key::kModule, module}, {Key::kFunction, handle}}, 0, name));
  }
  void get_kernel(std::uint64_t handle, std::string_view name) {
    names_.on_end(call_for_test("cuLibraryGetKernel",
                                {{Key::kLibrary, kLibrary}, {Key::kFunction, handle}}, 0, name));
  }
  std::string shown(std::uint64_t handle) { return names_.kernel(names_.id_of(handle)).shown; }

  Names names_;
};

TEST_F(NamesTest, ComeFromTheCallsThatGiveHandlesOut) {
  get_function(kHandle, "_Z5saxpyfPKfPf");
  EXPECT_EQ(shown(kHandle), "saxpy");
  EXPECT_EQ(names_.kernel(names_.id_of(kHandle)).full, "saxpy(float, float const*, float*)");
  EXPECT_EQ(shown(kOther), "function@0x200");
}

TEST_F(NamesTest, StayOneKernelWhenAskedForAgain) {
  get_function(kHandle, "a");
  const KernelId first = names_.id_of(kHandle);
  get_function(kHandle, "a");
  EXPECT_EQ(names_.id_of(kHandle), first);
}

TEST_F(NamesTest, EndWithTheirModule) {
  get_function(kHandle, "a");
  get_function(kOther, "b", kModule + 1);
  names_.on_begin(call_for_test("cuModuleUnload", {{Key::kModule, kModule}}));
  EXPECT_EQ(shown(kHandle), "function@0x100");
  EXPECT_EQ(shown(kOther), "b");
  get_function(kHandle, "c", kModule + 1);  // the handle is used again
  EXPECT_EQ(shown(kHandle), "c");
}

TEST_F(NamesTest, OfALibraryGoOnToItsFunctions) {
  get_kernel(kHandle, "k");
  names_.on_end(
      call_for_test("cuKernelGetFunction", {{Key::kKernel, kHandle}, {Key::kFunction, kOther}}));
  EXPECT_EQ(shown(kOther), "k");
  names_.on_begin(call_for_test("cuLibraryUnload", {{Key::kLibrary, kLibrary}}));
  EXPECT_EQ(shown(kHandle), "function@0x100");
  EXPECT_EQ(shown(kOther), "function@0x200");
}

TEST_F(NamesTest, OfALibrarysModuleEndWithIt) {
  names_.on_end(
      call_for_test("cuLibraryGetModule", {{Key::kLibrary, kLibrary}, {Key::kModule, kModule}}));
  get_function(kHandle, "k");
  names_.on_begin(call_for_test("cuLibraryUnload", {{Key::kLibrary, kLibrary}}));
  EXPECT_EQ(shown(kHandle), "function@0x100");
}

TEST_F(NamesTest, OfAnUnknownKernelAreNone) {
  get_function(kOther, "old");
  names_.on_end(
      call_for_test("cuKernelGetFunction", {{Key::kKernel, kHandle}, {Key::kFunction, kOther}}));
  EXPECT_EQ(shown(kOther), "function@0x200") << "the handle is another function's now";
}

TEST_F(NamesTest, ThatCannotBeReadTakeTheOldOnesPlace) {
  get_function(kHandle, "old");
  get_function(kHandle, "");
  EXPECT_EQ(shown(kHandle), "function@0x100");
  Call cut = call_for_test("cuModuleGetFunction",
                           {{Key::kModule, kModule}, {Key::kFunction, kOther}}, 0, "_Zverylong");
  cut.is_name_cut = true;
  names_.on_end(cut);
  EXPECT_EQ(shown(kOther), "function@0x200");
  EXPECT_EQ(names_.counters().cut, 1U);
  EXPECT_EQ(names_.counters().unread, 1U);
}

TEST_F(NamesTest, OfAModuleEndWithTheContext) {
  get_function(kHandle, "a");
  get_kernel(kOther, "k");
  names_.on_begin(call_for_test("cuCtxDestroy_v2", {{Key::kContext, 7}}));
  EXPECT_EQ(shown(kHandle), "function@0x100");
  EXPECT_EQ(shown(kOther), "k") << "a library's kernels belong to no context";
}

TEST_F(NamesTest, OutliveAReleaseOfAContextThatOthersHold) {
  const auto retain = call_for_test("cuDevicePrimaryCtxRetain", {{Key::kDevice, 0}});
  names_.on_end(retain);
  names_.on_end(retain);
  get_function(kHandle, "a");
  const auto release = call_for_test("cuDevicePrimaryCtxRelease_v2", {{Key::kDevice, 0}});
  names_.on_begin(release);
  EXPECT_EQ(shown(kHandle), "a");
  names_.on_begin(release);
  EXPECT_EQ(shown(kHandle), "function@0x100");
  get_function(kHandle, "a");
  names_.on_end(retain);
  names_.on_begin(call_for_test("cuDevicePrimaryCtxReset_v2", {{Key::kDevice, 0}}));
  EXPECT_EQ(shown(kHandle), "function@0x100") << "a reset asks nobody";
}

TEST_F(NamesTest, AreLearntInPlace) {
  const KernelId before = names_.id_of(kHandle);
  names_.on_paired(kHandle, "_Z5saxpyfPKfPf");
  EXPECT_EQ(names_.id_of(kHandle), before) << "launches that were counted get the name, too";
  EXPECT_EQ(shown(kHandle), "saxpy");
}

TEST_F(NamesTest, ThatContradictEachOtherAreBothGivenUp) {
  names_.on_paired(kHandle, "a");
  names_.on_paired(kHandle, "b");
  EXPECT_EQ(shown(kHandle), "function@0x100");
  names_.on_paired(kHandle, "a");
  EXPECT_EQ(shown(kHandle), "function@0x100") << "doubt lasts until the handle is given out";
  EXPECT_EQ(names_.counters().conflicts, 1U);
  get_function(kHandle, "c");
  EXPECT_EQ(shown(kHandle), "c");
}

TEST_F(NamesTest, LearntOnesEndWithWhateverEnds) {
  names_.on_paired(kHandle, "a");
  names_.on_begin(call_for_test("cuModuleUnload", {{Key::kModule, 0x99}}));
  EXPECT_EQ(shown(kHandle), "function@0x100") << "of which module it is was never seen";
}

TEST_F(NamesTest, AreForgottenAfterALoss) {
  get_function(kHandle, "a");
  names_.forget();
  EXPECT_EQ(shown(kHandle), "function@0x100");
  EXPECT_EQ(names_.counters().forgotten, 1U);
}

TEST_F(NamesTest, HandlesAreBounded) {
  for (std::uint64_t i = 1; i <= Names::kHandlesMax; ++i)
    static_cast<void>(names_.id_of(i));
  EXPECT_EQ(names_.counters().over_limit, 0U);
  EXPECT_EQ(names_.id_of(Names::kHandlesMax + 1), 0U);
  EXPECT_EQ(names_.counters().over_limit, 1U);
}

class PairingTest : public testing::Test {
 protected:
  static Call runtime(std::uint64_t stub) {
    return call_for_test("cudaLaunchKernel", {{Key::kStub, stub},
                                              {Key::kGridXY, 8 | 2ULL << 32},
                                              {Key::kGridZ, 1},
                                              {Key::kBlockXY, 64 | 1ULL << 32},
                                              {Key::kBlockZ, 1},
                                              {Key::kResult, 0}});
  }
  static Call driver(std::uint64_t handle, std::uint64_t grid_x = 8) {
    return call_for_test("cuLaunchKernel", {{Key::kFunction, handle},
                                            {Key::kGridX, grid_x},
                                            {Key::kGridY, 2},
                                            {Key::kGridZ, 1},
                                            {Key::kBlockX, 64},
                                            {Key::kBlockY, 1},
                                            {Key::kBlockZ, 1}});
  }
  Pairing pairing_;
};

TEST_F(PairingTest, TakesTheOneLaunchInside) {
  pairing_.on_runtime_begin(runtime(5));
  pairing_.on_launch(driver(kHandle));
  const auto pair = pairing_.on_runtime_end(runtime(5));
  ASSERT_TRUE(pair);
  EXPECT_EQ(pair->handle, kHandle);
  EXPECT_EQ(pair->stub, 5U);
}

TEST_F(PairingTest, RefusesWhatIsNotCertain) {
  pairing_.on_runtime_begin(runtime(5));  // two launches
  pairing_.on_launch(driver(kHandle));
  pairing_.on_launch(driver(kOther));
  EXPECT_FALSE(pairing_.on_runtime_end(runtime(5)));
  pairing_.on_runtime_begin(runtime(5));  // another shape
  pairing_.on_launch(driver(kHandle, 9));
  EXPECT_FALSE(pairing_.on_runtime_end(runtime(5)));
  EXPECT_EQ(pairing_.refused(), 2U);
  pairing_.on_runtime_begin(runtime(5));  // none
  EXPECT_FALSE(pairing_.on_runtime_end(runtime(5)));
  pairing_.on_launch(driver(kHandle));  // outside
  EXPECT_FALSE(pairing_.on_runtime_end(runtime(5)));
  Call failed = runtime(5);
  failed.set(Key::kResult, 1);
  pairing_.on_runtime_begin(runtime(5));
  pairing_.on_launch(driver(kHandle));
  EXPECT_FALSE(pairing_.on_runtime_end(failed));
}

TEST_F(PairingTest, KnowsThreadsApart) {
  Call other = driver(kHandle);
  other.tid = 2;
  pairing_.on_runtime_begin(runtime(5));
  pairing_.on_launch(other);
  EXPECT_FALSE(pairing_.on_runtime_end(runtime(5)));
}

}  // namespace
}  // namespace kansoku::capture::outside
