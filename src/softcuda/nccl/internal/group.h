// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <vector>

#include "softcuda/nccl/internal/communicator.h"
#include "softcuda/nccl/internal/library.h"
#include "softcuda/nccl/internal/operation.h"
#include "softcuda/nccl/internal/status.h"

namespace kansoku::softcuda::nccl {

/// Operations that a thread has issued between ncclGroupStart and ncclGroupEnd; outside of a group,
/// they go at once. One thread.
class Group {
 public:
  void start() { ++depth_; }
  /// Ends a group; the outermost one makes its communicators, then enqueues its operations, those
  /// of one communicator and stream together. Nothing of a group in which a call failed is done.
  [[nodiscard]] Status end(Library& library);

  [[nodiscard]] Status add(std::shared_ptr<Communicator> communicator, cuda::CUstream stream,
                           const Operation& operation);
  [[nodiscard]] Status add(const Library::Seat& seat, Library& library);
  /// A call of the thread has failed.
  void note(const Status& status);

 private:
  struct Batch {
    std::shared_ptr<Communicator> communicator;
    cuda::CUstream stream{nullptr};
    std::vector<Operation> operations;
  };
  [[nodiscard]] static Status check_own(const Batch& batch);
  int depth_{0};
  Status failure_;  // the first of this group
  std::vector<Batch> batches_;
  std::vector<Library::Seat> seats_;
};

}  // namespace kansoku::softcuda::nccl
