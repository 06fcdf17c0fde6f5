// SPDX-License-Identifier: Apache-2.0
#include "capture/python/internal/stack_reader.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

#include "capture/python/internal/image_for_test.h"

namespace kansoku::capture::python {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::SizeIs;

/// A program of two threads: main -> train -> step, and main -> load.
class ImageTest : public ::testing::TestWithParam<std::int32_t> {
 protected:
  ImageTest() : layout_(layout_for_test(GetParam())), build_(memory_, layout_) {
    build_.interpreter();
    main_ = build_.code("main", 10);
    train_ = build_.code("train", 20);
    step_ = build_.code("Trainer.step", 30);
    load_ = build_.code("load", 40);
    bottom_ = build_.frame(main_, 0, 0);
    middle_ = build_.frame(train_, 8, bottom_);
    top_ = build_.frame(step_, 6, middle_);
    first_ = build_.thread(top_, 71);
    other_top_ = build_.frame(load_, 10, build_.frame(main_, 8, 0));
    second_ = build_.thread(other_top_, 72);
    build_.give_gil(second_);
  }

  void start(Process::Options options = {}) {
    reader_ = std::make_unique<StackReader>(memory_, layout_, build_.runtime(), options);
  }
  void sample() {
    const auto result = reader_->sample();
    ASSERT_TRUE(result) << result.error().what;
  }
  /// "main:10 train:21 step:30" of the i-th thread, oldest first; "torn" if it is.
  [[nodiscard]] std::string stack(std::size_t i) const {
    const auto& threads = reader_->threads();
    const StackReader::Thread& thread = threads[threads.size() - 1 - i];
    if (thread.torn) return "torn";
    std::string text;
    for (auto frame = thread.frames.rbegin(); frame != thread.frames.rend(); ++frame) {
      if (frame->code == nullptr) continue;
      EXPECT_EQ(frame->code->file, "/app/train.py");
      text += fmt::format("{}{}:{}", text.empty() ? "" : " ", frame->code->function, frame->line);
    }
    return text;
  }

