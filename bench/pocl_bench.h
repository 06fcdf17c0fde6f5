// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "common/result.h"
#include "gpu_cases.h"

namespace kansoku::bench {

/// PoCL, an implementation of OpenCL that compiles kernels for the processor: the peer of the
/// software device. Built without OpenCL everything is kUnavailable. One thread.
class Pocl {
 public:
  /// A kernel, compiled and given its arguments.
  class Kernel {
   public:
    Kernel(Kernel&&) noexcept;
    Kernel& operator=(Kernel&&) noexcept;
    ~Kernel();
    /// Runs it and waits. The first time it compiles for the size of the work-groups.
    [[nodiscard]] Result<void> run();
    /// Zeros into the buffer of an argument.
    [[nodiscard]] Result<void> clear(std::size_t argument);
    /// After it the buffer's bytes are what kernels wrote.
    [[nodiscard]] Result<void> fetch(std::size_t argument);

   private:
    friend class Pocl;
    struct State;
    explicit Kernel(std::unique_ptr<State> state);
    std::unique_ptr<State> state_;
  };

  /// `cores` threads run work-groups: a sub-device of so many compute units. kUnavailable, saying
  /// what is missing, without OpenCL, PoCL or so many cores. Compiled kernels are not kept from
  /// one process to the next, unless the environment's POCL_KERNEL_CACHE says so.
  [[nodiscard]] static Result<Pocl> open(std::uint32_t cores);
  Pocl(Pocl&&) noexcept;
  Pocl& operator=(Pocl&&) noexcept;
  ~Pocl();

  /// "PoCL 3.1+debian ..., pthread-skylake-avx512-...".
  [[nodiscard]] const std::string& name() const;
  /// The first kernel of the source, an OpenCL C text. The buffers must outlive it. kCorrupt, with
  /// the compiler's words, if it does not compile.
  [[nodiscard]] Result<Kernel> build(const std::string& source, const KernelLaunch& launch);

 private:
  struct State;
  explicit Pocl(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

}  // namespace kansoku::bench
