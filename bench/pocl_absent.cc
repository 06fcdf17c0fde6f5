// SPDX-License-Identifier: Apache-2.0
// In place of pocl_bench.cc where OpenCL was not found at build time.
#include "pocl_bench.h"

namespace kansoku::bench {

namespace {
Error absent() {
  return Error{
      Code::kUnavailable, "built without OpenCL",
      "apt-get install ocl-icd-opencl-dev opencl-headers pocl-opencl-icd, configure again"};
}
}  // namespace

struct Pocl::State {
  std::string name;
};
struct Pocl::Kernel::State {};

Pocl::Kernel::Kernel(std::unique_ptr<State> state) : state_(std::move(state)) {}
Pocl::Kernel::Kernel(Kernel&&) noexcept = default;
Pocl::Kernel& Pocl::Kernel::operator=(Kernel&&) noexcept = default;
Pocl::Kernel::~Kernel() = default;
Result<void> Pocl::Kernel::run() {
  return absent();
}
Result<void> Pocl::Kernel::clear(std::size_t) {
  return absent();
}
Result<void> Pocl::Kernel::fetch(std::size_t) {
  return absent();
}

Result<Pocl> Pocl::open(std::uint32_t) {
  return absent();
}
Pocl::Pocl(std::unique_ptr<State> state) : state_(std::move(state)) {}
Pocl::Pocl(Pocl&&) noexcept = default;
Pocl& Pocl::operator=(Pocl&&) noexcept = default;
Pocl::~Pocl() = default;
const std::string& Pocl::name() const {
  return state_->name;
}
Result<Pocl::Kernel> Pocl::build(const std::string&, const KernelLaunch&) {
  return absent();
}

}  // namespace kansoku::bench
