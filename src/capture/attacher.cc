// SPDX-License-Identifier: Apache-2.0
#include "capture/attacher.h"

#include <fmt/format.h>
#include <sys/stat.h>
#include <sys/vfs.h>

#include <algorithm>
#include <cerrno>

#include "common/check.h"

namespace kansoku::capture {
namespace {

constexpr std::size_t kProblemsMax = 1000, kFilesMax = 512, kMappedMax = 16384, kNamesMax = 4096;
constexpr long kOverlayMagic = 0x794c7630;  // OVERLAYFS_SUPER_MAGIC
constexpr std::uint64_t kInodeOfLayer = (std::uint64_t{1} << 52) - 1;

/// The packs without the entries that are not metered.
std::vector<Pack> metered(std::vector<Pack> packs) {
  for (Pack& pack : packs) {
    std::erase_if(pack.functions, [](const FunctionProbes& p) { return !p.is_metered(); });
    // Without an end there is nothing to total.
    std::erase_if(pack.usdt, [](const UsdtProbes& p) { return p.metric.empty() || p.end.empty(); });
  }
  return packs;
}

// A note whose begin tells nothing.
bool reads_results_only(const ResolvedProbe& probe) {
  return probe.source->kind == ProbeKind::kAnnotate &&
         std::all_of(probe.captures->begin(), probe.captures->end(),
                     [](const CaptureDef& c) { return is_read_at_end(c); });
}

/// True if a probe of it has only one place. Metering an instant takes its end, too.
bool is_alone(const FunctionProbes& probes, std::uint8_t sinks) {
  return probes.kind == ProbeKind::kScope ||
         (probes.kind == ProbeKind::kInstant && (sinks & WIRE_SINK_TOTALS) == 0);
}

std::string how_it_ends(const ResolvedProbe& probe) {
  if (probe.exits.empty()) return "return probe";
  const std::string_view counted = probe.by_exits ? "counted by " : "";
  const auto slow =
      std::count_if(probe.exits.begin(), probe.exits.end(),
                    [](const ResolvedExit& exit) { return !bpf::is_cheap(exit.exit.site_class); });
  std::string out =
      fmt::format("{}{} exit{}", counted, probe.exits.size(), probe.exits.size() == 1 ? "" : "s");
  if (slow != 0) out += fmt::format(", {} slow", slow);
  return out;
}

ProbeInfo info_of(const ResolvedProbe& probe, std::size_t entry) {
  const FunctionProbes& source = *probe.source;
  return {.title = probe.title,
          .category = source.category,
          .kind = probe.by_exits ? ProbeKind::kInstant : source.kind,
          .is_sampled = source.is_sampled,
          .ordinal_by = source.ordinal_by,
          .captures = *probe.captures,
          .group = source.group,
          .bytes = source.bytes,
          .type = source.type,
          .type_values = source.type_values,
          .metric = source.metric,
          .entry = entry};
}

}  // namespace

AttachPolicy recording_policy() {
  return {};
}

AttachPolicy metering_policy() {
  // libtorch_cpu of 2.15 has 546,000 symbols with 78 MB of names; whoever maps a file of that name
  // may bring any number, and the agent has 400 MB.
  return {.sinks = WIRE_SINK_TOTALS,
          .links_by_entry = true,
          .keeps_files = false,
          .tells_missing = false,  // a pack names what some version has
          .is_shared = true,
          .elf_limits = {.symbols = 1U << 20U, .name_bytes = 128U << 20U},
          .probes_max = 1024};
}

Attacher::Attacher(bpf::Engine& engine, const sys::Procfs& procfs, const std::vector<Pack>& packs,
                   ProbeTable& probes, std::function<void(const std::string&)> log,
                   const AttacherOptions& options)
    : engine_(engine),
      procfs_(procfs),
      packs_(options.policy.sinks == WIRE_SINK_TOTALS ? metered(packs) : packs),
      probes_(probes),
      log_(std::move(log)),
      options_(options),
      enabled_(options.starts_attached),
      opener_(procfs, options.policy.elf_limits),
      file_shares_(kFilesMax),
      probe_shares_(options.policy.probes_max) {
  for (std::size_t i = 0; i < packs_.size(); ++i) {
    const auto add = [&](const void* source, const std::string& libraries,
                         const std::string& what) {
      entry_of_.emplace(source, entries_.size());
      entries_.push_back(
          {.pack = i, .libraries = libraries, .name = fmt::format("{}: {}", packs_[i].name, what)});
    };
    for (const FunctionProbes& functions : packs_[i].functions) {
      add(&functions, functions.library, functions.symbols.front());
      entries_.back().is_switched = functions.is_switched();
      entries_.back().functions = &functions;
    }
    for (const UsdtProbes& usdt : packs_[i].usdt)
      add(&usdt, usdt.library, usdt.begin);
  }
}

void Attacher::problem(std::string line, std::uint64_t& counter) {
  if (problems_.size() >= kProblemsMax) {
    ++counter;
    return;
  }
  if (!told_.insert(line).second) return;
  ++counter;
  if (log_) log_(line);
  problems_.push_back(std::move(line));
}

std::optional<std::uint32_t> Attacher::take_numbers(std::vector<ProbeInfo> probes,
                                                    const std::string& title, File& file) {
  const AttachPolicy& policy = options_.policy;
  const std::size_t count = probes.size();
  for (ProbeInfo& probe : probes)
    probe.is_window = options_.is_window;
  const bool has_share = !policy.is_shared || probe_shares_.take(file.user, count);
  const auto first =
      has_share ? add_probes(probes_, std::move(probes), policy.probes_max) : std::nullopt;
  if (!first) {
    if (has_share && policy.is_shared) probe_shares_.give(file.user, count);
    problem(policy.is_shared ? fmt::format("{}: more than {} probes, or {} of one user", title,
                                           policy.probes_max, probe_shares_.user_max())
                             : fmt::format("{}: more than {} probes", title, policy.probes_max),
            counters_.failed);
    return std::nullopt;
  }
  for (std::size_t i = 0; i < count; ++i)
    file.numbers.push_back(*first + static_cast<std::uint32_t>(i));
  probe_count_ += count;
  return first;
}

Attacher::LinkSet& Attacher::links_of(File& file, std::size_t entry) const {
  std::optional<std::size_t> key;
  if (options_.policy.links_by_entry || entries_.at(entry).is_switched) key = entry;
  const auto found = std::find_if(file.links.begin(), file.links.end(),
                                  [&](const LinkSet& links) { return links.entry == key; });
  return found != file.links.end() ? *found : file.links.emplace_back(LinkSet{.entry = key});
}

void Attacher::add_function(const ResolvedProbe& probe, const FileIdentity& identity, File& file) {
  const FunctionProbes& source = *probe.source;
  if (options_.after != nullptr) {
    const auto other = options_.after->files_.find(identity);
    if (other != options_.after->files_.end() && other->second.places.contains(probe.file_offset))
      return;
  }
  if (probe.by_exits && (options_.policy.sinks & WIRE_SINK_TOTALS) != 0)
    return problem(fmt::format("{}: its calls cannot be timed in {}: {}", probe.title,
                               file.shown_path, probe.site.reason),
                   counters_.missing);
  file.places.insert(probe.file_offset);
  const std::size_t entry = entry_of_.at(&source);
  std::vector<ProbeInfo> infos{info_of(probe, entry)};
  for (std::size_t i = 0; i < source.scopes.size(); ++i) {
    if (i > 0) infos.push_back(infos.front());
    infos[i].metric = source.scopes[i].metric;
  }
  const auto number = take_numbers(std::move(infos), probe.title, file);
  if (!number) return;
  if (probe.is_slow) entries_[entry].is_slow = true;
  const bool has_exits = !probe.exits.empty();
  const bool is_alone = capture::is_alone(source, options_.policy.sinks);
  const bool at_end = source.at_end && (has_exits || engine_.mode() == bpf::AttachMode::kSession);
  wire_probe description = describe(source, *probe.captures, options_.policy.sinks, at_end);
  // Only a session can leave the end of a call alone that is not of the sample.
  const bool is_begin_only =
      source.is_sampled && !probe.by_exits && engine_.mode() != bpf::AttachMode::kSession;
  if (is_begin_only) {
    description.flags =
        static_cast<std::uint16_t>((description.flags & ~WIRE_PROBE_SAMPLED) | WIRE_PROBE_INSTANT);
    description.at_end = 0;
  }
  if (probe.by_exits) {
    description.flags |= WIRE_PROBE_INSTANT;
    description.at_begin = 0;  // arguments are gone where it ends
  }
  if (const auto described = engine_.describe_probe(*number, description); !described)
    problem(described.error().what, counters_.failed);
  LinkSet& links = links_of(file, entry);
  if ((is_alone || is_begin_only) && !probe.by_exits) {
    links.entry_only.push_back({probe.file_offset, 0, *number | WIRE_COOKIE_INSTANT});
  } else if (!has_exits) {
    links.with_return.push_back({probe.file_offset, 0, *number});
  } else if (probe.by_exits || reads_results_only(probe)) {
    for (const ResolvedExit& exit : probe.exits)
      links.entry_only.push_back(
          {exit.file_offset, 0, exit.exit.cookie(*number | WIRE_COOKIE_INSTANT)});
  } else {
    probe.add_specs(*number, 0, links.entry_only);
  }
  if (!options_.policy.keeps_files) return;
  attachments_.push_back({file.shown_path, probe.title, probe.symbol,
                          packs_[entries_[entry].pack].name, probe.site,
                          is_alone && !probe.by_exits ? std::string() : how_it_ends(probe)});
}

void Attacher::add_usdt(const ResolvedUsdt& probe, File& file) {
  const UsdtProbes& source = *probe.source;
  const std::size_t entry = entry_of_.at(&source);
  const bool is_pair = probe.end_offset != 0;
  ProbeInfo info{.title = source.title,
                 .category = source.category,
                 .kind = is_pair ? ProbeKind::kCall : ProbeKind::kInstant,
                 .metric = source.metric,
                 .entry = entry};
  const auto number = take_numbers({std::move(info)}, entries_[entry].name, file);
  if (!number) return;
  wire_probe description{};
  description.sinks = options_.policy.sinks;
  if (!is_pair) description.flags = WIRE_PROBE_INSTANT;
  if (const auto described = engine_.describe_probe(*number, description); !described)
    problem(described.error().what, counters_.failed);
  LinkSet& links = links_of(file, entry);
  links.entry_only.push_back({probe.begin_offset, probe.begin_semaphore,
                              *number | (is_pair ? WIRE_COOKIE_PAIR_BEGIN : WIRE_COOKIE_INSTANT)});
  if (is_pair)
    links.entry_only.push_back(
        {probe.end_offset, probe.end_semaphore, *number | WIRE_COOKIE_PAIR_END});
}

void Attacher::add_pack(std::size_t pack, sys::ElfFile& elf, const FileIdentity& identity,
                        File& file) {
  const Resolution found = resolve_pack(packs_[pack], elf, library_name(file.shown_path));
  if (options_.policy.tells_missing) {
    for (const std::string& missing : found.missing)
      problem(missing, counters_.missing);
  }
  for (const std::string& refused : found.refused)
    problem(refused, counters_.missing);
  for (const ResolvedProbe& probe : found.probes)
    add_function(probe, identity, file);
  for (const ResolvedUsdt& probe : found.usdt)
    add_usdt(probe, file);
}

void Attacher::attach(const File& file, LinkSet& links) {
  const bool is_on = !links.entry || entries_[*links.entry].enabled;
  if (!enabled_ || !is_on || !links.handles.empty()) return;
  // A scope that was open when its probe was taken off must not hide those that come after. Scopes
  // alone have this part of the cookie to themselves.
  constexpr std::uint64_t kTimes = std::uint64_t{0xffff} << WIRE_COOKIE_TIMES_SHIFT;
  ++links.times;
  for (bpf::UprobeSpec& spec : links.entry_only) {
    const ProbeInfo& probe = probes_[static_cast<std::uint32_t>(spec.cookie)];
    if (probe.kind != ProbeKind::kScope) continue;
    spec.cookie = (spec.cookie & ~kTimes) | (links.times << WIRE_COOKIE_TIMES_SHIFT & kTimes);
  }
  for (const auto& [specs, with_return] :
       {std::pair(&links.with_return, true), std::pair(&links.entry_only, false)}) {
    const auto handle = engine_.attach_uprobes(file.path, *specs, with_return);
    if (!handle) {
      problem(handle.error().what, counters_.failed);
    } else if (*handle != 0) {
      links.handles.push_back(*handle);
    }
  }
}

void Attacher::detach(LinkSet& links) {
  for (const bpf::Engine::Handle handle : links.handles)
    engine_.detach(handle);
  links.handles.clear();
}

bool Attacher::is_wanted(const std::string& library) {
  if (const auto known = wanted_.find(library); known != wanted_.end()) return known->second;
  if (wanted_.size() >= kNamesMax) wanted_.clear();
  const bool is_wanted = std::any_of(entries_.begin(), entries_.end(), [&](const Entry& entry) {
    return any_glob_match(entry.libraries, library);
  });
  wanted_.emplace(library, is_wanted);
  return is_wanted;
}

Result<Attacher::FileIdentity> Attacher::identify(const sys::Fd& fd, const sys::Mapping& mapping,
                                                  MappedKey& key) const {
  struct stat info {};
  struct statfs system {};
  if (::fstat(fd.raw(), &info) != 0 || ::fstatfs(fd.raw(), &system) != 0)
    return errno_error(errno, "stat", mapping.path);
  // Another file may lie under the name meanwhile: it is not to stand for the one that others map.
  if (info.st_ino == mapping.inode) std::get<3>(key) = 0;
  if (system.f_type != kOverlayMagic)
    return FileIdentity{.device = info.st_dev, .inode = info.st_ino};
  // Its inode numbers are those of the layer below, with the number of the layer in front.
  const auto nanoseconds = [](const timespec& time) {
    return std::int64_t{time.tv_sec} * 1'000'000'000 + time.tv_nsec;
  };
  return FileIdentity{.device = 0,
                      .inode = info.st_ino & kInodeOfLayer,
                      .bytes = info.st_size,
                      .modified_ns = nanoseconds(info.st_mtim),
                      .changed_ns = nanoseconds(info.st_ctim)};
}

void Attacher::add_mapped(std::int32_t pid, const sys::Mapping& mapping) {
  MappedKey key{mapping.device_major, mapping.device_minor, mapping.inode, pid};
  const auto refuse = [&](const Error& error) {
    problem(fmt::format("attach to {}: {}", mapping.path, error.what), counters_.failed);
    // A failure that may pass (the file is gone already, too many files are open) is tried again.
    if (error.code == Code::kCorrupt || error.code == Code::kUnsupported)
      mapped_[key].users.insert(pid);
    else
      refused_.insert(pid);
  };
  if (mapped_.size() >= kMappedMax)
    return problem(fmt::format("more than {} mappings of libraries", kMappedMax), counters_.failed);
  auto fd = opener_.open(pid, mapping);
  if (!fd) {
    std::get<3>(key) = 0;
    return refuse(fd.error());
  }
  const auto identity = identify(*fd, mapping, key);
  if (!identity) return refuse(identity.error());
  if (!files_.contains(*identity)) {
    const std::size_t before = probe_count_;
    if (const auto added = add_file(*identity, std::move(*fd), mapping, procfs_.owner(pid).user);
        !added)
      return refuse(added.error());
    if (log_ && probe_count_ != before)
      log_(fmt::format("{} {} probes {} {} of {}", enabled_ ? "attached" : "found",
                       probe_count_ - before, enabled_ ? "to" : "in", mapping.path, pid));
  }
  ++files_.at(*identity).mapped_count;
  mapped_[key] = {*identity, {pid}};
}

Result<void> Attacher::add_file(const FileIdentity& identity, sys::Fd fd,
                                const sys::Mapping& mapping, std::uint32_t user) {
  const AttachPolicy& policy = options_.policy;
  File file;
  file.user = user;
  file.fd = std::move(fd);
  file.path = fmt::format("/proc/self/fd/{}", file.fd.raw());
  file.shown_path = mapping.path;
  TRY(const auto elf, sys::ElfFile::open(file.path, policy.elf_limits));
  if (policy.is_shared && (files_.size() >= kFilesMax || !file_shares_.take(user))) {
    return Error{Code::kLimit, fmt::format("more than {} library files, or {} of one user",
                                           kFilesMax, file_shares_.user_max())};
  }
  const std::string library = library_name(mapping.path);
  for (std::size_t pack = 0; pack < packs_.size(); ++pack) {
    const bool is_wanted = std::any_of(entries_.begin(), entries_.end(), [&](const Entry& entry) {
      return entry.pack == pack && any_glob_match(entry.libraries, library);
    });
    if (is_wanted) add_pack(pack, *elf, identity, file);
  }
  if (elf->is_cut())
    problem(fmt::format("attach to {}: more than {} symbols; the rest was skipped", library,
                        policy.elf_limits.symbols),
            counters_.failed);
  if (file.links.empty()) file.fd = sys::Fd();
  File& kept = files_.emplace(identity, std::move(file)).first->second;
  for (LinkSet& links : kept.links)
    attach(kept, links);
  return {};
}

Result<void> Attacher::preload(const std::string& path) {
  sys::Mapping mapping;
  mapping.path = path;
  if (!is_wanted(library_name(path))) return {};
  TRY(sys::Fd fd, sys::Fd::open_regular(path));
  MappedKey ignored;
  TRY(const FileIdentity identity, identify(fd, mapping, ignored));
  if (files_.contains(identity)) return {};
  return add_file(identity, std::move(fd), mapping, 0);
}

void Attacher::set_mappings(std::int32_t pid, const std::vector<sys::Mapping>& mappings) {
  std::set<MappedKey> here;
  refused_.erase(pid);
  for (const sys::Mapping& mapping : mappings) {
    if (!mapping.executable || mapping.inode == 0 || mapping.path.empty() || mapping.path[0] != '/')
      continue;
    const MappedKey key(mapping.device_major, mapping.device_minor, mapping.inode, 0);
    if (!here.insert(key).second || !is_wanted(library_name(mapping.path))) continue;
    const MappedKey own(mapping.device_major, mapping.device_minor, mapping.inode, pid);
    auto known = mapped_.find(key);
    if (known == mapped_.end()) known = mapped_.find(own);
    if (known == mapped_.end()) {
      add_mapped(pid, mapping);
    } else if (!options_.policy.keeps_files) {
      known->second.users.insert(pid);
    }
  }
  if (options_.policy.keeps_files) return;
  for (auto mapped = mapped_.begin(); mapped != mapped_.end();) {
    const auto next = mapped++;
    MappedKey key = next->first;
    std::get<3>(key) = 0;
    if (!here.contains(key)) drop_user(next, pid);
  }
}

void Attacher::drop_user(std::map<MappedKey, Mapped>::iterator mapped, std::int32_t pid) {
  if (mapped->second.users.erase(pid) == 0 || !mapped->second.users.empty()) return;
  const auto identity = mapped->second.file;
  mapped_.erase(mapped);
  if (!identity) return;
  if (--files_.at(*identity).mapped_count == 0) drop_file(*identity);
}

void Attacher::drop_file(const FileIdentity& identity) {
  File& file = files_.at(identity);
  for (LinkSet& links : file.links)
    detach(links);
  for (const std::uint32_t number : file.numbers) {
    probes_[number] = ProbeInfo();
    probes_[number].is_free = true;
  }
  probe_count_ -= file.numbers.size();
  if (options_.policy.is_shared) {
    probe_shares_.give(file.user, file.numbers.size());
    file_shares_.give(file.user);
  }
  files_.erase(identity);
}

void Attacher::forget_process(std::int32_t pid) {
  refused_.erase(pid);
  if (options_.policy.keeps_files) return;
  for (auto mapped = mapped_.begin(); mapped != mapped_.end();) {
    const auto next = mapped++;
    drop_user(next, pid);
  }
}

void Attacher::retry() {
  for (auto& [identity, file] : files_) {
    for (LinkSet& links : file.links)
      attach(file, links);
  }
}

void Attacher::set_enabled(bool enabled) {
  if (enabled_ == enabled) return;
  enabled_ = enabled;
  for (auto& [identity, file] : files_) {
    for (LinkSet& links : file.links)
      detach(links);
  }
  retry();
}

void Attacher::set_entry_enabled(std::size_t entry, bool enabled) {
  if (entry >= entries_.size()) return;
  CHECK(options_.policy.links_by_entry || entries_[entry].is_switched);
  if (entries_[entry].enabled == enabled) return;
  entries_[entry].enabled = enabled;
  for (auto& [identity, file] : files_) {
    for (LinkSet& links : file.links) {
      if (links.entry != entry) continue;
      detach(links);
      attach(file, links);
    }
  }
}

double Attacher::call_seconds(std::size_t entry) const {
  // Measured in a VM with 2 cores; on bare metal the second is nearer to the first.
  constexpr double kEmulated = 1.2e-6, kSingleStepped = 11e-6;
  return entries_.at(entry).is_slow ? kSingleStepped : kEmulated;
}

bool Attacher::is_probe_on(std::uint32_t probe) const {
  if (probe >= probes_.size()) return true;  // of the host: always
  return enabled_ && entries_.at(probes_[probe].entry).enabled;
}

}  // namespace kansoku::capture
