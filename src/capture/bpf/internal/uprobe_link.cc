// SPDX-License-Identifier: Apache-2.0
#include "capture/bpf/internal/uprobe_link.h"

#include <fmt/format.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>

namespace kansoku::capture::bpf {
namespace {

constexpr int kBpfLinkCreate = 28;
constexpr std::uint32_t kMultiReturn = 1;

// union bpf_attr, member link_create with uprobe_multi, as far as the kernel of 6.6 defines it.
struct LinkCreate {
  std::uint32_t program, target, attach_type, flags;
  std::uint64_t path, offsets, semaphore_offsets, cookies;
  std::uint32_t count, multi_flags, pid, pad;
};
static_assert(sizeof(LinkCreate) == 64);

std::uint64_t address_of(const void* p) {
  return reinterpret_cast<std::uint64_t>(p);
}

}  // namespace

Result<sys::Fd> create_multi_link(int program, std::uint32_t attach_type, const std::string& path,
                                  std::span<const UprobeSpec> specs, bool at_return,
                                  std::uint32_t pid) {
  std::vector<std::uint64_t> offsets;
  std::vector<std::uint64_t> semaphores;
  std::vector<std::uint64_t> cookies;
  for (const UprobeSpec& spec : specs) {
    offsets.push_back(spec.file_offset);
    semaphores.push_back(spec.semaphore_offset);
    cookies.push_back(spec.cookie);
  }
  const bool has_semaphores =
      std::any_of(semaphores.begin(), semaphores.end(), [](std::uint64_t s) { return s != 0; });
  LinkCreate request{};
  request.program = static_cast<std::uint32_t>(program);
  request.attach_type = attach_type;
  request.path = address_of(path.c_str());
  request.offsets = address_of(offsets.data());
  request.semaphore_offsets = has_semaphores ? address_of(semaphores.data()) : 0;
  request.cookies = address_of(cookies.data());
  request.count = static_cast<std::uint32_t>(specs.size());
  request.multi_flags = at_return ? kMultiReturn : 0;
  request.pid = pid;
  const long fd = ::syscall(SYS_bpf, kBpfLinkCreate, &request, sizeof(request));
  if (fd < 0) {
    Error error = errno_error(errno, fmt::format("attach {} uprobes to", specs.size()), path);
    error.hint = "needs CAP_BPF and CAP_PERFMON; `kansoku doctor` shows what is missing";
    return error;
  }
  return sys::Fd::adopt(static_cast<int>(fd));
}

}  // namespace kansoku::capture::bpf
