// SPDX-License-Identifier: Apache-2.0
#include "sys/internal/kept_file.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <cerrno>

namespace kansoku::sys {

Result<KeptFile> KeptFile::open(const std::string& path, int at) {
  const int raw = ::openat(at, path.c_str(), O_RDONLY | O_CLOEXEC);
  if (raw < 0) return errno_error(errno == ESRCH ? ENOENT : errno, "open", path);
  return KeptFile(Fd::adopt(raw), path);
}

Result<KeptFile> KeptFile::open(const std::string& path) {
  return open(path, AT_FDCWD);
}

Result<std::string_view> KeptFile::read(Buffer& buffer) const {
  ssize_t got = 0;
  do {
    got = ::pread(fd_.raw(), buffer.data(), buffer.size(), 0);
  } while (got < 0 && errno == EINTR);
  if (got >= 0) return std::string_view(buffer.data(), static_cast<std::size_t>(got));
  // A process that has ended says ESRCH, a control group that was removed says ENODEV.
  if (errno == ESRCH || errno == ENODEV) return errno_error(ENOENT, "read", path_);
  return errno_error(errno, "read", path_);
}

std::string_view cut_line(std::string_view& text) {
  const std::size_t end = text.find('\n');
  const std::string_view line = text.substr(0, end);
  text.remove_prefix(end == std::string_view::npos ? text.size() : end + 1);
  return line;
}

}  // namespace kansoku::sys
