// SPDX-License-Identifier: Apache-2.0
#pragma once

// Ranks as processes: each is a fork of the test that loads the driver and libnccl.so.2 for itself.

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "softcuda/nccl/abi.h"

namespace kansoku::softcuda::nccl {

/// The entries of libnccl.so.2, as a program sees them, and the entries of the driver that tests
/// need.
struct Nccl {
// NOLINTBEGIN(bugprone-macro-parentheses): names and lists of parameters
#define KANSOKU_NCCL_STATUS(name, parameters) ncclResult_t(*name) parameters{nullptr};
#define KANSOKU_NCCL_TEXT(name, parameters) const char*(*name)parameters{nullptr};
  KANSOKU_NCCL_FUNCTIONS(KANSOKU_NCCL_STATUS, KANSOKU_NCCL_TEXT)
#undef KANSOKU_NCCL_STATUS
#undef KANSOKU_NCCL_TEXT
  // NOLINTEND(bugprone-macro-parentheses)
  cuda::CUresult (*device_count)(int* count){nullptr};
  cuda::CUresult (*primary_retain)(cuda::CUcontext* context, cuda::CUdevice device){nullptr};
  cuda::CUresult (*ctx_set_current)(cuda::CUcontext context){nullptr};
  cuda::CUresult (*stream_create)(cuda::CUstream* stream, unsigned flags){nullptr};
  cuda::CUresult (*stream_synchronize)(cuda::CUstream stream){nullptr};
  cuda::CUresult (*stream_query)(cuda::CUstream stream){nullptr};
  cuda::CUresult (*stream_capture)(cuda::CUstream stream, int mode){nullptr};
  cuda::CUresult (*module_load)(cuda::CUmodule* module, const void* image){nullptr};
  cuda::CUresult (*module_function)(cuda::CUfunction* function, cuda::CUmodule module,
                                    const char* name){nullptr};
  cuda::CUresult (*launch_kernel)(cuda::CUfunction function, unsigned, unsigned, unsigned, unsigned,
                                  unsigned, unsigned, unsigned shared_bytes, cuda::CUstream stream,
                                  void** params, void** extra){nullptr};
  cuda::CUresult (*launch_host)(cuda::CUstream stream, cuda::CUhostFn function,
                                void* data){nullptr};
  cuda::CUresult (*mem_alloc)(cuda::CUdeviceptr* pointer, std::size_t bytes){nullptr};

  /// Loads both, makes the primary context of device 0 current.
  static Nccl load();
  [[nodiscard]] cuda::CUstream make_stream() const;
  /// Device memory with a copy of `from` in it; never freed.
  [[nodiscard]] std::byte* device_copy(std::span<const std::byte> from) const;
};

/// One rank of a test, in its process.
class Rank {
 public:
  Rank(int own_rank, int rank_count, std::vector<int> read_ends, std::vector<int> write_ends)
      : rank(own_rank),
        ranks(rank_count),
        read_ends_(std::move(read_ends)),
        write_ends_(std::move(write_ends)) {}

  const int rank, ranks;
  Nccl nccl{};
  ncclComm_t comm{nullptr};
  cuda::CUstream stream{nullptr};

  /// Loads the libraries.
  void load();
  /// Rank 0 makes an id, all get it.
  [[nodiscard]] ncclUniqueId share_id();
  /// load(), then a communicator of all ranks and a stream; fatal failures end the process.
  void join();
  /// Waits for the stream; gives the communicator's error.
  [[nodiscard]] ncclResult_t finish();
  /// The text of the communicator's last error.
  [[nodiscard]] std::string last_error() const { return nccl.ncclGetLastError(comm); }

  /// Bytes to another rank and from any other, without the library under test.
  void send(int peer, std::span<const std::byte> bytes) const;
  void hear(std::span<std::byte> into) const;
  /// Waits until all ranks are here.
  void meet() const;

 private:
  std::vector<int> read_ends_, write_ends_;
};

/// The exit status that `run_ranks` takes for a failure, and for signal `n`: kKilled + n.
inline constexpr int kKilled = 128;

/// Runs `body` as every one of `ranks` ranks, each in a process with the variables set; gives their
/// exit statuses: 0 if no expectation failed. A rank that takes longer than ten minutes is killed.
[[nodiscard]] std::vector<int> run_ranks(int ranks, const std::function<void(Rank&)>& body,
                                         const std::vector<std::string>& environment = {});

}  // namespace kansoku::softcuda::nccl
