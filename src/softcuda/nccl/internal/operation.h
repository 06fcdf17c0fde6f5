// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "softcuda/nccl/abi.h"
#include "softcuda/nccl/internal/link.h"

namespace kansoku::softcuda::nccl {

/// One operation of a program on one rank.
struct Operation {
  enum class Kind : std::uint8_t {
    kAllReduce,
    kReduce,
    kBroadcast,
    kAllGather,
    kReduceScatter,
    kSend,
    kReceive,
  };
  Kind kind{Kind::kAllReduce};
  const std::byte* from{nullptr};
  std::byte* to{nullptr};
  std::size_t count{0};  // of elements, as the interface means it
  ncclDataType_t type{ncclInt8};
  ncclRedOp_t op{ncclSum};
  int peer{0};  // of a send or receive; the root of Reduce and Broadcast
  std::uint64_t number{
      0};                 // of the communicator's collectives, or of the messages between two ranks
  std::uint64_t slot{0};  // under which ranks find each other: slot and slot + 1 are its own

  [[nodiscard]] bool is_collective() const { return kind != Kind::kSend && kind != Kind::kReceive; }
};

/// "ncclAllReduce 3 (1024 float32)".
[[nodiscard]] std::string describe(const Operation& operation);

/// The slot of a numbered operation of `rank`. Ranks that call something else, or with another
/// size, get another one: they wait for each other, as they would on a GPU.
[[nodiscard]] std::uint64_t slot_of(const Operation& operation, int rank);

/// Ranks that take part. `link` is null if there is one rank only.
struct Mesh {
  int rank{0}, ranks{1};
  Link* link{nullptr};
};

/// Runs operations that were issued together: sends and receives at the same time, collectives
/// meanwhile in their order. Memory beside the arrays: some megabytes of `scratch`, which is kept
/// for the next time. Reductions combine in the order of ranks, so all ranks get the same bits,
/// always. Blocks.
[[nodiscard]] Result<void> perform(std::span<const Operation> operations, const Mesh& mesh,
                                   std::vector<std::byte>& scratch);

}  // namespace kansoku::softcuda::nccl
