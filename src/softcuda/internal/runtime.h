// SPDX-License-Identifier: Apache-2.0
#pragma once

// What the handles of the driver interface stand for. Objects are held by shared pointers: a handle
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
#include <span>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "common/result.h"
#include "cuda/abi.h"
#include "gpu/exec/executor.h"
#include "gpu/exec/memory.h"
#include "gpu/exec/program.h"
#include "softcuda/telemetry/telemetry.h"
#include "sys/clock.h"

namespace kansoku::softcuda {

// NOLINTNEXTLINE(google-build-using-namespace): this library is the interface.
using namespace cuda;

struct Context;
class Device;
class Stream;

/// Handles that exist, by address. Any thread.
template <class Object>
class Registry {
 public:
  template <class Handle>
  Handle add(std::shared_ptr<Object> object) {
    Object* const raw = object.get();
    const std::scoped_lock lock(mutex_);
    live_.emplace(raw, std::move(object));
    return reinterpret_cast<Handle>(raw);
  }
  template <class Handle>
  [[nodiscard]] std::shared_ptr<Object> find(Handle handle) const {
    const std::scoped_lock lock(mutex_);
    const auto found = live_.find(reinterpret_cast<Object*>(handle));
    return found == live_.end() ? nullptr : found->second;
  }
  /// Null if it is not there.
  template <class Handle>
  std::shared_ptr<Object> remove(Handle handle) {
    const std::scoped_lock lock(mutex_);
    const auto found = live_.find(reinterpret_cast<Object*>(handle));
    if (found == live_.end()) return nullptr;
    std::shared_ptr<Object> object = std::move(found->second);
    live_.erase(found);
    return object;
  }
  template <class Predicate>
  void remove_if(const Predicate& predicate) {
    const std::scoped_lock lock(mutex_);
    std::erase_if(live_, [&](const auto& entry) { return predicate(*entry.second); });
  }

 private:
  mutable std::mutex mutex_;
  std::map<Object*, std::shared_ptr<Object>> live_;  // guarded by mutex_
};

/// How far a stream is: work is numbered from 1.
struct Progress {
  std::mutex mutex;
  std::condition_variable changed;
  std::uint64_t done{0};  // guarded by mutex

  void wait_for(std::uint64_t number);
  [[nodiscard]] bool has_passed(std::uint64_t number);
  void pass(std::uint64_t number);
};

/// A point of a stream's work.
struct Point {
  std::shared_ptr<Progress> progress;
  std::uint64_t number{0};
  [[nodiscard]] bool has_passed() const { return !progress || progress->has_passed(number); }
  void wait() const {
    if (progress) progress->wait_for(number);
  }
};

struct Function;

struct Module {
  std::weak_ptr<Context> context;
  std::optional<gpu::exec::Program> program;
  std::mutex functions_mutex;
  std::map<std::size_t, std::weak_ptr<Function>>
      functions;  // by kernel; guarded by functions_mutex
};

/// A kernel of a module, as CUfunction and CUkernel.
struct Function {
  std::shared_ptr<Module> module;
  std::size_t kernel{0};
  CUmodule module_handle{nullptr};
  CUlibrary library_handle{nullptr};
  std::atomic<int> dynamic_shared_max{0};  // set by attribute; 0: the default
  std::atomic<int> carveout{-1};
  [[nodiscard]] const gpu::exec::KernelInfo& info() const {
    return module->program->kernels()[kernel];
  }
};

struct Library {
  std::shared_ptr<Module> module;
  CUmodule module_handle{nullptr};
};

// What a stream or a graph can do.

struct KernelLaunch {
  std::shared_ptr<Function> function;
  CUfunction handle{nullptr};
  std::array<std::uint32_t, 3> grid{}, block{};
  std::uint32_t shared_bytes{0};
  std::vector<std::byte> params;
  bool is_cooperative{false};
};
/// Copy of `height` * `depth` lines of `width` bytes.
struct Copy {
  const std::byte* from{nullptr};
  std::byte* to{nullptr};
  std::size_t width{0}, height{1}, depth{1};
  std::size_t from_pitch{0}, to_pitch{0};          // bytes from line to line
  std::size_t from_slice{0}, to_slice{0};          // bytes from slice to slice
  std::shared_ptr<std::vector<std::byte>> staged;  // what `from` points into, if it was copied
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

/// Does it, now, on the calling thread; an error is one of the context's from then on.
[[nodiscard]] CUresult execute(const std::shared_ptr<Context>& context, const Operation& operation);

/// When an event was last recorded.
struct Record {
  Point point;
  std::atomic<std::uint64_t> time_ns{0};
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
  const GraphNode* cloned_from{nullptr};
};

struct Graph {
  std::shared_ptr<Context> context;
  std::vector<std::unique_ptr<GraphNode>> nodes;  // in the order in which they were added
  bool is_child{false};

