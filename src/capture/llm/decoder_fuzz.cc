// SPDX-License-Identifier: Apache-2.0
// Any bytes as records of the model's ring: a byte of length in units of four (0: 352 bytes, a
// tensor), then so many bytes, and so on. Length 255 alone stands for one of a few changes of the
// recording. Each record is decoded or counted, and the trace made of them can be read.
#include "capture/llm/decoder.h"

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>

#include "capture/llm/graph_for_test.h"
#include "common/check.h"
#include "trace/reader.h"

namespace {

using namespace kansoku;
using namespace kansoku::capture::llm;

constexpr std::int32_t kPid = 100, kOtherPid = 7;  // with nodes; with calls alone

class Target {
 public:
  Target() : writer_(trace::Writer::create(sink_, boot_time(1'000'000)).value()) {
    decoder_.begin_trace(boot_time(1));
    add(kPid);
    add(kOtherPid);
  }
  void add(std::int32_t pid) {
    trace::ProcessInfo info;
    info.pid = pid;
    decoder_.add_process(pid, writer_->process_track(info),
                         pid == kPid ? &layout_for_test() : nullptr, names_for_test(),
                         boot_time(2));
  }
  void change(std::uint8_t how) {
    switch (how % 5) {
      case 0:
        decoder_.remove_process(kPid);
        return add(kPid);
      case 1:
        return decoder_.drop_operators();
      case 2:
        decoder_.end_trace();
        return decoder_.begin_trace(boot_time(3));
      case 3:
        static_cast<void>(decoder_.wants_pictures());
        return;
      default:
        return decoder_.remove_process(kOtherPid);
    }
  }
  void feed(std::span<const std::byte> record) {
    decoder_.on_record(record);
    ++count_;
  }
  void check() {
    const Decoder::Counters& counters = decoder_.counters();
    CHECK(counters.bad_records <= count_ && counters.operators <= count_);
    CHECK(counters.pictures <= count_ && counters.graphs_unread <= count_);
    decoder_.end_trace();
    CHECK(writer_->flush().has_value());
    const auto trace = trace::read_trace(as_bytes(sink_.data()));
    CHECK(trace.has_value());
    CHECK(!trace->losses.contains("trace_unknown_reference"));
    CHECK(!trace->losses.contains("trace_end_without_begin"));
    CHECK(trace->slices.size() <= 2 * count_);
  }

 private:
  MemorySink sink_;
  std::unique_ptr<trace::Writer> writer_;
  Decoder decoder_{*writer_};
  std::uint64_t count_{0};
};

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size > 65536) return 0;
  Target target;
  std::span<const std::uint8_t> rest(data, size);
  alignas(8) std::array<std::byte, 1024> record{};
  while (!rest.empty()) {
    const std::uint8_t length = rest.front();
    rest = rest.subspan(1);
    if (length == 255 && !rest.empty()) {
      target.change(rest.front());
      rest = rest.subspan(1);
      continue;
    }
    const std::size_t wanted = length == 0 ? sizeof(wire_model_tensor) : length * std::size_t{4};
    const std::size_t bytes = std::min(wanted, rest.size());
    std::memcpy(record.data(), rest.data(), bytes);
    rest = rest.subspan(bytes);
    target.feed(std::span(record).first(bytes));
  }
  target.check();
  return 0;
}
