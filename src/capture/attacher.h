// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <compare>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "capture/bpf/engine.h"
#include "capture/bpf/sites.h"
#include "capture/internal/mapped_file.h"
#include "capture/internal/user_shares.h"
#include "capture/pack.h"
#include "capture/probe_table.h"
#include "capture/resolve.h"
#include "sys/elf.h"
#include "sys/fd.h"
#include "sys/procfs.h"

namespace kansoku::capture {

/// One attached probe, for `record --explain`.
struct Attachment {
  std::string library;  // path as the target sees it
  std::string title, symbol, pack;
  bpf::Site site;
  std::string end;  // how its end is seen: "", "return probe", "2 exits", "2 exits, 1 slow"
};

/// Settings of an attacher that differ between recording and watching.
struct AttachPolicy {
  std::uint8_t sinks{WIRE_SINK_RING};  // destinations of the calls
  /// Each entry of a pack has links of its own, so that a costly one can be taken off alone;
  /// otherwise a file has one set of them.
  bool links_by_entry{false};
  /// A file stays attached when its last user has gone, and is attached again though its name is
  /// gone; otherwise its links and its probe numbers go with that user.
  bool keeps_files{true};
  bool tells_missing{true};  // a function that a file lacks is a problem
  /// The attacher reads files of other users: within `elf_limits`, and no user may have more than
  /// half of the files and probes.
  bool is_shared{false};
  sys::ElfFile::Limits elf_limits{};
  std::size_t probes_max{bpf::Engine::kProbesMax};
};
/// Recordings: one user's job, all that was asked for, records.
[[nodiscard]] AttachPolicy recording_policy();
/// The always-on agent: everybody's jobs, totals.
[[nodiscard]] AttachPolicy metering_policy();

struct AttacherOptions {
  AttachPolicy policy{recording_policy()};
  bool is_window{false};                 // its probes are attached during windows only
  bool starts_attached{true};            // false: only finds its probes until set_enabled(true)
  const class Attacher* after{nullptr};  // functions that this one has are left out; borrowed
};

/// Attaches the function and USDT probes of packs to library files. Each file is looked at once,
/// since its probes fire in every process that maps it. Files are others': they are opened without
/// waiting, read within bounds, and a file that cannot be opened now is tried again.
/// Single-threaded.
class Attacher {
 public:
  /// Borrows engine, procfs and table. Metering takes the metered entries of the packs only.
  Attacher(bpf::Engine& engine, const sys::Procfs& procfs, const std::vector<Pack>& packs,
           ProbeTable& probes, std::function<void(const std::string&)> log,
           const AttacherOptions& options);
  Attacher(const Attacher&) = delete;
  Attacher& operator=(const Attacher&) = delete;

  /// The process maps these files now: attaches to new ones; lets go of those it no longer maps. An
  /// attacher that comes after another one gets the same mappings after it: a library that appeared
  /// in between would get both their probes.
  void set_mappings(std::int32_t pid, const std::vector<sys::Mapping>& mappings);
  void forget_process(std::int32_t pid);
  /// Attaches to a library before a process maps it, so that its first calls are seen. For those
  /// that are not wanted it does nothing. Errors as of ElfFile::open().
  [[nodiscard]] Result<void> preload(const std::string& path);
  /// True if a file of this process could not be opened and may be now.
  [[nodiscard]] bool wants_again(std::int32_t pid) const { return refused_.contains(pid); }
  /// Attaches the files that could not be attached.
  void retry();

  /// Takes all its probes off, or puts them back, but for those whose entries are off.
  void set_enabled(bool enabled);
  [[nodiscard]] std::size_t entry_count() const { return entries_.size(); }
  [[nodiscard]] const std::string& entry_name(std::size_t entry) const {
    return entries_.at(entry).name;
  }
  /// The functions of an entry; null: USDT probes.
  [[nodiscard]] const FunctionProbes* entry_functions(std::size_t entry) const {
    return entries_.at(entry).functions;
  }
  /// Takes an entry's probes off, or puts them back. Needs links by entry, or one that is switched.
  void set_entry_enabled(std::size_t entry, bool enabled);
  [[nodiscard]] bool is_entry_enabled(std::size_t entry) const {
    return entries_.at(entry).enabled;
  }
  /// Approximate cost of a call of an entry, begin and end, to the process that makes it; seconds.
  [[nodiscard]] double call_seconds(std::size_t entry) const;
  /// True if calls of this probe are seen at present.
  [[nodiscard]] bool is_probe_on(std::uint32_t probe) const;