  GraphNode* add(CUgraphNodeType type, Operation operation, std::vector<GraphNode*> after);
  [[nodiscard]] bool holds(const GraphNode* node) const;
  /// Every node after those that it waits for, ties in order of addition; empty if there is a
  /// circle although there are nodes.
  [[nodiscard]] std::vector<GraphNode*> sorted() const;
  [[nodiscard]] std::shared_ptr<Graph> clone() const;
};

struct GraphExec {
  std::mutex mutex;
  std::shared_ptr<Graph> graph;  // a copy of its own; guarded by mutex
  unsigned long long flags{0};
};

/// What streams record instead of running it, between cuStreamBeginCapture and EndCapture.
struct Capture {
  std::uint64_t id{0};
  CUstreamCaptureMode mode{CU_STREAM_CAPTURE_MODE_GLOBAL};
  std::shared_ptr<Graph> graph;
  Stream* origin{nullptr};
  std::uint64_t thread{0};
  std::atomic<bool> is_invalid{false};
  std::vector<std::weak_ptr<Stream>> streams;  // guarded by the context's order_mutex
};

/// Work that runs in order on a thread of its own. Any thread.
class Stream : public std::enable_shared_from_this<Stream> {
 public:
  enum class Kind : std::uint8_t { kLegacy, kBlocking, kNonBlocking };
  Stream(std::shared_ptr<Context> context, Kind kind, int priority);

  /// Puts work behind what is there, and behind `after`; gives where it stands.
  Point submit(Operation operation, std::vector<Point> after);
  /// Where the last work stands.
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
  };
  void run();

  const std::shared_ptr<Context> context_;
  const Kind kind_;
  const int priority_;
  const std::uint64_t id_;
  const std::shared_ptr<Progress> progress_;
  mutable std::mutex mutex_;
  std::condition_variable came_;
  std::deque<Work> work_;                      // guarded by mutex_
  std::uint64_t submitted_{0};                 // guarded by mutex_
  bool has_thread_{false}, is_closed_{false};  // guarded by mutex_
};

struct MemoryPool {
  int device{0};
  bool is_default{false};
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

  /// The stream behind a handle (0, 1, 2 and what cuStreamCreate gave); null if there is none.
  [[nodiscard]] std::shared_ptr<Stream> find_stream(CUstream handle, bool is_per_thread);
  std::shared_ptr<Stream> make_stream(Stream::Kind kind, int priority);
  /// Submits to the stream, in the order that default streams ask for, or adds to its capture.
  CUresult enqueue(const std::shared_ptr<Stream>& stream, Operation operation, CUgraphNodeType type,
                   std::vector<Point> after = {}, Point* where = nullptr);
  /// Waits for all streams; gives the context's error.
  CUresult synchronize();
  void forget_dead_streams();  // order_mutex is held
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
  Device(int ordinal, gpu::exec::Memory memory, Telemetry* telemetry);

  const int ordinal;
  gpu::exec::Memory memory;
  Telemetry* const telemetry;  // null: this process could not map it
  TelemetrySlot* const slot;   // null: nobody will see this process
  Busy busy;
  MemoryPool default_pool;
  std::atomic<std::uint64_t> launches{0};  // kernels that the executor ran or refused at run time

  std::mutex mutex;
  std::shared_ptr<Context> primary;  // guarded by mutex
  CUcontext primary_handle{nullptr};
  unsigned primary_count{0}, primary_flags{0};
  MemoryPool* pool{&default_pool};

