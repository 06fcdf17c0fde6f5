// SPDX-License-Identifier: Apache-2.0
#include "capture/bpf/engine.h"

#include <bpf/bpf.h>
#include <bpf/libbpf.h>
#include <fmt/format.h>
#include <linux/perf_event.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <fstream>
#include <numeric>

#include "capture/bpf/internal/uprobe_link.h"
#include "capture/bpf/probes.skel.h"
#include "sys/fd.h"
#include "sys/procfs.h"

namespace kansoku::capture::bpf {
namespace {

struct SkeletonDeleter {
  void operator()(probes_bpf* skeleton) const { probes_bpf__destroy(skeleton); }
};
using Skeleton = std::unique_ptr<probes_bpf, SkeletonDeleter>;

struct LinkDeleter {
  void operator()(bpf_link* link) const { bpf_link__destroy(link); }
};
using Link = std::unique_ptr<bpf_link, LinkDeleter>;

struct RingDeleter {
  void operator()(ring_buffer* ring) const { ring_buffer__free(ring); }
};

constexpr std::array kModes{AttachMode::kSession, AttachMode::kMulti, AttachMode::kPerf};
constexpr std::array<std::string_view, 3> kModeNames{"session", "multi", "perf"};
constexpr std::uint32_t kProbesMax = 8192;

int silent(libbpf_print_level, const char*, va_list) {
  return 0;
}

// A function of our own to try an attach mode on; never called.
[[gnu::noinline, gnu::used]] int selftest_target(int value) {
  return value + 1;
}

Result<UprobeSpec> selftest_spec() {
  TRY(const auto mappings, sys::Procfs().maps(::getpid()));
  const auto address = reinterpret_cast<std::uint64_t>(&selftest_target);
  for (const sys::Mapping& mapping : mappings) {
    if (address >= mapping.begin && address < mapping.end) {
      return UprobeSpec{address - mapping.begin + mapping.file_offset, 0, WIRE_COOKIE_INSTANT};
    }
  }
  return Error{Code::kInternal, "find own code in /proc/self/maps: not there"};
}

Result<Skeleton> load(AttachMode mode, std::uint32_t ring_bytes) {
  libbpf_set_print(silent);
  Skeleton skeleton(probes_bpf__open());
  if (!skeleton) return errno_error(errno, "open", "BPF object");
  bpf_map__set_max_entries(skeleton->maps.ring, ring_bytes);
  const bool session = mode == AttachMode::kSession;
  const auto multi_type = static_cast<bpf_attach_type>(kAttachUprobeMulti);
  bpf_program__set_autoload(skeleton->progs.on_session, session);
  bpf_program__set_autoload(skeleton->progs.on_entry, !session);
  bpf_program__set_autoload(skeleton->progs.on_return, !session);
  if (session) {
    bpf_program__set_expected_attach_type(skeleton->progs.on_session,
                                          static_cast<bpf_attach_type>(kAttachUprobeSession));
  } else if (mode == AttachMode::kMulti) {
    bpf_program__set_expected_attach_type(skeleton->progs.on_entry, multi_type);
    bpf_program__set_expected_attach_type(skeleton->progs.on_return, multi_type);
  }
  if (const int failed = probes_bpf__load(skeleton.get()); failed != 0) {
    Error error =
        errno_error(-failed, "load", fmt::format("BPF programs ({})", attach_mode_name(mode)));
    error.hint = "needs CAP_BPF and CAP_PERFMON; `kansoku doctor` shows what is missing";
    return error;
  }
  return skeleton;
}

std::vector<int> online_cpus() {
  std::vector<int> cpus;
  const long count = ::sysconf(_SC_NPROCESSORS_CONF);
  cpus.resize(count > 0 ? static_cast<std::size_t>(count) : 0);
  std::iota(cpus.begin(), cpus.end(), 0);
  return cpus;
}

}  // namespace

std::string_view attach_mode_name(AttachMode mode) {
  return kModeNames.at(static_cast<std::size_t>(mode));
}

std::optional<AttachMode> attach_mode_from_name(std::string_view name) {
  for (const AttachMode mode : kModes) {
    if (attach_mode_name(mode) == name) return mode;
  }
  return std::nullopt;
}

struct Engine::Impl {
  Skeleton skeleton;
  AttachMode mode{AttachMode::kSession};
  std::vector<std::string> refusals;
  std::unique_ptr<ring_buffer, RingDeleter> ring;
  struct Group {
    std::vector<sys::Fd> multi_links;
    std::vector<Link> links;
  };
  std::array<Group, 2> groups;
  std::size_t current{0};
  const std::function<void(std::span<const std::byte>)>* on_record{nullptr};  // during drain() only

