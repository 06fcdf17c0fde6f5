// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <fmt/format.h>

#include <cstddef>
#include <cstdint>
#include <protozero/exception.hpp>
#include <protozero/pbf_reader.hpp>
#include <string_view>
#include <utility>
#include <vector>

#include "common/bytes.h"
#include "common/result.h"
#include "trace/internal/deflate.h"
#include "trace/internal/schema.h"

// The packets of an untrusted file, compressed ones opened.
namespace kansoku::trace {

/// A packet that claims more is damage, not a torn tail.
inline constexpr std::uint64_t kPacketBytesMax = 64U << 20;

// Walks the packets of a file or of an inflated chunk: tag 0x0a, length, body.
class PacketCursor {
 public:
  explicit PacketCursor(std::string_view bytes) : bytes_(bytes) {}

  enum class Step { kPacket, kEnd, kTorn, kBad };
  Step next(protozero::data_view& packet) {
    packet_offset_ = offset_;
    if (offset_ == bytes_.size()) return Step::kEnd;
    const auto tag = static_cast<unsigned char>(bytes_[offset_]);
    if (tag != (schema::file::kPacket << 3 | 2)) return Step::kBad;
    const char* at = bytes_.data() + offset_ + 1;
    const char* end = bytes_.data() + bytes_.size();
    std::uint64_t length = 0;
    try {
      length = protozero::decode_varint(&at, end);
    } catch (const protozero::end_of_buffer_exception&) {
      return Step::kTorn;
    } catch (const protozero::exception&) {
      return Step::kBad;
    }
    if (length > kPacketBytesMax) return Step::kBad;
    if (length > static_cast<std::uint64_t>(end - at)) return Step::kTorn;
    packet = protozero::data_view(at, static_cast<std::size_t>(length));
    offset_ = static_cast<std::size_t>(at - bytes_.data()) + static_cast<std::size_t>(length);
    return Step::kPacket;
  }
  [[nodiscard]] std::size_t packet_offset() const { return packet_offset_; }

 private:
  std::string_view bytes_;
  std::size_t offset_{0};
  std::size_t packet_offset_{0};
};

struct WalkedPackets {
  std::size_t whole_bytes{0};  // up to the end of the last whole packet
  bool is_torn{false};         // the file ends inside a packet
};

/// Hands each packet of a file to `OnPacket`, a callable of data_view that gives Result<void> and
/// may throw protozero's exceptions. kCorrupt names the offset of broken bytes.
template <class OnPacket>
class PacketWalker {
 public:
  PacketWalker(std::uint64_t inflated_bytes_max, OnPacket on_packet)
      : inflated_bytes_max_(inflated_bytes_max), on_packet_(std::move(on_packet)) {}

  Result<WalkedPackets> walk(ByteSpan untrusted) {
    PacketCursor cursor(as_text(untrusted));
    protozero::data_view packet;
    for (;;) {
      const auto step = cursor.next(packet);
      if (step == PacketCursor::Step::kEnd) return WalkedPackets{untrusted.size(), false};
      if (step == PacketCursor::Step::kBad)
        return corrupt(cursor.packet_offset(), "not a trace packet");
      if (step == PacketCursor::Step::kTorn) {
        if (cursor.packet_offset() == 0) return corrupt(0, "shorter than its first packet");
        return WalkedPackets{cursor.packet_offset(), true};
      }
      TRY_VOID(one_packet(packet, cursor.packet_offset()));
    }
  }

 private:
  static Error corrupt(std::size_t offset, std::string_view what) {
    return {Code::kCorrupt, fmt::format("read trace at offset {}: {}", offset, what)};
  }

  // The compressed packets inside a packet, or an empty view.
  static protozero::data_view compressed_part(protozero::data_view packet) {
    protozero::pbf_reader reader(packet);
    while (
        reader.next(schema::packet::kCompressedPackets, protozero::pbf_wire_type::length_delimited))
      return reader.get_view();
    return {};
  }

  Result<void> one_packet(protozero::data_view packet, std::size_t offset) {
    try {
      const protozero::data_view compressed = compressed_part(packet);
      if (compressed.data() == nullptr) return on_packet_(packet);
      return chunk(compressed, offset);
    } catch (const protozero::exception& damage) {
      return corrupt(offset, fmt::format("damaged packet ({})", damage.what()));
    }
  }

  Result<void> chunk(protozero::data_view compressed, std::size_t offset) {
    const ByteSpan bytes = as_bytes(std::string_view(compressed.data(), compressed.size()));
    if (auto inflated = inflate(bytes, inflated_bytes_max_, inflated_); !inflated) {
      return Error{inflated.error().code,
                   fmt::format("read trace at offset {}: {}", offset, inflated.error().what)};
    }
    PacketCursor cursor(as_text(inflated_));
    protozero::data_view packet;
    for (;;) {
      const auto step = cursor.next(packet);
      if (step == PacketCursor::Step::kEnd) return {};
      const std::size_t inner = cursor.packet_offset();
      if (step != PacketCursor::Step::kPacket) {
        return corrupt(offset, fmt::format("damage {} bytes into the compressed packets", inner));
      }
      try {
        TRY_VOID(on_packet_(packet));
      } catch (const protozero::exception& damage) {
        return corrupt(
            offset, fmt::format("damaged packet {} bytes into the compressed packets ({})", inner,
                                damage.what()));
      }
    }
  }

  std::uint64_t inflated_bytes_max_;
  OnPacket on_packet_;
  std::vector<std::byte> inflated_;
};

}  // namespace kansoku::trace
