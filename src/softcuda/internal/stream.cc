// SPDX-License-Identifier: Apache-2.0
// Streams: queues with a thread each, and the order between them.
#include <pthread.h>

#include <algorithm>
#include <functional>
#include <thread>
#include <utility>

#include "common/of_thread.h"
#include "softcuda/internal/counts.h"
#include "softcuda/internal/operation_log.h"
#include "softcuda/internal/runtime.h"

namespace kansoku::softcuda {

void Progress::wait_for(std::uint64_t number) {
  if (has_passed(number)) return;
  std::unique_lock lock(mutex);
  while (!has_passed(number)) {
    wanted = std::min(wanted, number);
    changed.wait(lock);
  }
}

void Progress::pass(std::uint64_t number) {
  {
    const std::scoped_lock lock(mutex);
    done.store(number, std::memory_order_release);
    // A waiter for the last of many is not woken by each of them.
    if (number < wanted) return;
    wanted = kNobody;
  }
  changed.notify_all();
}

void Record::reach(BootTime now) {
  host = now;
  time_ns = static_cast<std::uint64_t>(runtime()->event_clock.at(now).time_since_epoch().count());
  count(Done::kEvent);
}

namespace {

/// An event takes no turn of its own: it stands in the log at that of the operation before it.
void reach_at(Record& record, BootTime now, std::uint64_t stream, std::uint64_t number) {
  record.reach(now);
  OperationLog* const log = process_log();
  if (log == nullptr) return;
  OperationLog::Which which;
  which.what = Done::kEvent;
  which.stream = stream;
  which.number = number;
  const BootTime time = runtime()->event_clock.at(now);
  if (const auto row = log->add(which)) log->ran(*row, {now, now}, {time, time});
}

}  // namespace

void Point::reach() const {
  wait();
  if (moment != nullptr) runtime()->timeline->reach(moment);
}

Stream::Stream(std::shared_ptr<Context> context, Kind kind, int priority)
    : context_(std::move(context)),
      kind_(kind),
      priority_(priority),
      id_(runtime()->next_id++),
      progress_(std::make_shared<Progress>()) {}

Point Stream::submit(Operation operation, std::vector<Point> after) {
  Runtime& all = *runtime();
  const std::scoped_lock lock(mutex_);
  if (all.timeline != nullptr) {
    std::vector<std::shared_ptr<Moment>> moments{last_moment_};
    for (const Point& point : after)
      moments.push_back(point.moment);
    last_moment_ = all.timeline->submit(static_cast<std::size_t>(context_->device->ordinal),
                                        std::move(moments));
  }
  const std::uint64_t first_launch = all.next_launch.fetch_add(launch_count(operation));
  work_.push_back(
      {std::move(operation), std::move(after), ++submitted_, first_launch, last_moment_});
  if (!has_thread_) {
    has_thread_ = true;
    // The thread keeps the stream; it ends once the stream is closed and empty.
    std::thread([self = shared_from_this()] { self->run(); }).detach();
  }
  came_.notify_one();
  return {progress_, submitted_, last_moment_};
}

Point Stream::record(const std::shared_ptr<Record>& record) {
  const std::scoped_lock lock(mutex_);
  if (finished_ == submitted_) {
    reach_at(*record, runtime()->clock.now(), id_, submitted_);
  } else {
    records_.emplace_back(submitted_, record);
  }
  return {progress_, submitted_, nullptr};
}

void Stream::finish(std::uint64_t number) {
  {
    const std::scoped_lock lock(mutex_);
    finished_ = number;
    if (!records_.empty() && records_.front().first <= number) {
      const BootTime now = runtime()->clock.now();
      for (; !records_.empty() && records_.front().first <= number; records_.pop_front())
        reach_at(*records_.front().second, now, id_, number);
    }
  }
  progress_->pass(number);
}

Point Stream::last() const {
  const std::scoped_lock lock(mutex_);
  return {progress_, submitted_, last_moment_};
}

void Stream::close() {
  const std::scoped_lock lock(mutex_);
  is_closed_ = true;
  came_.notify_one();
}

void Stream::run() {
  pthread_setname_np(pthread_self(), "softgpu-stream");
  while (true) {
    Work work;
    {
      std::unique_lock lock(mutex_);
      came_.wait(lock, [this] { return !work_.empty() || is_closed_; });
      if (work_.empty()) {
        has_thread_ = false;  // late work still gets one
        return;
      }
      work = std::move(work_.front());
      work_.pop_front();
    }
    for (const Point& point : work.after)
      point.wait();
    const auto error = static_cast<CUresult>(context_->error.load());
    CUresult status = CUDA_SUCCESS;
    // After a fault nothing runs any more, but events are reached and memory is freed.
    const bool is_harmless = std::holds_alternative<EventRecord>(work.operation) ||
                             std::holds_alternative<FreeMemory>(work.operation) ||
                             std::holds_alternative<StreamCallback>(work.operation);
    Course course;
    course.moment = work.moment;
    course.next_launch = work.first_launch;
    course.stream = id_;
    course.number = work.number;
    if (error == CUDA_SUCCESS || is_harmless) status = execute(context_, work.operation, course);
    if (status != CUDA_SUCCESS) {
      int expected = CUDA_SUCCESS;
      context_->error.compare_exchange_strong(expected, status);
    }
    if (work.moment != nullptr) runtime()->timeline->finish(work.moment, std::move(course.parts));
    work.operation = Nothing{};  // its objects go before others see it done
    finish(work.number);
  }
}

void Context::forget_dead_streams() {
  std::erase_if(streams, [](const std::weak_ptr<Stream>& stream) { return stream.expired(); });
}

std::shared_ptr<Stream> Context::make_stream(Stream::Kind kind, int priority) {
  auto stream = std::make_shared<Stream>(shared_from_this(), kind, priority);
  const std::scoped_lock lock(order_mutex);
  forget_dead_streams();
  streams.push_back(stream);
  return stream;
}

namespace {

/// Streams of this thread, closed when it ends.
struct PerThread {
  std::map<std::uint64_t, std::shared_ptr<Stream>> by_context;
  ~PerThread() {
    for (auto& [id, stream] : by_context)
      stream->close();
  }
};

}  // namespace

std::shared_ptr<Stream> Context::find_stream(CUstream handle, bool is_per_thread) {
  if (handle == kPerThreadStream || (handle == nullptr && is_per_thread)) {
    auto& all = OfThread<PerThread>::get().by_context;
    std::erase_if(all,
                  [](const auto& entry) { return entry.second->context()->is_destroyed.load(); });
    auto& mine = all[id];
    if (mine == nullptr) mine = make_stream(Stream::Kind::kBlocking, 0);
    return mine;
  }
  if (handle == nullptr || handle == kLegacyStream) {
    {
      const std::scoped_lock lock(order_mutex);
      if (legacy != nullptr) return legacy;
    }
    auto made = std::make_shared<Stream>(shared_from_this(), Stream::Kind::kLegacy, 0);
    const std::scoped_lock lock(order_mutex);
    if (legacy == nullptr) legacy = std::move(made);
    return legacy;
  }
  return runtime()->streams.find(handle);
}

CUresult Context::add_order(const Stream& stream, std::vector<Point>& after) const {
  // In virtual time it may lie ahead although it has passed.
  const auto add = [&](Point last) {
    if (last.moment != nullptr || !last.has_passed()) after.push_back(std::move(last));
  };
  // The legacy default stream waits for all blocking streams, and they for it.
  if (stream.kind() == Stream::Kind::kLegacy) {
    if (const auto captured = capture_of_blocking(); captured != nullptr) {
      captured->is_invalid = true;
      return CUDA_ERROR_STREAM_CAPTURE_IMPLICIT;
    }
    for (const auto& weak : streams) {
      const auto other = weak.lock();
      if (other != nullptr && other->kind() == Stream::Kind::kBlocking) add(other->last());
    }
  } else if (stream.kind() == Stream::Kind::kBlocking && legacy != nullptr) {
    add(legacy->last());
  }
  return CUDA_SUCCESS;
}

CUresult Context::enqueue(const std::shared_ptr<Stream>& stream, Operation operation,
                          CUgraphNodeType type, std::vector<Point> after, Point* where) {
  const std::scoped_lock lock(order_mutex);
  if (stream->capture != nullptr) {
    if (stream->capture->is_invalid) return CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
    const std::scoped_lock graphs(runtime()->graph_mutex);
    GraphNode* const node =
        stream->capture->graph->add(type, std::move(operation), stream->capture_after);
    publish(*node);
    stream->capture_after = {node};
    return CUDA_SUCCESS;
  }
  KANSOKU_CU_TRY(add_order(*stream, after));
  const auto* const event = std::get_if<EventRecord>(&operation);
  const bool takes_no_turn = event != nullptr && after.empty() && runtime()->timeline == nullptr;
  const Point point = takes_no_turn ? stream->record(event->record)
                                    : stream->submit(std::move(operation), std::move(after));
  if (where != nullptr) *where = point;
  return CUDA_SUCCESS;
}

void Capture::abandon() {
  end();
  for (const auto& weak : streams) {
    const auto stream = weak.lock();
    if (stream == nullptr || stream->capture.get() != this) continue;
    stream->capture_after.clear();
    stream->capture = nullptr;
  }
}

std::shared_ptr<Capture> Context::capture_of_blocking() const {
  for (const auto& weak : streams) {
    const auto stream = weak.lock();
    if (stream != nullptr && stream->kind() == Stream::Kind::kBlocking &&
        stream->capture != nullptr)
      return stream->capture;
  }
  return nullptr;
}

bool Context::invalidate_capture(Stream& stream) {
  const std::scoped_lock lock(order_mutex);
  if (stream.capture == nullptr) return false;
  stream.capture->is_invalid = true;
  return true;
}

CUresult Context::synchronize() {
  {
    const std::scoped_lock lock(order_mutex);
    for (const auto& weak : streams) {
      const auto stream = weak.lock();
      if (stream == nullptr || stream->capture == nullptr) continue;
      stream->capture->is_invalid = true;
      return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
    }
  }
  return wait_for_all();
}

CUresult Context::wait_for_all() {
  std::vector<Point> points;
  {
    const std::scoped_lock lock(order_mutex);
    forget_dead_streams();
    if (legacy != nullptr) points.push_back(legacy->last());
    for (const auto& weak : streams) {
      if (const auto stream = weak.lock()) points.push_back(stream->last());
    }
  }
  for (const Point& point : points)
    point.reach();
  return static_cast<CUresult>(error.load());
}

std::uint64_t thread_number() {
  return std::hash<std::thread::id>{}(std::this_thread::get_id());
}

CUstreamCaptureMode& thread_capture_mode() {
  thread_local CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_GLOBAL;
  return mode;
}

bool& is_in_callback() {
  thread_local bool is_in = false;
  return is_in;
}

CUresult check_capture_modes() {
  const CUstreamCaptureMode mode = thread_capture_mode();
  if (mode == CU_STREAM_CAPTURE_MODE_RELAXED) return CUDA_SUCCESS;
  const std::scoped_lock lock(runtime()->captures_mutex);
  std::erase_if(runtime()->captures, [](const auto& weak) {
    const auto capture = weak.lock();
    return capture == nullptr || capture->is_over;
  });
  CUresult status = CUDA_SUCCESS;
  for (const auto& weak : runtime()->captures) {
    const auto capture = weak.lock();
    if (capture == nullptr || capture->mode == CU_STREAM_CAPTURE_MODE_RELAXED) continue;
    const bool is_mine = capture->thread == thread_number();
    const bool is_everybodys =
        mode == CU_STREAM_CAPTURE_MODE_GLOBAL && capture->mode == CU_STREAM_CAPTURE_MODE_GLOBAL;
    if (!is_mine && !is_everybodys) continue;
    capture->is_invalid = true;
    status = CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
  }
  return status;
}

}  // namespace kansoku::softcuda
