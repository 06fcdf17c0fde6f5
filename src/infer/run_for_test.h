// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <gtest/gtest.h>

#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "infer/run.h"
#include "trace/reader.h"
#include "trace/writer.h"

namespace kansoku::infer {

/// Writes the records of capture/llm; times in nanoseconds.
class RecordingForTest {
 public:
  RecordingForTest() : writer_(trace::Writer::create(sink_, boot_time(0)).value()) { process(100); }

  /// From here on it is about this process.
  void process(std::int32_t pid, std::string_view name = "llama-server") {
    trace::ProcessInfo info;
    info.pid = pid_ = pid;
    info.name = name;
    process_ = writer_->process_track(info);
    graphs_ = writer_->custom_track(process_, "model graphs");
    calls_ = {};
    threads_ = {};
  }
  /// Calls come from this thread.
  void caller(std::uint32_t tid) {
    tid_ = tid;
    calls_ = {};
    threads_ = {};
  }

  void engine(std::string_view version) {
    instant(trace::kModelEngine, "engine", {trace::Arg::str(key("ggml"), version)});
  }
  void reach(std::string_view functions, std::string_view level, std::string_view why = "") {
    instant(trace::kModelEngine, "engine",
            {trace::Arg::str(key("functions"), functions), trace::Arg::str(key("level"), level),
             trace::Arg::str(key("why"), why)});
  }
  struct NodeForTest {
    std::string_view op, name, shape;
    std::vector<std::string> sources{};
    std::uint32_t variant{0};
  };
  void node(std::uint32_t graph, std::uint32_t index, const NodeForTest& node) {
    std::vector<trace::Arg> args{
        trace::Arg::uint(key("graph"), graph), trace::Arg::uint(key("node"), index),
        trace::Arg::str(key("op"), node.op), trace::Arg::str(key("shape"), node.shape),
        trace::Arg::uint(key("variant"), node.variant)};
    for (std::size_t i = 0; i < node.sources.size(); ++i)
      args.push_back(trace::Arg::str(key("source" + std::to_string(i)), node.sources[i]));
    instant(trace::kModelNode, node.name, args);
  }
  void decode(const Span& span, std::int64_t tokens, std::optional<std::int64_t> result = 0) {
    std::vector<trace::Arg> args{trace::Arg::sint(key("tokens"), tokens),
                                 trace::Arg::uint(key("context"), 0)};
    if (result) args.push_back(trace::Arg::sint(key("result"), *result));
    slice(calls(), span, "decode", trace::kModelDecode, args);
  }
  void micro_batch(const Span& span, std::uint64_t tokens, std::uint64_t sequences,
                   std::string_view rows, std::optional<std::uint32_t> outputs = {}) {
    std::vector<trace::Arg> args{trace::Arg::uint(key("tokens"), tokens),
                                 trace::Arg::uint(key("unique"), sequences)};
    if (outputs) args.push_back(trace::Arg::uint(key("outputs"), *outputs));
    args.push_back(trace::Arg::str(key("rows"), rows));
    slice(calls(), span, "micro-batch", trace::kModelMicroBatch, args);
  }
  void split(const Span& span, std::optional<std::uint32_t> definition = {}) {
    std::vector<trace::Arg> args;
    if (definition) args.push_back(trace::Arg::uint(key("graph"), *definition));
    slice(calls(), span, "split", trace::kModelSplit, args);
  }
  void graph(const Span& span, std::optional<std::uint32_t> definition, std::uint64_t uid = 1) {
    std::vector<trace::Arg> args{trace::Arg::uint(key("uid"), uid)};
    if (definition) args.push_back(trace::Arg::uint(key("graph"), *definition));
    slice(calls(), span, "graph", trace::kModelGraph, args);
  }
  struct OperatorForTest {
    std::uint32_t graph{1}, node{0};
    std::string_view name{"ADD"};
    std::uint16_t ith{0};
    std::string_view experts{};
  };
  /// Threads behind the first have the numbers 200 + ith.
  void op(const Span& span, const OperatorForTest& op) {
    std::vector<trace::Arg> args{trace::Arg::uint(key("graph"), op.graph),
                                 trace::Arg::uint(key("node"), op.node)};
    if (op.ith != 0) args.push_back(trace::Arg::uint(key("tid"), 200U + op.ith));
    if (!op.experts.empty()) args.push_back(trace::Arg::str(key("experts"), op.experts));
    slice(thread(op.ith), span, op.name, trace::kModelOperator, args);
  }
  void wait(const Span& span, std::uint16_t ith = 0) {
    slice(thread(ith), span, "wait", trace::kModelWait, {});
  }
  void window(const Span& span, std::string_view level, std::uint64_t hits = 0,
              std::int64_t cost_ns = 0) {
    if (windows_.raw == 0) windows_ = writer_->custom_track({}, "model windows");
    slice(windows_, span, level, trace::kModelWindow,
          {trace::Arg::uint(key("hits"), hits), trace::Arg::sint(key("cost_ns"), cost_ns)});
  }
  /// `out` leaves a processor in that state, and `in` gets it.
  void change(std::int64_t time, std::int32_t out, std::uint32_t state, std::int32_t in) {
    writer_->sched_switch({boot_time(time), 0, out, in, state, "out", "in"});
  }
  void wake(std::int64_t time, std::int32_t tid) {
    writer_->sched_wake(boot_time(time), 0, tid, "woken", 1);
  }

  trace::Writer& writer() { return *writer_; }
  trace::TrackHandle custom_track(std::string_view name) {
    return writer_->custom_track(process_, name);
  }
  trace::TrackHandle thread_track(std::int32_t tid) {
    return writer_->thread_track(pid_, tid, "worker");
  }
  void slice(trace::TrackHandle track, const Span& span, std::string_view name,
             std::string_view category, const std::vector<trace::Arg>& args) {
    writer_->slice_begin(track, boot_time(span.begin_ns), key(name), writer_->category(category),
                         args);
    if (span.end_ns >= span.begin_ns) writer_->slice_end(track, boot_time(span.end_ns));
  }
  void instant(std::string_view category, std::string_view name,
               const std::vector<trace::Arg>& args) {
    writer_->instant(graphs_, boot_time(1), key(name), writer_->category(category), args);
  }
  trace::NameId key(std::string_view text) { return writer_->name(text); }

  [[nodiscard]] const std::string& bytes() {
    EXPECT_TRUE(writer_->flush());
    return sink_.data();
  }
  /// Lives as long as this, until the next call.
  const trace::Trace& trace() {
    auto read = trace::read_trace(as_bytes(bytes()));
    EXPECT_TRUE(read) << read.error().what;
    trace_ = std::move(read).value();
    return trace_;
  }
  Run run() { return read_run(trace()); }

 private:
  trace::TrackHandle calls() {
    if (calls_.raw == 0) calls_ = writer_->custom_track(process_, trace::model_calls_track(tid_));
    return calls_;
  }
  trace::TrackHandle thread(std::uint16_t ith) {
    if (threads_.size() <= ith) threads_.resize(ith + std::size_t{1});
    trace::TrackHandle& out = threads_[ith];
    if (out.raw == 0) out = writer_->custom_track(process_, trace::graph_thread_track(ith, tid_));
    return out;
  }
  MemorySink sink_;
  std::unique_ptr<trace::Writer> writer_;
  trace::TrackHandle process_{}, graphs_{}, calls_{}, windows_{};
  std::vector<trace::TrackHandle> threads_;
  std::int32_t pid_{0};
  std::uint32_t tid_{101};
  trace::Trace trace_;
};

}  // namespace kansoku::infer
