// SPDX-License-Identifier: Apache-2.0
#pragma once

// Objects behind the handles of the driver interface. Objects are held by shared pointers: a handle
// that is destroyed while work still uses it leaves the object to the work.

#include <atomic>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "common/result.h"
#include "cuda/abi.h"
#include "gpu/exec/executor.h"
#include "gpu/exec/memory.h"
#include "gpu/exec/program.h"
#include "softcuda/internal/event_clock.h"
#include "softcuda/internal/kernel_times.h"
#include "softcuda/internal/observing.h"
#include "softcuda/internal/time_model.h"
#include "softcuda/internal/timeline.h"
#include "softcuda/telemetry/log.h"
#include "softcuda/telemetry/telemetry.h"
#include "sys/clock.h"

namespace kansoku::softcuda {

// NOLINTNEXTLINE(google-build-using-namespace): this library is the interface.
using namespace cuda;

struct Context;
class Device;
class Stream;

inline constexpr int kDriverVersion = 13000;  // 1000 * major + 10 * minor

/// Handles that exist, by address: thousands of events, looked up at the rate of launches, so the
/// table is open and flat: one line of the cache a look. Any thread.
template <class Object>
class Registry {
 public:
  template <class Handle>
  Handle add(std::shared_ptr<Object> object) {
    Object* const raw = object.get();
    const std::scoped_lock lock(mutex_);
    if (2 * (count_ + 1) > slots_.size()) grow();
    slots_[place_of(raw)] = std::move(object);
    ++count_;
    return reinterpret_cast<Handle>(raw);
  }
  template <class Handle>
  [[nodiscard]] std::shared_ptr<Object> find(Handle handle) const {
    const std::scoped_lock lock(mutex_);
    return slots_[place_of(reinterpret_cast<const Object*>(handle))];
  }
  /// Null if it is not there.
  template <class Handle>
  std::shared_ptr<Object> remove(Handle handle) {
    const std::scoped_lock lock(mutex_);
    return take(place_of(reinterpret_cast<const Object*>(handle)));
  }
  template <class Predicate>
  void remove_if(const Predicate& predicate) {
    std::vector<std::shared_ptr<Object>> removed;  // ends when the lock is free again
    const std::scoped_lock lock(mutex_);
    for (const auto& object : slots_) {
      if (object != nullptr && predicate(*object)) removed.push_back(object);
    }
    for (const auto& object : removed)
      take(place_of(object.get()));
  }
  template <class Act>
  void for_each(const Act& act) const {
    const std::scoped_lock lock(mutex_);
    for (const auto& object : slots_) {
      if (object != nullptr) act(*object);
    }
  }

 private:
  static constexpr std::size_t kSlotsFirst = 16;  // a power of two

  /// Slot of an object in an otherwise empty table.
  [[nodiscard]] std::size_t home_of(const Object* object) const {
    const auto address = static_cast<std::uint64_t>(reinterpret_cast<std::uintptr_t>(object));
    return static_cast<std::size_t>((address * 0x9e3779b97f4a7c15ULL) >> 32) & (slots_.size() - 1);
  }
  /// Slot of an object, or the empty one where it would go. Half of them are empty.
  [[nodiscard]] std::size_t place_of(const Object* object) const {
    std::size_t at = home_of(object);
    while (slots_[at] != nullptr && slots_[at].get() != object)
      at = (at + 1) & (slots_.size() - 1);
    return at;
  }
  void grow() {
    std::vector<std::shared_ptr<Object>> before(2 * slots_.size());
    std::swap(before, slots_);
    for (auto& object : before) {
      if (object != nullptr) slots_[place_of(object.get())] = std::move(object);
    }
  }
  /// Those behind it that stand away from home move up: no look ends before it reaches them.
  std::shared_ptr<Object> take(std::size_t at) {
    std::shared_ptr<Object> object = std::move(slots_[at]);
    if (object == nullptr) return nullptr;
    --count_;
    const std::size_t mask = slots_.size() - 1;
    for (std::size_t next = (at + 1) & mask; slots_[next] != nullptr; next = (next + 1) & mask) {
      const std::size_t home = home_of(slots_[next].get());
      if (((next - home) & mask) < ((next - at) & mask)) continue;
      slots_[at] = std::move(slots_[next]);
      at = next;
    }
    return object;
  }

