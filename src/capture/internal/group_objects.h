// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <span>
#include <tuple>
#include <utility>
#include <vector>

#include "capture/observed.h"
#include "capture/source.h"
#include "common/bytes.h"
#include "common/stat.h"
#include "sys/procfs.h"

namespace kansoku::capture {

STAT(capture_memory_not_searched, kNotice, kCapture,
     "megabytes of memory in which process groups were not looked for; a rank that its "
     "environment does not tell may be unknown");

/// Rank and size of a process group of c10d whose object begins with `untrusted`, at least 32
/// bytes: a pointer to its functions, the counts of its owners, then both numbers. Nothing if that
/// is no object in use. PyTorch before 2.10 or so counts owners in two words, later in one: their
/// values tell which. Tried on 1.13 and 2.15.
[[nodiscard]] std::optional<std::pair<std::int32_t, std::int32_t>> group_place(ByteSpan untrusted);

/// Finds the process groups (gloo) that a process has made before anybody looked: objects in its
/// memory, by the address of their class's functions. Reads at most 2 GiB, of no mapping more than
/// 256 MiB; stops nothing, writes nothing. Remembers libraries. Single-threaded; borrows procfs.
class GroupObjects {
 public:
  explicit GroupObjects(const sys::Procfs& procfs) : procfs_(procfs) {}
  /// Empty if it maps no PyTorch, has no group, or may not be read. Objects that a fork has left in
  /// it are its parent's, where that one still has them.
  [[nodiscard]] std::vector<GroupSeat> of(std::int32_t pid, std::int32_t parent_pid);
  [[nodiscard]] std::uint64_t unsearched_bytes() const { return unsearched_bytes_; }

 private:
  /// Address of the functions within the library; nothing: it has no such class.
  [[nodiscard]] std::optional<std::uint64_t> functions_of(std::int32_t pid,
                                                          const sys::Mapping& mapping);
  struct Search {
    std::int32_t pid{0}, parent_pid{0};
    std::uint64_t functions{0};      // address in the process
    std::size_t candidates_left{0};  // words with that value that are looked at
  };
  /// False: too many words with that value.
  [[nodiscard]] static bool search_chunk(ByteSpan untrusted, std::uint64_t address, Search& search,
                                         std::vector<GroupSeat>& out);

  using FileKey = std::tuple<std::uint32_t, std::uint32_t, std::uint64_t>;  // device, inode
  const sys::Procfs& procfs_;
  std::map<FileKey, std::optional<std::uint64_t>> functions_;
  std::uint64_t unsearched_bytes_{0};
};

/// Seats of the processes that began before it did: each is searched once, when it is looked at for
/// the first time. Of younger ones their calls tell.
class GroupObjectSource final : public Source {
 public:
  GroupObjectSource(const sys::Procfs& procfs, BootTime now);
  [[nodiscard]] std::string_view name() const override { return "group_objects"; }
  void inspect(const Observed& process, BootTime now) override;
  void forget(std::int32_t pid) override { searched_.erase(pid); }
  [[nodiscard]] BootTime due() const override { return BootTime::max(); }
  void poll(const Processes& /*processes*/, BootTime /*now*/) override {}
  [[nodiscard]] std::vector<GroupSeat> take_seats() override;
  void begin_trace(BootTime /*now*/) override {}
  void end_trace(BootTime /*now*/) override {}
  void set_enabled(bool /*enabled*/) override {}
  void add_losses(Losses& out) const override;

 private:
  GroupObjects objects_;
  std::uint64_t began_ticks_;
  std::set<std::int32_t> searched_;
  std::vector<GroupSeat> seats_;  // since the last look
};

}  // namespace kansoku::capture
