// SPDX-License-Identifier: Apache-2.0
#include "trace/import/nsight.h"

#include <fmt/format.h>
#include <simdjson.h>

#include <algorithm>
#include <array>
#include <limits>
#include <map>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <tuple>
#include <unordered_map>
#include <utility>
#include <vector>

#include "trace/import/format.h"
#include "trace/import/internal/free_ids.h"
#include "trace/import/internal/sqlite_image.h"

namespace kansoku::trace::import {
namespace {

constexpr std::int64_t kTimeMax = std::int64_t{1} << 61;
constexpr std::int64_t kIdMask = 0xffffff;  // both halves of a serialized identifier
constexpr int kPidShift = 24;
constexpr std::int64_t kDeviceMax = 1 << 20;

enum NvtxType : std::int64_t { kNvtxMark = 34, kNvtxPushPop = 59, kNvtxStartEnd = 60 };

enum class Need : std::uint8_t { kYes, kNo, kOneOf };  // kOneOf: at least one of those
struct Column {
  std::string_view name;
  Need need{Need::kNo};
};

// Positions in the column lists below.
enum DeviceColumn : int { kStart, kEnd, kDevice, kStream, kCorrelation, kGlobalPid, kOwn };
enum HostColumn : int { kGlobalTid = 2, kNameId, kHostCorrelation };

/// The columns of every table of operations on streams, then a table's own.
template <std::size_t N>
constexpr std::array<Column, kOwn + N> on_stream(const std::array<Column, N>& own) {
  std::array<Column, kOwn + N> out{Column{"start", Need::kYes},    Column{"end", Need::kYes},
                                   Column{"deviceId", Need::kYes}, Column{"streamId", Need::kYes},
                                   Column{"correlationId"},        Column{"globalPid"}};
  std::copy(own.begin(), own.end(), out.begin() + kOwn);
  return out;
}
constexpr auto kKernelColumns = on_stream(std::array{
    Column{"demangledName", Need::kOneOf}, Column{"shortName", Need::kOneOf}, Column{"gridX"},
    Column{"gridY"}, Column{"gridZ"}, Column{"blockX"}, Column{"blockY"}, Column{"blockZ"}});
constexpr auto kCopyColumns = on_stream(std::array{Column{"copyKind"}, Column{"bytes"}});
constexpr auto kSetColumns = on_stream(std::array{Column{"bytes"}});
constexpr auto kSyncColumns = on_stream(std::array{Column{"syncType"}});
constexpr auto kGraphColumns = on_stream(std::array<Column, 0>{});
constexpr std::array kApiColumns{Column{"start", Need::kYes}, Column{"end", Need::kYes},
                                 Column{"globalTid", Need::kYes}, Column{"nameId", Need::kYes},
                                 Column{"correlationId"}};
constexpr std::array kOsColumns{Column{"start", Need::kYes}, Column{"end", Need::kYes},
                                Column{"globalTid", Need::kYes}, Column{"nameId", Need::kYes}};
constexpr std::array kNvtxColumns{Column{"start", Need::kYes},     Column{"end", Need::kYes},
                                  Column{"globalTid", Need::kYes}, Column{"text", Need::kOneOf},
                                  Column{"textId", Need::kOneOf},  Column{"eventType"}};
constexpr std::array kStringColumns{Column{"id", Need::kYes}, Column{"value", Need::kYes}};
constexpr std::array kSessionColumns{Column{"utcEpochNs", Need::kYes}};
constexpr std::array kThreadColumns{Column{"globalTid", Need::kYes}, Column{"nameId", Need::kYes}};
constexpr std::array kProcessColumns{Column{"globalPid", Need::kYes}, Column{"name", Need::kYes}};

std::string_view copy_name(std::int64_t kind) {
  constexpr std::array<std::string_view, 11> kNames{
      "Memcpy Unknown", "Memcpy HtoD", "Memcpy DtoH", "Memcpy HtoA", "Memcpy AtoH", "Memcpy AtoA",
      "Memcpy AtoD",    "Memcpy DtoA", "Memcpy DtoD", "Memcpy HtoH", "Memcpy PtoP"};
  return kind >= 0 && kind < std::ssize(kNames) ? kNames[static_cast<std::size_t>(kind)]
                                                : kNames[0];
}

std::string_view sync_name(std::int64_t kind) {
  constexpr std::array<std::string_view, 5> kNames{"Sync", "Event Sync", "Stream Wait Event",
                                                   "Stream Sync", "Context Sync"};
  return kind >= 0 && kind < std::ssize(kNames) ? kNames[static_cast<std::size_t>(kind)]
                                                : kNames[0];
}

/// "cudaLaunchKernel" of "cudaLaunchKernel_v7000": the release in which a call of the runtime got
/// its form, which PyTorch's profiler leaves out too.
std::string_view without_release(std::string_view name) {
  const std::size_t at = name.rfind("_v");
  if (!name.starts_with("cuda") || at == std::string_view::npos || name.size() < at + 6)
    return name;
  const bool is_number = name.find_first_not_of("0123456789", at + 2) == std::string_view::npos;
  return is_number ? name.substr(0, at) : name;
}

class NsightImporter {
 public:
  NsightImporter(SqliteImage& image, std::string_view file_name, const NsightOptions& options,
                 Trace& into);
  [[nodiscard]] Result<ImportedFile> read();