  mutable std::mutex mutex_;
  std::vector<std::shared_ptr<Object>> slots_{kSlotsFirst};  // guarded by mutex_; null: empty
  std::size_t count_{0};                                     // guarded by mutex_
};

/// How far a stream is: work is numbered from 1.
struct Progress {
  static constexpr std::uint64_t kNobody = ~std::uint64_t{0};
  std::mutex mutex;
  std::condition_variable changed;
  std::atomic<std::uint64_t> done{0};  // changed under the mutex
  std::uint64_t wanted{kNobody};       // the least that somebody waits for; guarded by mutex

  void wait_for(std::uint64_t number);
  [[nodiscard]] bool has_passed(std::uint64_t number) const {
    return done.load(std::memory_order_acquire) >= number;
  }
  void pass(std::uint64_t number);
};

/// A point of a stream's work.
struct Point {
  std::shared_ptr<Progress> progress;
  std::uint64_t number{0};
  std::shared_ptr<Moment> moment;  // in virtual time; null: the clock is the host's
  [[nodiscard]] bool has_passed() const { return !progress || progress->has_passed(number); }
  void wait() const {
    if (progress) progress->wait_for(number);
  }
  /// By the program's own threads: the host's virtual time goes on, too.
  void reach() const;
};

struct Function;

struct Module {
  std::weak_ptr<Context> context;
  std::mutex program_mutex;
  std::shared_ptr<const gpu::exec::Program> program;  // guarded by program_mutex; ends with context
  std::mutex functions_mutex;
  std::map<std::size_t, std::weak_ptr<Function>>
      functions;  // by kernel; guarded by functions_mutex

