// SPDX-License-Identifier: Apache-2.0
// Ranges and marks of NVTX, as a program that was compiled with them sees the library, and as a
// recorder does.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>

#include <nvtx3/nvToolsExt.h>

#include <array>
#include <filesystem>
#include <map>
#include <thread>

#include "library_for_test.h"

namespace kansoku {
namespace {

constexpr int kNoTool = -2, kNotPushed = -1;

class RangesTest : public LibraryTest {
 protected:
  struct Seen {
    std::uint32_t kind;
    std::string name, domain;
    std::uint64_t begin_ns, lasted_ns;
    std::uint32_t tid;
  };
  void SetUp() override {
    LibraryTest::SetUp();
    setenv("NVTX_INJECTION64_PATH", KANSOKU_CUDA_LIBRARY, 1);
  }
  void record(Mode mode = Mode::kEvery) {
    channel_->want_ranges(true);
    set(mode);
  }
  void fall_asleep() { set(Mode::kDormant); }
  std::vector<Seen> seen() {
    std::vector<Seen> out;
    channel_->drain(
        [&](const wire_cuda_record& record, std::uint32_t) {
          if (record.entry != WIRE_CUDA_RANGE) return;
          const auto& range = record.u.range;
          out.push_back({range.kind, channel_->range_name(range.name),
                         channel_->range_domain(range.domain), record.host_begin_ns,
                         record.device_ns, record.tid});
        },
        WIRE_CUDA_RING_SLOTS);
    return out;
  }
  [[nodiscard]] std::vector<std::string> names() {
    std::vector<std::string> out;
    for (const Seen& one : seen())
      out.push_back(one.name);
    return out;
  }
  [[nodiscard]] wire_cuda_losses lost() const { return channel_->state().losses; }
  static std::uint64_t now_ns() {
    return static_cast<std::uint64_t>(sys::RealClock().now().time_since_epoch().count());
  }
  static nvtxEventAttributes_t event(int type, const void* message) {
    nvtxEventAttributes_t out{};
    out.version = NVTX_VERSION;
    out.size = NVTX_EVENT_ATTRIB_STRUCT_SIZE;
    out.messageType = type;
    out.message.ascii = static_cast<const char*>(message);
    return out;
  }
};

TEST_F(RangesTest, LevelsAreTheSameWhetherAnythingIsRecorded) {
  const auto levels = [&] {
    const nvtxDomainHandle_t domain = nvtxDomainCreateA("lib");
    const nvtxEventAttributes_t inner = event(NVTX_MESSAGE_TYPE_ASCII, "inner");
    return std::array{nvtxRangePushA("a"),
                      nvtxDomainRangePushEx(domain, &inner),
                      nvtxRangePushW(L"b"),
                      nvtxRangePop(),
                      nvtxDomainRangePop(domain),
                      nvtxDomainRangePop(domain),
                      nvtxRangePop(),
                      nvtxRangePop()};
  };
  const std::array expected{0, 0, 1, 1, 0, kNotPushed, 0, kNotPushed};
  EXPECT_EQ(levels(), expected);  // before CUDA
  start();
  EXPECT_EQ(levels(), expected);  // asleep
  EXPECT_TRUE(seen().empty());
  EXPECT_EQ(nvtxRangeStartA("asleep"), 0U);
  set(Mode::kEvery);
  EXPECT_EQ(levels(), expected);  // nobody wants ranges
  EXPECT_TRUE(seen().empty());
  record(Mode::kSampled);
  wait([&] {
    nvtxMarkA("on");
    return !seen().empty();
  });
  EXPECT_EQ(levels(), expected);
  EXPECT_THAT(names(), ::testing::ElementsAre("b", "inner", "a"));
  EXPECT_EQ(channel_->state().nvtx_clients, 1U);
}

TEST_F(RangesTest, RecordsWhatTheProgramSees) {
  start();
  record();
  const std::uint64_t before = now_ns();
  nvtxRangePushA("outer");
  const std::uint64_t between = now_ns();
  nvtxRangePushA("inner");
  nvtxRangePop();
  nvtxRangePop();
  const std::uint64_t after = now_ns();
  const auto ranges = seen();
  ASSERT_EQ(ranges.size(), 2U);
  EXPECT_EQ(ranges[0].name, "inner");
  EXPECT_EQ(ranges[1].name, "outer");
  EXPECT_EQ(ranges[1].kind, static_cast<std::uint32_t>(WIRE_CUDA_PUSHED));
  EXPECT_EQ(ranges[1].domain, "");
  EXPECT_EQ(ranges[1].tid, static_cast<std::uint32_t>(gettid()));
  EXPECT_GE(ranges[1].begin_ns, before);
  EXPECT_LE(ranges[1].begin_ns, between);
  EXPECT_LE(ranges[1].begin_ns + ranges[1].lasted_ns, after);
  EXPECT_GE(ranges[0].begin_ns, between);
  EXPECT_LE(ranges[0].begin_ns + ranges[0].lasted_ns, ranges[1].begin_ns + ranges[1].lasted_ns);
}

TEST_F(RangesTest, ReadsEveryKindOfMessage) {
  // Made before there is any memory to share.
  const nvtxDomainHandle_t domain = nvtxDomainCreateW(L"ma\u00dfe");
  const nvtxStringHandle_t text = nvtxDomainRegisterStringA(domain, "registered");
  const nvtxStringHandle_t wide = nvtxDomainRegisterStringW(domain, L"wide \u00e9\u20ac\U0001F600");
  EXPECT_EQ(nvtxDomainRegisterStringA(domain, "registered"), text);
  EXPECT_EQ(nvtxDomainCreateA("ma\u00dfe"), domain);
  start();
  record();
  const auto mark = [&](const nvtxEventAttributes_t& one) {
    nvtxDomainMarkEx(domain, &one);
    const auto marks = seen();
    EXPECT_EQ(marks.size(), 1U);
    EXPECT_EQ(marks[0].domain, "ma\u00dfe");
    EXPECT_EQ(marks[0].kind, static_cast<std::uint32_t>(WIRE_CUDA_MARK));
    return marks[0].name;
  };
  EXPECT_EQ(mark(event(NVTX_MESSAGE_TYPE_REGISTERED, text)), "registered");
  EXPECT_EQ(mark(event(NVTX_MESSAGE_TYPE_REGISTERED, wide)), "wide \u00e9\u20ac\U0001F600");
  EXPECT_EQ(mark(event(NVTX_MESSAGE_TYPE_REGISTERED, &domain)), "");  // of another tool
  EXPECT_EQ(mark(event(NVTX_MESSAGE_TYPE_UNICODE, L"u\u00fc")), "u\u00fc");
  EXPECT_EQ(mark(event(NVTX_MESSAGE_TYPE_UNICODE, nullptr)), "");
  EXPECT_EQ(mark(event(NVTX_MESSAGE_TYPE_ASCII, nullptr)), "");
  EXPECT_EQ(mark(event(0, "unused")), "");
  EXPECT_EQ(mark(event(77, "of a later version")), "");
  nvtxEventAttributes_t old = event(NVTX_MESSAGE_TYPE_ASCII, "x");
  old.size = 8;
  EXPECT_EQ(mark(old), "");
  const std::array<wchar_t, 4> odd{static_cast<wchar_t>(0xd800), static_cast<wchar_t>(-1), L'x', 0};
  EXPECT_EQ(mark(event(NVTX_MESSAGE_TYPE_UNICODE, odd.data())), "\uFFFD\uFFFDx");
  nvtxMarkEx(nullptr);
  nvtxMarkA(nullptr);
  EXPECT_THAT(names(), ::testing::ElementsAre("", ""));
}

TEST_F(RangesTest, CutsLongNamesBetweenCharacters) {
  start();
  record();
  nvtxMarkA((std::string(126, 'a') + "\u00e9").c_str());  // the last letter has two bytes
  nvtxMarkA((std::string(125, 'b') + "\u00e9").c_str());
  nvtxMarkA(std::string(100'000, 'c').c_str());
  nvtxMarkW((std::wstring(200, L'\u20ac')).c_str());
  std::string euros;
  for (int i = 0; i < 42; ++i)
    euros += "\u20ac";
  EXPECT_THAT(names(),
              ::testing::ElementsAre(std::string(126, 'a'), std::string(125, 'b') + "\u00e9",
                                     std::string(127, 'c'), euros));
}

TEST_F(RangesTest, APointerThatIsUsedAgainHasItsNewText) {
  start();
  record();
  std::array<char, 16> text{};
  for (int i = 0; i < 3; ++i) {
    fmt::format_to_n(text.data(), text.size() - 1, "step {}", i);
    nvtxRangePushA(text.data());
    text[0] = 'x';
    nvtxRangePop();
  }
  EXPECT_THAT(names(), ::testing::ElementsAre("step 0", "step 1", "step 2"));
}

TEST_F(RangesTest, BeyondItsBoundsItCounts) {
  start();
  record();
  for (unsigned i = 0; i < WIRE_CUDA_RANGE_NAMES_MAX + 10; ++i)
    nvtxMarkA(fmt::format("mark {}", i).c_str());
  const auto marks = names();
  ASSERT_EQ(marks.size(), WIRE_CUDA_RANGE_NAMES_MAX + 10);
  EXPECT_EQ(marks[WIRE_CUDA_RANGE_NAMES_MAX - 2],
            fmt::format("mark {}", WIRE_CUDA_RANGE_NAMES_MAX - 2));
  EXPECT_EQ(marks[WIRE_CUDA_RANGE_NAMES_MAX - 1], "");
  EXPECT_EQ(lost().ranges_unnamed, 11U);
  EXPECT_EQ(nvtxDomainRegisterStringA(nullptr, "one more"), nullptr);
  EXPECT_NE(nvtxDomainRegisterStringA(nullptr, "mark 7"), nullptr);
  for (int i = 0; i < 130; ++i)
    EXPECT_EQ(nvtxRangePushA("mark 1"), i);
  EXPECT_EQ(lost().ranges_open, 2U);
  for (int i = 129; i >= 0; --i)
    EXPECT_EQ(nvtxRangePop(), i);
  EXPECT_EQ(seen().size(), 128U);
  EXPECT_EQ(lost().ranges_unbegun, 2U);
  // Domains: the last place is everybody's.
  nvtxDomainHandle_t last = nullptr, before_last = nullptr;
  for (unsigned i = 0; i < WIRE_CUDA_RANGE_DOMAINS_MAX + 5; ++i) {
    before_last = last;
    last = nvtxDomainCreateA(fmt::format("domain {}", i).c_str());
  }
  EXPECT_NE(last, nullptr);
  EXPECT_EQ(last, before_last);
  const nvtxEventAttributes_t one = event(NVTX_MESSAGE_TYPE_ASCII, "mark 1");
  nvtxDomainMarkEx(last, &one);
  const auto marked = seen();
  ASSERT_EQ(marked.size(), 1U);
  EXPECT_EQ(marked[0].domain, "");
  EXPECT_EQ(lost().ranges_unnamed, 12U);
  // Ranges of the process.
  std::vector<nvtxRangeId_t> ids;
  for (int i = 0; i < 1025; ++i)
    ids.push_back(nvtxRangeStartA("mark 1"));
  EXPECT_NE(ids[1023], 0U);
  EXPECT_EQ(ids[1024], 0U);
  EXPECT_EQ(lost().ranges_open, 3U);
  for (const nvtxRangeId_t id : ids)
    nvtxRangeEnd(id);
  EXPECT_EQ(seen().size(), 1024U);
}

// A range that was open when the recording began has no begin, whatever was recorded before.
TEST_F(RangesTest, KeepsRecordingsApart) {
  start();
  nvtxRangePushA("before");
  record();
  nvtxRangePushA("within");
  nvtxRangePop();
  nvtxRangePop();
  EXPECT_THAT(names(), ::testing::ElementsAre("within"));
  EXPECT_EQ(lost().ranges_unbegun, 1U);
  nvtxRangePushA("open");
  const nvtxRangeId_t open = nvtxRangeStartA("open");
  fall_asleep();
  EXPECT_EQ(nvtxRangePop(), 0);
  EXPECT_EQ(nvtxRangePushA("while asleep"), 0);
  record();
  EXPECT_EQ(nvtxRangePop(), 0);  // not the one that stood at this level
  nvtxRangeEnd(open);
  nvtxRangeEnd(open);
  nvtxRangeEnd(12345);
  EXPECT_THAT(names(), ::testing::ElementsAre());
  EXPECT_EQ(lost().ranges_unbegun, 5U);
}

TEST_F(RangesTest, DomainsOfOneThreadNeedNotNest) {
  start();
  record();
  const nvtxDomainHandle_t a = nvtxDomainCreateA("a"), b = nvtxDomainCreateA("b");
  const nvtxEventAttributes_t x = event(NVTX_MESSAGE_TYPE_ASCII, "x");
  nvtxDomainRangePushEx(a, &x);
  nvtxDomainRangePushEx(b, &x);
  nvtxDomainRangePushEx(a, &x);
  EXPECT_EQ(nvtxDomainRangePop(a), 1);
  EXPECT_EQ(nvtxDomainRangePop(a), 0);
  EXPECT_EQ(nvtxDomainRangePop(b), 0);
  const auto ranges = seen();
  ASSERT_EQ(ranges.size(), 3U);
  EXPECT_EQ(ranges[1].domain, "a");
  EXPECT_EQ(ranges[2].domain, "b");
  EXPECT_LT(ranges[1].begin_ns, ranges[2].begin_ns);
}

TEST_F(RangesTest, OneThreadStartsAndAnotherEnds) {
  start();
  record();
  const nvtxRangeId_t id = nvtxRangeStartA("across"), other = nvtxRangeStartW(L"other");
  EXPECT_NE(id, other);
  std::uint32_t tid = 0;
  std::thread ender([&] {
    tid = static_cast<std::uint32_t>(gettid());
    nvtxRangeEnd(id);
    nvtxRangePushA("of the thread");
    nvtxRangePop();
  });
  ender.join();
  nvtxRangeEnd(other);
  const auto ranges = seen();
  ASSERT_EQ(ranges.size(), 3U);
  EXPECT_EQ(ranges[0].name, "across");
  EXPECT_EQ(ranges[0].kind, static_cast<std::uint32_t>(WIRE_CUDA_STARTED));
  EXPECT_EQ(ranges[0].tid, static_cast<std::uint32_t>(gettid()));
  EXPECT_EQ(ranges[1].tid, tid);
  EXPECT_EQ(ranges[2].name, "other");
}

TEST_F(RangesTest, ManyThreadsAtOnceLoseNothing) {
  start();
  record();
  constexpr int kThreads = 8, kRounds = 2000;
  std::vector<std::thread> threads;
  for (int t = 0; t < kThreads; ++t)
    threads.emplace_back([t] {
      for (int i = 0; i < kRounds; ++i) {
        nvtxRangePushA(fmt::format("range {}", (i + t) % 100).c_str());
        const nvtxRangeId_t id = nvtxRangeStartA("started");
        nvtxRangeEnd(id);
        nvtxRangePop();
      }
    });
  for (std::thread& thread : threads)
    thread.join();
  std::map<std::string, int> counts;
  for (const std::string& name : names())
    ++counts[name];
  EXPECT_EQ(counts.size(), 101U);
  EXPECT_EQ(counts["started"], kThreads * kRounds);
  EXPECT_EQ(counts["range 7"], kThreads * kRounds / 100);
  EXPECT_EQ(lost().ranges_open + lost().ranges_unbegun + lost().ranges_unnamed, 0U);
}

TEST_F(RangesTest, AForkedChildWritesNothing) {
  start();
  record();
  nvtxRangePushA("parent");
  const pid_t child = fork();
  if (child == 0) {
    const bool is_right = nvtxRangePushA("child") == 1 && nvtxRangePop() == 1;
    _exit(is_right ? 0 : 1);
  }
  int status = -1;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
  nvtxRangePop();
  EXPECT_THAT(names(), ::testing::ElementsAre("parent"));
}

// The injection may name another copy than the one that stands for the driver: one of them works.
TEST_F(RangesTest, ASecondCopyHandsOverToTheFirst) {
  const std::filesystem::path copy =
      std::filesystem::path(::testing::TempDir()) / fmt::format("kansoku_copy_{}.so", getpid());
  std::filesystem::copy_file(std::filesystem::canonical(KANSOKU_CUDA_LIBRARY), copy);
  setenv("NVTX_INJECTION64_PATH", copy.c_str(), 1);
  start();
  record();
  EXPECT_EQ(nvtxRangePushA("by the copy"), 0);
  EXPECT_EQ(nvtxRangePop(), 0);
  std::filesystem::remove(copy);
  EXPECT_THAT(names(), ::testing::ElementsAre("by the copy"));
  EXPECT_EQ(channel_->state().nvtx_clients, 1U);
}

TEST_F(RangesTest, WithoutTheVariableAProgramIsAsWithoutATool) {
  unsetenv("NVTX_INJECTION64_PATH");
  start();
  record();
  EXPECT_EQ(nvtxRangePushA("x"), kNoTool);
  EXPECT_EQ(nvtxRangePop(), kNoTool);
  EXPECT_TRUE(seen().empty());
  EXPECT_EQ(channel_->state().nvtx_clients, 0U);
  EXPECT_EQ(channel_->state().nvtx_elsewhere, 0U);
}

TEST_F(RangesTest, AnotherToolIsNoticed) {
  setenv("NVTX_INJECTION64_PATH", KANSOKU_NULL_DRIVER, 1);
  start();
  EXPECT_EQ(nvtxRangePushA("x"), kNoTool);
  EXPECT_EQ(channel_->state().nvtx_elsewhere, 1U);
}

// Tables of an older client, which are shorter, or missing.
TEST_F(RangesTest, FillsWhatAClientHas) {
  auto* const initialize = entry<int(const void* (*)(std::uint32_t))>("InitializeInjectionNvtx2");
  EXPECT_EQ(initialize(nullptr), 0);
  EXPECT_EQ(initialize([](std::uint32_t) -> const void* { return nullptr; }), 0);
  static std::array<softgpu_nvtx_function, 4> functions{};
  static std::array<softgpu_nvtx_function*, 5> table{};
  for (std::size_t i = 1; i < functions.size(); ++i)
    table[i] = &functions[i];
  static const softgpu_nvtx_callbacks callbacks{
      sizeof(softgpu_nvtx_callbacks),
      [](std::uint32_t module, softgpu_nvtx_function*** out, unsigned* size) {
        *out = table.data();
        *size = 4;
        return module == 1 ? 1 : 0;
      }};
  EXPECT_EQ(
      initialize([](std::uint32_t id) -> const void* { return id == 1 ? &callbacks : nullptr; }),
      1);
  EXPECT_NE(functions[3], nullptr);
  EXPECT_EQ(functions[0], nullptr);
}

}  // namespace
}  // namespace kansoku
