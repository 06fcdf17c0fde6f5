// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <utility>

#include "common/result.h"
#include "softcuda/nccl/abi.h"

namespace kansoku::softcuda::nccl {

/// Success, or a result of the interface and its reason, as ncclGetLastError gives it.
class [[nodiscard]] Status {
 public:
  Status() = default;
  Status(ncclResult_t result, std::string text) : result_(result), text_(std::move(text)) {}
  /// An outside failure: the network is ncclRemoteError, this host ncclSystemError.
  // NOLINTNEXTLINE(google-explicit-constructor)
  Status(const Error& error) : result_(result_of(error.code)), text_(error.what) {}

  [[nodiscard]] bool is_ok() const { return result_ == ncclSuccess; }
  [[nodiscard]] ncclResult_t result() const { return result_; }
  [[nodiscard]] const std::string& text() const { return text_; }

 private:
  static ncclResult_t result_of(Code code) {
    switch (code) {
      case Code::kUnavailable:
      case Code::kTimeout:
      case Code::kCorrupt:
        return ncclRemoteError;
      case Code::kUnsupported:
        return ncclInvalidUsage;
      case Code::kInternal:
        return ncclInternalError;
      default:
        return ncclSystemError;
    }
  }
  ncclResult_t result_{ncclSuccess};
  std::string text_;
};

/// `KANSOKU_NCCL_TRY(check());` returns a Status that is not a success.
#define KANSOKU_NCCL_TRY(...)                                                                   \
  do {                                                                                          \
    if (auto nccl_try_status = (__VA_ARGS__); !nccl_try_status.is_ok()) return nccl_try_status; \
  } while (false)

}  // namespace kansoku::softcuda::nccl
