// SPDX-License-Identifier: Apache-2.0
#include "capture/internal/stub_names.h"

#include <algorithm>
#include <vector>

#include "capture/outside/stub.h"
#include "sys/elf.h"

namespace kansoku::capture {

// Its functions by address; "" where more than one name lies.
struct StubNames::File {
  std::unordered_map<std::uint64_t, std::string> functions;
  std::vector<sys::ElfFile::Segment> segments;

  static std::unique_ptr<File> read(const std::string& path) {
    auto out = std::make_unique<File>();
    const auto elf = sys::ElfFile::open(path);
    if (!elf) return out;
    out->segments = (*elf)->load_segments();
    for (const sys::Symbol& symbol : (*elf)->symbols()) {
      if (!symbol.is_function || symbol.address == 0) continue;
      const std::string kernel = outside::kernel_of_stub(symbol.name);
      const auto [known, is_new] = out->functions.try_emplace(symbol.address, kernel);
      if (!is_new && known->second != kernel) known->second.clear();
    }
    return out;
  }

  [[nodiscard]] std::optional<std::string> at(std::uint64_t file_offset) const {
    for (const auto& segment : segments) {
      if (file_offset < segment.file_offset ||
          file_offset - segment.file_offset >= segment.file_bytes)
        continue;
      const auto found = functions.find(segment.address + (file_offset - segment.file_offset));
      if (found == functions.end() || found->second.empty()) return std::nullopt;
      return found->second;
    }
    return std::nullopt;
  }
};

StubNames::StubNames(const sys::Procfs& procfs) : procfs_(procfs) {}
StubNames::~StubNames() = default;

std::optional<std::string> StubNames::name_at(std::int32_t pid, std::uint64_t address) {
  const auto maps = procfs_.maps(pid);
  if (!maps) return std::nullopt;
  const auto mapping = std::find_if(maps->begin(), maps->end(), [&](const sys::Mapping& one) {
    return one.executable && address >= one.begin && address < one.end;
  });
  if (mapping == maps->end() || mapping->inode == 0 || !mapping->path.starts_with('/'))
    return std::nullopt;
  const FileKey key{mapping->device_major, mapping->device_minor, mapping->inode};
  auto file = files_.find(key);
  if (file == files_.end()) {
    if (files_.size() >= kFilesMax) return std::nullopt;
    file = files_.emplace(key, File::read(procfs_.through_root(pid, mapping->path))).first;
  }
  return file->second->at(address - mapping->begin + mapping->file_offset);
}

}  // namespace kansoku::capture
