// SPDX-License-Identifier: Apache-2.0
#include "capture/internal/native_symbols.h"

#include <fmt/format.h>

#include <algorithm>

#include "capture/resolve.h"
#include "common/text.h"
#include "sys/elf.h"

namespace kansoku::capture {
namespace {

constexpr Nanos kRereadAfter = std::chrono::seconds{1};  // maps of a process that has new code

}  // namespace

// The functions of one file by address; the file itself is closed again.
struct NativeSymbols::File {
  struct Function {
    std::uint64_t address{0}, end{0};
    std::string name;  // as the trace shows it
  };
  std::vector<Function> functions;
  std::vector<sys::ElfFile::Segment> segments;

  static std::unique_ptr<File> read(const std::string& path) {
    auto out = std::make_unique<File>();
    const auto elf = sys::ElfFile::open(path);
    if (!elf) return out;
    out->segments = (*elf)->load_segments();
    for (const sys::Symbol& symbol : (*elf)->symbols()) {
      if (!symbol.is_function || symbol.address == 0) continue;
      out->functions.push_back({symbol.address, symbol.address + symbol.bytes, symbol.name});
    }
    std::stable_sort(out->functions.begin(), out->functions.end(),
                     [](const auto& a, const auto& b) { return a.address < b.address; });
    return out;
  }

  [[nodiscard]] const Function* at(std::uint64_t file_offset) const {
    for (const auto& segment : segments) {
      if (file_offset < segment.file_offset ||
          file_offset - segment.file_offset >= segment.file_bytes)
        continue;
      const std::uint64_t address = segment.address + (file_offset - segment.file_offset);
      auto after = std::upper_bound(functions.begin(), functions.end(), address,
                                    [](auto value, const auto& f) { return value < f.address; });
      if (after == functions.begin()) return nullptr;
      const Function& found = *--after;
      // A symbol of size 0 (hand-written assembly) reaches to the next one.
      return address < found.end || found.end == found.address ? &found : nullptr;
    }
    return nullptr;
  }
};

NativeSymbols::NativeSymbols(const sys::Procfs& procfs, trace::Writer& writer)
    : procfs_(procfs), writer_(writer) {}
NativeSymbols::~NativeSymbols() = default;

const NativeSymbols::File* NativeSymbols::file_of(std::int32_t pid, const sys::Mapping& mapping) {
  if (mapping.inode == 0 || mapping.path.empty() || mapping.path[0] != '/') return nullptr;
  const FileKey key{mapping.device_major, mapping.device_minor, mapping.inode};
  if (const auto found = files_.find(key); found != files_.end()) return found->second.get();
  if (files_.size() >= kFilesMax) return nullptr;
  return files_.emplace(key, File::read(procfs_.through_root(pid, mapping.path)))
      .first->second.get();
}

const sys::Mapping* NativeSymbols::mapping_of(Process& process, std::int32_t pid,
                                              std::uint64_t address, BootTime now) {
  const auto find = [&]() -> const sys::Mapping* {
    const auto after =
        std::upper_bound(process.code.begin(), process.code.end(), address,
                         [](std::uint64_t value, const auto& m) { return value < m.begin; });
    if (after == process.code.begin()) return nullptr;
    return address < std::prev(after)->end ? &*std::prev(after) : nullptr;
  };
  if (const auto* found = find(); found != nullptr) return found;
  if (process.is_read && now - process.read_at < kRereadAfter) return nullptr;
  auto maps = procfs_.maps(pid);
  process.read_at = now;
  process.is_read = true;
  if (!maps) return nullptr;
  process.code = std::move(maps).value();
  std::erase_if(process.code, [](const auto& m) { return !m.executable; });
  process.known.clear();  // a library may have gone, and another come to its place
  return find();
}

trace::FrameHandle NativeSymbols::frame(Process& process, std::int32_t pid, std::uint64_t address,
                                        BootTime now) {
  if (const auto known = process.known.find(address); known != process.known.end())
    return known->second;
  const sys::Mapping* mapping = mapping_of(process, pid, address, now);
  const File* file = mapping == nullptr ? nullptr : file_of(pid, *mapping);
  const File::Function* function =
      file == nullptr ? nullptr : file->at(address - mapping->begin + mapping->file_offset);
  trace::FrameHandle handle;
  if (function != nullptr) {
    const std::string name = sys::demangle(function->name);
    handle = writer_.frame(bare_name(name), mapping->path, 0);
  } else {
    ++unnamed_;
    const bool has_file = mapping != nullptr && !mapping->path.empty();
    handle = has_file
                 ? writer_.frame(fmt::format("[{}]", base_name(mapping->path)), mapping->path, 0)
                 : writer_.frame("[unknown code]", "", 0);
  }
  if (process.known.size() >= kAddressesMax) process.known.clear();
  process.known.emplace(address, handle);
  return handle;
}

trace::StackHandle NativeSymbols::stack(std::int32_t pid, std::span<const std::uint64_t> addresses,
                                        BootTime now) {
  Process& process = processes_[pid];
  frames_.clear();
  for (std::size_t i = addresses.size(); i-- > 0;) {
    // A return address may lie behind the last instruction of a function that ends in a call.
    const std::uint64_t address = i == 0 ? addresses[i] : addresses[i] - 1;
    frames_.push_back(frame(process, pid, address, now));
  }
  return writer_.stack(frames_);
}

const std::string* NativeSymbols::function_at(Process& process, std::int32_t pid,
                                              std::uint64_t address, BootTime now) {
  const sys::Mapping* mapping = mapping_of(process, pid, address, now);
  const File* file = mapping == nullptr ? nullptr : file_of(pid, *mapping);
  const File::Function* function =
      file == nullptr ? nullptr : file->at(address - mapping->begin + mapping->file_offset);
  return function == nullptr ? nullptr : &function->name;
}

std::string NativeSymbols::text(std::int32_t pid, std::span<const std::uint64_t> addresses,
                                BootTime now, std::size_t frames_max) {
  Process& process = processes_[pid];
  std::string out;
  std::size_t count = 0;
  for (std::size_t i = 0; i < addresses.size() && count < frames_max; ++i) {
    const std::uint64_t address = i == 0 ? addresses[i] : addresses[i] - 1;
    const std::string* name = function_at(process, pid, address, now);
    if (name == nullptr) {
      ++unnamed_;
      continue;
    }
    const std::string plain = sys::demangle(*name);
    out += (out.empty() ? "" : " < ") + std::string(bare_name(plain));
    ++count;
  }
  return out;
}

}  // namespace kansoku::capture
