// SPDX-License-Identifier: Apache-2.0
// Stands in for thread_sampler.cc in builds without libbpf.
#include "capture/bpf/thread_sampler.h"

namespace kansoku::capture::bpf {
namespace {
Error no_sampler() {
  return {Code::kUnavailable, "sample threads: this build has no eBPF",
          "build with -DKANSOKU_BPF=ON"};
}
}  // namespace

struct ThreadSampler::Impl {};

ThreadSampler::ThreadSampler(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
ThreadSampler::~ThreadSampler() = default;
Result<std::unique_ptr<ThreadSampler>> ThreadSampler::create() {
  return no_sampler();
}
Result<void> ThreadSampler::watch(std::int32_t) {
  return no_sampler();
}
void ThreadSampler::forget(std::int32_t) {}
Result<std::vector<ThreadSampler::Count>> ThreadSampler::read() {
  return no_sampler();
}
std::vector<std::uint64_t> ThreadSampler::frames(std::int32_t) const {
  return {};
}
Result<std::vector<ThreadSampler::Fault>> ThreadSampler::take_faults() {
  return no_sampler();
}
std::uint64_t ThreadSampler::faults_lost() const {
  return 0;
}
std::uint64_t ThreadSampler::lost() const {
  return 0;
}

}  // namespace kansoku::capture::bpf
