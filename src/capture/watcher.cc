// SPDX-License-Identifier: Apache-2.0
#include "capture/watcher.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>
#include <span>

#include "capture/attacher.h"
#include "capture/internal/discovery.h"
#include "capture/internal/process_table.h"
#include "capture/lifecycle.h"

namespace kansoku::capture {
namespace {

constexpr Nanos kScanAllEvery = std::chrono::seconds{30};  // finds processes that events missed
constexpr Nanos kRescanFloor = std::chrono::milliseconds{200};
constexpr Nanos kRescanCeiling = std::chrono::seconds{60};
constexpr std::uint32_t kRingBytes = 256 * 1024;                    // processes that come and go
constexpr std::uint32_t kDiskSleep = 2, kStopped = 4, kTraced = 8;  // of the kernel's task states

constexpr std::string_view kAiLibraries =
    "libcuda.so*|libcudart*.so*|libcudart*.so|libnccl*.so*|libtorch*.so*|libgloo*.so*|libpython*."
    "so*|"
    "libggml*.so*|libllama*.so*|libOpenCL*.so*|libjax*.so*|libtensorflow*.so*|librccl*.so*|"
    "libamdhip64*.so*";

/// The last reading of one total of one process.
struct Reading {
  std::uint64_t count{0}, sum_ns{0}, bytes{0}, entries{0}, dropped{0};
  double open_s{0};
  std::uint64_t lost{0};        // calls whose end was never seen: they are not open
  std::uint64_t least_open{0};  // since the last guess of `lost`
  std::uint32_t guesses{0};
  std::array<std::uint32_t, WIRE_BUCKETS> buckets{};
  // Calls that were missed while the probe was off: the metric is unknown until the window after
  // the first call that is seen again, or for so many windows.
  std::uint32_t blind_windows{0};
  std::uint64_t blind_entries{0};
};
constexpr std::uint32_t kBlindWindows = 30;

struct ThreadReading {
  std::uint64_t runtime_ns{0}, run_delay_ns{0}, voluntary{0}, involuntary{0}, minor{0}, major{0},
      read{0}, written{0}, system_ns{0};
  std::uint64_t window{0};  // in which it was last seen
};

/// Growth of a counter; one that went back (another thread of that number) starts anew.
std::uint64_t growth(std::uint64_t now, std::uint64_t before) {
  return now >= before ? now - before : now;
}

/// Metered state of a process of the table.
struct Target {
  std::uint64_t pages{0};
  std::vector<bool> known, blind;             // by metric
  std::map<std::uint32_t, Reading> readings;  // by probe * 4 + kind
  std::map<std::uint32_t, ThreadReading> threads;
  bool has_baseline{false};  // threads were read once
  bool is_stopped{true};     // as far as is known
};

/// How long the youngest open call of a total has been open; 0 if none is. Ends can be lost (a
/// thread that was ended): a call that stays open for 30 windows in which others ended counts as
/// lost.
double open_seconds(const bpf::ProbeTotal& seen, Reading& before, std::uint64_t ended,
                    std::uint64_t now_ns) {
  constexpr std::uint32_t kWindowsOfGuess = 30;
  const wire_total& total = *seen.total;
  const std::uint64_t over = total.count + total.dropped;
  if (seen.kind != WIRE_TOTAL_CALL || total.entries <= over) return 0;
  const std::uint64_t open = total.entries - over;
  if (ended > 0) {
    before.least_open = before.guesses == 0 ? open : std::min(before.least_open, open);
    if (++before.guesses == kWindowsOfGuess) {
      before.lost = before.least_open;
      before.guesses = 0;
    }
  }
  if (open <= before.lost || now_ns <= total.last_entry_ns) return 0;
  return static_cast<double>(now_ns - total.last_entry_ns) * 1e-9;
}

/// True if a total of this window leaves calls out, because its probe was off.
bool is_blind(const bpf::ProbeTotal& seen, Reading& reading, bool is_on) {
  const wire_total& total = *seen.total;
  if (!is_on) {
    reading.blind_windows = kBlindWindows;
    reading.blind_entries = total.entries;
    // It is not known that those ended.
    reading.lost = total.entries - std::min(total.entries, total.count + total.dropped);
    reading.guesses = 0;
    return true;
  }
  if (reading.blind_windows == 0) return false;
  --reading.blind_windows;
  if (total.entries != reading.blind_entries) reading.blind_windows = 0;  // from the next one on
  return true;
}

struct Accumulated {
  MetricWindow window;
  std::array<std::uint32_t, WIRE_BUCKETS> buckets{};
};

}  // namespace

bool is_ai_library(std::string_view file_name) {
  return file_name.substr(0, 3) == "lib" && any_glob_match(kAiLibraries, file_name);
}

struct Watcher::Impl {
  const Clock& clock;
  const sys::Procfs& procfs;
  WatcherOptions options;
  std::unique_ptr<bpf::Engine> engine;  // null: no eBPF
  ProbeTable probes;
  std::unique_ptr<Attacher> attacher;
  MetricTable metrics;
  std::string bpf_state;
  Discovery discovery;
  ProcessTable table;
  std::map<std::int32_t, Target> targets;  // those of the table
  std::set<std::int32_t> unwanted;         // AI processes that the filter refused
  std::set<std::int32_t> renewed;          // targets that called exec since totals were read
  std::vector<std::string> own_problems;
  BootTime next_scan_all{}, window_begin{};
  std::uint64_t window_number{0}, hits_before{0};
  struct EntryHits {
    std::uint64_t all{0};
    std::map<std::int32_t, std::uint64_t> of_process;
  };
  std::vector<EntryHits> entry_hits;

