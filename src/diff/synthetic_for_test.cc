// SPDX-License-Identifier: Apache-2.0
#include "diff/synthetic_for_test.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <numbers>

#include "common/rng.h"
#include "trace/reader.h"
#include "trace/traces_for_test.h"
#include "trace/writer.h"

namespace kansoku::diff {
namespace {

using trace::Arg;

struct KernelSpec {
  const char* name;
  const char* full_name;
  int launches;    // a step
  double us;       // a call
  int grid;        // blocks
  bool is_scaled;  // by the batch
};

// 20 ms a step in all; `rope` has 1 ms of them.
constexpr KernelSpec kSpecs[] = {
    {"embed", "embed(float*, int)", 1, 400, 128, true},
    {"layer_norm", "void layer_norm<float, 4>(float const*, float*, int)", 8, 100, 256, true},
    {"gemm_qkv", "void gemm<float, 128, 64>(float const*, float*, int)", 4, 900, 512, true},
    {"rope", "rope(float*, int)", 4, 250, 256, true},
    {"softmax", "void softmax<__half>(__half*, int)", 4, 300, 1024, true},
    {"gemm_out", "void gemm<float, 64, 64>(float const*, float*, int)", 4, 800, 256, true},
    {"triton_poi_fused_1", "triton_poi_fused_1", 4, 150, 64, true},
    {"triton_poi_fused_2", "triton_poi_fused_2", 4, 200, 96, true},
    {"triton_poi_fused_3", "triton_poi_fused_3", 4, 90, 160, true},
    {"gemm_mlp", "void gemm<float, 256, 64>(float const*, float*, int)", 4, 1100, 1024, true},
    {"loss", "cross_entropy(float const*, int)", 1, 500, 128, true},
    {"adamw", "void adamw<float>(float*, float*, int)", 6, 250, 320, false},
};

constexpr double kRunSigma = 0.0045, kCallSigma = 0.01, kMachineSigma = 0.005;
constexpr double kOutlierChance = 0.01, kOutlierFactor = 1.3;
constexpr std::int64_t kLaunchNs = 4'000, kGapNs = 3'000, kSampleNs = 1'000'000;

class Noise {
 public:
  explicit Noise(const Job& job) : rng_(job.seed), is_exact_(job.is_exact) {}
  double normal() {
    const double u = std::max(rng_.uniform(), 1e-12);
    return std::sqrt(-2 * std::log(u)) * std::cos(2 * std::numbers::pi * rng_.uniform());
  }
  double uniform() { return rng_.uniform(); }
  /// A factor about 1.
  double factor(double sigma) { return is_exact_ ? 1 : std::exp(sigma * normal()); }
  double outlier() { return !is_exact_ && rng_.uniform() < kOutlierChance ? kOutlierFactor : 1; }

 private:
  Rng rng_;
  bool is_exact_;
};

class Recorder {
 public:
  Recorder(const Job& job, trace::Writer& writer) : job_(job), writer_(writer), noise_(job) {}

  void record() {
    if (job_.reorders) {  // whoever declares them first gets the small numbers
      for (const char* name : {"rope", "adamw", "grid", "cudaLaunchKernel"})
        static_cast<void>(writer_.name(name));
    }
    for (int rank = 0; rank < job_.ranks; ++rank)
      record_rank(rank);
  }

 private:
  struct Tracks {
    trace::TrackHandle main, stream;
    std::int32_t pid{0};
  };

