// SPDX-License-Identifier: Apache-2.0
#include "capture/bpf/meter.h"

#include <bpf/bpf.h>
#include <bpf/libbpf.h>
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <map>

#include "capture/bpf/internal/attach.h"
#include "capture/bpf/internal/load_log.h"
#include "capture/bpf/internal/maps.h"
#include "capture/bpf/meter.skel.h"
#include "sys/fd.h"

namespace kansoku::capture::bpf {
namespace {

struct SkeletonDeleter {
  void operator()(meter_bpf* skeleton) const { meter_bpf__destroy(skeleton); }
};
using Skeleton = std::unique_ptr<meter_bpf, SkeletonDeleter>;
struct RingDeleter {
  void operator()(ring_buffer* ring) const { ring_buffer__free(ring); }
};

constexpr std::size_t kBatch = 512;
constexpr std::size_t kBatchesMax = 256;  // of one look: 131,072 totals

UprobePrograms programs_of(const meter_bpf& skeleton) {
  return {skeleton.progs.meter_session, skeleton.progs.meter_entry, skeleton.progs.meter_return};
}

// Kernels before 6.17 set 128 entries of such a map aside for each processor; where that is all of
// them, fresh entries are thrown out though there is room.
std::uint32_t lru_entries(std::uint32_t wanted) {
  constexpr std::uint32_t kOfEach = 256;
  const int processors = libbpf_num_possible_cpus();
  return processors > 0 ? std::max(wanted, kOfEach * static_cast<std::uint32_t>(processors))
                        : wanted;
}

Result<Skeleton> load(AttachMode mode) {
  LoadLog log;
  Skeleton skeleton(meter_bpf__open());
  if (!skeleton) return errno_error(errno, "open", "BPF object");
  prepare_uprobes(programs_of(*skeleton), mode);
  for (bpf_map* map : {skeleton->maps.open_calls, skeleton->maps.requests})
    bpf_map__set_max_entries(map, lru_entries(bpf_map__max_entries(map)));
  if (const int failed = meter_bpf__load(skeleton.get()); failed != 0)
    return log.error(-failed, fmt::format("metering BPF programs ({})", attach_mode_name(mode)));
  return skeleton;
}

}  // namespace

struct Meter::Impl {
  Skeleton skeleton;
  AttachMode mode{AttachMode::kSession};
  std::vector<std::string> refusals;
  std::unique_ptr<ring_buffer, RingDeleter> ring;
  std::map<Handle, Links> uprobes;
  Links host;
  Link threads;
  Handle next_handle{1};
  std::vector<wire_total_key> keys;                            // scratch
  std::vector<wire_total> values;                              // scratch
  const std::function<void(const Event&)>* on_event{nullptr};  // during drain() only

