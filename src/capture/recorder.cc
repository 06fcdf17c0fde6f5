// SPDX-License-Identifier: Apache-2.0
#include "capture/recorder.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <set>
#include <utility>

#include "capture/attacher.h"
#include "capture/decoder.h"
#include "capture/internal/host_counters.h"
#include "capture/internal/host_probes.h"
#include "capture/internal/roster.h"
#include "capture/job.h"
#include "capture/python/sampler.h"
#include "common/check.h"
#include "sys/clock.h"
#include "trace/writer.h"

namespace kansoku::capture {
namespace {

// Each wake takes a processor from a rank; the ring holds seconds of every operator.
constexpr Nanos kDrainEvery = std::chrono::milliseconds{40};
constexpr Nanos kFlushEvery =
    std::chrono::milliseconds{500};                     // the trace promises at least each second
constexpr Nanos kCountEvery = std::chrono::seconds{1};  // quotas and connections
constexpr Nanos kScanFloor = std::chrono::milliseconds{20};
constexpr Nanos kScanCeiling = std::chrono::seconds{5};
constexpr Nanos kWatchEvery = std::chrono::milliseconds{200};  // light probes fill no ring
constexpr Nanos kIdleEvery = std::chrono::milliseconds{50};    // while the probes are switched off
constexpr Nanos kPollEvery =
    std::chrono::milliseconds{250};  // of the process tree, without lifecycle tracepoints

std::uint32_t python_rate(const RecorderOptions& options) {
  std::uint32_t hz = 0;
  for (const Pack& pack : options.packs)
    hz = std::max(hz, pack.python_hz);
  return options.python_hz != 0 ? options.python_hz : hz;
}

bool wants_bpf(const RecorderOptions& options) {
  return options.use_bpf &&
         (!options.watch_packs.empty() ||
          std::any_of(options.packs.begin(), options.packs.end(), [](const Pack& pack) {
            return !pack.functions.empty() || !pack.usdt.empty() || !pack.syscalls.empty() ||
                   !pack.tracepoints.empty() || pack.scheduler || pack.cpu_hz != 0;
          }));
}

/// Where a watching recorder writes between windows.
class Nowhere final : public ByteSink {
 public:
  Result<void> append(ByteSpan) override { return {}; }
};

}  // namespace

struct Recorder::Impl {
  const Clock& clock;
  const sys::Procfs& procfs;
  RecorderOptions options;
  std::unique_ptr<trace::Writer> writer;
  ProbeTable probes;
  std::unique_ptr<bpf::Engine> engine;  // null: Python stacks only
  /// The probes of some packs.
  struct Attached {
    HostProbes host;
    Attacher files;
  };
  std::unique_ptr<Attached> watching;  // those of watch_packs; null: not watching
  std::unique_ptr<Attached> full;      // those of packs
  std::unique_ptr<Decoder> decoder;
  std::unique_ptr<Roster> roster;
  std::unique_ptr<HostCounters> counters;
  std::set<std::int32_t> roots;
  std::string bpf_state;
  bpf::Engine::Handle lifecycle{0};
  std::uint64_t lifecycle_failed{0};
  std::vector<Attachment> no_attachments;
  BootTime started{}, next_sample{}, next_flush{}, next_poll{}, next_count{};
  Nanos sample_every{};
  Nowhere nowhere;
  bool enabled{true};
  bool is_open{true};  // false: watching, no window
  bool without_bpf{false};
  std::uint64_t python_samples{0}, python_torn{0}, python_truncated{0}, python_refused{0};
  std::vector<python::PyStack> stacks;        // scratch
  std::vector<trace::FrameHandle> frame_ids;  // scratch

  Impl(const Clock& clock_in, const sys::Procfs& procfs_in, RecorderOptions options_in)
      : clock(clock_in), procfs(procfs_in), options(std::move(options_in)) {}

  void log(const std::string& line) const {
    if (options.log) options.log(line);
  }

