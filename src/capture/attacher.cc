// SPDX-License-Identifier: Apache-2.0
#include "capture/attacher.h"

#include <fmt/format.h>

#include <algorithm>

#include "capture/internal/mapped_file.h"
#include "sys/elf.h"

namespace kansoku::capture {
namespace {

constexpr std::size_t kProbesMax = 8192;  // entries of the BPF map
constexpr std::size_t kProblemsMax = 1000;

bool wants_library(const Pack& pack, std::string_view library) {
  return std::any_of(pack.functions.begin(), pack.functions.end(),
                     [&](const FunctionProbes& p) { return any_glob_match(p.library, library); }) ||
         std::any_of(pack.usdt.begin(), pack.usdt.end(),
                     [&](const UsdtProbes& p) { return any_glob_match(p.library, library); });
}

// A note whose begin tells nothing.
bool reads_results_only(const ResolvedProbe& probe) {
  return probe.source->kind == ProbeKind::kAnnotate &&
         std::all_of(probe.captures->begin(), probe.captures->end(),
                     [](const CaptureDef& c) { return c.how.source == WIRE_RETURN; });
}

std::string how_it_ends(const ResolvedProbe& probe) {
  if (probe.exits.empty()) return "return probe";
  const auto slow =
      std::count_if(probe.exits.begin(), probe.exits.end(),
                    [](const ResolvedExit& exit) { return !bpf::is_cheap(exit.exit.site_class); });
  std::string out =
      fmt::format("{} exit{}", probe.exits.size(), probe.exits.size() == 1 ? "" : "s");
  if (slow != 0) out += fmt::format(", {} slow", slow);
  return out;
}

}  // namespace

Attacher::Attacher(bpf::Engine& engine, const sys::Procfs& procfs, const std::vector<Pack>& packs,
                   ProbeTable& probes, std::function<void(const std::string&)> log,
                   const AttacherOptions& options)
    : engine_(engine),
      procfs_(procfs),
      packs_(packs),
      probes_(probes),
      log_(std::move(log)),
      options_(options),
      is_attached_(options.starts_attached) {}

void Attacher::problem(std::string line, std::uint64_t& counter) {
  ++counter;
  if (problems_.size() >= kProblemsMax) return;
  if (log_) log_(line);
  problems_.push_back(std::move(line));
}

std::uint32_t Attacher::add_probe(ProbeInfo info) {
  const auto index = static_cast<std::uint32_t>(probes_.size());
  if (!info.captures.empty()) {
    wire_probe description{};
    for (const CaptureDef& capture : info.captures) {
      description.captures[description.capture_count++] = capture.how;
    }
    if (const auto described = engine_.describe_probe(index, description); !described) {
      problem(described.error().what, counters_.failed);
    }
  }
  info.group = options_.group;
  probes_.push_back(std::move(info));
  return index;
}

std::uint64_t Attacher::cookie_of(std::uint32_t index) const {
  const ProbeInfo& info = probes_[index];
  std::uint64_t cookie = index;
  if (info.kind == ProbeKind::kInstant || info.kind == ProbeKind::kScope)
    cookie |= WIRE_COOKIE_INSTANT;
  if (info.is_host) cookie |= WIRE_COOKIE_HOST;
  if (!info.captures.empty()) cookie |= WIRE_COOKIE_CAPTURES;
  return cookie;
}

void Attacher::attach_host() {
  for (const Pack& pack : packs_) {
    for (const SyscallProbes& syscalls : pack.syscalls) {
      for (const std::string& name : syscalls.names) {
        ProbeInfo info{.title = name, .category = syscalls.category, .is_syscall = true};
        host_cookies_.emplace("syscall " + name, cookie_of(add_probe(std::move(info))));
      }
    }
    for (const TracepointProbes& tracepoints : pack.tracepoints) {
      for (const std::string& name : tracepoints.names) {
        ProbeInfo info{.title = name.substr(name.find(':') + 1),
                       .category = tracepoints.category,
                       .kind = ProbeKind::kInstant,
                       .is_host = tracepoints.host};
        host_cookies_.emplace(name, cookie_of(add_probe(std::move(info))));
      }
    }
  }
  if (is_attached_) reattach();
}

void Attacher::attach() {
  is_attached_ = true;
  reattach();
}

void Attacher::detach() {
  is_attached_ = false;
  engine_.detach_group(options_.group);
}

void Attacher::reattach() {
  engine_.use_group(options_.group);
  if (options_.follows_lifecycle) {
    if (const auto attached = engine_.attach_lifecycle(); !attached) {
      problem(attached.error().what + ": forks are followed by polling", counters_.failed);
    }
  }
  for (const auto& [name, cookie] : host_cookies_) {
    const auto colon = name.find(':');
    const auto attached =
        colon == std::string::npos
            ? engine_.attach_syscall(name.substr(name.find(' ') + 1), cookie)
            : engine_.attach_tracepoint(name.substr(0, colon), name.substr(colon + 1), cookie);
    if (!attached) problem(attached.error().what, counters_.missing);
  }
  for (const Pack& pack : packs_) {
    if (pack.scheduler) {
      if (const auto attached = engine_.attach_scheduler(); !attached) {
        counters_.scheduler_failed = true;
        problem(attached.error().what, counters_.failed);
      }
    }
    if (pack.cpu_hz != 0) {
      if (const auto attached = engine_.attach_cpu_sampler(pack.cpu_hz); !attached) {
        problem(attached.error().what, counters_.failed);
      }
    }
  }
  for (const FileProbes& file : files_)
    attach_now(file);
}

void Attacher::attach_libraries(std::int32_t pid, const std::vector<sys::Mapping>& mappings) {
  for (const sys::Mapping& mapping : mappings) {
    if (!mapping.executable || mapping.inode == 0 || mapping.path.empty() || mapping.path[0] != '/')
      continue;
    const auto key = std::make_tuple(mapping.device_major, mapping.device_minor, mapping.inode);
    if (!seen_files_.contains(key) && attach_file(pid, mapping, key)) seen_files_.insert(key);
  }
}

bool Attacher::attach_file(std::int32_t pid, const sys::Mapping& mapping, const FileKey& key) {
  const std::string library = library_name(mapping.path);
  const bool is_wanted = std::any_of(
      packs_.begin(), packs_.end(), [&](const Pack& pack) { return wants_library(pack, library); });
  if (!is_wanted) return true;
  FileProbes file_probes;
  file_probes.key = key;
  const auto open = [&]() -> Result<std::unique_ptr<sys::ElfFile>> {
    TRY(file_probes.fd, open_mapped(procfs_, pid, mapping));
    file_probes.path = fmt::format("/proc/self/fd/{}", file_probes.fd.raw());
    return sys::ElfFile::open(file_probes.path);
  };
  auto file = open();
  if (!file) {
    if (failed_files_.insert(key).second)
      problem(fmt::format("attach to {}: {}", mapping.path, file.error().what), counters_.failed);
    const Code code = file.error().code;
    return code == Code::kCorrupt || code == Code::kUnsupported ||
           (code == Code::kLimit &&
            file_probes.fd.is_open());  // the file's, not that of descriptors
  }
  const std::size_t before = attachments_.size();
  for (const Pack& pack : packs_) {
    if (wants_library(pack, library)) add_pack(pack, **file, mapping.path, file_probes);
  }
  if (!file_probes.with_return.empty() || !file_probes.entry_only.empty()) {
    files_.push_back(std::move(file_probes));
    attach_now(files_.back());
  }
  if (log_) {
    log_(fmt::format("{} {} probes {} {}", is_attached_ ? "attached" : "found",
                     attachments_.size() - before, is_attached_ ? "to" : "in", mapping.path));
  }
  return true;
}

void Attacher::add_pack(const Pack& pack, sys::ElfFile& file, const std::string& shown_path,
                        FileProbes& out) {
  const Resolution found = resolve_pack(pack, file, library_name(shown_path));
  for (const std::string& missing : found.missing)
    problem(missing, counters_.missing);
  for (const std::string& refused : found.refused)
    problem(refused, counters_.missing);
  for (const ResolvedProbe& probe : found.probes)
    add_function(pack, probe, shown_path, out);
  for (const ResolvedUsdt& probe : found.usdt)
    add_usdt(probe, out);
}

void Attacher::add_function(const Pack& pack, const ResolvedProbe& probe,
                            const std::string& shown_path, FileProbes& out) {
  const std::pair place(out.key, probe.file_offset);
  if (options_.after != nullptr && options_.after->places_.contains(place)) return;
  places_.insert(place);
  if (probes_.size() >= kProbesMax) {
    problem(fmt::format("{}: more than {} probes", probe.title, kProbesMax), counters_.failed);
    return;
  }
  const FunctionProbes& source = *probe.source;
  ProbeInfo info{.title = probe.title,
                 .category = source.category,
                 .kind = source.kind,
                 .ordinal_by = source.ordinal_by,
                 .captures = *probe.captures};
  const std::uint32_t index = add_probe(std::move(info));
  std::uint64_t cookie = cookie_of(index);
  const bool with_return = (cookie & WIRE_COOKIE_INSTANT) == 0;
  const bool has_exits = !probe.exits.empty();
  if (source.at_end && (has_exits || engine_.mode() == bpf::AttachMode::kSession))
    cookie |= WIRE_COOKIE_AT_END;
  if (with_return && has_exits) {
    if (reads_results_only(probe)) {
      for (const ResolvedExit& exit : probe.exits)
        out.entry_only.push_back(
            {exit.file_offset, 0, exit.exit.cookie(cookie | WIRE_COOKIE_INSTANT)});
    } else {
      probe.add_specs(cookie, out.entry_only);
    }
  } else {
    (with_return ? out.with_return : out.entry_only).push_back({probe.file_offset, 0, cookie});
  }
  attachments_.push_back({shown_path, probe.title, probe.symbol, pack.name, probe.site,
                          with_return ? how_it_ends(probe) : std::string()});
}

void Attacher::add_usdt(const ResolvedUsdt& probe, FileProbes& out) {
  const bool is_pair = probe.end_offset != 0;
  ProbeInfo begin{.title = probe.source->title,
                  .category = probe.source->category,
                  .kind = is_pair ? ProbeKind::kCall : ProbeKind::kInstant};
  const std::uint32_t begin_index = add_probe(std::move(begin));
  out.entry_only.push_back(
      {probe.begin_offset, probe.begin_semaphore, begin_index | WIRE_COOKIE_INSTANT});
  if (!is_pair) return;
  ProbeInfo end{.title = probe.source->title,
                .category = probe.source->category,
                .kind = ProbeKind::kInstant,
                .ends_usdt = true,
                .begins = begin_index};
  const std::uint32_t end_index = add_probe(std::move(end));
  out.entry_only.push_back(
      {probe.end_offset, probe.end_semaphore, end_index | WIRE_COOKIE_INSTANT});
}

void Attacher::attach_now(const FileProbes& file) {
  if (!is_attached_) return;
  engine_.use_group(options_.group);
  if (const auto attached = engine_.attach_uprobes(file.path, file.with_return, true); !attached) {
    problem(attached.error().what, counters_.failed);
  }
  if (const auto attached = engine_.attach_uprobes(file.path, file.entry_only, false); !attached) {
    problem(attached.error().what, counters_.failed);
  }
}

}  // namespace kansoku::capture