  Result<void> attach_multi(const std::string& path, std::span<const UprobeSpec> specs,
                            bool with_return) {
    if (mode == AttachMode::kSession) {
      TRY(auto link, create_multi_link(bpf_program__fd(skeleton->progs.on_session),
                                       kAttachUprobeSession, path, specs, false));
      groups[current].multi_links.push_back(std::move(link));
      return {};
    }
    std::optional<sys::Fd> at_return;
    if (with_return) {  // the return first: an entry without its end is worse than the reverse
      TRY(auto link, create_multi_link(bpf_program__fd(skeleton->progs.on_return),
                                       kAttachUprobeMulti, path, specs, true));
      at_return = std::move(link);
    }
    TRY(auto at_entry, create_multi_link(bpf_program__fd(skeleton->progs.on_entry),
                                         kAttachUprobeMulti, path, specs, false));
    if (at_return) groups[current].multi_links.push_back(std::move(*at_return));
    groups[current].multi_links.push_back(std::move(at_entry));
    return {};
  }

  Result<Link> attach_one_perf(bpf_program* program, const std::string& path,
                               const UprobeSpec& spec, bool at_return) const {
    bpf_uprobe_opts options{};
    options.sz = sizeof(options);
    options.ref_ctr_offset = spec.semaphore_offset;
    options.bpf_cookie = spec.cookie;
    options.retprobe = at_return;
    Link link(
        bpf_program__attach_uprobe_opts(program, -1, path.c_str(), spec.file_offset, &options));
    if (!link) return errno_error(errno, "attach uprobe to", path);
    return link;
  }

  Result<void> attach_perf(const std::string& path, std::span<const UprobeSpec> specs,
                           bool with_return) {
    std::vector<Link> fresh;
    for (const UprobeSpec& spec : specs) {
      if (with_return) {
        TRY(auto link, attach_one_perf(skeleton->progs.on_return, path, spec, true));
        fresh.push_back(std::move(link));
      }
      TRY(auto link, attach_one_perf(skeleton->progs.on_entry, path, spec, false));
      fresh.push_back(std::move(link));
    }
    for (Link& link : fresh)
      groups[current].links.push_back(std::move(link));
    return {};
  }

  Result<void> keep(bpf_link* raw, std::string_view what) {
    Link link(raw);
    if (!link) return errno_error(errno, "attach", what);
    groups[current].links.push_back(std::move(link));
    return {};
  }

  Result<void> attach_tp(bpf_program* program, const std::string& group, const std::string& name,
                         std::uint64_t cookie) {
    bpf_tracepoint_opts options{};
    options.sz = sizeof(options);
    options.bpf_cookie = cookie;
    return keep(bpf_program__attach_tracepoint_opts(program, group.c_str(), name.c_str(), &options),
                fmt::format("tracepoint {}:{}", group, name));
  }

