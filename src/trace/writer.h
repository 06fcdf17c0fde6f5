// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <concepts>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

#include "common/bytes.h"
#include "common/result.h"
#include "common/stat.h"
#include "common/time.h"
#include "trace/model.h"

namespace kansoku::trace {

using NameId =
    Id<struct NameTag>;  // an interned event name or argument name of one Writer; 0 = none
using CategoryId = Id<struct CategoryTag>;      // an interned category of one Writer; 0 = none
using TrackHandle = Id<struct TrackHandleTag>;  // a track of one Writer
using FrameHandle = Id<struct FrameHandleTag>;
using StackHandle = Id<struct StackHandleTag>;

/// An argument of a slice or instant, borrowed for the call.
struct Arg {
  enum class Kind : std::uint8_t { kInt, kUint, kDouble, kString };
  NameId key{};
  Kind kind{Kind::kUint};
  std::uint64_t bits{0};  // the value, or the bit pattern of the int64 or double
  std::string_view text{};
  [[nodiscard]] static Arg uint(NameId key, std::uint64_t value) {
    return {key, Kind::kUint, value, {}};
  }
  [[nodiscard]] static Arg sint(NameId key, std::int64_t value) {
    return {key, Kind::kInt, static_cast<std::uint64_t>(value), {}};
  }
  [[nodiscard]] static Arg str(NameId key, std::string_view value) {
    return {key, Kind::kString, 0, value};
  }
  // A text that ends with the expression.
  template <typename Text>
  requires std::same_as<std::remove_cv_t<Text>, std::string>
  static Arg str(NameId key, Text&& value) = delete;
};

/// Facts of a process for its track; empty texts and kNoRank are left out.
struct ProcessInfo {
  std::int32_t pid{0};
  std::int32_t parent_pid{0};
  std::string_view name, cmdline, job, role;
  std::int32_t rank{kNoRank}, local_rank{kNoRank}, world_size{kNoRank};
};

struct SchedSwitch {
  BootTime time{};
  std::uint32_t cpu{0};
  std::int32_t prev_tid{0}, next_tid{0};
  std::uint32_t prev_state{0};
  std::string_view prev_comm, next_comm;
};

struct WriterOptions {
  std::uint32_t chunk_bytes_max{
      192 * 1024};       // raw bytes compressed together; below Perfetto's limit of 512 KB a packet
  int deflate_level{1};  // 0 = store uncompressed packets, 1 .. 9 = zlib
  std::uint32_t strings_max{1U << 20};  // distinct names, frames and stacks each; further ones
                                        // become "(too many names)"
  bool can_restart{false};  // keep all for restart(): every name, frame and track, encoded
  // For a writer that goes on behind another's file (append.h): numbers that the file does not use.
  std::uint32_t sequence{1};    // 1 .. 127
  std::uint32_t first_uuid{1};  // of tracks
};

STAT(trace_strings_over_limit, kDataLoss, kCapture,
     "more distinct names than the trace can keep; narrow the probe packs");

/// Streams a Perfetto trace into a sink, append-only. Events go into a chunk; a full chunk or
/// flush() compresses it and hands it to the sink in one append, so flushed events are readable
/// after a kill. Slices of one track may be written in any order of time; begin and end of one
/// slice must nest properly with the others of the track. After the first failed append every later
/// flush() fails with the same error and events are dropped. Single-threaded. The sink is borrowed
/// and must outlive the writer. Format: docs/formats/trace.md. Source: Perfetto's published
/// protobuf schema.
class Writer {
 public:
  /// Writes the header (clock, sequence start) into the first chunk. `now` is the base of relative
  /// times.
  [[nodiscard]] static Result<std::unique_ptr<Writer>> create(ByteSink& sink, BootTime now,
                                                              WriterOptions options = {});
  ~Writer();
  Writer(const Writer&) = delete;
  Writer& operator=(const Writer&) = delete;

  /// Goes on in another sink, with a file of its own that holds everything declared so far; handles
  /// stay valid, counts begin anew. Data that was not flushed is lost, an earlier write error is
  /// forgotten. Needs WriterOptions::can_restart.
  [[nodiscard]] Result<void> restart(ByteSink& sink, BootTime now);

  /// Interned names; the same text gives the same id. Cheap when cached by the caller.
  [[nodiscard]] NameId name(std::string_view text);
  [[nodiscard]] CategoryId category(std::string_view text);

  /// Declares the track of a process (again, to update its facts: same pid, same handle).
  TrackHandle process_track(const ProcessInfo& info);
  /// Declares the track of a thread: calls of that thread. Same (pid, tid), same handle.
  TrackHandle thread_track(std::int32_t pid, std::int32_t tid, std::string_view thread_name);
  /// Declares a further track under a process or thread track (`parent` raw 0 = top level; behind
  /// another's file it may be a uuid of that file).
  TrackHandle custom_track(TrackHandle parent, std::string_view track_name);
  /// Declares a counter track; `unit` may be empty.
  TrackHandle counter_track(TrackHandle parent, std::string_view track_name, std::string_view unit);

  void slice_begin(TrackHandle track, BootTime time, NameId name, CategoryId category,
                   std::span<const Arg> args = {}, std::uint64_t flow = 0);
  void slice_end(TrackHandle track, BootTime time, std::span<const Arg> args = {});
  void instant(TrackHandle track, BootTime time, NameId name, CategoryId category,
               std::span<const Arg> args = {});
  void counter(TrackHandle track, BootTime time, double value);

  /// Interned frames and stacks (outermost first). The same content gives the same handle.
  [[nodiscard]] FrameHandle frame(std::string_view function, std::string_view file,
                                  std::uint32_t line);
  [[nodiscard]] StackHandle stack(std::span<const FrameHandle> outermost_first);
  void sample(std::int32_t pid, std::int32_t tid, BootTime time, StackHandle stack,
              SampleState state, bool holds_gil);
  /// A thread caught on processor `cpu` with a stack of native frames.
  void native_sample(std::int32_t pid, std::int32_t tid, BootTime time, std::uint32_t cpu,
                     StackHandle stack);

  void sched_switch(const SchedSwitch& event);
  void sched_wake(BootTime time, std::uint32_t cpu, std::int32_t tid, std::string_view comm,
                  std::int32_t waker_tid);

  /// Records the running total of a loss counter; the last total of a name counts.
  void loss(const StatDef& stat, std::uint64_t total, BootTime time);
  void metadata(std::string_view key, std::string_view value, BootTime time);

  /// Compresses and appends pending events. kLimit (disk full) and other write errors come back
  /// once and stay.
  [[nodiscard]] Result<void> flush();

  [[nodiscard]] std::uint64_t bytes_written() const;  // handed to the sink so far
  [[nodiscard]] std::uint64_t events_written()
      const;  // slices count once for begin and once for end
  [[nodiscard]] std::uint64_t bytes_pending() const;  // raw, not yet flushed

 private:
  struct Impl;
  explicit Writer(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace kansoku::trace
