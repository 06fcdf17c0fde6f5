// SPDX-License-Identifier: Apache-2.0
#include "trace/reader.h"

#include "trace/internal/decoder.h"
#include "trace/internal/packet_walk.h"

namespace kansoku::trace {

Result<Trace> read_trace(ByteSpan untrusted, const ReadOptions& options) {
  if (untrusted.empty()) return Error{Code::kCorrupt, "read trace at offset 0: the file is empty"};
  Trace trace;
  PacketDecoder decoder(trace, options);
  PacketWalker walker(options.inflated_chunk_bytes_max,
                      [&](protozero::data_view packet) { return decoder.packet(packet); });
  TRY(const WalkedPackets walked, walker.walk(untrusted));
  if (walked.is_torn) decoder.count(trace_truncated_tail);
  decoder.finish();
  return trace;
}

}  // namespace kansoku::trace