 private:
  using Take = void (NsightImporter::*)(SqliteRows&);
  struct Table {
    std::string_view name;
    std::span<const Column> columns;
    Take take;
    bool has_events;
  };
  struct Text {
    std::size_t begin{0}, bytes{0};  // in texts_
    std::optional<StringId> id;      // once interned
  };
  struct Api {
    StringId name, category;
  };
  struct Span {
    std::int64_t start_ns, end_ns;
  };

 public:
  static const std::array<Table, 12> kTables;

 private:
  [[nodiscard]] Result<void> read_table(const Table& table);
  [[nodiscard]] Result<void> check_limits(std::string_view table) const;
  void take_string(SqliteRows& row);
  void take_session(SqliteRows& row);
  void take_kernel(SqliteRows& row);
  void take_copy(SqliteRows& row);
  void take_set(SqliteRows& row);
  void take_sync(SqliteRows& row);
  void take_graph(SqliteRows& row);
  void take_api(SqliteRows& row);
  void take_os(SqliteRows& row);
  void take_nvtx(SqliteRows& row);
  void take_thread_name(SqliteRows& row);
  void take_process_name(SqliteRows& row);
  bool add_on_stream(SqliteRows& row, StringId name, StringId category);
  void add_slice(const Span& span, TrackId track, StringId name, StringId category);
  void add_mark(std::int64_t time_ns, TrackId track, StringId name);
  void add_int(StringId key, std::optional<std::int64_t> value);
  void add_extent(StringId key, SqliteRows& row, int first);
  [[nodiscard]] std::optional<std::int64_t> time_of(std::optional<std::int64_t> since_start) const;
  [[nodiscard]] std::optional<Span> span_of(SqliteRows& row) const;
  std::string_view cut(std::string_view text);
  std::string_view text_of(std::int64_t id);
  StringId name_of(std::optional<std::int64_t> id);
  Api api_of(std::optional<std::int64_t> id);
  std::uint32_t add_process(std::int32_t pid, StringId name, StringId role);
  TrackId add_thread(std::uint32_t process, std::int64_t tid, StringId name);
  std::uint32_t host_process(std::int64_t pid);
  TrackId stream_track(std::optional<std::int64_t> global_pid, std::int64_t device,
                       std::int64_t stream);
  TrackId host_track(std::int64_t global_tid);
  void widen(std::int64_t begin_ns, std::int64_t end_ns);
  void count(const StatDef& stat, std::uint64_t more = 1);
  StringId intern(std::string_view text);