  void record_rank(int rank) {
    Tracks tracks;
    tracks.pid = 4000 + static_cast<std::int32_t>(job_.seed % 1000) * 10 + rank;
    const auto process = writer_.process_track({.pid = tracks.pid,
                                                .parent_pid = 1,
                                                .name = "python3",
                                                .cmdline = "python3 train.py",
                                                .job = "127.0.0.1:29500",
                                                .role = "rank",
                                                .rank = rank,
                                                .local_rank = rank,
                                                .world_size = job_.ranks});
    tracks.main = writer_.thread_track(tracks.pid, tracks.pid, "python3");
    tracks.stream = writer_.custom_track(
        process, job_.is_exact ? "GPU 0 stream 7, device clock" : "GPU 0 stream 7");
    for (const KernelSpec& spec : kSpecs)
      run_factor_[spec.name] = noise_.factor(kRunSigma);
    run_factor_["added"] = 1;
    const double machine = job_.machine * noise_.factor(kMachineSigma);
    host_ns_ = 1'000'000 * static_cast<std::int64_t>(1 + job_.seed % 7);
    device_ns_ = host_ns_;
    correlation_ = 0;
    for (int step = 0; step < job_.steps; ++step)
      record_step(tracks, rank, step, machine * noise_.factor(kMachineSigma));
  }

  void record_step(const Tracks& tracks, int rank, int step, double machine) {
    const std::int64_t begin_ns = host_ns_;
    for (const KernelSpec& spec : kSpecs) {
      if (spec.name == job_.without) continue;
      const auto more = job_.more_launches.find(spec.name);
      const int launches = spec.launches + (more == job_.more_launches.end() ? 0 : more->second);
      for (int i = 0; i < launches; ++i)
        launch(tracks, rank, spec, machine);
    }
    if (!job_.added.empty())
      launch(tracks, rank, {job_.added.c_str(), "fused_add", 1, 700, 333, true}, machine);
    // The host waits for the device, then works alone.
    const std::int64_t python_ns = static_cast<std::int64_t>(job_.python_ms * 1e6);
    if ((step + 1) % job_.waits_every == 0)
      host_ns_ = std::max(host_ns_, job_.is_exact ? host_ns_ + 20'000'000 : device_ns_);
    const std::int64_t alone_ns = host_ns_;
    host_ns_ += python_ns + static_cast<std::int64_t>(job_.idle_ms * 1e6);
    if (job_.has_loop) {
      slice(tracks.main, host_ns_, 1'000'000, "Optimizer.step#AdamW.step", "step", {});
      host_ns_ += 1'000'000;
    }
    if (!job_.is_exact) device_ns_ = std::max(device_ns_, host_ns_);
    const std::int64_t phase_ns = static_cast<std::int64_t>(kSampleNs * noise_.uniform());
    for (std::int64_t at = begin_ns + phase_ns; at < host_ns_; at += kSampleNs) {
      const bool is_alone = at >= alone_ns && at < alone_ns + python_ns;
      sample(tracks, at, is_alone ? "augment" : "forward");
    }
  }

  void launch(const Tracks& tracks, int rank, const KernelSpec& spec, double machine) {
    ++correlation_;
    const double scale = spec.is_scaled ? job_.batch : 1;
    const std::string dims =
        job_.has_lists ? "[[]]" : fmt::format("[[{}, 32], [32, 16]]", static_cast<int>(64 * scale));
    const auto own_ns = static_cast<std::int64_t>(job_.operator_us * noise_.factor(0.03) * 1000);
    if (job_.has_dims)
      slice(tracks.main, host_ns_, kLaunchNs + own_ns, "aten::mm", "cpu_op",
            {Arg::uint(writer_.name("External id"), correlation_),
             Arg::str(writer_.name("Input Dims"), dims)});
    slice(tracks.main, host_ns_, kLaunchNs, "cudaLaunchKernel", "cuda",
          {Arg::uint(writer_.name("correlation"), correlation_)});
    host_ns_ += kLaunchNs + 1'000 + (job_.has_dims ? own_ns : 0);
    double us = spec.us * machine * run_factor_[spec.name == job_.added ? "added" : spec.name] *
                noise_.factor(kCallSigma) * noise_.outlier();
    if (spec.is_scaled) us *= job_.batch;
    const auto slower = job_.slower.find(spec.name);
    const bool holds = job_.only_rank < 0 || job_.only_rank == rank;
    if (slower != job_.slower.end() && holds) us *= slower->second;
    if (!job_.is_exact) device_ns_ = std::max(device_ns_, host_ns_);
    const auto duration_ns = static_cast<std::int64_t>(us * 1000);
    const std::string grid =
        std::to_string(static_cast<int>(spec.grid * (spec.name == job_.persistent ? 1 : scale))) +
        ",1,1";
    std::vector<Arg> args{Arg::uint(writer_.name("correlation"), correlation_),
                          Arg::str(writer_.name("grid"), grid),
                          Arg::str(writer_.name("block"), "256,1,1")};
    if (job_.has_dims) args.push_back(Arg::uint(writer_.name("External id"), correlation_));
    const std::string full_name = full_name_of(spec);
    args.push_back(Arg::str(writer_.name("full_name"), full_name));
    slice(tracks.stream, device_ns_, duration_ns, spec.name, "kernel", args);
    device_ns_ += duration_ns + kGapNs;
  }

