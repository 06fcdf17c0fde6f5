// SPDX-License-Identifier: Apache-2.0
#include "capture/llm/decoder.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <set>

namespace kansoku::capture::llm {
namespace {

constexpr std::size_t kPicturesMax = 512;      // of one process
constexpr std::size_t kDefinitionsMax = 4096;  // of one process and trace
constexpr std::size_t kMakersMax = 64;         // graphs that are told at once
constexpr std::size_t kCallersMax = 1024, kOperatorsMax = 4096, kContextsMax = 4096;

struct RoleWords {
  std::string_view name, category;
};
// By enum wire_model_role, of those that are slices of the caller's track; nested in this order.
constexpr std::array<RoleWords, WIRE_MODEL_ROLES> kRoles{{{"", ""},
                                                          {"decode", trace::kModelDecode},
                                                          {"micro-batch", trace::kModelMicroBatch},
                                                          {"schedule", trace::kModelSchedule},
                                                          {"split", trace::kModelSplit},
                                                          {"graph", trace::kModelGraph},
                                                          {"", ""},
                                                          {"", ""},
                                                          {"", ""},
                                                          {"decode", trace::kModelDecode},
                                                          {"decode", trace::kModelDecode}}};

template <class T>
bool read_record(std::span<const std::byte> bytes, T& out) {
  if (bytes.size() < sizeof(T)) return false;
  std::memcpy(&out, bytes.data(), sizeof(T));
  return true;
}

// When the program let the thread go on into the probed function; of records that say it.
BootTime begin_of(const wire_model_event& event) {
  return BootTime{Nanos{static_cast<std::int64_t>(std::max(event.b, event.t_boot_ns))}};
}

// Functions that ask for tokens are one role: a thread is in one decode, whatever it is called.
wire_model_role nesting_role(std::uint8_t role) {
  const bool is_decode = role == WIRE_MODEL_CONTEXT_DECODE || role == WIRE_MODEL_EVAL;
  return is_decode ? WIRE_MODEL_DECODE : static_cast<wire_model_role>(role);
}

// Builds that do not tell have it in the rows.
std::uint32_t different_sequences(const wire_model_micro_batch& record) {
  if (record.unique_count != 0) return record.unique_count;
  const std::size_t shown = std::min<std::size_t>(record.token_count, WIRE_MODEL_TOKENS);
  const std::set<std::int32_t> different(record.sequence, record.sequence + shown);
  return static_cast<std::uint32_t>(different.size());
}

BootTime time_of(const wire_model_event& event) {
  return BootTime{Nanos{static_cast<std::int64_t>(event.t_boot_ns)}};
}

}  // namespace

struct Decoder::Names {
  explicit Names(trace::Writer& writer) {
    for (std::size_t i = 0; i < kRoles.size(); ++i) {
      roles.at(i) = writer.name(kRoles.at(i).name);
      categories.at(i) = writer.category(kRoles.at(i).category);
    }
    op = writer.category(trace::kModelOperator);
    wait_category = writer.category(trace::kModelWait);
    node_category = writer.category(trace::kModelNode);
    engine_category = writer.category(trace::kModelEngine);
    const auto key = [&](std::string_view text) { return writer.name(text); };
    tokens = key("tokens"), result = key("result"), context = key("context");
    seq_tokens = key("seq_tokens"), sequences = key("sequences"), unique = key("unique");
    outputs = key("outputs");
    rows = key("rows"), uid = key("uid"), graph = key("graph"), nodes = key("nodes");
    node = key("node"), experts = key("experts"), shape = key("shape"), opname = key("op");
    variant = key("variant"), wait = key("wait");
    functions = key("functions"), level = key("level"), why = key("why");
    engine = key("engine"), version = key("ggml"), tid = key("tid"), pid = key("pid");
    for (std::size_t i = 0; i < sources.size(); ++i)
      sources.at(i) = key(fmt::format("source{}", i));
  }
  std::array<trace::NameId, WIRE_MODEL_ROLES> roles{};
  std::array<trace::CategoryId, WIRE_MODEL_ROLES> categories{};
  trace::CategoryId op, wait_category, node_category, engine_category;
  trace::NameId tokens, result, context, seq_tokens, sequences, unique, outputs, rows, uid, graph,
      nodes, node, experts, shape, opname, variant, wait, functions, level, why, engine, version,
      tid, pid;
  std::array<trace::NameId, kSourcesKept> sources{};
};

Decoder::Decoder(trace::Writer& writer) : writer_(writer) {}

void Decoder::add_process(std::int32_t pid, trace::TrackHandle track, const Layout* layout,
                          EngineNames names, BootTime now) {
  Process& process = processes_[pid];
  process = {};
  process.track = track;
  process.layout = layout;
  process.names = std::move(names);
  if (is_open_) declare(pid, process, now);
}

void Decoder::remove_process(std::int32_t pid) {
  const auto found = processes_.find(pid);
  if (found == processes_.end()) return;
  // A process that dies inside a graph leaves its slice open.
  for (auto& [tid, caller] : found->second.callers)
    while (!caller.open.empty())
      close_call(found->second, caller, {}, nullptr);
  processes_.erase(found);
}

void Decoder::declare(std::int32_t pid, Process& process, BootTime now) {
  process.graphs_track = writer_.custom_track(process.track, "model graphs");
  std::vector<trace::Arg> args{trace::Arg::str(words_->version, process.names.version),
                               trace::Arg::sint(words_->pid, pid)};
  if (const auto& reach = process.reach) {
    args.push_back(trace::Arg::str(words_->functions, reach->functions));
    args.push_back(trace::Arg::str(words_->level, trace::model_level_name(reach->level)));
    args.push_back(trace::Arg::str(words_->why, reach->why));
  }
  writer_.instant(process.graphs_track, now, words_->engine, words_->engine_category, args);
}

void Decoder::set_reach(std::int32_t pid, trace::ModelReach reach, BootTime now) {
  const auto found = processes_.find(pid);
  if (found == processes_.end() || found->second.reach == reach) return;
  found->second.reach = std::move(reach);
  if (is_open_) declare(pid, found->second, now);
}

void Decoder::begin_trace(BootTime now) {
  is_open_ = true;
  words_ = std::make_shared<Names>(writer_);
  for (auto& [pid, process] : processes_) {
    process.by_uid.clear();
    process.definitions.clear();
    process.callers.clear();
    process.operators.clear();
    declare(pid, process, now);
  }
}

void Decoder::end_trace() {
  for (auto& [pid, process] : processes_)
    for (auto& [tid, caller] : process.callers)
      while (!caller.open.empty())
        close_call(process, caller, {}, nullptr);
  is_open_ = false;
}

void Decoder::drop_operators() {
  for (auto& [pid, process] : processes_)
    process.operators.clear();
}

bool Decoder::wants_pictures() {
  return std::exchange(wants_pictures_, false);
}

std::optional<std::string> Decoder::misfit(std::int32_t pid) const {
  const auto found = processes_.find(pid);
  return found == processes_.end() ? std::nullopt : found->second.misfit;
}

Decoder::Caller& Decoder::caller_of(Process& process, std::uint32_t tid) {
  const auto found = process.callers.find(tid);
  if (found != process.callers.end()) return found->second;
  // Threads that have ended make room, at need also those that ended inside a call.
  if (process.callers.size() >= kCallersMax)
    std::erase_if(process.callers, [](const auto& one) { return one.second.open.empty(); });
  if (process.callers.size() >= kCallersMax) process.callers.clear();
  Caller& made = process.callers[tid];
  made.tid = tid;
  made.track = writer_.custom_track(process.track, trace::model_calls_track(tid));
  return made;
}

trace::TrackHandle Decoder::thread_track(Process& process, Caller& caller, std::uint16_t ith) {
  trace::TrackHandle& track = caller.threads[ith];
  if (track.raw == 0)
    track = writer_.custom_track(process.track, trace::graph_thread_track(ith, caller.tid));
  return track;
}

void Decoder::on_record(std::span<const std::byte> record) {
  // Tensors and events have their kind at the same place, and the process at two.
  constexpr std::size_t kKindAt = offsetof(wire_model_event, kind);
  static_assert(kKindAt == offsetof(wire_model_tensor, kind));
  static_assert(offsetof(wire_model_event, tgid) == offsetof(wire_model_tensor, tgid));
  wire_model_event event{};
  if (!is_open_) return;
  if (!read_record(record, event)) {
    ++counters_.bad_records;
    return;
  }
  const auto found = processes_.find(static_cast<std::int32_t>(event.tgid));
  if (found == processes_.end()) return;
  if (event.kind != WIRE_MODEL_TENSOR) return on_event(found->second, event, record);
  wire_model_tensor tensor{};
  if (!read_record(record, tensor)) {
    ++counters_.bad_records;
    return;
  }
  auto& makers = found->second.makers;
  if (makers.size() >= kMakersMax && !makers.contains(tensor.graph)) makers.clear();
  makers[tensor.graph].add(tensor);
}

void Decoder::on_event(Process& process, const wire_model_event& event,
                       std::span<const std::byte> record) {
  const bool is_kind = event.kind == WIRE_MODEL_BEGIN || event.kind == WIRE_MODEL_END ||
                       event.kind == WIRE_MODEL_EXPERTS;
  if (!is_kind || event.role == 0 || event.role >= WIRE_MODEL_ROLES) {
    ++counters_.bad_records;
    return;
  }
  if ((event.flags & (WIRE_MODEL_UNREADABLE | WIRE_MODEL_NO_FORM)) != 0) ++counters_.unreadable;
  if (event.kind == WIRE_MODEL_EXPERTS) {
    wire_model_experts experts{};
    if (read_record(record, experts))
      on_experts(process, experts);
    else
      ++counters_.bad_records;
    return;
  }
  switch (event.role) {
    case WIRE_MODEL_OPERATOR:
    case WIRE_MODEL_FUSED_OPERATOR:
      return on_operator(process, event);
    case WIRE_MODEL_BARRIER:
      return on_barrier(process, event);
    default:
      break;
  }
  if (event.kind == WIRE_MODEL_END) return on_end(process, event);
  on_begin(process, event, record);
}

void Decoder::on_begin(Process& process, const wire_model_event& event,
                       std::span<const std::byte> record) {
  Caller& caller = caller_of(process, event.tid);
  const wire_model_role role = nesting_role(event.role);
  if (event.role == WIRE_MODEL_CONTEXT_DECODE &&
      std::any_of(caller.open.begin(), caller.open.end(),
                  [](const OpenCall& call) { return call.role == WIRE_MODEL_DECODE; }))
    return;
  while (!caller.open.empty() && caller.open.back().role >= role) {
    if (caller.open.back().role != WIRE_MODEL_SPLIT) ++counters_.unended;
    close_call(process, caller, time_of(event), nullptr);
  }
  OpenCall call{role, static_cast<wire_model_role>(event.role), time_of(event), {}, {}, {}};
  if (!read_begin(process, record, caller, call)) ++counters_.bad_records;
  caller.open.push_back(std::move(call));
}

// False: the record is too short for the kind that it claims.
bool Decoder::read_begin(Process& process, std::span<const std::byte> record, Caller& caller,
                         OpenCall& call) {
  wire_model_batch batch{};
  wire_model_micro_batch micro{};
  wire_model_graph graph{};
  switch (call.role) {
    case WIRE_MODEL_DECODE:
      if (!read_record(record, batch)) return false;
      on_decode(process, batch, call);
      return true;
    case WIRE_MODEL_MICRO_BATCH:
      if (!read_record(record, micro)) return false;
      on_micro_batch(process, micro, call);
      return true;
    case WIRE_MODEL_SPLIT:
    case WIRE_MODEL_GRAPH:
      if (!read_record(record, graph)) return false;
      on_graph(process, graph, caller, call);
      return true;
    default:
      return true;
  }
}

void Decoder::on_decode(Process& process, const wire_model_batch& record, OpenCall& call) {
  ++counters_.decodes;
  if (process.contexts.size() >= kContextsMax) process.contexts.clear();
  const auto context =
      process.contexts.emplace(record.head.a, static_cast<std::uint32_t>(process.contexts.size()))
          .first->second;
  call.args = {trace::Arg::sint(words_->tokens, record.token_count),
               trace::Arg::uint(words_->context, context)};
}

void Decoder::on_micro_batch(Process& /*process*/, const wire_model_micro_batch& record,
                             OpenCall& call) {
  ++counters_.micro_batches;
  if (record.token_count == 0) return;  // not known
  call.args = {trace::Arg::uint(words_->tokens, record.token_count),
               trace::Arg::uint(words_->seq_tokens, record.sequence_tokens),
               trace::Arg::uint(words_->sequences, record.sequence_count),
               trace::Arg::uint(words_->unique, different_sequences(record))};
  if (record.has_outputs != 0)
    call.args.push_back(trace::Arg::uint(words_->outputs, record.outputs));
  const std::uint32_t shown = std::min<std::uint32_t>(record.token_count, WIRE_MODEL_TOKENS);
  for (std::uint32_t i = 0; i < shown; ++i)
    call.text += fmt::format("{}{}:{}", i == 0 ? "" : " ", record.sequence[i], record.position[i]);
  call.text_key = words_->rows;
}

// A graph without a uid is another one each time.
std::optional<Decoder::Known> Decoder::picture_of(Process& process,
                                                  const wire_model_graph& record) {
  if ((record.head.flags & WIRE_MODEL_PICTURED) == 0) {
    const auto found = process.by_uid.find(record.uid);
    if (record.uid == 0 || found == process.by_uid.end()) {
      wants_pictures_ = true;
      return std::nullopt;
    }
    return found->second;
  }
  if (process.layout == nullptr || process.misfit) return std::nullopt;
  auto maker = process.makers.extract(record.head.a);
  if (maker.empty() || maker.mapped().count(record.head.a) != record.pictured) {
    wants_pictures_ = true;
    return std::nullopt;
  }
  if (record.uid > kGraphUidMax && process.pictures == 0) {
    process.misfit =
        fmt::format("{}: a graph's number {:#x} is an address", process.layout->name, record.uid);
    return std::nullopt;
  }
  auto made = maker.mapped().take(record.node_count, *process.layout, process.names);
  if (!made) {
    // A misfit in the first graph means another layout. Later, the graph may have changed
    // meanwhile.
    if (process.pictures == 0)
      process.misfit = fmt::format("{}: {}", process.layout->name, made.error().what);
    return std::nullopt;
  }
  ++counters_.pictures;
  ++process.pictures;
  Known known{*made, define(process, **made, time_of(record.head))};
  if (process.by_uid.size() >= kPicturesMax) process.by_uid.clear();
  if (record.uid != 0) process.by_uid[record.uid] = known;
  return known;
}

void Decoder::on_graph(Process& process, const wire_model_graph& record, Caller& caller,
                       OpenCall& call) {
  const auto known = picture_of(process, record);
  if (!known) ++counters_.graphs_unread;
  call.args = {trace::Arg::uint(words_->uid, record.uid),
               trace::Arg::sint(words_->nodes, record.node_count)};
  if (known) call.args.push_back(trace::Arg::uint(words_->graph, known->definition));
  if (call.role != WIRE_MODEL_GRAPH) return;
  ++counters_.graphs;
  caller.graph = OpenGraph{known, {}, call.begin};
}

std::uint32_t Decoder::define(Process& process, const Picture& picture, BootTime now) {
  const auto found = process.definitions.find(picture.content);
  if (found != process.definitions.end()) return found->second;
  if (process.definitions.size() >= kDefinitionsMax) process.definitions.clear();
  // Numbers are of the process, and never used twice in a trace.
  const std::uint32_t number = static_cast<std::uint32_t>(counters_.pictures);
  process.definitions.emplace(picture.content, number);
  for (std::uint32_t i = 0; i < picture.nodes.size(); ++i) {
    const NodeText& node = picture.nodes[i];
    std::vector<trace::Arg> args{
        trace::Arg::uint(words_->graph, number), trace::Arg::uint(words_->node, i),
        trace::Arg::str(words_->opname, node.op), trace::Arg::str(words_->shape, node.shape),
        trace::Arg::uint(words_->variant, node.variant)};
    for (std::size_t s = 0; s < node.sources.size(); ++s)
      args.push_back(trace::Arg::str(words_->sources.at(s), node.sources[s]));
    writer_.instant(process.graphs_track, now, writer_.name(node.name), words_->node_category,
                    args);
  }
  return number;
}

void Decoder::on_operator(Process& process, const wire_model_event& event) {
  const BootTime now = time_of(event);
  close_operator(process, event.tid, now);
  counters_.threads = std::max<std::uint32_t>(counters_.threads, event.nth);
  // The thread that called for the graph is its first; others find it by the tensor.
  for (auto& [tid, caller] : process.callers) {
    if (!caller.graph || !caller.graph->known) continue;
    if (event.ith == 0 && tid != event.tid) continue;
    const Picture& picture = *caller.graph->known->picture;
    const auto node = picture.by_address.find(event.a);
    if (node == picture.by_address.end()) continue;
    if (process.operators.size() >= kOperatorsMax) process.operators.clear();
    OpenOperator& open = process.operators[event.tid];
    open = {};
    open.caller = tid;
    open.ith = event.ith;
    open.node = node->second;
    open.definition = caller.graph->known->definition;
    open.begin = begin_of(event);
    std::string name = picture.nodes[node->second].op;
    if (event.role == WIRE_MODEL_FUSED_OPERATOR && node->second + 1 < picture.nodes.size())
      name += "+" + picture.nodes[node->second + 1].op;
    open.name = writer_.name(name);
    auto& tids = caller.graph->tids;
    if (std::find(tids.begin(), tids.end(), event.tid) == tids.end()) tids.push_back(event.tid);
    ++counters_.operators;
    return;
  }
  const bool has_graph = std::any_of(process.callers.begin(), process.callers.end(),
                                     [](const auto& one) { return one.second.graph.has_value(); });
  ++(has_graph ? counters_.unplaced : counters_.before);
}

void Decoder::on_barrier(Process& process, const wire_model_event& event) {
  const auto found = process.operators.find(event.tid);
  if (found == process.operators.end()) return;
  found->second.barrier = time_of(event);
  found->second.wait = begin_of(event);
}

void Decoder::on_experts(Process& process, const wire_model_experts& record) {
  const auto found = process.operators.find(record.head.tid);
  if (found == process.operators.end()) return;
  if ((record.head.flags & WIRE_MODEL_CUT) != 0) ++counters_.experts_cut;
  std::string& text = found->second.experts;
  text = fmt::format("{}x{}", record.used, record.tokens);
  for (const std::int32_t id : record.id) {
    if (id < 0) break;
    text += fmt::format(" {}", id);
  }
}

void Decoder::close_operator(Process& process, std::uint32_t tid, BootTime now) {
  const auto found = process.operators.find(tid);
  if (found == process.operators.end()) return;
  const OpenOperator open = std::move(found->second);
  process.operators.erase(found);
  const auto caller = process.callers.find(open.caller);
  if (caller == process.callers.end()) return;
  const trace::TrackHandle track = thread_track(process, caller->second, open.ith);
  const BootTime end = open.barrier != BootTime{} ? open.barrier : now;
  std::vector<trace::Arg> args{trace::Arg::uint(words_->graph, open.definition),
                               trace::Arg::uint(words_->node, open.node)};
  if (open.ith != 0) args.push_back(trace::Arg::uint(words_->tid, tid));
  if (!open.experts.empty()) args.push_back(trace::Arg::str(words_->experts, open.experts));
  writer_.slice_begin(track, open.begin, open.name, words_->op, args);
  writer_.slice_end(track, std::max(end, open.begin));
  if (open.barrier == BootTime{} || now <= open.wait) return;
  writer_.slice_begin(track, open.wait, words_->wait, words_->wait_category);
  writer_.slice_end(track, now);
}

void Decoder::close_graph(Process& process, Caller& caller, BootTime now) {
  for (const std::uint32_t tid : caller.graph->tids) {
    if (now == BootTime{})
      process.operators.erase(tid);
    else
      close_operator(process, tid, now);
  }
  caller.graph.reset();
}

// `end`: nothing where it is not known.
void Decoder::close_call(Process& process, Caller& caller, BootTime end,
                         const wire_model_event* how) {
  OpenCall& call = caller.open.back();
  if (call.role == WIRE_MODEL_GRAPH && caller.graph) close_graph(process, caller, end);
  if (!call.text.empty()) call.args.push_back(trace::Arg::str(call.text_key, call.text));
  if (how != nullptr && call.role == WIRE_MODEL_DECODE && (how->flags & WIRE_MODEL_JUMP) == 0)
    call.args.push_back(trace::Arg::sint(words_->result, static_cast<std::int32_t>(how->a)));
  const auto role = static_cast<std::size_t>(call.role);
  writer_.slice_begin(caller.track, call.begin, words_->roles.at(role), words_->categories.at(role),
                      call.args);
  if (end != BootTime{}) writer_.slice_end(caller.track, end);
  caller.open.pop_back();
}

void Decoder::on_end(Process& process, const wire_model_event& event) {
  Caller& caller = caller_of(process, event.tid);
  const auto by = static_cast<wire_model_role>(event.role);
  const auto found = std::find_if(caller.open.rbegin(), caller.open.rend(),
                                  [&](const OpenCall& call) { return call.by == by; });
  // It began before the recording, or within a decode that is told already.
  if (found == caller.open.rend()) return;
  while (caller.open.back().by != by) {
    if (caller.open.back().role != WIRE_MODEL_SPLIT) ++counters_.unended;
    close_call(process, caller, time_of(event), nullptr);
  }
  close_call(process, caller, time_of(event), &event);
}

}  // namespace kansoku::capture::llm