  static int on_ring(void* context, void* data, std::size_t bytes) {
    const auto* impl = static_cast<Impl*>(context);
    wire_event record{};
    if (bytes < sizeof(record)) return 0;
    std::memcpy(&record, data, sizeof(record));
    Event event{.kind = record.kind == WIRE_FORK   ? Event::Kind::kFork
                        : record.kind == WIRE_EXEC ? Event::Kind::kExec
                                                   : Event::Kind::kExit,
                .pid = static_cast<std::int32_t>(record.tgid)};
    if (event.kind == Event::Kind::kFork) event.parent_pid = static_cast<std::int32_t>(record.tid);
    (*impl->on_event)(event);
    return 0;
  }
};

Meter::Meter(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Meter::~Meter() = default;

Result<std::unique_ptr<Meter>> Meter::create(std::optional<AttachMode> forced) {
  auto impl = std::make_unique<Impl>();
  const auto try_load = [&](AttachMode mode) -> Result<UprobePrograms> {
    impl->skeleton.reset();
    TRY(impl->skeleton, load(mode));
    return programs_of(*impl->skeleton);
  };
  TRY(impl->mode, find_mode(forced, try_load, impl->refusals));
  impl->ring.reset(ring_buffer__new(bpf_map__fd(impl->skeleton->maps.ring), &Impl::on_ring,
                                    impl.get(), nullptr));
  if (!impl->ring) return errno_error(errno, "map", "BPF ring");
  impl->threads.reset(bpf_program__attach_iter(impl->skeleton->progs.meter_threads, nullptr));
  if (!impl->threads) return errno_error(errno, "attach", "task iterator");
  impl->keys.resize(kBatch);
  impl->values.resize(kBatch);
  return std::unique_ptr<Meter>(new Meter(std::move(impl)));
}

AttachMode Meter::mode() const {
  return impl_->mode;
}
const std::vector<std::string>& Meter::refusals() const {
  return impl_->refusals;
}
std::size_t Meter::link_count() const {
  std::size_t count = impl_->host.size();
  for (const auto& [handle, links] : impl_->uprobes)
    count += links.size();
  return count;
}

Result<void> Meter::describe_probe(std::uint32_t index, const wire_meter_probe& probe) {
  return bpf::describe_probe(impl_->skeleton->maps.probes, index, kProbesMax,
                             std::as_bytes(std::span(&probe, 1)));
}
Result<void> Meter::observe_process(std::int32_t pid) {
  return bpf::observe_process(impl_->skeleton->maps.processes, pid);
}
void Meter::forget_process(std::int32_t pid) {
  bpf::forget_process(impl_->skeleton->maps.processes, pid);
}

Result<Meter::Handle> Meter::attach_uprobes(const std::string& path,
                                            std::span<const UprobeSpec> specs, bool with_return) {
  Links links;
  TRY_VOID(bpf::attach_uprobes(programs_of(*impl_->skeleton), impl_->mode, path, specs, with_return,
                               links));
  if (links.size() == 0) return Handle{0};
  const Handle handle = impl_->next_handle++;
  impl_->uprobes.emplace(handle, std::move(links));
  return handle;
}

void Meter::detach(Handle handle) {
  impl_->uprobes.erase(handle);
}

Result<void> Meter::attach_lifecycle() {
  auto& progs = impl_->skeleton->progs;
  TRY_VOID(attach_trace(progs.meter_fork, "tracepoint sched_process_fork", impl_->host));
  TRY_VOID(attach_trace(progs.meter_exec, "tracepoint sched_process_exec", impl_->host));
  return attach_trace(progs.meter_exit, "tracepoint sched_process_exit", impl_->host);
}

Result<void> Meter::attach_block_layer() {
  auto& progs = impl_->skeleton->progs;
  TRY_VOID(attach_trace(progs.meter_block_issue, "tracepoint block_rq_issue", impl_->host));
  return attach_trace(progs.meter_block_complete, "tracepoint block_rq_complete", impl_->host);
}

Result<void> Meter::attach_signals() {
  return attach_trace(impl_->skeleton->progs.meter_signal, "tracepoint signal_generate",
                      impl_->host);
}

Result<void> Meter::read_totals(const std::function<bool(const ProbeTotal&)>& keep) {
  const int map = bpf_map__fd(impl_->skeleton->maps.totals);
  std::uint64_t position = 0;
  std::vector<wire_total_key> dropped;
  for (std::size_t batch = 0; batch < kBatchesMax; ++batch) {
    auto count = static_cast<std::uint32_t>(impl_->keys.size());
    const int failed =
        bpf_map_lookup_batch(map, batch == 0 ? nullptr : &position, &position, impl_->keys.data(),
                             impl_->values.data(), &count, nullptr);
    if (failed != 0 && failed != -ENOENT) {
      if (failed == -ENOSPC && impl_->keys.size() < kBatch * kBatchesMax) {  // a crowded bucket
        impl_->keys.resize(impl_->keys.size() * 2);
        impl_->values.resize(impl_->values.size() * 2);
        continue;
      }
      return errno_error(-failed, "read", "BPF totals");
    }
    for (std::uint32_t i = 0; i < count; ++i) {
      const wire_total_key& key = impl_->keys[i];
      if (!keep({key.tgid, key.probe_kind / 4, static_cast<wire_total_kind>(key.probe_kind % 4),
                 &impl_->values[i]}))
        dropped.push_back(key);
    }
    if (failed == -ENOENT) break;
  }
  for (const wire_total_key& key : dropped)
    bpf_map__delete_elem(impl_->skeleton->maps.totals, &key, sizeof(key), 0);
  return {};
}

Result<void> Meter::read_threads(const std::function<void(const wire_thread&)>& on_thread) {
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

std::size_t Meter::drain(const std::function<void(const Event&)>& on_event) {
  impl_->on_event = &on_event;
  const int count = ring_buffer__consume(impl_->ring.get());
  impl_->on_event = nullptr;
  return count > 0 ? static_cast<std::size_t>(count) : 0;
}

Meter::Counters Meter::counters() const {
  std::array<std::uint64_t, 4> totals{};
  read_losses(impl_->skeleton->maps.losses, totals);
  return {totals[0], totals[1], totals[2], totals[3]};
}

}  // namespace kansoku::capture::bpf
