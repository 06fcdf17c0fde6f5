// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstddef>
#include <string>
#include <string_view>

#include "common/result.h"
#include "sys/fd.h"

namespace kansoku::sys {

/// A small file of /proc or /sys that is read again and again with one pread each. The open file is
/// bound to the process or control group that it was opened for: when that is gone reads fail, even
/// if its number or name is used again. Move-only.
class KeptFile {
 public:
  static constexpr std::size_t kBytesMax = 4096;
  using Buffer = std::array<char, kBytesMax>;

  KeptFile() = default;  // no file
  /// `path` is relative to the folder `at`, or to the working folder if that is AT_FDCWD.
  [[nodiscard]] static Result<KeptFile> open(const std::string& path, int at);
  [[nodiscard]] static Result<KeptFile> open(const std::string& path);
  /// Present content, cut after kBytesMax; lives in `buffer`. kNotFound if the process or group is
  /// gone.
  [[nodiscard]] Result<std::string_view> read(Buffer& buffer) const;
  [[nodiscard]] bool is_open() const { return fd_.is_open(); }

 private:
  KeptFile(Fd fd, std::string path) : fd_(std::move(fd)), path_(std::move(path)) {}
  Fd fd_;
  std::string path_;
};

/// Cuts the first line off `text`.
[[nodiscard]] std::string_view cut_line(std::string_view& text);

}  // namespace kansoku::sys
