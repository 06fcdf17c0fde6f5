// SPDX-License-Identifier: Apache-2.0
// A trace of models in inference, and its report in both forms: no crash, no hang, the same answer
// twice. A first byte of 0xff: events written from the bytes that follow; else a recording.
#include "infer/run.h"

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "common/bytes.h"
#include "common/check.h"
#include "infer/figures.h"
#include "infer/report.h"
#include "trace/reader.h"
#include "trace/writer.h"

namespace {

using namespace kansoku;

constexpr std::uint64_t kEventsMax = 20'000;

constexpr std::array<std::string_view, 11> kCategories{trace::kModelDecode,
                                                       trace::kModelMicroBatch,
                                                       trace::kModelSchedule,
                                                       trace::kModelSplit,
                                                       trace::kModelGraph,
                                                       trace::kModelOperator,
                                                       trace::kModelWait,
                                                       trace::kModelWindow,
                                                       trace::kModelNode,
                                                       trace::kModelEngine,
                                                       "other"};
constexpr std::array<std::string_view, 20> kKeys{
    "tokens",  "result",  "context", "unique",  "rows",    "uid",    "graph",
    "node",    "experts", "shape",   "op",      "variant", "ggml",   "tid",
    "source0", "source1", "source2", "source3", "hits",    "cost_ns"};
constexpr std::array<std::string_view, 24> kTexts{
    "",
    "MUL_MAT",
    "MUL_MAT_ID",
    "FLASH_ATTN_EXT",
    "GET_ROWS",
    "SET_ROWS",
    "VIEW",
    "RMS_NORM+MUL",
    "F32 4x3x1x1 48",
    "F16 4x6x8x1 384 =blk.0.ffn_gate_exps.weight",
    "F32 4x3x1x1 48 #0",
    "F32 4x3x1x1 48 #1",
    "I32 2x3x1x1 24 =ids",
    "Q4_0 281474976710656x281474976710656x281474976710656x281474976710656 281474976710656",
    "F32 0x0x0x0 0 #4294967295",
    "0:0 0:1 1:7",
    "0:2147483647 -1:-2147483648 1:2147483647",
    "2x3 3 7 0 1 5 5",
    "4294967295x4294967295 1",
    "1x1 2147483647",
    "operator",
    "thread",
    "token",
    "x\n\x1b[0m"};
constexpr std::array<std::string_view, 7> kTracks{"model calls of thread 101",
                                                  "model calls of thread 102",
                                                  "graph thread 0 of 101",
                                                  "graph thread 1 of 101",
                                                  "graph thread 65535 of 102",
                                                  "model graphs",
                                                  "model windows"};

/// Takes bytes off the front; 0 where there are none.
class Bytes {
 public:
  explicit Bytes(std::span<const std::uint8_t> rest) : rest_(rest) {}
  [[nodiscard]] bool empty() const { return rest_.empty(); }
  std::uint8_t byte() {
    if (rest_.empty()) return 0;
    const std::uint8_t out = rest_.front();
    rest_ = rest_.subspan(1);
    return out;
  }
  template <std::size_t N>
  std::string_view one_of(const std::array<std::string_view, N>& list) {
    return list.at(byte() % N);
  }
  /// Small ones often, and some at every limit.
  std::uint64_t number() {
    const std::uint8_t kind = byte();
    if (kind < 192) return kind % 16;
    std::uint64_t out = 0;
    for (int i = 0; i < 8; ++i)
      out = out << 8U | byte();
    return kind < 224 ? out : (std::uint64_t{1} << (out % 64)) - (kind % 2);
  }
  BootTime time() {
    now_ += byte();
    return boot_time(now_);
  }

 private:
  std::span<const std::uint8_t> rest_;
  std::int64_t now_{0};
};

class EventWriter {
 public:
  EventWriter(trace::Writer& writer, Bytes& bytes) : writer_(writer), bytes_(bytes) {
    for (const std::int32_t pid : {100, 7}) {
      trace::ProcessInfo info;
      info.pid = pid;
      info.name = "llama-server";
      const auto process = writer.process_track(info);
      for (const std::string_view name : kTracks)
        tracks_.push_back(writer.custom_track(process, name));
    }
  }
  void write_one() {
    const std::uint8_t kind = bytes_.byte() % 8;
    const auto track = tracks_.at(bytes_.byte() % tracks_.size());
    const BootTime time = bytes_.time();
    if (kind == 0) return write_switch(time);
    if (kind <= 2) return writer_.slice_end(track, time);
    const auto category = writer_.category(bytes_.one_of(kCategories));
    const auto name = writer_.name(bytes_.one_of(kTexts));
    std::vector<trace::Arg> args;
    for (int count = bytes_.byte() % 8; count > 0; --count)
      args.push_back(arg());
    if (kind <= 5) return writer_.slice_begin(track, time, name, category, args);
    writer_.instant(track, time, name, category, args);
  }

 private:
  trace::Arg arg() {
    const auto key = writer_.name(bytes_.one_of(kKeys));
    switch (bytes_.byte() % 3) {
      case 0:
        return trace::Arg::uint(key, bytes_.number());
      case 1:
        return trace::Arg::sint(key, static_cast<std::int64_t>(bytes_.number()));
      default:
        return trace::Arg::str(key, bytes_.one_of(kTexts));
    }
  }
  void write_switch(BootTime time) {
    const std::int32_t out = 100 + bytes_.byte() % 4, in = 100 + bytes_.byte() % 4;
    if (bytes_.byte() % 3 == 0) return writer_.sched_wake(time, 0, in, "woken", out);
    writer_.sched_switch({time, 0, out, in, bytes_.byte() % 4U, "out", "in"});
  }
  trace::Writer& writer_;
  Bytes& bytes_;
  std::vector<trace::TrackHandle> tracks_;
};

std::string written(std::span<const std::uint8_t> data) {
  MemorySink sink;
  const auto writer = trace::Writer::create(sink, boot_time(0)).value();
  Bytes bytes(data);
  EventWriter events(*writer, bytes);
  while (!bytes.empty())
    events.write_one();
  CHECK(writer->flush().has_value());
  return sink.data();
}

void check_report(const trace::Trace& trace) {
  using namespace kansoku::infer;
  const Run run = read_run(trace);
  for (const Process& process : run.processes) {
    for (const Operator& one : process.operators)
      CHECK(one.graph == kNone || one.graph < process.graphs.size());
    for (const Graph& one : process.graphs)
      CHECK(one.micro_batch == kNone || one.micro_batch < process.micro_batches.size());
  }
  const Report report = make_report(run), again = make_report(read_run(trace));
  ReportOptions options;
  options.peaks = Peaks{1e10, 1e11, 4};
  CHECK(to_json(report, options).dump() == to_json(again, options).dump());
  CHECK(to_text(report, options) == to_text(again, options));
  CHECK(!to_json(report, {}).dump().empty());
  CHECK(!to_text(report, {}).empty());
  for (const ProcessFigures& process : report.processes)
    CHECK(process.timeline.size() <= kTimelineMax);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size > 65536) return 0;
  std::span<const std::uint8_t> bytes(data, size);
  const bool is_written = !bytes.empty() && bytes.front() == 0xff;
  const std::string events = is_written ? written(bytes.subspan(1)) : std::string();
  trace::ReadOptions limits;
  limits.events_max = kEventsMax;
  limits.strings_bytes_max = 1U << 20;
  const auto trace =
      trace::read_trace(is_written ? as_bytes(events) : std::as_bytes(bytes), limits);
  if (!trace) return 0;
  check_report(*trace);
  return 0;
}
