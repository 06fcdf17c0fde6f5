// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>

#include "common/time.h"

namespace kansoku::capture::outside {

/// Purpose of a function of the driver.
enum class Kind : std::uint8_t {
  kOther,
  kLaunch,        // one kernel
  kGraphLaunch,   // all kernels of a graph
  kHostFunction,  // the host works in a stream
  kStreamMemory,  // a stream waits for memory, or writes it
  kCopy,
  kSet,
  kAlloc,
  kFree,
  kMap,     // of memory that exists: no bytes more or less
  kAdvise,  // advice on the place of managed memory
  kSync,    // waits for the device
  kQuery,   // asks whether the device is ready
  kEventRecord,
  kStreamWait,  // a stream waits for an event
  kLoad,        // modules and libraries
  kLookup,      // of kernels
  kGraph,       // making and changing graphs
  kContext,     // contexts and streams come and go
};
[[nodiscard]] std::string_view kind_name(Kind kind);  // "launch", "graph_launch", ...

/// Effect of a function on handles, beside its kind.
enum class Action : std::uint8_t {
  kNone,
  kModuleLoad,
  kGetFunction,
  kModuleUnload,
  kLibraryLoad,
  kGetKernel,
  kLibraryGetModule,
  kLibraryUnload,
  kKernelGetFunction,
  kTellName,
  kContextEnd,
  kStreamEnd,
  kBeginCapture,
  kEndCapture,
  kGraphCreate,
  kAddKernelNode,
  kAddChildGraph,
  kCloneGraph,
  kAddAnyNode,
  kChangeNode,
  kChangeExec,
  kInstantiate,
  kUpdateExec,
  kGraphEnd,
  kExecEnd,
  kContextRetain,
  kRuntimeLaunch,  // of the runtime, around the driver's
  kRegisterStub,
  kForgetStubs,
};

/// How a wait or a query names its subject.
enum class Scope : std::uint8_t { kNone, kContext, kStream, kEvent };

/// One entry point of the driver, by its name without "_v2", "_ptsz" and the like.
struct Entry {
  std::string_view name;
  Kind kind{Kind::kOther};
  Action action{Action::kNone};
  Scope scope{Scope::kNone};      // kSync, kQuery
  std::string_view direction{};   // copies: "HtoD"; "" = by the types of memory
  std::uint8_t element_bytes{1};  // sets
  bool is_host_memory{false};     // allocations
  bool waits{false};              // a copy to the host that returns when it is over
};

/// The entry point that a function of the driver is; kOther for one that the table lacks.
[[nodiscard]] const Entry& entry_of(std::string_view function);
/// True for "cuLaunchKernel_ptsz" and its like: without a stream it means the thread's own.
[[nodiscard]] bool is_per_thread(std::string_view function);

/// Numbers that packs capture, by the names they have there.
enum class Key : std::uint8_t {
  kFunction,
  kStream,
  kEvent,
  kBytes,
  kWidth,
  kHeight,
  kDepth,
  kCount,
  kSrcType,
  kDstType,
  kSrc,
  kDst,
  kModule,
  kLibrary,
  kKernel,
  kGraph,
  kExec,
  kChild,
  kNode,
  kPointer,
  kPitch,
  kContext,
  kGridX,
  kGridY,
  kGridZ,
  kBlockX,
  kBlockY,
  kBlockZ,
  kShared,
  kResult,
  kDevice,
  kStub,
  kGridXY,  // as the runtime passes them: x, and y above its 32 bits
  kBlockXY,
  kSize0,  // bytes of the first copies of a batch; there are kCount
  kSize1,
  kSize2,
  kSize3,
  kSize4,
  kSize5,
  kSize6,
};
inline constexpr std::size_t kKeys = 41, kSizes = 7;
/// Key of a capture's name, "grid_x"; nothing for one that means nothing here.
[[nodiscard]] std::optional<Key> key_of(std::string_view capture);

/// One call of the driver, or its begin alone.
struct Call {
  const Entry* entry{nullptr};
  bool per_thread{false};
  std::int32_t tid{0};
  BootTime begin{};
  std::array<std::uint64_t, kKeys> values{};
  std::uint64_t known{0};   // bit i: key i was read
  std::string_view name{};  // text argument; "" = none or unreadable; borrowed for the call
  bool is_name_cut{false};  // longer than a record holds

  void set(Key key, std::uint64_t value) {
    values.at(static_cast<std::size_t>(key)) = value;
    known |= std::uint64_t{1} << static_cast<unsigned>(key);
  }
  [[nodiscard]] bool has(Key key) const { return (known >> static_cast<unsigned>(key) & 1) != 0; }
  [[nodiscard]] std::optional<std::uint64_t> get(Key key) const {
    if (!has(key)) return std::nullopt;
    return values.at(static_cast<std::size_t>(key));
  }
  [[nodiscard]] std::uint64_t number(Key key) const {
    return values.at(static_cast<std::size_t>(key));
  }
  /// Status that the call returned; nothing if the end was not seen.
  [[nodiscard]] std::optional<std::int32_t> result() const {
    if (!has(Key::kResult)) return std::nullopt;
    return static_cast<std::int32_t>(number(Key::kResult));
  }
};

/// Bytes that a copy, set or allocation is about: the stated number, or width times height times
/// depth times the bytes of an element, or the sum over a batch; nothing if that was not read.
[[nodiscard]] std::optional<std::uint64_t> bytes_of(const Call& call);
/// Number of operations that a copy or set gives a stream: none without bytes, several in a batch.
[[nodiscard]] std::uint64_t operations_of(const Call& call);
/// "HtoD", "DtoH", "DtoD", "HtoH", or "unknown".
[[nodiscard]] std::string_view direction_of(const Call& call);
/// A copy that returns when the work before it is over.
[[nodiscard]] bool waits(const Call& call);

/// A stream as the process names it: handle, and the thread where the handle means its own.
struct StreamId {
  std::uint64_t handle{0};
  std::int32_t tid{0};
  auto operator<=>(const StreamId&) const = default;
};
[[nodiscard]] StreamId stream_of(const Call& call);

}  // namespace kansoku::capture::outside
