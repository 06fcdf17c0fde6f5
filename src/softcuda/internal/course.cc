// SPDX-License-Identifier: Apache-2.0
// Operations in virtual time.
#include <algorithm>
#include <cmath>
#include <map>
#include <utility>

#include "softcuda/internal/runtime.h"

namespace kansoku::softcuda {
namespace {

/// Nanoseconds on the device as it is now: slower than the model if a setting says so.
std::uint64_t at_speed(const Device& device, std::uint64_t ns) {
  return static_cast<std::uint64_t>(std::llround(static_cast<double>(ns) / device.speed()));
}

std::uint64_t lead_of(const Course& course) {
  const TimeModel& model = runtime()->model;
  return course.is_in_graph ? model.node_latency_ns : model.launch_latency_ns;
}

Part part_of(const KernelLaunch& launch, const Course& course) {
  const std::uint64_t blocks = std::uint64_t{launch.grid[0]} * launch.grid[1] * launch.grid[2];
  Part part;
  part.engine = Engine::kCompute;
  part.sm_count =
      static_cast<std::uint32_t>(std::min<std::uint64_t>(blocks, runtime()->model.sm_count));
  part.lead_ns = lead_of(course);
  part.after = course.after;
  return part;
}

/// The graph's nodes in virtual time: each begins when those before it have ended.
class GraphCourse {
 public:
  explicit GraphCourse(Course& outer) : outer_(outer) {
    inner_ = std::move(outer);
    const std::uint64_t lead_ns = lead_of(inner_);
    inner_.is_in_graph = true;
    entry_ = join(lead_ns);
    ends_ = {entry_};
  }
  GraphCourse(const GraphCourse&) = delete;
  GraphCourse& operator=(const GraphCourse&) = delete;
  /// A graph ends in one place, also as a node of another one.
  ~GraphCourse() {
    inner_.after = std::move(ends_);
    join(0);
    outer_ = std::move(inner_);
  }

  CUresult run(const std::shared_ptr<Context>& context, const GraphNode& node) {
    inner_.after = {entry_};
    for (const GraphNode* const before : node.after)
      inner_.after.push_back(end_of_[before]);
    const std::size_t parts = inner_.parts.size();
    CUresult status = CUDA_SUCCESS;
    if (node.is_enabled) status = execute(context, node.operation, inner_);
    if (inner_.parts.size() == parts) join(0);
    end_of_[&node] = static_cast<std::uint32_t>(inner_.parts.size() - 1);
    ends_.push_back(end_of_[&node]);
    return status;
  }

 private:
  std::uint32_t join(std::uint64_t lead_ns) {
    Part part;
    part.lead_ns = lead_ns;
    inner_.add(std::move(part));
    return static_cast<std::uint32_t>(inner_.parts.size() - 1);
  }

  Course& outer_;
  Course inner_;
  std::uint32_t entry_{0};
  std::vector<std::uint32_t> ends_;
  std::map<const GraphNode*, std::uint32_t> end_of_;
};

}  // namespace

void Course::add(Part part) {
  part.after = after;
  part.ns += std::exchange(extra_ns, 0);
  parts.push_back(std::move(part));
}

Nanos Course::add(const Device& device, const KernelLaunch& launch,
                  const gpu::exec::LaunchCounts& counts) {
  const std::uint32_t resident = gpu::exec::resident_blocks_per_sm(
      launch.function->info, launch.block[0] * launch.block[1] * launch.block[2],
      launch.shared_bytes);
  Part part = part_of(launch, *this);
  part.ns = at_speed(device, kernel_ns(runtime()->model, counts, resident));
  const Nanos elapsed{static_cast<std::int64_t>(part.ns)};
  add(std::move(part));
  return elapsed;
}

void Course::add(const Device& device, const Copy& copy) {
  const TimeModel& model = runtime()->model;
  const std::uint64_t bytes = copy.width * copy.height * copy.depth;
  const auto device_at = [](const std::byte* place) {
    return runtime()->device_of(reinterpret_cast<std::uint64_t>(place));
  };
  const Device* const from = copy.staged == nullptr ? device_at(copy.from) : nullptr;
  const Device* const to = device_at(copy.to);
  Part part;
  part.lead_ns = model.copy_latency_ns;
  if (from == nullptr) {
    part.engine = Engine::kCopyIn;
    part.ns = transfer_ns(bytes, model.copy_in_gbps);
  } else if (to == nullptr) {
    part.engine = Engine::kCopyOut;
    part.ns = transfer_ns(bytes, model.copy_out_gbps);
  } else if (from != to) {
    part.engine = Engine::kCopyPeer;
    part.ns = transfer_ns(bytes, model.copy_peer_gbps);
  } else {
    part.engine = Engine::kCopyWithin;
    part.ns = copy_within_ns(model, bytes);
  }
  part.ns = at_speed(device, part.ns);
  add(std::move(part));
}

void Course::add(const Device& device, const Fill& fill) {
  const std::uint64_t bytes = fill.shape.width * fill.shape.elementSize * fill.shape.height;
  Part part;
  part.engine = Engine::kCopyWithin;
  part.lead_ns = lead_of(*this);
  part.ns = at_speed(device, transfer_ns(bytes, runtime()->model.memory_gbps));
  add(std::move(part));
}

void Course::add(const EventRecord& record) {
  Part part;
  part.stamp = {record.record, &record.record->time_ns};
  add(std::move(part));
}

void Course::add(const EventWait& wait) {
  Part part;
  part.outside = wait.record->point.moment;
  add(std::move(part));
}

void Course::add_host_call() {
  Part part;
  part.ns = runtime()->model.host_call_ns;
  add(std::move(part));
}

std::uint64_t Course::begin_of(const KernelLaunch& launch) const {
  return runtime()->timeline->begin_of(moment, parts, part_of(launch, *this));
}

CUresult execute(const std::shared_ptr<Context>& context, const Graph& graph, Course& course) {
  std::optional<GraphCourse> virtual_course;
  if (course.moment != nullptr) virtual_course.emplace(course);
  for (const GraphNode* const node : graph.sorted()) {
    CUresult status = CUDA_SUCCESS;
    if (virtual_course) {
      status = virtual_course->run(context, *node);
    } else if (node->is_enabled) {
      status = execute(context, node->operation, course);
    }
    if (status != CUDA_SUCCESS) return status;
  }
  return CUDA_SUCCESS;
}

std::uint64_t launch_count(const Operation& operation) {
  if (std::holds_alternative<KernelLaunch>(operation)) return 1;
  const auto* const child = std::get_if<ChildGraph>(&operation);
  if (child == nullptr) return 0;
  std::uint64_t count = 0;
  for (const auto& node : child->graph->nodes)
    count += node->is_enabled ? launch_count(node->operation) : 0;
  return count;
}

}  // namespace kansoku::softcuda
