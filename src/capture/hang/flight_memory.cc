// SPDX-License-Identifier: Apache-2.0
#include "capture/hang/flight_memory.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstring>
#include <map>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "common/parse.h"
#include "sys/clock.h"
#include "sys/memory_search.h"
#include "sys/process_memory.h"

namespace kansoku::capture::hang {
namespace {

using trace::import::DumpEntry;
using trace::import::FlightDump;

constexpr std::string_view kLibrary = "/libtorch_cpu.so";
constexpr std::uint64_t kMostEntries = 2000;  // unless the environment says another number
constexpr std::uint64_t kMostEntriesMax = 1U << 20;
constexpr std::size_t kTextMax = 256, kSizesMax = 64, kGroupsMax = 1024, kGroupRanksMax = 1U << 16;
constexpr std::size_t kEntriesReadMax = 20'000;
constexpr std::size_t kCandidatesMax = 4096, kHeadsMax = 16;

// Offsets in FlightRecorder<c10::Event> of PyTorch's packages for x86-64, printed by offsetof from
// their headers; the versions between have the same fields. Of all of them:
namespace head {
constexpr std::size_t kEnabled = 0, kEntries = 48, kMostEntriesAt = 72, kNext = 80, kMade = 88,
                      kBytes = 232;
}  // namespace head
// Its Entry, from its group's id on.
namespace entry {
constexpr std::size_t kGroupId = 0, kDescription = 8, kGroup = 40, kCollectiveSeq = 72,
                      kP2pSeq = 80, kOpId = 88, kName = 96, kCreated = 160, kTimeout = 168,
                      kIsP2p = 176, kInputDims = 224, kOutputDims = 296, kSizes = 368,
                      kRetired = 488, kBytes = 496;
}  // namespace entry
// Since 2.10 entries and recorder count how often it was reset.
struct Layout {
  std::size_t before;  // a group's id in an entry, behind the entry's own
  std::size_t groups;  // in the recorder
  [[nodiscard]] std::size_t entry_bytes() const { return before + entry::kBytes; }
  [[nodiscard]] std::size_t tree_root() const { return groups + 16; }  // of libstdc++'s std::map
};
constexpr std::array kLayouts{Layout{.before = 16, .groups = 208},  // 2.10 to 2.15
                              Layout{.before = 8, .groups = 144}};  // 2.9

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

/// "[[2048, 5120], [8]]", as dumps write the sizes of tensors: of each, how many it has; takes them
/// from the front of `sizes`. Sizes are a help, and may have been moved since.
std::string sizes_text(const std::optional<std::vector<std::int64_t>>& dims,
                       std::span<const std::int64_t>& sizes) {
  std::vector<std::string> tensors;
  for (const std::int64_t dim : dims.value_or(std::vector<std::int64_t>())) {
    const auto count = static_cast<std::size_t>(std::max<std::int64_t>(dim, 0));
    if (count > sizes.size()) return "";
    tensors.push_back(fmt::format("[{}]", fmt::join(sizes.first(count), ", ")));
    sizes = sizes.subspan(count);
  }
  return fmt::format("[{}]", fmt::join(tensors, ", "));
}

/// `untrusted`: an entry from its group's id on.
std::optional<DumpEntry> call_of(ByteSpan untrusted, const Memory& memory) {
  DumpEntry out;
  const auto group = memory.text(untrusted, entry::kGroup);
  const auto description = memory.text(untrusted, entry::kDescription);
  const auto name = memory.text(untrusted, entry::kName);
  out.created_ns = word_at<std::int64_t>(untrusted, entry::kCreated);
  if (!group || !description || !name || name->empty() || out.created_ns <= 0) return std::nullopt;
  out.group_name = *group;
  out.group_description = *description;
  out.name = *name;
  out.local_id = word_at<std::int64_t>(untrusted, entry::kGroupId);
  out.collective_seq = word_at<std::int64_t>(untrusted, entry::kCollectiveSeq);
  out.p2p_seq = word_at<std::int64_t>(untrusted, entry::kP2pSeq);
  out.op_id = word_at<std::int64_t>(untrusted, entry::kOpId);
  out.timeout_ms = word_at<std::int64_t>(untrusted, entry::kTimeout);
  out.is_p2p = word_at<std::uint8_t>(untrusted, entry::kIsP2p) != 0;
  out.is_retired = word_at<std::uint8_t>(untrusted, entry::kRetired) != 0;
  out.state = out.is_retired ? "completed" : "scheduled";
  const auto numbers = memory.numbers(untrusted, entry::kSizes);
  std::span<const std::int64_t> sizes;
  if (numbers) sizes = *numbers;
  out.input_sizes = sizes_text(memory.numbers(untrusted, entry::kInputDims), sizes);
  out.output_sizes = sizes_text(memory.numbers(untrusted, entry::kOutputDims), sizes);
  return out;
}

void read_calls(std::int32_t pid, const FlightHead& head, FlightDump& out) {
  const Layout& layout = kLayouts.at(head.layout);
  const std::size_t each = layout.entry_bytes();
  const std::uint64_t count = std::min<std::uint64_t>(head.entry_count, kEntriesReadMax);
  // Ending before the next one; where those are not all, the rest is at the end of the room.
  const std::uint64_t next = std::min(head.next, head.entry_count);
  const std::uint64_t before = std::min(next, count), behind = count - before;
  std::map<std::uint64_t, DumpEntry> by_number;
  for (const auto& [first, part] :
       {std::pair(next - before, before), std::pair(head.entry_count - behind, behind)}) {
    std::vector<std::byte> bytes(part * each);
    const std::uint64_t address = head.entries_begin + first * each;
    const std::size_t got = sys::read_process_memory(pid, address, bytes);
    Memory memory(pid);
    memory.keep(address, ByteSpan(bytes).first(got));
    for (std::size_t at = 0; at + each <= got; at += each) {
      const ByteSpan untrusted = ByteSpan(bytes).subspan(at, each);
      auto call = call_of(untrusted.subspan(layout.before), memory);
      const auto number = word_at<std::uint64_t>(untrusted, 0);
      if (!call || number >= head.made || !by_number.emplace(number, std::move(*call)).second)
        ++out.bad_entries;
    }
    out.bad_entries += part - got / each;
  }
  for (auto& [number, call] : by_number)
    out.entries.push_back(std::move(call));
}

/// An object that has a recorder's numbers by chance has no such calls.
bool is_recorder(const FlightDump& dump) {
  return !dump.entries.empty() && dump.bad_entries <= dump.entries.size();
}

void read_groups(std::int32_t pid, const FlightHead& head, FlightDump& out) {
  const Memory memory(pid);
  std::vector<std::uint64_t> open{head.groups_root};
  std::set<std::uint64_t> seen;
  std::size_t ranks_left = kGroupRanksMax;  // of all groups
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
    if (!name || !description || end < begin || (end - begin) / 8 > ranks_left) continue;
    std::vector<std::uint64_t> ranks((end - begin) / 8);
    ranks_left -= ranks.size();
    if (!memory.read(begin, std::as_writable_bytes(std::span(ranks)))) continue;
    trace::import::DumpGroup group{*name, *description, {}};
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

std::vector<FlightHead> flight_heads(ByteSpan untrusted, std::uint64_t most_entries) {
  if (untrusted.size() < head::kBytes) return {};
  const auto begin = word_at<std::uint64_t>(untrusted, head::kEntries),
             end = word_at<std::uint64_t>(untrusted, head::kEntries + 8),
             room = word_at<std::uint64_t>(untrusted, head::kEntries + 16),
             made = word_at<std::uint64_t>(untrusted, head::kMade),
             next = word_at<std::uint64_t>(untrusted, head::kNext);
  if (word_at<std::uint8_t>(untrusted, head::kEnabled) != 1 ||
      word_at<std::uint64_t>(untrusted, head::kMostEntriesAt) != most_entries ||
      next > most_entries || begin == 0 || begin % 8 != 0 || begin >= end || end > room)
    return {};
  std::vector<FlightHead> out;
  for (std::size_t i = 0; i < kLayouts.size(); ++i) {
    const std::size_t each = kLayouts.at(i).entry_bytes();
    const std::uint64_t count = (end - begin) / each;
    if ((end - begin) % each == 0 && (room - begin) % each == 0 && count <= most_entries &&
        count <= made)
      out.push_back({i, begin, count, made,
                     word_at<std::uint64_t>(untrusted, kLayouts.at(i).tree_root()), next});
  }
  return out;
}

FlightMemory read_flight_object(std::int32_t pid, const FlightHead& head) {
  FlightMemory out;
  out.read_ns = sys::wall_time_ns();
  read_calls(pid, head, out.dump);
  if (is_recorder(out.dump)) read_groups(pid, head, out.dump);
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
  std::size_t candidates_left = kCandidatesMax, heads_left = kHeadsMax;
  (void)sys::search_memory(pid, *mappings, [&](ByteSpan untrusted, std::uint64_t address) {
    for (std::size_t i = 0; i + 8 <= untrusted.size(); i += 8) {
      if (word_at<std::uint64_t>(untrusted, i) != most || address + i < head::kMostEntriesAt)
        continue;
      if (candidates_left == 0 || heads_left == 0) return false;
      --candidates_left;
      std::array<std::byte, head::kBytes> object{};
      const std::uint64_t begin = address + i - head::kMostEntriesAt;
      if (sys::read_process_memory(pid, begin, object) != object.size()) continue;
      for (const FlightHead& found : flight_heads(object, most)) {
        if (heads_left == 0) return false;
        --heads_left;
        FlightMemory memory = read_flight_object(pid, found);
        if (!is_recorder(memory.dump)) continue;
        out = std::move(memory);
        return false;
      }
    }
    return true;
  });
  return out;
}

}  // namespace kansoku::capture::hang
