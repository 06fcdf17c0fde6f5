// SPDX-License-Identifier: Apache-2.0
#include "trace/reader.h"

#include <fmt/format.h>

#include <protozero/exception.hpp>
#include <protozero/pbf_reader.hpp>

#include "trace/internal/decoder.h"
#include "trace/internal/deflate.h"
#include "trace/internal/schema.h"

namespace kansoku::trace {
namespace {

using protozero::data_view;
using protozero::pbf_reader;
using protozero::pbf_wire_type;

constexpr std::uint64_t kPacketBytesMax =
    64U << 20;  // a packet that claims more is damage, not a torn tail

Error corrupt(std::size_t offset, std::string_view what) {
  return {Code::kCorrupt, fmt::format("read trace at offset {}: {}", offset, what)};
}

std::string_view view_of(ByteSpan bytes) {
  return as_text(bytes);
}

// Walks the packets of a file or of an inflated chunk: tag 0x0a, length, body.
class PacketCursor {
 public:
  explicit PacketCursor(std::string_view bytes) : bytes_(bytes) {}

  enum class Step { kPacket, kEnd, kTorn, kBad };
  Step next(data_view& packet) {
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
    packet = data_view(at, static_cast<std::size_t>(length));
    offset_ = static_cast<std::size_t>(at - bytes_.data()) + static_cast<std::size_t>(length);
    return Step::kPacket;
  }
  [[nodiscard]] std::size_t packet_offset() const { return packet_offset_; }

 private:
  std::string_view bytes_;
  std::size_t offset_{0};
  std::size_t packet_offset_{0};
};

// The compressed packets inside a packet, or an empty view.
data_view compressed_part(data_view packet) {
  pbf_reader reader(packet);
  while (reader.next(schema::packet::kCompressedPackets, pbf_wire_type::length_delimited))
    return reader.get_view();
  return {};
}

class FileReader {
 public:
  FileReader(Trace& trace, const ReadOptions& options)
      : options_(options), decoder_(trace, options) {}

  Result<void> read(ByteSpan untrusted) {
    PacketCursor cursor(view_of(untrusted));
    data_view packet;
    for (;;) {
      const auto step = cursor.next(packet);
      if (step == PacketCursor::Step::kEnd) break;
      if (step == PacketCursor::Step::kBad)
        return corrupt(cursor.packet_offset(), "not a trace packet");
      if (step == PacketCursor::Step::kTorn) {
        if (cursor.packet_offset() == 0) return corrupt(0, "shorter than its first packet");
        decoder_.count(trace_truncated_tail);
        break;
      }
      TRY_VOID(one_packet(packet, cursor.packet_offset()));
    }
    decoder_.finish();
    return {};
  }

 private:
  Result<void> one_packet(data_view packet, std::size_t offset) {
    try {
      const data_view compressed = compressed_part(packet);
      if (compressed.data() == nullptr) return decoder_.packet(packet);
      return chunk(compressed, offset);
    } catch (const protozero::exception& damage) {
      return corrupt(offset, fmt::format("damaged packet ({})", damage.what()));
    }
  }

  Result<void> chunk(data_view compressed, std::size_t offset) {
    const ByteSpan bytes = as_bytes(std::string_view(compressed.data(), compressed.size()));
    if (auto inflated = inflate(bytes, options_.inflated_chunk_bytes_max, inflated_); !inflated) {
      return Error{inflated.error().code,
                   fmt::format("read trace at offset {}: {}", offset, inflated.error().what)};
    }
    PacketCursor cursor(view_of(inflated_));
    data_view packet;
    for (;;) {
      const auto step = cursor.next(packet);
      if (step == PacketCursor::Step::kEnd) return {};
      const std::size_t inner = cursor.packet_offset();
      if (step != PacketCursor::Step::kPacket) {
        return corrupt(offset, fmt::format("damage {} bytes into the compressed packets", inner));
      }
      try {
        TRY_VOID(decoder_.packet(packet));
      } catch (const protozero::exception& damage) {
        return corrupt(
            offset, fmt::format("damaged packet {} bytes into the compressed packets ({})", inner,
                                damage.what()));
      }
    }
  }

  const ReadOptions& options_;
  PacketDecoder decoder_;
  std::vector<std::byte> inflated_;
};

}  // namespace

Result<Trace> read_trace(ByteSpan untrusted, const ReadOptions& options) {
  if (untrusted.empty()) return corrupt(0, "the file is empty");
  Trace trace;
  FileReader reader(trace, options);
  TRY_VOID(reader.read(untrusted));
  return trace;
}

}  // namespace kansoku::trace
