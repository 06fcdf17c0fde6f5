// SPDX-License-Identifier: Apache-2.0
#include "capture/bpf/model_engine.h"

#include <bpf/bpf.h>
#include <bpf/libbpf.h>
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <map>
#include <numeric>
#include <utility>
#include <vector>

#include "capture/bpf/internal/attach.h"
#include "capture/bpf/internal/load_log.h"
#include "capture/bpf/internal/uprobe_link.h"
#include "capture/bpf/model.skel.h"
#include "sys/clock.h"

// Functions to measure a hit on: one begins as those of ggml do, one is nothing but a return.
asm(R"(
  .text
  .p2align 4
  .type kansoku_model_stub, @function
kansoku_model_stub:
  push %rbp
  pop %rbp
  ret
  .size kansoku_model_stub, . - kansoku_model_stub
  .p2align 4
  .type kansoku_model_stepped, @function
kansoku_model_stepped:
  ret
  .size kansoku_model_stepped, . - kansoku_model_stepped
)");
extern "C" void kansoku_model_stub(const void* params, const void* tensor);
extern "C" void kansoku_model_stepped(const void* params, const void* tensor);

namespace kansoku::capture::bpf {
namespace {

struct ModelSkeletonDeleter {
  void operator()(model_bpf* skeleton) const { model_bpf__destroy(skeleton); }
};

constexpr int kPriceRounds = 20, kPriceCalls = 100, kSteppedCalls = 20;
// More than the first cache holds and less than the second: with it hits times price is the loss of
// a small model (docs/measurements/llm.md).
constexpr std::size_t kPriceDataBytes = 256U << 10;

using Stub = void (*)(const void* params, const void* tensor);

double seconds_of_a_call(Stub stub, int calls, std::span<const std::uint64_t> data) {
  const std::array<std::uint64_t, 64>
      memory{};  // of threads and tensors: none, and nothing to read
  constexpr std::size_t kLine = 64 / sizeof(std::uint64_t);
  const Nanos begin = sys::thread_cpu_time();
  for (int i = 0; i < calls; ++i) {
    stub(memory.data(), memory.data());
    std::uint64_t sum = 0;
    for (std::size_t k = 0; k < data.size(); k += kLine)
      sum = (sum + data[k]) * 3;
    asm volatile("" : : "r"(sum));
  }
  return static_cast<double>((sys::thread_cpu_time() - begin).count()) * 1e-9 / calls;
}

}  // namespace

struct ModelEngine::Impl {
  std::unique_ptr<model_bpf, ModelSkeletonDeleter> skeleton;
  std::unique_ptr<ring_buffer, RingDeleter> ring;
  bool is_perf{false};
  Price price;
  std::map<Handle, Links> attached;
  std::uint32_t serial{0};                        // of targets, in the high bits of theirs
  std::map<std::int32_t, std::uint32_t> targets;  // index in the map, by pid
  Handle next_handle{1};
  const std::function<void(std::span<const std::byte>)>* on_record{nullptr};  // during drain() only

  static int on_ring(void* context, void* data, std::size_t bytes) {
    auto* impl = static_cast<Impl*>(context);
    (*impl->on_record)({static_cast<const std::byte*>(data), bytes});
    return 0;
  }

  Result<void> load(const Options& options) {
    LoadLog log;
    skeleton.reset(model_bpf__open());
    if (!skeleton) return errno_error(errno, "open", "BPF object");
    bpf_map__set_max_entries(skeleton->maps.ring, options.ring_bytes);
    is_perf = options.is_perf;
    if (!is_perf) {
      const auto multi = static_cast<bpf_attach_type>(kAttachUprobeMulti);
      for (bpf_program* program : {skeleton->progs.on_model, skeleton->progs.on_nothing})
        bpf_program__set_expected_attach_type(program, multi);
    }
    if (const int failed = model_bpf__load(skeleton.get()); failed != 0)
      return log.error(-failed, "BPF program of models");
    ring.reset(ring_buffer__new(bpf_map__fd(skeleton->maps.ring), &on_ring, this, nullptr));
    if (!ring) return errno_error(errno, "map", "BPF ring");
    return {};
  }

