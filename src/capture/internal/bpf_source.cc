// SPDX-License-Identifier: Apache-2.0
#include "capture/internal/bpf_source.h"

#include <utility>

namespace kansoku::capture {
namespace {

// Each wake takes a processor from a rank; the ring holds seconds of every operator.
constexpr Nanos kDrainEvery = std::chrono::milliseconds{40};
constexpr Nanos kWatchEvery = std::chrono::milliseconds{200};  // light probes fill no ring
constexpr Nanos kIdleEvery = std::chrono::milliseconds{50};    // while the probes are switched off

}  // namespace

BpfSource::BpfSource(trace::Writer& writer, const sys::Procfs& procfs, Options options,
                     std::unique_ptr<bpf::Engine> engine)
    : procfs_(procfs),
      options_(std::move(options)),
      engine_(std::move(engine)),
      decoder_(writer, probes_, procfs) {
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

void BpfSource::inspect(const Observed& process, BootTime /*now*/) {
  if (!is_enabled_ || (!is_open_ && !watching_)) return;
  const auto mappings = procfs_.maps(process.facts.pid);
  if (!mappings) return;
  if (watching_) watching_->files.set_mappings(process.facts.pid, *mappings);
  full_->files.set_mappings(process.facts.pid, *mappings);
}

void BpfSource::drain() {
  engine_->drain([this](std::span<const std::byte> record) { decoder_.on_record(record); });
}

void BpfSource::poll(const Processes& /*processes*/, BootTime now) {
  drain();
  next_ = now + (!is_open_ ? kWatchEvery : is_enabled_ ? kDrainEvery : kIdleEvery);
}

void BpfSource::begin_trace(BootTime now) {
  is_open_ = true;
  next_ = now;
  if (!watching_) return;
  decoder_.reopen_calls();
  decoder_.begin_window(now);
  set_attached(*full_, true);
}

void BpfSource::end_trace(BootTime /*now*/) {
  is_open_ = false;
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
  const Decoder::Counters& decoded = decoder_.counters();
  out.add(capture_unmatched_ends, decoded.unmatched_ends);
  out.add(capture_unread_args, decoded.unread_args);
  out.add(capture_bad_records, decoded.bad_records);
  out.add(capture_unnamed_frames, decoder_.unnamed_frames());
  const bpf::Engine::Counters lost = engine_->counters();
  out.add(capture_open_calls_over_limit, decoded.too_deep + lost.calls_too_deep);
  out.add(capture_unnamed_threads, decoded.unnamed_threads);
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
