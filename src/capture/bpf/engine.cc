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

#include "capture/bpf/internal/attach.h"
#include "capture/bpf/internal/load_log.h"
#include "capture/bpf/internal/maps.h"
#include "capture/bpf/probes.skel.h"
#include "sys/fd.h"
#include "sys/procfs.h"

namespace kansoku::capture::bpf {
namespace {

struct SkeletonDeleter {
  void operator()(probes_bpf* skeleton) const { probes_bpf__destroy(skeleton); }
};
using Skeleton = std::unique_ptr<probes_bpf, SkeletonDeleter>;

struct RingDeleter {
  void operator()(ring_buffer* ring) const { ring_buffer__free(ring); }
};

constexpr std::uint32_t kProbesMax = 8192;

UprobePrograms programs_of(const probes_bpf& skeleton) {
  return {skeleton.progs.on_session, skeleton.progs.on_entry, skeleton.progs.on_return};
}

Result<Skeleton> load(AttachMode mode, std::uint32_t ring_bytes) {
  LoadLog log;
  Skeleton skeleton(probes_bpf__open());
  if (!skeleton) return errno_error(errno, "open", "BPF object");
  bpf_map__set_max_entries(skeleton->maps.ring, ring_bytes);
  prepare_uprobes(programs_of(*skeleton), mode);
  if (const int failed = probes_bpf__load(skeleton.get()); failed != 0)
    return log.error(-failed, fmt::format("BPF programs ({})", attach_mode_name(mode)));
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

struct Engine::Impl {
  Skeleton skeleton;
  AttachMode mode{AttachMode::kSession};
  std::vector<std::string> refusals;
  std::unique_ptr<ring_buffer, RingDeleter> ring;
  std::array<Links, 2> groups;
  std::size_t current{0};
  const std::function<void(std::span<const std::byte>)>* on_record{nullptr};  // during drain() only

  Result<void> keep(bpf_link* raw, std::string_view what) {
    Link link(raw);
    if (!link) return errno_error(errno, "attach", what);
    groups[current].single.push_back(std::move(link));
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
  auto impl = std::make_unique<Impl>();
  const auto try_load = [&](AttachMode mode) -> Result<UprobePrograms> {
    impl->skeleton.reset();
    TRY(impl->skeleton, load(mode, options.ring_bytes));
    return programs_of(*impl->skeleton);
  };
  TRY(impl->mode, find_mode(options.forced, try_load, impl->refusals));
  impl->ring.reset(ring_buffer__new(bpf_map__fd(impl->skeleton->maps.ring), &Impl::on_ring,
                                    impl.get(), nullptr));
  if (!impl->ring) return errno_error(errno, "map", "BPF ring");
  return std::unique_ptr<Engine>(new Engine(std::move(impl)));
}

AttachMode Engine::mode() const {
  return impl_->mode;
}
const std::vector<std::string>& Engine::refusals() const {
  return impl_->refusals;
}
std::size_t Engine::link_count() const {
  std::size_t count = 0;
  for (const Links& group : impl_->groups)
    count += group.size();
  return count;
}

Result<void> Engine::describe_probe(std::uint32_t index, const wire_probe& description) {
  return bpf::describe_probe(impl_->skeleton->maps.probes, index, kProbesMax,
                             std::as_bytes(std::span(&description, 1)));
}
Result<void> Engine::observe_process(std::int32_t pid) {
  return bpf::observe_process(impl_->skeleton->maps.processes, pid);
}
void Engine::forget_process(std::int32_t pid) {
  bpf::forget_process(impl_->skeleton->maps.processes, pid);
}

Result<void> Engine::attach_uprobes(const std::string& path, std::span<const UprobeSpec> specs,
                                    bool with_return) {
  return bpf::attach_uprobes(programs_of(*impl_->skeleton), impl_->mode, path, specs, with_return,
                             impl_->groups[impl_->current]);
}

Result<void> Engine::attach_syscall(const std::string& name, std::uint64_t cookie) {
  auto& progs = impl_->skeleton->progs;
  const std::string enter = "sys_enter_" + name;
  // The program that reads three arguments is refused where the call has fewer.
  if (!impl_->attach_tp(progs.on_syscall_enter_3, "syscalls", enter, cookie)) {
    TRY_VOID(impl_->attach_tp(progs.on_syscall_enter_1, "syscalls", enter, cookie));
  }
  auto at_exit = impl_->attach_tp(progs.on_syscall_exit, "syscalls", "sys_exit_" + name, cookie);
  if (!at_exit) impl_->groups[impl_->current].single.pop_back();
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
    impl_->groups[impl_->current].single.push_back(std::move(link));
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
  impl_->groups[group].clear();
}

std::size_t Engine::drain(const std::function<void(std::span<const std::byte>)>& on_record) {
  impl_->on_record = &on_record;
  const int count = ring_buffer__consume(impl_->ring.get());
  impl_->on_record = nullptr;
  return count > 0 ? static_cast<std::size_t>(count) : 0;
}

Engine::Losses Engine::losses() const {
  std::array<std::uint64_t, 3> totals{};
  read_losses(impl_->skeleton->maps.losses, totals);
  return {totals[0], totals[1], totals[2]};
}

}  // namespace kansoku::capture::bpf