  Result<Links> attach(bpf_program* program, const std::string& path, std::int32_t pid,
                       std::span<const UprobeSpec> specs) const {
    Links out;
    if (!is_perf) {
      TRY(auto link, create_multi_link(bpf_program__fd(program), kAttachUprobeMulti, path, specs,
                                       false, static_cast<std::uint32_t>(pid)));
      out.multi.push_back(std::move(link));
      return out;
    }
    for (const UprobeSpec& spec : specs) {
      bpf_uprobe_opts options{};
      options.sz = sizeof(options);
      options.bpf_cookie = spec.cookie;
      // An event of one process would be one of its main thread alone.
      Link link(
          bpf_program__attach_uprobe_opts(program, -1, path.c_str(), spec.file_offset, &options));
      if (!link) return errno_error(errno, "attach uprobe to", path);
      out.single.push_back(std::move(link));
    }
    return out;
  }

  Result<void> clear_counts() const {
    const std::vector<std::uint64_t> none(static_cast<std::size_t>(libbpf_num_possible_cpus()));
    for (std::uint32_t which = 0; which < WIRE_MODEL_COUNTS; ++which) {
      const int failed =
          bpf_map__update_elem(skeleton->maps.counts, &which, sizeof(which), none.data(),
                               none.size() * sizeof(std::uint64_t), BPF_ANY);
      if (failed != 0) return errno_error(-failed, "clear", "counters of models");
    }
    return {};
  }
};

ModelEngine::ModelEngine(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
ModelEngine::~ModelEngine() = default;

Result<std::unique_ptr<ModelEngine>> ModelEngine::create(const Options& options) {
  auto impl = std::make_unique<Impl>();
  TRY_VOID(impl->load(options));
  auto engine = std::unique_ptr<ModelEngine>(new ModelEngine(std::move(impl)));
  Price& price = engine->impl_->price;
  Measured what{.rounds = kPriceRounds, .calls = kPriceCalls};
  TRY(price.bare, engine->measure_hit(what));
  what.role = WIRE_MODEL_OPERATOR;
  TRY(price.emulated, engine->measure_hit(what));
  what.data_bytes = kPriceDataBytes;
  TRY(const double with_data, engine->measure_hit(what));
  price.caches = std::max(0.0, with_data - price.emulated);
  TRY(price.stepped, engine->measure_hit({.place = Place::kStepped,
                                          .role = WIRE_MODEL_BARRIER,
                                          .rounds = kPriceRounds,
                                          .calls = kSteppedCalls}));
  TRY_VOID(engine->impl_->clear_counts());  // measured hits are no process's
  return engine;
}

Result<double> ModelEngine::measure_hit(const Measured& what) {
  const Stub stub = what.place == Place::kStepped ? &kansoku_model_stepped : &kansoku_model_stub;
  TRY(const auto offset, own_file_offset(reinterpret_cast<std::uint64_t>(stub)));
  TRY_VOID(set_target(::getpid(), {}));
  const std::vector<std::uint64_t> data(what.data_bytes / sizeof(std::uint64_t), 1);
  const auto best = [&] {
    double out = 1;
    for (int round = 0; round < what.rounds; ++round) {
      out = std::min(out, seconds_of_a_call(stub, what.calls, data));
      drain([](std::span<const std::byte>) {});
    }
    return out;
  };
  // A call alone is nothing; and another observer's probe in this very function would be taken for
  // it (one place of a perf event is everybody's).
  const double without = data.empty() ? 0 : best();
  const auto& programs = impl_->skeleton->progs;
  const std::uint64_t target = impl_->targets.at(::getpid());
  const UprobeSpec spec{offset, 0, what.role | target << WIRE_MODEL_TARGET_SHIFT};
  TRY(const auto links, impl_->attach(what.role == 0 ? programs.on_nothing : programs.on_model,
                                      "/proc/self/exe", ::getpid(), {&spec, 1}));
  const double with = best();
  forget_target(::getpid());
  return std::max(0.0, with - without);
}

Result<void> ModelEngine::set_target(std::int32_t pid, const wire_model_layout& layout) {
  auto found = impl_->targets.find(pid);
  if (found == impl_->targets.end()) {
    std::uint32_t free = 0;
    const auto is_taken = [&](const auto& one) { return one.second == free; };
    while (std::any_of(impl_->targets.begin(), impl_->targets.end(), is_taken))
      ++free;
    if (free >= WIRE_MODEL_TARGETS_MAX)
      return Error{Code::kLimit, fmt::format("observe process {}: at most {} at a time", pid,
                                             WIRE_MODEL_TARGETS_MAX)};
    found = impl_->targets.emplace(pid, free).first;
  }
  // Threads of before may have had other numbers in their graphs.
  constexpr std::uint32_t kFarAhead = 1U << 20;
  wire_model_target target{};
  bpf_map__lookup_elem(impl_->skeleton->maps.targets, &found->second, sizeof(found->second),
                       &target, sizeof(target), 0);
  target.tgid = static_cast<std::uint32_t>(pid);
  target.serial = impl_->serial += kFarAhead;
  target.layout = layout;
  const int failed = bpf_map__update_elem(impl_->skeleton->maps.targets, &found->second,
                                          sizeof(found->second), &target, sizeof(target), BPF_ANY);
  if (failed != 0) return errno_error(-failed, "observe process", std::to_string(pid));
  return {};
}

void ModelEngine::forget_target(std::int32_t pid) {
  const auto found = impl_->targets.find(pid);
  if (found == impl_->targets.end()) return;
  const wire_model_target none{};
  bpf_map__update_elem(impl_->skeleton->maps.targets, &found->second, sizeof(found->second), &none,
                       sizeof(none), BPF_ANY);
  impl_->targets.erase(found);
}

Result<ModelEngine::Handle> ModelEngine::attach(const std::string& path, std::int32_t pid,
                                                std::span<const UprobeSpec> specs) {
  if (specs.empty()) return Handle{0};
  const auto target = impl_->targets.find(pid);
  if (target == impl_->targets.end())
    return Error{Code::kInternal, fmt::format("attach to {}: process {} is no target", path, pid)};
  std::vector<UprobeSpec> own(specs.begin(), specs.end());
  for (UprobeSpec& spec : own)
    spec.cookie |= std::uint64_t{target->second} << WIRE_MODEL_TARGET_SHIFT;
  TRY(auto links, impl_->attach(impl_->skeleton->progs.on_model, path, pid, own));
  const Handle handle = impl_->next_handle++;
  impl_->attached.emplace(handle, std::move(links));
  return handle;
}
void ModelEngine::detach(Handle handle) {
  impl_->attached.erase(handle);
}
std::size_t ModelEngine::link_count() const {
  return std::accumulate(impl_->attached.begin(), impl_->attached.end(), std::size_t{0},
                         [](std::size_t sum, const auto& one) { return sum + one.second.size(); });
}

std::size_t ModelEngine::drain(const std::function<void(std::span<const std::byte>)>& on_record) {
  impl_->on_record = &on_record;
  const int count = ring_buffer__consume(impl_->ring.get());
  impl_->on_record = nullptr;
  return count > 0 ? static_cast<std::size_t>(count) : 0;
}

void ModelEngine::forget_graphs() {
  ++impl_->skeleton->bss->epoch;
}

ModelEngine::Counters ModelEngine::counters() const {
  std::array<std::uint64_t, WIRE_MODEL_COUNTS> sums{};
  std::vector<std::uint64_t> per_cpu(static_cast<std::size_t>(libbpf_num_possible_cpus()));
  for (std::uint32_t which = 0; which < sums.size(); ++which) {
    if (bpf_map__lookup_elem(impl_->skeleton->maps.counts, &which, sizeof(which), per_cpu.data(),
                             per_cpu.size() * sizeof(std::uint64_t), 0) == 0)
      sums.at(which) = std::accumulate(per_cpu.begin(), per_cpu.end(), std::uint64_t{0});
  }
  Counters out;
  std::copy_n(sums.begin(), out.hits.size(), out.hits.begin());
  std::copy_n(sums.begin() + WIRE_MODEL_STEPPED_HITS, out.hits.size(), out.stepped_hits.begin());
  out.ring_full = sums[WIRE_MODEL_RING_FULL];
  out.cut_graphs = sums[WIRE_MODEL_CUT_GRAPHS];
  return out;
}

const ModelEngine::Price& ModelEngine::price() const {
  return impl_->price;
}

}  // namespace kansoku::capture::bpf
