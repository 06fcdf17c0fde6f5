// SPDX-License-Identifier: Apache-2.0
#include "softcuda/nccl/internal/group.h"

#include <algorithm>
#include <utility>

#include "softcuda/nccl/internal/reduction.h"

namespace kansoku::softcuda::nccl {

void Group::note(const Status& status) {
  if (depth_ > 0 && failure_.is_ok()) failure_ = status;
}

/// Data that a rank sends to itself must be received in the same group, on the same stream.
Status Group::check_own(const Batch& batch) {
  std::vector<std::size_t> sent, received;
  for (const Operation& operation : batch.operations) {
    if (operation.is_collective() || operation.peer != batch.communicator->rank()) continue;
    auto& which = operation.kind == Operation::Kind::kSend ? sent : received;
    which.push_back(operation.count * bytes_of(operation.type));
  }
  if (sent == received) return {};
  return {ncclInvalidUsage,
          "sends of a rank to itself and their receives do not match within one group and stream"};
}

Status Group::add(std::shared_ptr<Communicator> communicator, cuda::CUstream stream,
                  const Operation& operation) {
  const auto batch = std::find_if(batches_.begin(), batches_.end(), [&](const Batch& candidate) {
    return candidate.communicator == communicator && candidate.stream == stream;
  });
  if (depth_ > 0) {
    if (batch != batches_.end()) {
      batch->operations.push_back(operation);
    } else {
      batches_.push_back({std::move(communicator), stream, {operation}});
    }
    return {};
  }
  Batch alone{std::move(communicator), stream, {operation}};
  KANSOKU_NCCL_TRY(check_own(alone));
  return alone.communicator->enqueue(std::move(alone.operations), stream);
}

Status Group::add(const Library::Seat& seat, Library& library) {
  if (depth_ == 0) return library.open({&seat, 1});
  seats_.push_back(seat);
  return {};
}

Status Group::end(Library& library) {
  if (depth_ == 0) return {ncclInvalidUsage, "ncclGroupEnd without ncclGroupStart"};
  if (--depth_ > 0) return {};
  const Status failure = std::exchange(failure_, {});
  auto batches = std::exchange(batches_, {});
  const auto seats = std::exchange(seats_, {});
  KANSOKU_NCCL_TRY(failure);
  for (const Batch& batch : batches)
    KANSOKU_NCCL_TRY(check_own(batch));
  if (!seats.empty()) KANSOKU_NCCL_TRY(library.open(seats));
  for (Batch& batch : batches)
    KANSOKU_NCCL_TRY(batch.communicator->enqueue(std::move(batch.operations), batch.stream));
  return {};
}

}  // namespace kansoku::softcuda::nccl
