// SPDX-License-Identifier: Apache-2.0
#include "gpu/exec/internal/observe/access_recorder.h"

namespace kansoku::gpu::exec {
namespace {

void append(std::vector<Memory::Range>& ranges, std::uint64_t address) {
  if (!ranges.empty() && ranges.back().end == address) {
    ++ranges.back().end;
  } else {
    ranges.push_back({address, address + 1});
  }
}

}  // namespace

AccessRecorder::Page& AccessRecorder::page_of(std::uint64_t address) {
  const std::uint64_t number = address / kPageBytes;
  if (number != last_number_) {
    auto& page = pages_[number];
    if (page == nullptr) page = std::make_unique<Page>();
    last_ = page.get();
    last_number_ = number;
  }
  return *last_;
}

void AccessRecorder::load(std::uint64_t address, std::uint32_t bytes) {
  for (std::uint32_t i = 0; i < bytes; ++i) {
    Page& page = page_of(address + i);
    const std::size_t at = (address + i) % kPageBytes;
    page.read.set(at);
    if (!page.written.test(at)) page.read_first.set(at);
  }
}

void AccessRecorder::store(std::uint64_t address, std::uint32_t bytes) {
  for (std::uint32_t i = 0; i < bytes; ++i)
    page_of(address + i).written.set((address + i) % kPageBytes);
}

void AccessRecorder::merge(const AccessRecorder& other) {
  for (const auto& [number, page] : other.pages_) {
    Page& mine = page_of(number * kPageBytes);
    // Which worker came first is open: what either read before writing it itself counts, and so
    // does what one read and the other wrote.
    mine.read_first |= page->read_first | (mine.read & page->written) | (page->read & mine.written);
    mine.read |= page->read;
    mine.written |= page->written;
  }
}

AccessSets AccessRecorder::sets() const {
  AccessSets sets;
  for (const auto& [number, page] : pages_) {
    for (std::uint64_t i = 0; i < kPageBytes; ++i) {
      const std::uint64_t address = number * kPageBytes + i;
      if (page->read.test(i)) append(sets.read, address);
      if (page->written.test(i)) append(sets.written, address);
      if (page->read_first.test(i)) append(sets.read_first, address);
    }
  }
  return sets;
}

}  // namespace kansoku::gpu::exec
