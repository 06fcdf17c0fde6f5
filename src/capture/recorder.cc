// SPDX-License-Identifier: Apache-2.0
#include "capture/recorder.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <set>
#include <utility>

#include "capture/internal/bpf_source.h"
#include "capture/internal/connections.h"
#include "capture/internal/group_objects.h"
#include "capture/internal/host_counters.h"
#include "capture/internal/kernel/kernel_times.h"
#include "capture/internal/process_table.h"
#include "capture/internal/python_stacks.h"
#include "capture/job.h"
#include "common/check.h"
#include "sys/clock.h"
#include "sys/tcp.h"
#include "trace/writer.h"

namespace kansoku::capture {
namespace {

constexpr Nanos kFlushEvery =
    std::chrono::milliseconds{500};  // the trace promises at least each second
constexpr Nanos kScanFloor = std::chrono::milliseconds{20};
constexpr Nanos kScanCeiling = std::chrono::seconds{5};
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

/// Sink of a watching recorder between windows.
class Nowhere final : public ByteSink {
 public:
  Result<void> append(ByteSpan) override { return {}; }
};

}  // namespace

constexpr std::size_t kEarlySeatsMax = 4096;  // groups of processes that are not in the table yet

struct Recorder::Impl {
  const Clock& clock;
  const sys::Procfs& procfs;
  RecorderOptions options;
  std::unique_ptr<trace::Writer> writer;
  struct Asked {
    std::unique_ptr<Source> source;
    std::uint64_t polls{0};
    Nanos cpu{};
  };
  std::vector<Asked> sources;
  const BpfSource* bpf{nullptr};        // of sources; null: none
  const PythonStacks* stacks{nullptr};  // of sources; null: none
  sys::TcpSampler connections;
  ProcessTable table;
  std::set<std::int32_t> roots, ranks_seen;
  std::set<std::int32_t> early;        // communicated before they were in the table
  std::vector<GroupSeat> early_seats;  // likewise
  std::set<std::int32_t> neighbours;   // not observed, on the same processors; asked for their job
  std::uint64_t neighbours_over_limit{0}, seats_over_limit{0};
  std::string bpf_state;
  BootTime started{}, next_flush{}, next_poll{};
  Nowhere nowhere;
  bool is_open{true};  // false: watching, no window
  std::optional<Error> bpf_error;
  bool is_stopped{false};  // see note_stop()

  Impl(const Clock& clock_in, const sys::Procfs& procfs_in, RecorderOptions options_in)
      : clock(clock_in),
        procfs(procfs_in),
        options(std::move(options_in)),
        table(procfs_in, {.connected = [this](auto pids, auto networks, BootTime now) {
                return connected(connections, pids, networks, now);
              }}) {}

  void log(const std::string& line) const {
    if (options.log) options.log(line);
  }

