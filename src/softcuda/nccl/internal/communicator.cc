// SPDX-License-Identifier: Apache-2.0
#include "softcuda/nccl/internal/communicator.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <chrono>
#include <cstdlib>
#include <exception>
#include <string_view>
#include <utility>

#include "softcuda/nccl/internal/meeting_place.h"
#include "softcuda/nccl/internal/net.h"
#include "softcuda/nccl/internal/reduction.h"
#include "softcuda/nccl/internal/signals.h"
#include "sys/fd.h"

namespace kansoku::softcuda::nccl {
namespace {

constexpr Nanos kStreamLook =
    std::chrono::milliseconds{20};  // between looks at streams that may have failed

/// A failed operation shows nowhere else in a program that does not ask for it. Goes where the
/// software device's messages go: KANSOKU_SOFTGPU_LOG, a file or "off"; else standard error.
void print_line(std::string_view text) {
  const std::string line = fmt::format("kansoku nccl[{}]: {}\n", ::getpid(), text);
  const char* const where = std::getenv("KANSOKU_SOFTGPU_LOG");
  const std::string_view path = where == nullptr ? "" : where;
  if (path == "off") return;
  sys::Fd file;
  if (!path.empty()) {
    const int fd = ::open(where, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
    if (fd >= 0) file = sys::Fd::adopt(fd);
  }
  const int to = file.is_open() ? file.raw() : STDERR_FILENO;
  [[maybe_unused]] const auto written = ::write(to, line.data(), line.size());
}

}  // namespace

/// Operations that are issued together on one stream.
struct Communicator::Batch {
  std::shared_ptr<Communicator> communicator;
  std::vector<Operation> operations;
  std::uint64_t number{0};
};

Status Communicator::create(const Options& options, const Invitation& invitation,
                            const Driver& driver, const Clock& clock,
                            std::shared_ptr<Communicator>& into) {
  auto made = std::make_shared<Communicator>(options, driver, clock);
  if (options.ranks > 1) {
    const Deadline deadline{clock, clock.now() + options.connect_timeout};
    auto connection = connect_to(invitation.host, invitation.port, deadline);
    if (!connection) return connection.error();
    auto host = options.interface_filter.empty() ? local_address(*connection)
                                                 : interface_address(options.interface_filter);
    if (!host) return host.error();
    auto link = Link::open(
        {options.rank, options.ranks, text_of(*host), options.timeout, options.connect_timeout},
        clock);
    if (!link) return link.error();
    JoinHead head;
    head.secret = invitation.secret;
    head.rank = static_cast<std::uint32_t>(options.rank);
    head.ranks = static_cast<std::uint32_t>(options.ranks);
    head.timeout_ms = static_cast<std::uint32_t>(
        std::chrono::ceil<std::chrono::milliseconds>(options.connect_timeout).count());
    head.address_bytes = static_cast<std::uint32_t>((*link)->address_bytes());
    auto table = join_meeting(*connection, head, (*link)->addresses(), clock);
    if (!table) return table.error();
    if (auto connected = (*link)->connect(*table, invitation.secret); !connected)
      return connected.error();
    made->link_ = *std::move(link);
  }
  into = std::move(made);
  return {};
}

void Communicator::number(Operation& operation) {
  const auto peer = static_cast<std::size_t>(operation.peer);
  operation.number = operation.is_collective()                  ? collectives_++
                     : operation.kind == Operation::Kind::kSend ? sent_[peer]++
                                                                : received_[peer]++;
  operation.slot = slot_of(operation, options_.rank);
}

void Communicator::unnumber(const Operation& operation) {
  const auto peer = static_cast<std::size_t>(operation.peer);
  if (operation.is_collective()) {
    --collectives_;
  } else {
    --(operation.kind == Operation::Kind::kSend ? sent_ : received_)[peer];
  }
}

Status Communicator::check(const Operation& it) const {
  if (!is_known(it.type)) return {ncclInvalidArgument, fmt::format("data type {}", int{it.type})};
  if (!is_known(it.op)) return {ncclInvalidArgument, fmt::format("operation {}", int{it.op})};
  if (it.peer < 0 || it.peer >= ranks())
    return {ncclInvalidArgument, fmt::format("rank {} of {} ranks", it.peer, ranks())};
  // The bytes of all ranks' arrays can be counted.
  const auto all = static_cast<std::size_t>(ranks());
  if (it.count > (SIZE_MAX >> 1) / bytes_of(it.type) / all)
    return {ncclInvalidArgument, fmt::format("{} elements", it.count)};
  if (it.count == 0) return {};
  using Kind = Operation::Kind;
  const bool is_root = it.peer == rank();
  const bool reads = it.kind == Kind::kBroadcast ? is_root : it.kind != Kind::kReceive;
  const bool writes = it.kind == Kind::kReduce ? is_root : it.kind != Kind::kSend;
  if ((reads && it.from == nullptr) || (writes && it.to == nullptr))
    return {ncclInvalidArgument, "an array is null"};
  const std::size_t bytes = it.count * bytes_of(it.type);
  const auto& at = options_.at.context;
  if (reads) {
    const std::size_t times = it.kind == Kind::kReduceScatter ? all : 1;
    KANSOKU_NCCL_TRY(driver_.check_array(at, it.from, bytes * times));
  }
  return writes ? driver_.check_array(at, it.to, bytes * (it.kind == Kind::kAllGather ? all : 1))
                : Status();
}

Status Communicator::enqueue(std::vector<Operation> operations, cuda::CUstream stream) {
  auto batch = std::make_unique<Batch>();
  batch->communicator = shared_from_this();
  batch->operations = std::move(operations);
  const std::scoped_lock issuing(issue_mutex_);
  {
    const std::scoped_lock lock(mutex_);
    if (!error_.is_ok()) return error_;
    if (is_finalized_) return {ncclInvalidUsage, "the communicator was finalized"};
    batch->number = next_batch_++;
    queued_[batch->number].stream = stream;
  }
  for (Operation& operation : batch->operations)
    number(operation);
  auto enqueued = driver_.enqueue(options_.at.context, stream, &Communicator::run, batch.get());
  if (enqueued.is_ok()) {
    static_cast<void>(batch.release());  // it is run's now
    return {};
  }
  for (const Operation& operation : batch->operations)
    unnumber(operation);
  const std::scoped_lock lock(mutex_);
  queued_.erase(batch->number);
  changed_.notify_all();
  return enqueued;
}

/// The host function: on the stream's thread.
void Communicator::run(void* raw) noexcept {
  const std::unique_ptr<Batch> batch(static_cast<Batch*>(raw));
  Communicator& self = *batch->communicator;
  std::shared_ptr<Link> link;
  std::vector<std::byte> scratch;
  if (!self.begin(*batch, link, scratch)) return;
  Status status;
  try {
    const SigpipeBlocked quiet;
    const Mesh mesh{self.options_.rank, self.options_.ranks, link.get()};
    if (const auto done = perform(batch->operations, mesh, scratch); !done) status = done.error();
  } catch (const std::exception& thrown) {
    status = {ncclSystemError, fmt::format("run operations: {}", thrown.what())};
  }
  link.reset();  // so that who waits for the end can leave
  self.end(*batch, std::move(scratch), status);
}

bool Communicator::begin(const Batch& batch, std::shared_ptr<Link>& link,
                         std::vector<std::byte>& scratch) {
  const std::scoped_lock lock(mutex_);
  const auto found = queued_.find(batch.number);
  if (found == queued_.end()) return false;
  if (is_aborted_ || !error_.is_ok()) {
    queued_.erase(found);
    changed_.notify_all();
    return false;
  }
  found->second.is_running = true;
  link = link_;
  if (!scratch_.empty()) {
    scratch = std::move(scratch_.back());
    scratch_.pop_back();
  }
  return true;
}

void Communicator::end(const Batch& batch, std::vector<std::byte> scratch, const Status& status) {
  if (!status.is_ok()) fail(status);
  const std::scoped_lock lock(mutex_);
  scratch_.push_back(std::move(scratch));
  queued_.erase(batch.number);
  changed_.notify_all();
}

void Communicator::fail(const Status& status) {
  std::shared_ptr<Link> link;
  {
    const std::scoped_lock lock(mutex_);
    if (!error_.is_ok() || is_aborted_) return;
    error_ = status;
    link = link_;
  }
  print_line(fmt::format("rank {} of {}: {}", options_.rank, options_.ranks, status.text()));
  if (link != nullptr) link->close();
}

/// Operations on a stream that has failed never run.
void Communicator::forget_lost(std::unique_lock<std::mutex>& lock) {
  const auto queued = queued_;
  lock.unlock();
  for (const auto& [number, entry] : queued) {
    if (entry.is_running) continue;
    const auto state = driver_.query(options_.at.context, entry.stream);
    // A stream that was destroyed runs what it has all the same.
    if (state == cuda::CUDA_ERROR_NOT_READY || state == cuda::CUDA_ERROR_INVALID_HANDLE) continue;
    {
      const std::scoped_lock again(mutex_);
      const auto found = queued_.find(number);
      if (found == queued_.end() || found->second.is_running) continue;
      queued_.erase(found);
    }
    fail(cuda_status("run an operation: the stream came to its end without it", state));
  }
  lock.lock();
}

Status Communicator::finalize() {
  const BootTime end = clock_.now() + options_.timeout;
  std::unique_lock issuing(issue_mutex_);  // nobody is between counting and enqueuing
  std::unique_lock lock(mutex_);
  is_finalized_ = true;
  issuing.unlock();
  while (!queued_.empty() && clock_.now() < end) {
    changed_.wait_for(lock, kStreamLook, [this] { return queued_.empty(); });
    if (!queued_.empty()) forget_lost(lock);
  }
  if (queued_.empty()) return error_;
  lock.unlock();
  Status status(ncclSystemError, "finalize: operations are still enqueued at the timeout");
  fail(status);
  return status;
}

void Communicator::abort() {
  std::unique_lock lock(mutex_);
  is_aborted_ = true;
  if (error_.is_ok()) error_ = {ncclInvalidUsage, "the communicator was aborted"};
  const auto link = std::exchange(link_, nullptr);
  lock.unlock();
  if (link != nullptr) link->close();
  lock.lock();
  changed_.wait(lock, [this] {
    for (const auto& [number, entry] : queued_) {
      if (entry.is_running) return false;
    }
    return true;
  });
}

void Communicator::leave() {
  std::shared_ptr<Link> link;  // goes after the lock: closing takes a while
  const std::scoped_lock lock(mutex_);
  link = std::exchange(link_, nullptr);
}

Status Communicator::async_error() const {
  const std::scoped_lock lock(mutex_);
  return error_;
}

}  // namespace kansoku::softcuda::nccl
