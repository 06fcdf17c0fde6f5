// SPDX-License-Identifier: Apache-2.0
#pragma once

// The binary interface of NCCL 2, as far as the stand-in offers it, declared from the public
// documentation: plain numbers, opaque handles, structures of fixed layout. Names are the
// interface's own. Checked against a toolkit's nccl.h where there is one (nccl_test).
// NOLINTBEGIN(readability-identifier-naming)

#include <cstddef>
#include <cstdint>

#include "cuda/abi.h"

namespace kansoku::softcuda::nccl {

inline constexpr int kVersion = 21805;  // of the interface: 2.18.5

enum ncclResult_t : int {
  ncclSuccess = 0,
  ncclUnhandledCudaError = 1,
  ncclSystemError = 2,
  ncclInternalError = 3,
  ncclInvalidArgument = 4,
  ncclInvalidUsage = 5,
  ncclRemoteError = 6,
  ncclInProgress = 7,
};

enum ncclDataType_t : int {
  ncclInt8 = 0,
  ncclUint8 = 1,
  ncclInt32 = 2,
  ncclUint32 = 3,
  ncclInt64 = 4,
  ncclUint64 = 5,
  ncclFloat16 = 6,
  ncclFloat32 = 7,
  ncclFloat64 = 8,
  ncclBfloat16 = 9,
};
inline constexpr int kDataTypeCount = 10;

enum ncclRedOp_t : int { ncclSum = 0, ncclProd = 1, ncclMax = 2, ncclMin = 3, ncclAvg = 4 };
inline constexpr int kRedOpCount = 5;

/// Says where the ranks of one communicator meet; opaque to the program, which hands it on.
struct ncclUniqueId {
  char internal[128];
};

/// The head of a communicator's configuration; the rest differs between versions and asks for
/// nothing that the stand-in could do.
struct ncclConfig_t {
  std::size_t size;
  unsigned magic;
  unsigned version;
};
inline constexpr unsigned kConfigMagic = 0xcafebeef;

using ncclComm_t = struct ncclComm*;

// The result of clang-format is not stable for these macros.
// clang-format off
/// Every function that libnccl.so.2 exports, and nothing else is: result, name, parameters. `S` is
/// ncclResult_t, `C` const char*.
#define KANSOKU_NCCL_FUNCTIONS(S, C)                                                               \
  S(ncclGetVersion, (int* version))                                                                \
  S(ncclGetUniqueId, (ncclUniqueId* id))                                                           \
  S(ncclCommInitRank, (ncclComm_t* comm, int ranks, ncclUniqueId id, int rank))                    \
  S(ncclCommInitRankConfig,                                                                        \
    (ncclComm_t* comm, int ranks, ncclUniqueId id, int rank, ncclConfig_t* config))                \
  S(ncclCommInitAll, (ncclComm_t* comms, int count, const int* devices))                           \
  S(ncclCommFinalize, (ncclComm_t comm))                                                           \
  S(ncclCommDestroy, (ncclComm_t comm))                                                            \
  S(ncclCommAbort, (ncclComm_t comm))                                                              \
  S(ncclCommGetAsyncError, (ncclComm_t comm, ncclResult_t* error))                                 \
  S(ncclCommCount, (const ncclComm_t comm, int* count))                                            \
  S(ncclCommCuDevice, (const ncclComm_t comm, int* device))                                        \
  S(ncclCommUserRank, (const ncclComm_t comm, int* rank))                                          \
  C(ncclGetErrorString, (ncclResult_t result))                                                     \
  C(ncclGetLastError, (ncclComm_t comm))                                                           \
  S(ncclAllReduce, (const void* from, void* to, std::size_t count, ncclDataType_t type,            \
    ncclRedOp_t op, ncclComm_t comm, cuda::CUstream stream))                                       \
  S(ncclReduce, (const void* from, void* to, std::size_t count, ncclDataType_t type,               \
    ncclRedOp_t op, int root, ncclComm_t comm, cuda::CUstream stream))                             \
  S(ncclBroadcast, (const void* from, void* to, std::size_t count, ncclDataType_t type, int root,  \
    ncclComm_t comm, cuda::CUstream stream))                                                       \
  S(ncclBcast, (void* buffer, std::size_t count, ncclDataType_t type, int root, ncclComm_t comm,   \
    cuda::CUstream stream))                                                                        \
  S(ncclAllGather, (const void* from, void* to, std::size_t count, ncclDataType_t type,            \
    ncclComm_t comm, cuda::CUstream stream))                                                       \
  S(ncclReduceScatter, (const void* from, void* to, std::size_t count, ncclDataType_t type,        \
    ncclRedOp_t op, ncclComm_t comm, cuda::CUstream stream))                                       \
  S(ncclSend, (const void* from, std::size_t count, ncclDataType_t type, int peer,                 \
    ncclComm_t comm, cuda::CUstream stream))                                                       \
  S(ncclRecv, (void* to, std::size_t count, ncclDataType_t type, int peer, ncclComm_t comm,        \
    cuda::CUstream stream))                                                                        \
  S(ncclGroupStart, ())                                                                            \
  S(ncclGroupEnd, ())
// clang-format on

#define KANSOKU_NCCL_STATUS(name, parameters) ncclResult_t name parameters;
#define KANSOKU_NCCL_TEXT(name, parameters) const char* name parameters;
extern "C" {
KANSOKU_NCCL_FUNCTIONS(KANSOKU_NCCL_STATUS, KANSOKU_NCCL_TEXT)
}
#undef KANSOKU_NCCL_STATUS
#undef KANSOKU_NCCL_TEXT

}  // namespace kansoku::softcuda::nccl
// NOLINTEND(readability-identifier-naming)