  Result<void> add_bpf();
  Result<void> add_sources();
  [[nodiscard]] bool follow(std::int32_t pid, BootTime now);
  void follow_all(const std::set<std::int32_t>& pids, BootTime now);
  void forget(std::int32_t pid, const Source* reporter = nullptr);
  void note_work();
  void settle(BootTime now);
  void write_place(Observed& process);
  void write_neighbours();
  void handle_lifecycle(BootTime now);
  void write_exit(const LifecycleEvent& event);
  void poll_tree(BootTime now);
  void scan(Observed& process, BootTime now);
  void scan_due(BootTime now);
  void poll_sources(BootTime now);
  void drain();
  void write_losses(BootTime now);
  void write_costs(BootTime now);
  [[nodiscard]] std::uint64_t lost() const;
  [[nodiscard]] RecordStatus status(BootTime now) const;
  [[nodiscard]] BootTime wake_after(BootTime now, BootTime end) const;
  void tick(BootTime now);
  void write_facts(BootTime now);
  Result<bool> flush_and_report(BootTime now, const OnStatus& on_status);
};

Result<void> Recorder::Impl::add_bpf() {
  auto created = BpfSource::create(*writer, procfs,
                                   {.packs = options.packs,
                                    .watch_packs = options.watch_packs,
                                    .attach_mode = options.attach_mode,
                                    .libraries = options.libraries,
                                    .cuda_budget = options.cuda_budget,
                                    .ring_bytes = options.ring_bytes,
                                    .on_call = options.on_call,
                                    .log = options.log,
                                    .detail = options.detail});
  if (!created) {
    if (options.attach_mode) return std::move(created).error();
    bpf_state = "none: " + created.error().what;
    bpf_error = created.error();
    log(fmt::format(
        "no eBPF ({}): Python stacks only; calls, collectives and scheduler are not recorded",
        created.error().what));
    return {};
  }
  bpf = created->get();
  bpf_state = std::string(bpf::attach_mode_name(bpf->mode()));
  for (const std::string& refusal : bpf->refusals()) {
    log(fmt::format("attach mode refused: {} (falling back to {}; each probe hit costs more)",
                    refusal, bpf_state));
  }
  sources.push_back({std::move(created).value()});
  return {};
}

Result<void> Recorder::Impl::add_sources() {
  bpf_state = "off";
  if (wants_bpf(options)) {
    TRY_VOID(add_bpf());
  }
  if (const std::uint32_t hz = python_rate(options); hz != 0) {
    const auto attach = [this](std::int32_t pid) {
      return python::Process::attach(pid, procfs, {});
    };
    auto made = std::make_unique<PythonStacks>(*writer, clock, hz, attach, options.log);
    stacks = made.get();
    sources.push_back({std::move(made)});
  }
  sources.push_back({std::make_unique<GroupObjectSource>(procfs, clock.now())});
  sources.push_back({std::make_unique<HostCounters>(*writer)});
  if (bpf != nullptr) sources.push_back({std::make_unique<KernelTimes>(*writer, options.log)});
  for (const SourceMaker& make : options.sources)
    sources.push_back({make(*writer)});
  return {};
}

// False: it is gone, or there is no room.
bool Recorder::Impl::follow(std::int32_t pid, BootTime now) {
  auto facts = describe_process(procfs, pid);
  if (!facts || table.add(std::move(facts).value(), now) == nullptr) return false;
  for (const Asked& asked : sources) {
    asked.source->renew(pid);
    asked.source->observe(pid);
  }
  return true;
}

void Recorder::Impl::follow_all(const std::set<std::int32_t>& pids, BootTime now) {
  std::vector<std::int32_t> fresh;
  for (const std::int32_t pid : pids)
    if (follow(pid, now)) fresh.push_back(pid);
  settle(now);
  for (const std::int32_t pid : fresh)
    scan(table.processes().at(pid), now);
}

// The reporter of an end knows it: by now the number may be another process's there.
void Recorder::Impl::forget(std::int32_t pid, const Source* reporter) {
  table.remove(pid);
  std::erase_if(early_seats, [&](const GroupSeat& seat) { return seat.pid == pid; });
  for (const Asked& asked : sources)
    if (asked.source.get() != reporter) asked.source->forget(pid);
}

void Recorder::Impl::note_work() {
  for (const Asked& asked : sources)
    early.merge(asked.source->take_communicating());
  const BootTime now = clock.now();
  for (const std::int32_t pid : early) {
    table.note_work(pid, ProcessTable::Work::kCommunicates);
    if (const auto found = table.processes().find(pid); found != table.processes().end())
      found->second.communicated_at = now;
  }
  std::erase_if(early, [&](std::int32_t pid) { return table.contains(pid); });
  for (const Asked& asked : sources)
    for (const GroupSeat& seat : asked.source->take_seats())
      early_seats.push_back(seat);
  std::erase_if(early_seats, [&](const GroupSeat& seat) { return table.note_seat(seat); });
  if (early_seats.size() > kEarlySeatsMax) {
    seats_over_limit += early_seats.size() - kEarlySeatsMax;
    early_seats.resize(kEarlySeatsMax);
  }
}

// Writes where the processes belong, as far as it is another place than before.
void Recorder::Impl::settle(BootTime now) {
  note_work();
  early.clear();
  for (const std::int32_t pid : table.settle(now))
    write_place(table.processes().at(pid));
}

void Recorder::Impl::write_place(Observed& process) {
  const JobProcess& facts = process.facts;
  const Place& place = process.place;
  const bool has_rank = place.rank != trace::kNoRank;
  const std::string_view role = has_rank ? role_name(place.role) : "";
  if (place.role == Role::kRank) ranks_seen.insert(place.rank);
  const std::string shown =
      has_rank ? fmt::format("{} {} {}", role, place.rank, facts.name) : facts.name;
  const std::string cmdline = facts.cmdline();
  process.track = writer->process_track({.pid = facts.pid,
                                         .parent_pid = facts.parent_pid,
                                         .name = shown,
                                         .cmdline = cmdline,
                                         .job = has_rank ? std::string_view(place.job) : "",
                                         .role = role,
                                         .rank = place.rank,
                                         .local_rank = place.local_rank,
                                         .world_size = place.world_size});
  writer->thread_track(facts.pid, facts.pid, facts.name);
}

// A rank that is not observed is still no stranger: who waits for its processor waits for the job.
void Recorder::Impl::write_neighbours() {
  constexpr std::size_t kNeighboursMax = 4096;
  for (const Asked& asked : sources) {
    for (const std::int32_t pid : asked.source->take_neighbours()) {
      if (table.contains(pid) || neighbours.contains(pid)) continue;
      if (neighbours.size() >= kNeighboursMax) {
        ++neighbours_over_limit;
        continue;
      }
      neighbours.insert(pid);
      const auto facts = describe_process(procfs, pid);
      if (!facts || facts->facts.job.empty()) continue;
      writer->process_track({.pid = pid,
                             .parent_pid = facts->parent_pid,
                             .name = facts->name,
                             .cmdline = "",
                             .job = table.declared_job(*facts),
                             .role = "unobserved"});
    }
  }
}

void Recorder::Impl::handle_lifecycle(BootTime now) {
  std::set<std::int32_t> fresh;  // whose place is not written yet
  for (const Asked& asked : sources) {
    for (const LifecycleEvent& event : asked.source->take_lifecycle()) {
      if (event.kind != LifecycleEvent::Kind::kExit) {
        if (follow(event.pid, now)) fresh.insert(event.pid);
        continue;
      }
      // A job shorter than the flush interval must not leave before its ranks are told.
      note_work();
      if (table.has_news()) settle(now);
      if (table.contains(event.pid)) write_exit(event);
      forget(event.pid, asked.source.get());
      fresh.erase(event.pid);
    }
  }
  if (fresh.empty()) return;
  settle(now);
  for (const std::int32_t pid : fresh)
    scan(table.processes().at(pid), now);
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
  next_poll = now + (bpf != nullptr ? 4 * kPollEvery : kPollEvery);
  std::vector<std::int32_t> gone;
  for (auto& [pid, process] : table.processes()) {
    const auto stat = procfs.stat(pid);
    // The main thread may have ended before the others.
    const bool is_over = stat && stat->state == 'Z' && stat->threads <= 1;
    if (!stat || is_over || stat->start_ticks != process.facts.start_ticks) gone.push_back(pid);
  }
  if (!gone.empty()) settle(now);
  for (const std::int32_t pid : gone)
    forget(pid);
  if (bpf != nullptr) return;
  std::set<std::int32_t> fresh;
  const std::vector<std::int32_t> all_roots(roots.begin(), roots.end());
  for (const std::int32_t pid : ProcessForest(procfs).trees(all_roots))
    if (!table.contains(pid)) fresh.insert(pid);
  if (!fresh.empty()) follow_all(fresh, now);
}

void Recorder::Impl::scan(Observed& process, BootTime now) {
  // Young processes load libraries all the time, old ones hardly ever.
  const Nanos age = now - process.seen_at;
  process.next_scan = now + std::clamp(age / 10, kScanFloor, kScanCeiling);
  for (const Asked& asked : sources)
    asked.source->inspect(process, now);
  process.has_stacks = std::any_of(sources.begin(), sources.end(), [&](const Asked& asked) {
    return asked.source->has_stacks(process.facts.pid);
  });
}

void Recorder::Impl::scan_due(BootTime now) {
  for (auto& [pid, process] : table.processes()) {
    if (now >= process.next_scan) scan(process, now);
  }
}

void Recorder::Impl::poll_sources(BootTime now) {
  for (Asked& asked : sources) {
    if (asked.source->due() > now) continue;
    const Nanos before = sys::thread_cpu_time();
    asked.source->poll(table.processes(), now);
    asked.cpu += sys::thread_cpu_time() - before;
    ++asked.polls;
  }
}

void Recorder::Impl::drain() {
  for (const Asked& asked : sources)
    asked.source->drain();
}

std::uint64_t Recorder::Impl::lost() const {
  std::uint64_t out = table.over_limit();
  for (const Asked& asked : sources)
    out += asked.source->lost();
  return out;
}

void Recorder::Impl::write_losses(BootTime now) {
  Losses losses;
  for (const Asked& asked : sources)
    asked.source->add_losses(losses);
  losses.add(capture_processes_over_limit, table.over_limit());
  losses.add(capture_neighbours_over_limit, neighbours_over_limit);
  losses.add(capture_groups_over_limit, seats_over_limit);
  losses.add(capture_without_bpf, bpf_error ? 1 : 0);
  for (const auto& [stat, total] : losses.all()) {
    if (total != 0) writer->loss(*stat, total, now);
  }
}

void Recorder::Impl::write_costs(BootTime now) {
  for (const Asked& asked : sources) {
    writer->metadata(fmt::format("kansoku.source.{}", asked.source->name()),
                     fmt::format("cpu_s={:.6f} polls={}",
                                 1e-9 * static_cast<double>(asked.cpu.count()), asked.polls),
                     now);
  }
}

RecordStatus Recorder::Impl::status(BootTime now) const {
  RecordStatus out;
  out.elapsed = now - started;
  out.events = writer->events_written();
  out.bytes = writer->bytes_written();
  out.lost = lost();
  out.python_samples = stacks != nullptr ? stacks->samples() : 0;
  out.ranks.assign(ranks_seen.begin(), ranks_seen.end());
  out.process_count = table.processes().size();
  out.probe_count = bpf != nullptr ? bpf->probe_count() : 0;
  out.bpf = bpf_state;
  return out;
}

void Recorder::Impl::tick(BootTime now) {
  poll_sources(now);
  handle_lifecycle(now);
  poll_tree(now);
  scan_due(now);
}

BootTime Recorder::Impl::wake_after(BootTime now, BootTime end) const {
  BootTime wake = std::min(std::max(next_flush, now), end);
  for (const Asked& asked : sources)
    wake = std::min(wake, asked.source->due());
  for (const auto& [pid, process] : table.processes())
    wake = std::min(wake, std::max(process.next_scan, now + kScanFloor));
  return wake;
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
  settle(now);
  write_neighbours();
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
  TRY_VOID(impl->add_sources());
  if (!watches) {
    for (const Impl::Asked& asked : impl->sources)
      asked.source->begin_trace(impl->started);
  }
  impl->write_facts(impl->started);
  TRY_VOID(impl->writer->flush());
  return std::unique_ptr<Recorder>(new Recorder(std::move(impl)));
}

Result<void> Recorder::observe(std::int32_t pid, bool with_children) {
  if (const auto stat = impl_->procfs.stat(pid); !stat) {
    return Error{Code::kNotFound, fmt::format("observe process {}: no such process", pid)};
  }
  if (with_children) {
    observe_trees({&pid, 1});
  } else {
    impl_->roots.insert(pid);
    impl_->follow_all({pid}, impl_->clock.now());
  }
  return {};
}

void Recorder::observe_trees(std::span<const std::int32_t> pids) {
  const BootTime now = impl_->clock.now();
  impl_->roots.insert(pids.begin(), pids.end());
  // To look at the libraries of the first one takes seconds: whatever the others start meanwhile
  // has to be seen already.
  constexpr int kRounds = 8;  // those of a member that was seen already tell of themselves
  std::set<std::int32_t> members;
  std::size_t before = 0;
  for (int round = 0; round < kRounds && (round == 0 || before != members.size()); ++round) {
    before = members.size();
    for (const std::int32_t member : ProcessForest(impl_->procfs).trees(pids)) {
      if (!members.insert(member).second) continue;
      for (const Impl::Asked& asked : impl_->sources)
        asked.source->observe(member);
    }
  }
  // One of several that were named may be below another.
  std::erase_if(members, [&](std::int32_t member) { return impl_->table.contains(member); });
  impl_->follow_all(members, now);
  for (const std::int32_t member : members)
    if (!impl_->table.contains(member)) impl_->forget(member);  // gone already
}

Result<void> Recorder::run(Nanos duration, const std::function<bool()>& should_stop,
                           const OnStatus& on_status) {
  const BootTime end = duration == Nanos{} ? BootTime::max() : impl_->clock.now() + duration;
  for (BootTime now = impl_->clock.now(); now < end && !should_stop(); now = impl_->clock.now()) {
    impl_->tick(now);
    TRY(const bool go_on, impl_->flush_and_report(now, on_status));
    if (!go_on || impl_->table.processes().empty()) break;
    sys::sleep_until(impl_->wake_after(now, end));
  }
  const bool is_window = !impl_->options.watch_packs.empty();  // end_window() is its end
  if (impl_->is_open && !is_window) {
    for (const Impl::Asked& asked : impl_->sources)
      asked.source->end_trace(impl_->clock.now());
    impl_->is_open = false;
  }
  impl_->drain();
  const BootTime now = impl_->clock.now();
  impl_->handle_lifecycle(now);
  impl_->next_flush = {};
  if (!is_window) impl_->write_costs(now);
  TRY(const bool ignored, impl_->flush_and_report(now, on_status));
  static_cast<void>(ignored);
  return {};
}

void Recorder::add_metadata(std::string_view key, const std::string& value) {
  impl_->writer->metadata(key, value, impl_->clock.now());
}

void Recorder::note_stop(int signal) {
  if (std::exchange(impl_->is_stopped, true)) return;
  impl_->writer->metadata("kansoku.stop_signal", std::to_string(signal), impl_->clock.now());
}

Result<void> Recorder::begin_window(ByteSink& sink) {
  Impl& impl = *impl_;
  CHECK(!impl.options.watch_packs.empty() && !impl.is_open);
  impl.drain();  // events from before belong to no window
  const BootTime now = impl.clock.now();
  TRY_VOID(impl.writer->restart(sink, now));
  impl.is_open = true;
  impl.started = now;
  impl.write_facts(now);
  for (const Impl::Asked& asked : impl.sources)
    asked.source->begin_trace(now);
  for (auto& [pid, process] : impl.table.processes())
    impl.scan(process, now);
  return impl.writer->flush();
}

Result<void> Recorder::end_window() {
  Impl& impl = *impl_;
  CHECK(impl.is_open && !impl.options.watch_packs.empty());
  for (const Impl::Asked& asked : impl.sources)
    asked.source->end_trace(impl.clock.now());
  impl.drain();
  const BootTime now = impl.clock.now();
  impl.write_neighbours();
  impl.write_losses(now);
  impl.write_costs(now);
  auto flushed = impl.writer->flush();
  impl.is_open = false;
  TRY_VOID(impl.writer->restart(impl.nowhere, now));
  return flushed;
}

std::map<std::int32_t, Place> Recorder::ranks() const {
  std::map<std::int32_t, Place> out;
  for (const auto& [pid, process] : impl_->table.processes()) {
    if (process.place.role == Role::kRank) out.emplace(pid, process.place);
  }
  return out;
}

void Recorder::set_probes_enabled(bool enabled) {
  for (const Impl::Asked& asked : impl_->sources)
    asked.source->set_enabled(enabled);
}

Recorder::CudaView Recorder::cuda() const {
  if (impl_->bpf == nullptr) return {};
  const CudaCalls& calls = impl_->bpf->cuda();
  return {.tallies = &calls.tallies(),
          .share_seen = impl_->bpf->cuda_governor().share_on(),
          .hit_seconds = impl_->bpf->cuda_governor().hit_seconds(),
          .hits = calls.launch_hits(),
          .naming_hits = calls.naming_hits(),
          .ends_of_second = Nanos{WIRE_SLICE_NS},
          .has_ends = impl_->bpf->mode() == bpf::AttachMode::kSession,
          .lost = impl_->bpf->lost()};
}

const std::optional<Error>& Recorder::bpf_error() const {
  return impl_->bpf_error;
}

const std::vector<Attachment>& Recorder::attachments() const {
  static const std::vector<Attachment> kNone;
  return impl_->bpf != nullptr ? impl_->bpf->attachments() : kNone;
}
std::vector<std::string> Recorder::problems() const {
  std::vector<std::string> out = impl_->table.problems();
  for (const Impl::Asked& asked : impl_->sources)
    asked.source->add_problems(out);
  return out;
}

}  // namespace kansoku::capture
