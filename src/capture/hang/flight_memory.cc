// SPDX-License-Identifier: Apache-2.0
#include "capture/hang/flight_memory.h"

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstring>
#include <set>
#include <span>
#include <string_view>
#include <utility>

#include "common/parse.h"
#include "sys/clock.h"
#include "sys/memory_search.h"
#include "sys/process_memory.h"

namespace kansoku::capture::hang {
namespace {

constexpr std::string_view kLibrary = "/libtorch_cpu.so";
constexpr std::uint64_t kMostEntries = 2000;  // unless the environment says another number
constexpr std::uint64_t kMostEntriesMax = 1U << 20;
constexpr std::size_t kTextMax = 256, kSizesMax = 64, kGroupsMax = 1024, kGroupRanksMax = 1U << 16;
constexpr std::size_t kEntriesReadMax = 20'000;
constexpr std::size_t kCandidatesMax = 4096;

// FlightRecorder<c10::Event> of 2.15, printed by offsetof from its package's headers, x86-64.
namespace head {
constexpr std::size_t kEnabled = 0, kEntries = 48, kMostEntriesAt = 72, kNext = 80, kMade = 88,
                      kGroups = 208, kBytes = 296;
constexpr std::size_t kTreeRoot = kGroups + 16;  // of a std::map of libstdc++
}  // namespace head
// Its Entry.
namespace entry {
constexpr std::size_t kId = 0, kGroupId = 16, kDescription = 24, kGroup = 56, kCollectiveSeq = 88,
                      kP2pSeq = 96, kOpId = 104, kName = 112, kCreated = 176, kTimeout = 184,
                      kIsP2p = 192, kInputDims = 240, kOutputDims = 312, kSizes = 384,
                      kRetired = 504, kBytes = 512;
}  // namespace entry
// A node of that map: colour, parent, left, right, then key (description, name) and value.
namespace node {
constexpr std::size_t kLeft = 16, kRight = 24, kDescription = 32, kName = 64, kRanks = 96,
                      kBytes = 120;
}  // namespace node

template <class T>
T word_at(ByteSpan bytes, std::size_t offset) {
  T out{};
  std::memcpy(&out, bytes.data() + offset, sizeof out);
  return out;
}

/// Memory of one process, a part of which was read before.
class Memory {
 public:
  explicit Memory(std::int32_t pid) : pid_(pid) {}
  void keep(std::uint64_t address, ByteSpan bytes) {
    address_ = address;
    bytes_ = bytes;
  }
  [[nodiscard]] bool read(std::uint64_t address, std::span<std::byte> into) const {
    if (address >= address_ && address - address_ <= bytes_.size() &&
        into.size() <= bytes_.size() - (address - address_)) {
      std::memcpy(into.data(), bytes_.data() + (address - address_), into.size());
      return true;
    }
    return sys::read_process_memory(pid_, address, into) == into.size();
  }
  /// A std::string of libstdc++ at `offset` of `object`; nothing if it is none.
  [[nodiscard]] std::optional<std::string> text(ByteSpan object, std::size_t offset) const {
    const auto length = word_at<std::uint64_t>(object, offset + 8);
    if (length > kTextMax) return std::nullopt;
    std::string out(length, '\0');
    if (!read(word_at<std::uint64_t>(object, offset), std::as_writable_bytes(std::span(out))))
      return std::nullopt;
    return out;
  }
  /// A c10::SmallVector of int64 there: a pointer, then how many there are.
  [[nodiscard]] std::optional<std::vector<std::int64_t>> numbers(ByteSpan object,
                                                                 std::size_t offset) const {
    const auto count = word_at<std::uint32_t>(object, offset + 8);
    if (count > kSizesMax) return std::nullopt;
    std::vector<std::int64_t> out(count);
    if (!read(word_at<std::uint64_t>(object, offset), std::as_writable_bytes(std::span(out))))
      return std::nullopt;
    return out;
  }

