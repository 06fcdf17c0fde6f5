// SPDX-License-Identifier: Apache-2.0
#include "capture/bpf/internal/attach.h"

#include <fmt/format.h>
#include <unistd.h>

#include <array>
#include <cerrno>

#include "capture/bpf/internal/uprobe_link.h"
#include "sys/procfs.h"

namespace kansoku::capture::bpf {
namespace {

constexpr std::array kModes{AttachMode::kSession, AttachMode::kMulti, AttachMode::kPerf};

// A function of our own to try an attach mode on; never called.
[[gnu::noinline, gnu::used]] int selftest_target(int value) {
  return value + 1;
}

Result<Link> attach_one_perf(bpf_program* program, const std::string& path, const UprobeSpec& spec,
                             bool at_return) {
  bpf_uprobe_opts options{};
  options.sz = sizeof(options);
  options.ref_ctr_offset = spec.semaphore_offset;
  options.bpf_cookie = spec.cookie;
  options.retprobe = at_return;
  Link link(bpf_program__attach_uprobe_opts(program, -1, path.c_str(), spec.file_offset, &options));
  if (!link) return errno_error(errno, "attach uprobe to", path);
  return link;
}

Result<void> attach_perf(const UprobePrograms& programs, const std::string& path,
                         std::span<const UprobeSpec> specs, bool with_return, Links& out) {
  std::vector<Link> fresh;
  for (const UprobeSpec& spec : specs) {
    if (with_return) {
      TRY(auto link, attach_one_perf(programs.at_return, path, spec, true));
      fresh.push_back(std::move(link));
    }
    TRY(auto link, attach_one_perf(programs.entry, path, spec, false));
    fresh.push_back(std::move(link));
  }
  for (Link& link : fresh)
    out.single.push_back(std::move(link));
  return {};
}

Result<void> attach_session(const UprobePrograms& programs, const std::string& path,
                            std::span<const UprobeSpec> specs, Links& out) {
  TRY(auto link, create_multi_link(bpf_program__fd(programs.session), kAttachUprobeSession, path,
                                   specs, false));
  out.multi.push_back(std::move(link));
  return {};
}

Result<void> attach_multi(const UprobePrograms& programs, const std::string& path,
                          std::span<const UprobeSpec> specs, bool with_return, Links& out) {
  std::optional<sys::Fd> at_return;
  if (with_return) {  // the return first: an entry without its end is worse than the reverse
    TRY(auto link, create_multi_link(bpf_program__fd(programs.at_return), kAttachUprobeMulti, path,
                                     specs, true));
    at_return = std::move(link);
  }
  TRY(auto at_entry,
      create_multi_link(bpf_program__fd(programs.entry), kAttachUprobeMulti, path, specs, false));
  if (at_return) out.multi.push_back(std::move(*at_return));
  out.multi.push_back(std::move(at_entry));
  return {};
}

}  // namespace

Result<std::uint64_t> own_file_offset(std::uint64_t address) {
  TRY(const auto mappings, sys::Procfs().maps(::getpid()));
  for (const sys::Mapping& mapping : mappings) {
    if (address >= mapping.begin && address < mapping.end)
      return address - mapping.begin + mapping.file_offset;
  }
  return Error{Code::kInternal, "find own code in /proc/self/maps: not found"};
}

void prepare_uprobes(const UprobePrograms& programs, AttachMode mode) {
  const bool session = mode == AttachMode::kSession;
  bpf_program__set_autoload(programs.session, session);
  bpf_program__set_autoload(programs.entry, !session);
  bpf_program__set_autoload(programs.at_return, !session);
  if (session) {
    bpf_program__set_expected_attach_type(programs.session,
                                          static_cast<bpf_attach_type>(kAttachUprobeSession));
  } else if (mode == AttachMode::kMulti) {
    const auto multi_type = static_cast<bpf_attach_type>(kAttachUprobeMulti);
    bpf_program__set_expected_attach_type(programs.entry, multi_type);
    bpf_program__set_expected_attach_type(programs.at_return, multi_type);
  }
}

Result<void> attach_uprobes(const UprobePrograms& programs, AttachMode mode,
                            const std::string& path, std::span<const UprobeSpec> specs,
                            bool with_return, Links& out) {
  if (specs.empty()) return {};
  if (mode == AttachMode::kPerf) return attach_perf(programs, path, specs, with_return, out);
  if (mode == AttachMode::kSession) return attach_session(programs, path, specs, out);
  return attach_multi(programs, path, specs, with_return, out);
}

Result<void> attach_trace(bpf_program* program, std::string_view what, Links& out) {
  Link link(bpf_program__attach(program));
  if (!link) return errno_error(errno, "attach", what);
  out.single.push_back(std::move(link));
  return {};
}

Result<AttachMode> find_mode(std::optional<AttachMode> forced,
                             const std::function<Result<UprobePrograms>(AttachMode)>& load,
                             std::vector<std::string>& refusals) {
  TRY(const auto offset, own_file_offset(reinterpret_cast<std::uint64_t>(&selftest_target)));
  const UprobeSpec selftest{offset, 0, WIRE_COOKIE_INSTANT};
  Error last{Code::kUnsupported, "attach uprobes: no mode works"};
  for (const AttachMode mode : kModes) {
    if (forced && *forced != mode) continue;
    auto programs = load(mode);
    Result<void> tried{};
    Links links;
    if (programs) {
      tried = attach_uprobes(*programs, mode, "/proc/self/exe", {&selftest, 1}, true, links);
    } else {
      tried = std::move(programs).error();
    }
    if (tried) return mode;
    last = tried.error();
    refusals.push_back(fmt::format("{}: {}", attach_mode_name(mode), last.what));
  }
  return last;
}

}  // namespace kansoku::capture::bpf
