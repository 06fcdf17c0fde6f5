// SPDX-License-Identifier: Apache-2.0
#include "gpu/activity/kineto.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <iterator>
#include <map>
#include <set>
#include <string>
#include <string_view>
#include <tuple>
#include <utility>

#include "common/json.h"
#include "gpu/activity/device_work.h"
#include "gpu/activity/internal/arg_reader.h"
#include "gpu/activity/internal/names.h"
#include "gpu/activity/internal/tracks.h"
#include "gpu/activity/occupancy.h"

namespace kansoku::gpu::activity {
namespace {

constexpr std::size_t kPieceBytes = std::size_t{256} << 10;
constexpr std::int64_t kNsPerSecond = 1'000'000'000;
constexpr std::int32_t kPidMax = 1 << 22;               // Linux has none beyond
constexpr std::int64_t kOtherTrackTid = 1'000'000'000;  // tracks that are no threads
constexpr std::int64_t kStreamsOfProcess = 1'000'000;   // room for another process's streams

/// The names of PyTorch's profiler for arguments of ours; other keys stay.
struct KinetoName {
  ArgName meaning;
  std::string_view on_device, on_call, elsewhere;  // "" leaves the key as it is
};
constexpr std::array kKinetoNames{
    KinetoName{ArgName::kRegisters, "registers per thread", "", ""},
    KinetoName{ArgName::kSharedBytes, "shared memory", "", ""},
    // Analyses take every event with a stream for an operation of the device: what only occupies a
    // stream, a host function or a wait, has none.
    KinetoName{ArgName::kStream, "", "launch stream", "waiting stream"},
};

/// Keys whose text is a list in PyTorch's files.
constexpr std::array<std::string_view, 4> kListKeys{"Input Dims", "Input type", "Input Strides",
                                                    "Concrete Inputs"};

/// Row of an event in the file.
struct Row {
  std::int64_t pid{0}, tid{0};
};

class KinetoWriter {
 public:
  KinetoWriter(const trace::Trace& trace, const DeviceWork& work, const KinetoOptions& options,
               ByteSink& sink)
      : trace_(trace), work_(work), args_(trace), options_(options), sink_(sink) {}
  Result<KinetoCounts> write();

 private:
  Result<void> choose_rank();
  void place_tracks();
  void place_streams();
  void mark_used();
  void head();
  void device_properties();
  Result<void> metadata_events();
  Result<void> slices();
  Result<void> instants();
  Result<void> counters();
  Result<void> flows();
  [[nodiscard]] bool is_on_other_clock(std::uint32_t index) const;
  [[nodiscard]] bool is_projected(std::uint32_t index) const;
  [[nodiscard]] Row row_of(std::uint32_t index) const;
  void slice(std::uint32_t index, const Op* op, const Call* call);
  void args_of(std::uint32_t index, const Op* op, const Call* call);
  void add_arg(const trace::ArgValue& arg, const Op* op, const Call* call);
  void begin_event(char phase, std::string_view name, std::string_view category, const Row& row);
  void time(std::string_view key, std::int64_t ns);
  void text(std::string_view untrusted);  // quoted and escaped
  void metadata_event(std::string_view name, const Row& row, std::string_view key, Json value);
  [[nodiscard]] bool is_chosen(std::int32_t pid) const;
  [[nodiscard]] std::string category_of(std::uint32_t index, const Call* call) const;
  Result<void> flush(std::size_t above);