  /// Null if the context has ended.
  [[nodiscard]] std::shared_ptr<const gpu::exec::Program> get() {
    const std::scoped_lock lock(program_mutex);
    return program;
  }
};

/// Settings that a program makes on a kernel.
struct KernelSettings {
  std::atomic<int> dynamic_shared_max{-1};  // -1: the default
  std::atomic<int> carveout{-1};
};

/// A kernel of a module: CUfunction.
struct Function {
  std::shared_ptr<Module> module;
  std::size_t kernel{0};
  gpu::exec::KernelInfo info;
  CUmodule module_handle{nullptr};
  std::shared_ptr<KernelSettings> settings;  // of a library's kernel: the same in all contexts
};

/// An image of the process; a context gets a module of it when it first asks.
struct Library {
  struct Loaded {
    std::weak_ptr<Context> context;
    std::shared_ptr<Module> module;
    CUmodule handle{nullptr};
  };
  std::string text;                  // PTX
  std::vector<std::string> kernels;  // names, as the modules number them
  std::mutex mutex;
  std::map<std::uint64_t, Loaded> modules;  // by context; guarded by mutex
  std::map<std::size_t, CUkernel> handles;  // by kernel; guarded by mutex
};

/// A kernel of a library, of whichever context: CUkernel.
struct Kernel {
  std::shared_ptr<Library> library;
  CUlibrary library_handle{nullptr};
  std::size_t index{0};
  std::shared_ptr<KernelSettings> settings = std::make_shared<KernelSettings>();
};

// Operations of a stream or a graph.

struct KernelLaunch {
  std::shared_ptr<Function> function;
  CUfunction handle{nullptr};
  std::array<std::uint32_t, 3> grid{}, block{};
  std::uint32_t shared_bytes{0};
  std::vector<std::byte> params;
  std::vector<void*> param_places;  // into `params`, for who asks a graph's node for them
  bool is_cooperative{false};
};
/// Copy of `height` * `depth` lines of `width` bytes.
struct Copy {
  const std::byte* from{nullptr};
  std::byte* to{nullptr};
  std::size_t width{0}, height{1}, depth{1};
  std::size_t from_pitch{0}, to_pitch{0};          // bytes from line to line
  std::size_t from_slice{0}, to_slice{0};          // bytes from slice to slice
  std::shared_ptr<std::vector<std::byte>> staged;  // owner of `from`, if it was copied
  bool is_to_device{false}, is_to_host{false};
  CUDA_MEMCPY3D shape{};  // as given, for graphs
};
struct Fill {
  CUDA_MEMSET_NODE_PARAMS shape{};
};
struct HostCall {
  CUhostFn function{nullptr};
  void* user_data{nullptr};
};
struct StreamCallback {
  CUstreamCallback function{nullptr};
  CUstream stream{nullptr};
  void* user_data{nullptr};
};
struct Nothing {};
struct Record;
struct EventRecord {
  std::shared_ptr<Record> record;  // of a stream; of a graph: made at launch
  std::shared_ptr<struct Event> event;
  CUevent handle{nullptr};
};
struct EventWait {
  std::shared_ptr<Record> record;  // of a graph: the event's record at the launch of the graph
  std::shared_ptr<struct Event> event;
  CUevent handle{nullptr};
};
struct FreeMemory {
  CUdeviceptr pointer{0};
};
/// cuStreamWaitValue (is_wait) and cuStreamWriteValue.
struct ValueOperation {
  bool is_wait{false}, is_wide{false};
  std::uint64_t address{0}, value{0};
  unsigned flags{0};
};
struct Graph;
struct ChildGraph {
  std::shared_ptr<Graph> graph;
  CUgraph handle{nullptr};
};
using Operation = std::variant<Nothing, KernelLaunch, Copy, Fill, HostCall, StreamCallback,
                               EventRecord, EventWait, FreeMemory, ValueOperation, ChildGraph>;

/// An operation while it runs: its course in virtual time.
struct Course {
  std::shared_ptr<Moment> moment;  // null: the clock is the host's, and nobody asks for parts
  std::vector<Part> parts;
  std::vector<std::uint32_t> after;  // parts that the next part comes behind
  bool is_in_graph{false};
  std::uint64_t next_launch{0};  // number of the next kernel
  std::uint64_t extra_ns{0};     // added to the next part, by a fault on demand
  // For the log of operations: where it stands, and whether it is a node of a graph.
  std::uint64_t stream{0}, number{0};
  bool is_node{false};

  void add(Part part);
  /// A kernel that has run; gives how long.
  Nanos add(const Device& device, const KernelLaunch& launch,
            const gpu::exec::LaunchCounts& counts);
  void add(const Device& device, const Copy& copy);
  void add(const Device& device, const Fill& fill);
  void add(const EventRecord& record);
  void add(const EventWait& wait);
  void add_host_call();
  /// When the kernel, which comes next, begins.
  [[nodiscard]] std::uint64_t begin_of(const KernelLaunch& launch) const;
};

/// Does it, now, on the calling thread; an error is one of the context's from then on.
[[nodiscard]] CUresult execute(const std::shared_ptr<Context>& context, const Operation& operation,
                               Course& course);
/// Operations that take no time may run outside of streams.
[[nodiscard]] CUresult execute(const std::shared_ptr<Context>& context, const FreeMemory& free);
/// Its nodes, one after the other.
[[nodiscard]] CUresult execute(const std::shared_ptr<Context>& context, const Graph& graph,
                               Course& course);
/// How many kernels it launches.
[[nodiscard]] std::uint64_t launch_count(const Operation& operation);

/// When an event was last recorded.
struct Record {
  Point point;
  std::atomic<std::uint64_t> time_ns{0};
  BootTime host{};  // on the wall clock, the same moment; of the stream's thread
  /// Marks the record as reached at `now` of the wall clock; only if the clock is the host's.
  void reach(BootTime now);
};

struct GraphNode;
struct Capture;

struct Event {
  std::weak_ptr<Context> context;
  unsigned flags{0};
  std::mutex mutex;
  std::shared_ptr<Record> record;          // guarded by mutex; null: never recorded
  std::shared_ptr<Capture> capture;        // guarded by mutex; recorded in a stream that captures
  std::vector<GraphNode*> captured_nodes;  // guarded by mutex
};

struct GraphNode {
  Graph* graph{nullptr};
  CUgraphNodeType type{CU_GRAPH_NODE_TYPE_EMPTY};
  Operation operation;
  std::vector<GraphNode*> after;  // those that must be done before
  bool is_enabled{true};
  std::uint64_t id{0};           // no other node has or had it
  std::uint64_t cloned_from{0};  // the id of the node that this one is a copy of
  GraphNode();
  GraphNode(const GraphNode&) = delete;
  GraphNode& operator=(const GraphNode&) = delete;
  ~GraphNode();  // its handle ends with it
};

struct Graph {
  std::shared_ptr<Context> context;
  std::vector<std::unique_ptr<GraphNode>> nodes;  // in the order in which they were added
  bool is_child{false};
  std::atomic<int> captures{0};  // streams add to it: none of its nodes may go