 private:
  std::int32_t pid_;
  std::uint64_t address_{0};
  ByteSpan bytes_;
};

std::optional<FlightCall> call_of(ByteSpan untrusted, const Memory& memory, std::uint64_t made) {
  FlightCall out;
  out.id = word_at<std::uint64_t>(untrusted, entry::kId);
  const auto group = memory.text(untrusted, entry::kGroup);
  const auto description = memory.text(untrusted, entry::kDescription);
  const auto name = memory.text(untrusted, entry::kName);
  out.created_ns = word_at<std::int64_t>(untrusted, entry::kCreated);
  if (out.id >= made || !group || !description || !name || name->empty() || out.created_ns <= 0)
    return std::nullopt;
  out.group = *group;
  out.description = *description;
  out.name = *name;
  out.group_id = word_at<std::uint64_t>(untrusted, entry::kGroupId);
  out.collective_seq = word_at<std::uint64_t>(untrusted, entry::kCollectiveSeq);
  out.p2p_seq = word_at<std::uint64_t>(untrusted, entry::kP2pSeq);
  out.op_id = word_at<std::uint64_t>(untrusted, entry::kOpId);
  out.timeout_ms = word_at<std::int64_t>(untrusted, entry::kTimeout);
  out.is_p2p = word_at<std::uint8_t>(untrusted, entry::kIsP2p) != 0;
  out.is_retired = word_at<std::uint8_t>(untrusted, entry::kRetired) != 0;
  // Sizes are a help, and may have been moved since.
  out.input_dims =
      memory.numbers(untrusted, entry::kInputDims).value_or(std::vector<std::int64_t>());
  out.output_dims =
      memory.numbers(untrusted, entry::kOutputDims).value_or(std::vector<std::int64_t>());
  out.sizes = memory.numbers(untrusted, entry::kSizes).value_or(std::vector<std::int64_t>());
  return out;
}

void read_calls(std::int32_t pid, const FlightHead& head, FlightMemory& out) {
  const std::uint64_t count = std::min<std::uint64_t>(head.entry_count, kEntriesReadMax);
  std::vector<std::byte> bytes(count * entry::kBytes);
  const std::size_t got = sys::read_process_memory(pid, head.entries_begin, bytes);
  Memory memory(pid);
  memory.keep(head.entries_begin, ByteSpan(bytes).first(got));
  for (std::size_t at = 0; at + entry::kBytes <= got; at += entry::kBytes) {
    if (auto call = call_of(ByteSpan(bytes).subspan(at, entry::kBytes), memory, head.made))
      out.calls.push_back(std::move(*call));
    else
      ++out.bad_calls;
  }
  out.bad_calls += head.entry_count - got / entry::kBytes;
  std::sort(out.calls.begin(), out.calls.end(),
            [](const FlightCall& a, const FlightCall& b) { return a.id < b.id; });
}

void read_groups(std::int32_t pid, const FlightHead& head, FlightMemory& out) {
  const Memory memory(pid);
  std::vector<std::uint64_t> open{head.groups_root};
  std::set<std::uint64_t> seen;
  while (!open.empty() && seen.size() < kGroupsMax) {
    const std::uint64_t address = open.back();
    open.pop_back();
    std::array<std::byte, node::kBytes> bytes{};
    if (address == 0 || !seen.insert(address).second || !memory.read(address, bytes)) continue;
    open.push_back(word_at<std::uint64_t>(bytes, node::kLeft));
    open.push_back(word_at<std::uint64_t>(bytes, node::kRight));
    const auto name = memory.text(bytes, node::kName);
    const auto description = memory.text(bytes, node::kDescription);
    const auto begin = word_at<std::uint64_t>(bytes, node::kRanks);
    const auto end = word_at<std::uint64_t>(bytes, node::kRanks + 8);
    if (!name || !description || end < begin || (end - begin) / 8 > kGroupRanksMax) continue;
    std::vector<std::uint64_t> ranks((end - begin) / 8);
    if (!memory.read(begin, std::as_writable_bytes(std::span(ranks)))) continue;
    FlightGroup group{*name, *description, {}};
    for (const std::uint64_t rank : ranks)
      if (rank <= kGroupRanksMax) group.ranks.push_back(static_cast<std::int32_t>(rank));
    if (group.ranks.size() == ranks.size()) out.groups.push_back(std::move(group));
  }
}

/// As the process was told to keep.
std::uint64_t most_entries_of(const sys::Procfs& procfs, std::int32_t pid) {
  const auto environment = procfs.environ(pid);
  if (!environment) return kMostEntries;
  for (const char* const name : {"TORCH_FR_BUFFER_SIZE", "TORCH_NCCL_TRACE_BUFFER_SIZE"})
    if (const auto found = environment->find(name); found != environment->end())
      return parse_int<std::uint64_t>(found->second).value_or(kMostEntries);
  return kMostEntries;
}

}  // namespace

std::size_t flight_head_bytes() {
  return head::kBytes;
}

std::optional<FlightHead> flight_head(ByteSpan untrusted, std::uint64_t most_entries) {
  if (untrusted.size() < head::kBytes) return std::nullopt;
  const auto begin = word_at<std::uint64_t>(untrusted, head::kEntries),
             end = word_at<std::uint64_t>(untrusted, head::kEntries + 8),
             room = word_at<std::uint64_t>(untrusted, head::kEntries + 16),
             made = word_at<std::uint64_t>(untrusted, head::kMade),
             next = word_at<std::uint64_t>(untrusted, head::kNext);
  const bool is_vector = begin != 0 && begin % 8 == 0 && begin < end && end <= room &&
                         (end - begin) % entry::kBytes == 0 && (room - begin) % entry::kBytes == 0;
  const std::uint64_t count = is_vector ? (end - begin) / entry::kBytes : 0;
  if (word_at<std::uint8_t>(untrusted, head::kEnabled) != 1 || !is_vector ||
      word_at<std::uint64_t>(untrusted, head::kMostEntriesAt) != most_entries ||
      count > most_entries || made < count || next > most_entries)
    return std::nullopt;
  return FlightHead{begin, count, made, word_at<std::uint64_t>(untrusted, head::kTreeRoot)};
}

FlightMemory read_flight_object(std::int32_t pid, const FlightHead& head) {
  FlightMemory out;
  out.read_ns = sys::wall_time_ns();
  read_calls(pid, head, out);
  read_groups(pid, head, out);
  return out;
}

std::optional<FlightMemory> read_flight_memory(const sys::Procfs& procfs, std::int32_t pid) {
  const auto mappings = procfs.maps(pid);
  const std::uint64_t most = most_entries_of(procfs, pid);
  if (!mappings || most == 0 || most > kMostEntriesMax ||
      std::none_of(mappings->begin(), mappings->end(), [](const sys::Mapping& mapping) {
        return mapping.path.find(kLibrary) != std::string::npos;
      }))
    return std::nullopt;
  std::optional<FlightMemory> out;
  std::size_t candidates_left = kCandidatesMax;
  (void)sys::search_memory(pid, *mappings, [&](ByteSpan untrusted, std::uint64_t address) {
    for (std::size_t i = 0; i + 8 <= untrusted.size(); i += 8) {
      if (word_at<std::uint64_t>(untrusted, i) != most || address + i < head::kMostEntriesAt)
        continue;
      if (candidates_left == 0) return false;
      --candidates_left;
      std::array<std::byte, head::kBytes> object{};
      const std::uint64_t begin = address + i - head::kMostEntriesAt;
      if (sys::read_process_memory(pid, begin, object) != object.size()) continue;
      const auto found = flight_head(object, most);
      if (!found) continue;
      FlightMemory memory = read_flight_object(pid, *found);
      // Another object that has such numbers by chance has no such calls.
      if (memory.calls.empty() || memory.bad_calls > memory.calls.size()) continue;
      out = std::move(memory);
      return false;
    }
    return true;
  });
  return out;
}

}  // namespace kansoku::capture::hang
