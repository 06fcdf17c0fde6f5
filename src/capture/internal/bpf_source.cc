// SPDX-License-Identifier: Apache-2.0
#include "capture/internal/bpf_source.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

namespace kansoku::capture {
namespace {

// Each wake takes a processor from a rank; the ring holds seconds of every operator.
constexpr Nanos kDrainEvery = std::chrono::milliseconds{40};
constexpr Nanos kWatchEvery = std::chrono::milliseconds{200};  // light probes fill no ring
constexpr Nanos kIdleEvery = std::chrono::milliseconds{50};    // while the probes are switched off
// A hit of an emulated instruction with eight arguments, two of them on the stack
// (docs/cuda-outside.md).
constexpr double kCudaHitSeconds = 1.3e-6;
// Without a launch of an unnamed kernel for so long, the runtime's launches are left alone.
constexpr Nanos kNamingQuiet = std::chrono::seconds{2};

}  // namespace

BpfSource::BpfSource(trace::Writer& writer, const sys::Procfs& procfs, Options options,
                     std::unique_ptr<bpf::Engine> engine)
    : procfs_(procfs),
      options_(std::move(options)),
      engine_(std::move(engine)),
      decoder_(writer, probes_, procfs),
      writer_(writer),
      governor_(options_.cuda_budget > 0 ? options_.cuda_budget : 1e9, kCudaHitSeconds) {
  decoder_.set_on_call(options_.on_call);
}

Result<std::unique_ptr<BpfSource>> BpfSource::create(trace::Writer& writer,
                                                     const sys::Procfs& procfs, Options options) {
  TRY(auto engine,
      bpf::Engine::create(
          {.ring_bytes = options.ring_bytes, .forced = options.attach_mode, .has_totals = false}));
  auto out = std::unique_ptr<BpfSource>(
      new BpfSource(writer, procfs, std::move(options), std::move(engine)));
  const Options& given = out->options_;
  out->attach_lifecycle();
  const bool is_window = !given.watch_packs.empty();
  if (is_window) out->watching_ = out->make_attached(given.watch_packs, {});
  out->full_ =
      out->make_attached(given.packs, {.is_window = is_window,
                                       .starts_attached = !is_window,
                                       .after = is_window ? &out->watching_->files : nullptr});
  for (const std::string& library : given.libraries) {
    TRY_VOID(out->full_->files.preload(library));
  }
  return out;
}

std::unique_ptr<BpfSource::Attached> BpfSource::make_attached(const std::vector<Pack>& packs,
                                                              const AttacherOptions& attaching) {
  auto made = std::unique_ptr<Attached>(
      new Attached{HostProbes(*engine_, packs, probes_, attaching.is_window),
                   Attacher(*engine_, procfs_, packs, probes_, options_.detail, attaching)});
  if (attaching.starts_attached) made->host.set_enabled(true, options_.log);
  return made;
}

void BpfSource::attach_lifecycle() {
  const auto attached = engine_->attach_lifecycle();
  if (attached) {
    lifecycle_ = *attached;
    const auto signals = engine_->attach_end_signals();
    if (signals) {
      end_signals_ = *signals;
      return;
    }
    ++signals_failed_;
    if (options_.log)
      options_.log(signals.error().what + ": senders of termination signals are not recorded");
    return;
  }
  ++lifecycle_failed_;
  if (options_.log) options_.log(attached.error().what + ": forks are followed by polling");
}

void BpfSource::set_attached(Attached& attached, bool is_on) const {
  attached.host.set_enabled(is_on, options_.log);
  attached.files.set_enabled(is_on);
}

void BpfSource::observe(std::int32_t pid) {
  const auto observed = engine_->observe_process(pid);
  if (!observed && options_.log) options_.log(observed.error().what);
}

void BpfSource::inspect(const Observed& process, BootTime now) {
  if (!is_enabled_ || (!is_open_ && !watching_)) return;
  const auto mappings = procfs_.maps(process.facts.pid);
  if (!mappings) return;
  decoder_.cuda().note_probes(now);
  if (watching_) watching_->files.set_mappings(process.facts.pid, *mappings);
  full_->files.set_mappings(process.facts.pid, *mappings);
}

void BpfSource::drain() {
  engine_->drain([this](std::span<const std::byte> record) { decoder_.on_record(record); });
  if (const std::uint64_t lost = engine_->counters().ring_full; lost != told_lost_) {
    told_lost_ = lost;
    decoder_.cuda().on_loss();
  }
  decoder_.cuda().settle();
}

void BpfSource::poll(const Processes& /*processes*/, BootTime now) {
  drain();
  decoder_.cuda().note_probes(now);
  govern_cuda(now);
  next_ = now + (!is_open_ ? kWatchEvery : is_enabled_ ? kDrainEvery : kIdleEvery);
  // A slice that lasts until the next look is longer than the budget says.
  if (is_open_ && is_enabled_) next_ = std::min(next_, governor_.next());
}

void BpfSource::set_cuda_entries(bool FunctionProbes::*which, bool is_on) {
  for (std::size_t entry = 0; entry < full_->files.entry_count(); ++entry) {
    const FunctionProbes* functions = full_->files.entry_functions(entry);
    if (functions != nullptr && functions->*which) full_->files.set_entry_enabled(entry, is_on);
  }
}

void BpfSource::govern_cuda(BootTime now) {
  if (!is_open_ || !is_enabled_) return;
  const CudaCalls& cuda = decoder_.cuda();
  if (const bool is_on = governor_.decide(now, cuda.launch_hits()); is_on != cuda_on_) {
    cuda_on_ = is_on;
    if (!is_on) drain();
    decoder_.cuda().on_gap();
    set_cuda_entries(&FunctionProbes::is_sampled, is_on);
  }
  if (now - naming_looked_at_ < kNamingQuiet) return;
  naming_looked_at_ = now;
  const bool wants_names = cuda.unnamed_launches() != unnamed_before_ || cuda.naming_hits() == 0;
  unnamed_before_ = cuda.unnamed_launches();
  if (wants_names == naming_on_) return;
  naming_on_ = wants_names;
  set_cuda_entries(&FunctionProbes::until_named, wants_names);
}

// One line a process: the sum of its calls.
void BpfSource::write_cuda(BootTime now) {
  constexpr auto kSeconds = [](Nanos time) { return 1e-9 * static_cast<double>(time.count()); };
  for (const auto& [pid, tally] : decoder_.cuda().tallies()) {
    const outside::BusyBounds busy = tally->busy(now);
    const auto named = tally->named();
    const std::string bounds = busy.is_known
                                   ? fmt::format("busy_lower_s={:.6f} busy_upper_s={:.6f}",
                                                 kSeconds(busy.lower), kSeconds(busy.upper))
                                   : "busy=unknown";
    writer_.metadata(
        fmt::format("kansoku.cuda.{}", pid),
        fmt::format("observed_s={:.6f} launches={} unnamed={} unknown_graphs={} waits={} "
                    "wait_s={:.6f} {} seen={:.4f} ends_ns_of_second={}",
                    kSeconds(busy.observed), named.launches, named.unnamed,
                    tally->unknown_graph_launches(), tally->waits().count,
                    kSeconds(tally->waits().time), bounds, governor_.share_on(), WIRE_SLICE_NS),
        now);
  }
}

void BpfSource::begin_trace(BootTime now) {
  is_open_ = true;
  next_ = now;
  if (!watching_) return;
  decoder_.reopen_calls();
  decoder_.begin_window(now);
  set_attached(*full_, true);
}

void BpfSource::end_trace(BootTime now) {
  is_open_ = false;
  drain();
  write_cuda(now);
  if (!watching_) {
    engine_->detach_all();
    return;
  }
  set_attached(*full_, false);
  drain();
  decoder_.end_window();
}

void BpfSource::set_enabled(bool enabled) {
  if (is_enabled_ == enabled) return;
  is_enabled_ = enabled;
  decoder_.cuda().on_gap();
  if (enabled) {
    attach_lifecycle();
  } else {
    engine_->detach(std::exchange(lifecycle_, 0));
    engine_->detach(std::exchange(end_signals_, 0));
  }
  if (watching_) set_attached(*watching_, enabled);
  if (is_open_) set_attached(*full_, enabled);
}

void BpfSource::add_losses(Losses& out) const {
  for (const auto& [pid, tally] : decoder_.cuda().tallies()) {
    out.add(capture_cuda_unnamed_launches, tally->named().unnamed);
    out.add(capture_cuda_unknown_graphs, tally->unknown_graph_launches());
    out.add(capture_cuda_names_dropped, tally->names().counters().forgotten);
  }
  out.add(capture_cuda_ends_unseen, decoder_.cuda().unseen_ends());
  const Decoder::Counters& decoded = decoder_.counters();
  out.add(capture_unmatched_ends, decoded.unmatched_ends);
  out.add(capture_unread_args, decoded.unread_args);
  out.add(capture_bad_records, decoded.bad_records);
  out.add(capture_unnamed_frames, decoder_.unnamed_frames());
  const bpf::Engine::Counters lost = engine_->counters();
  out.add(capture_open_calls_over_limit, decoded.too_deep + lost.calls_too_deep);
  out.add(capture_unnamed_threads, decoded.unnamed_threads);
  out.add(capture_groups_over_limit, decoded.seats_over_limit);
  out.add(capture_calls_begun_again, lost.begun_again);
  out.add(bpf::ring_dropped_records, lost.ring_full);
  out.add(bpf::process_table_full, lost.process_table_full);
  out.add(capture_failed_attachments, lifecycle_failed_);
  out.add(capture_without_end_signals, signals_failed_);
  for (const Attached* attached : {watching_.get(), full_.get()}) {
    if (attached == nullptr) continue;
    out.add(capture_missing_symbols,
            attached->host.counters().missing + attached->files.counters().missing);
    out.add(capture_failed_attachments,
            attached->host.counters().failed + attached->files.counters().failed);
    out.add(capture_without_scheduler, attached->host.counters().scheduler_failed ? 1 : 0);
  }
}

std::uint64_t BpfSource::lost() const {
  const bpf::Engine::Counters lost = engine_->counters();
  return decoder_.counters().too_deep + lost.ring_full + lost.process_table_full +
         lost.calls_too_deep;
}

void BpfSource::add_problems(std::vector<std::string>& out) const {
  for (const Attached* attached : {watching_.get(), full_.get()}) {
    if (attached == nullptr) continue;
    for (const auto* problems : {&attached->host.problems(), &attached->files.problems()})
      out.insert(out.end(), problems->begin(), problems->end());
  }
}

}  // namespace kansoku::capture