  const trace::Trace& trace_;
  const DeviceWork& work_;
  ArgReader args_;
  const KinetoOptions& options_;
  ByteSink& sink_;
  KinetoCounts counts_;
  std::string out_;
  bool is_first_event_{true}, is_first_arg_{true};
  std::int64_t base_ns_{0};
  const trace::Process* rank_process_{nullptr};
  std::set<std::int32_t> chosen_;   // process numbers
  std::vector<std::int32_t> pids_;  // by track
  std::vector<Row> rows_of_tracks_;
  std::vector<bool> is_used_;         // by track: it has an event that is no operation of a device
  std::vector<Row> rows_of_streams_;  // by DeviceWork::streams
  std::map<std::tuple<std::int32_t, std::int64_t, std::int64_t>, std::size_t>
      streams_;  // by process, device, number
};

void KinetoWriter::text(std::string_view untrusted) {
  const bool is_plain = std::all_of(untrusted.begin(), untrusted.end(), [](char c) {
    return c >= ' ' && c <= '~' && c != '"' && c != '\\';
  });
  if (is_plain) {
    out_ += '"';
    out_ += untrusted;
    out_ += '"';
  } else {
    out_ += Json(untrusted).dump();
  }
}

void KinetoWriter::time(std::string_view key, std::int64_t ns) {
  const std::int64_t shown_ns = key == "ts" ? ns - base_ns_ : ns;
  fmt::format_to(std::back_inserter(out_), R"(,"{}":{}.{:03})", key, shown_ns / 1000,
                 shown_ns % 1000);
}

Result<void> KinetoWriter::flush(std::size_t above) {
  if (out_.size() <= above) return {};
  TRY_VOID(sink_.append(as_bytes(out_)));
  out_.clear();
  return {};
}

bool KinetoWriter::is_chosen(std::int32_t pid) const {
  return chosen_.contains(pid);
}

Result<void> KinetoWriter::choose_rank() {
  const std::vector<std::int32_t> ranks = ranks_of(trace_);
  std::optional<std::int32_t> rank = options_.rank;
  if (!rank && ranks.size() > 1) {
    return Error{Code::kUnsupported,
                 fmt::format("export kineto: the recording holds {} ranks, and the format has one "
                             "file a rank",
                             ranks.size()),
                 fmt::format("choose one with --rank, e.g. --rank {}", ranks.front())};
  }
  if (!rank && !ranks.empty()) rank = ranks.front();
  if (rank && std::find(ranks.begin(), ranks.end(), *rank) == ranks.end())
    return Error{Code::kNotFound,
                 fmt::format("export kineto: the recording has no rank {}", *rank)};
  std::set<std::int32_t> known;
  for (const trace::Process& process : trace_.processes) {
    known.insert(process.pid);
    if (rank && process.rank != *rank) continue;
    chosen_.insert(process.pid);
    if (rank && rank_process_ == nullptr) rank_process_ = &process;
  }
  for (std::uint32_t i = 0; i < trace_.tracks.size(); ++i)
    pids_.push_back(process_of_track(trace_, trace::TrackId{i}));
  // Processes that nothing describes belong to a recording without ranks.
  for (const std::int32_t pid : pids_) {
    if (!rank && !known.contains(pid)) chosen_.insert(pid);
  }
  return {};
}

/// Devices have their ordinal for a process and their stream for a thread, as in PyTorch's files.
void KinetoWriter::place_streams() {
  std::map<std::int64_t, std::map<std::int32_t, std::int64_t>> processes_of_device;
  for (const Stream& stream : work_.streams) {
    const Device& device = work_.devices[stream.device];
    const std::int64_t ordinal = std::clamp<std::int64_t>(device.ordinal, 0, 1023);
    auto& processes = processes_of_device[ordinal];
    if (is_chosen(device.pid))
      processes.try_emplace(device.pid, static_cast<std::int64_t>(processes.size()));
    const auto place = processes.find(device.pid);
    const std::int64_t offset = place == processes.end() ? 0 : place->second * kStreamsOfProcess;
    const std::int64_t number = std::clamp<std::int64_t>(stream.number, 0, std::int64_t{1} << 52);
    streams_.try_emplace({device.pid, device.ordinal, stream.number}, rows_of_streams_.size());
    rows_of_streams_.push_back({ordinal, number + offset});
  }
}

void KinetoWriter::place_tracks() {
  std::set<std::int64_t> ordinals;
  for (const Row& row : rows_of_streams_)
    ordinals.insert(row.pid);
  // Tracks beside the operations of an imported device stay beside them.
  std::map<std::int32_t, std::int64_t> ordinal_of_pid;
  for (const Op& op : work_.ops) {
    const trace::TrackId track = trace_.slices.track[op.slice];
    if (track.raw < trace_.tracks.size() &&
        trace_.tracks[track.raw].kind == trace::TrackKind::kThread)
      ordinal_of_pid.try_emplace(pids_[track.raw], rows_of_streams_[op.stream].pid);
  }
  for (std::size_t i = 0; i < trace_.tracks.size(); ++i) {
    const trace::Track& track = trace_.tracks[i];
    Row row{pids_[i], track.tid};
    if (ordinals.contains(row.pid)) row.pid += kPidMax;
    if (const auto device = ordinal_of_pid.find(pids_[i]); device != ordinal_of_pid.end())
      row.pid = device->second;
    if (track.kind == trace::TrackKind::kProcess) row.tid = row.pid;
    if (track.kind == trace::TrackKind::kCustom || track.kind == trace::TrackKind::kCounter)
      row.tid = kOtherTrackTid + static_cast<std::int64_t>(i);
    rows_of_tracks_.push_back(row);
  }
}

void KinetoWriter::device_properties() {
  out_ += ",\n\"deviceProperties\":[";
  constexpr std::string_view kKey = "kansoku.cuda.device.";
  bool is_first = true;
  for (const auto& [key, value] : trace_.metadata) {
    if (!key.starts_with(kKey)) continue;
    const auto limits = limits_of(value);
    const auto ordinal = Json::parse(std::string_view(key).substr(kKey.size()));
    if (!limits || !ordinal || !ordinal->is_integer()) continue;
    out_ += is_first ? "\n" : ",\n";
    is_first = false;
    out_ += Json::object()
                .set("id", *ordinal)
                .set("computeMajor", limits->major)
                .set("maxThreadsPerMultiprocessor", limits->threads)
                .set("regsPerMultiprocessor", limits->registers)
                .set("sharedMemPerMultiprocessor", limits->shared_bytes)
                .set("warpSize", 32)
                .dump();
  }
  out_ += "]";
}

void KinetoWriter::head() {
  out_ += "{\"schema\":\"kansoku.kineto/1\",\n\"schemaVersion\":1";
  if (rank_process_ != nullptr) {
    Json info = Json::object().set("rank", rank_process_->rank);
    if (rank_process_->world_size > 0) info.set("world_size", rank_process_->world_size);
    out_ += ",\n\"distributedInfo\":" + info.dump();
  }
  device_properties();
  const std::int64_t begin_ns = std::clamp<std::int64_t>(trace_.begin_ns, 0, kTimeMaxNs);
  base_ns_ = begin_ns / kNsPerSecond * kNsPerSecond;
  fmt::format_to(std::back_inserter(out_),
                 ",\n\"displayTimeUnit\":\"ms\",\n\"baseTimeNanoseconds\":{},\n\"traceEvents\":[",
                 base_ns_);
}

void KinetoWriter::begin_event(char phase, std::string_view name, std::string_view category,
                               const Row& row) {
  out_ += is_first_event_ ? "\n" : ",\n";
  is_first_event_ = false;
  fmt::format_to(std::back_inserter(out_), R"({{"ph":"{}","cat":)", phase);
  text(category);
  out_ += R"(,"name":)";
  text(name);
  fmt::format_to(std::back_inserter(out_), R"(,"pid":{},"tid":{})", row.pid, row.tid);
}

void KinetoWriter::metadata_event(std::string_view name, const Row& row, std::string_view key,
                                  Json value) {
  begin_event('M', name, "__metadata", row);
  time("ts", base_ns_);
  out_ += ",\"args\":" + Json::object().set(key, std::move(value)).dump() + "}";
}

void KinetoWriter::mark_used() {
  is_used_.assign(trace_.tracks.size(), false);
  const auto mark = [&](const std::vector<trace::TrackId>& tracks) {
    for (const trace::TrackId track : tracks) {
      if (track.raw < is_used_.size()) is_used_[track.raw] = true;
    }
  };
  std::vector<trace::TrackId> of_slices = trace_.slices.track;
  for (const Op& op : work_.ops)
    of_slices[op.slice] = trace::kNoTrack;
  mark(of_slices);
  mark(trace_.instants.track);
  mark(trace_.counters.track);
}

Result<void> KinetoWriter::metadata_events() {
  mark_used();
  std::map<std::int32_t, trace::StringId> process_names;
  for (const trace::Process& process : trace_.processes)
    process_names.emplace(process.pid, process.name);
  std::map<std::int64_t, std::string> names;
  for (std::size_t i = 0; i < trace_.tracks.size(); ++i) {
    const trace::Track& track = trace_.tracks[i];
    if (!is_chosen(pids_[i]) || !is_used_[i]) continue;
    const Row& row = rows_of_tracks_[i];
    const bool is_row =
        track.kind == trace::TrackKind::kThread || track.kind == trace::TrackKind::kCustom;
    if (is_row && !args_.string(track.name).empty())
      metadata_event("thread_name", row, "name", args_.string(track.name));
    TRY_VOID(flush(kPieceBytes));
    if (const auto name = process_names.find(pids_[i]); name != process_names.end())
      names.try_emplace(row.pid, args_.string(name->second));
  }
  std::set<std::int64_t> ordinals;
  for (std::size_t i = 0; i < work_.streams.size(); ++i) {
    if (!is_chosen(work_.devices[work_.streams[i].device].pid)) continue;
    const Row& row = rows_of_streams_[i];
    ordinals.insert(row.pid);
    metadata_event("thread_name", row, "name", fmt::format("stream {}", work_.streams[i].number));
  }
  for (const auto& [pid, name] : names) {
    if (ordinals.contains(pid)) continue;
    metadata_event("process_name", {pid, 0}, "name", name);
    metadata_event("process_labels", {pid, 0}, "labels", "CPU");
    TRY_VOID(flush(kPieceBytes));
  }
  for (const std::int64_t ordinal : ordinals) {
    metadata_event("process_name", {ordinal, 0}, "name", fmt::format("GPU {}", ordinal));
    metadata_event("process_labels", {ordinal, 0}, "labels", fmt::format("GPU {}", ordinal));
    metadata_event("process_sort_index", {ordinal, 0}, "sort_index", (1 << 24) + ordinal);
  }
  return flush(kPieceBytes);
}

/// Calls that packs recorded get the category of their interface.
std::string KinetoWriter::category_of(std::uint32_t index, const Call* call) const {
  const std::string_view category = args_.string(trace_.slices.category[index]);
  if (call == nullptr || category != "cuda") return std::string(category);
  const std::string_view name = args_.string(trace_.slices.name[index]);
  return name.starts_with("cuda") ? "cuda_runtime" : "cuda_driver";
}

void KinetoWriter::add_arg(const trace::ArgValue& arg, const Op* op, const Call* call) {
  const ArgName meaning = args_.meaning(arg.key);
  std::string key(args_.string(arg.key));
  for (const KinetoName& name : kKinetoNames) {
    if (name.meaning != meaning) continue;
    const bool is_on_device = op != nullptr && is_busy(op->what);
    const std::string_view renamed = is_on_device      ? name.on_device
                                     : call != nullptr ? name.on_call
                                                       : name.elsewhere;
    if (!renamed.empty()) key = renamed;
  }
  if (call != nullptr && call->is_nested && meaning == ArgName::kCorrelation)
    key = "outer correlation";
  // Written in front.
  if (op != nullptr && (meaning == ArgName::kStream || meaning == ArgName::kDevice)) return;
  out_ += is_first_arg_ ? "" : ",";
  is_first_arg_ = false;
  text(key);
  out_ += ":";
  switch (arg.kind) {
    case trace::ArgValue::Kind::kInt:
      out_ += std::to_string(arg.i64);
      return;
    case trace::ArgValue::Kind::kUint:
      out_ += std::to_string(arg.u64);
      return;
    case trace::ArgValue::Kind::kDouble:
      out_ += Json(arg.f64).dump();
      return;
    case trace::ArgValue::Kind::kString:
      break;
  }
  const std::string_view value = args_.string(arg.text);
  const bool is_extent = meaning == ArgName::kGrid || meaning == ArgName::kBlock;
  const bool is_list =
      is_extent || std::find(kListKeys.begin(), kListKeys.end(), key) != kListKeys.end();
  const std::string list =
      is_extent && !value.starts_with("[") ? fmt::format("[{}]", value) : std::string(value);
  if (const auto parsed = is_list ? Json::parse(list) : Result<Json>(Json());
      parsed && parsed->is_array()) {
    out_ += parsed->dump();
  } else {
    text(value);
  }
}

void KinetoWriter::args_of(std::uint32_t index, const Op* op, const Call* call) {
  out_ += ",\"args\":{";
  is_first_arg_ = true;
  if (op != nullptr) {
    const Row& row = rows_of_streams_[op->stream];
    const char* const key = is_busy(op->what) ? "stream" : "waiting stream";
    fmt::format_to(std::back_inserter(out_), R"("device":{},"{}":{})", row.pid, key, row.tid);
    is_first_arg_ = false;
  }
  for (const trace::ArgValue& arg : args_.all(index))
    add_arg(arg, op, call);
  out_ += "}";
}

/// One of the few operations that the figures leave out.
bool KinetoWriter::is_on_other_clock(std::uint32_t index) const {
  const trace::TrackId track = trace_.slices.track[index];
  return work_.other_clock_count > 0 && track.raw < trace_.tracks.size() &&
         is_device_clock(args_.string(trace_.tracks[track.raw].name));
}

/// Ranges that are projected on a stream stand beside its operations, as in PyTorch's files.
bool KinetoWriter::is_projected(std::uint32_t index) const {
  return args_.string(trace_.slices.category[index]) == "gpu_user_annotation";
}

Row KinetoWriter::row_of(std::uint32_t index) const {
  const trace::TrackId track = trace_.slices.track[index];
  if (!is_projected(index)) return rows_of_tracks_[track.raw];
  const auto device = args_.number(index, ArgName::kDevice);
  const auto number = args_.number(index, ArgName::kStream);
  const auto row =
      device && number ? streams_.find({pids_[track.raw], *device, *number}) : streams_.end();
  return row == streams_.end() ? rows_of_tracks_[track.raw] : rows_of_streams_[row->second];
}

void KinetoWriter::slice(std::uint32_t index, const Op* op, const Call* call) {
  // Operations where they are compared with the host: the recording's own times may be corrected.
  const std::int64_t start_ns = op != nullptr ? op->time.begin_ns : trace_.slices.start_ns[index];
  const std::int64_t duration_ns =
      op != nullptr ? op->time.end_ns - op->time.begin_ns : trace_.slices.duration_ns[index];
  const trace::TrackId track = trace_.slices.track[index];
  const bool is_open = duration_ns == trace::kOpenDuration;
  const bool is_odd = track.raw >= trace_.tracks.size() || start_ns < base_ns_ ||
                      start_ns > kTimeMaxNs || (!is_open && duration_ns < 0) ||
                      duration_ns > kTimeMaxNs;
  if (is_odd || (op == nullptr && is_on_other_clock(index))) {
    ++counts_.left_out_count;
    return;
  }
  const Row row = op == nullptr ? row_of(index) : rows_of_streams_[op->stream];
  begin_event(is_open ? 'B' : 'X', args_.string(trace_.slices.name[index]),
              category_of(index, call), row);
  time("ts", start_ns);
  if (!is_open) time("dur", duration_ns);
  args_of(index, op, call);
  out_ += "}";
  ++counts_.event_count;
  if (op == nullptr) return;
  ++counts_.device_count;
  counts_.moved_count += row.tid != work_.streams[op->stream].number ? 1 : 0;
}

Result<void> KinetoWriter::slices() {
  std::vector<std::uint32_t> op_of_slice(trace_.slices.size(), kNoIndex);
  std::vector<std::uint32_t> call_of_slice(trace_.slices.size(), kNoIndex);
  for (std::uint32_t i = 0; i < work_.ops.size(); ++i)
    op_of_slice[work_.ops[i].slice] = i;
  for (std::uint32_t i = 0; i < work_.calls.size(); ++i)
    call_of_slice[work_.calls[i].slice] = i;
  for (std::uint32_t i = 0; i < trace_.slices.size(); ++i) {
    if (is_own_category(args_.string(trace_.slices.category[i]))) continue;
    const trace::TrackId track = trace_.slices.track[i];
    const Op* const op = op_of_slice[i] == kNoIndex ? nullptr : &work_.ops[op_of_slice[i]];
    const std::int32_t pid = op != nullptr ? work_.devices[work_.streams[op->stream].device].pid
                             : track.raw < pids_.size() ? pids_[track.raw]
                                                        : -1;
    if (pid != -1 && !is_chosen(pid)) continue;
    slice(i, op, call_of_slice[i] == kNoIndex ? nullptr : &work_.calls[call_of_slice[i]]);
    TRY_VOID(flush(kPieceBytes));
  }
  return {};
}

Result<void> KinetoWriter::instants() {
  const trace::InstantTable& table = trace_.instants;
  for (std::size_t i = 0; i < table.size(); ++i) {
    const trace::TrackId track = table.track[i];
    const bool is_odd = track.raw >= trace_.tracks.size() || table.time_ns[i] < base_ns_ ||
                        table.time_ns[i] > kTimeMaxNs;
    counts_.left_out_count += is_odd ? 1 : 0;
    if (is_odd || !is_chosen(pids_[track.raw])) continue;
    if (is_own_category(args_.string(table.category[i]))) continue;
    begin_event('i', args_.string(table.name[i]), args_.string(table.category[i]),
                rows_of_tracks_[track.raw]);
    time("ts", table.time_ns[i]);
    out_ += ",\"s\":\"t\"}";
    ++counts_.event_count;
    TRY_VOID(flush(kPieceBytes));
  }
  return {};
}

Result<void> KinetoWriter::counters() {
  const trace::CounterTable& table = trace_.counters;
  for (std::size_t i = 0; i < table.size(); ++i) {
    const trace::TrackId track = table.track[i];
    const bool is_odd = track.raw >= trace_.tracks.size() || table.time_ns[i] < base_ns_ ||
                        table.time_ns[i] > kTimeMaxNs || !std::isfinite(table.value[i]);
    counts_.left_out_count += is_odd ? 1 : 0;
    if (is_odd || !is_chosen(pids_[track.raw])) continue;
    const std::string_view name = args_.string(trace_.tracks[track.raw].name);
    begin_event('C', name, "counter", rows_of_tracks_[track.raw]);
    time("ts", table.time_ns[i]);
    out_ += ",\"args\":" + Json::object().set(name, table.value[i]).dump() + "}";
    ++counts_.event_count;
    TRY_VOID(flush(kPieceBytes));
  }
  return {};
}

/// Arrows "ac2g" from launch calls to operations, numbered by correlation.
Result<void> KinetoWriter::flows() {
  std::uint64_t unnumbered = std::uint64_t{1} << 52;
  for (const Op& op : work_.ops) {
    if (op.call == kNoIndex || !is_chosen(work_.devices[work_.streams[op.stream].device].pid))
      continue;
    const Call& call = work_.calls[op.call];
    if (call.time.begin_ns < base_ns_ || op.time.begin_ns < base_ns_) continue;
    const std::uint64_t id = op.correlation ? *op.correlation : unnumbered++;
    const Row& from = rows_of_tracks_[trace_.slices.track[call.slice].raw];
    begin_event('s', "ac2g", "ac2g", from);
    time("ts", call.time.begin_ns);
    fmt::format_to(std::back_inserter(out_), R"(,"id":{}}})", id);
    begin_event('f', "ac2g", "ac2g", rows_of_streams_[op.stream]);
    time("ts", op.time.begin_ns);
    fmt::format_to(std::back_inserter(out_), R"(,"id":{},"bp":"e"}})", id);
    ++counts_.flow_count;
    TRY_VOID(flush(kPieceBytes));
  }
  return {};
}

Result<KinetoCounts> KinetoWriter::write() {
  TRY_VOID(choose_rank());
  place_streams();
  place_tracks();
  head();
  TRY_VOID(metadata_events());
  TRY_VOID(slices());
  TRY_VOID(instants());
  TRY_VOID(counters());
  TRY_VOID(flows());
  out_ += "\n]}\n";
  TRY_VOID(flush(0));
  for (const std::int32_t pid : trace_.samples.pid)
    counts_.sample_count += is_chosen(pid) ? 1 : 0;
  return counts_;
}

}  // namespace

std::vector<std::int32_t> ranks_of(const trace::Trace& trace) {
  std::set<std::int32_t> ranks;
  for (const trace::Process& process : trace.processes) {
    if (process.rank != trace::kNoRank) ranks.insert(process.rank);
  }
  return {ranks.begin(), ranks.end()};
}

Result<KinetoCounts> write_kineto(const trace::Trace& trace, const KinetoOptions& options,
                                  ByteSink& sink) {
  TRY(const DeviceWork work, read_device_work(trace));
  return KinetoWriter(trace, work, options, sink).write();
}

}  // namespace kansoku::gpu::activity
