// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <utility>

#include "common/bytes.h"
#include "common/result.h"

namespace kansoku::sys {

/// Owns one file descriptor, closed on destruction. Every descriptor is opened close-on-exec.
/// Move-only.
class Fd {
 public:
  Fd() = default;  // owns nothing
  /// Takes over `raw` (>= 0), a descriptor that somebody else opened.
  [[nodiscard]] static Fd adopt(int raw) { return Fd(raw); }
  [[nodiscard]] static Result<Fd> open_read(const std::string& path);
  /// Opens a path that others control: never waits (a FIFO, a terminal); kUnsupported if it is no
  /// regular file.
  [[nodiscard]] static Result<Fd> open_regular(const std::string& untrusted_path);

  Fd(Fd&& o) noexcept : raw_(std::exchange(o.raw_, -1)) {}
  Fd& operator=(Fd&& o) noexcept {
    Fd tmp(std::move(o));
    std::swap(raw_, tmp.raw_);
    return *this;
  }
  Fd(const Fd&) = delete;
  Fd& operator=(const Fd&) = delete;
  ~Fd();

  [[nodiscard]] int raw() const { return raw_; }
  /// Gives the descriptor up without closing it.
  [[nodiscard]] int release() { return std::exchange(raw_, -1); }
  [[nodiscard]] bool is_open() const { return raw_ >= 0; }

 private:
  explicit Fd(int raw) : raw_(raw) {}
  int raw_{-1};
};

/// The whole of a small file (/proc, configuration); kLimit if it holds more than `bytes_max`. May
/// block.
[[nodiscard]] Result<std::string> read_file(const std::string& path, std::size_t bytes_max);

/// Up to the first `bytes` of a regular file, which tell its format; kUnsupported for any other
/// kind of file.
[[nodiscard]] Result<std::string> read_begin(const std::string& path, std::size_t bytes);

/// A read-only mapping of a whole file. Move-only. Reading it may raise SIGBUS if the file is
/// truncated meanwhile, so it is for files that only we write; use read_file for others'.
class MappedFile {
 public:
  [[nodiscard]] static Result<MappedFile> open(const std::string& path);
  MappedFile(MappedFile&& o) noexcept
      : data_(std::exchange(o.data_, nullptr)), bytes_(std::exchange(o.bytes_, 0)) {}
  MappedFile& operator=(MappedFile&& o) noexcept {
    MappedFile tmp(std::move(o));
    std::swap(data_, tmp.data_);
    std::swap(bytes_, tmp.bytes_);
    return *this;
  }
  MappedFile(const MappedFile&) = delete;
  MappedFile& operator=(const MappedFile&) = delete;
  ~MappedFile();
  [[nodiscard]] ByteSpan bytes() const { return {static_cast<const std::byte*>(data_), bytes_}; }

 private:
  MappedFile(void* data, std::size_t bytes) : data_(data), bytes_(bytes) {}
  void* data_{nullptr};
  std::size_t bytes_{0};
};

/// Appends to a file of mode 0600, a pipe or a device. A failed append cuts a file back to its last
/// whole append, so earlier appends stay readable.
class FileSink final : public ByteSink {
 public:
  /// Treatment of a line without its end in a file that is appended to: its writer was killed.
  enum class TornLine { kKeep, kEnd, kCut };
  struct Options {
    bool overwrite{false};                // false: kUnsupported if the file exists
    std::uint64_t bytes_max{UINT64_MAX};  // an append beyond it fails with kLimit
    bool append{false};                   // goes on behind its content; that file keeps its mode
    TornLine torn_line{TornLine::kKeep};
  };
  [[nodiscard]] static Result<std::unique_ptr<FileSink>> create(const std::string& path,
                                                                Options options);
  [[nodiscard]] Result<void> append(ByteSpan bytes) override;
  /// Forces the file to disk. May block.
  [[nodiscard]] Result<void> finish();
  [[nodiscard]] std::uint64_t bytes_written() const { return offset_; }
  /// True if it is a regular file with nothing in it: new, or emptied by a log rotation.
  [[nodiscard]] bool is_empty() const;

 private:
  FileSink(Fd fd, std::string path, Options options, std::uint64_t offset, bool is_regular)
      : fd_(std::move(fd)),
        path_(std::move(path)),
        options_(options),
        offset_(offset),
        is_regular_(is_regular) {}
  [[nodiscard]] Result<void> mend_torn_line();
  Fd fd_;
  std::string path_;
  Options options_;
  std::uint64_t offset_{0};
  bool is_regular_{true};  // false: a pipe or a device, which has no offsets
};

/// Writes a whole file of mode 0600, replacing an old one in one step (temporary file and rename).
[[nodiscard]] Result<void> write_file(const std::string& path, std::string_view content);

}  // namespace kansoku::sys
