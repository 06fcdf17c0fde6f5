// SPDX-License-Identifier: Apache-2.0
#include "capture/internal/group_objects.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <string_view>
#include <tuple>

#include "sys/elf.h"
#include "sys/process_memory.h"

namespace kansoku::capture {
namespace {

constexpr std::string_view kLibrary = "/libtorch_cpu.so";
constexpr std::string_view kFunctions = "_ZTVN4c10d16ProcessGroupGlooE";
/// An object points behind the two words with which the table of its functions begins.
constexpr std::uint64_t kTableHead = 16;
constexpr std::size_t kObjectBytes = 32;
constexpr std::uint64_t kBytesMax = std::uint64_t{2} << 30, kMappingBytesMax = 256U << 20;
constexpr std::size_t kChunkBytes = 4U << 20;
constexpr std::uint64_t kOwnersMax = 1U << 20;
constexpr std::size_t kGroupsMax = 256;  // of a process

template <class T>
T at_offset(ByteSpan bytes, std::size_t offset) {
  T out{};
  std::memcpy(&out, bytes.data() + offset, sizeof out);
  return out;
}

bool may_hold_objects(const sys::Mapping& mapping) {
  return mapping.writable && mapping.readable &&
         (mapping.path.empty() || mapping.path == "[heap]" || mapping.path.starts_with("[anon"));
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
  const auto [known, is_new] = functions_.try_emplace(key);
  if (!is_new) return known->second;
  const auto file = sys::ElfFile::open(procfs_.map_file(pid, mapping));
  if (file) known->second = (*file)->exported_address(kFunctions);
  return known->second;
}

void GroupObjects::search(std::int32_t pid, const sys::Mapping& mapping, std::uint64_t functions,
                          std::vector<GroupSeat>& out) {
  buffer_.resize(kChunkBytes);
  for (std::uint64_t at = mapping.begin; at < mapping.end; at += kChunkBytes) {
    const std::size_t wanted = std::min<std::uint64_t>(kChunkBytes, mapping.end - at);
    const std::size_t got = sys::read_process_memory(pid, at, std::span(buffer_).first(wanted));
    for (std::size_t i = 0; i + sizeof functions <= got; i += sizeof functions) {
      if (at_offset<std::uint64_t>(buffer_, i) != functions) continue;
      std::array<std::byte, kObjectBytes> object{};
      if (sys::read_process_memory(pid, at + i, object) != object.size()) continue;
      const auto place = group_place(object);
      if (place && out.size() < kGroupsMax)
        out.push_back({pid, at + i, place->first, place->second});
    }
    if (got < wanted) break;  // holes of an arena that it has not touched yet
  }
}

std::vector<GroupSeat> GroupObjects::of(std::int32_t pid) {
  const auto mappings = procfs_.maps(pid);
  if (!mappings) return {};
  const auto library = std::find_if(
      mappings->begin(), mappings->end(),
      [](const sys::Mapping& mapping) { return mapping.path.find(kLibrary) != std::string::npos; });
  if (library == mappings->end()) return {};
  const auto functions = functions_of(pid, *library);
  if (!functions) return {};
  // The first mapping of a library is its beginning, whose address in the file is 0.
  const std::uint64_t wanted = library->begin - library->file_offset + *functions + kTableHead;
  std::vector<GroupSeat> out;
  std::uint64_t left = kBytesMax;
  for (const sys::Mapping& mapping : *mappings) {
    if (!may_hold_objects(mapping)) continue;
    const std::uint64_t bytes = mapping.end - mapping.begin;
    if (bytes > kMappingBytesMax || bytes > left) {
      unsearched_bytes_ += bytes;
      continue;
    }
    left -= bytes;
    search(pid, mapping, wanted, out);
  }
  return out;
}

std::vector<GroupSeat> without_inherited(const std::map<std::int32_t, SeatsOfProcess>& processes,
                                         std::vector<GroupSeat> fresh) {
  std::erase_if(fresh, [&](GroupSeat seat) {
    const auto own = processes.find(seat.pid);
    if (own == processes.end()) return true;  // gone meanwhile
    const auto parent = processes.find(own->second.parent_pid);
    if (parent == processes.end()) return false;
    seat.pid = parent->first;
    const std::vector<GroupSeat>& above = parent->second.seats;
    return std::find(above.begin(), above.end(), seat) != above.end();
  });
  return fresh;
}

void GroupObjectSource::inspect(const Observed& process, BootTime /*now*/) {
  const std::int32_t pid = process.facts.pid;
  const auto [known, is_new] = processes_.try_emplace(pid);
  if (!is_new) return;
  known->second = {process.facts.parent_pid, objects_.of(pid)};
  fresh_.insert(fresh_.end(), known->second.seats.begin(), known->second.seats.end());
}

std::set<std::int32_t> GroupObjectSource::take_communicating() {
  std::set<std::int32_t> out;
  for (const GroupSeat& seat : without_inherited(processes_, fresh_))
    out.insert(seat.pid);
  return out;
}

std::vector<GroupSeat> GroupObjectSource::take_seats() {
  return without_inherited(processes_, std::exchange(fresh_, {}));
}

void GroupObjectSource::add_losses(Losses& out) const {
  out.add(capture_memory_not_searched, objects_.unsearched_bytes() >> 20);
}

}  // namespace kansoku::capture