  GraphNode* add(CUgraphNodeType type, Operation operation, std::vector<GraphNode*> after);
  [[nodiscard]] bool holds(const GraphNode* node) const;
  /// Null if there is none.
  [[nodiscard]] GraphNode* find_copy_of(const GraphNode& node) const;
  /// Every node after those that it waits for, ties in order of addition; empty if there is a
  /// circle although there are nodes.
  [[nodiscard]] std::vector<GraphNode*> sorted() const;
  [[nodiscard]] std::shared_ptr<Graph> clone() const;
};

/// From now on programs know the nodes by their handles, and the graphs in them.
void publish(GraphNode& node);
void publish(const Graph& graph);

struct GraphExec {
  std::mutex mutex;
  std::shared_ptr<Graph> graph;  // a copy of its own; guarded by mutex
  Point last;                    // launch; guarded by mutex
  unsigned long long flags{0};
};

/// Operations that streams record instead of running them, between cuStreamBeginCapture and
/// EndCapture.
struct Capture {
  std::uint64_t id{0};
  CUstreamCaptureMode mode{CU_STREAM_CAPTURE_MODE_GLOBAL};
  std::shared_ptr<Graph> graph;
  Stream* origin{nullptr};
  std::uint64_t thread{0};
  std::atomic<bool> is_invalid{false};
  std::atomic<bool> is_over{false};
  std::vector<std::weak_ptr<Stream>> streams;  // guarded by the context's order_mutex

  Capture() = default;
  Capture(const Capture&) = delete;
  Capture& operator=(const Capture&) = delete;
  ~Capture() { end(); }
  /// Once; the graph that it recorded can be changed again.
  void end() {
    if (!is_over.exchange(true) && graph != nullptr) --graph->captures;
  }
  /// Ends it without a result, for all its streams. The context's order_mutex is held, and a
  /// pointer to this by the caller.
  void abandon();
};

/// Work that runs in order on a thread of its own. Any thread.
class Stream : public std::enable_shared_from_this<Stream> {
 public:
  enum class Kind : std::uint8_t { kLegacy, kBlocking, kNonBlocking };
  Stream(std::shared_ptr<Context> context, Kind kind, int priority);

  /// Puts work behind the present work, and behind `after`; gives where it stands.
  Point submit(Operation operation, std::vector<Point> after);
  /// An event behind the present work. It takes no turn of its own and wakes nobody: it is reached
  /// with the last work, at once if that is done. Only where the clock is the host's.
  Point record(const std::shared_ptr<Record>& record);
  /// Point of the last work.
  [[nodiscard]] Point last() const;
  /// No more work comes; the thread ends when it is done.
  void close();

  [[nodiscard]] const std::shared_ptr<Context>& context() const { return context_; }
  [[nodiscard]] Kind kind() const { return kind_; }
  [[nodiscard]] int priority() const { return priority_; }
  [[nodiscard]] std::uint64_t id() const { return id_; }

  // Guarded by the context's order_mutex.
  std::shared_ptr<Capture> capture;
  std::vector<GraphNode*> capture_after;

