// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "capture/outside/busy.h"
#include "capture/outside/call.h"
#include "capture/outside/graphs.h"
#include "capture/outside/names.h"

namespace kansoku::capture::outside {

/// Calls of one function of the driver.
struct EntryCount {
  Kind kind{Kind::kOther};
  std::uint64_t begun{0};
  std::uint64_t ended{0};      // whose end was seen
  std::uint64_t failed{0};     // ended calls that returned an error; "not ready" of a query is none
  std::uint64_t not_ready{0};  // of queries
  std::uint64_t captured{0};   // begun calls that were taken into a graph
  Nanos time{};                // of ended calls
  std::uint64_t bytes{0};
  std::uint64_t without_bytes{0};  // copies and sets whose bytes are not told
  std::uint64_t operations{0};     // that copies and sets gave to streams, those of graphs apart
};

/// Launches of one kernel.
struct KernelCount {
  std::uint64_t launches{0};  // of its own
  std::uint64_t by_graphs{0};
  std::uint64_t not_ready{0};  // of queries
  std::uint64_t captured{0};   // taken into graphs
};

struct WaitCount {
  std::uint64_t count{0};
  Nanos time{};  // of threads
};

struct MemoryCount {
  std::uint64_t allocated{0}, freed{0};  // bytes
  std::uint64_t live{0}, high_water{0};  // bytes of allocations that were seen
  std::uint64_t unknown_frees{0};        // of allocations from before
  std::uint64_t unknown_bytes{0};        // allocations whose bytes or address were not read
};

/// Launch as a reader of the record sees it.
struct Launch {
  KernelId kernel{0};
  bool is_captured{false};
};

/// Everything that the driver's calls of one process add up to. Calls come in the order of the
/// ring: on_begin as each begins (also those whose end is never seen), on_end as it ends. Pure: no
/// clock, no files. Bounded. Not shared between threads.
class Tally {
 public:
  static constexpr std::size_t kEntriesMax = 1'024;
  static constexpr std::size_t kAllocationsMax = 262'144;

  /// `is_whole`: seen since before its first call. `stub_name`: the mangled name of the function
  /// of the host at that address, if that is certain.
  using StubName = std::function<std::optional<std::string>(std::uint64_t)>;
  Tally(BootTime begin, bool is_whole, StubName stub_name = {});

  /// Notes the begin of a call; for launches, gives the kernel and whether it runs.
  std::optional<Launch> on_begin(std::string_view function, const Call& call);
  /// The same call, with the values known at its end.
  void on_end(std::string_view function, const Call& call, BootTime end);
  /// The process ended.
  void on_exit(BootTime time) { ended_ = time; }
  /// After exec: another program.
  void forget();
  /// After each look at the ring. A name of a stub is read in one and taken over in the next: then
  /// every unload before it was read has told so.
  void settle();
  /// Records were lost; `of_names`: among them may be those that names hang on.
  void on_loss(bool of_names);
  /// Probes were off for a while.
  void on_gap() { busy_.on_loss(); }

  [[nodiscard]] const std::map<std::string, EntryCount, std::less<>>& entries() const {
    return entries_;
  }
  [[nodiscard]] const std::map<KernelId, KernelCount>& kernels() const { return kernels_; }
  [[nodiscard]] const std::map<std::string, std::uint64_t>& copied() const { return copied_; }
  [[nodiscard]] const std::map<std::pair<std::string, std::int32_t>, std::uint64_t>& errors()
      const {
    return errors_;
  }
  [[nodiscard]] const WaitCount& waits() const { return waits_; }
  [[nodiscard]] const MemoryCount& memory() const { return memory_; }
  [[nodiscard]] const Names& names() const { return names_; }
  /// To `end`, or to the end of the process.
  [[nodiscard]] BusyBounds busy(BootTime end) const {
    return busy_.bounds(ended_ ? std::min(*ended_, end) : end);
  }
  [[nodiscard]] const std::vector<Nanos>& launch_costs() const { return launch_costs_; }
  [[nodiscard]] std::uint64_t unknown_graph_launches() const { return unknown_graph_launches_; }
  [[nodiscard]] std::uint64_t pairings_refused() const { return pairing_.refused(); }
  /// Launches of kernels, those of graphs apart, that ran; and how many of them without a name.
  struct Named {
    std::uint64_t launches{0}, unnamed{0};
  };
  [[nodiscard]] Named named() const;

 private:
  EntryCount& count_of(std::string_view function, Kind kind);
  std::optional<Launch> on_work(const Call& call, EntryCount& entry);
  void on_memory(const Call& call);
  void on_moved(const Call& call, EntryCount& entry, bool is_done);
  void on_runtime_end(const Call& call);
  void on_waited(const Call& call, BootTime end);

  /// A pair whose stub's name is being read.
  struct Learning {
    std::uint64_t handle{0}, stub{0};
    KernelId id{0};      // of the handle, then
    std::string name{};  // "" = not read yet
  };
  StubName stub_name_;
  std::vector<Learning> learning_;  // bounded
  Names names_;
  Graphs graphs_;
  Pairing pairing_;
  BusyClock busy_;
  std::optional<BootTime> ended_;
  std::map<std::string, EntryCount, std::less<>> entries_;
  std::map<KernelId, KernelCount> kernels_;
  std::map<std::string, std::uint64_t> copied_;                           // by direction
  std::map<std::pair<std::string, std::int32_t>, std::uint64_t> errors_;  // by function and code
  WaitCount waits_;
  MemoryCount memory_;
  std::unordered_map<std::uint64_t, std::uint64_t> allocations_;  // device bytes by address
  std::unordered_map<std::uint64_t, std::string> stubs_;          // as they were registered
  std::vector<Nanos> launch_costs_;                               // bounded
  std::uint64_t unknown_graph_launches_{0};
  std::set<std::int32_t> capturing_;  // threads in a copy or set that is taken into a graph
};

}  // namespace kansoku::capture::outside
