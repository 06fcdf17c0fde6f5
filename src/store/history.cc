// SPDX-License-Identifier: Apache-2.0
#include "store/history.h"

#include <fmt/format.h>
#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <cstdlib>
#include <functional>
#include <map>
#include <utility>

#include "store/internal/history_files.h"
#include "store/internal/history_sql.h"

namespace kansoku::store {
namespace {

using internal::HistoryFiles;
using internal::insert_sql;
using internal::integer;
using internal::is_feature_name;
using internal::kept_job;
using internal::kIncidentsSql;
using internal::kWindowsSql;
using internal::real;
using internal::Segment;
using internal::sql_any;
using internal::where_sql;
using trace::IncidentRecord;

constexpr std::string_view kSchemaVersion = "1";
constexpr std::size_t kFixedColumns = 4;  // of windows: wall_ns, job, rank, pid
constexpr std::size_t kJobsMax = 4096;    // that wait to be written
constexpr std::int64_t kDayNs = 86'400'000'000'000;
constexpr std::uint64_t kSegmentsPerHistory = 16;  // so much of it goes at once

Result<void> make_folder(const std::string& folder) {
  struct stat status {};
  if (::mkdir(folder.c_str(), 0700) != 0 && errno != EEXIST)
    return errno_error(errno, "create folder", folder);
  if (::stat(folder.c_str(), &status) != 0) return errno_error(errno, "stat", folder);
  if (!S_ISDIR(status.st_mode)) return errno_error(ENOTDIR, "open folder", folder);
  return {};
}

Result<void> run_all(Database& database, const std::vector<std::string>& statements) {
  for (const std::string& sql : statements)
    if (const auto done = database.query(sql); !done) return done.error();
  return {};
}

}  // namespace

struct History::Impl {
  HistoryOptions options;
  HistoryFiles files;
  std::vector<std::string> places;
  // Windows that are not written yet. Values lie one row behind the other.
  struct Row {
    std::int64_t wall_ns;
    std::uint32_t job;
    std::int32_t rank, pid;
  };
  std::vector<Row> rows;
  std::vector<float> values;
  std::vector<std::string> jobs;
  std::int64_t next_write_ns{0};
  std::map<std::string, IncidentRecord, std::less<>> pending;  // incidents, by id
  Counts counts;

  Impl(HistoryOptions its_options, const std::string& folder, std::vector<std::string> its_places)
      : options(std::move(its_options)), files(folder), places(std::move(its_places)) {}