  static int on_ring(void* context, void* data, std::size_t bytes) {
    auto* impl = static_cast<Impl*>(context);
    (*impl->on_record)({static_cast<const std::byte*>(data), bytes});
    return 0;
  }
};

Engine::Engine(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Engine::~Engine() = default;

Result<std::unique_ptr<Engine>> Engine::create(const Options& options) {
  TRY(const auto selftest, selftest_spec());
  std::vector<std::string> refusals;
  Error last{Code::kUnsupported, "attach uprobes: no mode works"};
  for (const AttachMode mode : kModes) {
    if (options.forced && *options.forced != mode) continue;
    auto impl = std::make_unique<Impl>();
    impl->mode = mode;
    auto skeleton = load(mode, options.ring_bytes);
    Result<void> tried{};
    if (skeleton) {
      impl->skeleton = std::move(skeleton).value();
      const std::span<const UprobeSpec> specs(&selftest, 1);
      tried = mode == AttachMode::kPerf ? impl->attach_perf("/proc/self/exe", specs, true)
                                        : impl->attach_multi("/proc/self/exe", specs, true);
    } else {
      tried = std::move(skeleton).error();
    }
    if (!tried) {
      last = tried.error();
      refusals.push_back(fmt::format("{}: {}", attach_mode_name(mode), last.what));
      continue;
    }
    impl->groups = {};
    impl->refusals = std::move(refusals);
    impl->ring.reset(ring_buffer__new(bpf_map__fd(impl->skeleton->maps.ring), &Impl::on_ring,
                                      impl.get(), nullptr));
    if (!impl->ring) return errno_error(errno, "map", "BPF ring");
    return std::unique_ptr<Engine>(new Engine(std::move(impl)));
  }
  return last;
}

AttachMode Engine::mode() const {
  return impl_->mode;
}
const std::vector<std::string>& Engine::refusals() const {
  return impl_->refusals;
}
std::size_t Engine::link_count() const {
  std::size_t count = 0;
  for (const Impl::Group& group : impl_->groups)
    count += group.links.size() + group.multi_links.size();
  return count;
}

Result<void> Engine::describe_probe(std::uint32_t index, const wire_probe& description) {
  if (index >= kProbesMax) {
    return Error{Code::kLimit,
                 fmt::format("describe probe {}: at most {} probes", index, kProbesMax)};
  }
  const int failed = bpf_map__update_elem(impl_->skeleton->maps.probes, &index, sizeof(index),
                                          &description, sizeof(description), BPF_ANY);
  if (failed != 0) return errno_error(-failed, "describe", "probe");
  return {};
}

Result<void> Engine::observe_process(std::int32_t pid) {
  const auto key = static_cast<std::uint32_t>(pid);
  const std::uint8_t one = 1;
  const int failed = bpf_map__update_elem(impl_->skeleton->maps.processes, &key, sizeof(key), &one,
                                          sizeof(one), BPF_ANY);
  if (failed != 0) return errno_error(-failed, "observe process", std::to_string(pid));
  return {};
}

void Engine::forget_process(std::int32_t pid) {
  const auto key = static_cast<std::uint32_t>(pid);
  bpf_map__delete_elem(impl_->skeleton->maps.processes, &key, sizeof(key), 0);
}

Result<void> Engine::attach_uprobes(const std::string& path, std::span<const UprobeSpec> specs,
                                    bool with_return) {
  if (specs.empty()) return {};
  return impl_->mode == AttachMode::kPerf ? impl_->attach_perf(path, specs, with_return)
                                          : impl_->attach_multi(path, specs, with_return);
}

Result<void> Engine::attach_syscall(const std::string& name, std::uint64_t cookie) {
  auto& progs = impl_->skeleton->progs;
  const std::string enter = "sys_enter_" + name;
  // The program that reads three arguments is refused where the call has fewer.
  if (!impl_->attach_tp(progs.on_syscall_enter_3, "syscalls", enter, cookie)) {
    TRY_VOID(impl_->attach_tp(progs.on_syscall_enter_1, "syscalls", enter, cookie));
  }
  auto at_exit = impl_->attach_tp(progs.on_syscall_exit, "syscalls", "sys_exit_" + name, cookie);
  if (!at_exit) impl_->groups[impl_->current].links.pop_back();
  return at_exit;
}

Result<void> Engine::attach_tracepoint(const std::string& group, const std::string& name,
                                       std::uint64_t cookie) {
  return impl_->attach_tp(impl_->skeleton->progs.on_tracepoint, group, name, cookie);
}

Result<void> Engine::attach_lifecycle() {
  auto& progs = impl_->skeleton->progs;
  TRY_VOID(impl_->keep(bpf_program__attach_trace(progs.on_fork), "tracepoint sched_process_fork"));
  TRY_VOID(impl_->keep(bpf_program__attach_trace(progs.on_exec), "tracepoint sched_process_exec"));
  return impl_->keep(bpf_program__attach_trace(progs.on_exit), "tracepoint sched_process_exit");
}

Result<void> Engine::attach_scheduler() {
  auto& progs = impl_->skeleton->progs;
  TRY_VOID(impl_->keep(bpf_program__attach_trace(progs.on_switch), "tracepoint sched_switch"));
  TRY_VOID(impl_->keep(bpf_program__attach_trace(progs.on_wakeup), "tracepoint sched_wakeup"));
  return impl_->keep(bpf_program__attach_trace(progs.on_wakeup_new), "tracepoint sched_wakeup_new");
}

Result<void> Engine::attach_cpu_sampler(std::uint32_t hz) {
  for (const int cpu : online_cpus()) {
    perf_event_attr attributes{};
    attributes.type = PERF_TYPE_SOFTWARE;
    attributes.size = sizeof(attributes);
    attributes.config = PERF_COUNT_SW_CPU_CLOCK;
    attributes.sample_freq = hz;
    attributes.freq = 1;
    const long fd = ::syscall(SYS_perf_event_open, &attributes, -1, cpu, -1, PERF_FLAG_FD_CLOEXEC);
    if (fd < 0 && errno == ENODEV) continue;  // configured but offline
    if (fd < 0) return errno_error(errno, "open CPU clock of processor", std::to_string(cpu));
    // The link takes the descriptor over, on success only.
    sys::Fd event = sys::Fd::adopt(static_cast<int>(fd));
    Link link(bpf_program__attach_perf_event(impl_->skeleton->progs.on_cpu_sample, event.raw()));
    if (!link) return errno_error(errno, "attach", "CPU sampler");
    impl_->groups[impl_->current].links.push_back(std::move(link));
    static_cast<void>(event.release());
  }
  return {};
}

void Engine::detach_all() {
  for (std::size_t group = 0; group < impl_->groups.size(); ++group)
    detach_group(group);
}

void Engine::use_group(std::size_t group) {
  CHECK(group < impl_->groups.size());
  impl_->current = group;
}

void Engine::detach_group(std::size_t group) {
  CHECK(group < impl_->groups.size());
  impl_->groups[group].multi_links.clear();
  impl_->groups[group].links.clear();
}

std::size_t Engine::drain(const std::function<void(std::span<const std::byte>)>& on_record) {
  impl_->on_record = &on_record;
  const int count = ring_buffer__consume(impl_->ring.get());
  impl_->on_record = nullptr;
  return count > 0 ? static_cast<std::size_t>(count) : 0;
}

Engine::Losses Engine::losses() const {
  const auto cpu_count = static_cast<std::size_t>(libbpf_num_possible_cpus());
  std::vector<std::uint64_t> per_cpu(cpu_count);
  std::array<std::uint64_t, 2> totals{};
  for (std::uint32_t which = 0; which < totals.size(); ++which) {
    if (bpf_map__lookup_elem(impl_->skeleton->maps.losses, &which, sizeof(which), per_cpu.data(),
                             per_cpu.size() * sizeof(std::uint64_t), 0) != 0) {
      continue;
    }
    for (const std::uint64_t count : per_cpu)
      totals.at(which) += count;
  }
  return {totals[0], totals[1]};
}

}  // namespace kansoku::capture::bpf
