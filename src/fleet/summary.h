// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "common/bytes.h"
#include "common/result.h"

namespace kansoku::fleet {

/// Contents of a part of a summary; the numbers are part of the format.
enum class PartKind : std::uint8_t {
  kSketch = 1,           // values of one feature: stats::LogSketch::encode
  kClusterFeatures = 2,  // opaque here; at most one a job and message
  kIncident = 3,         // one incident: JSON text, schema kansoku.watch_incident/1
  kCounters = 4,         // names and increments: encode_counters; at most one a message
};

/// Limits of one message; the decoder refuses larger ones, the writer cuts.
inline constexpr std::size_t kSummaryBytesMax = 1'000'000;  // below the default of a NATS server
inline constexpr std::size_t kSummaryTextMax = 256;         // bytes of a name, key, boot id
inline constexpr std::size_t kSummaryJobsMax = 64;
inline constexpr std::size_t kSummaryRanksMax = 4096;  // of all jobs of a host together
inline constexpr std::size_t kSummaryFeaturesMax = 256;
inline constexpr std::size_t kSummaryPartsMax = 65'536;
inline constexpr std::size_t kSummaryIncidentBytesMax = 16'384;
inline constexpr std::size_t kSummaryCountersMax = 256;

inline constexpr std::uint32_t kNoIndex = UINT32_MAX;  // no job, or no feature
inline constexpr std::int32_t kAllRanks = -2;          // of the job, on this host; -1: has no rank

/// A job as a host sees it.
struct SummaryJob {
  std::string key;   // equal for the processes of one job on several hosts
  std::string name;  // for people
  std::int32_t world_size{1};
  std::vector<std::int32_t> ranks;  // on this host, ascending
};

/// One part. `bytes` is borrowed.
struct SummaryPart {
  PartKind kind{PartKind::kSketch};
  std::uint32_t job{kNoIndex};      // in Summary::jobs
  std::int32_t rank{kAllRanks};     // of a sketch
  std::uint32_t feature{kNoIndex};  // in Summary::features, of a sketch
  ByteSpan bytes{};
};

/// Data that the writer left out since the message before.
struct SummaryDropped {
  std::uint64_t rank_sketches{0};  // their job's sketch still counts their values
  std::uint64_t sketches{0};       // whole features of whole jobs
  std::uint64_t cluster_features{0};
  std::uint64_t incidents{0};  // new ones; repeats are not counted
  std::uint64_t counters{0};
  std::uint64_t jobs{0};
  std::uint64_t windows{0};  // that came for unknown jobs or above a limit
  [[nodiscard]] std::uint64_t total() const {
    return rank_sketches + sketches + cluster_features + incidents + counters + jobs + windows;
  }
};

/// The message of one host for one period. A value type, but for the borrowed bytes of its parts.
/// Format: docs/formats/fleet.md.
struct Summary {
  std::string host, boot_id;
  std::int64_t epoch_ns{
      0};  // wall clock when it began, or was set ahead; a later one supersedes it
  std::uint64_t sequence{0};            // from 0, one more each message of the epoch
  std::int64_t begin_ns{0}, end_ns{0};  // the period, on the host's wall clock
  std::vector<std::string> features;    // most telling first
  std::vector<SummaryJob> jobs;
  std::vector<SummaryPart> parts;
  SummaryDropped dropped;
};

/// Subject of a host's messages: this word, a dot and subject_word(host). And the pattern of all of
/// them. And all of them.
inline constexpr std::string_view kSummarySubject = "kansoku.summary";
inline constexpr std::string_view kSummarySubjects = "kansoku.summary.*";

/// The bytes of a message. Fails with kLimit, naming the limit, if it passes one of the above.
[[nodiscard]] Result<std::string> encode_summary(const Summary& summary);

/// Reads a message. The parts' bytes are borrowed from `untrusted`. kUnsupported: another version;
/// kCorrupt: cut, or numbers that make no sense; kLimit: above one of the limits. An accepted
/// message encodes to the same bytes again. Memory stays within a small multiple of the input.
[[nodiscard]] Result<Summary> decode_summary(ByteSpan untrusted);

/// Increments of one period, by name, as the bytes of a kCounters part and back. Names ascend.
using Counters = std::vector<std::pair<std::string, std::uint64_t>>;
[[nodiscard]] std::string encode_counters(const Counters& counters);
[[nodiscard]] Result<Counters> decode_counters(ByteSpan untrusted);

}  // namespace kansoku::fleet
