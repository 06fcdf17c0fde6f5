// SPDX-License-Identifier: Apache-2.0
#include "trace/import/chrome.h"

#include <fmt/format.h>
#include <simdjson.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <limits>
#include <map>
#include <optional>
#include <set>
#include <utility>
#include <vector>

#include "common/json.h"
#include "common/parse.h"
#include "trace/import/format.h"
#include "trace/import/internal/event_scanner.h"
#include "trace/import/internal/free_ids.h"
#include "trace/import/internal/inflate_stream.h"
#include "trace/import/internal/micros.h"

namespace kansoku::trace::import {
namespace {

namespace ondemand = simdjson::ondemand;

constexpr std::size_t kDamageSlicesMin = 20, kDamagePart = 1000;
constexpr double kFarTimes = 1000, kFarLeastNs = 600e9;

/// Categories that profilers, and exports of recordings, give what has a device and a stream.
bool is_known_category(std::string_view category) {
  constexpr std::array<std::string_view, 14> kKnown{"",
                                                    "kernel",
                                                    "gpu_memcpy",
                                                    "gpu_memset",
                                                    "Kernel",
                                                    "Memcpy",
                                                    "Memset",
                                                    "cpu_op",
                                                    "cuda_sync",
                                                    "gpu_user_annotation",
                                                    "gpu_wait",
                                                    "cuda_graph",
                                                    "gpu_host_function",
                                                    "user_annotation"};
  return std::find(kKnown.begin(), kKnown.end(), category) != kKnown.end() ||
         category.ends_with("_runtime") || category.ends_with("_driver");
}

/// One event as it stands in the file. The views live until the next event is parsed.
struct RawEvent {
  char phase{0};
  std::optional<std::int64_t> time_ns, duration_ns;
  bool has_bad_duration{false};  // one that is no number, or none that fits
  std::string_view name, category;
  std::string_view pid, tid;       // as written, strings without their quotes
  std::string_view metadata_name;  // args.name or args.labels
  std::vector<ArgValue> args;
  std::vector<std::pair<std::string_view, double>> numbers;  // args that are numbers, for counters
};

class ChromeImporter final : public EventScanner::Sink {
 public:
  ChromeImporter(std::string_view file_name, const ChromeOptions& options, Trace& into)
      : options_(options), trace_(into) {
    file.rank = rank_of_file_name(file_name);
    for (const Process& process : trace_.processes)
      used_pids_.insert(process.pid);
    first_slice_ = trace_.slices.size();
    first_instant_ = trace_.instants.size();
    first_counter_ = trace_.counters.size();
    events_before_ = first_slice_ + first_instant_ + first_counter_;
    first_process_ = trace_.processes.size();
  }

  Result<bool> on_event(std::string_view text, std::uint64_t offset) override;
  void on_bad_event(std::uint64_t offset) override {
    if (!first_bad_) first_bad_ = offset;
    count(import_bad_events);
  }
  Result<void> on_member(std::string_view key, std::string_view text,
                         std::uint64_t offset) override;
  [[nodiscard]] Result<void> finish(const EventScanner& scanner, bool is_torn);

  ImportedFile file;

 private:
  std::uint64_t unreadable_{0};  // events

  struct ThreadKey {
    std::int32_t pid;
    std::string tid;
    friend auto operator<=>(const ThreadKey&, const ThreadKey&) = default;
  };
  struct OpenSlice {
    std::size_t slice;
  };

  [[nodiscard]] bool read_fields(ondemand::object& object);
  void read_args(ondemand::object& args);
  void keep_arg(std::string_view key, ondemand::value& value);
  void keep_text(std::string_view key, std::string_view text);
  void take(const RawEvent& event);
  void take_metadata(const RawEvent& event);
  void take_counter(const RawEvent& event);
  void add_slice(const RawEvent& event, std::int64_t duration_ns);
  std::uint32_t process_of(std::string_view pid);  // index into trace_.processes
  TrackId thread_track(std::string_view pid, std::string_view tid);
  [[nodiscard]] Result<void> check_limits(std::uint64_t offset) const;
  void count(const StatDef& stat, std::uint64_t more = 1);
  StringId intern(std::string_view text) {
    const std::size_t before = trace_.strings.size();
    const StringId id = trace_.strings.intern(text);
    if (trace_.strings.size() != before) strings_bytes_ += text.size();
    return id;
  }
  void shift_times(std::int64_t by_ns);
  [[nodiscard]] std::vector<bool> damaged_slices() const;
  void mark_overlapping(const std::vector<double>& begins, const std::vector<double>& ends,
                        std::size_t few, std::vector<bool>& damaged) const;
  [[nodiscard]] bool is_of_device(std::size_t slice) const;
  void drop_damaged();
  void name_device_operations();