  [[nodiscard]] std::size_t file_count() const { return files_.size(); }
  [[nodiscard]] std::size_t probe_count() const { return probe_count_; }
  [[nodiscard]] const std::vector<Attachment>& attachments() const { return attachments_; }
  [[nodiscard]] const std::vector<std::string>& problems() const { return problems_; }
  struct Counters {
    std::uint64_t missing{0}, failed{0};
  };
  [[nodiscard]] const Counters& counters() const { return counters_; }

 private:
  struct Entry {
    std::size_t pack{0};
    std::string libraries{};  // globs
    std::string name{};       // "watch: gloo::allreduce"
    bool enabled{true};
    bool is_switched{false};                   // has links of its own, whatever the policy
    const FunctionProbes* functions{nullptr};  // of packs_; null: USDT probes
    bool is_slow{false};                       // some probe of it is single-stepped
  };
  /// Specs that are attached and taken off together.
  struct LinkSet {
    std::optional<std::size_t> entry{};  // nothing: those of all entries
    std::vector<bpf::UprobeSpec> with_return{}, entry_only{};
    std::vector<bpf::Engine::Handle> handles{};  // empty: taken off
    std::uint64_t times{0};                      // attached so far
  };
  /// Which file it is, whatever it is called and wherever it is mounted.
  struct FileIdentity {
    std::uint64_t device{0}, inode{0};
    // Tell files of overlay file systems apart: their device differs in each container.
    std::int64_t bytes{0}, modified_ns{0}, changed_ns{0};
    auto operator<=>(const FileIdentity&) const = default;
  };
  struct File {
    sys::Fd fd;        // keeps the mapped file, whatever happens to its name and to its first user
    std::string path;  // "/proc/self/fd/N"
    std::string shown_path;  // as its first user sees it
    std::vector<LinkSet> links;
    std::vector<std::uint32_t> numbers;  // of its probes
    std::set<std::uint64_t> places;      // file offsets of functions with a probe
    std::size_t mapped_count{0};
    std::uint32_t user{0};  // the first user that mapped it: it is of that user's share
  };
  /// Identity of a file in mappings: device, inode; and the process, if the file opened under the
  /// name is not surely the mapped one.
  using MappedKey = std::tuple<std::uint32_t, std::uint32_t, std::uint64_t, std::int32_t>;
  struct Mapped {
    std::optional<FileIdentity> file;  // nothing: it is no library that can be probed
    std::set<std::int32_t> users;
  };

  void read_entries(const Pack& pack);
  [[nodiscard]] bool is_wanted(const std::string& library);
  void add_mapped(std::int32_t pid, const sys::Mapping& mapping);
  [[nodiscard]] Result<FileIdentity> identify(const sys::Fd& fd, const sys::Mapping& mapping,
                                              MappedKey& key) const;
  [[nodiscard]] Result<void> add_file(const FileIdentity& identity, sys::Fd fd,
                                      const sys::Mapping& mapping, std::uint32_t user);
  void add_pack(std::size_t pack, sys::ElfFile& elf, const FileIdentity& identity, File& file);
  void add_function(const ResolvedProbe& probe, const FileIdentity& identity, File& file);
  void add_usdt(const ResolvedUsdt& probe, File& file);
  [[nodiscard]] std::optional<std::uint32_t> take_numbers(std::vector<ProbeInfo> probes,
                                                          const std::string& title, File& file);
  [[nodiscard]] LinkSet& links_of(File& file, std::size_t entry) const;
  void attach(const File& file, LinkSet& links);
  void detach(LinkSet& links);
  void drop_user(std::map<MappedKey, Mapped>::iterator mapped, std::int32_t pid);
  void drop_file(const FileIdentity& identity);
  void problem(std::string line, std::uint64_t& counter);

  bpf::Engine& engine_;
  const sys::Procfs& procfs_;
  std::vector<Pack> packs_;  // resolved probes point into them
  ProbeTable& probes_;
  std::function<void(const std::string&)> log_;
  AttacherOptions options_;
  bool enabled_;
  std::vector<Entry> entries_;
  std::map<const void*, std::size_t> entry_of_;  // by the functions or USDT probes of packs_
  std::map<FileIdentity, File> files_;
  MappedFiles opener_;
  UserShares file_shares_, probe_shares_;
  std::map<MappedKey, Mapped> mapped_;  // of processes that live
  std::set<std::int32_t> refused_;      // processes with such files
  std::map<std::string, bool> wanted_;  // by the name of a library; bounded
  std::size_t probe_count_{0};
  std::vector<Attachment> attachments_;
  std::vector<std::string> problems_;
  std::set<std::string> told_;  // problems, each once
  Counters counters_;
};

}  // namespace kansoku::capture
