// SPDX-License-Identifier: Apache-2.0
#include "sys/fd.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdio>

namespace kansoku::sys {

Result<Fd> Fd::open_read(const std::string& path) {
  const int raw = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (raw < 0) return errno_error(errno, "open", path);
  return Fd(raw);
}

Result<Fd> Fd::open_regular(const std::string& untrusted_path) {
  const int raw = ::open(untrusted_path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
  if (raw < 0) return errno_error(errno, "open", untrusted_path);
  Fd fd(raw);
  struct stat info {};
  if (::fstat(raw, &info) != 0) return errno_error(errno, "stat", untrusted_path);
  if (!S_ISREG(info.st_mode)) {
    return Error{Code::kUnsupported, fmt::format("open {}: not a regular file", untrusted_path)};
  }
  return fd;
}

Fd::~Fd() {
  if (raw_ >= 0) ::close(raw_);
}

Result<std::string> read_file(const std::string& path, std::size_t bytes_max) {
  TRY(const Fd fd, Fd::open_read(path));
  std::string text;
  std::array<char, 16384> buffer{};
  for (;;) {
    const ssize_t got = ::read(fd.raw(), buffer.data(), buffer.size());
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return errno_error(errno, "read", path);
    if (got == 0) return text;
    text.append(buffer.data(), static_cast<std::size_t>(got));
    if (text.size() > bytes_max) {
      return Error{Code::kLimit, fmt::format("read {}: more than {} bytes", path, bytes_max)};
    }
  }
}

Result<std::string> read_begin(const std::string& path, std::size_t bytes) {
  TRY(const Fd fd, Fd::open_regular(path));
  std::string text(bytes, '\0');
  const ssize_t got = ::pread(fd.raw(), text.data(), text.size(), 0);
  if (got < 0) return errno_error(errno, "read", path);
  text.resize(static_cast<std::size_t>(got));
  return text;
}

Result<MappedFile> MappedFile::open(const std::string& path) {
  TRY(const Fd fd, Fd::open_read(path));
  struct stat info {};
  if (::fstat(fd.raw(), &info) != 0) return errno_error(errno, "stat", path);
  if (!S_ISREG(info.st_mode)) {
    return Error{Code::kUnsupported, fmt::format("open {}: not a regular file", path)};
  }
  if (info.st_size == 0) return MappedFile(nullptr, 0);
  const auto bytes = static_cast<std::size_t>(info.st_size);
  void* data = ::mmap(nullptr, bytes, PROT_READ, MAP_PRIVATE, fd.raw(), 0);
  if (data == MAP_FAILED) return errno_error(errno, "map", path);
  ::madvise(data, bytes, MADV_SEQUENTIAL);
  return MappedFile(data, bytes);
}

MappedFile::~MappedFile() {
  if (data_ != nullptr) ::munmap(data_, bytes_);
}

namespace {

/// Up to and with the last line feed of the first `bytes` of a file; 0: there is none.
Result<std::uint64_t> bytes_of_whole_lines(const std::string& path, std::uint64_t bytes) {
  TRY(const Fd fd, Fd::open_regular(path));
  std::array<char, 16384> buffer{};
  while (bytes > 0) {
    const std::size_t part = std::min<std::uint64_t>(bytes, buffer.size());
    const ssize_t got = ::pread(fd.raw(), buffer.data(), part, static_cast<off_t>(bytes - part));
    if (got != static_cast<ssize_t>(part)) return errno_error(got < 0 ? errno : EIO, "read", path);
    const std::string_view text(buffer.data(), part);
    if (const auto last = text.rfind('\n'); last != text.npos) return bytes - part + last + 1;
    bytes -= part;
  }
  return std::uint64_t{0};
}

}  // namespace

Result<void> FileSink::mend_torn_line() {
  TRY(const std::uint64_t whole, bytes_of_whole_lines(path_, offset_));
  if (whole == offset_) return {};
  if (options_.torn_line == TornLine::kEnd) return append(as_bytes(std::string_view("\n")));
  if (::ftruncate(fd_.raw(), static_cast<off_t>(whole)) != 0)
    return errno_error(errno, "cut", path_);
  offset_ = whole;
  return {};
}

Result<std::unique_ptr<FileSink>> FileSink::create(const std::string& path, Options options) {
  const int fresh = options.append ? O_APPEND : options.overwrite ? O_TRUNC : O_EXCL;
  const int flags = O_WRONLY | O_CREAT | O_CLOEXEC | fresh;
  const int raw = ::open(path.c_str(), flags, 0600);
  if (raw < 0 && errno == EEXIST) {
    return Error{Code::kUnsupported, fmt::format("create {}: the file exists", path),
                 "choose another name or pass --force"};
  }
  if (raw < 0) return errno_error(errno, "create", path);
  Fd fd = Fd::adopt(raw);
  // An overwritten file keeps its old mode, which may let others read the trace.
  // A device or a pipe keeps its mode: it is everybody's.
  struct stat status {};
  if (::fstat(raw, &status) != 0) return errno_error(errno, "stat", path);
  const bool is_regular = S_ISREG(status.st_mode);
  // One that is continued has the mode that its owner chose.
  if (is_regular && !options.append && ::fchmod(raw, 0600) != 0 && errno != EPERM)
    return errno_error(errno, "set mode of", path);
  const std::uint64_t offset =
      is_regular && options.append ? static_cast<std::uint64_t>(status.st_size) : 0;
  std::unique_ptr<FileSink> sink(new FileSink(std::move(fd), path, options, offset, is_regular));
  if (offset == 0 || options.torn_line == TornLine::kKeep) return sink;
  auto mended = sink->mend_torn_line();
  // A disk that is full now may have room later.
  if (!mended && options.torn_line == TornLine::kCut) return std::move(mended).error();
  return sink;
}

Result<void> FileSink::append(ByteSpan bytes) {
  const bool is_shared = is_regular_ && options_.append;  // others append, rotate or cut it, too
  if (is_shared) {
    struct stat status {};
    if (::fstat(fd_.raw(), &status) != 0) return errno_error(errno, "stat", path_);
    offset_ = static_cast<std::uint64_t>(status.st_size);
  }
  if (offset_ > options_.bytes_max || bytes.size() > options_.bytes_max - offset_) {
    return Error{Code::kLimit,
                 fmt::format("write {}: size limit of {} bytes reached", path_, options_.bytes_max),
                 "raise --max-size"};
  }
  std::size_t done = 0;
  while (done < bytes.size()) {
    const ssize_t put = is_regular_ && !is_shared
                            ? ::pwrite(fd_.raw(), bytes.data() + done, bytes.size() - done,
                                       static_cast<off_t>(offset_ + done))
                            : ::write(fd_.raw(), bytes.data() + done, bytes.size() - done);
    if (put < 0 && errno == EINTR) continue;
    if (put < 0) {
      const Error error = errno_error(errno, "write", path_);
      // Cutting the torn packet off keeps the file so far decodable; if even that fails, readers
      // see a torn tail.
      if (is_regular_ && ::ftruncate(fd_.raw(), static_cast<off_t>(offset_)) != 0) return error;
      return error;
    }
    done += static_cast<std::size_t>(put);
  }
  offset_ += bytes.size();
  return {};
}

bool FileSink::is_empty() const {
  struct stat status {};
  return is_regular_ && ::fstat(fd_.raw(), &status) == 0 && status.st_size == 0;
}

Result<void> FileSink::finish() {
  if (::fsync(fd_.raw()) != 0 && errno != EINVAL) return errno_error(errno, "sync", path_);
  return {};
}

Result<void> write_file(const std::string& path, std::string_view content) {
  // Only a regular file, or none, may be replaced by another one: not a device, pipe or link.
  struct stat status {};
  if (::lstat(path.c_str(), &status) == 0 && !S_ISREG(status.st_mode)) {
    TRY(const auto sink, FileSink::create(path, {.overwrite = true}));
    return sink->append(as_bytes(content));
  }
  const std::string temporary = fmt::format("{}.tmp{}", path, ::getpid());
  {
    TRY(const auto sink, FileSink::create(temporary, {.overwrite = true}));
    if (auto written = sink->append(as_bytes(content)); !written) {
      ::unlink(temporary.c_str());
      return written;
    }
  }
  if (::rename(temporary.c_str(), path.c_str()) != 0) {
    const Error error = errno_error(errno, "rename to", path);
    ::unlink(temporary.c_str());
    return error;
  }
  return {};
}

}  // namespace kansoku::sys
