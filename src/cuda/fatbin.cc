// SPDX-License-Identifier: Apache-2.0
#include "cuda/fatbin.h"

#include <fmt/format.h>
#include <lz4.h>
#include <zstd.h>

#include <algorithm>
#include <cstring>

namespace kansoku::cuda {
namespace {

constexpr std::size_t kHeaderBytes = 16, kEntryBytes = 64;
constexpr std::uint64_t kFlagLz4 = 0x2000, kFlagZstd = 0x8000, kFlag64Bit = 0x1, kFlagLinux = 0x10;
constexpr std::size_t kPayloadAlign = 8;

template <class T>
T number_at(ByteSpan bytes, std::size_t offset) {
  T value;
  std::memcpy(&value, bytes.data() + offset, sizeof value);
  return value;
}
template <class T>
void put(std::string& out, std::size_t offset, T value) {
  std::memcpy(out.data() + offset, &value, sizeof value);
}

Error corrupt(std::size_t offset, std::string_view why) {
  return Error{Code::kCorrupt, fmt::format("fatbin at byte {}: {}", offset, why)};
}

FatbinEntry::Kind kind_of(std::uint16_t number) {
  switch (number) {
    case 1:
      return FatbinEntry::Kind::kPtx;
    case 2:
      return FatbinEntry::Kind::kElf;
    default:
      return FatbinEntry::Kind::kOther;
  }
}

/// One entry at the begin of `rest`; says how many bytes it takes.
Result<FatbinEntry> read_entry(ByteSpan rest, std::size_t offset, std::size_t& taken) {
  if (rest.size() < kEntryBytes) return corrupt(offset, "an entry is cut off");
  const auto header_bytes = number_at<std::uint32_t>(rest, 4);
  const auto padded_bytes = number_at<std::uint64_t>(rest, 8);
  const auto compressed_bytes = number_at<std::uint32_t>(rest, 16);
  const auto flags = number_at<std::uint64_t>(rest, 40);
  if (header_bytes < kEntryBytes || header_bytes > rest.size())
    return corrupt(offset, "an entry's header has an impossible size");
  if (padded_bytes > rest.size() - header_bytes)
    return corrupt(offset, "an entry is larger than the remaining bytes");
  FatbinEntry entry;
  entry.kind = kind_of(number_at<std::uint16_t>(rest, 0));
  entry.architecture = number_at<std::uint32_t>(rest, 28);
  entry.uncompressed_bytes = number_at<std::uint64_t>(rest, 56);
  std::uint64_t stored = padded_bytes;
  if ((flags & (kFlagLz4 | kFlagZstd)) != 0) {
    entry.compression = (flags & kFlagZstd) != 0 ? Compression::kZstd : Compression::kLz4;
    if (compressed_bytes > padded_bytes)
      return corrupt(offset, "an entry's compressed size is larger than the entry");
    stored = compressed_bytes;
  }
  entry.payload = rest.subspan(header_bytes, stored);
  taken = header_bytes + padded_bytes;
  return entry;
}

Result<std::string> compressed(std::string_view text, Compression compression) {
  std::string out;
  if (compression == Compression::kZstd) {
    out.resize(ZSTD_compressBound(text.size()));
    const std::size_t bytes = ZSTD_compress(out.data(), out.size(), text.data(), text.size(), 3);
    if (ZSTD_isError(bytes) != 0)
      return Error{Code::kInternal, fmt::format("zstd: {}", ZSTD_getErrorName(bytes))};
    out.resize(bytes);
    return out;
  }
  const int bytes_max = static_cast<int>(text.size());
  out.resize(static_cast<std::size_t>(LZ4_compressBound(bytes_max)));
  const int bytes =
      LZ4_compress_default(text.data(), out.data(), bytes_max, static_cast<int>(out.size()));
  if (bytes <= 0) return Error{Code::kInternal, "lz4: nothing was compressed"};
  out.resize(static_cast<std::size_t>(bytes));
  return out;
}

}  // namespace

std::string_view compression_name(Compression compression) {
  switch (compression) {
    case Compression::kNone:
      return "none";
    case Compression::kLz4:
      return "lz4";
    case Compression::kZstd:
      return "zstd";
  }
  return "";
}

Result<std::size_t> fatbin_bytes(ByteSpan untrusted_header) {
  if (untrusted_header.size() < kHeaderBytes ||
      number_at<std::uint32_t>(untrusted_header, 0) != kFatbinMagic)
    return corrupt(0, "no header");
  const auto header = number_at<std::uint16_t>(untrusted_header, 6);
  const auto bytes = number_at<std::uint64_t>(untrusted_header, 8);
  if (header < kHeaderBytes || bytes > kImageBytesMax) return corrupt(0, "an impossible size");
  return header + static_cast<std::size_t>(bytes);
}

Result<std::vector<ByteSpan>> fatbin_containers(ByteSpan untrusted) {
  std::vector<ByteSpan> containers;
  std::size_t at = 0;
  while (untrusted.size() - at >= kHeaderBytes) {
    const ByteSpan rest = untrusted.subspan(at);
    if (number_at<std::uint32_t>(rest, 0) != kFatbinMagic) {
      // Containers are padded to where the next one begins.
      if (at > 0 && number_at<std::uint64_t>(rest, 0) == 0) {
        at += kPayloadAlign;
        continue;
      }
      return corrupt(at, "not a container");
    }
    TRY(const auto bytes, fatbin_bytes(rest));
    if (bytes > rest.size()) return corrupt(at, "the container is cut off");
    containers.push_back(rest.first(bytes));
    at += bytes;
  }
  if (at == 0) return corrupt(0, "no header");
  return containers;
}

Result<std::vector<FatbinEntry>> read_fatbin(ByteSpan untrusted) {
  TRY(const auto containers, fatbin_containers(untrusted));
  std::vector<FatbinEntry> entries;
  for (const ByteSpan container : containers) {
    const auto at = static_cast<std::size_t>(container.data() - untrusted.data());
    std::size_t inside = number_at<std::uint16_t>(container, 6);
    while (inside < container.size()) {
      std::size_t taken = 0;
      TRY(auto entry, read_entry(container.subspan(inside), at + inside, taken));
      if (entries.size() == kFatbinEntriesMax)
        return Error{Code::kLimit, fmt::format("fatbin: more than {} entries", kFatbinEntriesMax)};
      entries.push_back(entry);
      inside += taken;
    }
  }
  return entries;
}

Result<std::string> unpack(const FatbinEntry& entry) {
  std::string out;
  if (entry.compression == Compression::kNone) {
    out = as_text(entry.payload);
  } else {
    if (entry.uncompressed_bytes > kImageBytesMax)
      return Error{Code::kLimit, fmt::format("fatbin: an image of {} bytes: at most {}",
                                             entry.uncompressed_bytes, kImageBytesMax)};
    out.resize(entry.uncompressed_bytes);
    bool is_good = false;
    if (entry.compression == Compression::kZstd) {
      const std::size_t bytes =
          ZSTD_decompress(out.data(), out.size(), entry.payload.data(), entry.payload.size());
      is_good = ZSTD_isError(bytes) == 0 && bytes == out.size();
    } else {
      const int bytes =
          LZ4_decompress_safe(reinterpret_cast<const char*>(entry.payload.data()), out.data(),
                              static_cast<int>(entry.payload.size()), static_cast<int>(out.size()));
      is_good = bytes >= 0 && static_cast<std::size_t>(bytes) == out.size();
    }
    if (!is_good)
      return corrupt(0, fmt::format("a payload does not decompress ({})",
                                    compression_name(entry.compression)));
  }
  if (entry.kind == FatbinEntry::Kind::kPtx) {
    const std::size_t end = out.find('\0');
    if (end != std::string::npos) out.resize(end);
  }
  return out;
}

Result<std::string> best_ptx(const std::vector<FatbinEntry>& entries, std::uint32_t architecture) {
  const FatbinEntry* best = nullptr;
  for (const FatbinEntry& entry : entries) {
    if (entry.kind != FatbinEntry::Kind::kPtx || entry.architecture > architecture) continue;
    if (best == nullptr || entry.architecture > best->architecture) best = &entry;
  }
  if (best == nullptr)
    return Error{
        Code::kNotFound,
        fmt::format("fatbin: no PTX for sm_{} among {} images", architecture, entries.size()),
        "compile with PTX embedded (nvcc -gencode arch=compute_80,code=compute_80)"};
  return unpack(*best);
}

Result<std::string> write_fatbin(const std::vector<PtxImage>& images, Compression compression) {
  std::string out(kHeaderBytes, '\0');
  for (const PtxImage& image : images) {
    if (image.text.size() >= kImageBytesMax) return Error{Code::kLimit, "fatbin: PTX is too large"};
    std::string payload(image.text);
    payload += '\0';
    const std::size_t uncompressed = payload.size();
    std::uint64_t flags = kFlag64Bit | kFlagLinux;
    if (compression != Compression::kNone) {
      TRY(payload, compressed(payload, compression));
      flags |= compression == Compression::kZstd ? kFlagZstd : kFlagLz4;
    }
    const std::size_t padded = (payload.size() + kPayloadAlign - 1) / kPayloadAlign * kPayloadAlign;
    std::string header(kEntryBytes, '\0');
    put<std::uint16_t>(header, 0, 1);
    put<std::uint16_t>(header, 2, 0x0101);
    put<std::uint32_t>(header, 4, kEntryBytes);
    put<std::uint64_t>(header, 8, padded);
    const bool is_compressed = compression != Compression::kNone;
    put<std::uint32_t>(header, 16, is_compressed ? static_cast<std::uint32_t>(payload.size()) : 0);
    put<std::uint16_t>(header, 24, 0);
    put<std::uint16_t>(header, 26, 8);  // PTX 8.0
    put<std::uint32_t>(header, 28, image.architecture);
    put<std::uint64_t>(header, 40, flags);
    put<std::uint64_t>(header, 56, is_compressed ? uncompressed : 0);
    payload.resize(padded, '\0');
    out += header + payload;
  }
  put<std::uint32_t>(out, 0, kFatbinMagic);
  put<std::uint16_t>(out, 4, 1);
  put<std::uint16_t>(out, 6, kHeaderBytes);
  put<std::uint64_t>(out, 8, out.size() - kHeaderBytes);
  return out;
}

}  // namespace kansoku::cuda
