// SPDX-License-Identifier: Apache-2.0
#include "agent/job_table.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <system_error>
#include <utility>

#include "agent/job_key.h"
#include "common/rng.h"
#include "detect/feature.h"
#include "sys/fd.h"

namespace kansoku::agent {
namespace {

using incident::Observation;

constexpr std::size_t kModelBytesMax = 16U << 20;

constexpr int kGenerationBits = 32;

/// The detectors of one job after the other number their episodes alike.
std::uint64_t episode_of(std::uint32_t generation, std::uint64_t number) {
  return static_cast<std::uint64_t>(generation) << kGenerationBits | number;
}

void report(const std::string& job, std::uint32_t generation, std::vector<detect::Observation> seen,
            std::vector<Observation>& out) {
  for (detect::Observation& one : seen) {
    const auto source = one.is_growth ? incident::Source::kGrowth : incident::Source::kDetector;
    out.push_back({job, source, episode_of(generation, one.episode), std::move(one.facts)});
  }
}

}  // namespace

JobTable::JobTable(JobTableOptions options) : options_(std::move(options)) {
  if (!options_.models_folder.empty()) prune_models();
}

/// Jobs of a sweep have a model each, and most are never run again. Half-written ones are of an
/// agent that was killed.
void JobTable::prune_models() const {
  std::vector<std::pair<std::filesystem::file_time_type, std::filesystem::path>> files;
  std::error_code error;
  for (const auto& entry : std::filesystem::directory_iterator(options_.models_folder, error)) {
    if (entry.path().filename().string().find(".model.tmp") != std::string::npos) {
      std::error_code ignored;
      std::filesystem::remove(entry.path(), ignored);
    }
    const bool is_used = std::any_of(jobs_.begin(), jobs_.end(), [&](const auto& job) {
      return job.second.model_path == entry.path().string();
    });
    if (is_used || entry.path().extension() != ".model") continue;
    if (const auto time = entry.last_write_time(error); !error)
      files.emplace_back(time, entry.path());
  }
  if (files.size() <= kModelsMax) return;
  std::sort(files.begin(), files.end());
  const std::size_t count = files.size() - kModelsMax;
  for (std::size_t i = 0; i < count; ++i)
    std::filesystem::remove(files[i].second, error);
  options_.log(fmt::format("{} models in {}: the {} oldest are deleted", files.size(),
                           options_.models_folder, count));
}

bool JobTable::is_too_young(const FeatureRow& row, BootTime now) {
  if (row.window.rank >= 0 || jobs_.contains(row.job)) return false;
  Young& young = young_.try_emplace(row.job, Young{now, now}).first->second;
  young.last = now;
  return now - young.first < kLivesAtLeast;
}

std::optional<detect::JobModel> JobTable::read_model(const std::string& path) {
  const auto text = sys::read_file(path, kModelBytesMax);
  if (!text) {
    if (text.error().code == Code::kNotFound) return std::nullopt;
    ++counters_.refused_models;
    options_.log(text.error().what);
    return std::nullopt;
  }
  auto model = detect::JobModel::from_text(*text);
  if (model) return std::move(model).value();
  ++counters_.refused_models;
  options_.log(fmt::format("model {} is unusable, and its job is learnt again: {}", path,
                           model.error().what));
  return std::nullopt;
}

/// One user's jobs leave room for those of others.
bool JobTable::has_room_for(std::uint32_t user) const {
  const auto of_user = std::count_if(jobs_.begin(), jobs_.end(),
                                     [&](const auto& job) { return job.second.user == user; });
  return jobs_.size() < kJobsMax && static_cast<std::size_t>(of_user) < kJobsOfUserMax;
}

JobTable::Job* JobTable::find_or_create(const FeatureRow& row, BootTime now) {
  if (const auto known = jobs_.find(row.job); known != jobs_.end()) return &known->second;
  const std::uint32_t user = row.process->process.owner.user;
  if (!has_room_for(user)) {
    if (counters_.over_limit++ == 0) {
      options_.log(fmt::format(
          "more than {} jobs at once, or {} of one user: {} and others are measured but not judged",
          kJobsMax, kJobsOfUserMax, row.job));
    }
    return nullptr;
  }
  auto key = job_key(row.process->process, row.window.rank < 0 ? 1 : row.process->place.world_size,
                     options_.hardware);
  std::string path;
  std::optional<detect::JobModel> model;
  if (!options_.models_folder.empty()) {
    path = fmt::format("{}/{:016x}.model", options_.models_folder, hash_of(key.text()));
    model = read_model(path);
  }
  const detect::DetectorOptions detecting{.job = row.job,
                                          .key = key,
                                          .window = options_.window,
                                          .learn_time = options_.learn_time,
                                          .alarms_per_day = options_.alarms_per_day,
                                          .seed = options_.seed};
  bool had_model = model.has_value();
  auto detector = detect::Detector::create(detect::known_features(), detecting, std::move(model));
  if (!detector && had_model) {  // of other features: an older version's
    ++counters_.refused_models;
    options_.log(detector.error().what);
    detector = detect::Detector::create(detect::known_features(), detecting);
    had_model = false;
  }
  if (!detector) {
    options_.log(detector.error().what);
    return nullptr;
  }
  options_.log(fmt::format("job {} ({}): {}", row.job, key.command,
                           had_model ? "watching with the model of earlier runs" : "learning"));
  Job job{std::move(key), std::move(path), std::move(detector).value()};
  job.seen_at = now;
  job.user = user;
  job.generation = ++generations_;
  job.is_local = row.is_local_job;
  job.save_at = now + options_.save_every;
  return &jobs_.emplace(row.job, std::move(job)).first->second;
}

void JobTable::save(Job& job) {
  const detect::JobModel* model = job.detector.model();
  if (job.model_path.empty() || model == nullptr) return;
  const std::uint64_t refreshes = job.detector.status().refreshes;
  if (job.is_saved && refreshes == job.saved_refreshes) return;
  const bool is_new = !job.is_saved && ::access(job.model_path.c_str(), F_OK) != 0;
  if (const auto written = sys::write_file(job.model_path, model->to_text()); !written) {
    ++counters_.failed_writes;
    options_.log(written.error().what);
    return;
  }
  job.is_saved = true;
  job.saved_refreshes = refreshes;
  if (is_new) prune_models();
}

std::vector<Observation> JobTable::on_rows(std::int64_t wall_ns, BootTime now,
                                           const std::vector<FeatureRow>& rows) {
  std::map<std::string_view, std::vector<const FeatureRow*>> by_job;
  for (const FeatureRow& row : rows)
    by_job[row.job].push_back(&row);
  std::vector<Observation> out;
  std::vector<detect::Window> windows;
  for (const auto& [name, members] : by_job) {
    if (is_too_young(*members.front(), now)) continue;
    Job* job = find_or_create(*members.front(), now);
    if (job == nullptr) continue;
    windows.clear();
    for (const FeatureRow* row : members)
      windows.push_back(row->window);
    report(std::string(name), job->generation, job->detector.on_windows(wall_ns, windows), out);
    job->seen_at = now;
    job->has_run = true;
    const bool is_first = !job->has_tried_saving && job->detector.model() != nullptr;
    if (is_first || now >= job->save_at) {
      job->save_at = now + options_.save_every;
      job->has_tried_saving = is_first || job->has_tried_saving;
      save(*job);
    }
  }
  std::erase_if(
      young_, [&](const auto& one) { return one.second.last != now || jobs_.contains(one.first); });
  forget(wall_ns, now, out);
  return out;
}

std::vector<Observation> JobTable::pass(std::int64_t wall_ns, BootTime now,
                                        const std::vector<FeatureRow>& rows) {
  for (const FeatureRow& row : rows)
    if (const auto known = jobs_.find(row.job); known != jobs_.end()) known->second.seen_at = now;
  std::vector<Observation> out;
  forget(wall_ns, now, out);
  return out;
}

void JobTable::forget(std::int64_t wall_ns, BootTime now, std::vector<Observation>& out) {
  for (auto one = jobs_.begin(); one != jobs_.end();) {
    auto& [name, job] = *one;
    if (job.has_run && now - job.seen_at >= kRunIsOverAfter * options_.window) {
      report(name, job.generation, job.detector.finish(wall_ns), out);
      job.has_run = false;
    }
    if (now - job.seen_at < kForgetAfter) {
      ++one;
      continue;
    }
    save(job);
    options_.log(fmt::format("job {} is over", name));
    one = jobs_.erase(one);
  }
}

std::vector<Observation> JobTable::finish(std::int64_t wall_ns) {
  std::vector<Observation> out;
  for (auto& [name, job] : jobs_) {
    report(name, job.generation, job.detector.finish(wall_ns), out);
    save(job);
  }
  return out;
}

bool JobTable::take_label(const incident::Reporter& reporter, trace::IncidentLabel label) {
  const auto job = jobs_.find(reporter.job);
  const bool is_judged = reporter.source == incident::Source::kDetector ||
                         reporter.source == incident::Source::kGrowth;
  if (job == jobs_.end() || !is_judged ||
      reporter.episode >> kGenerationBits != job->second.generation)
    return false;
  const std::uint64_t number = reporter.episode & ((std::uint64_t{1} << kGenerationBits) - 1);
  return job->second.detector.take_label(number, label == trace::IncidentLabel::kFalse);
}

std::vector<JobTable::JobStatus> JobTable::status() const {
  std::vector<JobStatus> out;
  for (const auto& [name, job] : jobs_) {
    out.push_back({name, job.key.text(), job.key.command, job.key.world_size, job.is_local,
                   job.detector.status()});
  }
  return out;
}

}  // namespace kansoku::agent
