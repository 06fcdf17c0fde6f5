// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include "common/result.h"
#include "gpu/ptx/ir.h"

namespace kansoku::cli {

/// Something that a file holds for a GPU.
struct GpuImage {
  std::string kind;               // "ptx", "machine code", "other"
  std::string compression;        // "none", "lz4", "zstd"
  std::uint32_t architecture{0};  // 80 for sm_80; 0: a PTX file says it itself
  std::uint64_t bytes{0};         // as stored
  std::string text;               // of PTX
};

inline constexpr std::uint64_t kGpuFileBytesMax = std::uint64_t{1} << 30;

/// The images of a PTX file, a fatbin or an executable (its section .nv_fatbin). kUnsupported if it
/// is none of these, kNotFound if an executable has none.
[[nodiscard]] Result<std::vector<GpuImage>> read_images(const std::string& path);

/// PTX text as a sound module; errors name `path`, line and column.
[[nodiscard]] Result<gpu::ptx::Module> parse_image(const std::string& path, std::string_view text);

/// The PTX of the highest architecture among the images of a file, for the software device:
/// kNotFound without PTX, kUnsupported for PTX that NVIDIA's compilers wrote.
[[nodiscard]] Result<std::string> software_ptx(const std::string& path);

/// Images of a file for a driver: PTX text, machine code (a cubin), or its fatbins one by one, as
/// `Device::load_module` takes them. The driver chooses one that its GPU can run. Errors as
/// read_images.
[[nodiscard]] Result<std::vector<std::string>> driver_images(const std::string& path);

}  // namespace kansoku::cli
