// SPDX-License-Identifier: Apache-2.0
#include "capture/cuda_source.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <limits>
#include <utility>

#include "sys/kernel_name.h"

namespace kansoku::capture {
namespace {

constexpr Nanos kCudaPollEvery = std::chrono::milliseconds{50};
constexpr Nanos kLease = std::chrono::seconds{3};
constexpr std::size_t kRecordsAtOnce = 200'000;
constexpr std::size_t kHeldMax = 1U << 20;
/// Readings of an event clock after which it is clear whether it keeps pace with time at all: a
/// model's clock contradicts the first one by its second.
constexpr std::uint32_t kReadingsToTrust = 3;
/// Step of cuEventElapsedTime, a float of milliseconds, at the age that the library lets its base
/// have.
constexpr Nanos kEventStep{500};
/// How long the library of a program that another one became is looked for at each poll.
constexpr Nanos kExecPatience = std::chrono::seconds{10};
constexpr std::size_t kAllocationsMax = 1U << 20;
constexpr std::size_t kStackFramesShown = 12;
constexpr std::size_t kProblemsKept = 16;  // of processes that have ended
/// Tracks of threads, and of streams, of one process; the process names both at will.
constexpr std::size_t kTracksMax = 4096;
/// Tracks for branches of the graphs of one stream; further ones share the last.
constexpr std::size_t kBranchesMax = 64;
/// Beyond it a device time is nonsense: three years. Sums of such times stay within 64 bits.
constexpr std::int64_t kFarthestNs = 100'000'000'000'000'000;

struct OperationWords {
  const char* category;
  const char* name;  // null: of its own
};
/// By enum wire_cuda_class; the categories are those of PyTorch's profiler.
constexpr std::array<OperationWords, 7> kOperations{{{"gpu_wait", "?"},
                                                     {"kernel", nullptr},
                                                     {"cuda_graph", "graph"},
                                                     {"gpu_memcpy", nullptr},
                                                     {"gpu_memset", "Memset"},
                                                     {"gpu_host_function", "host function"},
                                                     {"gpu_wait", "value"}}};
constexpr std::array<const char*, 6> kCopies{"?", "HtoD", "DtoH", "DtoD", "HtoH", "PtoP"};
constexpr std::array<const char*, 6> kCopyNames{"Memcpy",      "Memcpy HtoD", "Memcpy DtoH",
                                                "Memcpy DtoD", "Memcpy HtoH", "Memcpy PtoP"};

std::size_t copy_kind(const wire_cuda_record& record) {
  const std::uint64_t kind = record.u.memory.detail & 0xff;
  return kind < kCopies.size() ? static_cast<std::size_t>(kind) : 0;
}

/// Flow of one program of one process; never that of another.
std::uint64_t flow_of(std::int32_t pid, std::uint64_t image, std::uint32_t correlation) {
  return ((image - 1) << 56) | (static_cast<std::uint64_t>(static_cast<std::uint32_t>(pid)) << 32) |
         correlation;
}
std::uint64_t correlation_of(std::uint64_t image, std::uint32_t correlation) {
  return ((image - 1) << 32) | correlation;
}
/// In names of things that a program has once: the first one of a process has its number alone.
std::string program_name(std::int32_t pid, std::uint64_t image) {
  return image == 1 ? std::to_string(pid) : fmt::format("{}.program{}", pid, image);
}

}  // namespace

CudaSource::CudaSource(trace::Writer& writer, const Clock& clock, const sys::Procfs& procfs,
                       CudaSourceOptions options)
    : writer_(writer),
      clock_(clock),
      procfs_(procfs),
      symbols_(procfs, writer),
      options_(options) {}

CudaSource::~CudaSource() = default;

BootTime CudaSource::due() const {
  return is_open_ && is_enabled_ && !(processes_.empty() && renewed_.empty()) ? next_
                                                                              : BootTime::max();
}

void CudaSource::request(Watched& process, BootTime now) const {
  const bool is_on = is_open_ && is_enabled_;
  process.channel->want_ranges(is_on);
  process.channel->request(is_on ? options_.mode : cuda::Mode::kDormant, options_.every_n,
                           is_on ? now + kLease : BootTime{});
}

void CudaSource::attach(const Observed& process, BootTime now) {
  const std::int32_t pid = process.facts.pid;
  auto channel = cuda::Channel::open(procfs_, pid);
  if (!channel) {
    if (channel.error().code == Code::kUnavailable) {
      if (not_covered_.emplace(pid, channel.error().what).second) ++busy_;
      return;
    }
    const cuda::Coverage coverage = cuda::coverage_of(procfs_, pid);
    if (coverage.has_cuda && !coverage.has_library)
      not_covered_[pid] = fmt::format(
          "process {}: uses {} without Kansoku's CUDA library, which cannot come in later: no "
          "device times; start it with `kansoku run --cuda -- COMMAND`",
          pid, coverage.driver_path);
    // The news of its exec may come after it was looked at: then it did not end.
    if (const auto again = not_covered_.find(pid); again != not_covered_.end()) {
      const auto gone = std::find(gone_problems_.begin(), gone_problems_.end(), again->second);
      if (gone != gone_problems_.end()) {
        gone_problems_.erase(gone);
        --gone_not_covered_;
      }
    }
    return;
  }
  not_covered_.erase(pid);
  Watched& watched = processes_[pid];
  watched.pid = pid;
  watched.image = ++images_[pid];
  watched.channel = std::move(*channel);
  watched.track = process.track;
  request(watched, now);
}

void CudaSource::inspect(const Observed& process, BootTime now) {
  now_ = now;
  if (!is_open_ || processes_.contains(process.facts.pid)) return;
  attach(process, now);
}

/// Writes the library's counts, timed or not, as metadata of texts that are short enough for the
/// writer: "kansoku.cuda.PID.entry.NAME" of each entry point that was called, and
/// "kansoku.cuda.PID.kernel.N" of each kernel, "kansoku.cuda.PID.graphs.WHAT" of the other nodes
/// that graphs ran. A kernel's launches by graphs are those of the
/// graphs times their nodes.
void CudaSource::write_totals(const Watched& process, BootTime now) {
  const std::string prefix =
      fmt::format("kansoku.cuda.{}.", program_name(process.pid, process.image));
  std::uint64_t unknown = 0;  // launches of graphs whose contents are not known
  for (const cuda::EntryTotals& entry : process.channel->entries()) {
    if (entry.calls == 0) continue;
    if (entry.what == WIRE_CUDA_GRAPH_LAUNCH) unknown += entry.operations;
    writer_.metadata(
        prefix + "entry." + entry.name,
        fmt::format("calls={} failed={} captured={} bytes={} operations={}", entry.calls,
                    entry.failed, entry.captured, entry.bytes, entry.operations),
        now);
  }
  const wire_cuda_state state = process.channel->state();
  const double sampled = std::max<double>(1, static_cast<double>(state.sampled));
  writer_.metadata(
      prefix + "cost",
      fmt::format("timed={} every_n={} own_ns={:.0f} events_ns={:.0f} thread_cpu_ns={} "
                  "graphs_twice={} graphs_twice_ns={} nodes={} chains={} chained={}",
                  state.timed, state.mode == WIRE_CUDA_SAMPLED ? state.every_n : 1,
                  static_cast<double>(state.own_ns) / sampled,
                  static_cast<double>(state.event_ns) / sampled, state.poller_cpu_ns, state.twins,
                  state.twin_ns, state.nodes_timed, state.chains, state.chained),
      now);
  std::map<std::uint32_t, std::uint64_t> in_graphs;
  std::uint64_t unnamed = 0, copies = 0, sets = 0, others = 0;
  for (const cuda::GraphInfo& graph : process.channel->graphs()) {
    copies += graph.launches * graph.copies;
    sets += graph.launches * graph.sets;
    others += graph.launches * graph.others;
    unknown -= std::min(unknown, graph.launches);
    for (const std::uint16_t node : graph.nodes) {
      if (node == WIRE_CUDA_NO_KERNEL)
        unnamed += graph.launches;
      else
        in_graphs[node] += graph.launches;
    }
    unnamed += graph.launches * (graph.kernels - graph.nodes.size());
  }
  for (std::uint32_t i = 0; i < process.channel->kernel_count(); ++i) {
    const auto info = process.channel->kernel(i);
    if (!info || (info->launches == 0 && info->captured == 0 && in_graphs[i] == 0)) continue;
    writer_.metadata(fmt::format("{}kernel.{}", prefix, i),
                     fmt::format("launches={} captured={} in_graphs={} name={}", info->launches,
                                 info->captured, in_graphs[i], info->name),
                     now);
  }
  for (const auto& [what, count] :
       {std::pair{"unnamed_kernels", unnamed}, std::pair{"copies", copies}, std::pair{"sets", sets},
        std::pair{"others", others}, std::pair{"unknown", unknown}})
    if (count > 0) writer_.metadata(prefix + "graphs." + what, fmt::format("count={}", count), now);
}

/// "kansoku.cuda.device.N": gpu/activity computes occupancies from it.
void CudaSource::write_devices(const Watched& process, BootTime now) {
  for (std::uint32_t i = 0; i < WIRE_CUDA_CONTEXTS_MAX; ++i) {
    const cuda::ContextInfo context = process.channel->context(i);
    if (!context.is_used || context.device < 0 || context.major == 0) continue;
    writer_.metadata(
        fmt::format("kansoku.cuda.device.{}", context.device),
        fmt::format("major={} threads={} blocks={} registers={} shared_bytes={}", context.major,
                    context.threads, context.blocks, context.registers, context.shared_bytes),
        now);
  }
}

void CudaSource::close(Watched& process, BootTime now) {
  read(process, /*is_last=*/true);
  write_projection(process);
  write_devices(process, now);
  write_totals(process, now);
  for (auto& [context, clock] : process.clocks)
    clock.clock.write(writer_, now, clock.worst);
  for (const cuda::StreamInfo& stream : process.channel->streams())
    unfinished_ += stream.submitted - std::min(stream.submitted, stream.completed);
  const wire_cuda_state state = process.channel->state();
  ranges_elsewhere_ += state.nvtx_clients == 0 && state.nvtx_elsewhere != 0 ? 1 : 0;
  process.channel->add_losses(gone_);
}

/// The news of an exec may be older than the look at the new program: its library goes on, since
/// its records between two recorders are nobody's.
void CudaSource::renew(std::int32_t pid) {
  const auto known = processes_.find(pid);
  if (known == processes_.end() || !known->second.channel->is_still_there()) forget(pid);
}

void CudaSource::forget(std::int32_t pid) {
  if (const auto why = not_covered_.find(pid); why != not_covered_.end()) {
    ++gone_not_covered_;
    if (gone_problems_.size() < kProblemsKept) gone_problems_.push_back(std::move(why->second));
    not_covered_.erase(why);
  }
  renewed_.erase(pid);
  symbols_.forget(pid);
  const auto found = processes_.find(pid);
  if (found == processes_.end()) return;
  if (is_open_) close(found->second, clock_.now());
  processes_.erase(found);
}

/// A process that calls exec stays the same to who only looks at it now and then.
void CudaSource::follow_exec(const Processes& processes, BootTime now) {
  for (const auto& [pid, process] : processes) {
    const auto known = processes_.find(pid);
    if (known != processes_.end() && !known->second.channel->is_still_there()) {
      close(known->second, now);
      processes_.erase(known);
      symbols_.forget(pid);
      renewed_[pid] = now + kExecPatience;
    }
    if (renewed_.contains(pid)) attach(process, now);
  }
  std::erase_if(renewed_, [&](const auto& one) {
    return one.second < now || processes_.contains(one.first) || !processes.contains(one.first);
  });
}

void CudaSource::poll(const Processes& processes, BootTime now) {
  now_ = now;
  next_ = now + kCudaPollEvery;
  follow_exec(processes, now);
  for (auto& [pid, process] : processes_) {
    request(process, now);
    read(process, /*is_last=*/false);
  }
}

void CudaSource::drain() {
  for (auto& [pid, process] : processes_)
    read(process, /*is_last=*/false);
}

void CudaSource::begin_trace(BootTime now) {
  now_ = now;
  is_open_ = true;
  next_ = now;
}

void CudaSource::end_trace(BootTime now) {
  for (auto& [pid, process] : processes_)
    close(process, now);
  const bool is_sampled = options_.mode == cuda::Mode::kSampled;
  writer_.metadata("kansoku.cuda.mode", is_sampled ? "sampled" : "every", now);
  is_open_ = false;
  processes_.clear();  // gives the channels up: the libraries fall dormant
}

void CudaSource::set_enabled(bool enabled) {
  is_enabled_ = enabled;
  for (auto& [pid, process] : processes_)
    request(process, clock_.now());
}

void CudaSource::read(Watched& process, bool is_last) {
  process.channel->drain(
      [&](const wire_cuda_record& record, std::uint32_t what) { take(process, record, what); },
      kRecordsAtOnce);
  process.has_ranges = process.channel->state().nvtx_clients > 0;
  write_held(process, is_last);
  write_errors(process, clock_.now());
}

void CudaSource::take(Watched& process, const wire_cuda_record& record, std::uint32_t what) {
  if (record.entry == WIRE_CUDA_CLOCK) {
    read_clock(process, record);
    return;
  }
  if (record.entry == WIRE_CUDA_RANGE) {
    write_range(process, record);
    return;
  }
  if (record.entry == WIRE_CUDA_OWN) {
    write_own(process, record);
    return;
  }
  if (record.host_begin_ns > static_cast<std::uint64_t>(kFarthestNs) ||
      std::abs(record.device_begin_ns) > kFarthestNs) {
    ++odd_;
    return;
  }
  if ((record.flags & WIRE_CUDA_TIMED) == 0) {
    count_memory(process, record, what);
    write_call(process, record, what, 0);
    return;
  }
  process.held.emplace_back(record, what);
  if (process.held.size() > kHeldMax) {
    ++unfinished_;
    process.held.pop_front();
  }
}

void CudaSource::read_clock(Watched& process, const wire_cuda_record& record) {
  const auto [found, is_new] = process.clocks.try_emplace(
      record.stream,
      fmt::format("cuda.{}.{}", program_name(process.pid, process.image), record.stream));
  ContextClock& context = found->second;
  const auto before = static_cast<std::int64_t>(record.host_begin_ns);
  const auto after = static_cast<std::int64_t>(record.device_ns);
  if (is_new) {
    context.first_boot_ns = before;
    context.first_device_ns = record.device_begin_ns;
  }
  if (after < before || before < 0 || std::abs(record.device_begin_ns) > kFarthestNs) {
    ++odd_;
    return;
  }
  context.clock.add(record.device_begin_ns, boot_time(before), boot_time(after));
  ++context.readings;
}

CudaSource::Axis CudaSource::axis_of(const Watched& process, std::uint32_t context,
                                     bool is_last) const {
  const auto found = process.clocks.find(context);
  if (found == process.clocks.end()) return is_last ? Axis::kDevice : Axis::kNotYet;
  const ContextClock& clock = found->second;
  if (clock.clock.restarts() > 0) return Axis::kDevice;
  if (clock.readings >= kReadingsToTrust && clock.clock.keeps_pace()) return Axis::kBoot;
  return is_last ? Axis::kDevice : Axis::kNotYet;
}

void CudaSource::write_held(Watched& process, bool is_last) {
  while (!process.held.empty()) {
    const auto [record, what] = process.held.front();
    const auto stream = process.channel->stream(record.stream);
    const std::uint32_t context = stream ? stream->context : 0;
    // A context that is gone gets no further reading.
    const Axis axis =
        axis_of(process, context, is_last || !process.channel->context(context).is_used);
    if (axis == Axis::kNotYet) return;
    write_operation(process, record, what, axis);
    process.held.pop_front();
  }
}

/// How well the times were known that were written since the last time.
void CudaSource::write_errors(Watched& process, BootTime now) {
  for (auto& [context, clock] : process.clocks) {
    if (clock.recent == Nanos{}) continue;
    if (!clock.is_error_declared)
      clock.error = writer_.counter_track(
          process.track, fmt::format("error of device times, context {}", context), "ns");
    clock.is_error_declared = true;
    writer_.counter(clock.error, now, static_cast<double>(std::exchange(clock.recent, {}).count()));
  }
}

/// On a clock of the device's own, times count from its first reading; only lengths and order mean
/// something there.
CudaSource::DeviceTime CudaSource::device_time(const Watched& process, std::uint32_t context,
                                               std::int64_t device_ns, Axis axis) {
  const auto found = process.clocks.find(context);
  if (found == process.clocks.end()) return {boot_time(std::max<std::int64_t>(device_ns, 0)), {}};
  const ContextClock& clock = found->second;
  const auto mapped = clock.clock.to_boot(device_ns);
  if (axis == Axis::kBoot && mapped) return {mapped->time, mapped->error + kEventStep};
  return {boot_time(clock.first_boot_ns + (device_ns - clock.first_device_ns)), {}};
}

void CudaSource::count_error(Watched& process, std::uint32_t context, Nanos error) {
  const auto found = process.clocks.find(context);
  if (found == process.clocks.end()) return;
  found->second.recent = std::max(found->second.recent, error);
  found->second.worst = std::max(found->second.worst, error);
}

CudaSource::Stream& CudaSource::stream_of(Watched& process, std::uint32_t stream, Axis axis) {
  const auto info = process.channel->stream(stream);
  std::pair key{stream, info ? info->generation : 0};
  if (process.streams.size() >= kTracksMax) key = {WIRE_CUDA_STREAMS_MAX, 0};
  if (const auto found = process.streams.find(key); found != process.streams.end())
    return found->second;
  const std::int32_t device =
      info ? process.channel->context(info->context).device : std::int32_t{-1};
  std::string name =
      fmt::format("GPU {} stream {}", device < 0 ? "?" : std::to_string(device), stream);
  if (info && (info->kind & WIRE_CUDA_LEGACY) != 0) name += " (default)";
  if (info && (info->kind & WIRE_CUDA_PER_THREAD) != 0)
    name += fmt::format(" (default of thread {})", info->handle);
  if (axis == Axis::kDevice) name += ", device clock";
  const auto track = writer_.custom_track(process.track, name);
  return process.streams.emplace(key, Stream{track, std::move(name), stream, device, {}})
      .first->second;
}

trace::TrackHandle CudaSource::thread_track(Watched& process, std::uint32_t own_tid) {
  if (process.threads.size() >= kTracksMax) own_tid = 0;  // one for all further ones
  if (const auto found = process.threads.find(own_tid); found != process.threads.end())
    return found->second;
  const std::int32_t tid = cuda::tid_outside(procfs_, process.pid, as_pid(own_tid));
  const auto track = writer_.thread_track(
      process.pid, tid, tid == process.pid ? "main" : fmt::format("thread {}", tid));
  process.threads.emplace(own_tid, track);
  return track;
}

const CudaSource::Kernel& CudaSource::kernel(Watched& process, std::uint32_t index) {
  const auto [found, is_new] = process.kernels.try_emplace(index);
  if (!is_new && found->second.registers > 0) return found->second;
  const auto info = process.channel->kernel(index);
  if (info) {
    found->second.registers = info->registers;
    found->second.static_shared = info->static_shared;
  }
  if (!is_new) return found->second;
  const std::string full = info ? info->name : std::string{};
  const std::string brief = full.empty() ? "function@?" : sys::short_kernel_name(full);
  found->second.name = writer_.name(brief);
  found->second.chain = writer_.name("chain: " + brief);
  if (brief != full) found->second.full_name = full;
  return found->second;
}

/// Adds the arguments of a copy or set; for a copy also a note that the host's memory is pageable
/// or not, if that is known, and how many a batch has. Gives its title.
trace::NameId CudaSource::add_memory_args(const wire_cuda_record& record, std::uint32_t what,
                                          std::vector<trace::Arg>& args) {
  args.push_back(trace::Arg::uint(writer_.name("bytes"), record.u.memory.bytes));
  if (what != WIRE_CUDA_COPY) return writer_.name(kOperations[what].name);
  const std::size_t kind = copy_kind(record);
  args.push_back(trace::Arg::str(writer_.name("kind"), kCopies[kind]));
  const std::uint64_t detail = record.u.memory.detail;
  if ((detail & (WIRE_CUDA_PAGEABLE | WIRE_CUDA_PINNED)) != 0)
    args.push_back(
        trace::Arg::uint(writer_.name("pageable"), (detail & WIRE_CUDA_PAGEABLE) != 0 ? 1 : 0));
  if (const std::uint64_t copies = detail >> WIRE_CUDA_BATCH_SHIFT; copies != 0)
    args.push_back(trace::Arg::uint(writer_.name("copies"), copies));
  return writer_.name(kCopyNames[kind]);
}

void CudaSource::add_graph_args(const Watched& process, const wire_cuda_record& record,
                                std::vector<trace::Arg>& args) {
  if (record.u.memory.bytes == 0) return;
  const auto graph = process.channel->graph(record.u.memory.bytes - 1);
  if (!graph) return;
  args.push_back(trace::Arg::uint(writer_.name("graph"), record.u.memory.bytes));
  args.push_back(trace::Arg::uint(writer_.name("kernels"), graph->kernels));
  args.push_back(trace::Arg::uint(writer_.name("copies"), graph->copies));
  args.push_back(trace::Arg::uint(writer_.name("sets"), graph->sets));
}

/// Adds the arguments of a launch, or of a chain of them, whose time is none of a kernel: it has a
/// name of its own. `shape` holds the texts of `args`.
trace::NameId CudaSource::add_launch_args(Watched& process, const wire_cuda_record& record,
                                          std::vector<trace::Arg>& args,
                                          std::array<std::string, 2>& shape) {
  if ((record.flags & WIRE_CUDA_PROGRAMMATIC) != 0) {
    args.push_back(trace::Arg::uint(writer_.name("chain"), record.u.chain.launches));
    return kernel(process, record.u.chain.kernel).chain;
  }
  const auto& launch = record.u.launch;
  const Kernel& known = kernel(process, launch.kernel);
  shape = {fmt::format("{},{},{}", launch.grid_x, launch.grid_y, launch.grid_z),
           fmt::format("{},{},{}", launch.block_x, launch.block_y, launch.block_z)};
  args.push_back(trace::Arg::str(writer_.name("grid"), shape[0]));
  args.push_back(trace::Arg::str(writer_.name("block"), shape[1]));
  args.push_back(trace::Arg::uint(writer_.name("shared_kib"), launch.shared_kib));
  if (known.registers > 0) {
    args.push_back(trace::Arg::uint(writer_.name("registers"), known.registers));
    const std::uint64_t shared = known.static_shared + std::uint64_t{launch.shared_kib} * 1024;
    args.push_back(trace::Arg::uint(writer_.name("shared_bytes"), shared));
  }
  if (!known.full_name.empty())
    args.push_back(trace::Arg::str(writer_.name("full_name"), known.full_name));
  return known.name;
}

void CudaSource::write_operation(Watched& process, const wire_cuda_record& record,
                                 std::uint32_t what, Axis axis) {
  if (what == 0 || what >= kOperations.size()) return;
  const auto stream = process.channel->stream(record.stream);
  const std::uint32_t context = stream ? stream->context : 0;
  const auto begin = device_time(process, context, record.device_begin_ns, axis);
  // An operation that the library measured the wrong way round has no length; it is counted there.
  // The end is mapped, too: the device's clock may drift within a long operation.
  const auto lasts =
      std::clamp<std::int64_t>(static_cast<std::int64_t>(record.device_ns), 0, kFarthestNs);
  const auto end = device_time(process, context, record.device_begin_ns + lasts, axis);
  const std::uint64_t flow = flow_of(process.pid, process.image, record.correlation);
  std::vector<trace::Arg> args{
      trace::Arg::uint(writer_.name("correlation"),
                       correlation_of(process.image, record.correlation)),
      trace::Arg::uint(writer_.name("stream"), record.stream),
      trace::Arg::uint(writer_.name("context"), context),
      trace::Arg::sint(writer_.name("device"), process.channel->context(context).device)};
  std::array<std::string, 2> shape;
  trace::NameId title{};
  if (what == WIRE_CUDA_LAUNCH) {
    title = add_launch_args(process, record, args, shape);
  } else if (what == WIRE_CUDA_COPY || what == WIRE_CUDA_SET) {
    title = add_memory_args(record, what, args);
  } else {
    title = writer_.name(kOperations[what].name);
  }
  if (what == WIRE_CUDA_GRAPH_LAUNCH) add_graph_args(process, record, args);
  if ((record.flags & WIRE_CUDA_NODE) != 0) {
    // Within its graph, whose begin may be later than mapped.
    const Watched::Branches& graph = process.branches[record.stream];
    const BootTime from = std::max(begin.time, graph.from);
    const BootTime to = std::max(from, std::min(end.time, graph.to));
    const auto branch = node_track(process, record, axis, from, to);
    writer_.slice_begin(branch, from, title, writer_.category(kOperations[what].category), args);
    writer_.slice_end(branch, to);
    return;
  }
  // A stream does one thing after the other. Its times are rounded, and mapped as well as was known
  // at each moment: without this, two of them could overlap, and would end each other.
  Stream& on = stream_of(process, record.stream, axis);
  // A time that is moved to the end before it is as wrong as that one may be.
  const auto later = [](const DeviceTime& own, const DeviceTime& least) {
    return own.time < least.time ? DeviceTime{least.time, std::max(own.error, least.error)} : own;
  };
  const DeviceTime from = later(begin, on.end);
  on.end = later(end, from);
  count_error(process, context, std::max(from.error, on.end.error));
  writer_.slice_begin(on.track, from.time, title, writer_.category(kOperations[what].category),
                      args, flow);
  writer_.slice_end(on.track, on.end.time);
  note_operation(process, record, what, on, from.time);
  write_call(process, record, what, flow);
}

/// For the nodes of a graph, and for ranges.
void CudaSource::note_operation(Watched& process, const wire_cuda_record& record,
                                std::uint32_t what, const Stream& on, BootTime begin) {
  if (what == WIRE_CUDA_GRAPH_LAUNCH) {
    process.branches[record.stream].from = begin;
    process.branches[record.stream].to = on.end.time;
  }
  if (!process.has_ranges) return;
  process.ranges.add(
      CudaRanges::Operation{.tid = record.tid,
                            .stream = on.track.raw,
                            .launched = boot_time(static_cast<std::int64_t>(record.host_begin_ns)),
                            .begin = begin,
                            .end = on.end.time});
}

/// The first branch of the stream's graph that is free then.
trace::TrackHandle CudaSource::node_track(Watched& process, const wire_cuda_record& record,
                                          Axis axis, BootTime begin, BootTime end) {
  Watched::Branches& branches = process.branches[record.stream];
  if (branches.correlation != record.correlation) branches.ends.clear();
  branches.correlation = record.correlation;
  std::size_t lane = 0;
  while (lane < branches.ends.size() && branches.ends[lane] > begin && lane + 1 < kBranchesMax)
    ++lane;
  if (lane == branches.ends.size()) branches.ends.push_back(end);
  branches.ends[lane] = std::max(branches.ends[lane], end);
  if (lane == 0) return stream_of(process, record.stream, axis).track;
  while (branches.tracks.size() < lane)
    branches.tracks.push_back(writer_.custom_track(
        process.track,
        fmt::format("stream {}, branch {} of graphs", record.stream, branches.tracks.size() + 2)));
  return branches.tracks[lane - 1];
}

void CudaSource::write_call(Watched& process, const wire_cuda_record& record, std::uint32_t what,
                            std::uint64_t flow) {
  if (record.host_begin_ns == 0) return;
  const auto begin = boot_time(static_cast<std::int64_t>(record.host_begin_ns));
  const std::string entry = process.channel->entry_name(record.entry);
  std::vector<trace::Arg> args;
  if (record.correlation != 0)
    args.push_back(trace::Arg::uint(writer_.name("correlation"),
                                    correlation_of(process.image, record.correlation)));
  const bool has_bytes = what == WIRE_CUDA_COPY || what == WIRE_CUDA_SET || what == WIRE_CUDA_ALLOC;
  if (has_bytes) args.push_back(trace::Arg::uint(writer_.name("bytes"), record.u.memory.bytes));
  if (what == WIRE_CUDA_ALLOC || what == WIRE_CUDA_FREE)
    args.push_back(trace::Arg::uint(writer_.name("address"), record.u.memory.detail));
  if (what == WIRE_CUDA_ALLOC) {
    const std::string& stack = stack_text(process, record.device_begin_ns);
    if (!stack.empty()) args.push_back(trace::Arg::str(writer_.name("stack"), stack));
  }
  if ((record.flags & WIRE_CUDA_FAILED) != 0)
    args.push_back(trace::Arg::uint(writer_.name("ret"), record.device_ns));
  const auto track = thread_track(process, record.tid);
  writer_.slice_begin(track, begin, writer_.name(entry.empty() ? "?" : entry),
                      writer_.category("cuda"), args, flow);
  writer_.slice_end(track, begin + Nanos{record.host_ns});
}

trace::NameId CudaSource::range_name(Watched& process, std::uint32_t index) {
  const auto [found, is_new] = process.range_names.try_emplace(index);
  if (is_new) {
    const std::string text = process.channel->range_name(index);
    found->second = writer_.name(text.empty() ? "(no name)" : text);
  }
  return found->second;
}

/// Track on which slices nest: the thread's own for ranges that it pushed, else one of the process.
trace::TrackHandle CudaSource::range_track(Watched& process, std::uint32_t tid, BootTime begin,
                                           BootTime end, bool is_thread) {
  const bool has_track =
      process.thread_ranges.contains(tid) || process.thread_ranges.size() < kTracksMax;
  if (is_thread && has_track && process.thread_ranges[tid].add(begin, end))
    return thread_track(process, tid);
  for (Lane& lane : process.range_lanes)
    if (lane.slices.add(begin, end)) return lane.track;
  const std::size_t number = process.range_lanes.size() + 1;
  if (number > CudaRanges::kLanesMax) {
    ++ranges_left_out_;
    return {};
  }
  const std::string name = number == 1 ? "NVTX ranges" : fmt::format("NVTX ranges, {}", number);
  process.range_lanes.push_back({writer_.custom_track(process.track, name), {}});
  (void)process.range_lanes.back().slices.add(begin, end);  // the first of its lane
  return process.range_lanes.back().track;
}

/// The category is that of PyTorch's profiler, and of imported ranges.
/// Work of the library itself on a thread of the program.
void CudaSource::write_own(Watched& process, const wire_cuda_record& record) {
  constexpr auto kFarthest = static_cast<std::uint64_t>(kFarthestNs);
  if (record.host_begin_ns > kFarthest || record.device_ns > kFarthest) {
    ++odd_;
    return;
  }
  const BootTime begin = boot_time(static_cast<std::int64_t>(record.host_begin_ns));
  const auto track = thread_track(process, record.tid);
  writer_.slice_begin(track, begin, writer_.name("Kansoku: second executable of a graph"),
                      writer_.category(trace::kOwnCost), {});
  writer_.slice_end(track, begin + Nanos{static_cast<std::int64_t>(record.device_ns)});
}

void CudaSource::write_range(Watched& process, const wire_cuda_record& record) {
  constexpr auto kFarthest = static_cast<std::uint64_t>(kFarthestNs);
  if (record.host_begin_ns > kFarthest || record.device_ns > kFarthest) {
    ++odd_;
    return;
  }
  const auto& range = record.u.range;
  const BootTime begin = boot_time(static_cast<std::int64_t>(record.host_begin_ns));
  const BootTime end = begin + Nanos{static_cast<std::int64_t>(record.device_ns)};
  std::string domain = process.channel->range_domain(range.domain);
  if (domain.empty()) domain = "(others)";
  std::vector<trace::Arg> args;  // with views of the domain
  if (range.domain != 0) args.push_back(trace::Arg::str(writer_.name("domain"), domain));
  const trace::NameId name = range_name(process, range.name);
  const trace::CategoryId category = writer_.category("user_annotation");
  if (range.kind == WIRE_CUDA_MARK) {
    writer_.instant(thread_track(process, record.tid), begin, name, category, args);
    return;
  }
  const bool is_thread = range.kind == WIRE_CUDA_PUSHED;
  if (is_thread)
    process.ranges.add(CudaRanges::Range{record.tid, begin, end, range.name, range.domain});
  const auto track = range_track(process, record.tid, begin, end, is_thread);
  if (track == trace::TrackHandle{}) return;
  writer_.slice_begin(track, begin, name, category, args);
  writer_.slice_end(track, end);
}

/// Writes the cover of the program's ranges on each stream. At the end: a range is known once it is
/// over, and its operations once they are complete.
void CudaSource::write_projection(Watched& process) {
  std::map<std::uint32_t, const Stream*> streams;  // by track
  for (const auto& [key, stream] : process.streams)
    streams.emplace(stream.track.raw, &stream);
  std::map<std::pair<std::uint32_t, std::uint32_t>, trace::TrackHandle> tracks;  // and lane
  for (const CudaRanges::Span& span : process.ranges.project()) {
    const auto [found, is_new] = tracks.try_emplace({span.stream, span.lane});
    if (is_new) {
      const std::string lane = span.lane == 0 ? "" : fmt::format(" ({})", span.lane + 1);
      found->second = writer_.custom_track(
          process.track, fmt::format("NVTX{} on {}", lane, streams.at(span.stream)->name));
    }
    std::string domain = process.channel->range_domain(span.domain);
    if (domain.empty()) domain = "(others)";
    const Stream& stream = *streams.at(span.stream);
    std::vector<trace::Arg> args{trace::Arg::uint(writer_.name("operations"), span.operation_count),
                                 trace::Arg::uint(writer_.name("stream"), stream.number),
                                 trace::Arg::sint(writer_.name("device"), stream.device)};
    if (span.domain != 0) args.push_back(trace::Arg::str(writer_.name("domain"), domain));
    writer_.slice_begin(found->second, span.begin, range_name(process, span.name),
                        writer_.category("gpu_user_annotation"), args);
    writer_.slice_end(found->second, span.end);
  }
  ranges_left_out_ += process.ranges.left_out();
}

/// For people, innermost first. Asked while the process lives: its maps name the addresses.
const std::string& CudaSource::stack_text(Watched& process, std::int64_t number) {
  static const std::string kNone;
  const auto found = process.stacks.find(number);
  if (found != process.stacks.end()) return found->second;
  std::vector<std::uint64_t> addresses = process.channel->stack(number);
  if (addresses.empty()) return kNone;  // none, or another thread still writes it
  --addresses.front();                  // all of them are behind a call
  return process.stacks[number] =
             symbols_.text(process.pid, addresses, clock_.now(), kStackFramesShown);
}

/// Live driver bytes, of allocations since the library was switched on.
void CudaSource::count_memory(Watched& process, const wire_cuda_record& record,
                              std::uint32_t what) {
  if ((what != WIRE_CUDA_ALLOC && what != WIRE_CUDA_FREE) || (record.flags & WIRE_CUDA_FAILED) != 0)
    return;
  // Pinned memory is the host's.
  if (process.channel->entry_name(record.entry).find("Host") != std::string::npos) return;
  if (what == WIRE_CUDA_ALLOC) {
    if (process.allocations.size() >= kAllocationsMax) return;
    const auto [found, is_new] =
        process.allocations.try_emplace(record.u.memory.detail, record.u.memory.bytes);
    if (!is_new) return;
    process.live_bytes += record.u.memory.bytes;
  } else {
    const auto found = process.allocations.find(record.u.memory.detail);
    if (found == process.allocations.end()) return;
    process.live_bytes -= found->second;
    process.allocations.erase(found);
  }
  if (!process.is_memory_declared)
    process.memory = writer_.counter_track(process.track, "device memory, live", "bytes");
  process.is_memory_declared = true;
  // An allocation is there when its call returns; a released one is gone when the call begins.
  const auto begin = boot_time(static_cast<std::int64_t>(record.host_begin_ns));
  writer_.counter(process.memory, what == WIRE_CUDA_ALLOC ? begin + Nanos{record.host_ns} : begin,
                  static_cast<double>(process.live_bytes));
}

void CudaSource::add_losses(Losses& out) const {
  for (const Losses::Total& total : gone_.all())
    out.add(*total.stat, total.total);
  for (const auto& [pid, process] : processes_)
    process.channel->add_losses(out);
  out.add(cuda_unfinished, unfinished_);
  out.add(cuda_not_covered, not_covered_.size() + gone_not_covered_);
  out.add(cuda_busy, busy_);
  out.add(cuda_ranges_elsewhere, ranges_elsewhere_);
  out.add(cuda_ranges_left_out, ranges_left_out_);
  out.add(cuda::cuda_odd_records, odd_);
}

void CudaSource::add_problems(std::vector<std::string>& out) const {
  out.insert(out.end(), gone_problems_.begin(), gone_problems_.end());
  for (const auto& [pid, why] : not_covered_)
    out.push_back(why);
}

}  // namespace kansoku::capture
