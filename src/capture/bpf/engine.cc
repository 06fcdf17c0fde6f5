// SPDX-License-Identifier: Apache-2.0
#include "capture/bpf/engine.h"

#include <bpf/bpf.h>
#include <bpf/libbpf.h>
#include <fmt/format.h>
#include <linux/perf_event.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <map>
#include <numeric>
#include <string>
#include <utility>

#include "capture/bpf/internal/attach.h"
#include "capture/bpf/internal/load_log.h"
#include "capture/bpf/internal/map_reader.h"
#include "capture/bpf/probes.skel.h"
#include "common/check.h"
#include "common/parse.h"
#include "sys/fd.h"

namespace kansoku::capture::bpf {
namespace {

struct SkeletonDeleter {
  void operator()(probes_bpf* skeleton) const { probes_bpf__destroy(skeleton); }
};
using Skeleton = std::unique_ptr<probes_bpf, SkeletonDeleter>;

UprobePrograms programs_of(const probes_bpf& skeleton) {
  return {skeleton.progs.on_session, skeleton.progs.on_entry, skeleton.progs.on_return};
}

// Kernels before 6.17 set 128 entries of such a map aside for each processor; where that is all of
// them, fresh entries are thrown out though there is room.
std::uint32_t lru_entries(std::uint32_t wanted) {
  constexpr std::uint32_t kOfEach = 256;
  const int processors = libbpf_num_possible_cpus();
  return processors > 0 ? std::max(wanted, kOfEach * static_cast<std::uint32_t>(processors))
                        : wanted;
}

void prepare_totals(const probes_bpf& skeleton, bool has_totals) {
  for (bpf_map* map : {skeleton.maps.open_calls, skeleton.maps.requests})
    bpf_map__set_max_entries(map, has_totals ? lru_entries(bpf_map__max_entries(map)) : 1);
  if (has_totals) return;
  bpf_map__set_max_entries(skeleton.maps.totals, 1);
  for (bpf_program* program : {skeleton.progs.on_signal, skeleton.progs.on_block_issue,
                               skeleton.progs.on_block_complete, skeleton.progs.on_thread})
    bpf_program__set_autoload(program, false);
}

// Tells the programs where the kernel counts the interrupts that it serves. Its symbols may leave
// out those of data, or their addresses.
void set_interrupt_counters(probes_bpf& skeleton) {
  std::ifstream symbols("/proc/kallsyms");
  auto& out = *skeleton.rodata;
  for (std::string line; std::getline(symbols, line);) {
    const bool is_hot = line.ends_with(" pcpu_hot");
    const bool is_count = is_hot || line.ends_with(" __preempt_count");
    if (!is_count && !line.ends_with(" __per_cpu_offset")) continue;
    const auto address = parse_int<std::uint64_t>(line.substr(0, line.find(' ')), 16);
    if (!address) continue;
    // From 6.2 to 6.14 it lies behind the pointer to the current task.
    (is_count ? out.preempt_count_at : out.per_cpu_offsets) = *address + (is_hot ? 8 : 0);
  }
}

Result<Skeleton> load(AttachMode mode, const Engine::Options& options) {
  LoadLog log;
  Skeleton skeleton(probes_bpf__open());
  if (!skeleton) return errno_error(errno, "open", "BPF object");
  bpf_map__set_max_entries(skeleton->maps.ring, options.ring_bytes);
  skeleton->rodata->all_execs = options.all_execs ? 1 : 0;
  set_interrupt_counters(*skeleton);
  prepare_uprobes(programs_of(*skeleton), mode);
  prepare_totals(*skeleton, options.has_totals);
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
  std::map<Handle, Links> attached;
  Link threads;  // null: no totals
  Handle next_handle{1};
  MapReader<wire_total_key, wire_total> totals;
  const std::function<void(std::span<const std::byte>)>* on_record{nullptr};  // during drain() only

  Handle keep(Links links) {
    if (links.size() == 0) return 0;
    const Handle handle = next_handle++;
    attached.emplace(handle, std::move(links));
    return handle;
  }

  Result<void> attach_tp(bpf_program* program, const std::string& group, const std::string& name,
                         std::uint64_t cookie, Links& out) {
    bpf_tracepoint_opts options{};
    options.sz = sizeof(options);
    options.bpf_cookie = cookie;
    Link link(bpf_program__attach_tracepoint_opts(program, group.c_str(), name.c_str(), &options));
    if (!link) return errno_error(errno, "attach", fmt::format("tracepoint {}:{}", group, name));
    out.single.push_back(std::move(link));
    return {};
  }

  /// Attaches programs to the targets that their sections name, all or none.
  Result<Handle> attach_all(
      std::initializer_list<std::pair<bpf_program*, std::string_view>> programs) {
    Links links;
    for (const auto& [program, name] : programs)
      TRY_VOID(attach_trace(program, fmt::format("tracepoint {}", name), links));
    return keep(std::move(links));
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
    TRY(impl->skeleton, load(mode, options));
    return programs_of(*impl->skeleton);
  };
  TRY(impl->mode, find_mode(options.forced, try_load, impl->refusals));
  impl->ring.reset(ring_buffer__new(bpf_map__fd(impl->skeleton->maps.ring), &Impl::on_ring,
                                    impl.get(), nullptr));
  if (!impl->ring) return errno_error(errno, "map", "BPF ring");
  if (options.has_totals) {
    impl->threads.reset(bpf_program__attach_iter(impl->skeleton->progs.on_thread, nullptr));
    if (!impl->threads) return errno_error(errno, "attach", "task iterator");
  }
  return std::unique_ptr<Engine>(new Engine(std::move(impl)));
}

AttachMode Engine::mode() const {
  return impl_->mode;
}
const std::vector<std::string>& Engine::refusals() const {
  return impl_->refusals;
}
std::size_t Engine::link_count() const {
  return std::accumulate(
      impl_->attached.begin(), impl_->attached.end(), std::size_t{0},
      [](std::size_t sum, const auto& links) { return sum + links.second.size(); });
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

Result<Engine::Handle> Engine::attach_uprobes(const std::string& path,
                                              std::span<const UprobeSpec> specs, bool with_return) {
  Links links;
  TRY_VOID(bpf::attach_uprobes(programs_of(*impl_->skeleton), impl_->mode, path, specs, with_return,
                               links));
  return impl_->keep(std::move(links));
}

Result<Engine::Handle> Engine::attach_syscall(const std::string& name, std::uint64_t cookie) {
  const auto& progs = impl_->skeleton->progs;
  const std::string enter = "sys_enter_" + name;
  Links links;
  // The program that reads three arguments is refused where the call has fewer.
  if (!impl_->attach_tp(progs.on_syscall_enter_3, "syscalls", enter, cookie, links)) {
    TRY_VOID(impl_->attach_tp(progs.on_syscall_enter_1, "syscalls", enter, cookie, links));
  }
  TRY_VOID(impl_->attach_tp(progs.on_syscall_exit, "syscalls", "sys_exit_" + name, cookie, links));
  return impl_->keep(std::move(links));
}

Result<Engine::Handle> Engine::attach_tracepoint(const std::string& group, const std::string& name,
                                                 std::uint64_t cookie) {
  Links links;
  TRY_VOID(impl_->attach_tp(impl_->skeleton->progs.on_tracepoint, group, name, cookie, links));
  return impl_->keep(std::move(links));
}

Result<Engine::Handle> Engine::attach_lifecycle() {
  const auto& progs = impl_->skeleton->progs;
  return impl_->attach_all({{progs.on_fork, "sched_process_fork"},
                            {progs.on_exec, "sched_process_exec"},
                            {progs.on_exit, "sched_process_exit"}});
}

Result<Engine::Handle> Engine::attach_end_signals() {
  return impl_->attach_all({{impl_->skeleton->progs.on_end_signal, "signal_generate"}});
}

Result<Engine::Handle> Engine::attach_scheduler() {
  const auto& progs = impl_->skeleton->progs;
  return impl_->attach_all({{progs.on_switch, "sched_switch"},
                            {progs.on_waking, "sched_waking"},
                            {progs.on_wakeup_new, "sched_wakeup_new"}});
}

Result<Engine::Handle> Engine::attach_block_layer() {
  const auto& progs = impl_->skeleton->progs;
  return impl_->attach_all(
      {{progs.on_block_issue, "block_rq_issue"}, {progs.on_block_complete, "block_rq_complete"}});
}

Result<Engine::Handle> Engine::attach_signals() {
  return impl_->attach_all({{impl_->skeleton->progs.on_signal, "signal_generate"}});
}

Result<Engine::Handle> Engine::attach_cpu_sampler(std::uint32_t hz) {
  Links links;
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
    links.single.push_back(std::move(link));
    static_cast<void>(event.release());
  }
  return impl_->keep(std::move(links));
}

void Engine::detach(Handle handle) {
  impl_->attached.erase(handle);
}
void Engine::detach_all() {
  impl_->attached.clear();
}

std::size_t Engine::drain(const std::function<void(std::span<const std::byte>)>& on_record) {
  impl_->on_record = &on_record;
  const int count = ring_buffer__consume(impl_->ring.get());
  impl_->on_record = nullptr;
  return count > 0 ? static_cast<std::size_t>(count) : 0;
}

Result<void> Engine::read_totals(const std::function<bool(const ProbeTotal&)>& keep) {
  CHECK(impl_->threads != nullptr);
  const int map = bpf_map__fd(impl_->skeleton->maps.totals);
  std::vector<wire_total_key> dropped;
  TRY_VOID(impl_->totals.read(
      map, "BPF totals", [&](const wire_total_key& key, const wire_total& total) {
        if (!keep({key.tgid, key.probe_kind / 4, static_cast<wire_total_kind>(key.probe_kind % 4),
                   &total}))
          dropped.push_back(key);
      }));
  for (const wire_total_key& key : dropped)
    bpf_map__delete_elem(impl_->skeleton->maps.totals, &key, sizeof(key), 0);
  return {};
}

Result<void> Engine::read_threads(const std::function<void(const wire_thread&)>& on_thread) {
  CHECK(impl_->threads != nullptr);
  const int raw = bpf_iter_create(bpf_link__fd(impl_->threads.get()));
  if (raw < 0) return errno_error(-raw, "open", "task iterator");
  const sys::Fd fd = sys::Fd::adopt(raw);
  std::array<char, 16384> buffer{};
  std::size_t kept = 0;
  for (;;) {
    const ssize_t got = ::read(fd.raw(), buffer.data() + kept, buffer.size() - kept);
    if (got < 0 && (errno == EAGAIN || errno == EINTR)) continue;
    if (got < 0) return errno_error(errno, "read", "task iterator");
    if (got == 0) return {};
    kept += static_cast<std::size_t>(got);
    std::size_t at = 0;
    for (; at + sizeof(wire_thread) <= kept; at += sizeof(wire_thread)) {
      wire_thread thread{};
      std::memcpy(&thread, buffer.data() + at, sizeof(thread));
      on_thread(thread);
    }
    std::memmove(buffer.data(), buffer.data() + at, kept - at);
    kept -= at;
  }
}

Engine::Counters Engine::counters() const {
  std::array<std::uint64_t, 6> counts{};
  std::vector<std::uint64_t> per_cpu(static_cast<std::size_t>(libbpf_num_possible_cpus()));
  for (std::uint32_t which = 0; which < counts.size(); ++which) {
    if (bpf_map__lookup_elem(impl_->skeleton->maps.counts, &which, sizeof(which), per_cpu.data(),
                             per_cpu.size() * sizeof(std::uint64_t), 0) == 0)
      counts.at(which) = std::accumulate(per_cpu.begin(), per_cpu.end(), std::uint64_t{0});
  }
  return {counts[0], counts[1], counts[2], counts[3], counts[4], counts[5]};
}

}  // namespace kansoku::capture::bpf
