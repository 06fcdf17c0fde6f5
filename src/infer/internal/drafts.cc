// SPDX-License-Identifier: Apache-2.0
#include "infer/internal/drafts.h"

#include <algorithm>
#include <limits>
#include <map>
#include <utility>
#include <vector>

namespace kansoku::infer {
namespace {

/// Tokens of one sequence in one micro-batch.
struct Part {
  std::int32_t first{0}, last{0};  // positions
  std::int64_t count{0}, outputs{0};
  bool asks_at_last{false};
};

struct Sequence {
  bool is_generating{false};
  std::int32_t last{0};
  std::size_t verifying{kNone};  // the micro-batch, and its first position
  std::int32_t verified_from{0};
  std::int64_t verified_count{0};
};

std::map<std::int32_t, Part> parts_of(const MicroBatch& batch) {
  std::map<std::int32_t, Part> out;
  constexpr std::size_t kBits = std::numeric_limits<std::uint32_t>::digits;
  for (std::size_t i = 0; i < std::min(batch.rows.size(), kBits); ++i) {
    const Row& row = batch.rows[i];
    const bool asks = ((*batch.outputs >> i) & 1U) != 0;
    const auto [part, is_new] = out.try_emplace(row.sequence, Part{row.position, row.position});
    part->second.last = row.position;
    part->second.asks_at_last = asks;
    part->second.outputs += asks ? 1 : 0;
    ++part->second.count;
  }
  return out;
}

bool goes_on(const Sequence& sequence, const Part& part) {
  return sequence.is_generating && part.first > 0 && part.first - 1 <= sequence.last;
}

}  // namespace

void find_drafts(Process& process) {
  std::map<std::pair<std::uint32_t, std::int32_t>, Sequence> sequences;  // by context
  for (std::size_t i = 0; i < process.micro_batches.size(); ++i) {
    MicroBatch& batch = process.micro_batches[i];
    if (!batch.outputs) continue;
    const std::uint32_t context = batch.decode == kNone ? 0 : process.decodes[batch.decode].context;
    const auto parts = parts_of(batch);
    const bool is_whole = static_cast<std::int64_t>(batch.rows.size()) == batch.tokens;
    const bool is_verifying =
        is_whole && batch.is_prefill &&
        std::all_of(parts.begin(), parts.end(), [&](const auto& one) {
          return one.second.outputs == one.second.count &&
                 (one.second.count == 1 || goes_on(sequences[{context, one.first}], one.second));
        });
    if (is_verifying) {
      batch.is_prefill = false;
      batch.drafts = batch.tokens - static_cast<std::int64_t>(parts.size());
      batch.generated = static_cast<std::int64_t>(parts.size());
    }
    for (const auto& [number, part] : parts) {
      Sequence& sequence = sequences[{context, number}];
      if (sequence.verifying != kNone)
        process.micro_batches[sequence.verifying].generated += std::clamp<std::int64_t>(
            std::int64_t{part.first} - sequence.verified_from - 1, 0, sequence.verified_count - 1);
      sequence.verifying = is_verifying && part.count > 1 ? i : kNone;
      sequence.verified_from = part.first;
      sequence.verified_count = part.count;
      sequence.is_generating =
          part.asks_at_last && (part.count == 1 || is_verifying || part.outputs < part.count);
      sequence.last = part.last;
    }
  }
}

}  // namespace kansoku::infer
