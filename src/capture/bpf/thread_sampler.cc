// SPDX-License-Identifier: Apache-2.0
#include "capture/bpf/thread_sampler.h"

#include <bpf/bpf.h>
#include <bpf/libbpf.h>
#include <fmt/format.h>
#include <linux/perf_event.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <map>
#include <string>
#include <utility>

#include "capture/bpf/internal/attach.h"
#include "capture/bpf/internal/load_log.h"
#include "capture/bpf/internal/map_reader.h"
#include "capture/bpf/thread_sampler.skel.h"
#include "sys/fd.h"
#include "wire/samples.h"

namespace kansoku::capture::bpf {
namespace {

struct SamplerSkeletonDeleter {
  void operator()(thread_sampler_bpf* skeleton) const { thread_sampler_bpf__destroy(skeleton); }
};

Result<Link> attach(bpf_program& program, std::int32_t tid, std::uint64_t event,
                    std::uint64_t period) {
  perf_event_attr attributes{};
  attributes.type = PERF_TYPE_SOFTWARE;
  attributes.size = sizeof(attributes);
  attributes.config = event;
  attributes.sample_period = period;
  attributes.sample_type = PERF_SAMPLE_ADDR;
  const long fd = ::syscall(SYS_perf_event_open, &attributes, tid, -1, -1, PERF_FLAG_FD_CLOEXEC);
  if (fd < 0) return errno_error(errno, "open clock and faults of thread", std::to_string(tid));
  sys::Fd opened = sys::Fd::adopt(static_cast<int>(fd));
  bpf_perf_event_opts options{};
  options.sz = sizeof(options);
  options.bpf_cookie = static_cast<std::uint64_t>(tid);
  // The link takes the descriptor over, on success only.
  Link link(bpf_program__attach_perf_event_opts(&program, opened.raw(), &options));
  if (!link) return errno_error(errno, "attach", "thread sampler");
  static_cast<void>(opened.release());
  return link;
}

std::uint64_t first_of(const bpf_map* map) {
  const std::uint32_t zero = 0;
  std::uint64_t count = 0;
  bpf_map__lookup_elem(map, &zero, sizeof(zero), &count, sizeof(count), 0);
  return count;
}

}  // namespace

struct ThreadSampler::Impl {
  std::unique_ptr<thread_sampler_bpf, SamplerSkeletonDeleter> skeleton;
  struct Watched {
    Link clock, faults;
  };
  std::map<std::int32_t, Watched> threads;  // by tid
  MapReader<wire_sampled, std::uint64_t> reader;
  std::unique_ptr<ring_buffer, RingDeleter> ring;
  std::vector<Fault> taken;

  static int on_fault(void* impl, void* data, std::size_t bytes) {
    if (bytes < sizeof(wire_faulted)) return 0;
    wire_faulted fault;
    std::memcpy(&fault, data, sizeof(fault));
    static_cast<Impl*>(impl)->taken.push_back(
        {static_cast<std::int32_t>(fault.tid), fault.address});
    return 0;
  }
};

ThreadSampler::ThreadSampler(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
ThreadSampler::~ThreadSampler() = default;

Result<std::unique_ptr<ThreadSampler>> ThreadSampler::create() {
  const LoadLog log;
  auto impl = std::make_unique<Impl>();
  impl->skeleton.reset(thread_sampler_bpf__open());
  if (!impl->skeleton) return errno_error(errno, "open", "BPF object of the thread sampler");
  if (const int failed = thread_sampler_bpf__load(impl->skeleton.get()); failed != 0)
    return log.error(-failed, "thread sampler");
  impl->ring.reset(ring_buffer__new(bpf_map__fd(impl->skeleton->maps.faults), &Impl::on_fault,
                                    impl.get(), nullptr));
  if (!impl->ring) return errno_error(errno, "open", "page faults of the thread sampler");
  return std::unique_ptr<ThreadSampler>(new ThreadSampler(std::move(impl)));
}

Result<void> ThreadSampler::watch(std::int32_t tid) {
  if (impl_->threads.contains(tid)) return {};
  if (impl_->threads.size() >= kThreadsMax)
    return Error{Code::kLimit,
                 fmt::format("sample thread {}: at most {} threads", tid, kThreadsMax)};
  Impl::Watched links;
  TRY(links.clock, attach(*impl_->skeleton->progs.on_clock, tid, PERF_COUNT_SW_CPU_CLOCK,
                          static_cast<std::uint64_t>(kPeriod.count())));
  TRY(links.faults,
      attach(*impl_->skeleton->progs.on_fault, tid, PERF_COUNT_SW_PAGE_FAULTS, kFaultsPerSample));
  impl_->threads.emplace(tid, std::move(links));
  return {};
}

void ThreadSampler::forget(std::int32_t tid) {
  impl_->threads.erase(tid);
}

Result<std::vector<ThreadSampler::Count>> ThreadSampler::read() {
  std::vector<Count> out;
  TRY_VOID(
      impl_->reader.read(bpf_map__fd(impl_->skeleton->maps.samples), "thread samples",
                         [&](const wire_sampled& key, std::uint64_t samples) {
                           out.push_back({static_cast<std::int32_t>(key.tid), key.stack, samples});
                         }));
  return out;
}

std::vector<std::uint64_t> ThreadSampler::frames(std::int32_t stack) const {
  std::array<std::uint64_t, WIRE_KERNEL_FRAMES> addresses{};
  std::vector<std::uint64_t> out;
  if (stack < 0 || bpf_map__lookup_elem(impl_->skeleton->maps.stacks, &stack, sizeof(stack),
                                        addresses.data(), sizeof(addresses), 0) != 0)
    return out;
  for (const std::uint64_t address : addresses) {
    if (address == 0) break;
    out.push_back(address);
  }
  return out;
}

Result<std::vector<ThreadSampler::Fault>> ThreadSampler::take_faults() {
  impl_->taken.clear();
  if (const int got = ring_buffer__consume(impl_->ring.get()); got < 0)
    return errno_error(-got, "read", "page faults of the thread sampler");
  return std::move(impl_->taken);
}

std::uint64_t ThreadSampler::faults_lost() const {
  return first_of(impl_->skeleton->maps.faults_lost);
}

std::uint64_t ThreadSampler::lost() const {
  return first_of(impl_->skeleton->maps.lost);
}

}  // namespace kansoku::capture::bpf
