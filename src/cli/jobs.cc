// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <CLI/CLI.hpp>

#include "capture/job.h"
#include "cli/commands.h"
#include "common/json.h"

namespace kansoku::cli {
namespace {

Json to_json(const capture::Job& job) {
  Json ranks = Json::array();
  for (const auto& [rank, pid] : job.rank_pids())
    ranks.push(Json::object().set("rank", rank).set("pid", pid));
  return Json::object()
      .set("name", job.name)
      .set("world_size", job.world_size)
      .set("ranks", std::move(ranks));
}

class Jobs final : public Command {
 public:
  void declare(CLI::App& app) override {
    app.add_flag("--json", json_, "print JSON (schema kansoku.jobs/1)");
    app.footer(
        "A job is a set of processes whose environment names rank and world size\n"
        "(RANK/WORLD_SIZE, OMPI_*, SLURM_*). Processes of other users need root.");
  }

  int run() override {
    const auto jobs = capture::find_jobs(sys::Procfs());
    if (json_) {
      Json list = Json::array();
      for (const capture::Job& job : jobs)
        list.push(to_json(job));
      fmt::print(
          "{}\n",
          Json::object().set("schema", "kansoku.jobs/1").set("jobs", std::move(list)).dump(2));
      return kExitOk;
    }
    if (jobs.empty()) {
      fmt::print("no distributed job runs on this host\n");
      return kExitOk;
    }
    fmt::print("{:<28} {:>10}  {}\n", "JOB", "RANKS", "PIDS (rank:pid)");
    for (const capture::Job& job : jobs) {
      std::string pids;
      const auto ranks = job.rank_pids();
      for (const auto& [rank, pid] : ranks)
        pids += fmt::format("{}{}:{}", pids.empty() ? "" : " ", rank, pid);
      fmt::print("{:<28} {:>10}  {}\n", job.name,
                 fmt::format("{} of {}", ranks.size(), job.world_size), pids);
    }
    return kExitOk;
  }

 private:
  bool json_{false};
};

}  // namespace

std::unique_ptr<Command> make_jobs() {
  return std::make_unique<Jobs>();
}

}  // namespace kansoku::cli
