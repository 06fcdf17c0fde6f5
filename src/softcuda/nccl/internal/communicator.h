// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <condition_variable>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "common/time.h"
#include "softcuda/nccl/abi.h"
#include "softcuda/nccl/internal/driver.h"
#include "softcuda/nccl/internal/invitation.h"
#include "softcuda/nccl/internal/link.h"
#include "softcuda/nccl/internal/operation.h"
#include "softcuda/nccl/internal/status.h"

namespace kansoku::softcuda::nccl {

/// One rank's end of a communicator. Work that was enqueued holds it by a shared pointer, so the
/// handle may go first. Any thread.
class Communicator : public std::enable_shared_from_this<Communicator> {
 public:
  struct Options {
    int rank{0}, ranks{1};
    DeviceContext at;
    Nanos timeout{}, connect_timeout{};
    std::string interface_filter;  // as NCCL_SOCKET_IFNAME; empty: the way to the meeting
  };
  /// Meets the other ranks and connects to them. Blocks, for `connect_timeout` at most. `driver`
  /// and `clock` outlive it.
  [[nodiscard]] static Status create(const Options& options, const Invitation& invitation,
                                     const Driver& driver, const Clock& clock,
                                     std::shared_ptr<Communicator>& into);
  Communicator(const Options& options, const Driver& driver, const Clock& clock)
      : options_(options),
        driver_(driver),
        clock_(clock),
        sent_(static_cast<std::size_t>(options.ranks)),
        received_(static_cast<std::size_t>(options.ranks)) {}

  [[nodiscard]] int rank() const { return options_.rank; }
  [[nodiscard]] int ranks() const { return options_.ranks; }
  [[nodiscard]] int device() const { return options_.at.device; }

  /// Error if the operation cannot be enqueued: numbers, arrays.
  [[nodiscard]] Status check(const Operation& operation) const;
  /// Enqueues the operations on the stream, to run together. They count as issued now, in the order
  /// of the calls, which must be the same on all ranks. Does not block.
  [[nodiscard]] Status enqueue(std::vector<Operation> operations, cuda::CUstream stream);
  /// Refuses further operations, waits for those that were enqueued: until the timeout after which
  /// the last of them can no longer run, then they are given up. Blocks.
  [[nodiscard]] Status finalize();
  /// Ends running operations, drops enqueued ones. Once it returns no operation touches memory.
  /// Blocks for moments.
  void abort();

  /// Gives the connections up, softly; after finalize().
  void leave();

  /// The first failure of an operation, or success.
  [[nodiscard]] Status async_error() const;

 private:
  struct Batch;
  static void run(void* batch) noexcept;
  [[nodiscard]] bool begin(const Batch& batch, std::shared_ptr<Link>& link,
                           std::vector<std::byte>& scratch);
  void end(const Batch& batch, std::vector<std::byte> scratch, const Status& status);
  void fail(const Status& status);
  void number(Operation& operation);
  void unnumber(const Operation& operation);
  void forget_lost(std::unique_lock<std::mutex>& lock);

  struct Queued {
    cuda::CUstream stream{nullptr};
    bool is_running{false};
  };
  const Options options_;
  const Driver& driver_;
  const Clock& clock_;
  std::mutex issue_mutex_;        // the order of numbers is the order in streams; before mutex_
  std::uint64_t collectives_{0};  // guarded by issue_mutex_
  std::vector<std::uint64_t> sent_, received_;  // by peer; guarded by issue_mutex_
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::map<std::uint64_t, Queued> queued_;        // batches by number; guarded by mutex_
  std::uint64_t next_batch_{0};                   // guarded by mutex_
  bool is_finalized_{false}, is_aborted_{false};  // guarded by mutex_
  Status error_;                                  // guarded by mutex_
  std::shared_ptr<Link> link_;  // guarded by mutex_; null: one rank only, or it was left
  std::vector<std::vector<std::byte>> scratch_;  // not in use; guarded by mutex_
};

}  // namespace kansoku::softcuda::nccl
