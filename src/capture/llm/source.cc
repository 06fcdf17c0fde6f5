// SPDX-License-Identifier: Apache-2.0
#include "capture/llm/source.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "capture/llm/names.h"
#include "capture/resolve.h"
#include "common/text.h"
#include "sys/clock.h"
#include "sys/process_memory.h"

namespace kansoku::capture::llm {
namespace {

constexpr Nanos kPollEvery = std::chrono::milliseconds{40};
constexpr Nanos kLinkerTime = std::chrono::seconds{10};
constexpr Nanos kPicturesEvery = std::chrono::seconds{1};
constexpr double kTensorSeconds = 0.25e-6;  // of a picture (docs/llm.md)
constexpr std::size_t kFilesMax = 4096, kProblemsMax = 64;

constexpr std::size_t index_of(trace::ModelLevel level) {
  return static_cast<std::size_t>(level);
}

// Mappings of the same file as that one.
std::vector<sys::Mapping> same_file(const std::vector<sys::Mapping>& all, const sys::Mapping& one) {
  std::vector<sys::Mapping> out;
  std::copy_if(all.begin(), all.end(), std::back_inserter(out), [&](const sys::Mapping& other) {
    return other.inode == one.inode && other.device_major == one.device_major &&
           other.device_minor == one.device_minor;
  });
  return out;
}

}  // namespace

std::vector<FunctionProbes> take_model_probes(std::vector<Pack>& packs) {
  std::vector<FunctionProbes> out;
  for (Pack& pack : packs) {
    for (const FunctionProbes& probes : pack.functions)
      if (probes.model_role != 0) out.push_back(probes);
    std::erase_if(pack.functions, [](const FunctionProbes& one) { return one.model_role != 0; });
  }
  return out;
}

trace::ModelLevel highest_level(const std::vector<FunctionProbes>& probes) {
  auto out = trace::ModelLevel::kNone;
  for (const FunctionProbes& one : probes)
    out = std::max(out, level_of(static_cast<wire_model_role>(one.model_role)));
  return out;
}

trace::ModelLevel level_of(wire_model_role role) {
  switch (role) {
    case WIRE_MODEL_DECODE:
    case WIRE_MODEL_CONTEXT_DECODE:
    case WIRE_MODEL_EVAL:
    case WIRE_MODEL_MICRO_BATCH:
      return trace::ModelLevel::kToken;
    case WIRE_MODEL_SCHEDULE:
    case WIRE_MODEL_SPLIT:
    case WIRE_MODEL_GRAPH:
      return trace::ModelLevel::kGraph;
    case WIRE_MODEL_OPERATOR:
    case WIRE_MODEL_FUSED_OPERATOR:
      return trace::ModelLevel::kOperator;
    default:
      return trace::ModelLevel::kThread;
  }
}

ModelSource::ModelSource(trace::Writer& writer, const Clock& clock, const sys::Procfs& procfs,
                         SourceOptions options, std::shared_ptr<bpf::ModelEngine> engine)
    : writer_(writer),
      clock_(clock),
      procfs_(procfs),
      options_(std::move(options)),
      engine_(std::move(engine)),
      decoder_(writer),
      governor_({.wanted = options_.level, .budget = options_.budget}, clock.now()) {}

ModelSource::~ModelSource() = default;

bool ModelSource::is_wanted(std::string_view library) const {
  return std::any_of(
      options_.probes.begin(), options_.probes.end(),
      [&](const FunctionProbes& probes) { return any_glob_match(probes.library, library); });
}

std::shared_ptr<const ModelSource::File> ModelSource::resolve(sys::ElfFile& elf,
                                                              std::string_view library) {
  Pack pack;
  pack.functions = options_.probes;
  const Resolution found = resolve_pack(pack, elf, library);
  auto out = std::make_shared<File>();
  for (const ResolvedProbe& probe : found.probes) {
    const auto role = static_cast<wire_model_role>(probe.source->model_role);
    const std::size_t level = index_of(level_of(role));
    if (probe.by_exits) {
      out->problems.push_back(fmt::format("{}: no address is known that a call passes once in {}",
                                          probe.title, library));
      continue;
    }
    probe.add_specs(role, WIRE_MODEL_STEPPED, out->specs.at(level));
    out->roles.at(role) = true;
  }
  out->problems.insert(out->problems.end(), found.refused.begin(), found.refused.end());
  out->has_names = elf.find_symbol("ggml_op_name") != nullptr;
  return out;
}

// False: not for us, or the process has ended.
bool ModelSource::add_file(std::int32_t pid, Target& target, const sys::Mapping& mapping,
                           const std::vector<sys::Mapping>& all) {
  const FileKey key{mapping.device_major, mapping.device_minor, mapping.inode};
  if (target.files.contains(key)) return false;
  const std::string path = mapping.path.ends_with(" (deleted)")
                               ? procfs_.map_file(pid, mapping)
                               : procfs_.through_root(pid, mapping.path);
  const std::string library(base_name(mapping.path));
  auto& known = files_[key];
  if (known == nullptr || (known->has_names && !target.names)) {
    const auto elf = sys::ElfFile::open(path);
    if (!elf) return false;  // gone: asked again at the next look
    if (known == nullptr) known = resolve(**elf, library);
    if (known->has_names && !target.names) {
      const auto bias = sys::load_bias(**elf, same_file(all, mapping));
      auto names = bias ? read_engine_names(pid, **elf, *bias)
                        : Result<EngineNames>(Error{Code::kUnsupported, "no load address"});
      if (names) {
        target.layout = layout_for(names->version);
        target.names = std::move(names).value();
        unlinked_since_.erase(pid);
      } else if (names.error().code == Code::kUnavailable && may_still_link(pid)) {
        return false;
      } else {
        limit(pid, target, trace::ModelLevel::kToken, names.error().what);
      }
    }
  }
  for (const std::string& problem : known->problems) {
    if (target.problems.size() < kProblemsMax) target.problems.push_back(problem);
  }
  target.files[key] = {known, path, {}};
  return true;
}

// The dynamic linker fills a library's tables within moments of mapping it: one that stays empty is
// not of the form that is understood.
bool ModelSource::may_still_link(std::int32_t pid) {
  const BootTime now = clock_.now();
  const BootTime since = unlinked_since_.try_emplace(pid, now).first->second;
  return !sys::has_memory(pid) || now - since < kLinkerTime;
}

void ModelSource::limit(std::int32_t pid, Target& target, trace::ModelLevel level,
                        const std::string& why) {
  if (target.level_max <= level) return;
  target.level_max = level;
  target.why = why;
  ++not_covered_;
  const std::string line = fmt::format("process {}: seen up to the {} level only: {}", pid,
                                       trace::model_level_name(level), why);
  if (target.problems.size() < kProblemsMax) target.problems.push_back(line);
  if (options_.log) options_.log(line);
}

void ModelSource::tell_reach(std::int32_t pid, const Target& target) {
  trace::ModelReach reach{.functions = {}, .level = target.level_max, .why = target.why};
  for (std::uint8_t role = 1; role < WIRE_MODEL_ROLES; ++role) {
    const bool is_probed =
        std::any_of(target.files.begin(), target.files.end(),
                    [&](const auto& one) { return one.second.file->roles.at(role); });
    if (!is_probed || level_of(static_cast<wire_model_role>(role)) > target.level_max) continue;
    reach.functions += (reach.functions.empty() ? "" : " ") + std::string(model_role_name(role));
  }
  decoder_.set_reach(pid, std::move(reach), clock_.now());
}

// Later another file may come that has them.
void ModelSource::tell_nothing_found(std::int32_t pid, Target& target) {
  std::string names;
  for (const auto& [key, mapped] : target.files)
    names += (names.empty() ? "" : ", ") + std::string(base_name(mapped.path));
  const std::string line = fmt::format(
      "process {}: none of llama.cpp's functions is found in {}: without symbols "
      "(stripped) nothing of it is seen",
      pid, names);
  if (target.problems.size() < kProblemsMax) target.problems.push_back(line);
  if (options_.log) options_.log(line);
}

// Once its libraries are known.
void ModelSource::introduce(std::int32_t pid, Target& target) {
  wire_model_layout& wire = target.wire;
  const Layout* layout = nullptr;
  if (target.names) {
    layout = &layouts()[target.layout];
    wire = layout->wire;
    wire.op_mul_mat_id = target.names->op("MUL_MAT_ID").value_or(0);
  } else {
    wire = layouts().front().wire;  // of batches; graphs are not read
  }
  if (const auto set = engine_->set_target(pid, wire); !set && options_.log)
    options_.log(set.error().what);
  decoder_.add_process(pid, target.track, layout, target.names.value_or(EngineNames{}),
                       clock_.now());
}

void ModelSource::inspect(const Observed& process, BootTime /*now*/) {
  if (!is_enabled_ || !is_open_ || files_.size() > kFilesMax) return;
  const std::int32_t pid = process.facts.pid;
  const auto mappings = procfs_.maps(pid);
  if (!mappings) return;
  Target fresh;
  const auto found = targets_.find(pid);
  Target& target = found == targets_.end() ? fresh : found->second;
  target.track = process.track;
  bool has_news = false;
  const bool had_names = target.names.has_value();
  for (const sys::Mapping& mapping : *mappings) {
    if (mapping.inode == 0 || !mapping.executable || !is_wanted(base_name(mapping.path))) continue;
    if (add_file(pid, target, mapping, *mappings)) has_news = true;
  }
  // One that has ended meanwhile was not seen: nothing is said of its library.
  if (!has_news || !sys::has_memory(pid)) return;
  Target& kept = found == targets_.end() ? targets_[pid] = std::move(fresh) : target;
  const bool has_specs = std::any_of(kept.files.begin(), kept.files.end(), [](const auto& one) {
    return std::any_of(one.second.file->specs.begin(), one.second.file->specs.end(),
                       [](const auto& specs) { return !specs.empty(); });
  });
  if (!has_specs) return tell_nothing_found(pid, kept);
  if (!decoder_.knows(pid) || kept.names.has_value() != had_names) introduce(pid, kept);
  tell_reach(pid, kept);
  attach(pid, kept, attached_);
}

void ModelSource::attach(std::int32_t pid, Target& target, trace::ModelLevel level) {
  // A wait for the kernel to let go of a place costs nobody anything.
  const Nanos before = sys::thread_cpu_time();
  // Which of a graph's threads a thread is was not seen while nothing was attached.
  if (decoder_.knows(pid)) static_cast<void>(engine_->set_target(pid, target.wire));
  for (auto& [key, mapped] : target.files) {
    for (std::size_t i = 1; i < kLevels; ++i) {
      auto& handle = mapped.handles.at(i);
      const bool is_wanted = i <= index_of(level) && i <= index_of(target.level_max) && is_enabled_;
      if (!is_wanted) {
        engine_->detach(handle);
        handle = 0;
      } else if (handle == 0 && !mapped.file->specs.at(i).empty()) {
        const auto made = engine_->attach(mapped.path, pid, mapped.file->specs.at(i));
        if (made) {
          handle = *made;
        } else if (target.problems.size() < kProblemsMax) {
          target.problems.push_back(made.error().what);
        }
      }
    }
  }
  switching_ += static_cast<double>((sys::thread_cpu_time() - before).count()) / 1e9;
}

void ModelSource::forget(std::int32_t pid) {
  unlinked_since_.erase(pid);
  const auto found = targets_.find(pid);
  if (found == targets_.end()) return;
  drain();
  for (const auto& [key, mapped] : found->second.files)
    for (const auto handle : mapped.handles)
      engine_->detach(handle);
  engine_->forget_target(pid);
  decoder_.remove_process(pid);
  for (std::string& problem : found->second.problems)
    if (gone_problems_.size() < kProblemsMax) gone_problems_.push_back(std::move(problem));
  targets_.erase(found);
}

void ModelSource::drain() {
  engine_->drain([this](std::span<const std::byte> record) {
    if (record.size() > WIRE_MODEL_TENSOR_BYTES) ++tensors_;
    decoder_.on_record(record);
  });
}

Governor::Cost ModelSource::cost_since() {
  const auto counters = engine_->counters();
  const bpf::ModelEngine::Price& price = engine_->price();
  Governor::Cost out;
  for (std::size_t role = 1; role < counters.hits.size(); ++role) {
    const std::size_t level = index_of(level_of(static_cast<wire_model_role>(role)));
    const auto hits = counters.hits.at(role) - last_.hits.at(role);
    const auto stepped = counters.stepped_hits.at(role) - last_.stepped_hits.at(role);
    // The threads of a graph take their traps side by side.
    const double threads = level >= index_of(trace::ModelLevel::kOperator)
                               ? std::max<double>(1, decoder_.counters().threads)
                               : 1;
    out.seconds.at(level) += (static_cast<double>(hits) * (price.emulated + price.caches) +
                              static_cast<double>(stepped) * (price.stepped + price.caches)) /
                             threads;
    window_hits_ += hits + stepped;
  }
  out.seconds.at(index_of(trace::ModelLevel::kGraph)) +=
      static_cast<double>(std::exchange(tensors_, 0)) * kTensorSeconds;
  out.switching = std::exchange(switching_, 0);
  for (const double seconds : out.seconds)
    window_cost_ += seconds;
  window_switching_ += out.switching;
  last_ = counters;
  return out;
}

void ModelSource::check_layouts() {
  for (auto& [pid, target] : targets_) {
    if (target.level_max <= trace::ModelLevel::kToken) continue;
    const auto misfit = decoder_.misfit(pid);
    if (!misfit) continue;
    if (++target.layout < layouts().size()) {
      introduce(pid, target);
      engine_->forget_graphs();
      continue;
    }
    target.layout = 0;
    limit(pid, target, trace::ModelLevel::kToken,
          fmt::format("no known layout fits its ggml {}: {}",
                      target.names ? target.names->version : "", *misfit));
    tell_reach(pid, target);
    attach(pid, target, attached_);
  }
}

void ModelSource::poll(const Processes& /*processes*/, BootTime now) {
  drain();
  next_ = now + kPollEvery;
  if (!is_open_ || !is_enabled_) return;
  check_layouts();
  if (decoder_.wants_pictures() && now - pictures_asked_ > kPicturesEvery) {
    pictures_asked_ = now;
    engine_->forget_graphs();
  }
  const trace::ModelLevel level = governor_.update(now, cost_since());
  if (level != attached_) apply(level, now);
}

// The window that ends, for scaling the counts in it.
void ModelSource::close_window(BootTime now) {
  if (window_begin_ == BootTime{} || now <= window_begin_) return;
  const auto track = writer_.custom_track({}, "model observed");
  const std::array args{
      trace::Arg::uint(writer_.name("hits"), window_hits_),
      trace::Arg::uint(writer_.name("cost_ns"), static_cast<std::uint64_t>(window_cost_ * 1e9)),
      trace::Arg::uint(writer_.name("switching_ns"),
                       static_cast<std::uint64_t>(window_switching_ * 1e9))};
  writer_.slice_begin(track, window_begin_, writer_.name(trace::model_level_name(attached_)),
                      writer_.category(trace::kModelWindow), args);
  writer_.slice_end(track, now);
  window_begin_ = {};
  window_hits_ = 0;
  window_cost_ = 0;
  window_switching_ = 0;
}

void ModelSource::apply(trace::ModelLevel level, BootTime now) {
  close_window(now);
  if (level < attached_) {
    drain();
    decoder_.drop_operators();
  }
  attached_ = level;
  for (auto& [pid, target] : targets_)
    attach(pid, target, level);
  window_begin_ = clock_.now();
}

void ModelSource::begin_trace(BootTime now) {
  is_open_ = true;
  engine_->forget_graphs();
  decoder_.begin_trace(now);
  governor_.update(now, cost_since());  // between traces it earns
  window_hits_ = 0;
  window_cost_ = 0;
  apply(governor_.level(), now);
}

void ModelSource::end_trace(BootTime now) {
  drain();
  governor_.update(now, cost_since());
  close_window(now);
  decoder_.end_trace();
  is_open_ = false;
  attached_ = trace::ModelLevel::kNone;
  for (auto& [pid, target] : targets_)
    attach(pid, target, attached_);
}

void ModelSource::set_enabled(bool enabled) {
  is_enabled_ = enabled;
  for (auto& [pid, target] : targets_)
    attach(pid, target, attached_);
}

std::uint64_t ModelSource::lost() const {
  return engine_->counters().ring_full;
}

void ModelSource::add_losses(Losses& out) const {
  const auto counters = engine_->counters();
  const Decoder::Counters& told = decoder_.counters();
  out.add(llm_records_lost, counters.ring_full);
  out.add(llm_operators_unplaced, told.unplaced);
  out.add(llm_operators_before, told.before);
  out.add(llm_graphs_unread, told.graphs_unread + counters.cut_graphs);
  out.add(llm_calls_unended, told.unended);
  out.add(llm_unreadable, told.unreadable);
  out.add(llm_experts_cut, told.experts_cut);
  out.add(llm_bad_records, told.bad_records);
  out.add(llm_not_covered, not_covered_);
}

void ModelSource::add_problems(std::vector<std::string>& out) const {
  out.insert(out.end(), gone_problems_.begin(), gone_problems_.end());
  for (const auto& [pid, target] : targets_)
    out.insert(out.end(), target.problems.begin(), target.problems.end());
}

Result<SourceMaker> model_source_maker(const Clock& clock, const sys::Procfs& procfs,
                                       SourceOptions options) {
  TRY(auto made,
      bpf::ModelEngine::create({.ring_bytes = options.ring_bytes, .is_perf = options.is_perf}));
  const std::shared_ptr<bpf::ModelEngine> engine = std::move(made);
  return SourceMaker([&clock, &procfs, options = std::move(options),
                      engine](trace::Writer& writer) -> std::unique_ptr<Source> {
    return std::make_unique<ModelSource>(writer, clock, procfs, options, engine);
  });
}

}  // namespace kansoku::capture::llm
