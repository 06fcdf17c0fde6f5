// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <set>

#include "capture/pack.h"
#include "capture/resolve.h"
#include "cli/commands.h"
#include "cli/wiring.h"
#include "common/json.h"
#include "common/text.h"
#include "sys/procfs.h"

namespace kansoku::cli {
namespace {

std::string extras_of(const capture::Pack& pack) {
  std::string out;
  const auto add = [&out](const std::string& text) { out += (out.empty() ? "" : ", ") + text; };
  std::set<std::string> libraries;
  for (const auto& probes : pack.functions)
    libraries.insert(probes.library);
  for (const auto& probes : pack.usdt)
    libraries.insert(probes.library + " (usdt)");
  for (const std::string& library : libraries)
    add(library);
  std::size_t syscall_count = 0;
  for (const auto& syscalls : pack.syscalls)
    syscall_count += syscalls.names.size();
  if (syscall_count != 0) add(fmt::format("{} system calls", syscall_count));
  std::size_t tracepoint_count = 0;
  for (const auto& tracepoints : pack.tracepoints)
    tracepoint_count += tracepoints.names.size();
  if (tracepoint_count != 0) add(fmt::format("{} tracepoints", tracepoint_count));
  if (pack.scheduler) add("scheduler");
  if (pack.python_hz != 0) add(fmt::format("Python stacks at {} Hz", pack.python_hz));
  if (pack.cpu_hz != 0) add(fmt::format("on-CPU samples at {} Hz", pack.cpu_hz));
  return out;
}

// Probes that one pack would attach in one process.
Json plan_for(const capture::Pack& pack, std::int32_t pid, const sys::Procfs& procfs) {
  Json files = Json::array();
  const auto mappings = procfs.maps(pid);
  std::set<std::string> seen;
  for (const sys::Mapping& mapping : mappings ? *mappings : std::vector<sys::Mapping>{}) {
    if (!mapping.executable || mapping.inode == 0 || !seen.insert(mapping.path).second) continue;
    const std::string library(base_name(mapping.path));
    const auto wants = [&](const auto& probes) {
      return capture::any_glob_match(probes.library, library);
    };
    if (std::none_of(pack.functions.begin(), pack.functions.end(), wants) &&
        std::none_of(pack.usdt.begin(), pack.usdt.end(), wants)) {
      continue;
    }
    auto file = sys::ElfFile::open(procfs.through_root(pid, mapping.path));
    if (!file) continue;
    const capture::Resolution found = capture::resolve_pack(pack, **file, library);
    std::size_t cheap = 0;
    for (const auto& probe : found.probes)
      cheap += capture::bpf::is_cheap(probe.site.site_class) ? 1 : 0;
    Json missing = Json::array();
    for (const auto* lines : {&found.missing, &found.refused}) {
      for (const std::string& line : *lines)
        missing.push(line);
    }
    files.push(Json::object()
                   .set("library", mapping.path)
                   .set("probes", std::uint64_t{found.probes.size() + found.usdt.size()})
                   .set("cheap", std::uint64_t{cheap})
                   .set("missing", std::move(missing)));
  }
  return files;
}

class Probes final : public Command {
 public:
  void declare(CLI::App& app) override {
    CLI::App* list = app.add_subcommand(
        "list", "list the packs; with -p, also the functions that they find in a process");
    list->add_option("-p,--pid", pid_, "running process to search");
    list->add_flag("--json", json_, "print JSON (schema kansoku.probes/1)");
    app.require_subcommand(1);
    app.footer(
        "Packs are TOML files; add your own under ~/.config/kansoku/probes or name a file: "
        "--probes ./my.toml.\n"
        "docs/probes.md describes the format.");
  }

  int run() override {
    const auto packs = known_packs();
    if (!packs) return report(packs.error());
    const sys::Procfs procfs;
    if (pid_ != 0 && !procfs.stat(pid_)) {
      return report(
          {Code::kNotFound, fmt::format("list probes of process {}: no such process", pid_), ""});
    }
    return json_ ? print_json(*packs, procfs) : print_text(*packs, procfs);
  }

 private:
  [[nodiscard]] int print_json(const std::vector<capture::Pack>& packs,
                               const sys::Procfs& procfs) const {
    Json list = Json::array();
    for (const capture::Pack& pack : packs) {
      Json entry = Json::object()
                       .set("name", pack.name)
                       .set("default", pack.is_default)
                       .set("description", pack.description)
                       .set("file", pack.path);
      if (pid_ != 0) entry.set("attaches", plan_for(pack, pid_, procfs));
      list.push(std::move(entry));
    }
    fmt::print(
        "{}\n",
        Json::object().set("schema", "kansoku.probes/1").set("packs", std::move(list)).dump(2));
    return kExitOk;
  }

  [[nodiscard]] int print_text(const std::vector<capture::Pack>& packs,
                               const sys::Procfs& procfs) const {
    for (const capture::Pack& pack : packs) {
      fmt::print("{:<14}{} {}\n{:<16}{}\n", pack.name, pack.is_default ? "*" : " ",
                 pack.description, "", extras_of(pack));
      if (pid_ == 0) continue;
      const Json plan = plan_for(pack, pid_, procfs);
      for (std::size_t i = 0; i < plan.size(); ++i) {
        const Json file = plan.at(i);
        fmt::print("{:<16}-> {} probes ({} cheap) in {}\n", "", file.at("probes").as_int(),
                   file.at("cheap").as_int(), printable(file.at("library").as_string()));
        const Json missing = file.at("missing");
        for (std::size_t k = 0; k < missing.size(); ++k)
          fmt::print("{:<16}   missing {}\n", "", printable(missing.at(k).as_string()));
      }
    }
    fmt::print("\n* = in the list \"default\"\n");
    return kExitOk;
  }

  std::int32_t pid_{0};
  bool json_{false};
};

}  // namespace

std::unique_ptr<Command> make_probes() {
  return std::make_unique<Probes>();
}

}  // namespace kansoku::cli
