// SPDX-License-Identifier: Apache-2.0
// The reader's side of the memory, against a process that writes anything.
#include "capture/cuda/channel.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <memory>

#include "sys/clock.h"

namespace kansoku::capture::cuda {
namespace {

struct Freed {
  void operator()(wire_cuda* memory) const { std::free(memory); }
};

/// As the library leaves it after cuInit, with one entry and one kernel.
std::unique_ptr<wire_cuda, Freed> fresh() {
  std::unique_ptr<wire_cuda, Freed> out(static_cast<wire_cuda*>(std::calloc(1, sizeof(wire_cuda))));
  std::strcpy(out->names + 1, "cuLaunchKernel");
  std::strcpy(out->names + 100, "_Z4workPfi");
  out->entries[0] = {1, WIRE_CUDA_LAUNCH};
  out->head.entry_count = 1;
  out->kernels[0].name = 100;
  out->kernel_count = 1;
  out->head.version = WIRE_CUDA_VERSION;
  out->head.magic = WIRE_CUDA_MAGIC;
  return out;
}

void put(wire_cuda& memory, std::uint64_t at, std::uint8_t entry = 0, std::uint16_t stream = 0) {
  wire_cuda_record& slot = memory.ring[at % WIRE_CUDA_RING_SLOTS];
  slot.entry = entry;
  slot.stream = stream;
  slot.turn = at + 1;
  memory.state.head = std::max<std::uint64_t>(memory.state.head, at + 1);
}

std::size_t drained(Channel& channel) {
  return channel.drain([](const wire_cuda_record&, std::uint32_t) {}, 1U << 20);
}

std::uint64_t loss(const Channel& channel, std::string_view name) {
  Losses losses;
  channel.add_losses(losses);
  for (const Losses::Total& total : losses.all())
    if (total.stat->name == name) return total.total;
  return 0;
}

TEST(Channel, RefusesAnotherVersion) {
  const auto memory = fresh();
  memory->head.version = WIRE_CUDA_VERSION + 1;
  const auto opened = Channel::on(memory.get());
  ASSERT_FALSE(opened);
  EXPECT_EQ(opened.error().code, Code::kUnsupported);
  EXPECT_THAT(opened.error().what, ::testing::HasSubstr(std::to_string(WIRE_CUDA_VERSION + 1)));
  memory->head.version = WIRE_CUDA_VERSION;
  memory->head.magic = 0;
  EXPECT_FALSE(Channel::on(memory.get()));
}

TEST(Channel, GivesRecordsOnceInOrder) {
  const auto memory = fresh();
  const auto channel = std::move(Channel::on(memory.get())).value();
  put(*memory, 0);
  put(*memory, 1);
  EXPECT_EQ(drained(*channel), 2U);
  EXPECT_EQ(drained(*channel), 0U);
  EXPECT_EQ(memory->control.tail, 2U);
  put(*memory, 2);
  EXPECT_EQ(drained(*channel), 1U);
}

TEST(Channel, WaitsForARecordThatIsBeingWritten) {
  const auto memory = fresh();
  const auto channel = std::move(Channel::on(memory.get())).value();
  put(*memory, 0);
  put(*memory, 2);  // 1 is taken, not filled
  EXPECT_EQ(drained(*channel), 1U);
  EXPECT_EQ(drained(*channel), 0U);
  put(*memory, 1);
  EXPECT_EQ(drained(*channel), 2U);
  EXPECT_EQ(loss(*channel, "cuda_odd_records"), 0U);
}

TEST(Channel, SkipsARingThatWasScribbledOn) {
  const auto memory = fresh();
  const auto channel = std::move(Channel::on(memory.get())).value();
  memory->state.head = ~std::uint64_t{0} - 5;
  EXPECT_EQ(drained(*channel), 0U);
  EXPECT_EQ(loss(*channel, "cuda_odd_records"), 1U);
  memory->state.head = 3;  // back again
  drained(*channel);
  EXPECT_GE(loss(*channel, "cuda_odd_records"), 1U);
}

TEST(Channel, LeavesOutRecordsThatPointNowhere) {
  const auto memory = fresh();
  const auto channel = std::move(Channel::on(memory.get())).value();
  put(*memory, 0, 1);                         // one entry is known: 0
  put(*memory, 1, 0, WIRE_CUDA_STREAMS_MAX);  // no such stream
  put(*memory, 2, WIRE_CUDA_CLOCK, 40);       // no such context
  put(*memory, 3);
  put(*memory, 4, WIRE_CUDA_OWN);  // has no indices
  EXPECT_EQ(drained(*channel), 2U);
  EXPECT_EQ(loss(*channel, "cuda_odd_records"), 3U);
}

TEST(Channel, BoundsNamesAndIndices) {
  const auto memory = fresh();
  const auto channel = std::move(Channel::on(memory.get())).value();
  ASSERT_EQ(channel->entries().size(), 1U);
  EXPECT_EQ(channel->entries()[0].name, "cuLaunchKernel");
  EXPECT_EQ(channel->kernel(0)->name, "_Z4workPfi");
  EXPECT_FALSE(channel->kernel(1));
  memory->kernel_count = ~std::uint64_t{0};
  EXPECT_FALSE(channel->kernel(WIRE_CUDA_KERNELS_MAX));
  EXPECT_EQ(channel->kernel_count(), WIRE_CUDA_KERNELS_MAX);
  memory->kernels[5].name = WIRE_CUDA_NAMES_BYTES;
  EXPECT_EQ(channel->kernel(5)->name, "");
  // A name without an end is cut at the memory's end.
  memory->kernels[6].name = WIRE_CUDA_NAMES_BYTES - 8;
  std::memset(memory->names + WIRE_CUDA_NAMES_BYTES - 8, 'x', 8);
  EXPECT_EQ(channel->kernel(6)->name, "xxxxxxxx");
  memory->head.entry_count = 4'000'000'000U;
  EXPECT_EQ(channel->entries().size(), 1U);  // read once
  const auto later = std::move(Channel::on(memory.get())).value();
  EXPECT_EQ(later->entries().size(), WIRE_CUDA_ENTRIES_MAX);
  EXPECT_EQ(channel->entry_name(1U << 30), "");
  EXPECT_FALSE(channel->context(1U << 30).is_used);
}

TEST(Channel, BoundsTheListOfSuspects) {
  const auto memory = fresh();
  const auto channel = std::move(Channel::on(memory.get())).value();
  wire_cuda_stream& stream = memory->streams[0];
  stream.generation = 1;
  stream.state = 1;
  stream.waiting_since_ns = 1;
  stream.known_done = 10;
  stream.oldest = 12;
  ASSERT_EQ(channel->streams().size(), 1U);
  EXPECT_EQ(channel->streams()[0].suspects.size(), 3U);
  EXPECT_EQ(channel->streams()[0].suspects_unknown, 0U);
  stream.oldest = 10'000'000;
  EXPECT_EQ(channel->streams()[0].suspects.size(), WIRE_CUDA_RECENT);
  EXPECT_EQ(channel->streams()[0].suspects_unknown, 10'000'001U - 10 - WIRE_CUDA_RECENT);
  stream.known_done = 10'000'001;  // complete meanwhile
  EXPECT_TRUE(channel->streams()[0].suspects.empty());
  // Later operations have taken the places of the first ones.
  stream.known_done = 10;
  stream.oldest = 19;
  stream.operations = WIRE_CUDA_RECENT + 14;
  EXPECT_EQ(channel->streams()[0].suspects.size(), 6U);
  EXPECT_EQ(channel->streams()[0].suspects_unknown, 4U);
  EXPECT_EQ(channel->streams()[0].behind.size(), WIRE_CUDA_RECENT - 6);
  stream.operations = 1'000'000'000;
  EXPECT_TRUE(channel->streams()[0].suspects.empty());
  EXPECT_EQ(channel->streams()[0].suspects_unknown, 10U);
  EXPECT_EQ(channel->streams()[0].behind.size(), WIRE_CUDA_RECENT);
}

TEST(Channel, AWatcherYieldsToARecorder) {
  const auto memory = fresh();
  const auto watcher = std::move(Channel::on(memory.get())).value();
  const auto recorder = std::move(Channel::on(memory.get())).value();
  const BootTime later = sys::RealClock().now() + std::chrono::minutes{1};
  ASSERT_TRUE(watcher->take_over(Channel::Access::kWatch));
  watcher->request(Mode::kSampled, 0, later);
  ASSERT_TRUE(recorder->take_over(Channel::Access::kRecord));
  EXPECT_FALSE(watcher->is_held());
  recorder->request(Mode::kEvery, 0, later);
  watcher->request(Mode::kDormant, 7, BootTime{});  // it does not know yet
  watcher->skip_records();
  EXPECT_EQ(memory->control.mode, static_cast<std::uint32_t>(Mode::kEvery));
  EXPECT_EQ(memory->control.every_n, 0U);
  EXPECT_FALSE(watcher->take_over(Channel::Access::kWatch));  // not back while it records
  recorder->request(Mode::kDormant, 0, BootTime{});
  EXPECT_TRUE(watcher->take_over(Channel::Access::kWatch));
}

TEST(Channel, AWatcherDoesNotYieldToAnother) {
  const auto memory = fresh();
  const auto first = std::move(Channel::on(memory.get())).value();
  const auto second = std::move(Channel::on(memory.get())).value();
  ASSERT_TRUE(first->take_over(Channel::Access::kWatch));
  first->request(Mode::kSampled, 0, sys::RealClock().now() + std::chrono::minutes{1});
  EXPECT_FALSE(second->take_over(Channel::Access::kWatch));
  EXPECT_TRUE(first->is_held());
}

TEST(Channel, PassesOverRecordsThatNobodyWants) {
  const auto memory = fresh();
  const auto channel = std::move(Channel::on(memory.get())).value();
  put(*memory, 0);
  put(*memory, 1);
  channel->skip_records();
  EXPECT_EQ(memory->control.tail, 2U);
  put(*memory, 2);
  EXPECT_EQ(drained(*channel), 1U);
}

TEST(Channel, TellsHowLongMostTook) {
  Durations durations{100, 100'000, 5000, std::vector<std::uint64_t>(WIRE_CUDA_BUCKETS, 0)};
  durations.buckets[0] = 50;  // below 256 ns
  durations.buckets[5] = 49;  // 1,024 to 1,536 ns
  durations.buckets[9] = 1;   // 4,096 to 6,144 ns
  EXPECT_DOUBLE_EQ(durations.at_most_ns(0.5), 256);
  EXPECT_DOUBLE_EQ(durations.at_most_ns(0.99), 1536);
  EXPECT_DOUBLE_EQ(durations.at_most_ns(1), 5000);  // the longest is known
  EXPECT_DOUBLE_EQ(Durations{}.at_most_ns(0.5), 0);
  Durations earlier = durations;
  durations.count += 3;
  durations.buckets[5] += 3;
  EXPECT_EQ(durations.since(earlier).count, 3U);
  EXPECT_EQ(durations.since(earlier).buckets[5], 3U);
  EXPECT_EQ(earlier.since(durations).count, 100U);  // a process that began anew
}

TEST(Channel, HandsOutRangesWithTheirIndicesChecked) {
  const auto memory = fresh();
  const auto channel = std::move(Channel::on(memory.get())).value();
  std::strcpy(memory->range_names[1], "forward");
  std::memset(memory->range_names[2], 'x', sizeof memory->range_names[2]);  // without an end
  std::strcpy(memory->range_names[3], "a\n\xff\x1b[2J");
  std::strcpy(memory->range_domains[63], "lib");
  EXPECT_EQ(channel->range_name(1), "forward");
  EXPECT_EQ(channel->range_name(2), std::string(WIRE_CUDA_RANGE_NAME_BYTES, 'x'));
  EXPECT_EQ(channel->range_name(3), "a???[2J");
  EXPECT_EQ(channel->range_domain(63), "lib");
  EXPECT_EQ(channel->range_name(WIRE_CUDA_RANGE_NAMES_MAX), "");
  EXPECT_EQ(channel->range_domain(WIRE_CUDA_RANGE_DOMAINS_MAX), "");
  const auto put_range = [&](std::uint64_t at, std::uint16_t name, std::uint16_t domain,
                             std::uint32_t kind) {
    auto& range = memory->ring[at].u.range;
    range.name = name;
    range.domain = domain;
    range.kind = kind;
    put(*memory, at, WIRE_CUDA_RANGE);
  };
  put_range(0, WIRE_CUDA_RANGE_NAMES_MAX - 1, WIRE_CUDA_RANGE_DOMAINS_MAX - 1, WIRE_CUDA_MARK);
  put_range(1, WIRE_CUDA_RANGE_NAMES_MAX, 0, WIRE_CUDA_PUSHED);
  put_range(2, 0, WIRE_CUDA_RANGE_DOMAINS_MAX, WIRE_CUDA_PUSHED);
  put_range(3, 0, 0, 0);
  put_range(4, 0, 0, WIRE_CUDA_MARK + 1);
  EXPECT_EQ(drained(*channel), 1U);
  EXPECT_EQ(loss(*channel, "cuda_odd_records"), 4U);
  memory->state.losses.ranges_open = 2;
  memory->state.losses.ranges_unbegun = 3;
  memory->state.losses.ranges_unnamed = 4;
  EXPECT_EQ(loss(*channel, "cuda_ranges_lost"), 5U);
  EXPECT_EQ(loss(*channel, "cuda_ranges_unnamed"), 4U);
}

TEST(Channel, BoundsStacks) {
  const auto memory = fresh();
  const auto channel = std::move(Channel::on(memory.get())).value();
  memory->stacks[4].count = 2;
  memory->stacks[4].addresses[0] = 7;
  memory->stacks[4].addresses[1] = 8;
  memory->stacks[5].count = 0xffffffff;
  EXPECT_THAT(channel->stack(5), testing::ElementsAre(7, 8));
  EXPECT_EQ(channel->stack(6).size(), std::size_t{WIRE_CUDA_STACK_FRAMES});
  for (const std::int64_t number : {std::int64_t{0}, std::int64_t{-1}, std::int64_t{1},
                                    std::int64_t{WIRE_CUDA_STACKS_MAX} + 1, INT64_MAX, INT64_MIN})
    EXPECT_TRUE(channel->stack(number).empty()) << number;
}

TEST(Channel, OfAProcessWithoutTheLibraryIsNotFound) {
  const auto opened = Channel::open(sys::Procfs(), getpid());
  ASSERT_FALSE(opened);
  EXPECT_EQ(opened.error().code, Code::kNotFound);
  EXPECT_FALSE(coverage_of(sys::Procfs(), getpid()).has_library);
}

}  // namespace
}  // namespace kansoku::capture::cuda
