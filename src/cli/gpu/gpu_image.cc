// SPDX-License-Identifier: Apache-2.0
#include "cli/gpu/gpu_image.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>

#include "cuda/fatbin.h"
#include "gpu/ptx/origin.h"
#include "gpu/ptx/parser.h"
#include "gpu/ptx/verifier.h"
#include "sys/elf.h"
#include "sys/fd.h"

namespace kansoku::cli {
namespace {

Error in_file(const std::string& path, Error error) {
  error.what = fmt::format("read {}: {}", path, error.what);
  return error;
}

Result<std::vector<GpuImage>> images_of(const std::string& path, ByteSpan fatbin) {
  const auto entries = cuda::read_fatbin(fatbin);
  if (!entries) return in_file(path, entries.error());
  std::vector<GpuImage> images;
  for (const cuda::FatbinEntry& entry : *entries) {
    GpuImage image;
    image.kind = entry.kind == cuda::FatbinEntry::Kind::kPtx   ? "ptx"
                 : entry.kind == cuda::FatbinEntry::Kind::kElf ? "machine code"
                                                               : "other";
    image.compression = cuda::compression_name(entry.compression);
    image.architecture = entry.architecture;
    image.bytes = entry.payload.size();
    if (entry.kind == cuda::FatbinEntry::Kind::kPtx) {
      auto text = cuda::unpack(entry);
      if (!text) return in_file(path, text.error());
      image.text = std::move(*text);
    }
    images.push_back(std::move(image));
  }
  return images;
}

/// Contents of a file for a GPU, as they stand there.
struct Held {
  enum class Kind : std::uint8_t { kPtx, kFatbins, kMachineCode };
  Kind kind{Kind::kPtx};
  std::string bytes;
  std::uint64_t file_bytes{0};
};

constexpr std::size_t kElfMachineAt = 18;  // in the header of every ELF file, 2 bytes
constexpr std::uint16_t kElfMachineCuda = 190;

bool is_machine_code(std::string_view elf) {
  std::uint16_t machine = 0;
  if (elf.size() < kElfMachineAt + sizeof machine) return false;
  std::memcpy(&machine, elf.data() + kElfMachineAt, sizeof machine);
  return machine == kElfMachineCuda;
}

Result<Held> read_held(const std::string& path) {
  TRY(auto text, sys::read_file(path, kGpuFileBytesMax));
  Held held;
  held.file_bytes = text.size();
  if (text.starts_with("\x50\xed\x55\xba")) {
    held.kind = Held::Kind::kFatbins;
    held.bytes = std::move(text);
  } else if (text.starts_with("\x7f"
                              "ELF") &&
             is_machine_code(text)) {
    held.kind = Held::Kind::kMachineCode;
    held.bytes = std::move(text);
  } else if (text.starts_with("\x7f"
                              "ELF")) {
    TRY(const auto elf, sys::ElfFile::open(path));
    const auto section = elf->section(".nv_fatbin");
    if (!section || section->bytes == 0)
      return Error{Code::kNotFound, fmt::format("read {}: an executable without GPU code", path)};
    held.kind = Held::Kind::kFatbins;
    held.bytes = as_text(elf->bytes_at(section->address, section->bytes));
  } else {
    text.resize(std::min(text.size(), text.find('\0')));  // an image in memory ends with a zero
    held.bytes = std::move(text);
  }
  return held;
}

}  // namespace

Result<gpu::ptx::Module> parse_image(const std::string& path, std::string_view text) {
  auto module = gpu::ptx::parse_module(text);
  if (!module) return in_file(path, module.error());
  const auto problems = gpu::ptx::verify(*module);
  if (problems.empty()) return module;
  return Error{Code::kCorrupt, fmt::format("read {}: line {}: {}", path, problems[0].place.line,
                                           problems[0].message)};
}

Result<std::vector<GpuImage>> read_images(const std::string& path) {
  TRY(const auto held, read_held(path));
  if (held.kind == Held::Kind::kFatbins) return images_of(path, as_bytes(held.bytes));
  GpuImage image;
  image.kind = held.kind == Held::Kind::kPtx ? "ptx" : "machine code";
  image.compression = "none";
  image.bytes = held.file_bytes;
  if (held.kind == Held::Kind::kPtx) image.text = held.bytes;
  return std::vector<GpuImage>{std::move(image)};
}

Result<std::string> software_ptx(const std::string& path) {
  TRY(auto images, read_images(path));
  GpuImage* best = nullptr;
  for (GpuImage& image : images) {
    if (image.kind == "ptx" && (best == nullptr || image.architecture > best->architecture))
      best = &image;
  }
  if (best == nullptr)
    return Error{Code::kNotFound, fmt::format("read {}: machine code only, no PTX", path),
                 "the software device executes PTX: compile with code=compute_80"};
  if (const auto origin = gpu::ptx::check_origin(best->text); !origin)
    return in_file(path, origin.error());
  return std::move(best->text);
}

Result<std::vector<std::string>> driver_images(const std::string& path) {
  TRY(auto held, read_held(path));
  std::vector<std::string> images;
  if (held.kind != Held::Kind::kFatbins) {
    images.push_back(std::move(held.bytes));
    return images;
  }
  const auto containers = cuda::fatbin_containers(as_bytes(held.bytes));
  if (!containers) return in_file(path, containers.error());
  for (const ByteSpan container : *containers)
    images.emplace_back(as_text(container));
  return images;
}

}  // namespace kansoku::cli