  Impl(const Clock& clock_in, const sys::Procfs& procfs_in, WatcherOptions options_in)
      : clock(clock_in),
        procfs(procfs_in),
        options(std::move(options_in)),
        metrics(options.packs),
        discovery(procfs_in, kCandidatesMax),
        table(procfs_in, {.processes_max = kTargetsMax, .is_shared = true}) {}

  void log(const std::string& line) const {
    if (options.log) options.log(line);
  }
  void start();
  void handle_events(BootTime now);
  void scan_all(BootTime now);
  void rescan(BootTime now);
  void add_target(std::int32_t pid, const std::vector<sys::Mapping>& mappings, BootTime now);
  void remove_target(std::int32_t pid);
  using Totals = std::map<std::int32_t, std::vector<Accumulated>>;  // by process and metric
  void read_totals(Totals& out, BootTime now);
  [[nodiscard]] std::optional<std::size_t> metric_of(const bpf::ProbeTotal& seen) const;
  void read_threads(std::map<std::int32_t, ProcessWindow>& out);
  void settle(BootTime now);
  void add_metrics(Target& target, std::vector<Accumulated>& sums, ProcessWindow& window) const;
  [[nodiscard]] std::vector<ProcessWindow> with_their_workers(
      std::map<std::int32_t, ProcessWindow> windows) const;
};

void Watcher::Impl::start() {
  if (metrics.left_out() > 0) {
    own_problems.push_back(
        fmt::format("packs name more than {} metrics: the rest is not counted", metrics.size()));
    log(own_problems.back());
  }
  auto created = bpf::Engine::create(
      {.ring_bytes = kRingBytes, .forced = options.attach_mode, .all_execs = true});
  if (!created) {
    bpf_state = "none: " + created.error().what;
    own_problems.push_back(bpf_state);
    log(fmt::format("no eBPF: processes are watched through /proc only, without calls ({}); {}",
                    created.error().what, created.error().hint));
    return;
  }
  engine = std::move(created).value();
  bpf_state = std::string(bpf::attach_mode_name(engine->mode()));
  for (const std::string& refusal : engine->refusals())
    log(fmt::format("attach mode refused: {} (falling back to {}; each probe hit costs more)",
                    refusal, bpf_state));
  for (const auto& attached :
       {engine->attach_lifecycle(), engine->attach_block_layer(), engine->attach_signals()}) {
    if (attached) continue;
    own_problems.push_back(attached.error().what);
    log(attached.error().what);
  }
  attacher = std::make_unique<Attacher>(*engine, procfs, options.packs, probes, options.log,
                                        AttacherOptions{.policy = metering_policy()});
  entry_hits.resize(attacher->entry_count());
}

void Watcher::Impl::handle_events(BootTime now) {
  if (!engine) return;
  engine->drain([&](std::span<const std::byte> record) {
    const auto event = lifecycle_event(record);
    if (!event) return;
    if (event->kind == LifecycleEvent::Kind::kExit) {
      remove_target(event->pid);
      return;
    }
    if (event->kind == LifecycleEvent::Kind::kExec) {
      if (targets.contains(event->pid) || discovery.contains(event->pid))
        renewed.insert(event->pid);
      remove_target(event->pid);
    }
    unwanted.erase(event->pid);
    discovery.add(event->pid, now);
  });
}

void Watcher::Impl::scan_all(BootTime now) {
  if (now < next_scan_all) return;
  next_scan_all = now + kScanAllEvery;
  if (attacher) attacher->retry();
  const std::vector<std::int32_t> pids = procfs.pids();
  for (const std::int32_t pid : pids) {
    if (!targets.contains(pid) && !discovery.contains(pid) && !unwanted.contains(pid))
      discovery.add(pid, now);
  }
  std::vector<std::int32_t> gone;
  for (const auto& [pid, process] : table.processes()) {
    const auto stat = procfs.stat(pid);
    // The main thread may have ended before the others.
    const bool is_gone = stat ? (stat->state == 'Z' && stat->threads <= 1) ||
                                    stat->start_ticks != process.facts.start_ticks
                              : stat.error().code == Code::kNotFound;
    if (is_gone) gone.push_back(pid);
  }
  for (const std::int32_t pid : gone)
    remove_target(pid);
  std::erase_if(unwanted, [&](std::int32_t pid) {
    return !std::binary_search(pids.begin(), pids.end(), pid);
  });
}

void Watcher::Impl::add_target(std::int32_t pid, const std::vector<sys::Mapping>& mappings,
                               BootTime now) {
  auto facts = describe_process(procfs, pid);
  if (!facts) return;
  if (options.wants && !options.wants(*facts)) {
    unwanted.insert(pid);
    if (engine) engine->forget_process(pid);  // as the child of a watched one it was observed
    return;
  }
  targets.erase(pid);
  Observed* process = table.add(std::move(facts).value(), now);
  if (process == nullptr) {
    if (table.over_limit() == 1) {
      log(fmt::format("more than {} AI processes, or {} of one user: the rest is not watched",
                      kTargetsMax, table.user_max()));
    }
    return;
  }
  process->next_scan = now + kRescanFloor;
  if (engine) {
    if (const auto observed = engine->observe_process(pid); !observed) log(observed.error().what);
    attacher->set_mappings(pid, mappings);
  }
  Target& target = targets[pid];
  target.known.assign(metrics.size(), false);
  target.blind.assign(metrics.size(), false);
  target.pages = address_space_pages(procfs, pid);
}

void Watcher::Impl::remove_target(std::int32_t pid) {
  discovery.remove(pid);
  const auto target = targets.find(pid);
  if (target == targets.end()) return;
  targets.erase(target);
  table.remove(pid);
  if (!engine) return;
  attacher->forget_process(pid);
  engine->forget_process(pid);
}

void Watcher::Impl::rescan(BootTime now) {
  for (auto& [pid, process] : table.processes()) {
    if (now < process.next_scan) continue;
    process.next_scan = now + std::clamp((now - process.seen_at) / 4, kRescanFloor, kRescanCeiling);
    Target& target = targets.at(pid);
    const std::uint64_t pages = address_space_pages(procfs, pid);
    if (pages == 0) continue;  // /proc shows nothing once its main thread has ended
    if (!attacher || (pages == target.pages && !attacher->wants_again(pid))) continue;
    target.pages = pages;
    if (const auto mappings = procfs.maps(pid)) attacher->set_mappings(pid, *mappings);
  }
}

// Metric that totals count for; nothing for a probe that is not in use, or a name beyond the limit.
std::optional<std::size_t> Watcher::Impl::metric_of(const bpf::ProbeTotal& seen) const {
  if (seen.probe == WIRE_TOTAL_STOPS) return metrics.index(MetricTable::kStop);
  if (seen.probe == WIRE_TOTAL_BLOCK) return metrics.index(MetricTable::kBlock);
  if (seen.probe >= probes.size() || probes[seen.probe].is_free) return std::nullopt;
  const auto metric = metrics.index(probes[seen.probe].metric);
  if (!metric || seen.kind == WIRE_TOTAL_CALL) return metric;
  return seen.kind == WIRE_TOTAL_INTERVAL ? metrics.interval_of(*metric) : metrics.gap_of(*metric);
}

void Watcher::Impl::read_totals(Totals& out, BootTime now) {
  std::fill(entry_hits.begin(), entry_hits.end(), EntryHits{});
  const auto now_ns = static_cast<std::uint64_t>(now.time_since_epoch().count());
  const auto read = engine->read_totals([&](const bpf::ProbeTotal& seen) {
    const auto target = targets.find(static_cast<std::int32_t>(seen.tgid));
    const auto metric = metric_of(seen);
    if (seen.tgid == 0) return true;
    if (renewed.contains(static_cast<std::int32_t>(seen.tgid))) return false;
    // Those of processes that went, or of probes that did; a young child may yet become a target.
    if (target == targets.end()) return discovery.contains(static_cast<std::int32_t>(seen.tgid));
    const std::uint32_t key = seen.probe * 4 + static_cast<std::uint32_t>(seen.kind);
    if (!metric) {  // the next probe of that number begins anew
      target->second.readings.erase(key);
      return seen.probe >= WIRE_PROBES_MAX || seen.kind != WIRE_TOTAL_CALL;
    }
    const wire_total& total = *seen.total;
    Reading& before = target->second.readings[key];
    if (total.count < before.count || total.entries < before.blind_entries) before = Reading{};
    target->second.known.at(*metric) = true;
    std::vector<Accumulated>& sums = out[target->first];
    sums.resize(metrics.size());
    Accumulated& sum = sums[*metric];
    const std::uint64_t calls = growth(total.count, before.count);
    // Some of the calls whose end was never seen were noticed to be over.
    before.lost -= std::min(before.lost, growth(total.dropped, before.dropped));
    sum.window.count += calls;
    sum.window.bytes += growth(total.bytes, before.bytes);
    sum.window.sum_s += static_cast<double>(growth(total.sum_ns, before.sum_ns)) * 1e-9;
    for (std::size_t i = 0; i < WIRE_BUCKETS; ++i)
      sum.buckets.at(i) += total.buckets[i] - before.buckets.at(i);  // 32 bits: wraps with them
    if (seen.kind == WIRE_TOTAL_CALL && is_blind(seen, before, attacher->is_probe_on(seen.probe))) {
      // The times between come of the same calls.
      for (const auto& one : {metric, metrics.interval_of(*metric), metrics.gap_of(*metric)})
        if (one) target->second.blind.at(*one) = true;
    }
    // A debugger lets go of a process that its SIGSTOP stopped without a SIGCONT.
    const bool runs = seen.probe == WIRE_TOTAL_STOPS && !target->second.is_stopped;
    const double open_s = runs ? 0 : open_seconds(seen, before, calls, now_ns);
    sum.window.open_s = std::max(sum.window.open_s, open_s);
    sum.window.busy_s +=
        std::max(0.0, static_cast<double>(growth(total.sum_ns, before.sum_ns)) * 1e-9 + open_s -
                          before.open_s);
    before.open_s = open_s;
    // Between two steps: how long the next one has been waited for.
    const auto interval = metrics.interval_of(*metric);
    if (seen.kind == WIRE_TOTAL_CALL && interval && total.last_entry_ns != 0 &&
        now_ns > total.last_entry_ns)
      sums[*interval].window.open_s = static_cast<double>(now_ns - total.last_entry_ns) * 1e-9;
    const std::uint64_t hits = std::max(calls, growth(total.entries, before.entries));
    if (hits > 0 && seen.kind == WIRE_TOTAL_CALL && seen.probe < probes.size()) {
      EntryHits& entry = entry_hits.at(probes[seen.probe].entry);
      entry.all += hits;
      entry.of_process[target->first] += hits;
    }
    before.entries = total.entries;
    before.dropped = total.dropped;
    before.count = total.count;
    before.sum_ns = total.sum_ns;
    before.bytes = total.bytes;
    std::copy(std::begin(total.buckets), std::end(total.buckets), before.buckets.begin());
    return true;
  });
  renewed.clear();
  if (!read) log(read.error().what);
}

void Watcher::Impl::read_threads(std::map<std::int32_t, ProcessWindow>& out) {
  ++window_number;
  const auto read = engine->read_threads([&](const wire_thread& thread) {
    const auto found = targets.find(static_cast<std::int32_t>(thread.tgid));
    if (found == targets.end()) return;
    Target& target = found->second;
    ProcessWindow& window = out[found->first];
    const auto [known, is_new] = target.threads.try_emplace(thread.tid);
    ThreadReading& before = known->second;
    ++window.thread_count;
    window.blocked_threads += (thread.state & kDiskSleep) != 0 ? 1 : 0;
    if (thread.tid == thread.tgid)
      target.is_stopped = window.is_stopped = (thread.state & (kStopped | kTraced)) != 0;
    // A new thread's past belongs to this window, a new process's does not.
    if (!is_new || target.has_baseline) {
      window.runtime_s += 1e-9 * static_cast<double>(growth(thread.runtime_ns, before.runtime_ns));
      window.run_delay_s +=
          1e-9 * static_cast<double>(growth(thread.run_delay_ns, before.run_delay_ns));
      window.voluntary += growth(thread.voluntary, before.voluntary);
      window.involuntary += growth(thread.involuntary, before.involuntary);
      window.minor_faults += growth(thread.minor_faults, before.minor);
      window.major_faults += growth(thread.major_faults, before.major);
      window.read_bytes += growth(thread.read_bytes, before.read);
      window.written_bytes += growth(thread.written_bytes, before.written);
      window.system_s += 1e-9 * static_cast<double>(growth(thread.system_ns, before.system_ns));
    }
    before = {thread.runtime_ns,   thread.run_delay_ns, thread.voluntary,  thread.involuntary,
              thread.minor_faults, thread.major_faults, thread.read_bytes, thread.written_bytes,
              thread.system_ns,    window_number};
  });
  if (!read) log(read.error().what);
  for (auto& [pid, target] : targets) {
    out[pid].has_threads = target.has_baseline;
    target.has_baseline = true;
    std::erase_if(target.threads,
                  [&](const auto& thread) { return thread.second.window != window_number; });
  }
}

// Owner of each process, by all its work so far.
void Watcher::Impl::settle(BootTime now) {
  constexpr std::string_view kCommunication = "collective";  // the category of probes
  for (const auto& [pid, target] : targets) {
    for (std::size_t metric = 0; metric < metrics.size(); ++metric) {
      if (!target.known.at(metric) || !metrics.is_work(metric)) continue;
      table.note_work(pid, metrics.category(metric) == kCommunication
                               ? ProcessTable::Work::kCommunicates
                               : ProcessTable::Work::kComputes);
    }
  }
  static_cast<void>(table.settle(now));
}

Watcher::Watcher(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Watcher::~Watcher() = default;

Result<std::unique_ptr<Watcher>> Watcher::create(const Clock& clock, const sys::Procfs& procfs,
                                                 WatcherOptions options) {
  auto impl = std::make_unique<Impl>(clock, procfs, std::move(options));
  impl->start();
  impl->window_begin = clock.now();
  return std::unique_ptr<Watcher>(new Watcher(std::move(impl)));
}

void Watcher::poll() {
  const BootTime now = impl_->clock.now();
  impl_->handle_events(now);
  impl_->scan_all(now);
  impl_->discovery.poll(now, [&](std::int32_t pid, const std::vector<sys::Mapping>& mappings) {
    impl_->add_target(pid, mappings, now);
  });
  impl_->rescan(now);
}

namespace {

void add_use(ProcessWindow& owner, const ProcessWindow& worker, std::size_t block) {
  owner.runtime_s += worker.runtime_s;
  owner.run_delay_s += worker.run_delay_s;
  owner.voluntary += worker.voluntary;
  owner.involuntary += worker.involuntary;
  owner.minor_faults += worker.minor_faults;
  owner.system_s += worker.system_s;
  owner.major_faults += worker.major_faults;
  owner.read_bytes += worker.read_bytes;
  owner.written_bytes += worker.written_bytes;
  owner.thread_count += worker.thread_count;
  owner.blocked_threads += worker.blocked_threads;
  MetricWindow& requests = owner.metrics.at(block);
  const MetricWindow& more = worker.metrics.at(block);
  requests.is_known = requests.is_known || more.is_known;
  requests.count += more.count;
  requests.sum_s += more.sum_s;
  requests.busy_s += more.busy_s;
  requests.max_s = std::max(requests.max_s, more.max_s);
  requests.p99_s = std::max(requests.p99_s, more.p99_s);
}

}  // namespace

void Watcher::Impl::add_metrics(Target& target, std::vector<Accumulated>& sums,
                                ProcessWindow& window) const {
  window.metrics.resize(metrics.size());
  sums.resize(metrics.size());
  for (std::size_t i = 0; i < sums.size(); ++i) {
    if (target.blind.at(i)) continue;  // unknown
    MetricWindow& metric = window.metrics.at(i);
    metric = sums.at(i).window;
    metric.is_known = target.known.at(i);
    metric.p99_s = bpf::bucket_quantile_ns(sums.at(i).buckets, 0.99) * 1e-9;
    metric.max_s = bpf::bucket_quantile_ns(sums.at(i).buckets, 1) * 1e-9;
  }
}

std::vector<ProcessWindow> Watcher::Impl::with_their_workers(
    std::map<std::int32_t, ProcessWindow> windows) const {
  const std::size_t block = *metrics.index(MetricTable::kBlock);
  for (auto& [pid, window] : windows) {
    if (window.place.role != Role::kWorker) continue;
    const auto owner = windows.find(window.place.owner);
    if (owner == windows.end()) continue;  // it has ended
    add_use(owner->second, window, block);
    ++owner->second.worker_count;
  }
  std::vector<ProcessWindow> out;
  for (auto& [pid, window] : windows)
    if (window.place.role != Role::kWorker) out.push_back(std::move(window));
  return out;
}

WatchWindow Watcher::take_window() {
  Impl& impl = *impl_;
  WatchWindow out;
  out.begin = impl.window_begin;
  out.end = impl.window_begin = impl.clock.now();
  Impl::Totals totals;
  std::map<std::int32_t, ProcessWindow> windows;
  if (impl.engine) {
    for (auto& [pid, target] : impl.targets)
      target.blind.assign(impl.metrics.size(), false);
    impl.read_threads(windows);
    impl.read_totals(totals, out.end);
  }
  impl.settle(out.end);
  for (auto& [pid, target] : impl.targets) {
    const Observed& process = impl.table.processes().at(pid);
    ProcessWindow& window = windows[pid];
    window.process = process.facts;
    window.place = process.place;
    impl.add_metrics(target, totals[pid], window);
  }
  out.processes = impl.with_their_workers(std::move(windows));
  return out;
}

void Watcher::set_enabled(bool enabled) {
  if (impl_->attacher) impl_->attacher->set_enabled(enabled);
}

const MetricTable& Watcher::metrics() const {
  return impl_->metrics;
}

std::vector<Watcher::Entry> Watcher::entries() const {
  std::vector<Entry> out;
  for (std::size_t i = 0; i < impl_->entry_hits.size(); ++i) {
    const Impl::EntryHits& hits = impl_->entry_hits[i];
    std::uint64_t most = 0;
    for (const auto& [pid, count] : hits.of_process)
      most = std::max(most, count);
    out.push_back({impl_->attacher->entry_name(i), hits.all, most,
                   impl_->attacher->is_entry_enabled(i), impl_->attacher->call_seconds(i)});
  }
  return out;
}

void Watcher::set_entry_enabled(std::size_t entry, bool enabled) {
  if (impl_->attacher) impl_->attacher->set_entry_enabled(entry, enabled);
}

Watcher::Status Watcher::status() const {
  Status out;
  out.bpf = impl_->bpf_state;
  out.target_count = impl_->targets.size();
  out.candidate_count = impl_->discovery.size();
  out.over_limit = impl_->table.over_limit() + impl_->discovery.over_limit();
  if (!impl_->engine) return out;
  const bpf::Engine::Counters counters = impl_->engine->counters();
  out.hits = counters.hits;
  out.ring_full = counters.ring_full;
  out.totals_full = counters.totals_full + counters.process_table_full + counters.calls_too_deep;
  out.probe_count = impl_->attacher->probe_count();
  out.file_count = impl_->attacher->file_count();
  out.failed = impl_->attacher->counters().missing + impl_->attacher->counters().failed;
  out.link_count = impl_->engine->link_count();
  return out;
}

std::vector<std::string> Watcher::problems() const {
  std::vector<std::string> out = impl_->own_problems;
  if (impl_->attacher) {
    const auto& more = impl_->attacher->problems();
    out.insert(out.end(), more.begin(), more.end());
  }
  return out;
}

}  // namespace kansoku::capture