  [[nodiscard]] std::string name() const;
  [[nodiscard]] double speed() const;
  void note_memory();
  /// Waits as long as a slower device would have taken for what took `spent`.
  void slow_down(Nanos spent, const std::atomic<bool>& cancel) const;
};

/// Memory of cuMemCreate.
struct Physical {
  int fd{-1};
  std::size_t bytes{0};
  Device* device{nullptr};
  CUmemAllocationProp prop{};
  Physical() = default;
  Physical(const Physical&) = delete;
  Physical& operator=(const Physical&) = delete;
  ~Physical();
};

struct Link {
  std::string text;  // what the inputs amount to
  bool is_complete{false};
};

/// Everything of the process. Made by cuInit and never destroyed: threads of streams may run until
/// the very end.
struct Runtime {
  sys::RealClock clock;
  std::vector<std::unique_ptr<Device>> devices;
  std::optional<gpu::exec::Memory> host;  // pinned and registered memory, of all devices
  unsigned workers{1};
  Nanos time_limit{0};
  bool checks_hazards{false};

  Registry<Context> contexts;
  Registry<Stream> streams;
  Registry<Event> events;
  Registry<Module> modules;
  Registry<Function> functions;  // CUfunction and CUkernel
  Registry<Library> libraries;
  Registry<Graph> graphs;
  Registry<GraphExec> graph_execs;
  Registry<MemoryPool> pools;
  Registry<Physical> physical;
  Registry<Link> links;

  std::mutex pooled_mutex;
  std::map<CUdeviceptr, MemoryPool*> pooled;  // guarded by pooled_mutex: from cuMemAllocAsync
  std::mutex managed_mutex;
  std::map<CUdeviceptr, std::size_t> managed;  // guarded by managed_mutex
  std::mutex mapped_mutex;
  std::map<CUdeviceptr, std::pair<std::size_t, std::shared_ptr<Physical>>>
      mapped;  // by mapped_mutex
  std::mutex host_mutex;
  std::map<std::uintptr_t, unsigned> host_flags;  // guarded by host_mutex: of pinned memory
  std::mutex graph_mutex;  // graphs may be changed by one thread at a time; nodes by handle
  std::map<const GraphNode*, Graph*> nodes;  // guarded by graph_mutex
  std::atomic<std::uint64_t> next_id{1};

  /// The device whose memory holds the address, host memory excepted; null if none.
  [[nodiscard]] Device* device_of(std::uint64_t address) const;
  /// What [address, address + bytes) lies in: memory of a device or of the host that kernels see.
  [[nodiscard]] bool is_known(std::uint64_t address, std::size_t bytes) const;
  [[nodiscard]] bool is_pinned(const void* address, std::size_t bytes) const;
};

/// Null before cuInit.
[[nodiscard]] Runtime* runtime();
/// Once; CUDA_SUCCESS if there is at least one device.
CUresult start_runtime();

/// The current context of this thread, checked: CUDA_ERROR_NOT_INITIALIZED, INVALID_CONTEXT,
/// CONTEXT_IS_DESTROYED, or the context's own error.
[[nodiscard]] CUresult enter(std::shared_ptr<Context>& context);
/// The contexts of this thread, the current one last.
[[nodiscard]] std::vector<std::shared_ptr<Context>>& context_stack();
[[nodiscard]] CUcontext handle_of(const std::shared_ptr<Context>& context);

/// One line to stderr or to $KANSOKU_SOFTGPU_LOG; "off" there: nowhere.
void log_line(std::string_view text);

/// An image (PTX text, fatbin or its wrapper) as a loaded module; `log` gets what a JIT log would.
[[nodiscard]] CUresult load_image(const std::shared_ptr<Context>& context, const void* image,
                                  std::shared_ptr<Module>& module, std::string& log);

/// Checks the launch and takes the arguments in.
[[nodiscard]] CUresult make_launch(const std::shared_ptr<Function>& function, KernelLaunch& launch,
                                   void** params, void** extra);

#define KANSOKU_CU_TRY(expression)                                      \
  do {                                                                  \
    const ::kansoku::cuda::CUresult cu_status_ = (expression);          \
    if (cu_status_ != ::kansoku::cuda::CUDA_SUCCESS) return cu_status_; \
  } while (false)

/// An exported function of the driver interface.
#define KANSOKU_ENTRY extern "C" __attribute__((visibility("default"))) ::kansoku::cuda::CUresult
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

}  // namespace kansoku::softcuda