  const ChromeOptions& options_;
  Trace& trace_;
  ondemand::parser parser_;
  RawEvent event_;
  std::int64_t base_ns_{0};
  std::uint64_t strings_bytes_{0};
  std::uint64_t events_before_{0};
  std::optional<std::uint64_t> first_bad_;  // offset of an event
  std::size_t first_slice_{0}, first_instant_{0}, first_counter_{0}, first_process_{0};
  std::set<std::int32_t> used_pids_;
  std::set<std::uint32_t> real_processes_;  // whose number is one; indices like those below
  std::map<std::string, std::uint32_t, std::less<>> processes_;  // as written -> index
  std::map<std::uint32_t, TrackId> process_tracks_;
  std::map<ThreadKey, TrackId> tracks_;
  std::string last_pid_, last_tid_;
  std::string clean_;  // the last event that was not UTF-8
  TrackId last_track_{kNoTrack};
  std::map<std::pair<TrackId, StringId>, TrackId> counter_tracks_;
  std::map<TrackId, std::vector<OpenSlice>> open_;
};

void ChromeImporter::count(const StatDef& stat, std::uint64_t more) {
  Loss& loss = trace_.losses[std::string(stat.name)];
  loss.name = stat.name;
  loss.severity = stat.severity;
  loss.advice = stat.advice;
  loss.count += more;
  if (stat.name == import_bad_events.name) unreadable_ += more;
}

Result<void> ChromeImporter::check_limits(std::uint64_t offset) const {
  const std::uint64_t events =
      trace_.slices.size() + trace_.instants.size() + trace_.counters.size();
  const char* limit = nullptr;
  if (events >= options_.events_max) limit = "events";
  if (strings_bytes_ > options_.strings_bytes_max) limit = "bytes of text";
  if (trace_.tracks.size() > options_.tracks_max) limit = "tracks";
  if (trace_.args.size() > std::numeric_limits<std::uint32_t>::max() / 2) limit = "arguments";
  if (limit == nullptr) return {};
  return Error{Code::kLimit,
               fmt::format("read JSON trace at offset {}: more {} than the limit", offset, limit)};
}

Result<bool> ChromeImporter::on_event(std::string_view text, std::uint64_t offset) {
  TRY_VOID(check_limits(offset));
  const bool is_utf8 = simdjson::validate_utf8(text.data(), text.size());
  if (!is_utf8) {
    const std::size_t size = text.size();
    clean_ = as_ascii(text).append(EventScanner::kPadding, ' ');
    text = std::string_view(clean_).substr(0, size);
  }
  ondemand::document document;
  ondemand::object object;
  const simdjson::padded_string_view padded(text.data(), text.size(),
                                            text.size() + EventScanner::kPadding);
  if (parser_.iterate(padded).get(document) || document.get_object().get(object)) return false;
  event_.phase = 0;
  event_.time_ns.reset();
  event_.duration_ns.reset();
  event_.has_bad_duration = false;
  event_.name = event_.category = event_.pid = event_.tid = event_.metadata_name = {};
  event_.args.clear();
  event_.numbers.clear();
  const bool is_read = read_fields(object);
  // An odd event, or no JSON at all.
  if (!is_read && !Json::parse(text)) return false;
  ++file.event_count;
  const std::uint64_t unreadable = unreadable_;
  if (is_read) {
    take(event_);
  } else {
    count(import_bad_events);
  }
  if (!is_utf8 && unreadable_ == unreadable) {
    count(import_bad_events);
    unreadable_ = unreadable;  // it was read
  }
  return true;
}

std::string_view trimmed(std::string_view text) {
  while (!text.empty() &&
         (text.back() == ' ' || text.back() == '\n' || text.back() == '\r' || text.back() == '\t'))
    text.remove_suffix(1);
  return text;
}

/// A number or string as text without quotes.
bool scalar_text(ondemand::value& value, std::string_view& out) {
  ondemand::json_type type{};
  if (value.type().get(type)) return false;
  if (type == ondemand::json_type::string) return value.get_string().get(out) == simdjson::SUCCESS;
  if (type != ondemand::json_type::number) return false;
  out = trimmed(value.raw_json_token());
  double unused = 0;
  if (value.get_double().get(unused) == simdjson::SUCCESS) return true;
  // 1e400 is beyond a double, but a number; whoever needs its value finds that it has none.
  const auto [stop, error] = std::from_chars(out.data(), out.data() + out.size(), unused);
  return error == std::errc::result_out_of_range && stop == out.data() + out.size();
}

bool ChromeImporter::read_fields(ondemand::object& object) {
  for (auto field_result : object) {
    ondemand::field field;
    std::string_view key;
    if (std::move(field_result).get(field)) return false;
    if (field.unescaped_key().get(key)) return false;
    ondemand::value value = field.value();
    std::string_view text;
    if (key == "args") {
      ondemand::json_type type{};
      if (value.type().get(type)) return false;
      if (type != ondemand::json_type::object) continue;
      ondemand::object args;
      if (value.get_object().get(args)) return false;
      read_args(args);
      continue;
    }
    if (key == "ph" || key == "name" || key == "cat" || key == "pid" || key == "tid" ||
        key == "ts" || key == "dur") {
      ondemand::json_type type{};
      if (value.type().get(type)) return false;
      if (type == ondemand::json_type::null) continue;
      if (!scalar_text(value, text)) return false;
    }
    if (key == "ph") event_.phase = text.size() == 1 ? text[0] : '?';
    if (key == "name") event_.name = text;
    if (key == "cat") event_.category = text;
    if (key == "pid") event_.pid = text;
    if (key == "tid") event_.tid = text;
    if (key == "ts") event_.time_ns = nanos_of_micros(text);
    if (key == "dur") {
      event_.duration_ns = nanos_of_micros(text);
      event_.has_bad_duration = !event_.duration_ns;
    }
  }
  return true;
}

void ChromeImporter::read_args(ondemand::object& args) {
  for (auto field_result : args) {
    ondemand::field field;
    std::string_view key;
    if (std::move(field_result).get(field) || field.unescaped_key().get(key)) return;
    ondemand::value value = field.value();
    keep_arg(key, value);
  }
}

void ChromeImporter::keep_text(std::string_view key, std::string_view text) {
  if (text.size() > options_.arg_text_bytes_max) return count(import_cut_args);
  ArgValue arg;
  arg.kind = ArgValue::Kind::kString;
  arg.key = intern(key);
  arg.text = intern(text);
  event_.args.push_back(arg);
}

void ChromeImporter::keep_arg(std::string_view key, ondemand::value& value) {
  if (event_.args.size() >= options_.args_per_event_max) return count(import_cut_args);
  ondemand::json_type type{};
  if (value.type().get(type)) return;
  std::string_view text;
  if (type == ondemand::json_type::string) {
    if (value.get_string().get(text)) return;
    if (key == "name" || key == "labels") event_.metadata_name = text;
    return keep_text(key, text);
  }
  if (type == ondemand::json_type::array) {
    ondemand::array list;
    if (value.get_array().get(list) || list.raw_json().get(text)) return;
    return keep_text(key, text);
  }
  if (type == ondemand::json_type::object) {
    ondemand::object inner;
    if (value.get_object().get(inner) || inner.raw_json().get(text)) return;
    return keep_text(key, text);
  }
  ArgValue arg;
  arg.key = intern(key);
  if (type == ondemand::json_type::boolean) {
    bool flag = false;
    if (value.get_bool().get(flag)) return;
    arg.kind = ArgValue::Kind::kInt;
    arg.i64 = flag ? 1 : 0;
  } else if (type == ondemand::json_type::number) {
    text = trimmed(value.raw_json_token());
    double number = 0;
    if (value.get_double().get(number)) return;
    event_.numbers.emplace_back(key, number);
    const auto whole = parse_int<std::int64_t>(text);
    if (whole) {
      arg.kind = ArgValue::Kind::kInt;
      arg.i64 = *whole;
    } else {
      arg.kind = ArgValue::Kind::kDouble;
      arg.f64 = number;
    }
  } else {
    return;  // null says nothing
  }
  event_.args.push_back(arg);
}

std::uint32_t ChromeImporter::process_of(std::string_view pid) {
  const auto known = processes_.find(pid);
  if (known != processes_.end()) return known->second;
  const auto number = parse_int<std::int32_t>(pid);
  Process process;
  const bool is_real = number && *number >= 0;
  process.pid = is_real ? *number : kFreePid;
  while (!used_pids_.insert(process.pid).second)
    process.pid = process.pid < kFreePid ? kFreePid : process.pid + 1;
  process.name = number ? StringId{} : intern(pid);
  const auto index = static_cast<std::uint32_t>(trace_.processes.size());
  trace_.processes.push_back(process);
  if (is_real) real_processes_.insert(index);
  Track track;
  track.kind = TrackKind::kProcess;
  track.pid = process.pid;
  process_tracks_[index] = TrackId{static_cast<std::uint32_t>(trace_.tracks.size())};
  trace_.tracks.push_back(track);
  processes_.emplace(std::string(pid), index);
  return index;
}

TrackId ChromeImporter::thread_track(std::string_view pid, std::string_view tid) {
  if (last_track_ != kNoTrack && pid == last_pid_ && tid == last_tid_) return last_track_;
  const std::uint32_t process = process_of(pid);
  const ThreadKey key{trace_.processes[process].pid, std::string(tid)};
  auto [known, is_new] = tracks_.try_emplace(key, kNoTrack);
  if (is_new) {
    Track track;
    track.kind = TrackKind::kThread;
    track.parent = process_tracks_[process];
    track.pid = key.pid;
    const auto number = parse_int<std::int32_t>(tid);
    track.tid =
        number && *number >= 0 ? *number : kFreeTid + static_cast<std::int32_t>(tracks_.size());
    if (!number) track.name = intern(tid);
    known->second = TrackId{static_cast<std::uint32_t>(trace_.tracks.size())};
    trace_.tracks.push_back(track);
  }
  last_pid_ = pid;
  last_tid_ = tid;
  last_track_ = known->second;
  return last_track_;
}

// The profiler of PyTorch without Kineto writes no categories; its processes say what they hold.
std::string_view category_of_process(std::string_view pid) {
  if (pid == "CPU functions") return "cpu_op";
  return pid == "CUDA functions" ? "kernel" : "";
}

void ChromeImporter::add_slice(const RawEvent& event, std::int64_t duration_ns) {
  SliceTable& slices = trace_.slices;
  slices.start_ns.push_back(*event.time_ns);
  slices.duration_ns.push_back(duration_ns);
  slices.track.push_back(thread_track(event.pid, event.tid));
  slices.name.push_back(intern(plain_name(event.name)));
  slices.category.push_back(
      intern(event.category.empty() ? category_of_process(event.pid) : event.category));
  slices.arg_begin.push_back(static_cast<std::uint32_t>(trace_.args.size()));
  slices.arg_count.push_back(static_cast<std::uint32_t>(event.args.size()));
  trace_.args.insert(trace_.args.end(), event.args.begin(), event.args.end());
}

void ChromeImporter::take_counter(const RawEvent& event) {
  const std::uint32_t process = process_of(event.pid);
  for (const auto& [key, number] : event.numbers) {
    const StringId name = intern(event.numbers.size() == 1 ? std::string(event.name)
                                                           : fmt::format("{} {}", event.name, key));
    auto [known, is_new] = counter_tracks_.try_emplace({process_tracks_[process], name}, kNoTrack);
    if (is_new) {
      Track track;
      track.kind = TrackKind::kCounter;
      track.parent = process_tracks_[process];
      track.pid = trace_.processes[process].pid;
      track.name = name;
      known->second = TrackId{static_cast<std::uint32_t>(trace_.tracks.size())};
      trace_.tracks.push_back(track);
    }
    trace_.counters.time_ns.push_back(*event.time_ns);
    trace_.counters.track.push_back(known->second);
    trace_.counters.value.push_back(number);
  }
}

void ChromeImporter::take_metadata(const RawEvent& event) {
  const std::uint32_t process = process_of(event.pid);
  if (event.name == "process_name") trace_.processes[process].name = intern(event.metadata_name);
  if (event.name == "process_labels" && event.metadata_name.starts_with("GPU"))
    trace_.processes[process].role = intern("device");
  if (event.name == "thread_name") {
    const TrackId track = thread_track(event.pid, event.tid);
    trace_.tracks[track.raw].name = intern(event.metadata_name);
  }
}

void ChromeImporter::take(const RawEvent& event) {
  if (event.phase == 'M') return take_metadata(event);
  const bool is_timed = event.phase == 'X' || event.phase == 'B' || event.phase == 'E' ||
                        event.phase == 'i' || event.phase == 'I' || event.phase == 'C';
  if (!is_timed) return count(event.phase == 0 ? import_bad_events : import_other_events);
  if (!event.time_ns) return count(import_bad_events);
  switch (event.phase) {
    case 'X': {
      const std::int64_t duration_ns = event.duration_ns.value_or(0);
      if (duration_ns < 0 || event.has_bad_duration) return count(import_bad_events);
      return add_slice(event, duration_ns);
    }
    case 'B':
      open_[thread_track(event.pid, event.tid)].push_back({trace_.slices.size()});
      return add_slice(event, kOpenDuration);
    case 'E': {
      auto& stack = open_[thread_track(event.pid, event.tid)];
      if (stack.empty()) return count(import_bad_events);
      const std::size_t slice = stack.back().slice;
      stack.pop_back();
      const std::int64_t duration_ns = *event.time_ns - trace_.slices.start_ns[slice];
      if (duration_ns < 0) return count(import_bad_events);
      trace_.slices.duration_ns[slice] = duration_ns;
      return;
    }
    case 'C':
      return take_counter(event);
    default: {
      InstantTable& instants = trace_.instants;
      instants.time_ns.push_back(*event.time_ns);
      instants.track.push_back(thread_track(event.pid, event.tid));
      instants.name.push_back(intern(event.name));
      instants.category.push_back(intern(event.category));
      instants.arg_begin.push_back(static_cast<std::uint32_t>(trace_.args.size()));
      instants.arg_count.push_back(static_cast<std::uint32_t>(event.args.size()));
      trace_.args.insert(trace_.args.end(), event.args.begin(), event.args.end());
    }
  }
}

/// "[0, 1, 2]", a list of numbers, or a list of their texts.
std::vector<std::int32_t> ranks_of(const Json& value) {
  constexpr std::size_t kRanksMax = 1U << 20;
  std::vector<std::int32_t> ranks;
  if (value.is_string()) {
    const auto inner = Json::parse(value.as_string());
    return inner && inner->is_array() ? ranks_of(*inner) : ranks;
  }
  if (!value.is_array()) return ranks;
  for (std::size_t i = 0; i < std::min(value.size(), kRanksMax); ++i) {
    const Json item = value.at(i);
    const auto rank = item.is_string() ? parse_int<std::int64_t>(item.as_string())
                                       : std::optional<std::int64_t>(item.as_int(kNoRank));
    if (rank && *rank >= 0 && *rank <= std::numeric_limits<std::int32_t>::max())
      ranks.push_back(static_cast<std::int32_t>(*rank));
  }
  return ranks;
}

Result<void> ChromeImporter::on_member(std::string_view key, std::string_view text,
                                       std::uint64_t /*offset*/) {
  constexpr std::int64_t kBaseMax = std::int64_t{1} << 61;
  if (key != "distributedInfo" && key != "baseTimeNanoseconds") return {};
  const auto value = Json::parse(text);
  if (!value) {
    count(import_bad_members);
    return {};
  }
  if (key == "baseTimeNanoseconds") {
    const std::int64_t base_ns = value->as_int();
    if (base_ns >= 0 && base_ns <= kBaseMax) base_ns_ = base_ns;
    return {};
  }
  constexpr std::int64_t kRankMax = std::numeric_limits<std::int32_t>::max();
  const std::int64_t rank = value->at("rank").as_int(kNoRank);
  if (rank >= 0 && rank <= kRankMax) file.rank = static_cast<std::int32_t>(rank);
  const std::int64_t world = value->at("world_size").as_int(kNoRank);
  if (world > 0 && world <= kRankMax) file.world_size = static_cast<std::int32_t>(world);
  file.backend = value->at("backend").as_string();
  const Json groups = value->at("pg_config");
  for (std::size_t i = 0; i < groups.size(); ++i) {
    const Json group = groups.at(i);
    trace_.groups.push_back({.name = intern(group.at("pg_name").as_string()),
                             .description = intern(group.at("pg_desc").as_string()),
                             .ranks = ranks_of(group.at("ranks"))});
  }
  return {};
}

void ChromeImporter::shift_times(std::int64_t by_ns) {
  for (std::size_t i = first_slice_; i < trace_.slices.size(); ++i)
    trace_.slices.start_ns[i] += by_ns;
  for (std::size_t i = first_instant_; i < trace_.instants.size(); ++i)
    trace_.instants.time_ns[i] += by_ns;
  for (std::size_t i = first_counter_; i < trace_.counters.size(); ++i)
    trace_.counters.time_ns[i] += by_ns;
}

/// Slices with a time that only damage explains, if they are few: farther from half of all than a
/// thousand times what these span, or of a device, over later ones of its own stream, and behind
/// all others by more than they take together.
std::vector<bool> ChromeImporter::damaged_slices() const {
  const SliceTable& slices = trace_.slices;
  const std::size_t count = slices.size() - first_slice_;
  std::vector<bool> out(count);
  if (count < kDamageSlicesMin) return out;
  const std::size_t few = std::max<std::size_t>(1, count / kDamagePart);
  std::vector<double> begins(count), ends(count);  // as doubles: times may be anything
  for (std::size_t i = 0; i < count; ++i) {
    begins[i] = static_cast<double>(slices.start_ns[first_slice_ + i]);
    const std::int64_t duration_ns = slices.duration_ns[first_slice_ + i];
    ends[i] = begins[i] + static_cast<double>(std::max<std::int64_t>(duration_ns, 0));
  }
  std::vector<double> sorted = begins;
  std::sort(sorted.begin(), sorted.end());
  const double low = sorted[count / 4], high = sorted[count - 1 - count / 4];
  const double far_ns = std::max(kFarTimes * (high - low), kFarLeastNs);
  std::size_t far = 0;
  for (std::size_t i = 0; i < count; ++i) {
    out[i] = low - begins[i] > far_ns || ends[i] - high > far_ns;
    far += out[i] ? 1 : 0;
  }
  if (far > few) out.assign(count, false);  // no damage: the program had long pauses
  mark_overlapping(begins, ends, few, out);
  return out;
}

/// Operations of a device over later ones of their stream, far behind all others.
void ChromeImporter::mark_overlapping(const std::vector<double>& begins,
                                      const std::vector<double>& ends, std::size_t few,
                                      std::vector<bool>& damaged) const {
  std::vector<double> kept;
  double first = std::numeric_limits<double>::max();
  for (std::size_t i = 0; i < ends.size(); ++i) {
    if (damaged[i]) continue;
    kept.push_back(ends[i]);
    first = std::min(first, begins[i]);
  }
  if (kept.size() < 2) return;
  const auto most =
      kept.begin() +
      static_cast<std::ptrdiff_t>(kept.size() - 1 - std::max<std::size_t>(kept.size() / 100, 1));
  std::nth_element(kept.begin(), most, kept.end());
  const double limit = *most + (*most - first);
  std::vector<std::size_t> late;
  for (std::size_t i = 0; i < ends.size(); ++i)
    if (!damaged[i] && ends[i] > limit && ends[i] > begins[i] && is_of_device(first_slice_ + i))
      late.push_back(i);
  if (late.empty() || late.size() > few) return;
  std::map<TrackId, std::vector<double>> of_track;
  for (const std::size_t i : late)
    of_track[trace_.slices.track[first_slice_ + i]];
  for (std::size_t i = 0; i < begins.size(); ++i)
    if (const auto track = of_track.find(trace_.slices.track[first_slice_ + i]);
        track != of_track.end() && !damaged[i])
      track->second.push_back(begins[i]);
  for (auto& [track, list] : of_track)
    std::sort(list.begin(), list.end());
  for (const std::size_t i : late) {
    const auto& list = of_track[trace_.slices.track[first_slice_ + i]];
    const auto next = std::upper_bound(list.begin(), list.end(), begins[i]);
    damaged[i] = next != list.end() && *next < ends[i];
  }
}

/// A profiler gives what runs on a device the device and the stream, whatever it calls it.
bool ChromeImporter::is_of_device(std::size_t slice) const {
  bool has_device = false, has_stream = false;
  for (std::uint32_t i = 0; i < trace_.slices.arg_count[slice]; ++i) {
    const std::string_view key = trace_.str(trace_.args[trace_.slices.arg_begin[slice] + i].key);
    has_device = has_device || key == "device";
    has_stream = has_stream || key == "stream";
  }
  return has_device && has_stream;
}

void ChromeImporter::drop_damaged() {
  const std::vector<bool> damaged = damaged_slices();
  SliceTable& slices = trace_.slices;
  std::size_t to = first_slice_;
  for (std::size_t i = 0; i < damaged.size(); ++i) {
    if (damaged[i]) {
      count(import_bad_events);
      continue;
    }
    const std::size_t from = first_slice_ + i;
    slices.start_ns[to] = slices.start_ns[from];
    slices.duration_ns[to] = slices.duration_ns[from];
    slices.track[to] = slices.track[from];
    slices.name[to] = slices.name[from];
    slices.category[to] = slices.category[from];
    slices.arg_begin[to] = slices.arg_begin[from];
    slices.arg_count[to] = slices.arg_count[from];
    ++to;
  }
  slices.start_ns.resize(to);
  slices.duration_ns.resize(to);
  slices.track.resize(to);
  slices.name.resize(to);
  slices.category.resize(to);
  slices.arg_begin.resize(to);
  slices.arg_count.resize(to);
}

/// Operations of devices whose profiler has a category of its own.
void ChromeImporter::name_device_operations() {
  std::map<StringId, bool> known;
  const StringId kernel = intern("kernel");
  for (std::size_t i = first_slice_; i < trace_.slices.size(); ++i) {
    StringId& category = trace_.slices.category[i];
    const auto [found, is_new] = known.try_emplace(category);
    if (is_new) found->second = is_known_category(trace_.str(category));
    if (found->second || !is_of_device(i)) continue;
    category = kernel;
    count(import_device_operations);
  }
}

Result<void> ChromeImporter::finish(const EventScanner& scanner, bool is_torn) {
  if (first_bad_ && file.event_count == 0) {
    return Error{Code::kCorrupt,
                 fmt::format("read JSON trace: none of its events is readable; the first begins "
                             "at offset {}",
                             *first_bad_)};
  }
  if (scanner.is_unclosed() || is_torn) count(import_unclosed_trace);
  if (scanner.has_more_text()) count(import_more_text);
  drop_damaged();
  name_device_operations();
  if (base_ns_ != 0) shift_times(base_ns_);
  const StringId device = intern("device"), rank_role = intern("rank");
  for (std::size_t i = first_process_; i < trace_.processes.size(); ++i) {
    Process& process = trace_.processes[i];
    process.rank = file.rank;
    process.world_size = file.world_size;
    process.unreadable_share =
        static_cast<double>(unreadable_) /
        static_cast<double>(std::max<std::uint64_t>(unreadable_ + file.event_count, 1));
    const bool is_real = real_processes_.contains(static_cast<std::uint32_t>(i));
    if (file.rank != kNoRank && process.role != device && is_real) process.role = rank_role;
  }
  bool is_first = events_before_ == 0;
  const auto widen = [&](std::int64_t begin_ns, std::int64_t end_ns) {
    trace_.begin_ns = is_first ? begin_ns : std::min(trace_.begin_ns, begin_ns);
    trace_.end_ns = is_first ? end_ns : std::max(trace_.end_ns, end_ns);
    is_first = false;
  };
  for (std::size_t i = first_slice_; i < trace_.slices.size(); ++i) {
    const std::int64_t start_ns = trace_.slices.start_ns[i];
    widen(start_ns, start_ns + std::max<std::int64_t>(trace_.slices.duration_ns[i], 0));
  }
  for (std::size_t i = first_instant_; i < trace_.instants.size(); ++i)
    widen(trace_.instants.time_ns[i], trace_.instants.time_ns[i]);
  for (std::size_t i = first_counter_; i < trace_.counters.size(); ++i)
    widen(trace_.counters.time_ns[i], trace_.counters.time_ns[i]);
  return {};
}

}  // namespace

Result<ImportedFile> import_chrome(ByteSpan untrusted, std::string_view file_name,
                                   const ChromeOptions& options, Trace& into) {
  ChromeImporter importer(file_name, options, into);
  EventScanner scanner(importer, {.event_bytes_max = options.event_bytes_max});
  TRY(auto stream, InflateStream::open(without_byte_order_mark(untrusted)));
  for (;;) {
    const auto piece = stream.next();
    if (!piece && stream.is_torn() && scanner.has_list()) break;
    if (!piece) return piece.error();
    if (piece->empty()) break;
    importer.file.text_bytes += piece->size();
    TRY_VOID(scanner.feed(*piece));
  }
  TRY_VOID(scanner.finish());
  if (!scanner.has_list())
    return Error{Code::kNotFound, "read JSON trace: the text has no traceEvents"};
  TRY_VOID(importer.finish(scanner, stream.is_torn()));
  return std::move(importer.file);
}

}  // namespace kansoku::trace::import
