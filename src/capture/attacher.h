// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <set>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "capture/bpf/engine.h"
#include "capture/probe_table.h"
#include "capture/recorder.h"
#include "capture/resolve.h"
#include "sys/fd.h"
#include "sys/procfs.h"

namespace kansoku::capture {

/// How an attacher shares an engine with another one.
struct AttacherOptions {
  std::size_t group{0};                  // of Engine::use_group()
  bool starts_attached{true};            // false: only finds its probes until attach()
  bool follows_lifecycle{true};          // fork, exec, exit: one attacher of an engine only
  const class Attacher* after{nullptr};  // functions that this one has are left out; borrowed
};

/// Attaches the probes of the packs: tracepoints at once, library functions when a process maps the
/// library. Each file (device, inode) is looked at once, since its probes fire in every process
/// that maps it; one that cannot be opened now is tried again when it is seen again.
/// Single-threaded.
class Attacher {
 public:
  /// Borrows everything; `packs` must not move while this lives.
  Attacher(bpf::Engine& engine, const sys::Procfs& procfs, const std::vector<Pack>& packs,
           ProbeTable& probes, std::function<void(const std::string&)> log,
           const AttacherOptions& options = {});

  /// Tracepoints, system calls, scheduler and CPU sampler of the packs.
  void attach_host();
  /// Probes of all libraries that `pid` maps and that were not looked at before. An attacher that
  /// comes after another one gets the same mappings after it: a library that appeared in between
  /// would get both their probes.
  void attach_libraries(std::int32_t pid, const std::vector<sys::Mapping>& mappings);
  /// After everything was detached: attaches all known probes again.
  void reattach();
  /// Switches its probes on and off, those of another group untouched.
  void attach();
  void detach();

  [[nodiscard]] const std::vector<Attachment>& attachments() const { return attachments_; }
  [[nodiscard]] const std::vector<std::string>& problems() const { return problems_; }

  struct Counters {
    std::uint64_t missing{0}, failed{0};
    bool scheduler_failed{false};
  };
  [[nodiscard]] const Counters& counters() const { return counters_; }

 private:
  using FileKey = std::tuple<std::uint32_t, std::uint32_t, std::uint64_t>;  // device, inode
  struct FileProbes {
    FileKey key;
    sys::Fd fd;        // the first user may be gone when probes are attached again
    std::string path;  // "/proc/self/fd/N"
    std::vector<bpf::UprobeSpec> with_return, entry_only;
  };
  /// False: it may work later.
  bool attach_file(std::int32_t pid, const sys::Mapping& mapping, const FileKey& key);
  void add_pack(const Pack& pack, sys::ElfFile& file, const std::string& shown_path,
                FileProbes& out);
  void add_function(const Pack& pack, const ResolvedProbe& probe, const std::string& shown_path,
                    FileProbes& out);
  void add_usdt(const ResolvedUsdt& probe, FileProbes& out);
  void attach_now(const FileProbes& file);
  [[nodiscard]] std::uint32_t add_probe(ProbeInfo info);
  [[nodiscard]] std::uint64_t cookie_of(std::uint32_t index) const;
  void problem(std::string line, std::uint64_t& counter);

  bpf::Engine& engine_;
  const sys::Procfs& procfs_;
  const std::vector<Pack>& packs_;
  ProbeTable& probes_;
  std::function<void(const std::string&)> log_;
  AttacherOptions options_;
  bool is_attached_;
  std::set<FileKey> seen_files_, failed_files_;
  std::set<std::pair<FileKey, std::uint64_t>> places_;  // files and offsets with a probe of ours
  std::map<std::string, std::uint64_t> host_cookies_;   // by tracepoint name, for reattach()
  std::vector<FileProbes> files_;
  std::vector<Attachment> attachments_;
  std::vector<std::string> problems_;
  Counters counters_;
};

}  // namespace kansoku::capture
