// SPDX-License-Identifier: Apache-2.0
#include "sys/process_memory.h"

#include <sys/uio.h>

#include <algorithm>
#include <cerrno>

namespace kansoku::sys {

std::size_t read_process_memory(std::int32_t pid, std::uint64_t address,
                                std::span<std::byte> into) {
  const iovec local{into.data(), into.size()};
  const iovec remote{reinterpret_cast<void*>(address), into.size()};
  const ssize_t got = ::process_vm_readv(pid, &local, 1, &remote, 1, 0);
  return got < 0 ? 0 : static_cast<std::size_t>(got);
}

bool has_memory(std::int32_t pid) {
  // Nothing lies at 0: a process that lives refuses the address, one that has ended is not found.
  char byte = 0;
  const iovec local{&byte, 1}, remote{nullptr, 1};
  return ::process_vm_readv(pid, &local, 1, &remote, 1, 0) >= 0 || errno != ESRCH;
}

std::string read_process_text(std::int32_t pid, std::uint64_t address, std::size_t bytes_max) {
  constexpr std::uint64_t kPage = 4096;
  std::string out;
  // Up to the end of a page at a time: behind it there may be nothing.
  while (out.size() < bytes_max) {
    const std::uint64_t at = address + out.size();
    const std::size_t wanted = std::min<std::size_t>(bytes_max - out.size(), kPage - at % kPage);
    std::string part(wanted, '\0');
    const std::size_t got =
        read_process_memory(pid, at, std::as_writable_bytes(std::span(part.data(), part.size())));
    const std::size_t end = std::string_view(part).substr(0, got).find('\0');
    if (end != std::string::npos) return out.append(part, 0, end);
    if (got < wanted) return {};
    out += part;
  }
  return {};
}

}  // namespace kansoku::sys
