// SPDX-License-Identifier: Apache-2.0
// Write and read rates of traces, and their size: a full-operator recording as the writer sees it
// (four ranks, nested operators, a sequence number on each collective), in memory so that no disk
// is measured. The peer is zlib's gzip on the same uncompressed trace: the cost of a `.pftrace`
// that is compressed afterwards.
//   bench_trace [EVENTS[4000000]] [ROUNDS[7]]
#include <fmt/format.h>
#include <zlib.h>

#include <array>
#include <string>
#include <vector>

#include "bench_util.h"
#include "common/parse.h"
#include "common/rng.h"
#include "sys/clock.h"
#include "trace/reader.h"
#include "trace/writer.h"

namespace kansoku::bench {
namespace {

class MemorySink final : public ByteSink {
 public:
  Result<void> append(ByteSpan bytes) override {
    data.insert(data.end(), bytes.begin(), bytes.end());
    return {};
  }
  std::vector<std::byte> data;
};

struct Written {
  std::vector<std::byte> bytes;
  std::uint64_t events{0};
  double seconds{0};
};

constexpr std::int64_t kBegin = 1'000'000'000;

// One operator with two nested ones, then now and then a collective; times jitter as real ones do.
Result<Written> write(const Clock& clock, std::uint64_t event_count, int deflate_level) {
  MemorySink sink;
  sink.data.reserve(event_count * 32);
  const BootTime began = clock.now();
  trace::WriterOptions options;
  options.deflate_level = deflate_level;
  TRY(const auto writer, trace::Writer::create(sink, boot_time(kBegin), options));
  std::array<trace::TrackHandle, 4> threads{};
  for (std::int32_t rank = 0; rank < 4; ++rank) {
    trace::ProcessInfo process;
    process.pid = 100 + rank;
    process.rank = rank;
    static_cast<void>(writer->process_track(process));
    threads[static_cast<std::size_t>(rank)] =
        writer->thread_track(100 + rank, 100 + rank, "python3");
  }
  constexpr int kNameCount = 60;
  std::vector<trace::NameId> names;
  names.reserve(kNameCount);
  for (int i = 0; i < kNameCount; ++i)
    names.push_back(writer->name(fmt::format("at::_ops::operator_{}::call", i)));
  const trace::NameId all_reduce = writer->name("gloo::allreduce");
  const trace::NameId seq = writer->name("seq");
  const trace::CategoryId ops = writer->category("torch-ops");
  const trace::CategoryId collective = writer->category("collective");
  Rng rng(1);
  std::array<std::int64_t, 4> now{kBegin, kBegin, kBegin, kBegin};
  std::uint64_t round = 0;
  while (writer->events_written() < event_count) {
    for (std::size_t r = 0; r < threads.size(); ++r) {
      std::int64_t& t = now[r];
      const auto at = [&t, &rng](std::uint64_t span) {
        t += 100 + static_cast<std::int64_t>(rng.below(span));
        return boot_time(t);
      };
      writer->slice_begin(threads[r], at(9000), names[round % names.size()], ops);
      for (std::uint64_t i = 1; i < 3; ++i) {
        writer->slice_begin(threads[r], at(900), names[(round + i) % names.size()], ops);
        writer->slice_end(threads[r], at(5000));
      }
      writer->slice_end(threads[r], at(900));
      if (round % 200 == 0) {
        const std::array args{trace::Arg::uint(seq, round / 200)};
        writer->slice_begin(threads[r], at(900), all_reduce, collective, args);
        writer->slice_end(threads[r], at(900'000));
      }
    }
    ++round;
  }
  TRY_VOID(writer->flush());
  const Nanos took = clock.now() - began;
  return Written{std::move(sink.data), writer->events_written(),
                 static_cast<double>(took.count()) / 1e9};
}

// Seconds that zlib at level 1 takes for the uncompressed trace, and the bytes it leaves.
std::pair<double, std::size_t> gzip(const Clock& clock, const std::vector<std::byte>& raw) {
  std::vector<Bytef> out(::compressBound(raw.size()));
  uLongf size = out.size();
  const BootTime began = clock.now();
  ::compress2(out.data(), &size, reinterpret_cast<const Bytef*>(raw.data()), raw.size(), 1);
  return {static_cast<double>((clock.now() - began).count()) / 1e9, size};
}

Result<int> run(std::uint64_t event_count, int rounds) {
  const sys::RealClock clock;
  std::vector<double> write_s, read_s, zlib_ratio;
  Written one;
  std::size_t zlib_bytes = 0;
  for (int i = 0; i < rounds; ++i) {
    TRY(one, write(clock, event_count, 1));
    write_s.push_back(one.seconds);
    TRY(const Written raw, write(clock, event_count, 0));
    const auto [seconds, bytes] = gzip(clock, raw.bytes);
    zlib_bytes = bytes;
    zlib_ratio.push_back((raw.seconds + seconds) / one.seconds);
    const BootTime began = clock.now();
    TRY(const trace::Trace trace, trace::read_trace(one.bytes));
    read_s.push_back(static_cast<double>((clock.now() - began).count()) / 1e9);
    if (trace.slices.size() * 2 != one.events)
      return Error{Code::kInternal, "bench trace: slices were lost"};
  }
  const auto events = static_cast<double>(one.events);
  fmt::print(
      "bench trace_write events={} rounds={} million_events_per_s={:.2f} bytes_per_event={:.2f} "
      "ratio_vs_zlib_1={:.2f} zlib_bytes_per_event={:.2f}\n",
      one.events, rounds, events / stats::median(write_s) / 1e6,
      static_cast<double>(one.bytes.size()) / events, stats::median(zlib_ratio),
      static_cast<double>(zlib_bytes) / events);
  fmt::print(
      "bench trace_read events={} rounds={} million_events_per_s={:.2f} ratio_vs_write={:.2f}\n",
      one.events, rounds, events / stats::median(read_s) / 1e6,
      stats::median(write_s) / stats::median(read_s));
  return 0;
}

}  // namespace
}  // namespace kansoku::bench

int main(int argc, char** argv) {
  namespace bench = kansoku::bench;
  using kansoku::parse_int;
  const auto events = argc > 1 ? parse_int<std::uint64_t>(argv[1]).value_or(4'000'000) : 4'000'000;
  const auto rounds = argc > 2 ? parse_int<int>(argv[2]).value_or(7) : 7;
  const auto done = bench::run(events, rounds);
  if (!done) fmt::print("bench trace failed: {}\n", done.error().what);
  return done ? 0 : 1;
}
