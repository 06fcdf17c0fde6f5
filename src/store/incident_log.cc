// SPDX-License-Identifier: Apache-2.0
#include "store/incident_log.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <map>
#include <string>
#include <tuple>
#include <utility>

#include "sys/fd.h"

namespace kansoku::store {
namespace {

using trace::IncidentRecord;

void sort_by_begin(std::vector<IncidentRecord>& incidents) {
  std::sort(incidents.begin(), incidents.end(),
            [](const IncidentRecord& a, const IncidentRecord& b) {
              return std::tie(a.begin_ns, a.id) < std::tie(b.begin_ns, b.id);
            });
}

Result<sys::Fd> open_to_append(const std::string& path) {
  const int raw = ::open(path.c_str(), O_RDWR | O_APPEND | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
  if (raw < 0) return errno_error(errno, "open", path);
  return sys::Fd::adopt(raw);
}

/// True if the file ends within a line.
bool is_cut_off(const sys::Fd& file, off_t bytes) {
  char last = '\n';
  return bytes > 0 && ::pread(file.raw(), &last, 1, bytes - 1) == 1 && last != '\n';
}

/// The text of a log's file; none if it is not there.
Result<std::string> read_log(const std::string& path, std::uint64_t bytes_max) {
  auto text = sys::read_file(path, static_cast<std::size_t>(bytes_max));
  if (!text && text.error().code == Code::kNotFound) return std::string();
  return text;
}

}  // namespace

bool matches(const IncidentFilter& filter, const IncidentRecord& incident) {
  if (incident.end_ns != 0 && (filter.only_open || incident.end_ns < filter.since_ns)) return false;
  return incident.begin_ns < filter.until_ns &&
         (filter.job.empty() || filter.job == incident.job) &&
         (!filter.kind || *filter.kind == incident.kind);
}

Result<IncidentLog> IncidentLog::open(std::string path, Options options) {
  if (options.bytes_max < kBytesMin)
    return Error{Code::kLimit, "incident log " + path + ": less than " + std::to_string(kBytesMin) +
                                   " bytes allowed"};
  if (options.create) {
    TRY(const sys::Fd file, open_to_append(path));
  } else {
    TRY(const sys::Fd file, sys::Fd::open_regular(path));
  }
  return IncidentLog(std::move(path), options);
}

Result<void> IncidentLog::append(const std::string& line) {
  TRY(sys::Fd file, open_to_append(path_));
  struct stat status {};
  if (::fstat(file.raw(), &status) != 0) return errno_error(errno, "stat", path_);
  const std::uint64_t half = options_.bytes_max / 2;
  if (status.st_size > 0 && static_cast<std::uint64_t>(status.st_size) + line.size() + 1 > half) {
    const std::string old = path_ + ".1";
    if (::rename(path_.c_str(), old.c_str()) != 0) return errno_error(errno, "rename to", old);
    TRY(file, open_to_append(path_));
    status.st_size = 0;
  }
  const std::string text = (is_cut_off(file, status.st_size) ? "\n" : "") + line;
  const ssize_t written = ::write(file.raw(), text.data(), text.size());
  if (written == static_cast<ssize_t>(text.size())) return {};
  const int why = written < 0 ? errno : ENOSPC;
  // Half a line would be a bad line for ever; if it cannot be cut, the next append ends it.
  if (written > 0 && ::ftruncate(file.raw(), status.st_size) != 0)
    return errno_error(errno, "cut", path_);
  return errno_error(why, "append to", path_);
}

Result<void> IncidentLog::put(const IncidentRecord& incident) {
  const std::string line = incident.to_json().dump() + "\n";
  auto done = line.size() <= std::min<std::uint64_t>(kLineBytesMax, options_.bytes_max / 2)
                  ? append(line)
                  : Result<void>(Error{Code::kUnsupported, "incident log " + path_ + ": incident " +
                                                               incident.id + " is too long"});
  if (!done) ++failed_count_;
  return done;
}

Result<void> IncidentLog::label(std::string_view id, trace::IncidentLabel label) {
  TRY(const Page page, incidents({.job = "", .kind = {}, .count_max = SIZE_MAX}));
  for (IncidentRecord incident : page.incidents) {
    if (incident.id != id) continue;
    incident.label = label;
    return put(incident);
  }
  return Error{Code::kNotFound, "incident " + std::string(id) + ": not in " + path_};
}

Result<IncidentLog::Page> IncidentLog::incidents(const IncidentFilter& filter) const {
  TRY(std::string text, read_log(path_ + ".1", options_.bytes_max));
  if (!text.empty() && text.back() != '\n') text += '\n';
  TRY(const std::string latest, read_log(path_, options_.bytes_max));
  Page page = parse(text + latest);
  std::erase_if(page.incidents, [&](const auto& one) { return !matches(filter, one); });
  if (page.incidents.size() > filter.count_max)
    page.incidents.erase(page.incidents.begin(),
                         page.incidents.end() - static_cast<std::ptrdiff_t>(filter.count_max));
  return page;
}

IncidentLog::Page IncidentLog::parse(std::string_view untrusted) {
  Page page;
  std::map<std::string, IncidentRecord> by_id;
  while (!untrusted.empty()) {
    const std::size_t end = untrusted.find('\n');
    const std::string_view line = untrusted.substr(0, end);
    untrusted.remove_prefix(end == std::string_view::npos ? untrusted.size() : end + 1);
    if (line.empty()) continue;
    const auto json = line.size() <= kLineBytesMax
                          ? Json::parse(line)
                          : Result<Json>(Error{Code::kLimit, "line too long"});
    auto incident = json ? IncidentRecord::from_json(*json) : Result<IncidentRecord>(json.error());
    if (!incident) {
      ++page.bad_lines;
      continue;
    }
    IncidentRecord& kept = by_id[incident->id];
    // Earlier versions wrote states without the label that was there.
    if (incident->label == trace::IncidentLabel::kNone) incident->label = kept.label;
    kept = std::move(incident).value();
  }
  for (auto& [id, incident] : by_id)
    page.incidents.push_back(std::move(incident));
  sort_by_begin(page.incidents);
  return page;
}

}  // namespace kansoku::store
