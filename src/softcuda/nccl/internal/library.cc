// SPDX-License-Identifier: Apache-2.0
#include "softcuda/nccl/internal/library.h"

#include <fmt/format.h>
#include <pthread.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <exception>
#include <set>
#include <string_view>
#include <thread>

#include "common/parse.h"
#include "softcuda/nccl/internal/signals.h"

namespace kansoku::softcuda::nccl {
namespace {

constexpr Nanos kTimeoutDefault = std::chrono::seconds{300};
constexpr Nanos kTimeoutMin = std::chrono::milliseconds{1};
constexpr Nanos kTimeoutMax = std::chrono::hours{24};

/// The program's environment; programs that change it while they call NCCL race with themselves.
std::string_view setting(const char* name) {
  const char* const value = std::getenv(name);
  return value == nullptr ? std::string_view() : std::string_view(value);
}

/// Changes `into` if the variable is set.
Status timeout_setting(const char* name, Nanos& into) {
  const auto text = setting(name);
  if (text.empty()) return {};
  const auto parsed = parse_duration(text);
  if (!parsed || *parsed < kTimeoutMin || *parsed > kTimeoutMax) {
    return {ncclInvalidUsage, fmt::format("{}={}: not a duration from 1ms to 24h", name, text)};
  }
  into = *parsed;
  return {};
}

std::string interface_setting() {
  return std::string(setting("NCCL_SOCKET_IFNAME"));
}

Status check_ranks(int ranks, int rank) {
  if (ranks < 1 || rank < 0 || rank >= ranks)
    return {ncclInvalidArgument, fmt::format("rank {} of {} ranks", rank, ranks)};
  if (ranks > static_cast<int>(kRanksMax))
    return {ncclInvalidArgument,
            fmt::format("{} ranks: at most {} are supported", ranks, kRanksMax)};
  return {};
}

}  // namespace

Status Library::with_driver(const Driver*& into) {
  const std::scoped_lock lock(mutex_);
  if (driver_ == nullptr) {
    auto loaded = std::make_unique<Driver>();
    KANSOKU_NCCL_TRY(Driver::load(*loaded));
    driver_ = std::move(loaded);
  }
  into = driver_.get();
  return {};
}

Status Library::invite(Invitation& into) {
  const auto filter = interface_setting();
  const auto host = filter.empty() ? Result<HostAddress>(loopback()) : interface_address(filter);
  if (!host) return host.error();
  const std::scoped_lock lock(mutex_);
  if (place_ != nullptr && place_pid_ != ::getpid()) static_cast<void>(place_.release());
  if (place_ == nullptr || place_->host() != *host) {
    auto opened = MeetingPlace::open(*host, clock_);
    if (!opened) return opened.error();
    // Ids of the former place are good as long as it lives: it is not taken down.
    static_cast<void>(place_.release());
    place_ = *std::move(opened);
    place_pid_ = ::getpid();
  }
  const auto invitation = place_->invite();
  if (!invitation) return invitation.error();
  into = *invitation;
  return {};
}

Status Library::seat(ncclComm_t* into, int ranks, const ncclUniqueId& untrusted, int rank,
                     Seat& made) {
  if (into == nullptr) return {ncclInvalidArgument, "comm is null"};
  *into = nullptr;
  KANSOKU_NCCL_TRY(check_ranks(ranks, rank));
  const auto invitation = to_invitation(untrusted);
  if (!invitation) {
    return {invitation.error().code == Code::kCorrupt ? ncclInvalidArgument : ncclInvalidUsage,
            invitation.error().what};
  }
  const Driver* driver = nullptr;
  KANSOKU_NCCL_TRY(with_driver(driver));
  made = {into, *invitation, rank, ranks, {}};
  return driver->current(made.at);
}

Status Library::seat_all(ncclComm_t* into, int count, const int* devices, std::vector<Seat>& made) {
  if (into == nullptr) return {ncclInvalidArgument, "comms is null"};
  const Driver* driver = nullptr;
  KANSOKU_NCCL_TRY(with_driver(driver));
  int device_count = 0;
  KANSOKU_NCCL_TRY(driver->device_count(device_count));
  if (count < 1 || (devices == nullptr && count > device_count))
    return {ncclInvalidArgument, fmt::format("{} ranks on {} devices", count, device_count)};
  KANSOKU_NCCL_TRY(check_ranks(count, 0));
  Invitation invitation;
  if (count > 1) KANSOKU_NCCL_TRY(invite(invitation));
  std::set<int> seen;
  for (int rank = 0; rank < count; ++rank) {
    into[rank] = nullptr;
    const int device = devices == nullptr ? rank : devices[rank];
    if (device < 0 || device >= device_count)
      return {ncclInvalidArgument, fmt::format("device {}: there are {}", device, device_count)};
    if (!seen.insert(device).second)
      return {ncclInvalidUsage, fmt::format("device {} is named twice", device)};
    made.push_back({into + rank, invitation, rank, count, {}});
    KANSOKU_NCCL_TRY(driver->primary(device, made.back().at));
  }
  return {};
}

Status Library::open_one(const Seat& seat, std::shared_ptr<Communicator>& into) {
  try {
    Communicator::Options options;
    options.rank = seat.rank;
    options.ranks = seat.ranks;
    options.at = seat.at;
    options.timeout = kTimeoutDefault;
    options.interface_filter = interface_setting();
    KANSOKU_NCCL_TRY(timeout_setting("KANSOKU_NCCL_TIMEOUT", options.timeout));
    options.connect_timeout = options.timeout;
    KANSOKU_NCCL_TRY(timeout_setting("KANSOKU_NCCL_CONNECT_TIMEOUT", options.connect_timeout));
    const Driver* driver = nullptr;
    KANSOKU_NCCL_TRY(with_driver(driver));
    return Communicator::create(options, seat.invitation, *driver, clock_, into);
  } catch (const std::exception& thrown) {
    return {ncclSystemError, fmt::format("make communicator: {}", thrown.what())};
  }
}

Status Library::open(std::span<const Seat> seats) {
  std::vector<std::shared_ptr<Communicator>> made(seats.size());
  std::vector<Status> status(seats.size());
  if (seats.size() == 1) {
    status[0] = open_one(seats[0], made[0]);
  } else {
    const AllSignalsBlocked quiet;
    std::vector<std::thread> threads;
    for (std::size_t i = 0; i < seats.size(); ++i) {
      threads.emplace_back([this, &seats, &made, &status, i] {
        pthread_setname_np(pthread_self(), "nccl-init");
        status[i] = open_one(seats[i], made[i]);
      });
    }
    for (auto& thread : threads)
      thread.join();
  }
  for (const Status& one : status)
    KANSOKU_NCCL_TRY(one);
  const std::scoped_lock lock(mutex_);
  for (std::size_t i = 0; i < seats.size(); ++i) {
    const auto handle = reinterpret_cast<ncclComm_t>(made[i].get());
    communicators_.emplace(handle, std::move(made[i]));
    *seats[i].into = handle;
  }
  return {};
}

std::shared_ptr<Communicator> Library::find(ncclComm_t handle) const {
  const std::scoped_lock lock(mutex_);
  const auto found = communicators_.find(handle);
  return found == communicators_.end() ? nullptr : found->second;
}

void Library::remove(ncclComm_t handle) {
  std::shared_ptr<Communicator> last;  // goes after the lock: closing takes a while
  const std::scoped_lock lock(mutex_);
  const auto found = communicators_.find(handle);
  if (found == communicators_.end()) return;
  last = std::move(found->second);
  communicators_.erase(found);
}

}  // namespace kansoku::softcuda::nccl