  std::string full_name_of(const KernelSpec& spec) const {
    const auto other = job_.names.find(spec.name);
    if (other != job_.names.end()) return other->second;
    std::string name = spec.full_name;
    if (job_.renumbers && name.starts_with("triton_poi_fused_"))  // 1 -> 2 -> 3 -> 1
      name.back() = static_cast<char>('1' + (name.back() - '0') % 3);
    return name;
  }

  void slice(trace::TrackHandle track, std::int64_t begin_ns, std::int64_t duration_ns,
             std::string_view name, std::string_view category, const std::vector<Arg>& args) {
    writer_.slice_begin(track, trace::at_for_test(begin_ns), writer_.name(name),
                        writer_.category(category), args);
    writer_.slice_end(track, trace::at_for_test(begin_ns + duration_ns));
  }

  void sample(const Tracks& tracks, std::int64_t time_ns, std::string_view function) {
    const trace::FrameHandle frames[] = {writer_.frame("main", "/app/train.py", 10),
                                         writer_.frame(function, "/app/train.py", 20)};
    writer_.sample(tracks.pid, tracks.pid, trace::at_for_test(time_ns), writer_.stack(frames),
                   trace::SampleState::kRunning, true);
  }

  const Job& job_;
  trace::Writer& writer_;
  Noise noise_;
  std::map<std::string, double> run_factor_;
  std::int64_t host_ns_{0}, device_ns_{0};
  std::uint64_t correlation_{0};
};

}  // namespace

std::vector<std::string> kernel_names() {
  std::vector<std::string> out;
  for (const KernelSpec& spec : kSpecs)
    out.emplace_back(spec.name);
  return out;
}

trace::Trace recorded(const Job& job) {
  const std::string bytes =
      trace::bytes_of([&](trace::Writer& writer) { Recorder(job, writer).record(); });
  auto trace = trace::read_trace(as_bytes(bytes));
  EXPECT_TRUE(trace.has_value()) << (trace ? "" : trace.error().what);
  return trace ? std::move(*trace) : trace::Trace{};
}

Comparison compared(const Job& before, const Job& after, const Options& options) {
  const trace::Trace a = recorded(before), b = recorded(after);
  const Input left{"a", &a}, right{"b", &b};
  auto out = compare({&left, 1}, {&right, 1}, options);
  EXPECT_TRUE(out.has_value()) << (out ? "" : out.error().what);
  return out ? std::move(*out) : Comparison{};
}

const Row* row_named(const Comparison& comparison, std::string_view name) {
  for (const Row& row : comparison.rows) {
    if (row.shown == name) return &row;
  }
  return nullptr;
}

std::string found(const Comparison& comparison) {
  std::string out;
  for (const Row& row : comparison.rows) {
    if (!row.is_significant || row.is_by_batch) continue;
    out += (out.empty() ? "" : "; ") + row.shown + " " + row.what;
  }
  return out;
}

}  // namespace kansoku::diff
