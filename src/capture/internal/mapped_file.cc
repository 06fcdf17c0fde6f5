// SPDX-License-Identifier: Apache-2.0
#include "capture/internal/mapped_file.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <condition_variable>
#include <mutex>
#include <optional>
#include <thread>
#include <utility>

#include "common/text.h"

namespace kansoku::capture {
namespace {

constexpr std::string_view kDeleted = " (deleted)";

bool is_deleted(std::string_view path) {
  return path.size() > kDeleted.size() && path.ends_with(kDeleted);
}

/// By the types that mountinfo tells: file systems in user space, and of the network.
bool may_not_answer(std::string_view type) {
  static constexpr std::array<std::string_view, 11> kTypes{
      "fuse", "nfs", "nfs4", "cifs", "smb3", "ceph", "9p", "lustre", "gpfs", "beegfs", "afs"};
  const std::string_view family = type.substr(0, type.find('.'));
  return family == "fuseblk" || std::find(kTypes.begin(), kTypes.end(), family) != kTypes.end();
}

Result<sys::Fd> open_now(const sys::Procfs& procfs, std::int32_t pid, const sys::Mapping& mapping) {
  // A file that was replaced under a running process is still there, behind its mapping.
  return sys::Fd::open_regular(is_deleted(mapping.path) ? procfs.map_file(pid, mapping)
                                                        : procfs.through_root(pid, mapping.path));
}

/// Reads the parts of a library that resolving functions reads, so that it is found in memory next
/// time. Its code contributes the pages that the job runs.
void read_tables(const sys::Fd& file, const sys::ElfFile::Limits& limits) {
  const auto elf = sys::ElfFile::open(fmt::format("/proc/self/fd/{}", file.raw()), limits);
  if (!elf) return;
  static_cast<void>((*elf)->symbols().size());
  static_cast<void>((*elf)->usdt_probes().size());
}

}  // namespace

std::string library_name(std::string_view mapped_path) {
  if (is_deleted(mapped_path)) mapped_path.remove_suffix(kDeleted.size());
  return std::string(base_name(mapped_path));
}

struct MappedFiles::Answer {
  std::mutex mutex;
  std::condition_variable has_come;
  std::optional<Result<sys::Fd>> file;
};

Result<sys::Fd> MappedFiles::open(std::int32_t pid, const sys::Mapping& mapping) {
  const Key key{mapping.device_major, mapping.device_minor, mapping.inode, pid};
  if (const auto waiting = waiting_.find(key); waiting != waiting_.end())
    return take(waiting, Nanos{});
  return may_not_answer(procfs_.file_system(pid, mapping.device_major, mapping.device_minor))
             ? ask(pid, mapping)
             : open_now(procfs_, pid, mapping);
}

Result<sys::Fd> MappedFiles::ask(std::int32_t pid, const sys::Mapping& mapping) {
  // Drops answers for a process that nobody asks for any more.
  if (waiting_.size() >= kWaitingMax)
    std::erase_if(waiting_, [](const auto& one) {
      const std::lock_guard lock(one.second->mutex);
      return one.second->file.has_value();
    });
  if (waiting_.size() >= kWaitingMax)
    return Error{Code::kTimeout, "open: other file systems do not answer"};
  auto answer = std::make_shared<Answer>();
  const Key key{mapping.device_major, mapping.device_minor, mapping.inode, pid};
  const auto waiting = waiting_.emplace(key, answer).first;
  // It may never return: it owns everything that it uses.
  std::thread([answer, procfs = procfs_, limits = limits_, pid, mapping] {
    auto file = open_now(procfs, pid, mapping);
    if (file) read_tables(*file, limits);
    const std::lock_guard lock(answer->mutex);
    answer->file.emplace(std::move(file));
    answer->has_come.notify_all();
  }).detach();
  return take(waiting, kPatience);
}

Result<sys::Fd> MappedFiles::take(std::map<Key, std::shared_ptr<Answer>>::iterator waiting,
                                  Nanos patience) {
  const std::shared_ptr<Answer> answer = waiting->second;
  std::unique_lock lock(answer->mutex);
  answer->has_come.wait_for(lock, patience, [&] { return answer->file.has_value(); });
  if (!answer->file) return Error{Code::kTimeout, "open: its file system does not answer"};
  waiting_.erase(waiting);
  return std::move(*answer->file);
}

}  // namespace kansoku::capture
