// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "common/bytes.h"
#include "common/result.h"

namespace kansoku::cuda {

/// How an entry's payload is stored.
enum class Compression : std::uint8_t { kNone, kLz4, kZstd };
/// "zstd"; any thread.
[[nodiscard]] std::string_view compression_name(Compression compression);

/// One image of a fatbin: PTX text, or machine code of one architecture.
struct FatbinEntry {
  enum class Kind : std::uint16_t { kPtx = 1, kElf = 2, kOther = 0 };
  Kind kind{Kind::kPtx};
  std::uint32_t architecture{0};  // 80 for sm_80
  Compression compression{Compression::kNone};
  ByteSpan payload;                     // as stored, within the bytes that were read
  std::uint64_t uncompressed_bytes{0};  // as the header says
};

inline constexpr std::size_t kFatbinEntriesMax = 4096;
inline constexpr std::size_t kImageBytesMax = std::size_t{256} << 20;
inline constexpr std::uint32_t kFatbinMagic = 0xba55ed50;   // of a container
inline constexpr std::uint32_t kWrapperMagic = 0x466243b1;  // of the 24 bytes that point to one

/// Bytes of a container as its header says, the header included, so that one that lies in a
/// process's memory can be measured; kCorrupt if the first 16 bytes are no header.
[[nodiscard]] Result<std::size_t> fatbin_bytes(ByteSpan untrusted_header);

/// The entries of one or several containers that follow each other. kCorrupt with the offset for
/// bytes that are no fatbin; entries of unknown kinds are kept as kOther. Layout: read from files
/// that nvcc 13.0 wrote. Pure; any thread.
[[nodiscard]] Result<std::vector<FatbinEntry>> read_fatbin(ByteSpan untrusted);

/// The same bytes, container by container: a driver loads one at a time. Pure; any thread.
[[nodiscard]] Result<std::vector<ByteSpan>> fatbin_containers(ByteSpan untrusted);

/// The payload, decompressed; without the zero that ends PTX text. kCorrupt if it does not
/// decompress to the size in the header, kLimit beyond kImageBytesMax.
[[nodiscard]] Result<std::string> unpack(const FatbinEntry& entry);

/// The PTX text for a device of `architecture` (80): that of the highest architecture that is not
/// above. kNotFound if there is none.
[[nodiscard]] Result<std::string> best_ptx(const std::vector<FatbinEntry>& entries,
                                           std::uint32_t architecture);

/// A container with one PTX text.
struct PtxImage {
  std::string_view text;
  std::uint32_t architecture{80};
};
[[nodiscard]] Result<std::string> write_fatbin(const std::vector<PtxImage>& images,
                                               Compression compression);

}  // namespace kansoku::cuda