 private:
  struct Work {
    Operation operation;
    std::vector<Point> after;
    std::uint64_t number{0};
    std::uint64_t first_launch{0};
    std::shared_ptr<Moment> moment;
  };
  void run();
  void finish(std::uint64_t number);

  const std::shared_ptr<Context> context_;
  const Kind kind_;
  const int priority_;
  const std::uint64_t id_;
  const std::shared_ptr<Progress> progress_;
  mutable std::mutex mutex_;
  std::condition_variable came_;
  std::deque<Work> work_;                     // guarded by mutex_
  std::uint64_t submitted_{0}, finished_{0};  // guarded by mutex_
  std::shared_ptr<Moment> last_moment_;       // guarded by mutex_
  /// Events to be reached with the work of that number, ascending; guarded by mutex_.
  std::deque<std::pair<std::uint64_t, std::shared_ptr<Record>>> records_;
  bool has_thread_{false}, is_closed_{false};  // guarded by mutex_
};

struct MemoryPool {
  int device{0};
  bool is_default{false};
  std::uint64_t bytes_max{0};  // 0: the device's
  std::mutex mutex;
  std::uint64_t used{0}, used_high{0}, release_threshold{0};  // guarded by mutex
  int reuse[4]{0, 1, 1, 1};                                   // guarded by mutex
};

struct Context : std::enable_shared_from_this<Context> {
  Device* device{nullptr};
  std::uint64_t id{0};
  std::atomic<unsigned> flags{0};
  bool is_primary{false};
  std::atomic<bool> is_destroyed{false};
  std::atomic<int> error{CUDA_SUCCESS};  // of a kernel; stays until the context ends
  std::atomic<bool> cancel{false};       // ends running kernels

  std::mutex order_mutex;  // order between streams; captures
  std::shared_ptr<Stream> legacy;
  std::vector<std::weak_ptr<Stream>> streams;  // guarded by order_mutex
  std::mutex settings_mutex;
  std::map<int, std::size_t> limits;      // guarded by settings_mutex
  std::vector<Device*> peers;             // guarded by settings_mutex
  int cache_config{0}, shared_config{0};  // guarded by settings_mutex

  /// The stream behind a handle (0, 1, 2 and handles of cuStreamCreate); null if there is none.
  [[nodiscard]] std::shared_ptr<Stream> find_stream(CUstream handle, bool is_per_thread);
  std::shared_ptr<Stream> make_stream(Stream::Kind kind, int priority);
  /// Submits to the stream, in the order that default streams ask for, or adds to its capture.
  CUresult enqueue(const std::shared_ptr<Stream>& stream, Operation operation, CUgraphNodeType type,
                   std::vector<Point> after = {}, Point* where = nullptr);
  /// Waits for all streams; gives the context's error. Refused while one captures, which ends it.
  CUresult synchronize();
  /// Waits for all streams; gives the context's error.
  CUresult wait_for_all();
  /// True if the stream captures; the captured graph is of no use any more.
  bool invalidate_capture(Stream& stream);
  /// Adds the points that the default streams make work of the stream wait for. order_mutex is
  /// held.
  CUresult add_order(const Stream& stream, std::vector<Point>& after) const;
  void forget_dead_streams();  // order_mutex is held
  /// Capture of a blocking stream; null if none captures. order_mutex is held.
  [[nodiscard]] std::shared_ptr<Capture> capture_of_blocking() const;
};

/// Times of one device: how long something ran.
class Busy {
 public:
  explicit Busy(TelemetrySlot* slot) : slot_(slot) {}
  void begin(std::uint64_t now_ns);
  void end(std::uint64_t now_ns);

 private:
  TelemetrySlot* const slot_;  // may be null
  std::mutex mutex_;
  int count_{0};               // guarded by mutex_
  std::uint64_t since_ns_{0};  // guarded by mutex_
};

class Device {
 public:
  Device(int ordinal, int machine_ordinal, gpu::exec::Memory memory, Telemetry* telemetry);

