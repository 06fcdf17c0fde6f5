// SPDX-License-Identifier: Apache-2.0
#include "cli/gpu/gpu_image.h"

#include <fmt/format.h>

#include "cuda/fatbin.h"
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

}  // namespace

Result<std::vector<GpuImage>> read_images(const std::string& path) {
  TRY(const auto text, sys::read_file(path, kGpuFileBytesMax));
  if (text.starts_with("\x50\xed\x55\xba")) return images_of(path, as_bytes(text));
  if (text.starts_with("\x7f"
                       "ELF")) {
    TRY(const auto elf, sys::ElfFile::open(path));
    const auto section = elf->section(".nv_fatbin");
    if (!section || section->bytes == 0)
      return Error{Code::kNotFound, fmt::format("read {}: an executable without GPU code", path)};
    const auto bytes = elf->bytes_at(section->address, section->bytes);
    return images_of(path, bytes);
  }
  GpuImage image;
  image.kind = "ptx";
  image.compression = "none";
  image.bytes = text.size();
  image.text = text.substr(0, text.find('\0'));  // an image in memory ends with a zero byte
  return std::vector<GpuImage>{std::move(image)};
}

Result<gpu::ptx::Module> parse_image(const std::string& path, std::string_view text) {
  auto module = gpu::ptx::parse_module(text);
  if (!module) return in_file(path, module.error());
  const auto problems = gpu::ptx::verify(*module);
  if (problems.empty()) return module;
  return Error{Code::kCorrupt, fmt::format("read {}: line {}: {}", path, problems[0].place.line,
                                           problems[0].message)};
}

Result<gpu::ptx::Module> load_gpu_module(const std::string& path) {
  TRY(const auto images, read_images(path));
  const GpuImage* best = nullptr;
  for (const GpuImage& image : images) {
    if (image.kind == "ptx" && (best == nullptr || image.architecture > best->architecture))
      best = &image;
  }
  if (best == nullptr)
    return Error{Code::kNotFound, fmt::format("read {}: machine code only, no PTX", path),
                 "the software device executes PTX: compile with code=compute_80"};
  return parse_image(path, best->text);
}

}  // namespace kansoku::cli
