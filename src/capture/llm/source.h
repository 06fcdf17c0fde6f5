// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <tuple>
#include <vector>

#include "capture/bpf/model_engine.h"
#include "capture/llm/decoder.h"
#include "capture/llm/governor.h"
#include "capture/pack.h"
#include "capture/source.h"
#include "common/result.h"
#include "sys/elf.h"
#include "sys/procfs.h"

namespace kansoku::capture::llm {

STAT(llm_not_covered, kDataLoss, kCapture,
     "processes of which only some levels can be seen: their libraries lack functions or have "
     "another layout");

struct SourceOptions {
  std::vector<FunctionProbes> probes;  // those of packs with a `model` role
  trace::ModelLevel level{trace::ModelLevel::kOperator};
  double budget{0.01};  // of the time of each process; 1 and above: no limit
  std::uint32_t ring_bytes{16U << 20};
  bool is_perf{false};  // as of bpf::ModelEngine
  std::function<void(const std::string&)> log;
};

/// The highest level that some of the probes are of.
[[nodiscard]] trace::ModelLevel highest_level(const std::vector<FunctionProbes>& probes);
/// Takes the probes with a `model` role out of packs.
[[nodiscard]] std::vector<FunctionProbes> take_model_probes(std::vector<Pack>& packs);
/// The level whose places those of a role are.
[[nodiscard]] trace::ModelLevel level_of(wire_model_role role);

/// Models in inference inside llama.cpp and other programs on ggml: tokens, micro-batches, graphs,
/// operators, threads (trace/inference.h). Attaches to the libraries of each observed process alone
/// and reads their structures by a layout that is checked against the bytes that are read. Borrows
/// writer, clock and procfs.
class ModelSource final : public Source {
 public:
  ModelSource(trace::Writer& writer, const Clock& clock, const sys::Procfs& procfs,
              SourceOptions options, std::shared_ptr<bpf::ModelEngine> engine);
  ~ModelSource() override;

  [[nodiscard]] std::string_view name() const override { return "model"; }
  void inspect(const Observed& process, BootTime now) override;
  void renew(std::int32_t pid) override { forget(pid); }
  void forget(std::int32_t pid) override;
  [[nodiscard]] BootTime due() const override { return next_; }
  void poll(const Processes& processes, BootTime now) override;
  void drain() override;
  void begin_trace(BootTime now) override;
  void end_trace(BootTime now) override;
  void set_enabled(bool enabled) override;
  [[nodiscard]] std::uint64_t lost() const override;
  void add_losses(Losses& out) const override;
  void add_problems(std::vector<std::string>& out) const override;

  [[nodiscard]] trace::ModelLevel level() const { return attached_; }
  [[nodiscard]] const Decoder::Counters& counters() const { return decoder_.counters(); }

 private:
  using FileKey = std::tuple<std::uint32_t, std::uint32_t, std::uint64_t>;  // device, inode
  /// The places of one file, by level.
  struct File {
    std::array<std::vector<bpf::UprobeSpec>, kLevels> specs;
    std::vector<std::string> problems;
    std::array<bool, WIRE_MODEL_ROLES> roles{};  // whose functions it has
    bool has_names{false};                       // of operators
  };
  struct Mapped {
    std::shared_ptr<const File> file;
    std::string path;  // as seen from here
    std::array<bpf::ModelEngine::Handle, kLevels> handles{};
  };
  struct Target {
    std::map<FileKey, Mapped> files;
    std::optional<EngineNames> names;
    wire_model_layout wire{};
    std::size_t layout{0};  // index into layouts()
    trace::ModelLevel level_max{trace::ModelLevel::kThread};
    std::string why;  // no higher level
    trace::TrackHandle track{};
    std::vector<std::string> problems;
  };

  [[nodiscard]] bool is_wanted(std::string_view library) const;
  [[nodiscard]] std::shared_ptr<const File> resolve(sys::ElfFile& elf, std::string_view library);
  bool add_file(std::int32_t pid, Target& target, const sys::Mapping& mapping,
                const std::vector<sys::Mapping>& all);
  bool may_still_link(std::int32_t pid);
  void introduce(std::int32_t pid, Target& target);
  void tell_reach(std::int32_t pid, const Target& target);
  void tell_nothing_found(std::int32_t pid, Target& target);
  void limit(std::int32_t pid, Target& target, trace::ModelLevel level, const std::string& why);
  void attach(std::int32_t pid, Target& target, trace::ModelLevel level);
  void apply(trace::ModelLevel level, BootTime now);
  void close_window(BootTime now);
  [[nodiscard]] Governor::Cost cost_since();
  void check_layouts();

  trace::Writer& writer_;
  const Clock& clock_;
  const sys::Procfs& procfs_;
  SourceOptions options_;
  std::shared_ptr<bpf::ModelEngine> engine_;
  Decoder decoder_;
  Governor governor_;
  std::map<FileKey, std::shared_ptr<const File>> files_;
  std::map<std::int32_t, Target> targets_;
  std::map<std::int32_t, BootTime> unlinked_since_;  // processes whose tables of names are empty
  trace::ModelLevel attached_{trace::ModelLevel::kNone};
  bool is_enabled_{true}, is_open_{false};
  BootTime next_{}, window_begin_{}, pictures_asked_{};
  double window_cost_{0}, window_switching_{0}, switching_{0};  // seconds; of hits, of attaching
  std::uint64_t window_hits_{0}, not_covered_{0};
  bpf::ModelEngine::Counters last_{};
  std::uint64_t tensors_{0};  // records of pictures since the last account
  std::vector<std::string> gone_problems_;
};

/// Loads the BPF program, and gives the maker of the source of one recorder: it is called once.
/// Fails as bpf::ModelEngine. Borrows clock and procfs.
[[nodiscard]] Result<SourceMaker> model_source_maker(const Clock& clock, const sys::Procfs& procfs,
                                                     SourceOptions options);

}  // namespace kansoku::capture::llm
