// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <map>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <vector>

#include "softcuda/nccl/abi.h"
#include "softcuda/nccl/internal/communicator.h"
#include "softcuda/nccl/internal/driver.h"
#include "softcuda/nccl/internal/meeting_place.h"
#include "softcuda/nccl/internal/status.h"
#include "sys/clock.h"

namespace kansoku::softcuda::nccl {

/// Everything of the process: its driver, the port where ranks meet, the communicators by handle.
/// Any thread.
class Library {
 public:
  /// One rank of a communicator to be.
  struct Seat {
    ncclComm_t* into{nullptr};
    Invitation invitation;
    int rank{0}, ranks{1};
    DeviceContext at;
  };

  [[nodiscard]] Status invite(Invitation& into);
  /// The current device's seat, arguments checked.
  [[nodiscard]] Status seat(ncclComm_t* into, int ranks, const ncclUniqueId& untrusted, int rank,
                            Seat& made);
  /// Seats for one communicator with a rank on each of `count` devices.
  [[nodiscard]] Status seat_all(ncclComm_t* into, int count, const int* devices,
                                std::vector<Seat>& made);
  /// Makes the communicators of all seats, each on a thread of its own if there are several. On
  /// failure all are null. Blocks until all other ranks are there.
  [[nodiscard]] Status open(std::span<const Seat> seats);

  /// Null if it is no live communicator.
  [[nodiscard]] std::shared_ptr<Communicator> find(ncclComm_t handle) const;
  void remove(ncclComm_t handle);

 private:
  [[nodiscard]] Status with_driver(const Driver*& into);
  [[nodiscard]] Status open_one(const Seat& seat, std::shared_ptr<Communicator>& into);

  const sys::RealClock clock_{};
  mutable std::mutex mutex_;
  std::unique_ptr<const Driver> driver_;  // guarded by mutex_; once there it stays
  std::unique_ptr<MeetingPlace> place_;   // guarded by mutex_
  int place_pid_{0};                      // guarded by mutex_: threads do not survive fork
  std::map<ncclComm_t, std::shared_ptr<Communicator>> communicators_;  // guarded by mutex_
};

}  // namespace kansoku::softcuda::nccl
