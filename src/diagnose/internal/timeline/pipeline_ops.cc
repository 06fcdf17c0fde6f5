// SPDX-License-Identifier: Apache-2.0
#include "diagnose/internal/timeline/pipeline_ops.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>

#include "common/parse.h"
#include "diagnose/internal/steps/job.h"

namespace kansoku::diagnose {
namespace {

constexpr std::int32_t kStagesMax = 4096;
constexpr std::int32_t kDataRanksMax = 1 << 20;
constexpr std::int32_t kLanesPerRank = 5;  // compute, pp-comm, tp-comm, dp-comm, misc

struct OpInfo {
  OpType type;
  std::string_view name;
  std::string_view group;
  bool is_transfer;
};
constexpr std::array<OpInfo, kOpTypeCount> kOps{{
    {OpType::kForward, "forward-compute", "forward-compute", false},
    {OpType::kBackward, "backward-compute", "backward-compute", false},
    {OpType::kForwardSend, "forward-send", "forward-pp-comm", true},
    {OpType::kForwardRecv, "forward-recv", "forward-pp-comm", true},
    {OpType::kBackwardSend, "backward-send", "backward-pp-comm", true},
    {OpType::kBackwardRecv, "backward-recv", "backward-pp-comm", true},
    {OpType::kParamsGather, "params-all-gather", "params-all-gather", true},
    {OpType::kGradsScatter, "grads-reduce-scatter", "grads-reduce-scatter", true},
    {OpType::kSeparateGrads, "separate-grads-all-reduce", "separate-grads-all-reduce", true},
    {OpType::kLayernormGrads, "layernorm-grads-all-reduce", "layernorm-grads-all-reduce", true},
    {OpType::kEmbeddingGrads, "embedding-grads-all-reduce", "embedding-grads-all-reduce", true},
    {OpType::kClipGrad, "optimizer-clip-main-grad", "optimizer-clip-main-grad", true},
    {OpType::kOptimizer, "optimizer", "optimizer", false},
    {OpType::kGc, "gc", "gc", false},
}};
static_assert([] {
  for (std::size_t i = 0; i < kOpTypeCount; ++i) {
    if (static_cast<std::size_t>(kOps[i].type) != i) return false;
  }
  return true;
}());

const OpInfo& info_of(OpType type) {
  return kOps[static_cast<std::size_t>(type)];
}

/// The number after `word` in `text`: "PP rank 2, TP rank 0" and "PP rank" give 2.
std::optional<std::int32_t> number_after(std::string_view text, std::string_view word) {
  const std::size_t at = text.find(word);
  if (at == std::string_view::npos) return std::nullopt;
  std::string_view rest = text.substr(at + word.size());
  while (!rest.empty() && (rest.front() == ' ' || rest.front() == '['))
    rest.remove_prefix(1);
  std::size_t digits = 0;
  while (digits < rest.size() && rest[digits] >= '0' && rest[digits] <= '9')
    ++digits;
  return parse_int<std::int32_t>(rest.substr(0, digits));
}

/// Owner of a track.
struct Place {
  bool is_usable{false};
  std::int32_t data_rank{0}, stage{0}, tensor_rank{0}, rank{0};
};

Place place_of_track(const trace::Trace& trace, const trace::Track& track,
                     const std::map<std::int32_t, std::int32_t>& data_rank_of_pid) {
  Place place;
  const std::string_view name = trace.str(track.name);
  const auto stage = number_after(name, "PP rank");
  if (track.kind != trace::TrackKind::kThread || !stage) return place;
  const auto known = data_rank_of_pid.find(track.pid);
  place.data_rank = known == data_rank_of_pid.end() ? track.pid : known->second;
  place.stage = *stage;
  place.tensor_rank = number_after(name, "TP rank").value_or(0);
  place.rank = track.tid / kLanesPerRank;
  place.is_usable = place.stage >= 0 && place.stage < kStagesMax && place.data_rank >= 0 &&
                    place.data_rank < kDataRanksMax;
  return place;
}

std::vector<Place> places_of(const trace::Trace& trace) {
  std::map<std::int32_t, std::int32_t> data_rank_of_pid;
  for (const trace::Process& process : trace.processes) {
    if (const auto rank = number_after(trace.str(process.name), "DP rank"))
      data_rank_of_pid[process.pid] = *rank;
  }
  std::vector<Place> places;
  places.reserve(trace.tracks.size());
  for (const trace::Track& track : trace.tracks)
    places.push_back(place_of_track(trace, track, data_rank_of_pid));
  return places;
}

std::optional<std::int32_t> int_arg(const trace::Trace& trace, std::size_t slice,
                                    trace::StringId key) {
  const trace::ArgValue* arg = trace.slice_arg(slice, key);
  if (arg == nullptr || arg->kind != trace::ArgValue::Kind::kInt) return std::nullopt;
  if (arg->i64 < -1 || arg->i64 > std::int64_t{1} << 30) return std::nullopt;
  return static_cast<std::int32_t>(arg->i64);
}

/// Gives stages and data ranks their counts; every pair must have one worker.
Result<void> take_workers(
    PipelineOps& out, const std::map<std::pair<std::int32_t, std::int32_t>, std::int32_t>& ranks) {
  for (const auto& [place, rank] : ranks) {
    out.workers.push_back({.data_rank = place.second, .stage = place.first, .rank = rank});
    out.stage_count = std::max(out.stage_count, place.first + 1);
    out.data_rank_count = std::max(out.data_rank_count, place.second + 1);
  }
  const auto expected =
      static_cast<std::size_t>(out.stage_count) * static_cast<std::size_t>(out.data_rank_count);
  if (out.workers.size() == expected) return {};
  return Error{Code::kCorrupt,
               fmt::format("read operation timeline: {} data-parallel ranks x {} stages need {} "
                           "workers, {} have operations",
                           out.data_rank_count, out.stage_count, expected, out.workers.size())};
}

}  // namespace

std::string_view op_name(OpType type) {
  return info_of(type).name;
}
std::string_view op_group_name(OpType type) {
  return info_of(type).group;
}
bool is_transfer(OpType type) {
  return info_of(type).is_transfer;
}
bool is_point_to_point(OpType type) {
  return type >= OpType::kForwardSend && type <= OpType::kBackwardRecv;
}

Result<std::optional<PipelineOps>> read_pipeline_ops(const trace::Trace& trace) {
  const trace::StringId step_key = trace.strings.find("step"),
                        seq_key = trace.strings.find("seq_id"),
                        chunk_key = trace.strings.find("model_chunk");
  std::map<trace::StringId, OpType> types;
  for (const OpInfo& op : kOps) {
    if (const trace::StringId id = trace.strings.find(op.name); id != trace::StringId{})
      types[id] = op.type;
  }
  if (step_key == trace::StringId{} || seq_key == trace::StringId{} || types.empty())
    return std::optional<PipelineOps>{};
  const std::vector<Place> places = places_of(trace);
  PipelineOps out;
  std::map<std::pair<std::int32_t, std::int32_t>, std::int32_t> ranks;  // (stage, data) -> rank
  std::map<std::pair<std::int32_t, std::int32_t>, std::int32_t> tensor_ranks;
  std::set<std::int32_t> steps;
  for (std::size_t i = 0; i < trace.slices.size(); ++i) {
    const auto type = types.find(trace.slices.name[i]);
    if (type == types.end()) continue;
    const Place& place = places[trace.slices.track[i].raw];
    const auto step = int_arg(trace, i, step_key), seq = int_arg(trace, i, seq_key);
    const auto time = slice_time(trace.slices, i);
    const bool is_usable = place.is_usable && step && seq && *seq >= 0 && time;
    // Tensor-parallel peers do the same work at the same time: the first one stands for all.
    const std::pair key{place.stage, place.data_rank};
    if (!is_usable ||
        tensor_ranks.try_emplace(key, place.tensor_rank).first->second != place.tensor_rank) {
      ++out.left_out;
      continue;
    }
    ranks.try_emplace(key, place.rank);
    steps.insert(*step);
    out.ops.push_back({.type = type->second,
                       .step = *step,
                       .seq = *seq,
                       .data_rank = place.data_rank,
                       .stage = place.stage,
                       .chunk = std::max(0, int_arg(trace, i, chunk_key).value_or(0)),
                       .start_ns = time->begin_ns,
                       .duration_ns = time->end_ns - time->begin_ns});
  }
  const bool has_compute = std::any_of(out.ops.begin(), out.ops.end(), [](const PipelineOp& op) {
    return op.type == OpType::kForward;
  });
  if (!has_compute) return std::optional<PipelineOps>{};
  TRY_VOID(take_workers(out, ranks));
  out.steps.assign(steps.begin(), steps.end());
  return std::optional<PipelineOps>{std::move(out)};
}

}  // namespace kansoku::diagnose