  SqliteImage& image_;
  const NsightOptions& options_;
  ImportedFile file_;
  Trace& trace_;
  std::uint64_t rows_{0};
  std::uint64_t strings_bytes_{0};
  std::uint64_t tables_read_{0};
  std::int64_t base_ns_{0};
  bool has_base_{false}, has_range_{false};
  std::string texts_;  // of StringIds, end to end
  std::string clean_;  // a text with its bad bytes replaced
  std::unordered_map<std::int64_t, Text> text_ids_;
  std::unordered_map<std::int64_t, Api> apis_;
  std::set<std::int32_t> used_pids_;
  std::map<std::int64_t, std::uint32_t> devices_, hosts_;  // index into trace_.processes
  std::map<std::uint32_t, TrackId> process_tracks_;
  // By process (0: the export does not say), device, stream.
  std::map<std::tuple<std::int64_t, std::int64_t, std::int64_t>, TrackId> streams_;
  std::map<std::int64_t, TrackId> threads_;  // of 48 bits of a globalTid
  StringId kernel_, memcpy_, memset_, memset_name_, sync_, graph_, graph_name_, runtime_, driver_,
      os_, annotation_, correlation_, stream_, device_, bytes_, grid_, block_;
};

// StringIds and the session come first: the others need them. Names come last: only threads and
// processes with events get one.
constexpr std::array<NsightImporter::Table, 12> NsightImporter::kTables{{
    {"StringIds", kStringColumns, &NsightImporter::take_string, false},
    {"TARGET_INFO_SESSION_START_TIME", kSessionColumns, &NsightImporter::take_session, false},
    {"CUPTI_ACTIVITY_KIND_KERNEL", kKernelColumns, &NsightImporter::take_kernel, true},
    {"CUPTI_ACTIVITY_KIND_MEMCPY", kCopyColumns, &NsightImporter::take_copy, true},
    {"CUPTI_ACTIVITY_KIND_MEMSET", kSetColumns, &NsightImporter::take_set, true},
    {"CUPTI_ACTIVITY_KIND_SYNCHRONIZATION", kSyncColumns, &NsightImporter::take_sync, true},
    {"CUPTI_ACTIVITY_KIND_GRAPH_TRACE", kGraphColumns, &NsightImporter::take_graph, true},
    {"CUPTI_ACTIVITY_KIND_RUNTIME", kApiColumns, &NsightImporter::take_api, true},
    {"NVTX_EVENTS", kNvtxColumns, &NsightImporter::take_nvtx, true},
    {"OSRT_API", kOsColumns, &NsightImporter::take_os, true},
    {"ThreadNames", kThreadColumns, &NsightImporter::take_thread_name, false},
    {"PROCESSES", kProcessColumns, &NsightImporter::take_process_name, false},
}};

NsightImporter::NsightImporter(SqliteImage& image, std::string_view file_name,
                               const NsightOptions& options, Trace& into)
    : image_(image), options_(options), trace_(into) {
  file_.rank = rank_of_file_name(file_name);
  for (const Process& process : trace_.processes)
    used_pids_.insert(process.pid);
  has_range_ = trace_.slices.size() + trace_.instants.size() + trace_.counters.size() > 0;
  const std::array<std::pair<StringId*, std::string_view>, 17> names{{
      {&kernel_, "kernel"},
      {&memcpy_, "gpu_memcpy"},
      {&memset_, "gpu_memset"},
      {&memset_name_, "Memset (Device)"},
      {&sync_, "cuda_sync"},
      {&graph_, "cuda_graph"},
      {&graph_name_, "CUDA graph"},
      {&runtime_, "cuda_runtime"},
      {&driver_, "cuda_driver"},
      {&os_, "os_runtime"},
      {&annotation_, "user_annotation"},
      {&correlation_, "correlation"},
      {&stream_, "stream"},
      {&device_, "device"},
      {&bytes_, "bytes"},
      {&grid_, "grid"},
      {&block_, "block"},
  }};
  for (const auto& [id, name] : names)
    *id = trace_.strings.intern(name);
}

void NsightImporter::count(const StatDef& stat, std::uint64_t more) {
  if (more == 0) return;
  Loss& loss = trace_.losses[std::string(stat.name)];
  loss.name = stat.name;
  loss.severity = stat.severity;
  loss.advice = stat.advice;
  loss.count += more;
}

/// `text` as UTF-8 within the limit. The view lives until the next call, and no longer than `text`.
std::string_view NsightImporter::cut(std::string_view text) {
  if (text.size() > options_.text_bytes_max) {
    count(import_cut_texts);
    std::size_t bytes = options_.text_bytes_max;
    while (bytes > 0 && (static_cast<unsigned char>(text[bytes]) & 0xc0U) == 0x80)
      --bytes;  // not inside a character
    text = text.substr(0, bytes);
  }
  if (simdjson::validate_utf8(text.data(), text.size())) return text;
  count(import_bad_texts);
  clean_ = as_ascii(text);
  return clean_;
}

StringId NsightImporter::intern(std::string_view text) {
  const std::size_t before = trace_.strings.size();
  const StringId id = trace_.strings.intern(text);
  if (trace_.strings.size() != before) strings_bytes_ += text.size();
  return id;
}

Result<void> NsightImporter::check_limits(std::string_view table) const {
  const char* limit = nullptr;
  if (rows_ > options_.rows_max) limit = "rows";
  if (strings_bytes_ > options_.strings_bytes_max || texts_.size() > options_.strings_bytes_max)
    limit = "bytes of text";
  if (trace_.tracks.size() > options_.tracks_max) limit = "tracks";
  if (trace_.args.size() > std::numeric_limits<std::uint32_t>::max() / 2) limit = "arguments";
  if (limit == nullptr) return {};
  return Error{Code::kLimit,
               fmt::format("read Nsight export, table {}: more {} than the limit", table, limit)};
}

Result<void> NsightImporter::read_table(const Table& table) {
  TRY(const auto existing, image_.columns_of(table.name));
  if (!existing) return {};
  ++tables_read_;
  std::vector<std::string_view> columns;
  bool lacks_needed = false, wants_one = false, has_one = false;
  for (const Column& column : table.columns) {
    const bool exists =
        std::find(existing->begin(), existing->end(), column.name) != existing->end();
    columns.push_back(exists ? column.name : std::string_view{});
    lacks_needed = lacks_needed || (column.need == Need::kYes && !exists);
    wants_one = wants_one || column.need == Need::kOneOf;
    has_one = has_one || (column.need == Need::kOneOf && exists);
  }
  if (lacks_needed || (wants_one && !has_one)) {
    count(import_skipped_tables);
    return {};
  }
  TRY(auto rows, image_.rows_of(table.name, columns));
  for (;;) {
    TRY(const bool is_row, rows.next());
    if (!is_row) break;
    ++rows_;
    if (table.has_events) ++file_.event_count;
    (this->*table.take)(rows);
    TRY_VOID(check_limits(table.name));
  }
  count(import_odd_values, rows.odd_count());
  return {};
}

void NsightImporter::take_string(SqliteRows& row) {
  const auto id = row.integer(0);
  const auto value = row.text(1);
  if (!id || !value) return count(import_bad_rows);
  const auto [known, is_new] = text_ids_.try_emplace(*id);
  if (!is_new) return;  // the first one counts
  const std::string_view text = cut(*value);
  known->second = {.begin = texts_.size(), .bytes = text.size(), .id = std::nullopt};
  texts_ += text;
}

void NsightImporter::take_session(SqliteRows& row) {
  const auto base_ns = row.integer(0);
  if (!base_ns || *base_ns < 0 || *base_ns > kTimeMax) return count(import_bad_rows);
  if (!has_base_) base_ns_ = *base_ns;
  has_base_ = true;
}

std::string_view NsightImporter::text_of(std::int64_t id) {
  const auto known = text_ids_.find(id);
  if (known == text_ids_.end()) {
    count(import_missing_names);
    return {};
  }
  return std::string_view(texts_).substr(known->second.begin, known->second.bytes);
}

StringId NsightImporter::name_of(std::optional<std::int64_t> id) {
  const auto known = id ? text_ids_.find(*id) : text_ids_.end();
  if (known == text_ids_.end()) {
    count(import_missing_names);
    return StringId{};
  }
  Text& text = known->second;
  if (!text.id)
    text.id = intern(plain_name(std::string_view(texts_).substr(text.begin, text.bytes)));
  return *text.id;
}

NsightImporter::Api NsightImporter::api_of(std::optional<std::int64_t> id) {
  if (!id) {
    count(import_missing_names);
    return {.name = StringId{}, .category = runtime_};
  }
  const auto known = apis_.find(*id);
  if (known != apis_.end()) return known->second;
  const std::string_view name = text_of(*id);
  const bool is_driver = name.starts_with("cu") && !name.starts_with("cuda");
  const Api api{.name = intern(without_release(name)), .category = is_driver ? driver_ : runtime_};
  if (!name.empty()) apis_.emplace(*id, api);  // each event without a name counts
  return api;
}

std::optional<std::int64_t> NsightImporter::time_of(std::optional<std::int64_t> since_start) const {
  if (!since_start || *since_start < -kTimeMax || *since_start > kTimeMax) return std::nullopt;
  return *since_start + base_ns_;
}

std::optional<NsightImporter::Span> NsightImporter::span_of(SqliteRows& row) const {
  const auto start_ns = time_of(row.integer(kStart));
  const auto end_ns = time_of(row.integer(kEnd));
  if (!start_ns || !end_ns || *end_ns < *start_ns) return std::nullopt;
  return Span{*start_ns, *end_ns};
}

void NsightImporter::widen(std::int64_t begin_ns, std::int64_t end_ns) {
  trace_.begin_ns = has_range_ ? std::min(trace_.begin_ns, begin_ns) : begin_ns;
  trace_.end_ns = has_range_ ? std::max(trace_.end_ns, end_ns) : end_ns;
  has_range_ = true;
}

/// The arguments are added after it, with add_int() and add_extent().
void NsightImporter::add_slice(const Span& span, TrackId track, StringId name, StringId category) {
  const bool is_open = span.end_ns < span.start_ns;
  SliceTable& slices = trace_.slices;
  slices.start_ns.push_back(span.start_ns);
  slices.duration_ns.push_back(is_open ? kOpenDuration : span.end_ns - span.start_ns);
  slices.track.push_back(track);
  slices.name.push_back(name);
  slices.category.push_back(category);
  slices.arg_begin.push_back(static_cast<std::uint32_t>(trace_.args.size()));
  slices.arg_count.push_back(0);
  widen(span.start_ns, std::max(span.start_ns, span.end_ns));
}

void NsightImporter::add_mark(std::int64_t time_ns, TrackId track, StringId name) {
  InstantTable& instants = trace_.instants;
  instants.time_ns.push_back(time_ns);
  instants.track.push_back(track);
  instants.name.push_back(name);
  instants.category.push_back(annotation_);
  instants.arg_begin.push_back(static_cast<std::uint32_t>(trace_.args.size()));
  instants.arg_count.push_back(0);
  widen(time_ns, time_ns);
}

void NsightImporter::add_int(StringId key, std::optional<std::int64_t> value) {
  if (!value) return;
  ArgValue arg;
  arg.key = key;
  arg.i64 = *value;
  trace_.args.push_back(arg);
  ++trace_.slices.arg_count.back();
}

/// Three columns as "[x, y, z]", the form in which PyTorch's profiler writes them.
void NsightImporter::add_extent(StringId key, SqliteRows& row, int first) {
  const auto x = row.integer(first), y = row.integer(first + 1), z = row.integer(first + 2);
  if (!x || !y || !z) return;
  ArgValue arg;
  arg.kind = ArgValue::Kind::kString;
  arg.key = key;
  arg.text = intern(fmt::format("[{}, {}, {}]", *x, *y, *z));
  trace_.args.push_back(arg);
  ++trace_.slices.arg_count.back();
}

bool NsightImporter::add_on_stream(SqliteRows& row, StringId name, StringId category) {
  const auto span = span_of(row);
  const auto device = row.integer(kDevice);
  const auto stream = row.integer(kStream);
  // Both times 0: CUPTI could not take them.
  const bool is_usable =
      span && row.integer(kEnd) != 0 && device && *device >= 0 && *device <= kDeviceMax && stream;
  if (!is_usable) {
    count(import_bad_rows);
    return false;
  }
  add_slice(*span, stream_track(row.integer(kGlobalPid), *device, *stream), name, category);
  add_int(correlation_, row.integer(kCorrelation));
  add_int(device_, device);
  add_int(stream_, stream);
  return true;
}

void NsightImporter::take_kernel(SqliteRows& row) {
  const int name = row.is_null(kOwn) ? kOwn + 1 : kOwn;
  if (!add_on_stream(row, name_of(row.integer(name)), kernel_)) return;
  add_extent(grid_, row, kOwn + 2);
  add_extent(block_, row, kOwn + 5);
}

void NsightImporter::take_copy(SqliteRows& row) {
  const std::string_view name = copy_name(row.integer(kOwn).value_or(0));
  if (add_on_stream(row, intern(name), memcpy_)) add_int(bytes_, row.integer(kOwn + 1));
}

void NsightImporter::take_set(SqliteRows& row) {
  if (add_on_stream(row, memset_name_, memset_)) add_int(bytes_, row.integer(kOwn));
}

void NsightImporter::take_sync(SqliteRows& row) {
  add_on_stream(row, intern(sync_name(row.integer(kOwn).value_or(0))), sync_);
}

void NsightImporter::take_graph(SqliteRows& row) {
  add_on_stream(row, graph_name_, graph_);
}

void NsightImporter::take_api(SqliteRows& row) {
  const auto span = span_of(row);
  const auto thread = row.integer(kGlobalTid);
  if (!span || !thread) return count(import_bad_rows);
  const Api api = api_of(row.integer(kNameId));
  add_slice(*span, host_track(*thread), api.name, api.category);
  add_int(correlation_, row.integer(kHostCorrelation));
}

void NsightImporter::take_os(SqliteRows& row) {
  const auto span = span_of(row);
  const auto thread = row.integer(kGlobalTid);
  if (!span || !thread) return count(import_bad_rows);
  add_slice(*span, host_track(*thread), name_of(row.integer(kNameId)), os_);
}

void NsightImporter::take_nvtx(SqliteRows& row) {
  constexpr int kText = 3, kTextId = 4, kType = 5;
  const auto type = row.integer(kType);
  const bool is_range = type == kNvtxPushPop || type == kNvtxStartEnd;
  // Names of categories, threads and domains are no events; nor are the ranges of other tools'
  // texts. A file without types has nothing but ranges and marks.
  if (type && !is_range && type != kNvtxMark) return count(import_other_rows);
  const auto start_ns = time_of(row.integer(kStart));
  const auto thread = row.integer(kGlobalTid);
  if (!start_ns || !thread) return count(import_bad_rows);
  const auto text = row.text(kText);
  const bool is_mark = type == kNvtxMark || (!is_range && row.is_null(kEnd));
  const auto span = row.is_null(kEnd) ? Span{*start_ns, *start_ns - 1} : span_of(row);
  if (!is_mark && !span) return count(import_bad_rows);
  StringId name{};
  if (text) {
    name = intern(plain_name(cut(*text)));
  } else if (!row.is_null(kTextId)) {
    name = name_of(row.integer(kTextId));
  }
  if (is_mark) return add_mark(*start_ns, host_track(*thread), name);
  add_slice(*span, host_track(*thread), name, annotation_);
}

std::uint32_t NsightImporter::add_process(std::int32_t pid, StringId name, StringId role) {
  Process process;
  process.pid = pid;
  while (!used_pids_.insert(process.pid).second)
    process.pid = process.pid < kFreePid ? kFreePid : process.pid + 1;
  process.name = name;
  process.role = role;
  process.rank = file_.rank;
  const auto index = static_cast<std::uint32_t>(trace_.processes.size());
  trace_.processes.push_back(process);
  Track track;
  track.kind = TrackKind::kProcess;
  track.pid = process.pid;
  process_tracks_[index] = TrackId{static_cast<std::uint32_t>(trace_.tracks.size())};
  trace_.tracks.push_back(track);
  return index;
}

TrackId NsightImporter::add_thread(std::uint32_t process, std::int64_t tid, StringId name) {
  Track track;
  track.kind = TrackKind::kThread;
  track.parent = process_tracks_[process];
  track.pid = trace_.processes[process].pid;
  const auto others = static_cast<std::int32_t>(streams_.size() + threads_.size());
  track.tid = tid >= 0 && tid < kFreeTid ? static_cast<std::int32_t>(tid) : kFreeTid + others;
  track.name = name;
  const TrackId id{static_cast<std::uint32_t>(trace_.tracks.size())};
  trace_.tracks.push_back(track);
  return id;
}

std::uint32_t NsightImporter::host_process(std::int64_t pid) {
  const auto [process, is_new] = hosts_.try_emplace(pid, 0);
  if (is_new) {
    const StringId role = file_.rank == kNoRank ? StringId{} : intern("rank");
    process->second = add_process(static_cast<std::int32_t>(pid), StringId{}, role);
  }
  return process->second;
}

/// Each process has its own device 0: streams are the process's, where the export names it or holds
/// one alone. Else a device is a process of its own.
TrackId NsightImporter::stream_track(std::optional<std::int64_t> global_pid, std::int64_t device,
                                     std::int64_t stream) {
  std::int64_t pid = global_pid ? *global_pid >> kPidShift & kIdMask : 0;
  if (pid == 0 && hosts_.size() == 1) pid = hosts_.begin()->first;
  const auto [known, is_new] = streams_.try_emplace({pid, device, stream}, kNoTrack);
  if (!is_new) return known->second;
  if (pid > 0) {
    known->second = add_thread(host_process(pid), kFreeTid,
                               intern(fmt::format("GPU {} stream {}", device, stream)));
    return known->second;
  }
  const auto [process, is_new_device] = devices_.try_emplace(device, 0);
  if (is_new_device) {
    process->second = add_process(kFreePid + static_cast<std::int32_t>(device),
                                  intern(fmt::format("GPU {}", device)), device_);
  }
  known->second = add_thread(process->second, stream, intern(fmt::format("stream {}", stream)));
  return known->second;
}

TrackId NsightImporter::host_track(std::int64_t global_tid) {
  const std::int64_t pid = global_tid >> kPidShift & kIdMask;
  const std::int64_t key = pid << kPidShift | (global_tid & kIdMask);
  const auto [known, is_new] = threads_.try_emplace(key, kNoTrack);
  if (is_new) known->second = add_thread(host_process(pid), global_tid & kIdMask, StringId{});
  return known->second;
}

void NsightImporter::take_thread_name(SqliteRows& row) {
  const auto global_tid = row.integer(0);
  if (!global_tid) return count(import_bad_rows);
  const auto known = threads_.find(*global_tid & (kIdMask << kPidShift | kIdMask));
  if (known != threads_.end()) trace_.tracks[known->second.raw].name = name_of(row.integer(1));
}

void NsightImporter::take_process_name(SqliteRows& row) {
  const auto global_pid = row.integer(0);
  if (!global_pid) return count(import_bad_rows);
  const auto known = hosts_.find(*global_pid >> kPidShift & kIdMask);
  const auto name = row.text(1);
  if (known != hosts_.end() && name) trace_.processes[known->second].name = intern(cut(*name));
}

Result<ImportedFile> NsightImporter::read() {
  for (const Table& table : kTables)
    TRY_VOID(read_table(table));
  if (tables_read_ > 0) return std::move(file_);
  return Error{Code::kNotFound, "read Nsight export: the database has no table of Nsight Systems",
               "export with `nsys export --type sqlite`"};
}

}  // namespace

Result<ImportedFile> import_nsight(ByteSpan untrusted, std::string_view file_name,
                                   const NsightOptions& options, Trace& into) {
  std::array<std::string_view, NsightImporter::kTables.size()> tables;
  for (std::size_t i = 0; i < tables.size(); ++i)
    tables[i] = NsightImporter::kTables[i].name;
  TRY(SqliteImage image,
      SqliteImage::open(untrusted, tables, {.row_bytes_max = options.row_bytes_max}));
  return NsightImporter(image, file_name, options, into).read();
}

}  // namespace kansoku::trace::import