  [[nodiscard]] std::uint64_t segment_bytes() const { return options.bytes / kSegmentsPerHistory; }
  [[nodiscard]] Result<Database> open(const std::string& path, std::string_view table_sql);
  [[nodiscard]] Result<Database> open_to_read(const std::string& path);
  [[nodiscard]] Result<std::vector<std::string>> columns(Database& database);
  [[nodiscard]] Result<void> with_file(const std::string& path, std::string_view table_sql,
                                       const std::function<Result<void>(Database&)>& use);
  [[nodiscard]] Result<void> write_file(const std::string& path, std::string_view table_sql,
                                        const std::function<Result<void>(Database&)>& use);
  [[nodiscard]] Result<void> note(Result<void> done);
  [[nodiscard]] std::string current_segment() const;
  [[nodiscard]] Result<void> write_windows();
  [[nodiscard]] Result<void> append_rows(Database& database);
  [[nodiscard]] Result<void> write_incidents();
  [[nodiscard]] Result<void> read_segment(const Segment& segment, const std::string& where,
                                          std::string_view feature, std::vector<HistoryValue>& out);
  void drop_oldest_rows();
  std::uint32_t job_index(std::string_view job);
  [[nodiscard]] Result<void> retain_incidents(std::int64_t oldest_ns);
};

Result<Database> History::Impl::open(const std::string& path, std::string_view table_sql) {
  const bool is_new = HistoryFiles::file_bytes(path) == 0;
  TRY(Database database,
      Database::open_file(path, {.memory_bytes = options.memory_bytes, .is_read_only = false},
                          places));
  if (is_new) {
    // Created by the library with the mode that the process has for files.
    ::chmod(path.c_str(), 0600);
    TRY_VOID(run_all(
        database, {"BEGIN", std::string(table_sql), "CREATE TABLE meta(key VARCHAR, value VARCHAR)",
                   fmt::format("INSERT INTO meta VALUES ('schema_version', '{}')", kSchemaVersion),
                   "COMMIT"}));
  }
  TRY(const Table meta, database.query("SELECT value FROM meta WHERE key = 'schema_version'"));
  if (meta.rows.size() != 1 || meta.rows[0][0] != kSchemaVersion)
    return Error{Code::kCorrupt, "open " + path + ": the file has another version"};
  return database;
}

Result<Database> History::Impl::open_to_read(const std::string& path) {
  TRY_VOID(HistoryFiles::check(path));
  return Database::open_file(path, {.memory_bytes = options.memory_bytes, .is_read_only = true},
                             places);
}

/// Writes to a file; one that turns out to be damaged is set aside, and a new one is begun once.
Result<void> History::Impl::with_file(const std::string& path, std::string_view table_sql,
                                      const std::function<Result<void>(Database&)>& use) {
  Result<void> done;
  for (int attempt = 0; attempt < 2; ++attempt) {
    done = write_file(path, table_sql, use);
    if (done || done.error().code != Code::kCorrupt) return done;
    TRY(const std::string aside, HistoryFiles::set_aside(path));
    ++counts.damaged_files;
    counts.last_error = done.error().what + "; set aside as " + aside;
  }
  return done;
}

Result<void> History::Impl::write_file(const std::string& path, std::string_view table_sql,
                                       const std::function<Result<void>(Database&)>& use) {
  TRY_VOID(HistoryFiles::check(path));
  TRY_VOID(HistoryFiles::begin_writing(path));
  const bool is_new = HistoryFiles::file_bytes(path) == 0;
  bool is_whole = false;
  Result<void> done;
  {
    auto database = open(path, table_sql);
    done = database ? use(*database) : Result<void>(database.error());
    // Closing would do it too, and could not say that it failed. Committed rows are in the log
    // beside the file then, and not to be written again.
    if (done) is_whole = database->query("CHECKPOINT").has_value();
    if (database) std::move(*database).close_and_release();
  }
  if (!done && is_new) {
    HistoryFiles::remove(path);  // half begun, and nothing in it
    return done;
  }
  const auto sealed = HistoryFiles::end_writing(path, is_whole);
  if (done && (!is_whole || !sealed)) ++counts.failed_writes;
  return done;
}

Result<void> History::Impl::note(Result<void> done) {
  if (!done) ++counts.failed_writes;
  counts.last_error = done ? "" : done.error().what;
  return done;
}

std::string History::Impl::current_segment() const {
  const auto segments = files.segments();
  const std::int64_t first = std::max<std::int64_t>(0, rows.front().wall_ns);
  // After the clock was set back, too: begins must rise.
  if (!segments.empty() && segments.back().bytes < segment_bytes() &&
      first - segments.back().begin_ns < kDayNs)
    return segments.back().path;
  const std::int64_t after = segments.empty() ? 0 : segments.back().begin_ns + 1;
  return files.segment_path(std::max(first, after));
}

Result<std::vector<std::string>> History::Impl::columns(Database& database) {
  TRY(const Table table, database.query("SELECT column_name FROM duckdb_columns() WHERE "
                                        "database_name = 'file' AND table_name = 'windows' "
                                        "ORDER BY column_index"));
  std::vector<std::string> out;
  for (const auto& row : table.rows)
    out.push_back(row[0].value_or(""));
  return out;
}

Result<void> History::Impl::append_rows(Database& database) {
  TRY(std::vector<std::string> names, columns(database));
  if (names.size() < kFixedColumns) return Error{Code::kCorrupt, "history: columns are missing"};
  for (const std::string& feature : options.features) {
    if (std::find(names.begin(), names.end(), feature) != names.end()) continue;
    TRY_VOID(
        run_all(database, {fmt::format("ALTER TABLE windows ADD COLUMN \"{}\" FLOAT", feature)}));
    names.push_back(feature);
  }
  // For each column of the table the feature in it; one that nobody makes any more stays empty.
  std::vector<std::optional<std::size_t>> sources;
  for (std::size_t i = kFixedColumns; i < names.size(); ++i) {
    const auto found = std::find(options.features.begin(), options.features.end(), names[i]);
    sources.push_back(found == options.features.end() ? std::nullopt
                                                      : std::optional(static_cast<std::size_t>(
                                                            found - options.features.begin())));
  }
  return database.append("windows", rows.size(), [&](std::size_t n, RowWriter& to) {
    const Row& row = rows[n];
    to.integer(row.wall_ns);
    to.text(jobs[row.job]);
    to.integer(row.rank);
    to.integer(row.pid);
    for (const auto& source : sources) {
      const float value = source ? values[n * options.features.size() + *source] : std::nanf("");
      if (std::isnan(value))
        to.null();
      else
        to.real(value);
    }
  });
}

Result<void> History::Impl::write_windows() {
  if (rows.empty()) return {};
  TRY_VOID(with_file(current_segment(), kWindowsSql,
                     [this](Database& database) { return append_rows(database); }));
  counts.written_windows += rows.size();
  rows.clear();
  values.clear();
  jobs.clear();
  return {};
}

Result<void> History::Impl::write_incidents() {
  if (pending.empty()) return {};
  TRY_VOID(
      with_file(files.incidents_path(), kIncidentsSql, [this](Database& database) -> Result<void> {
        std::vector<std::string> statements{"BEGIN"};
        for (const auto& [id, incident] : pending) {
          statements.push_back("DELETE FROM incidents WHERE id = " + sql_any(id));
          statements.push_back(insert_sql(incident));
        }
        statements.emplace_back("COMMIT");
        return run_all(database, statements);
      }));
  pending.clear();
  return {};
}

void History::Impl::drop_oldest_rows() {
  if (rows.size() <= options.rows_pending_max) return;
  // A tenth at once: what stays is moved each time.
  const std::size_t count =
      std::min(rows.size(), rows.size() - options.rows_pending_max + options.rows_pending_max / 10);
  rows.erase(rows.begin(), rows.begin() + static_cast<std::ptrdiff_t>(count));
  values.erase(values.begin(),
               values.begin() + static_cast<std::ptrdiff_t>(count * options.features.size()));
  counts.dropped_windows += count;
}

std::uint32_t History::Impl::job_index(std::string_view job) {
  std::string name = jobs.size() < kJobsMax ? kept_job(job) : "(others)";
  const auto found = std::find(jobs.begin(), jobs.end(), name);
  if (found != jobs.end()) return static_cast<std::uint32_t>(found - jobs.begin());
  jobs.push_back(std::move(name));
  return static_cast<std::uint32_t>(jobs.size() - 1);
}

Result<void> History::Impl::read_segment(const Segment& segment, const std::string& where,
                                         std::string_view feature, std::vector<HistoryValue>& out) {
  TRY(Database database, open_to_read(segment.path));
  TRY(const std::vector<std::string> names, columns(database));
  if (std::find(names.begin(), names.end(), feature) == names.end()) return {};
  TRY(const Table table,
      database.query(fmt::format("SELECT wall_ns, rank, pid, \"{0}\" FROM windows WHERE {1} AND "
                                 "\"{0}\" IS NOT NULL ORDER BY wall_ns, rank, pid LIMIT {2}",
                                 feature, where, kValuesMax - out.size() + 1)));
  for (const auto& row : table.rows)
    out.push_back({integer<std::int64_t>(row[0]), integer<std::int32_t>(row[1]),
                   integer<std::int32_t>(row[2]), real(row[3])});
  std::move(database).close_and_release();
  if (out.size() > kValuesMax)
    return Error{Code::kLimit, fmt::format("history: more than {} values", kValuesMax),
                 "ask for a shorter time"};
  return {};
}

Result<void> History::Impl::retain_incidents(std::int64_t oldest_ns) {
  const std::string path = files.incidents_path();
  const std::uint64_t bytes = HistoryFiles::file_bytes(path);
  if (bytes == 0) return {};
  const bool is_large = bytes > options.bytes / 4;
  return with_file(path, kIncidentsSql, [&](Database& database) -> Result<void> {
    TRY_VOID(run_all(database, {fmt::format("DELETE FROM incidents WHERE "
                                            "greatest(begin_ns, end_ns) < {}",
                                            oldest_ns)}));
    if (!is_large) return {};
    // The file does not shrink, but what was deleted in it makes room. A record is about half of
    // its row.
    TRY(const Table lengths,
        database.query("SELECT CAST(2 * sum(strlen(record)) AS BIGINT) FROM incidents"));
    const bool has_rows = !lengths.rows.empty() && lengths.rows[0][0].has_value();
    if (!has_rows || integer<std::uint64_t>(lengths.rows[0][0]) < options.bytes / 8) return {};
    return run_all(database, {"DELETE FROM incidents WHERE begin_ns < "
                              "(SELECT median(begin_ns) FROM incidents)"});
  });
}

Result<History> History::open(const std::string& folder, HistoryOptions options,
                              const std::vector<std::string>& places) {
  for (const std::string& feature : options.features)
    if (!is_feature_name(feature))
      return Error{Code::kCorrupt, "history: feature " + feature + ": no such name"};
  if (options.features.size() > kFeaturesMax || options.bytes < kBytesMin)
    return Error{Code::kLimit, fmt::format("history: more than {} features, or less than {} bytes",
                                           kFeaturesMax, kBytesMin)};
  // That the library is there; its pages go again at once.
  TRY(Database probe, Database::open(places));
  std::move(probe).close_and_release();
  TRY_VOID(make_folder(folder));
  const std::unique_ptr<char, decltype(&std::free)> real_path(::realpath(folder.c_str(), nullptr),
                                                              &std::free);
  if (real_path == nullptr) return errno_error(errno, "find folder", folder);
  return History(std::make_unique<Impl>(std::move(options), std::string(real_path.get()), places));
}

History::History(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
History::History(History&& other) noexcept = default;
History& History::operator=(History&& other) noexcept = default;
History::~History() = default;

Result<void> History::add_windows(std::int64_t wall_ns, std::string_view job,
                                  std::span<const HistoryRow> rows) {
  if (rows.empty()) return {};
  Impl& it = *impl_;
  const std::uint32_t job_index = it.job_index(job);
  const std::int64_t interval = it.options.write_interval.count();
  // Nothing gathered yet, or a clock that was set back: the time begins now.
  if (it.rows.empty() || it.next_write_ns - wall_ns > interval)
    it.next_write_ns = wall_ns + interval;
  for (const HistoryRow& row : rows) {
    CHECK(row.values.size() == it.options.features.size());
    it.rows.push_back({wall_ns, job_index, row.rank, row.pid});
    for (const double value : row.values)
      it.values.push_back(static_cast<float>(value));
  }
  it.drop_oldest_rows();
  const bool is_full = it.rows.size() >= it.options.rows_per_write && it.counts.last_error.empty();
  if (!is_full && wall_ns < it.next_write_ns) return {};
  it.next_write_ns = wall_ns + interval;
  return flush();
}

Result<void> History::put_incident(const IncidentRecord& incident) {
  impl_->pending.insert_or_assign(incident.id, incident);
  auto done = impl_->note(impl_->write_incidents());
  if (impl_->pending.size() > kIncidentsPendingMax) {
    const auto oldest = std::min_element(
        impl_->pending.begin(), impl_->pending.end(),
        [](const auto& a, const auto& b) { return a.second.begin_ns < b.second.begin_ns; });
    impl_->pending.erase(oldest);
    ++impl_->counts.dropped_incidents;
  }
  return done;
}

Result<void> History::flush() {
  auto incidents = impl_->write_incidents();
  auto windows = impl_->write_windows();
  return impl_->note(incidents ? std::move(windows) : std::move(incidents));
}

Result<std::vector<IncidentRecord>> History::incidents(const IncidentFilter& filter) {
  std::map<std::string, IncidentRecord> by_id;
  if (HistoryFiles::file_bytes(impl_->files.incidents_path()) > 0) {
    TRY(Database database, impl_->open_to_read(impl_->files.incidents_path()));
    TRY(const Table table,
        database.query(fmt::format("SELECT record FROM incidents WHERE {} ORDER BY begin_ns DESC, "
                                   "id DESC LIMIT {}",
                                   where_sql(filter), filter.count_max)));
    std::move(database).close_and_release();
    for (const auto& row : table.rows) {
      TRY(const Json json, Json::parse(row[0].value_or("")));
      TRY(IncidentRecord one, IncidentRecord::from_json(json));
      std::string id = one.id;
      by_id.insert_or_assign(std::move(id), std::move(one));
    }
  }
  for (const auto& [id, incident] : impl_->pending) {
    by_id.erase(id);
    if (matches(filter, incident)) by_id.emplace(id, incident);
  }
  std::vector<IncidentRecord> out;
  out.reserve(by_id.size());
  for (auto& [id, incident] : by_id)
    out.push_back(std::move(incident));
  std::stable_sort(out.begin(), out.end(), [](const auto& a, const auto& b) {
    return a.begin_ns < b.begin_ns;  // ids rise already
  });
  if (out.size() > filter.count_max)
    out.erase(out.begin(), out.end() - static_cast<std::ptrdiff_t>(filter.count_max));
  return out;
}

Result<IncidentRecord> History::incident(std::string_view id) {
  const Error none{Code::kNotFound, "incident " + std::string(id) + ": not in the history"};
  if (const auto known = impl_->pending.find(id); known != impl_->pending.end())
    return known->second;
  if (HistoryFiles::file_bytes(impl_->files.incidents_path()) == 0) return none;
  TRY(Database database, impl_->open_to_read(impl_->files.incidents_path()));
  TRY(const Table table, database.query("SELECT record FROM incidents WHERE id = " + sql_any(id)));
  std::move(database).close_and_release();
  if (table.rows.empty()) return none;
  TRY(const Json json, Json::parse(table.rows.back()[0].value_or("")));
  return IncidentRecord::from_json(json);
}

Result<std::vector<HistoryValue>> History::windows(std::string_view job, std::int64_t since_ns,
                                                   std::int64_t until_ns,
                                                   std::string_view feature) {
  if (!is_feature_name(feature))
    return Error{Code::kNotFound, "history: feature " + std::string(feature) + ": no such name"};
  TRY_VOID(flush());
  const std::string where = fmt::format("job = {} AND wall_ns >= {} AND wall_ns < {}",
                                        sql_any(kept_job(job)), since_ns, until_ns);
  const auto segments = impl_->files.segments();
  std::vector<HistoryValue> out;
  for (std::size_t i = 0; i < segments.size(); ++i) {
    const bool is_before = i + 1 < segments.size() && segments[i + 1].begin_ns < since_ns;
    if (is_before || segments[i].begin_ns >= until_ns) continue;
    TRY_VOID(impl_->read_segment(segments[i], where, feature, out));
  }
  return out;
}

Result<void> History::retain(std::int64_t now_wall_ns) {
  Impl& it = *impl_;
  const std::int64_t oldest = now_wall_ns - it.options.age.count();
  auto segments = it.files.segments();
  // A segment's last window is not later than the next one's first.
  while (segments.size() > 1 && segments[1].begin_ns < oldest) {
    HistoryFiles::remove(segments.front().path);
    segments.erase(segments.begin());
  }
  if (segments.size() == 1 && segments[0].begin_ns < oldest - kDayNs && it.rows.empty()) {
    HistoryFiles::remove(segments[0].path);
    segments.clear();
  }
  auto done = it.note(it.retain_incidents(oldest));
  for (const std::string& path : it.files.damaged()) {
    if (it.files.bytes() <= it.options.bytes) break;
    HistoryFiles::remove(path);
  }
  // Room for what the next writes add.
  while (segments.size() > 1 && it.files.bytes() + it.segment_bytes() > it.options.bytes) {
    HistoryFiles::remove(segments.front().path);
    segments.erase(segments.begin());
  }
  return done;
}

std::uint64_t History::size_bytes() const {
  return impl_->files.bytes();
}

History::Counts History::counts() const {
  Counts out = impl_->counts;
  out.pending_windows = impl_->rows.size();
  out.pending_incidents = impl_->pending.size();
  return out;
}

}  // namespace kansoku::store