  Result<void> start_bpf();
  [[nodiscard]] std::unique_ptr<Attached> make_attached(const std::vector<Pack>& packs,
                                                        const AttacherOptions& attaching);
  void attach_lifecycle();
  void set_attached(Attached& attached, bool is_on) const;
  void set_mappings(std::int32_t pid, const std::vector<sys::Mapping>& mappings);
  void follow(std::int32_t pid, BootTime now);
  void handle_lifecycle(BootTime now);
  void write_exit(const LifecycleEvent& event);
  void poll_tree(BootTime now);
  void scan(Observed& process, BootTime now);
  void scan_due(BootTime now);
  void sample_all(BootTime now);
  void sample_one(Observed& process, BootTime now);
  void write_stack(Observed& process, const python::PyStack& stack, BootTime now);
  void drain();
  void write_losses(BootTime now);
  [[nodiscard]] std::uint64_t lost() const;
  [[nodiscard]] RecordStatus status(BootTime now) const;
  void tick(BootTime now);
  void write_facts(BootTime now);
  Result<bool> flush_and_report(BootTime now, const OnStatus& on_status);
};

Result<void> Recorder::Impl::start_bpf() {
  auto created = bpf::Engine::create(
      {.ring_bytes = options.ring_bytes, .forced = options.attach_mode, .has_totals = false});
  if (!created) {
    if (options.attach_mode) return std::move(created).error();
    bpf_state = "none: " + created.error().what;
    without_bpf = true;
    log(fmt::format(
        "no eBPF ({}): Python stacks only; calls, collectives and scheduler are not recorded",
        created.error().what));
    return {};
  }
  engine = std::move(created).value();
  bpf_state = std::string(bpf::attach_mode_name(engine->mode()));
  for (const std::string& refusal : engine->refusals()) {
    log(fmt::format("attach mode refused: {} (falling back to {}; each probe hit costs more)",
                    refusal, bpf_state));
  }
  attach_lifecycle();
  if (!options.watch_packs.empty()) watching = make_attached(options.watch_packs, {});
  const bool is_window = watching != nullptr;
  full = make_attached(options.packs, {.is_window = is_window,
                                       .starts_attached = !is_window,
                                       .after = is_window ? &watching->files : nullptr});
  return {};
}

std::unique_ptr<Recorder::Impl::Attached> Recorder::Impl::make_attached(
    const std::vector<Pack>& packs, const AttacherOptions& attaching) {
  auto made = std::unique_ptr<Attached>(
      new Attached{HostProbes(*engine, packs, probes, attaching.is_window),
                   Attacher(*engine, procfs, packs, probes, options.log, attaching)});
  if (attaching.starts_attached) made->host.set_enabled(true, options.log);
  return made;
}

void Recorder::Impl::attach_lifecycle() {
  const auto attached = engine->attach_lifecycle();
  if (attached) {
    lifecycle = *attached;
    return;
  }
  ++lifecycle_failed;
  log(attached.error().what + ": forks are followed by polling");
}

void Recorder::Impl::set_attached(Attached& attached, bool is_on) const {
  attached.host.set_enabled(is_on, options.log);
  attached.files.set_enabled(is_on);
}

void Recorder::Impl::set_mappings(std::int32_t pid, const std::vector<sys::Mapping>& mappings) {
  if (watching) watching->files.set_mappings(pid, mappings);
  full->files.set_mappings(pid, mappings);
}

void Recorder::Impl::follow(std::int32_t pid, BootTime now) {
  if (!roster->add(pid, now)) return;
  if (engine) {
    if (const auto observed = engine->observe_process(pid); !observed) log(observed.error().what);
  }
  scan(roster->processes().at(pid), now);
}

void Recorder::Impl::handle_lifecycle(BootTime now) {
  for (const LifecycleEvent& event : decoder->take_lifecycle()) {
    if (event.kind == LifecycleEvent::Kind::kExit) {
      // A job shorter than the flush interval must not leave before its ranks are told.
      roster->guess_ranks(decoder->collective_pids());
      if (roster->processes().contains(event.pid)) write_exit(event);
      roster->remove(event.pid);
    } else {
      follow(event.pid, now);
    }
  }
}

void Recorder::Impl::write_exit(const LifecycleEvent& event) {
  const std::array args{trace::Arg::uint(writer->name("status"), (event.exit_code >> 8) & 0xff),
                        trace::Arg::uint(writer->name("signal"), event.exit_code & 0x7f)};
  writer->instant(writer->thread_track(event.pid, event.pid, ""), event.time,
                  writer->name("process exit"), writer->category("process"), args);
}

// The fall-back without lifecycle tracepoints, and the way to notice that everything is gone.
void Recorder::Impl::poll_tree(BootTime now) {
  if (now < next_poll) return;
  next_poll = now + (engine ? 4 * kPollEvery : kPollEvery);
  std::vector<std::int32_t> gone;
  for (auto& [pid, process] : roster->processes()) {
    const auto stat = procfs.stat(pid);
    // The main thread may have ended before the others.
    const bool is_over = stat && stat->state == 'Z' && stat->threads <= 1;
    if (!stat || is_over || stat->start_ticks != process.facts.start_ticks) gone.push_back(pid);
  }
  if (!gone.empty()) roster->guess_ranks(decoder->collective_pids());
  for (const std::int32_t pid : gone) {
    roster->remove(pid);
    if (engine) engine->forget_process(pid);
  }
  if (engine) return;
  for (const std::int32_t root : roots) {
    for (const std::int32_t pid : process_tree(procfs, root)) {
      const auto known = roster->processes().find(pid);
      if (known == roster->processes().end() && procfs.stat(pid)) follow(pid, now);
    }
  }
}

void Recorder::Impl::scan(Observed& process, BootTime now) {
  // Young processes load libraries all the time, old ones hardly ever.
  const Nanos age = now - process.seen_at;
  process.next_scan = now + std::clamp(age / 10, kScanFloor, kScanCeiling);
  if (enabled && full) {
    if (const auto mappings = procfs.maps(process.facts.pid))
      set_mappings(process.facts.pid, *mappings);
  }
  if (!is_open || sample_every == Nanos{} || process.python || process.python_refused) return;
  auto attached = python::Process::attach(process.facts.pid, procfs, {});
  if (attached) {
    process.python = std::move(attached).value();
  } else if (attached.error().code == Code::kUnsupported ||
             attached.error().code == Code::kPermission) {
    process.python_refused = true;
    ++python_refused;
    log(attached.error().what);
  }
}

void Recorder::Impl::scan_due(BootTime now) {
  for (auto& [pid, process] : roster->processes()) {
    if (now >= process.next_scan) scan(process, now);
  }
}

void Recorder::Impl::write_stack(Observed& process, const python::PyStack& stack, BootTime now) {
  frame_ids.clear();
  for (const python::PyFrame& frame : stack.frames) {
    const auto [known, is_new] = process.frames.try_emplace(frame.cache_key);
    if (is_new) known->second = writer->frame(frame.function, frame.file, frame.line);
    frame_ids.push_back(known->second);
  }
  writer->sample(process.facts.pid, stack.tid == 0 ? process.facts.pid : stack.tid, now,
                 writer->stack(frame_ids), stack.state, stack.holds_gil);
  ++python_samples;
}

void Recorder::Impl::sample_one(Observed& process, BootTime now) {
  const auto before = process.python->counters();
  const auto sampled = process.python->sample(stacks);
  const auto& after = process.python->counters();
  python_torn += after.torn - before.torn;
  python_truncated += after.truncated - before.truncated;
  if (!sampled) {
    process.python.reset();  // gone, or exec: the next scan looks again
    return;
  }
  for (const python::PyStack& stack : stacks)
    write_stack(process, stack, now);
}

void Recorder::Impl::sample_all(BootTime now) {
  if (sample_every == Nanos{} || now < next_sample) return;
  // Skipped ticks are not made up for: a late sampler must not hammer the job.
  next_sample = std::max(next_sample + sample_every, now + sample_every / 2);
  for (auto& [pid, process] : roster->processes()) {
    if (process.python) sample_one(process, clock.now());
  }
}

void Recorder::Impl::drain() {
  if (!engine) return;
  engine->drain([this](std::span<const std::byte> record) { decoder->on_record(record); });
}

std::uint64_t Recorder::Impl::lost() const {
  std::uint64_t total = roster->over_limit() + decoder->counters().too_deep;
  if (!engine) return total;
  const bpf::Engine::Counters losses = engine->counters();
  return total + losses.ring_full + losses.process_table_full + losses.calls_too_deep;
}

void Recorder::Impl::write_losses(BootTime now) {
  const auto write = [&](const StatDef& stat, std::uint64_t total) {
    if (total != 0) writer->loss(stat, total, now);
  };
  const Decoder::Counters& decoded = decoder->counters();
  write(capture_unmatched_ends, decoded.unmatched_ends);
  write(capture_unread_args, decoded.unread_args);
  write(capture_bad_records, decoded.bad_records);
  const bpf::Engine::Counters losses = engine ? engine->counters() : bpf::Engine::Counters{};
  write(capture_open_calls_over_limit, decoded.too_deep + losses.calls_too_deep);
  write(capture_unnamed_frames, decoder->unnamed_frames());
  write(capture_processes_over_limit, roster->over_limit());
  write(capture_without_bpf, without_bpf ? 1 : 0);
  write(python::python_torn_reads, python_torn);
  write(python::python_stacks_truncated, python_truncated);
  write(python::python_unreadable_processes, python_refused);
  if (!engine) return;
  write(bpf::ring_dropped_records, losses.ring_full);
  write(bpf::process_table_full, losses.process_table_full);
  std::uint64_t missing = 0, failed = lifecycle_failed;
  bool scheduler_failed = false;
  for (const Attached* attached : {watching.get(), full.get()}) {
    if (attached == nullptr) continue;
    missing += attached->host.counters().missing + attached->files.counters().missing;
    failed += attached->host.counters().failed + attached->files.counters().failed;
    scheduler_failed = scheduler_failed || attached->host.counters().scheduler_failed;
  }
  write(capture_missing_symbols, missing);
  write(capture_failed_attachments, failed);
  write(capture_without_scheduler, scheduler_failed ? 1 : 0);
}

RecordStatus Recorder::Impl::status(BootTime now) const {
  RecordStatus out;
  out.elapsed = now - started;
  out.events = writer->events_written();
  out.bytes = writer->bytes_written();
  out.lost = lost();
  out.python_samples = python_samples;
  out.ranks.assign(roster->ranks_seen().begin(), roster->ranks_seen().end());
  out.process_count = roster->processes().size();
  out.probe_count = probes.size();
  out.bpf = bpf_state;
  return out;
}

void Recorder::Impl::tick(BootTime now) {
  drain();
  handle_lifecycle(now);
  poll_tree(now);
  scan_due(now);
  if (!enabled || !is_open) return;
  sample_all(now);
  if (now < next_count) return;
  next_count = now + kCountEvery;
  counters->sample(roster->processes(), now);
}

void Recorder::Impl::write_facts(BootTime now) {
  const auto metadata = [&](std::string_view key, const std::string& value) {
    writer->metadata(key, value, now);
  };
  std::string names;
  for (const auto* packs : {&options.watch_packs, &options.packs}) {
    for (const Pack& pack : *packs)
      names += (names.empty() ? "" : ",") + pack.name;
  }
  metadata("kansoku.probes", names);
  metadata("kansoku.attach", bpf_state);
  metadata("kansoku.python_hz", std::to_string(python_rate(options)));
  // The wall clock's reading at `now`, which may lie a while back: whoever merges needs the pair.
  const std::int64_t since_ns = (clock.now() - now).count();
  metadata("kansoku.recorded_at_unix_ns", std::to_string(sys::wall_time_ns() - since_ns));
  for (const auto& [key, value] : options.metadata)
    metadata(key, value);
}

Result<bool> Recorder::Impl::flush_and_report(BootTime now, const OnStatus& on_status) {
  if (now < next_flush) return true;
  next_flush = now + kFlushEvery;
  roster->guess_ranks(decoder->collective_pids());
  write_losses(now);
  TRY_VOID(writer->flush());
  return !on_status || on_status(status(now));
}

Recorder::Recorder(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Recorder::~Recorder() = default;

Result<std::unique_ptr<Recorder>> Recorder::create(ByteSink& sink, const Clock& clock,
                                                   const sys::Procfs& procfs,
                                                   RecorderOptions options) {
  auto impl = std::make_unique<Impl>(clock, procfs, std::move(options));
  impl->started = clock.now();
  const bool watches = !impl->options.watch_packs.empty();
  impl->is_open = !watches;
  TRY(impl->writer, trace::Writer::create(watches ? impl->nowhere : sink, impl->started,
                                          trace::WriterOptions{.can_restart = watches}));
  impl->decoder = std::make_unique<Decoder>(*impl->writer, impl->probes, procfs);
  impl->decoder->set_on_call(impl->options.on_call);
  impl->roster = std::make_unique<Roster>(*impl->writer, procfs);
  impl->counters = std::make_unique<HostCounters>(*impl->writer);
  if (const std::uint32_t hz = python_rate(impl->options); hz != 0)
    impl->sample_every = Nanos{1'000'000'000 / hz};
  if (wants_bpf(impl->options)) {
    TRY_VOID(impl->start_bpf());
  } else {
    impl->bpf_state = "off";
  }
  impl->write_facts(impl->started);
  TRY_VOID(impl->writer->flush());
  return std::unique_ptr<Recorder>(new Recorder(std::move(impl)));
}

Result<void> Recorder::observe(std::int32_t pid, bool with_children) {
  if (const auto stat = impl_->procfs.stat(pid); !stat) {
    return Error{Code::kNotFound, fmt::format("observe process {}: no such process", pid)};
  }
  const BootTime now = impl_->clock.now();
  impl_->roots.insert(pid);
  if (!with_children) {
    impl_->follow(pid, now);
    return {};
  }
  // To look at the libraries of the first one takes seconds: whatever the others start meanwhile
  // has to be seen already.
  constexpr int kRounds = 8;  // those of a member that was seen already tell of themselves
  std::set<std::int32_t> members;
  std::size_t before = 0;
  for (int round = 0; round < kRounds && (round == 0 || before != members.size()); ++round) {
    before = members.size();
    for (const std::int32_t member : process_tree(impl_->procfs, pid)) {
      if (!members.insert(member).second || !impl_->engine) continue;
      if (const auto observed = impl_->engine->observe_process(member); !observed)
        impl_->log(observed.error().what);
    }
  }
  for (const std::int32_t member : members) {
    impl_->follow(member, now);
    if (impl_->engine && !impl_->roster->processes().contains(member))
      impl_->engine->forget_process(member);  // gone already
  }
  return {};
}

Result<void> Recorder::run(Nanos duration, const std::function<bool()>& should_stop,
                           const OnStatus& on_status) {
  const BootTime end = duration == Nanos{} ? BootTime::max() : impl_->clock.now() + duration;
  impl_->next_sample = impl_->clock.now();
  for (BootTime now = impl_->clock.now(); now < end && !should_stop(); now = impl_->clock.now()) {
    impl_->tick(now);
    TRY(const bool go_on, impl_->flush_and_report(now, on_status));
    if (!go_on || impl_->roster->processes().empty()) break;
    const Nanos every = !impl_->is_open ? kWatchEvery : impl_->enabled ? kDrainEvery : kIdleEvery;
    BootTime wake = std::min({now + every, std::max(impl_->next_flush, now), end});
    if (impl_->enabled && impl_->is_open && impl_->sample_every != Nanos{})
      wake = std::min(wake, impl_->next_sample);
    for (const auto& [pid, process] : impl_->roster->processes())
      wake = std::min(wake, std::max(process.next_scan, now + kScanFloor));
    sys::sleep_until(wake);
  }
  if (impl_->engine) impl_->engine->detach_all();
  impl_->tick(impl_->clock.now());
  impl_->next_flush = {};
  TRY(const bool ignored, impl_->flush_and_report(impl_->clock.now(), on_status));
  static_cast<void>(ignored);
  return {};
}

Result<void> Recorder::begin_window(ByteSink& sink) {
  Impl& impl = *impl_;
  CHECK(!impl.options.watch_packs.empty() && !impl.is_open);
  impl.drain();  // what happened before belongs to no window
  const BootTime now = impl.clock.now();
  TRY_VOID(impl.writer->restart(sink, now));
  impl.is_open = true;
  impl.started = impl.next_sample = impl.next_count = now;
  impl.python_samples = impl.python_torn = impl.python_truncated = 0;
  impl.write_facts(now);
  impl.decoder->reopen_calls();
  impl.decoder->begin_window(now);
  if (impl.full) impl.set_attached(*impl.full, true);
  for (auto& [pid, process] : impl.roster->processes()) {
    process.frames.clear();
    impl.scan(process, now);
  }
  return impl.writer->flush();
}

Result<void> Recorder::end_window() {
  Impl& impl = *impl_;
  CHECK(impl.is_open && !impl.options.watch_packs.empty());
  if (impl.full) impl.set_attached(*impl.full, false);
  impl.drain();
  impl.decoder->end_window();
  const BootTime now = impl.clock.now();
  impl.write_losses(now);
  auto flushed = impl.writer->flush();
  impl.is_open = false;
  for (auto& [pid, process] : impl.roster->processes())
    process.python.reset();
  TRY_VOID(impl.writer->restart(impl.nowhere, now));
  return flushed;
}

std::map<std::int32_t, std::int32_t> Recorder::ranks_by_pid() const {
  std::map<std::int32_t, std::int32_t> out;
  for (const auto& [pid, process] : impl_->roster->processes()) {
    if (process.role == "rank") out.emplace(pid, process.facts.facts.rank);
  }
  return out;
}

void Recorder::set_probes_enabled(bool enabled) {
  if (impl_->enabled == enabled) return;
  impl_->enabled = enabled;
  if (!impl_->engine) return;
  if (enabled) {
    impl_->attach_lifecycle();
  } else {
    impl_->engine->detach(std::exchange(impl_->lifecycle, 0));
  }
  if (impl_->watching) impl_->set_attached(*impl_->watching, enabled);
  if (impl_->is_open) impl_->set_attached(*impl_->full, enabled);
}

const std::vector<Attachment>& Recorder::attachments() const {
  return impl_->full ? impl_->full->files.attachments() : impl_->no_attachments;
}
std::vector<std::string> Recorder::problems() const {
  std::vector<std::string> out;
  for (const Impl::Attached* attached : {impl_->watching.get(), impl_->full.get()}) {
    if (attached == nullptr) continue;
    for (const auto* problems : {&attached->host.problems(), &attached->files.problems()})
      out.insert(out.end(), problems->begin(), problems->end());
  }
  return out;
}

}  // namespace kansoku::capture
