// SPDX-License-Identifier: Apache-2.0
// Stands in for model_engine.cc in builds without libbpf.
#include "capture/bpf/model_engine.h"

namespace kansoku::capture::bpf {
namespace {
Error no_bpf() {
  return {Code::kUnavailable, "load BPF programs: this build has no eBPF",
          "build with -DKANSOKU_BPF=ON"};
}
}  // namespace

struct ModelEngine::Impl {
  Price price;
};

ModelEngine::ModelEngine(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
ModelEngine::~ModelEngine() = default;
Result<std::unique_ptr<ModelEngine>> ModelEngine::create(const Options&) {
  return no_bpf();
}
Result<void> ModelEngine::set_target(std::int32_t, const wire_model_layout&) {
  return no_bpf();
}
void ModelEngine::forget_target(std::int32_t) {}
Result<ModelEngine::Handle> ModelEngine::attach(const std::string&, std::int32_t,
                                                std::span<const UprobeSpec>) {
  return no_bpf();
}
void ModelEngine::detach(Handle) {}
std::size_t ModelEngine::link_count() const {
  return 0;
}
std::size_t ModelEngine::drain(const std::function<void(std::span<const std::byte>)>&) {
  return 0;
}
void ModelEngine::forget_graphs() {}
ModelEngine::Counters ModelEngine::counters() const {
  return {};
}
Result<double> ModelEngine::measure_hit(const Measured&) {
  return no_bpf();
}
const ModelEngine::Price& ModelEngine::price() const {
  return impl_->price;
}

}  // namespace kansoku::capture::bpf
