// SPDX-License-Identifier: Apache-2.0
#include "capture/cuda/channel.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <linux/futex.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <climits>
#include <cmath>
#include <cstring>

#include "common/parse.h"
#include "common/text.h"
#include "sys/clock.h"
#include "sys/entropy.h"
#include "sys/fd.h"

namespace kansoku::capture::cuda {
namespace {

// A writer that was interrupted between taking its place and filling it ends within this; a process
// that was killed there never does.
constexpr std::int64_t kIncompleteNs = 1'000'000'000;

/// Words that the process may change at any moment are read once.
template <class T>
T load(const T& word) {
  T out;
  __atomic_load(&word, &out, __ATOMIC_ACQUIRE);
  return out;
}

template <class T, class V>
void store(T& word, V value) {
  auto out = static_cast<T>(value);
  __atomic_store(&word, &out, __ATOMIC_RELEASE);
}

std::int64_t boot_ns() {
  return sys::RealClock().now().time_since_epoch().count();
}

bool is_memfd(const sys::Mapping& mapping) {
  return mapping.path.starts_with("/memfd:" WIRE_CUDA_MEMFD) && mapping.writable &&
         mapping.file_offset == 0;
}

Result<sys::Fd> open_mapping(const std::string& path) {
  const int raw = ::open(path.c_str(), O_RDWR | O_CLOEXEC);
  if (raw < 0) return errno_error(errno, "open", path);
  return sys::Fd::adopt(raw);
}

/// The number of a process or thread in its own namespace; 0: not known. `folder`: below /proc.
std::int32_t own_number(const sys::Procfs& procfs, const std::string& folder) {
  const auto status = sys::read_file(fmt::format("{}/{}/status", procfs.root(), folder), 1U << 16);
  if (!status) return 0;
  const std::size_t begin = status->find("\nNSpid:");
  if (begin == std::string::npos) return 0;
  const std::string_view line =
      std::string_view(*status).substr(begin + 1, status->find('\n', begin + 1) - begin - 1);
  return parse_int<std::int32_t>(line.substr(line.find_last_of(" \t") + 1)).value_or(0);
}

}  // namespace

double Durations::at_most_ns(double share) const {
  const auto wanted = share * static_cast<double>(count);
  double seen = 0;
  for (std::size_t i = 0; i < buckets.size(); ++i) {
    seen += static_cast<double>(buckets[i]);
    if (seen < wanted || seen == 0) continue;
    const double low =
        std::ldexp(1.0, WIRE_CUDA_BUCKET_FIRST_POWER + static_cast<int>((i - 1) / 2));
    const double edge = i == 0             ? std::ldexp(1.0, WIRE_CUDA_BUCKET_FIRST_POWER)
                        : (i - 1) % 2 == 0 ? low * 1.5
                                           : low * 2;
    return std::min(edge, static_cast<double>(longest_ns));
  }
  return 0;
}

Durations Durations::since(const Durations& earlier) const {
  if (earlier.count > count || earlier.buckets.size() != buckets.size()) return *this;
  Durations out = *this;
  out.count -= earlier.count;
  out.total_ns -= std::min(out.total_ns, earlier.total_ns);
  for (std::size_t i = 0; i < buckets.size(); ++i)
    out.buckets[i] -= std::min(out.buckets[i], earlier.buckets[i]);
  return out;
}

Result<std::unique_ptr<Channel>> Channel::open(const sys::Procfs& procfs, std::int32_t pid,
                                               Access access) {
  const auto maps = procfs.maps(pid);
  if (!maps) return maps.error();
  const auto found = std::find_if(maps->begin(), maps->end(), is_memfd);
  if (found == maps->end())
    return Error{Code::kNotFound,
                 fmt::format("process {}: no CUDA library of Kansoku is at work in it", pid),
                 "start it with `kansoku run --cuda -- COMMAND`"};
  const std::string path = procfs.map_file(pid, *found);
  const auto fd = open_mapping(path);
  if (!fd) return fd.error();
  // Sealed memory stays as large as it is: it cannot be taken away under the reader.
  struct stat about {};
  const int seals = fcntl(fd->raw(), F_GET_SEALS);
  if (fstat(fd->raw(), &about) != 0 || seals < 0 || (seals & F_SEAL_SHRINK) == 0 ||
      about.st_size != static_cast<off_t>(sizeof(wire_cuda)))
    return Error{Code::kUnsupported,
                 fmt::format("process {}: the CUDA library's memory is of another version", pid),
                 "use the kansoku that came with the library"};
  void* const memory =
      mmap(nullptr, sizeof(wire_cuda), PROT_READ | PROT_WRITE, MAP_SHARED, fd->raw(), 0);
  if (memory == MAP_FAILED) return errno_error(errno, "map memory of process", std::to_string(pid));
  auto channel =
      std::unique_ptr<Channel>(new Channel(static_cast<wire_cuda*>(memory), /*is_mapped=*/true));
  channel->mapping_ = path;
  channel->inode_ = about.st_ino;
  if (const auto fits = on(static_cast<wire_cuda*>(memory)); !fits) return fits.error();
  const std::int32_t own = own_number(procfs, std::to_string(pid));
  if (own != 0 && own != load(channel->memory_->head.pid))
    return Error{
        Code::kNotFound,
        fmt::format("process {}: it was forked from one that uses CUDA, and uses none", pid),
        "look at its parent"};
  if (access != Access::kLook && !channel->take_over(access))
    return Error{Code::kUnavailable,
                 fmt::format("process {}: another recorder uses its CUDA library", pid),
                 "one at a time; it is free two seconds after the other one ended"};
  return channel;
}

bool Channel::is_still_there() const {
  struct stat about {};
  return mapping_.empty() || (stat(mapping_.c_str(), &about) == 0 && about.st_ino == inode_);
}

Result<std::unique_ptr<Channel>> Channel::on(wire_cuda* memory) {
  if (load(memory->head.magic) != WIRE_CUDA_MAGIC ||
      load(memory->head.version) != WIRE_CUDA_VERSION)
    return Error{Code::kUnsupported,
                 fmt::format("version {} of the CUDA library's memory; known is {}",
                             load(memory->head.version), WIRE_CUDA_VERSION),
                 "use the kansoku that came with the library"};
  return std::unique_ptr<Channel>(new Channel(memory, /*is_mapped=*/false));
}

Channel::Channel(wire_cuda* memory, bool is_mapped)
    : memory_(memory), is_mapped_(is_mapped), tail_(load(memory->control.tail)) {
  const std::uint32_t count = std::min(load(memory->head.entry_count), WIRE_CUDA_ENTRIES_MAX);
  for (std::uint32_t i = 0; i < count; ++i) {
    const std::uint32_t what = load(memory->entries[i].what);
    classes_.push_back(what < WIRE_CUDA_CLASSES ? what : std::uint32_t{WIRE_CUDA_OBJECT});
    names_.push_back(text(load(memory->entries[i].name)));
  }
}

bool Channel::take_over(Access access) {
  const auto name = sys::random_u64();
  if (!name) return false;
  owner_ = (*name & ~WIRE_CUDA_OWNER_WATCHES) | 1;
  if (access == Access::kWatch) owner_ |= WIRE_CUDA_OWNER_WATCHES;
  auto before = load(memory_->control.owner);
  const bool is_alive =
      before != 0 && load(memory_->control.lease_until_ns) > static_cast<std::uint64_t>(boot_ns());
  const bool yields = access == Access::kRecord && (before & WIRE_CUDA_OWNER_WATCHES) != 0;
  if ((is_alive && !yields) ||
      !__atomic_compare_exchange_n(&memory_->control.owner, &before, owner_, false,
                                   __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE))
    owner_ = 0;
  if (owner_ == 0) return false;
  // The first recorder gets all since the begin, every further one only later records.
  tail_ = load(memory_->control.tail);
  if (before == 0 && tail_ == 0) return true;
  // Records made for a reader that died are not ours.
  tail_ = load(memory_->state.head);
  store(memory_->control.tail, tail_);
  return true;
}

Channel::~Channel() {
  if (!is_mapped_) return;
  if (is_held()) {
    request(Mode::kDormant, 0, BootTime{});
    want_ranges(false);
    store(memory_->control.owner, std::uint64_t{0});
  }
  munmap(memory_, sizeof(wire_cuda));
}

bool Channel::is_held() const {
  const bool may_hold = owner_ != 0 || !is_mapped_;  // of memory that was handed in
  return may_hold && load(memory_->control.owner) == owner_;
}

void Channel::request(Mode mode, std::uint32_t every_n, BootTime until) {
  wire_cuda_control& control = memory_->control;
  if (!is_held()) return;
  const bool is_change =
      load(control.mode) != static_cast<std::uint32_t>(mode) || load(control.every_n) != every_n;
  const bool was_dead = load(control.lease_until_ns) <= static_cast<std::uint64_t>(boot_ns());
  store(control.every_n, every_n);
  store(control.lease_until_ns, static_cast<std::uint64_t>(until.time_since_epoch().count()));
  store(control.mode, static_cast<std::uint32_t>(mode));
  if (!is_change && !was_dead) return;
  __atomic_fetch_add(&control.wake, 1, __ATOMIC_ACQ_REL);
  syscall(SYS_futex, &control.wake, FUTEX_WAKE, INT_MAX, nullptr, nullptr, 0);
}

void Channel::want_ranges(bool are_wanted) {
  if (is_held()) store(memory_->control.ranges, are_wanted ? 1 : 0);
}

Mode Channel::mode() const {
  const std::uint32_t mode = load(memory_->state.mode);
  return mode <= WIRE_CUDA_EVERY ? static_cast<Mode>(mode) : Mode::kDormant;
}

std::size_t Channel::drain(const std::function<void(const wire_cuda_record&, std::uint32_t)>& take,
                           std::size_t count_max) {
  std::size_t taken = 0;
  const std::uint64_t head = load(memory_->state.head);
  if (head - tail_ > WIRE_CUDA_RING_SLOTS) {  // scribbled on
    ++odd_;
    tail_ = head;
  }
  for (; taken < count_max && tail_ != head; ++tail_) {
    const wire_cuda_record& slot = memory_->ring[tail_ % WIRE_CUDA_RING_SLOTS];
    if (load(slot.turn) != tail_ + 1) {
      const std::int64_t now = boot_ns();
      if (blocked_at_ != tail_ + 1) {
        blocked_at_ = tail_ + 1;
        blocked_since_ns_ = now;
      }
      if (now - blocked_since_ns_ < kIncompleteNs) break;
      ++odd_;
      continue;
    }
    wire_cuda_record record;
    std::memcpy(&record, &slot, sizeof record);
    if (!is_sound(record)) {
      ++odd_;
      continue;
    }
    take(record, record.entry < classes_.size() ? classes_[record.entry] : 0);
    ++taken;
  }
  if (is_held()) store(memory_->control.tail, tail_);
  return taken;
}

bool Channel::is_sound(const wire_cuda_record& record) const {
  if (record.entry == WIRE_CUDA_CLOCK) return record.stream < WIRE_CUDA_CONTEXTS_MAX;
  if (record.entry == WIRE_CUDA_OWN) return true;
  if (record.entry != WIRE_CUDA_RANGE)
    return record.entry < classes_.size() && record.stream < WIRE_CUDA_STREAMS_MAX;
  const auto& range = record.u.range;
  return range.name < WIRE_CUDA_RANGE_NAMES_MAX && range.domain < WIRE_CUDA_RANGE_DOMAINS_MAX &&
         range.kind >= WIRE_CUDA_PUSHED && range.kind <= WIRE_CUDA_MARK;
}

void Channel::skip_records() {
  tail_ = load(memory_->state.head);
  if (is_held()) store(memory_->control.tail, tail_);
}

wire_cuda_state Channel::state() const {
  wire_cuda_state out;
  std::memcpy(&out, &memory_->state, sizeof out);
  return out;
}

std::string Channel::text(std::uint32_t offset) const {
  if (offset == 0 || offset >= WIRE_CUDA_NAMES_BYTES) return {};
  const char* const begin = memory_->names + offset;
  const std::size_t room = std::min<std::size_t>(WIRE_CUDA_NAMES_BYTES - offset, 4096);
  // Copied first: the process may write between a search for its end and the copy.
  std::string out(begin, room);
  const std::size_t end = out.find('\0');
  out.resize(end == std::string::npos ? room : end);
  return out;
}

namespace {

std::string range_text(const char (&cell)[WIRE_CUDA_RANGE_NAME_BYTES]) {
  std::string out(cell, sizeof cell);  // copied first, as all that the process may change
  out.resize(std::min(out.find('\0'), out.size()));
  return printable(out);
}

}  // namespace

std::string Channel::range_name(std::uint32_t index) const {
  return index < WIRE_CUDA_RANGE_NAMES_MAX ? range_text(memory_->range_names[index]) : "";
}

std::string Channel::range_domain(std::uint32_t index) const {
  return index < WIRE_CUDA_RANGE_DOMAINS_MAX ? range_text(memory_->range_domains[index]) : "";
}

std::vector<std::uint64_t> Channel::stack(std::int64_t number) const {
  if (number < 1 || number > std::int64_t{WIRE_CUDA_STACKS_MAX}) return {};
  const wire_cuda_stack& stack = memory_->stacks[number - 1];
  const std::uint32_t count = std::min(load(stack.count), WIRE_CUDA_STACK_FRAMES);
  std::vector<std::uint64_t> out(count);
  for (std::uint32_t i = 0; i < count; ++i)
    out[i] = load(stack.addresses[i]);
  return out;
}

std::vector<EntryTotals> Channel::entries() const {
  std::vector<EntryTotals> out;
  for (std::uint32_t i = 0; i < classes_.size(); ++i) {
    EntryTotals entry{names_[i], classes_[i]};
    for (const wire_cuda_shard& shard : memory_->shards) {
      entry.calls += load(shard.entries[i].calls);
      entry.failed += load(shard.entries[i].failed);
      entry.captured += load(shard.entries[i].captured);
      entry.bytes += load(shard.entries[i].bytes);
      entry.operations += load(shard.entries[i].more);
    }
    entry.operations += entry.calls - entry.failed - entry.captured;
    out.push_back(std::move(entry));
  }
  return out;
}

const std::string& Channel::entry_name(std::uint64_t index) const {
  static const std::string kNone;
  return index < names_.size() ? names_[index] : kNone;
}

std::optional<KernelInfo> Channel::kernel(std::uint32_t index) const {
  if (index >= WIRE_CUDA_KERNELS_MAX || index >= load(memory_->kernel_count)) return std::nullopt;
  const wire_cuda_kernel& kernel = memory_->kernels[index];
  KernelInfo out{text(load(kernel.name)), load(kernel.handle),    load(kernel.launches),
                 load(kernel.captured),   load(kernel.registers), load(kernel.static_shared)};
  for (std::size_t i = 0; i < out.sites.size(); ++i)
    out.sites[i] = load(kernel.sites[i]);
  return out;
}

std::uint32_t Channel::kernel_count() const {
  return static_cast<std::uint32_t>(
      std::min<std::uint64_t>(load(memory_->kernel_count), WIRE_CUDA_KERNELS_MAX));
}

namespace {

Durations read_durations(const wire_cuda_durations& raw) {
  Durations out{load(raw.count), load(raw.total_ns), load(raw.longest_ns), {}};
  for (const __u32& bucket : raw.buckets)
    out.buckets.push_back(load(bucket));
  out.largest = load(raw.largest);
  return out;
}

}  // namespace

Durations Channel::kernel_durations(std::uint32_t index) const {
  return index < WIRE_CUDA_KERNELS_MAX ? read_durations(memory_->kernels[index].durations)
                                       : Durations{};
}

Durations Channel::graph_durations(std::uint32_t index) const {
  return index < WIRE_CUDA_GRAPHS_MAX ? read_durations(memory_->graphs[index].durations)
                                      : Durations{};
}

Durations Channel::class_durations(std::uint32_t what) const {
  return what < WIRE_CUDA_CLASSES ? read_durations(memory_->classes[what]) : Durations{};
}

std::optional<StreamInfo> Channel::stream(std::uint32_t index) const {
  if (index >= WIRE_CUDA_STREAMS_MAX) return std::nullopt;
  wire_cuda_stream raw;
  std::memcpy(&raw, &memory_->streams[index], sizeof raw);
  if (raw.generation == 0) return std::nullopt;
  StreamInfo out;
  out.index = index;
  out.generation = raw.generation;
  out.handle = raw.handle;
  out.context = raw.context;
  out.kind = raw.kind;
  out.submitted = raw.submitted;
  out.completed = raw.completed;
  out.waiting_since_ns = raw.waiting_since_ns;
  out.correlation = raw.correlation;
  out.tid = raw.tid;
  out.done_correlation = raw.done_correlation;
  out.kernel = raw.kernel;
  out.what = raw.what;
  out.is_begun = raw.is_begun != 0;
  out.detail = raw.detail;
  out.host_functions = raw.host_functions;
  out.done_ns = raw.done_ns;
  out.operations = raw.operations;
  out.known_done = raw.known_done;
  out.oldest = raw.oldest;
  out.is_mark = raw.is_mark != 0;
  out.at_kernel = raw.at_kernel;
  // Without a timed one all that is not known to be complete is.
  if (raw.waiting_since_ns == 0) out.oldest = raw.operations - 1;
  const std::uint32_t count = out.oldest + 1 - raw.known_done;
  if (count == 0 || count > std::uint32_t{1} << 31) return out;  // complete meanwhile
  // The place of an operation is taken by the one WIRE_CUDA_RECENT later.
  const auto copy = [&](std::uint32_t from, std::uint32_t wanted, std::vector<std::uint32_t>& to) {
    const auto later = static_cast<std::int32_t>(raw.operations - (from + wanted));
    const std::int64_t kept = std::int64_t{WIRE_CUDA_RECENT} - std::max(later, 0);
    const auto known = static_cast<std::uint32_t>(std::clamp<std::int64_t>(kept, 0, wanted));
    const std::uint32_t gone = wanted - known;
    for (std::uint32_t i = gone; i != wanted; ++i)
      to.push_back(load(memory_->recent[index].operations[(from + i) % WIRE_CUDA_RECENT]));
    return gone;
  };
  out.suspects_unknown = copy(raw.known_done, count, out.suspects);
  const std::uint32_t after = raw.operations - (out.oldest + 1);
  if (after <= std::uint32_t{1} << 31) out.behind_unknown = copy(out.oldest + 1, after, out.behind);
  return out;
}

std::optional<GraphInfo> Channel::graph(std::uint64_t index) const {
  if (index >= WIRE_CUDA_GRAPHS_MAX || index >= load(memory_->graph_count)) return std::nullopt;
  const wire_cuda_graph& raw = memory_->graphs[index];
  GraphInfo out{load(raw.handle),
                load(raw.launches),
                load(raw.kernels),
                load(raw.copies),
                load(raw.sets),
                load(raw.others),
                {}};
  const std::uint32_t shown = std::min(out.kernels, WIRE_CUDA_GRAPH_KERNELS);
  for (std::uint32_t i = 0; i < shown; ++i)
    out.nodes.push_back(load(raw.nodes[i]));
  return out;
}

std::vector<GraphInfo> Channel::graphs() const {
  std::vector<GraphInfo> out;
  for (std::uint64_t i = 0; i < WIRE_CUDA_GRAPHS_MAX; ++i) {
    auto one = graph(i);
    if (!one) break;
    out.push_back(std::move(*one));
  }
  return out;
}

std::vector<Waiter> Channel::waiters() const {
  std::vector<Waiter> out;
  for (const wire_cuda_waiter& waiter : memory_->waiters) {
    const std::uint64_t since = load(waiter.since_ns);
    if (since != 0) out.push_back({since, load(waiter.tid), entry_name(load(waiter.entry))});
  }
  return out;
}

std::vector<StreamInfo> Channel::streams() const {
  std::vector<StreamInfo> out;
  for (std::uint32_t i = 0; i < WIRE_CUDA_STREAMS_MAX; ++i)
    if (load(memory_->streams[i].state) != 0)
      if (const auto one = stream(i)) out.push_back(*one);
  return out;
}

ContextInfo Channel::context(std::uint32_t index) const {
  if (index >= WIRE_CUDA_CONTEXTS_MAX) return {};
  const wire_cuda_context& context = memory_->contexts[index];
  return {load(context.handle),    load(context.device),       load(context.state) != 0,
          load(context.major),     load(context.threads),      load(context.blocks),
          load(context.registers), load(context.shared_bytes), load(context.default_done_ns)};
}

std::string Channel::driver_path() const {
  std::string out(memory_->head.driver_path, sizeof memory_->head.driver_path);
  out.resize(std::min(out.find('\0'), out.size()));
  return out;
}

void Channel::add_losses(Losses& out) const {
  const wire_cuda_losses losses = state().losses;
  out.add(cuda_ring_full, losses.ring_full);
  out.add(cuda_untimed_no_event, losses.no_event + losses.queue_full);
  out.add(cuda_untimed_legacy, losses.legacy);
  out.add(cuda_untimed_programmatic, losses.programmatic);
  out.add(cuda_chains_parted, losses.parted);
  out.add(cuda_interleaved, losses.interleaved);
  out.add(cuda_negative_times, losses.negative);
  out.add(cuda_event_errors, losses.event_error);
  out.add(cuda_over_limit, losses.streams_over_limit + losses.kernels_over_limit +
                               losses.names_over_limit + losses.threads_over_limit +
                               losses.contexts_over_limit + losses.graphs_over_limit +
                               losses.pins_over_limit);
  out.add(cuda_lost_context, losses.lost_context);
  out.add(cuda_graphs_excluded, losses.graphs_excluded);
  out.add(cuda_graphs_over_budget, losses.graphs_over_budget);
  out.add(cuda_graph_untimed, losses.graph_untimed);
  out.add(cuda_ranges_lost, losses.ranges_unbegun + losses.ranges_open);
  out.add(cuda_stacks_lost, losses.stacks_skipped + losses.stacks_over_limit);
  out.add(cuda_ranges_unnamed, losses.ranges_unnamed);
  out.add(cuda_odd_records, odd_);
}

std::int32_t tid_outside(const sys::Procfs& procfs, std::int32_t pid, std::int32_t own_tid) {
  const std::int32_t own = own_number(procfs, std::to_string(pid));
  if (own == 0 || own == pid) return own_tid;
  if (own == own_tid) return pid;
  for (const std::int32_t tid : procfs.tids(pid))
    if (own_number(procfs, fmt::format("{}/task/{}", pid, tid)) == own_tid) return tid;
  return own_tid;
}

Coverage coverage_of(const sys::Procfs& procfs, std::int32_t pid) {
  Coverage out;
  const auto maps = procfs.maps(pid);
  if (!maps) return out;
  bool was_called = false;
  for (const sys::Mapping& mapping : *maps) {
    const auto name = std::string_view(mapping.path).substr(mapping.path.rfind('/') + 1);
    if (name.starts_with("libkansoku_cuda")) out.has_library = true;
    if (mapping.path.starts_with("/memfd:" WIRE_CUDA_MARK_MEMFD)) was_called = true;
    if (!name.starts_with("libcuda.so")) continue;
    out.has_cuda = true;
    out.driver_path = mapping.path;
  }
  // There for its ranges alone: the program has the driver from elsewhere.
  if (out.has_cuda && !was_called) out.has_library = false;
  return out;
}

}  // namespace kansoku::capture::cuda