  const int ordinal;          // this process's number of it
  const int machine_ordinal;  // NVML's, which CUDA_VISIBLE_DEVICES does not change
  gpu::exec::Memory memory;
  Telemetry* const telemetry;  // null: this process could not map it
  TelemetrySlot* const slot;   // null: nobody will see this process
  Busy busy;
  const std::shared_ptr<MemoryPool> default_pool = std::make_shared<MemoryPool>();
  std::atomic<std::uint64_t> launches{0};  // kernels that the executor ran or refused at run time
  Observing observing;

  std::mutex mutex;
  std::shared_ptr<Context> primary;  // guarded by mutex
  CUcontext primary_handle{nullptr};
  unsigned primary_count{0}, primary_flags{0};
  std::shared_ptr<MemoryPool> pool{default_pool};

  [[nodiscard]] std::string name() const;
  [[nodiscard]] double speed() const;
  void note_memory();
  /// Waits as long as a slower device would have taken for an operation that took `spent`.
  void slow_down(Nanos spent, const std::atomic<bool>& cancel) const;
};

/// Memory of cuMemCreate.
struct Physical {
  int fd{-1};
  std::size_t bytes{0};
  Device* device{nullptr};
  CUmemAllocationProp prop{};
  std::uint32_t handles{0};  // guarded by the runtime's mapped_mutex
  Physical() = default;
  Physical(const Physical&) = delete;
  Physical& operator=(const Physical&) = delete;
  ~Physical();
};

struct Link {
  std::weak_ptr<Context> context;
  std::string text;  // the inputs, joined
  bool is_complete{false};
};

/// Memory that a program allocated, or registered.
struct Allocation {
  std::uint64_t context{0};  // by id
  CUcontext context_handle{nullptr};
  Device* device{nullptr};  // null: of the host
  std::size_t bytes{0};
  std::shared_ptr<MemoryPool> pool;  // null: of none
  bool is_managed{false}, is_registered{false};
  bool is_freed{false};  // in the order of a stream that has not got there yet
  unsigned flags{0};
};

/// Everything of the process. Made by cuInit and never destroyed: threads of streams may run until
/// the very end.
struct Runtime {
  sys::RealClock clock;  // the boot clock, as a recording has it: their times can be compared
  EventClock event_clock{clock};  // clock of events and kernels: the same unless it is set apart
  TimeModel model;
  std::unique_ptr<Timeline> timeline;  // null: the clock is the host's
  std::vector<std::unique_ptr<Device>> devices;
  std::optional<gpu::exec::Memory> host;  // pinned and registered memory, of all devices
  unsigned workers{1};
  int architecture{80};                       // compute capability times ten
  std::unique_ptr<KernelTimes> kernel_times;  // null: not asked for
  gpu::exec::Workers threads;
  Nanos time_limit{0};
  bool checks_hazards{false};

  Registry<Context> contexts;
  Registry<Stream> streams;
  Registry<Event> events;
  Registry<Module> modules;
  Registry<Function> functions;
  Registry<Kernel> kernels;
  Registry<Library> libraries;
  Registry<Graph> graphs;
  Registry<GraphExec> graph_execs;
  Registry<MemoryPool> pools;
  Registry<Physical> physical;
  Registry<Link> links;

  std::mutex allocations_mutex;
  std::map<CUdeviceptr, Allocation> allocations;  // guarded by allocations_mutex
  std::mutex mapped_mutex;
  std::map<CUdeviceptr, std::pair<std::size_t, std::shared_ptr<Physical>>>
      mapped;  // by mapped_mutex
  std::mutex captures_mutex;
  std::vector<std::weak_ptr<Capture>> captures;  // guarded by captures_mutex
  std::mutex graph_mutex;                        // graphs may be changed by one thread at a time
  std::mutex nodes_mutex;
  std::set<const GraphNode*> nodes;  // guarded by nodes_mutex; those that programs know
  std::atomic<std::uint64_t> next_id{1}, next_launch{1};

