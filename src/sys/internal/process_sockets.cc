// SPDX-License-Identifier: Apache-2.0
#include "sys/internal/process_sockets.h"

#include <dirent.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <array>
#include <string_view>

#include "common/parse.h"

namespace kansoku::sys {
namespace {

constexpr std::size_t kDescriptorsMax = 65536;

/// "socket:[12345]"
std::optional<std::uint32_t> socket_inode(std::string_view link) {
  constexpr std::string_view kBegin = "socket:[";
  if (!link.starts_with(kBegin) || !link.ends_with(']')) return std::nullopt;
  return parse_int<std::uint32_t>(link.substr(kBegin.size(), link.size() - kBegin.size() - 1));
}

}  // namespace

std::vector<ProcessSocket> process_sockets(int process_folder) {
  std::vector<ProcessSocket> out;
  const int at = ::openat(process_folder, "fd", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (at < 0) return out;
  DIR* const listing = ::fdopendir(at);
  if (listing == nullptr) {
    ::close(at);
    return out;
  }
  std::array<char, 64> link{};
  for (std::size_t seen = 0; seen < kDescriptorsMax; ++seen) {
    const dirent* const entry = ::readdir(listing);
    if (entry == nullptr) break;
    const ssize_t bytes = ::readlinkat(at, &entry->d_name[0], link.data(), link.size());
    if (bytes <= 0) continue;
    const auto inode = socket_inode({link.data(), static_cast<std::size_t>(bytes)});
    const auto number = parse_int<int>(std::string_view(&entry->d_name[0]));
    if (inode && number) out.push_back({*number, *inode});
  }
  ::closedir(listing);
  return out;
}

Fd duplicate_descriptor(int process_handle, int descriptor) {
  const auto raw = static_cast<int>(::syscall(SYS_pidfd_getfd, process_handle, descriptor, 0));
  return raw < 0 ? Fd() : Fd::adopt(raw);
}

std::optional<tcp_info> tcp_info_of(int socket) {
  tcp_info info{};
  socklen_t bytes = sizeof info;
  if (::getsockopt(socket, IPPROTO_TCP, TCP_INFO, &info, &bytes) != 0) return std::nullopt;
  return info;
}

}  // namespace kansoku::sys
