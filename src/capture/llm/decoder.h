// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "capture/llm/picture.h"
#include "common/result.h"
#include "common/stat.h"
#include "common/time.h"
#include "trace/writer.h"
#include "wire/model.h"

namespace kansoku::capture::llm {

STAT(llm_records_lost, kDataLoss, kCapture,
     "the ring of the model's probes was full; raise --ring-bytes or choose a lower --level");
STAT(llm_operators_unplaced, kDataLoss, kCapture,
     "operators of graphs that began before the recording, or whose nodes could not be read");
STAT(llm_operators_before, kNotice, kCapture,
     "operators of graphs that were under way when the probes were attached");
STAT(llm_graphs_unread, kDataLoss, kCapture,
     "graphs whose nodes could not be read whole: their operators have no names");
STAT(llm_calls_unended, kNotice, kCapture,
     "calls whose end was not seen: an exception ended them, or the probes were taken off");
STAT(llm_unreadable, kNotice, kCapture, "arguments in memory that could not be read");
STAT(llm_experts_cut, kNotice, kCapture,
     "calls that used more experts than a record holds (64); only these are known");
STAT(llm_bad_records, kError, kCapture,
     "records of an unknown shape: recorder and BPF program do not match");

/// Turns the records of the model's probes into trace events (words: trace/inference.h). Calls nest
/// by thread; operators belong to the open graph that holds their tensor, and are told apart by
/// their number among the graph's threads, since some builds start new threads for every graph.
/// Borrows the writer. Single-threaded.
class Decoder {
 public:
  explicit Decoder(trace::Writer& writer);

  /// A process to tell of: `track` is its own in the trace. Without names and layout only calls.
  void add_process(std::int32_t pid, trace::TrackHandle track, const Layout* layout,
                   EngineNames names, BootTime now);
  /// The functions of it that are probed, and how far it can be seen: told anew with each change.
  void set_reach(std::int32_t pid, trace::ModelReach reach, BootTime now);
  void remove_process(std::int32_t pid);
  [[nodiscard]] bool knows(std::int32_t pid) const { return processes_.contains(pid); }

  /// Decodes one record, borrowed for the call.
  void on_record(std::span<const std::byte> record);

  /// Graphs must be told with their nodes again; declarations of the trace before are gone.
  void begin_trace(BootTime now);
  /// Writes the slices that are still open, without an end.
  void end_trace();
  /// The probes of operators are about to come or go: their open slices end nowhere.
  void drop_operators();
  /// More uids of graphs are in use than pictures are kept: the engine must tell them again.
  [[nodiscard]] bool wants_pictures();

  /// Why a process's graphs cannot be read: its library has another layout.
  [[nodiscard]] std::optional<std::string> misfit(std::int32_t pid) const;
  /// Graphs whose nodes were read, and that were at all.
  struct Counters {
    std::uint64_t unplaced{0}, before{0}, graphs_unread{0}, unended{0}, unreadable{0},
        experts_cut{0}, bad_records{0};
    std::uint64_t decodes{0}, micro_batches{0}, graphs{0}, pictures{0}, operators{0};
    std::uint32_t threads{1};  // most of one graph
  };
  [[nodiscard]] const Counters& counters() const { return counters_; }

 private:
  struct Names;
  struct Known {  // a picture, and the number of its content in this trace
    std::shared_ptr<const Picture> picture;
    std::uint32_t definition{0};
  };
  struct OpenCall {
    wire_model_role role{};
    wire_model_role by{};  // of the function whose end is its end
    BootTime begin{};
    std::vector<trace::Arg> args;
    std::string text;  // of the one textual argument
    trace::NameId text_key{};
  };
  /// A graph that runs on the CPU.
  struct OpenGraph {
    std::optional<Known> known;
    std::vector<std::uint32_t> tids;  // that ran operators of it
    BootTime begin{};
  };
  struct OpenOperator {
    std::uint32_t caller{0};  // the thread that called for the graph
    std::uint16_t ith{0};
    std::uint32_t node{0}, definition{0};
    trace::NameId name{};
    BootTime begin{};
    BootTime barrier{}, wait{};  // the last barrier: when it was entered, and let on to wait
    std::string experts;
  };
  struct Caller {
    trace::TrackHandle track{};
    std::uint32_t tid{0};
    std::vector<OpenCall> open;
    std::optional<OpenGraph> graph;
    std::map<std::uint16_t, trace::TrackHandle> threads;  // by ith
  };
  struct Process {
    trace::TrackHandle track{}, graphs_track{};
    const Layout* layout{nullptr};
    EngineNames names;
    std::optional<trace::ModelReach> reach;
    std::map<std::uint64_t, PictureMaker> makers;  // by the graph's address
    std::uint64_t pictures{0};
    std::unordered_map<std::uint64_t, Known> by_uid;
    std::map<std::uint64_t, std::uint32_t> definitions;         // by content
    std::map<std::uint32_t, Caller> callers;                    // by tid
    std::unordered_map<std::uint32_t, OpenOperator> operators;  // by tid
    std::map<std::uint64_t, std::uint32_t> contexts;            // by address
    std::optional<std::string> misfit;
  };

  void declare(std::int32_t pid, Process& process, BootTime now);
  Caller& caller_of(Process& process, std::uint32_t tid);
  void on_event(Process& process, const wire_model_event& event, std::span<const std::byte> record);
  void on_begin(Process& process, const wire_model_event& event, std::span<const std::byte> record);
  bool read_begin(Process& process, std::span<const std::byte> record, Caller& caller,
                  OpenCall& call);
  void on_end(Process& process, const wire_model_event& event);
  void on_decode(Process& process, const wire_model_batch& record, OpenCall& call);
  void on_micro_batch(Process& process, const wire_model_micro_batch& record, OpenCall& call);
  void on_graph(Process& process, const wire_model_graph& record, Caller& caller, OpenCall& call);
  void on_operator(Process& process, const wire_model_event& event);
  void on_barrier(Process& process, const wire_model_event& event);
  void on_experts(Process& process, const wire_model_experts& record);
  [[nodiscard]] std::optional<Known> picture_of(Process& process, const wire_model_graph& record);
  std::uint32_t define(Process& process, const Picture& picture, BootTime now);
  void close_operator(Process& process, std::uint32_t tid, BootTime now);
  void close_graph(Process& process, Caller& caller, BootTime now);
  void close_call(Process& process, Caller& caller, BootTime end, const wire_model_event* how);
  trace::TrackHandle thread_track(Process& process, Caller& caller, std::uint16_t ith);

  trace::Writer& writer_;
  std::shared_ptr<Names> words_;
  std::map<std::int32_t, Process> processes_;
  bool is_open_{false}, wants_pictures_{false};
  Counters counters_;
};

}  // namespace kansoku::capture::llm
