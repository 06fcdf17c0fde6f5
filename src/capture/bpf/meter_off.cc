// SPDX-License-Identifier: Apache-2.0
// Stands in for meter.cc in builds without libbpf.
#include "capture/bpf/meter.h"

namespace kansoku::capture::bpf {
namespace {
Error unavailable() {
  return {Code::kUnavailable, "load BPF programs: this build has no eBPF",
          "build with -DKANSOKU_BPF=ON"};
}
}  // namespace

struct Meter::Impl {
  std::vector<std::string> refusals;
};
Meter::Meter(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Meter::~Meter() = default;
Result<std::unique_ptr<Meter>> Meter::create(std::optional<AttachMode>) {
  return unavailable();
}
AttachMode Meter::mode() const {
  return AttachMode::kPerf;
}
const std::vector<std::string>& Meter::refusals() const {
  return impl_->refusals;
}
Result<void> Meter::describe_probe(std::uint32_t, const wire_meter_probe&) {
  return unavailable();
}
Result<void> Meter::observe_process(std::int32_t) {
  return unavailable();
}
void Meter::forget_process(std::int32_t) {}
Result<Meter::Handle> Meter::attach_uprobes(const std::string&, std::span<const UprobeSpec>, bool) {
  return unavailable();
}
void Meter::detach(Handle) {}
Result<void> Meter::attach_lifecycle() {
  return unavailable();
}
Result<void> Meter::attach_block_layer() {
  return unavailable();
}
Result<void> Meter::attach_signals() {
  return unavailable();
}
std::size_t Meter::link_count() const {
  return 0;
}
Result<void> Meter::read_totals(const std::function<bool(const ProbeTotal&)>&) {
  return unavailable();
}
Result<void> Meter::read_threads(const std::function<void(const wire_thread&)>&) {
  return unavailable();
}
std::size_t Meter::drain(const std::function<void(const Event&)>&) {
  return 0;
}
Meter::Counters Meter::counters() const {
  return {};
}

}  // namespace kansoku::capture::bpf