  ImageMemory memory_;
  const Layout layout_;
  ImageBuilder build_;
  std::uint64_t main_{0}, train_{0}, step_{0}, load_{0};
  std::uint64_t bottom_{0}, middle_{0}, top_{0}, other_top_{0}, first_{0}, second_{0};
  std::unique_ptr<StackReader> reader_;
};

TEST_P(ImageTest, ReadsNamesLinesAndTheHolderOfTheLock) {
  start();
  sample();
  ASSERT_THAT(reader_->threads(), SizeIs(2));
  EXPECT_EQ(stack(0), "main:10 train:21 Trainer.step:30");
  EXPECT_EQ(stack(1), "main:11 load:41");
  EXPECT_FALSE(reader_->threads()[1].holds_gil);
  EXPECT_TRUE(reader_->threads()[0].holds_gil);
  EXPECT_EQ(reader_->threads()[1].thread_id, 71U * 4096);
  EXPECT_EQ(reader_->threads()[1].native_id, layout_.thread_native_id < 0 ? 0U : 71U);
  build_.give_gil(0);
  sample();
  EXPECT_FALSE(reader_->threads()[0].holds_gil);
}

TEST_P(ImageTest, NeedsOneReadOnceItKnowsThePlaces) {
  start();
  sample();
  const auto before = reader_->counters();
  sample();
  EXPECT_EQ(reader_->counters().read_calls - before.read_calls, 1U);
  EXPECT_EQ(stack(0), "main:10 train:21 Trainer.step:30");
}

TEST_P(ImageTest, WithoutBatchingReadsTheSame) {
  start({.batch_reads = false});
  sample();
  sample();
  EXPECT_EQ(stack(0), "main:10 train:21 Trainer.step:30");
  EXPECT_EQ(reader_->counters().read_calls, reader_->counters().read_ranges);
}

TEST_P(ImageTest, FollowsCallsReturnsAndThreads) {
  start();
  sample();
  build_.set_top(first_, middle_);
  sample();
  EXPECT_EQ(stack(0), "main:10 train:21");
  build_.set_top(first_, build_.frame(load_, 0, build_.frame(step_, 8, middle_)));
  build_.thread(build_.frame(train_, 2, 0), 73);
  sample();
  EXPECT_EQ(stack(0), "main:10 train:21 Trainer.step:31 load:40");
  ASSERT_THAT(reader_->threads(), SizeIs(3));
  EXPECT_EQ(stack(2), "train:20");
  build_.set_top(first_, 0);
  sample();
  EXPECT_EQ(stack(0), "");
  EXPECT_EQ(reader_->counters().torn, 0U);
}

TEST_P(ImageTest, NoticesAReusedCodeObject) {
  start();
  sample();
  const std::uint64_t fresh = build_.string("other");
  memory_.put(step_, layout_.code_qualified_name, fresh);
  memory_.put(step_, layout_.code_name, fresh);
  sample();
  EXPECT_EQ(stack(0), "main:10 train:21 other:30");
  memory_.put(step_, layout_.code_first_line, std::uint32_t{300});
  sample();
  EXPECT_EQ(stack(0), "main:10 train:21 other:300");
}

TEST_P(ImageTest, ForgetsCodeAtTheLimitAndReadsItAgain) {
  start({.code_cache_max = 2});
  for (int i = 0; i < 3; ++i) {
    sample();
    EXPECT_EQ(stack(0), "main:10 train:21 Trainer.step:30");
  }
}

TEST_P(ImageTest, CutsDeepStacksAtTheLimit) {
  for (const std::uint32_t depth_max : {2U, 3U, 4U}) {
    start({.depth_max = depth_max});
    sample();
    EXPECT_EQ(stack(0),
              depth_max == 2 ? "train:21 Trainer.step:30" : "main:10 train:21 Trainer.step:30");
    EXPECT_EQ(reader_->counters().truncated, depth_max == 2 ? 1U : 0U);
  }
}

TEST_P(ImageTest, ReadsAtMostSoManyThreads) {
  start({.threads_max = 1});
  sample();
  ASSERT_THAT(reader_->threads(), SizeIs(1));
  EXPECT_EQ(stack(0), "main:11 load:41");
  EXPECT_EQ(reader_->counters().truncated, 1U);
}

TEST_P(ImageTest, DropsACycleOfFrames) {
  memory_.put(bottom_, layout_.frame_previous, middle_);
  start();
  sample();
  EXPECT_EQ(stack(0), "torn");
  EXPECT_EQ(stack(1), "main:11 load:41");
  EXPECT_EQ(reader_->counters().retried, 1U);
  EXPECT_EQ(reader_->counters().torn, 1U);
  memory_.put(top_, layout_.frame_previous, top_);
  sample();
  EXPECT_EQ(stack(0), "torn");
}

TEST_P(ImageTest, EndsACycleOfThreads) {
  memory_.put(first_, layout_.thread_next, second_);
  start();
  sample();
  EXPECT_THAT(reader_->threads(), SizeIs(2));
  EXPECT_EQ(stack(0), "main:10 train:21 Trainer.step:30");
  EXPECT_GT(reader_->broken_lists(), 0U);
}

TEST_P(ImageTest, DropsWildFramePointers) {
  for (const std::uint64_t wild :
       {std::uint64_t{8}, bottom_ + 1, ~std::uint64_t{0}, std::uint64_t{1} << 46,
        ImageMemory::kBase + memory_.image().size() - 8}) {
    memory_.put(middle_, layout_.frame_previous, wild);
    start();
    sample();
    EXPECT_EQ(stack(0), "torn") << wild;
    EXPECT_EQ(stack(1), "main:11 load:41");
  }
}

TEST_P(ImageTest, EndsAtWildThreadPointers) {
  for (const std::uint64_t wild : {std::uint64_t{8}, first_ + 3, std::uint64_t{1} << 46, top_}) {
    memory_.put(second_, layout_.thread_next, wild);
    start();
    sample();
    ASSERT_THAT(reader_->threads(), SizeIs(1));
    EXPECT_EQ(stack(0), "main:11 load:41");
    EXPECT_GT(reader_->broken_lists(), 0U);
  }
}

TEST_P(ImageTest, DropsFramesWhoseCodeIsNone) {
  memory_.put(train_, layout_.object_type, build_.type("dict"));
  start();
  sample();
  EXPECT_EQ(stack(0), "torn");
  EXPECT_EQ(stack(1), "main:11 load:41");
  memory_.put(train_, layout_.object_type, build_.code_type());
  sample();
  EXPECT_EQ(stack(0), "main:10 train:21 Trainer.step:30");
}

TEST_P(ImageTest, DropsInstructionsOutsideOfTheCode) {
  if (layout_.instruction != InstructionKind::kPointer) {
    memory_.put(top_, layout_.frame_instruction, std::int32_t{-77});
  } else {
    memory_.put(top_, layout_.frame_instruction, step_);
  }
  start();
  sample();
  EXPECT_EQ(stack(0), "torn");
}

TEST_P(ImageTest, DecodesOtherStringsAndBoundsLengths) {
  const auto name_of_step = [&](std::uint64_t string) {
    memory_.put(step_, layout_.code_qualified_name, string);
    memory_.put(step_, layout_.code_name, string);
    start();
    sample();
    return stack(0);
  };
  const std::string prefix = "main:10 train:21 ";
  EXPECT_EQ(name_of_step(build_.string("z\xe4hle", 1, false)), prefix + "z\xc3\xa4hle:30");
  EXPECT_EQ(name_of_step(build_.string(std::string("\x85\x5f\x61\x00", 4), 2, false)),
            prefix + "\xe5\xbe\x85" + "a:30");
  EXPECT_EQ(name_of_step(build_.string(std::string("\x00\xf6\x01\x00", 4), 4, false)),
            prefix + "\xf0\x9f\x98\x80:30");
  EXPECT_EQ(name_of_step(build_.string("")), prefix + ":30");
  const std::uint64_t huge = build_.string("x");
  memory_.put(huge, layout_.string_length, ~std::uint64_t{0});
  EXPECT_EQ(name_of_step(huge), prefix + "<?>:30");
  memory_.put(huge, layout_.string_length, std::uint64_t{1} << 19);  // plausible, but unmapped
  memory_.put(huge, layout_.string_state, std::uint32_t{(1U << 2) | 32U | 64U});
  EXPECT_EQ(name_of_step(build_.string(std::string(5000, 'n'))),
            prefix + std::string(512, 'n') + ":30");
}

TEST_P(ImageTest, SurvivesALineTableOfAnyLength) {
  for (const std::uint64_t length : {std::uint64_t{0}, std::uint64_t{70000}, ~std::uint64_t{0}}) {
    const std::uint64_t table = build_.bytes("");
    memory_.put(table, layout_.object_size, length);
    memory_.put(step_, layout_.code_line_table, table);
    start();
    sample();
    EXPECT_EQ(stack(0), "main:10 train:21 Trainer.step:30") << length;
  }
  memory_.put(step_, layout_.code_line_table, std::uint64_t{16});
  start();
  sample();
  EXPECT_EQ(stack(0), "main:10 train:21 Trainer.step:30");
}

TEST_P(ImageTest, SkipsFramesOfTheInterpreter) {
  if (layout_.shim_owner < 0) GTEST_SKIP() << "this release has no such frames";
  const std::uint64_t shim = build_.frame(0, 0, middle_, 3);
  memory_.put(top_, layout_.frame_previous, shim);
  start();
  sample();
  sample();
  EXPECT_EQ(stack(0), "main:10 train:21 Trainer.step:30");
}

TEST_P(ImageTest, DropsACalleeForWhichNobodyWaits) {
  if (layout_.frame_stack_top < 0) GTEST_SKIP() << "this release does not tell";
  const std::uint64_t running = layout_.minor >= 14 ? 0 : 0xffffffff;
  const auto set_stack_top = [&](std::uint64_t frame, std::uint64_t value) {
    if (layout_.minor >= 14) return memory_.put(frame, layout_.frame_stack_top, value);
    memory_.put(frame, layout_.frame_stack_top, static_cast<std::uint32_t>(value));
  };
  set_stack_top(top_, running);  // the first frame may run
  start();
  sample();
  EXPECT_EQ(stack(0), "main:10 train:21 Trainer.step:30");
  set_stack_top(middle_, running);
  sample();
  EXPECT_EQ(stack(0), "main:10 train:21");  // the step had returned: train runs itself
  if (layout_.shim_owner >= 0) {
    memory_.put(top_, layout_.frame_previous, build_.frame(0, 0, middle_, 3));
  } else {
    memory_.put(top_, layout_.frame_is_entry, std::uint8_t{1});
  }
  sample();
  EXPECT_EQ(stack(0), "main:10 train:21 Trainer.step:30");  // C code was called and called back
}

TEST_P(ImageTest, RetriesAStackThatMovesWhileItIsRead) {
  start();
  sample();
  // While the sample runs, the thread goes over to frames far away, on another stack.
  static_cast<void>(memory_.allocate(65536));
  const std::uint64_t base = build_.frame(main_, 0, 0);
  std::uint64_t elsewhere = base;
  for (int i = 0; i < 8; ++i)
    elsewhere = build_.frame(load_, 0, elsewhere);
  bool moved = false;
  memory_.after_range_for_test = [&](std::uint64_t address) {
    if (address != first_ || moved) return;
    moved = true;
    build_.set_top(first_, elsewhere);
  };
  if (layout_.cframe_frame >= 0) {  // there the thread keeps its cframe and the cframe changes
    std::uint64_t cframe = 0;
    std::memcpy(&cframe,
                memory_.image().data() + (first_ - ImageMemory::kBase) + layout_.thread_frame, 8);
    const std::uint64_t field = cframe + static_cast<std::uint64_t>(layout_.cframe_frame);
    memory_.after_range_for_test = [&, field](std::uint64_t address) {
      if (address != field || moved) return;
      moved = true;
      memory_.put(field, 0, elsewhere);
    };
  }
  sample();
  EXPECT_TRUE(moved);
  EXPECT_EQ(reader_->counters().retried, 1U);
  EXPECT_EQ(reader_->counters().torn, 0U);
  EXPECT_EQ(stack(0), "main:10 load:40 load:40 load:40 load:40 load:40 load:40 load:40 load:40");
}

TEST_P(ImageTest, FailsWhenTheProcessIsGone) {
  start();
  sample();
  memory_.unmap();
  const auto gone = reader_->sample();
  ASSERT_FALSE(gone);
  EXPECT_EQ(gone.error().code, Code::kNotFound);
}

TEST_P(ImageTest, SeesAnInterpreterThatHasNotStarted) {
  memory_.put(build_.runtime(), layout_.runtime_interpreters_head, std::uint64_t{0});
  start();
  sample();
  EXPECT_FALSE(reader_->is_initialised());
  EXPECT_THAT(reader_->threads(), IsEmpty());
}

INSTANTIATE_TEST_SUITE_P(Python3, ImageTest, ::testing::Values(8, 9, 10, 11, 12, 13, 14));

}  // namespace
}  // namespace kansoku::capture::python
