// SPDX-License-Identifier: Apache-2.0
#include "capture/internal/meter_attacher.h"

#include <fmt/format.h>
#include <sys/stat.h>
#include <sys/vfs.h>

#include <algorithm>
#include <cerrno>
#include <utility>

#include "capture/internal/mapped_file.h"
#include "sys/elf.h"

namespace kansoku::capture {
namespace {

constexpr std::size_t kProblemsMax = 200, kFilesMax = 512, kMappedMax = 16384, kNamesMax = 4096;
// libtorch has some 30,000 functions; whoever maps a file of that name may bring any number.
constexpr sys::ElfFile::Limits kElfLimits{.symbols = 1U << 19U, .name_bytes = 64U << 20U};
constexpr long kOverlayMagic = 0x794c7630;  // OVERLAYFS_SUPER_MAGIC
constexpr std::uint64_t kInodeOfLayer = (std::uint64_t{1} << 52) - 1;

}  // namespace

MeterAttacher::MeterAttacher(bpf::Meter& meter, const sys::Procfs& procfs,
                             const std::vector<Pack>& packs,
                             std::function<void(const std::string&)> log)
    : meter_(meter),
      procfs_(procfs),
      log_(std::move(log)),
      file_shares_(kFilesMax),
      probe_shares_(bpf::Meter::kProbesMax),
      probes_(bpf::Meter::kFirstProbe) {
  for (const Pack& pack : packs)
    read_entries(pack);
}

void MeterAttacher::read_entries(const Pack& pack) {
  const auto add = [&](const std::string& metric, const std::string& what, Entry entry) {
    if (metric.empty()) return;
    const auto known = metric_from_name(metric);
    if (!known) {
      problem(fmt::format("{}: unknown metric {}", pack.path, metric));
      return;
    }
    entry.pack = &pack;
    entry.metric = *known;
    entry.name = fmt::format("{}: {}", pack.name, what);
    entries_.push_back(std::move(entry));
  };
  for (const FunctionProbes& functions : pack.functions)
    add(functions.metric, functions.symbols.front(), {.functions = &functions});
  for (const UsdtProbes& usdt : pack.usdt)
    add(usdt.metric, usdt.begin, {.usdt = &usdt});
}

void MeterAttacher::problem(std::string line) {
  if (std::find(problems_.begin(), problems_.end(), line) != problems_.end()) return;
  ++failed_;
  if (problems_.size() >= kProblemsMax) return;
  if (log_) log_(line);
  problems_.push_back(std::move(line));
}

std::optional<std::uint32_t> MeterAttacher::take_indexes(const Attached& of, bool two) {
  const std::size_t wanted = two ? 2 : 1;
  std::size_t at = bpf::Meter::kFirstProbe;
  while (at < probes_.size() &&
         (probes_[at].used || (two && at + 1 < probes_.size() && probes_[at + 1].used)))
    ++at;
  if (at + wanted > bpf::Meter::kProbesMax || !probe_shares_.take(of.user, wanted))
    return std::nullopt;
  probes_.resize(std::max(probes_.size(), at + wanted));
  probes_[at] = {true, false, of.entry};
  if (two) probes_[at + 1] = {true, true, of.entry};
  return static_cast<std::uint32_t>(at);
}

void MeterAttacher::add_function(const ResolvedProbe& probe, std::size_t entry, Attached& out) {
  const FunctionProbes& source = *probe.source;
  const bool is_scope = source.kind == ProbeKind::kScope;
  const auto index = take_indexes(out, is_scope);
  if (!index) {
    problem(fmt::format("{}: more than {} probes, or {} of one user", probe.title,
                        bpf::Meter::kProbesMax, probe_shares_.user_max()));
    return;
  }
  out.indexes.push_back(*index);
  if (probe.is_slow) entries_[entry].is_slow = true;
  if (is_scope) {
    out.indexes.push_back(*index + 1);
    if (describe_scope(*index, probe))
      out.entry_only.push_back(
          {probe.file_offset, 0, *index | WIRE_COOKIE_INSTANT | WIRE_COOKIE_SCOPE});
    return;
  }
  std::uint64_t cookie = *index;
  if (source.steps) cookie |= WIRE_COOKIE_STEPS;
  if (!source.bytes.empty()) {
    describe(*index, probe);
    cookie |= WIRE_COOKIE_CAPTURES;
  }
  if (probe.exits.empty()) {
    out.with_return.push_back({probe.file_offset, 0, cookie});
  } else {
    probe.add_specs(cookie, out.entry_only);
  }
}

bool MeterAttacher::describe_scope(std::uint32_t index, const ResolvedProbe& probe) {
  wire_meter_probe description{};
  bool has_name = false, has_count = false;
  for (const CaptureDef& capture : *probe.captures) {
    if (capture.how.is_text == WIRE_TEXT_PYTHON) {
      has_name = true;
      description.captures[WIRE_SCOPE_NAME] = capture.how;
    } else if (capture.name == "arg_count") {
      has_count = true;
      description.captures[WIRE_SCOPE_COUNT] = capture.how;
    }
  }
  if (!has_name || !has_count) {
    problem(fmt::format("{}: scopes are metered by a pystr and arg_count", probe.title));
    return false;
  }
  description.capture_count = 2;
  const auto described = meter_.describe_probe(index, description);
  if (!described) problem(described.error().what);
  return described.has_value();
}

void MeterAttacher::describe(std::uint32_t index, const ResolvedProbe& probe) {
  const FunctionProbes& source = *probe.source;
  wire_meter_probe description{};
  for (const CaptureDef& capture : *probe.captures) {
    const bool is_factor =
        std::find(source.bytes.begin(), source.bytes.end(), capture.name) != source.bytes.end();
    const bool is_type = capture.name == source.type;
    if ((!is_factor && !is_type) || description.capture_count == 3) continue;
    if (is_factor)
      description.factors |= static_cast<std::uint8_t>(1U << description.capture_count);
    description.captures[description.capture_count++] = capture.how;
    if (is_type) description.type_index = description.capture_count;
  }
  if (const auto described = meter_.describe_probe(index, description); !described)
    problem(described.error().what);
}

void MeterAttacher::add_usdt(const ResolvedUsdt& probe, std::size_t entry, Attached& out) {
  if (probe.end_offset == 0) return;  // without an end there is nothing to total
  const auto index = take_indexes(out, false);
  if (!index) {
    problem(fmt::format("{}: more than {} probes, or {} of one user", entries_[entry].name,
                        bpf::Meter::kProbesMax, probe_shares_.user_max()));
    return;
  }
  out.indexes.push_back(*index);
  out.entry_only.push_back(
      {probe.begin_offset, probe.begin_semaphore, *index | WIRE_COOKIE_INSTANT});
  out.entry_only.push_back({probe.end_offset, probe.end_semaphore,
                            *index | WIRE_COOKIE_INSTANT | WIRE_COOKIE_METER_END});
}

void MeterAttacher::attach(const File& file, Attached& attached) {
  if (!enabled_ || !entries_[attached.entry].enabled || !attached.handles.empty()) return;
  // A scope that was open when its probe was taken off must not hide those that come after.
  constexpr std::uint64_t kTimes = std::uint64_t{0xffff} << WIRE_COOKIE_TIMES_SHIFT;
  ++attached.times;
  for (bpf::UprobeSpec& spec : attached.entry_only) {
    if ((spec.cookie & WIRE_COOKIE_SCOPE) == 0) continue;
    spec.cookie = (spec.cookie & ~kTimes) | (attached.times << WIRE_COOKIE_TIMES_SHIFT & kTimes);
  }
  for (const auto& [specs, with_return] :
       {std::pair(&attached.with_return, true), std::pair(&attached.entry_only, false)}) {
    const auto handle = meter_.attach_uprobes(file.path, *specs, with_return);
    if (!handle) {
      problem(handle.error().what);
    } else if (*handle != 0) {
      attached.handles.push_back(*handle);
    }
  }
}

bool MeterAttacher::is_wanted(const std::string& library) {
  if (const auto known = wanted_.find(library); known != wanted_.end()) return known->second;
  if (wanted_.size() >= kNamesMax) wanted_.clear();
  const bool is_wanted = std::any_of(entries_.begin(), entries_.end(), [&](const Entry& entry) {
    return any_glob_match(
        entry.functions != nullptr ? entry.functions->library : entry.usdt->library, library);
  });
  wanted_.emplace(library, is_wanted);
  return is_wanted;
}

void MeterAttacher::add_mapped(std::int32_t pid, const sys::Mapping& mapping,
                               const std::string& library) {
  MappedKey key{mapping.device_major, mapping.device_minor, mapping.inode, 0};
  const auto refuse = [&](const Error& error) {
    problem(fmt::format("meter {}: {}", mapping.path, error.what));
    // What may be better next time (it is gone already, too many files are open) is tried again.
    if (error.code == Code::kCorrupt || error.code == Code::kUnsupported)
      mapped_[key].users.insert(pid);
    else
      refused_.insert(pid);
  };
  if (mapped_.size() >= kMappedMax)
    return problem(fmt::format("more than {} mappings of libraries", kMappedMax));
  auto fd = open_mapped(procfs_, pid, mapping);
  if (!fd) return refuse(fd.error());
  struct stat info {};
  struct statfs system {};
  if (::fstat(fd->raw(), &info) != 0 || ::fstatfs(fd->raw(), &system) != 0)
    return refuse(errno_error(errno, "stat", mapping.path));
  // Another file may lie under the name meanwhile: it is not to stand for the one that others map.
  if (info.st_ino != mapping.inode) std::get<3>(key) = pid;
  FileIdentity identity{.device = info.st_dev, .inode = info.st_ino};
  if (system.f_type == kOverlayMagic) {
    // Its inode numbers are those of the layer below, with the number of the layer in front.
    const auto nanoseconds = [](const timespec& time) {
      return std::int64_t{time.tv_sec} * 1'000'000'000 + time.tv_nsec;
    };
    identity = {.device = 0,
                .inode = info.st_ino & kInodeOfLayer,
                .bytes = info.st_size,
                .modified_ns = nanoseconds(info.st_mtim),
                .changed_ns = nanoseconds(info.st_ctim)};
  }
  if (!files_.contains(identity)) {
    if (const auto added = add_file(identity, std::move(*fd), library, procfs_.owner(pid).user);
        !added)
      return refuse(added.error());
    if (log_ && !files_.at(identity).attached.empty())
      log_(fmt::format("metering {} of {}", library, pid));
  }
  ++files_.at(identity).mapped_count;
  mapped_[key] = {identity, {pid}};
}

Result<void> MeterAttacher::add_file(const FileIdentity& identity, sys::Fd fd,
                                     const std::string& library, std::uint32_t user) {
  File file;
  file.user = user;
  file.fd = std::move(fd);
  file.path = fmt::format("/proc/self/fd/{}", file.fd.raw());
  TRY(const auto elf, sys::ElfFile::open(file.path, kElfLimits));
  if (files_.size() >= kFilesMax || !file_shares_.take(user)) {
    return Error{Code::kLimit, fmt::format("more than {} library files, or {} of one user",
                                           kFilesMax, file_shares_.user_max())};
  }
  for (std::size_t i = 0; i < entries_.size(); ++i) {
    const Entry& entry = entries_[i];
    const std::string& globs =
        entry.functions != nullptr ? entry.functions->library : entry.usdt->library;
    if (!any_glob_match(globs, library)) continue;
    Pack one;  // this entry alone
    if (entry.functions != nullptr) one.functions.push_back(*entry.functions);
    if (entry.usdt != nullptr) one.usdt.push_back(*entry.usdt);
    const Resolution found = resolve_pack(one, *elf, library);
    for (const std::string& refused : found.refused)
      problem(refused);
    Attached attached{.entry = i, .user = user};
    for (const ResolvedProbe& probe : found.probes)
      add_function(probe, i, attached);
    for (const ResolvedUsdt& probe : found.usdt)
      add_usdt(probe, i, attached);
    if (attached.indexes.empty()) continue;
    attach(file, attached);
    probe_count_ += attached.indexes.size();
    file.attached.push_back(std::move(attached));
  }
  if (elf->is_cut())
    problem(fmt::format("meter {}: more than {} symbols; the rest was not looked at", library,
                        kElfLimits.symbols));
  if (file.attached.empty()) file.fd = sys::Fd();
  files_.emplace(identity, std::move(file));
  return {};
}

double MeterAttacher::call_seconds(std::size_t entry) const {
  // Measured in a VM with 2 cores; on bare metal the second is nearer to the first.
  constexpr double kEmulated = 1.2e-6, kSingleStepped = 11e-6;
  return entries_.at(entry).is_slow ? kSingleStepped : kEmulated;
}

void MeterAttacher::set_mappings(std::int32_t pid, const std::vector<sys::Mapping>& mappings) {
  std::set<MappedKey> here;
  refused_.erase(pid);
  for (const sys::Mapping& mapping : mappings) {
    if (!mapping.executable || mapping.inode == 0 || mapping.path.empty() || mapping.path[0] != '/')
      continue;
    const MappedKey key(mapping.device_major, mapping.device_minor, mapping.inode, 0);
    if (!here.insert(key).second) continue;
    const std::string library = library_name(mapping.path);
    if (!is_wanted(library)) continue;
    const MappedKey own(mapping.device_major, mapping.device_minor, mapping.inode, pid);
    auto known = mapped_.find(key);
    if (known == mapped_.end()) known = mapped_.find(own);
    if (known != mapped_.end()) {
      known->second.users.insert(pid);
    } else {
      add_mapped(pid, mapping, library);
    }
  }
  for (auto mapped = mapped_.begin(); mapped != mapped_.end();) {
    const auto next = mapped++;
    MappedKey key = next->first;
    std::get<3>(key) = 0;
    if (!here.contains(key)) drop_user(next, pid);
  }
}

void MeterAttacher::drop_user(std::map<MappedKey, Mapped>::iterator mapped, std::int32_t pid) {
  if (mapped->second.users.erase(pid) == 0 || !mapped->second.users.empty()) return;
  const auto identity = mapped->second.file;
  mapped_.erase(mapped);
  if (!identity) return;
  const auto file = files_.find(*identity);
  if (--file->second.mapped_count > 0) return;
  for (const Attached& attached : file->second.attached) {
    for (const bpf::Meter::Handle handle : attached.handles)
      meter_.detach(handle);
    for (const std::uint32_t index : attached.indexes)
      probes_[index].used = false;
    probe_shares_.give(attached.user, attached.indexes.size());
    probe_count_ -= attached.indexes.size();
  }
  file_shares_.give(file->second.user);
  files_.erase(file);
}

void MeterAttacher::retry() {
  for (auto& [key, file] : files_) {
    for (Attached& attached : file.attached)
      attach(file, attached);
  }
}

void MeterAttacher::forget_process(std::int32_t pid) {
  refused_.erase(pid);
  for (auto mapped = mapped_.begin(); mapped != mapped_.end();) {
    const auto next = mapped++;
    drop_user(next, pid);
  }
}

std::optional<Metric> MeterAttacher::metric_of(std::uint32_t probe, wire_total_kind kind) const {
  if (probe == bpf::Meter::kStops) return Metric::kStop;
  if (probe < bpf::Meter::kFirstProbe) return Metric::kBlock;
  if (probe >= probes_.size() || !probes_[probe].used) return std::nullopt;
  const Metric metric = entries_[probes_[probe].entry].metric;
  if (probes_[probe].is_second) return Metric::kOptimizer;
  if (kind == WIRE_TOTAL_CALL) return metric;
  if (metric != Metric::kStep) return std::nullopt;
  return kind == WIRE_TOTAL_INTERVAL ? Metric::kStepInterval : Metric::kStepGap;
}

std::size_t MeterAttacher::entry_of(std::uint32_t probe) const {
  return probe < probes_.size() ? probes_[probe].entry : 0;
}

void MeterAttacher::set_entry_enabled(std::size_t entry, bool enabled) {
  if (entry >= entries_.size() || entries_[entry].enabled == enabled) return;
  entries_[entry].enabled = enabled;
  for (auto& [key, file] : files_) {
    for (Attached& attached : file.attached) {
      if (attached.entry != entry) continue;
      for (const bpf::Meter::Handle handle : attached.handles)
        meter_.detach(handle);
      attached.handles.clear();
      attach(file, attached);
    }
  }
}

void MeterAttacher::set_enabled(bool enabled) {
  if (enabled_ == enabled) return;
  enabled_ = enabled;
  for (auto& [key, file] : files_) {
    for (Attached& attached : file.attached) {
      for (const bpf::Meter::Handle handle : attached.handles)
        meter_.detach(handle);
      attached.handles.clear();
      attach(file, attached);
    }
  }
}

}  // namespace kansoku::capture
