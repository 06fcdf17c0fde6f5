// SPDX-License-Identifier: Apache-2.0
// Stands in for engine.cc in builds without libbpf: every recording falls back to Python stacks.
#include "capture/bpf/engine.h"

namespace kansoku::capture::bpf {
namespace {
Error unavailable() {
  return {Code::kUnavailable, "load BPF programs: this build has no eBPF",
          "build with -DKANSOKU_BPF=ON"};
}
}  // namespace

struct Engine::Impl {
  std::vector<std::string> refusals;
};

Engine::Engine(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Engine::~Engine() = default;
Result<std::unique_ptr<Engine>> Engine::create(const Options&) {
  return unavailable();
}
AttachMode Engine::mode() const {
  return AttachMode::kPerf;
}
const std::vector<std::string>& Engine::refusals() const {
  return impl_->refusals;
}
Result<void> Engine::describe_probe(std::uint32_t, const wire_probe&) {
  return unavailable();
}
Result<void> Engine::observe_process(std::int32_t) {
  return unavailable();
}
void Engine::forget_process(std::int32_t) {}
Result<Engine::Handle> Engine::attach_uprobes(const std::string&, std::span<const UprobeSpec>,
                                              bool) {
  return unavailable();
}
Result<Engine::Handle> Engine::attach_syscall(const std::string&, std::uint64_t) {
  return unavailable();
}
Result<Engine::Handle> Engine::attach_tracepoint(const std::string&, const std::string&,
                                                 std::uint64_t) {
  return unavailable();
}
Result<Engine::Handle> Engine::attach_lifecycle() {
  return unavailable();
}
Result<Engine::Handle> Engine::attach_end_signals() {
  return unavailable();
}
Result<Engine::Handle> Engine::attach_scheduler() {
  return unavailable();
}
Result<Engine::Handle> Engine::attach_cpu_sampler(std::uint32_t) {
  return unavailable();
}
Result<Engine::Handle> Engine::attach_block_layer() {
  return unavailable();
}
Result<Engine::Handle> Engine::attach_signals() {
  return unavailable();
}
void Engine::detach(Handle) {}
void Engine::detach_all() {}
std::size_t Engine::link_count() const {
  return 0;
}
std::size_t Engine::drain(const std::function<void(std::span<const std::byte>)>&) {
  return 0;
}
Result<void> Engine::read_totals(const std::function<bool(const ProbeTotal&)>&) {
  return unavailable();
}
Result<void> Engine::read_threads(const std::function<void(const wire_thread&)>&) {
  return unavailable();
}
Engine::Counters Engine::counters() const {
  return {};
}

}  // namespace kansoku::capture::bpf
