// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <compare>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <tuple>
#include <vector>

#include "capture/bpf/meter.h"
#include "capture/internal/user_shares.h"
#include "capture/pack.h"
#include "capture/resolve.h"
#include "capture/watcher.h"
#include "sys/fd.h"
#include "sys/procfs.h"

namespace kansoku::capture {

/// Attaches the metered probes of packs to library files: one link for each entry of a pack and
/// file, so that a costly entry can be taken off alone. A file's links go when the last process
/// that maps it goes. Files are others': they are opened without waiting, read within bounds, and
/// what cannot be opened now is tried again. Single-threaded.
class MeterAttacher {
 public:
  /// Borrows everything; `packs` must not move while this lives.
  MeterAttacher(bpf::Meter& meter, const sys::Procfs& procfs, const std::vector<Pack>& packs,
                std::function<void(const std::string&)> log);

  /// The process maps these files now: attaches to new ones, lets go of those it no longer maps.
  void set_mappings(std::int32_t pid, const std::vector<sys::Mapping>& mappings);
  void forget_process(std::int32_t pid);
  /// Whether a file of this process could not be opened and may be now.
  [[nodiscard]] bool wants_again(std::int32_t pid) const { return refused_.contains(pid); }
  /// Attaches what could not be attached.
  void retry();

  /// What a probe's totals count for; nothing for an index not in use.
  [[nodiscard]] std::optional<Metric> metric_of(std::uint32_t probe, wire_total_kind kind) const;
  /// The entry of a pack a probe belongs to, for the governor.
  [[nodiscard]] std::size_t entry_of(std::uint32_t probe) const;
  [[nodiscard]] std::size_t entry_count() const { return entries_.size(); }
  [[nodiscard]] const std::string& entry_name(std::size_t entry) const {
    return entries_.at(entry).name;
  }
  /// Takes an entry's probes off, or puts them back.
  void set_entry_enabled(std::size_t entry, bool enabled);
  [[nodiscard]] bool is_entry_enabled(std::size_t entry) const {
    return entries_.at(entry).enabled;
  }
  /// About what a call of an entry costs the process that makes it, begin and end.
  [[nodiscard]] double call_seconds(std::size_t entry) const;
  /// Whether calls of this probe are counted at present.
  [[nodiscard]] bool is_probe_on(std::uint32_t probe) const {
    return probe < bpf::Meter::kFirstProbe || (enabled_ && entries_.at(entry_of(probe)).enabled);
  }
  /// All probes at once, whatever the entries say.
  void set_enabled(bool enabled);

  [[nodiscard]] std::size_t file_count() const { return files_.size(); }
  [[nodiscard]] std::size_t probe_count() const { return probe_count_; }
  [[nodiscard]] const std::vector<std::string>& problems() const { return problems_; }
  [[nodiscard]] std::uint64_t failed() const { return failed_; }

 private:
  struct Entry {
    const Pack* pack{nullptr};
    const FunctionProbes* functions{nullptr};
    const UsdtProbes* usdt{nullptr};
    Metric metric{};
    std::string name{};  // "watch: gloo::allreduce"
    bool enabled{true};
    bool is_slow{false};  // some probe of it is single-stepped
  };
  struct Attached {
    std::size_t entry{0};
    std::vector<bpf::UprobeSpec> with_return{}, entry_only{};
    std::vector<bpf::Meter::Handle> handles{};  // empty: taken off
    std::vector<std::uint32_t> indexes{};
    std::uint64_t times{0};  // attached so far
    std::uint32_t user{0};   // of whose share the indexes are
  };
  /// Which file it is, whatever it is called and wherever it is mounted.
  struct FileIdentity {
    std::uint64_t device{0}, inode{0};
    // Of files of overlay file systems, whose device is another one in each container.
    std::int64_t bytes{0}, modified_ns{0}, changed_ns{0};
    auto operator<=>(const FileIdentity&) const = default;
  };
  struct File {
    sys::Fd fd;        // keeps what was mapped, whatever happens to its name and to its first user
    std::string path;  // "/proc/self/fd/N"
    std::vector<Attached> attached;
    std::size_t mapped_count{0};
    std::uint32_t user{0};  // who mapped it first: it is of that user's share
  };
  /// What mappings call a file: device, inode; and the process, if what was opened under the name
  /// is not surely what it has mapped.
  using MappedKey = std::tuple<std::uint32_t, std::uint32_t, std::uint64_t, std::int32_t>;
  struct Mapped {
    std::optional<FileIdentity> file;  // nothing: it is no library that can be metered
    std::set<std::int32_t> users;
  };

  void read_entries(const Pack& pack);
  [[nodiscard]] bool is_wanted(const std::string& library);
  void add_mapped(std::int32_t pid, const sys::Mapping& mapping, const std::string& library);
  [[nodiscard]] Result<void> add_file(const FileIdentity& identity, sys::Fd fd,
                                      const std::string& library, std::uint32_t user);
  void add_function(const ResolvedProbe& probe, std::size_t entry, Attached& out);
  void add_usdt(const ResolvedUsdt& probe, std::size_t entry, Attached& out);
  /// Tells the BPF programs what to read of the arguments.
  void describe(std::uint32_t index, const ResolvedProbe& probe);
  /// The same of a scope; false if its captures are not what they need.
  [[nodiscard]] bool describe_scope(std::uint32_t index, const ResolvedProbe& probe);
  void attach(const File& file, Attached& attached);
  void drop_user(std::map<MappedKey, Mapped>::iterator mapped, std::int32_t pid);
  [[nodiscard]] std::optional<std::uint32_t> take_indexes(const Attached& of, bool two);
  void problem(std::string line);

  struct Probe {
    bool used{false};
    bool is_second{false};  // of a scope: the optimizer's
    std::size_t entry{0};
  };

  bpf::Meter& meter_;
  const sys::Procfs& procfs_;
  std::function<void(const std::string&)> log_;
  std::vector<Entry> entries_;
  std::map<FileIdentity, File> files_;
  UserShares file_shares_, probe_shares_;
  std::map<MappedKey, Mapped> mapped_;  // of processes that live
  std::set<std::int32_t> refused_;      // processes with such files
  std::map<std::string, bool> wanted_;  // by the name of a library; bounded
  std::vector<Probe> probes_;           // by index
  std::size_t probe_count_{0};
  bool enabled_{true};
  std::vector<std::string> problems_;
  std::uint64_t failed_{0};
};

}  // namespace kansoku::capture
