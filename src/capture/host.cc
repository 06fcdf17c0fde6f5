// SPDX-License-Identifier: Apache-2.0
#include "capture/host.h"

#include "capture/python/sampler.h"

namespace kansoku::capture {

Result<void> try_attach_mode(bpf::AttachMode mode) {
  constexpr std::uint32_t kRingBytes = 1U << 16;  // nothing is recorded
  TRY(const auto engine,
      bpf::Engine::create({.ring_bytes = kRingBytes, .forced = mode, .has_totals = false}));
  return {};
}

Result<std::string> python_version(std::int32_t pid, const sys::Procfs& procfs) {
  TRY(const auto process, python::Process::attach(pid, procfs, {}));
  return process->version();
}

}  // namespace kansoku::capture
