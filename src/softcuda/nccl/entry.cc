// SPDX-License-Identifier: Apache-2.0
// Exports of libnccl.so.2. No entry calls another: a count of calls of an entry counts those of the
// program. Nothing is thrown out of here.
#include <fmt/format.h>

#include <cstring>
#include <exception>
#include <string>

#include "common/no_destructor.h"
#include "softcuda/nccl/abi.h"
#include "softcuda/nccl/internal/communicator.h"
#include "softcuda/nccl/internal/group.h"
#include "softcuda/nccl/internal/invitation.h"
#include "softcuda/nccl/internal/library.h"
#include "softcuda/nccl/internal/operation.h"

#define KANSOKU_NCCL_ENTRY extern "C" __attribute__((visibility("default")))

namespace kansoku::softcuda::nccl {
namespace {

Library& library() {
  static NoDestructor<Library> kept;
  return kept.get();
}

Group& group() {
  thread_local Group of_thread;
  return of_thread;
}

/// Error of the last call of this thread.
std::string& last_error() {
  thread_local std::string of_thread;
  return of_thread;
}

/// The result of `body`, noted if it is a failure.
template <class Body>
ncclResult_t guarded(const char* function, const Body& body) noexcept {
  try {
    Status status;
    try {
      status = body();
    } catch (const std::exception& thrown) {
      status = {ncclSystemError, thrown.what()};
    } catch (...) {  // allowed: a C entry point
      status = {ncclInternalError, "unknown exception"};
    }
    if (!status.is_ok()) {
      group().note(status);
      last_error() = fmt::format("{}: {}", function, status.text());
    }
    return status.result();
  } catch (...) {              // allowed: a C entry point
    return ncclInternalError;  // no memory for a message
  }
}

/// `body` with the live communicator of the handle.
template <class Body>
ncclResult_t with_communicator(const char* function, ncclComm_t handle, const Body& body) noexcept {
  return guarded(function, [&]() -> Status {
    const auto communicator = library().find(handle);
    if (communicator == nullptr) return {ncclInvalidArgument, "comm is not a live communicator"};
    return body(communicator);
  });
}

template <class Value>
Status give(Value* into, Value value) {
  if (into == nullptr) return {ncclInvalidArgument, "the pointer for the result is null"};
  *into = value;
  return {};
}

using OperationKind = Operation::Kind;

Operation operation(OperationKind kind, const void* from, void* to, std::size_t count,
                    ncclDataType_t type, ncclRedOp_t op, int peer) {
  Operation made;
  made.kind = kind;
  made.from = static_cast<const std::byte*>(from);
  made.to = static_cast<std::byte*>(to);
  made.count = count;
  made.type = type;
  made.op = op;
  made.peer = peer;
  return made;
}

ncclResult_t issue(const char* function, const Operation& it, ncclComm_t comm,
                   cuda::CUstream stream) noexcept {
  return with_communicator(function, comm, [&](const auto& communicator) -> Status {
    KANSOKU_NCCL_TRY(communicator->check(it));
    return group().add(communicator, stream, it);
  });
}

ncclResult_t init_rank(const char* function, ncclComm_t* comm, int ranks, const ncclUniqueId& id,
                       int rank, const ncclConfig_t* config) noexcept {
  return guarded(function, [&]() -> Status {
    if (config != nullptr && (config->magic != kConfigMagic || config->size < sizeof(*config)))
      return {ncclInvalidArgument, "config was not initialised"};
    Library::Seat seat;
    KANSOKU_NCCL_TRY(library().seat(comm, ranks, id, rank, seat));
    return group().add(seat, library());
  });
}

/// Ends a communicator by `end`; none is ended for null.
template <class End>
ncclResult_t end_communicator(const char* function, ncclComm_t comm, const End& end) noexcept {
  if (comm == nullptr) return ncclSuccess;
  return with_communicator(function, comm, [&](const auto& communicator) -> Status {
    Status status = end(*communicator);
    library().remove(comm);
    return status;
  });
}

}  // namespace

KANSOKU_NCCL_ENTRY ncclResult_t ncclGetVersion(int* version) {
  return guarded("ncclGetVersion", [&] { return give(version, int{kVersion}); });
}

KANSOKU_NCCL_ENTRY ncclResult_t ncclGetUniqueId(ncclUniqueId* id) {
  return guarded("ncclGetUniqueId", [&]() -> Status {
    if (id == nullptr) return {ncclInvalidArgument, "id is null"};
    Invitation invitation;
    KANSOKU_NCCL_TRY(library().invite(invitation));
    return give(id, to_unique_id(invitation));
  });
}

KANSOKU_NCCL_ENTRY ncclResult_t ncclCommInitRank(ncclComm_t* comm, int ranks, ncclUniqueId id,
                                                 int rank) {
  return init_rank("ncclCommInitRank", comm, ranks, id, rank, nullptr);
}

KANSOKU_NCCL_ENTRY ncclResult_t ncclCommInitRankConfig(ncclComm_t* comm, int ranks, ncclUniqueId id,
                                                       int rank, ncclConfig_t* config) {
  return init_rank("ncclCommInitRankConfig", comm, ranks, id, rank, config);
}

KANSOKU_NCCL_ENTRY ncclResult_t ncclCommInitAll(ncclComm_t* comms, int count, const int* devices) {
  return guarded("ncclCommInitAll", [&]() -> Status {
    std::vector<Library::Seat> seats;
    KANSOKU_NCCL_TRY(library().seat_all(comms, count, devices, seats));
    return library().open(seats);
  });
}

KANSOKU_NCCL_ENTRY ncclResult_t ncclCommFinalize(ncclComm_t comm) {
  return with_communicator("ncclCommFinalize", comm,
                           [](const auto& communicator) { return communicator->finalize(); });
}

KANSOKU_NCCL_ENTRY ncclResult_t ncclCommDestroy(ncclComm_t comm) {
  return end_communicator("ncclCommDestroy", comm, [](Communicator& it) {
    Status status = it.finalize();
    it.leave();
    return status;
  });
}

KANSOKU_NCCL_ENTRY ncclResult_t ncclCommAbort(ncclComm_t comm) {
  return end_communicator("ncclCommAbort", comm, [](Communicator& it) {
    it.abort();
    return Status();
  });
}

KANSOKU_NCCL_ENTRY ncclResult_t ncclCommGetAsyncError(ncclComm_t comm, ncclResult_t* error) {
  return with_communicator("ncclCommGetAsyncError", comm, [&](const auto& communicator) {
    return give(error, communicator->async_error().result());
  });
}

KANSOKU_NCCL_ENTRY ncclResult_t ncclCommCount(const ncclComm_t comm, int* count) {
  return with_communicator("ncclCommCount", comm, [&](const auto& communicator) {
    return give(count, communicator->ranks());
  });
}

KANSOKU_NCCL_ENTRY ncclResult_t ncclCommCuDevice(const ncclComm_t comm, int* device) {
  return with_communicator("ncclCommCuDevice", comm, [&](const auto& communicator) {
    return give(device, communicator->device());
  });
}

KANSOKU_NCCL_ENTRY ncclResult_t ncclCommUserRank(const ncclComm_t comm, int* rank) {
  return with_communicator("ncclCommUserRank", comm, [&](const auto& communicator) {
    return give(rank, communicator->rank());
  });
}

KANSOKU_NCCL_ENTRY const char* ncclGetErrorString(ncclResult_t result) {
  switch (result) {
    case ncclSuccess:
      return "no error";
    case ncclUnhandledCudaError:
      return "a call of the CUDA driver failed";
    case ncclSystemError:
      return "a call of the operating system failed";
    case ncclInternalError:
      return "internal error";
    case ncclInvalidArgument:
      return "invalid argument";
    case ncclInvalidUsage:
      return "invalid usage";
    case ncclRemoteError:
      return "another rank is gone, or the network failed";
    case ncclInProgress:
      return "in progress";
  }
  return "unknown result";
}

KANSOKU_NCCL_ENTRY const char* ncclGetLastError(ncclComm_t comm) {
  static_cast<void>(guarded("ncclGetLastError", [comm]() -> Status {
    const auto communicator = library().find(comm);
    if (communicator == nullptr) return {};
    // An operation's failure has met no call yet.
    if (auto status = communicator->async_error(); !status.is_ok()) last_error() = status.text();
    return {};
  }));
  return last_error().c_str();
}

KANSOKU_NCCL_ENTRY ncclResult_t ncclAllReduce(const void* from, void* to, std::size_t count,
                                              ncclDataType_t type, ncclRedOp_t op, ncclComm_t comm,
                                              cuda::CUstream stream) {
  return issue("ncclAllReduce", operation(OperationKind::kAllReduce, from, to, count, type, op, 0),
               comm, stream);
}

KANSOKU_NCCL_ENTRY ncclResult_t ncclReduce(const void* from, void* to, std::size_t count,
                                           ncclDataType_t type, ncclRedOp_t op, int root,
                                           ncclComm_t comm, cuda::CUstream stream) {
  return issue("ncclReduce", operation(OperationKind::kReduce, from, to, count, type, op, root),
               comm, stream);
}

KANSOKU_NCCL_ENTRY ncclResult_t ncclBroadcast(const void* from, void* to, std::size_t count,
                                              ncclDataType_t type, int root, ncclComm_t comm,
                                              cuda::CUstream stream) {
  return issue("ncclBroadcast",
               operation(OperationKind::kBroadcast, from, to, count, type, ncclSum, root), comm,
               stream);
}

KANSOKU_NCCL_ENTRY ncclResult_t ncclBcast(void* buffer, std::size_t count, ncclDataType_t type,
                                          int root, ncclComm_t comm, cuda::CUstream stream) {
  return issue("ncclBcast",
               operation(OperationKind::kBroadcast, buffer, buffer, count, type, ncclSum, root),
               comm, stream);
}

KANSOKU_NCCL_ENTRY ncclResult_t ncclAllGather(const void* from, void* to, std::size_t count,
                                              ncclDataType_t type, ncclComm_t comm,
                                              cuda::CUstream stream) {
  return issue("ncclAllGather",
               operation(OperationKind::kAllGather, from, to, count, type, ncclSum, 0), comm,
               stream);
}

KANSOKU_NCCL_ENTRY ncclResult_t ncclReduceScatter(const void* from, void* to, std::size_t count,
                                                  ncclDataType_t type, ncclRedOp_t op,
                                                  ncclComm_t comm, cuda::CUstream stream) {
  return issue("ncclReduceScatter",
               operation(OperationKind::kReduceScatter, from, to, count, type, op, 0), comm,
               stream);
}

KANSOKU_NCCL_ENTRY ncclResult_t ncclSend(const void* from, std::size_t count, ncclDataType_t type,
                                         int peer, ncclComm_t comm, cuda::CUstream stream) {
  return issue("ncclSend",
               operation(OperationKind::kSend, from, nullptr, count, type, ncclSum, peer), comm,
               stream);
}

KANSOKU_NCCL_ENTRY ncclResult_t ncclRecv(void* to, std::size_t count, ncclDataType_t type, int peer,
                                         ncclComm_t comm, cuda::CUstream stream) {
  return issue("ncclRecv",
               operation(OperationKind::kReceive, nullptr, to, count, type, ncclSum, peer), comm,
               stream);
}

KANSOKU_NCCL_ENTRY ncclResult_t ncclGroupStart() {
  return guarded("ncclGroupStart", [] {
    group().start();
    return Status();
  });
}

KANSOKU_NCCL_ENTRY ncclResult_t ncclGroupEnd() {
  return guarded("ncclGroupEnd", [] { return group().end(library()); });
}

}  // namespace kansoku::softcuda::nccl