  /// The device whose memory holds the address, host memory excepted; null if none.
  [[nodiscard]] Device* device_of(std::uint64_t address) const;
  /// True if [address, address + bytes) lies in memory of a device or of the host that kernels see.
  [[nodiscard]] bool is_known(std::uint64_t address, std::size_t bytes) const;
  [[nodiscard]] bool is_pinned(const void* address, std::size_t bytes) const;
  /// False for addresses of a device, or of the pinned memory, at which nothing is (any more).
  [[nodiscard]] bool may_touch(std::uint64_t address, std::size_t bytes) const;
  /// The allocation that holds the address; false if there is none.
  [[nodiscard]] bool find_allocation(CUdeviceptr address, Allocation& allocation);
  /// Frees an allocation that has been taken out of the list.
  void give_back(CUdeviceptr pointer, const Allocation& allocation);
  /// Frees the context's allocations.
  void free_all_of(const Context& context);
};

/// Null before cuInit, and in a process that was forked behind it.
[[nodiscard]] Runtime* runtime();
/// CUDA_ERROR_NOT_INITIALIZED, CUDA_ERROR_INVALID_DEVICE.
[[nodiscard]] CUresult find_device(CUdevice number, Device*& device);
/// Once; CUDA_SUCCESS if there is at least one device.
CUresult start_runtime();

/// The current context of this thread, checked: CUDA_ERROR_NOT_INITIALIZED, INVALID_CONTEXT,
/// CONTEXT_IS_DESTROYED, or the context's own error.
[[nodiscard]] CUresult enter(std::shared_ptr<Context>& context);
/// The contexts of this thread, the current one last.
[[nodiscard]] std::vector<std::shared_ptr<Context>>& context_stack();
[[nodiscard]] CUcontext handle_of(const std::shared_ptr<Context>& context);

/// The function behind a CUfunction, or behind a CUkernel in the context (null: the current one).
[[nodiscard]] CUresult find_function(CUfunction handle, std::shared_ptr<Context> context,
                                     std::shared_ptr<Function>& function);

/// Checks a copy of boxes. `is_from_pageable`: of memory that kernels do not see.
[[nodiscard]] CUresult make_copy(const CUDA_MEMCPY3D& shape, Copy& copy, bool& is_from_pageable,
                                 bool& is_to_pageable);

/// Calls that may wait for other work are refused while something is captured, unless the modes of
/// the capture and of this thread (cuThreadExchangeStreamCaptureMode) allow for it.
[[nodiscard]] CUresult check_capture_modes();
[[nodiscard]] CUstreamCaptureMode& thread_capture_mode();
[[nodiscard]] std::uint64_t thread_number();
/// True on the thread of a stream while it runs a function of the program.
[[nodiscard]] bool& is_in_callback();

/// Checks the launch and takes the arguments in.
[[nodiscard]] CUresult make_launch(const std::shared_ptr<Function>& function, KernelLaunch& launch,
                                   void** params, void** extra);

#define KANSOKU_CU_TRY(expression)                                      \
  do {                                                                  \
    const ::kansoku::cuda::CUresult cu_status_ = (expression);          \
    if (cu_status_ != ::kansoku::cuda::CUDA_SUCCESS) return cu_status_; \
  } while (false)

/// A function of the driver interface. Its symbol is local; a generated stub under the public name
/// jumps to it (tools/cuda_stubs.py).
#define KANSOKU_ENTRY extern "C" ::kansoku::cuda::CUresult
/// One that takes a stream, and its twin for which the default stream is the thread's own; both see
/// `is_per_thread`.
#define KANSOKU_STREAM_ENTRY(name, suffix, parameters, ...) \
  KANSOKU_ENTRY name parameters {                           \
    constexpr bool is_per_thread = false;                   \
    __VA_ARGS__                                             \
  }                                                         \
  KANSOKU_ENTRY name##suffix parameters {                   \
    constexpr bool is_per_thread = true;                    \
    __VA_ARGS__                                             \
  }

// clang-format off
#define KANSOKU_ENTRY_POINT(result, name, parameters) extern "C" result name parameters __asm__("softgpu_" #name);
// clang-format on
#include "softcuda/entry_points.inc"
#undef KANSOKU_ENTRY_POINT

}  // namespace kansoku::softcuda
