// SPDX-License-Identifier: Apache-2.0
#include "capture/internal/group_objects.h"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <string_view>
#include <utility>

#include "sys/elf.h"
#include "sys/memory_search.h"
#include "sys/process_memory.h"

namespace kansoku::capture {
namespace {

constexpr std::string_view kLibrary = "/libtorch_cpu.so";
constexpr std::string_view kFunctions = "_ZTVN4c10d16ProcessGroupGlooE";
/// An object points behind the two words with which the table of its functions begins.
constexpr std::uint64_t kTableHead = 16;
constexpr std::size_t kObjectBytes = 32;
constexpr std::uint64_t kOwnersMax = 1U << 20;
constexpr std::size_t kCandidatesMax = 4096;  // of a process

template <class T>
T at_offset(ByteSpan bytes, std::size_t offset) {
  T out{};
  std::memcpy(&out, bytes.data() + offset, sizeof out);
  return out;
}

}  // namespace

std::optional<std::pair<std::int32_t, std::int32_t>> group_place(ByteSpan untrusted) {
  if (untrusted.size() < kObjectBytes) return std::nullopt;
  const auto owners = at_offset<std::uint64_t>(untrusted, 8),
             watchers = at_offset<std::uint64_t>(untrusted, 16);
  const bool in_two_words =
      owners >= 1 && owners <= kOwnersMax && watchers >= 1 && watchers <= kOwnersMax;
  const bool in_one_word =
      (owners & UINT32_MAX) >= 1 && (owners & UINT32_MAX) <= kOwnersMax && (owners >> 32) != 0;
  if (!in_two_words && !in_one_word) return std::nullopt;
  const std::size_t offset = in_two_words ? 24 : 16;
  const auto rank = at_offset<std::int32_t>(untrusted, offset),
             size = at_offset<std::int32_t>(untrusted, offset + 4);
  if (rank < 0 || rank >= size || size > static_cast<std::int32_t>(kGroupSizeMax))
    return std::nullopt;
  return std::pair(rank, size);
}

std::optional<std::uint64_t> GroupObjects::functions_of(std::int32_t pid,
                                                        const sys::Mapping& mapping) {
  const FileKey key{mapping.device_major, mapping.device_minor, mapping.inode};
  if (const auto known = functions_.find(key); known != functions_.end()) return known->second;
  auto file = sys::ElfFile::open(procfs_.map_file(pid, mapping));
  // The former takes a capability that the owner of a job does not have.
  if (!file) file = sys::ElfFile::open(procfs_.through_root(pid, mapping.path));
  if (!file) return std::nullopt;
  return functions_.emplace(key, (*file)->exported_address(kFunctions)).first->second;
}

bool GroupObjects::search_chunk(ByteSpan untrusted, std::uint64_t address, Search& search,
                                std::vector<GroupSeat>& out) {
  for (std::size_t i = 0; i + sizeof search.functions <= untrusted.size();
       i += sizeof search.functions) {
    if (at_offset<std::uint64_t>(untrusted, i) != search.functions) continue;
    if (search.candidates_left == 0) return false;
    --search.candidates_left;
    std::array<std::byte, kObjectBytes> object{}, of_parent{};
    if (sys::read_process_memory(search.pid, address + i, object) != object.size()) continue;
    const auto place = group_place(object);
    if (!place) continue;
    const bool is_inherited =
        sys::read_process_memory(search.parent_pid, address + i, of_parent) == of_parent.size() &&
        at_offset<std::uint64_t>(of_parent, 0) == search.functions &&
        group_place(of_parent) == place;
    if (!is_inherited) out.push_back({search.pid, address + i, place->first, place->second});
  }
  return true;
}

std::vector<GroupSeat> GroupObjects::of(std::int32_t pid, std::int32_t parent_pid) {
  const auto mappings = procfs_.maps(pid);
  if (!mappings) return {};
  const auto library = std::find_if(
      mappings->begin(), mappings->end(),
      [](const sys::Mapping& mapping) { return mapping.path.find(kLibrary) != std::string::npos; });
  if (library == mappings->end()) return {};
  const auto functions = functions_of(pid, *library);
  if (!functions) return {};
  // The first mapping of a library is its beginning, whose address in the file is 0.
  Search search{.pid = pid,
                .parent_pid = parent_pid,
                .functions = library->begin - library->file_offset + *functions + kTableHead,
                .candidates_left = kCandidatesMax};
  std::vector<GroupSeat> out;
  unsearched_bytes_ +=
      sys::search_memory(pid, *mappings, [&](ByteSpan untrusted, std::uint64_t address) {
        return search_chunk(untrusted, address, search, out);
      });
  return out;
}

GroupObjectSource::GroupObjectSource(const sys::Procfs& procfs, BootTime now)
    : objects_(procfs),
      began_ticks_(
          static_cast<std::uint64_t>(1e-9 * static_cast<double>(now.time_since_epoch().count()) *
                                     static_cast<double>(::sysconf(_SC_CLK_TCK)))) {}

void GroupObjectSource::inspect(const Observed& process, BootTime /*now*/) {
  const std::int32_t pid = process.facts.pid;
  if (process.facts.start_ticks >= began_ticks_ || !searched_.insert(pid).second) return;
  for (const GroupSeat& seat : objects_.of(pid, process.facts.parent_pid))
    seats_.push_back(seat);
}

std::vector<GroupSeat> GroupObjectSource::take_seats() {
  return std::exchange(seats_, {});
}

void GroupObjectSource::add_losses(Losses& out) const {
  out.add(capture_memory_not_searched, objects_.unsearched_bytes() >> 20);
}

}  // namespace kansoku::capture
