// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "common/result.h"
#include "gpu/exec/memory.h"

namespace kansoku::bench {

/// Argument of a kernel: a buffer or four bytes.
struct KernelArgument {
  std::span<std::byte> buffer;  // empty: a value
  std::array<std::byte, 4> value{};
};

/// One launch, whoever runs it. The buffers belong to the memory that the case was made in.
struct KernelLaunch {
  std::array<std::uint32_t, 3> grid{1, 1, 1}, block{1, 1, 1};  // blocks, threads of a block
  std::vector<KernelArgument> arguments;
};

/// A kernel of examples/gpu with its data: NAME.cc there, NAME.ptx in tests/data/ptx, NAME.cl in
/// bench/pocl.
struct KernelCase {
  std::string name;
  std::string size;  // "n=512"
  std::string unit;  // of the work: "gflop", "gb"
  double work{0};    // of one launch, in that unit
  KernelLaunch launch;
  std::size_t output{0};  // argument that the kernel writes
  double tolerance{0};    // greatest difference in parts of the greatest result; 0: whole numbers

  /// The same with another output, of the same size.
  [[nodiscard]] KernelLaunch with_output(std::span<std::byte> other) const;
};

struct CaseMaker {
  std::string_view name;
  Result<KernelCase> (*make)(gpu::exec::Memory& memory);
};
/// All of them. A case takes up to 256 MiB of the memory, a copy of its output included.
[[nodiscard]] std::span<const CaseMaker> case_makers();

/// Zero-filled; kLimit if the memory is full.
[[nodiscard]] Result<std::span<std::byte>> make_buffer(gpu::exec::Memory& memory,
                                                       std::size_t bytes);

/// How far two outputs of the case lie apart, in parts of the greatest value; for whole numbers the
/// share of those that differ. Nothing but zeros differs from everything: the kernel did not run.
[[nodiscard]] double difference(const KernelCase& kernel, std::span<const std::byte> a,
                                std::span<const std::byte> b);

}  // namespace kansoku::bench
