// SPDX-License-Identifier: Apache-2.0
#include "capture/outside/tally.h"

#include <algorithm>
#include <utility>

namespace kansoku::capture::outside {
namespace {

constexpr std::int32_t kNotReady = 600;  // CUDA_ERROR_NOT_READY
constexpr std::size_t kErrorsMax = 1'024, kStubsMax = 262'144, kCostsMax = 65'536,
                      kLearningMax = 4'096, kCapturingMax = 65'536;

bool is_work(Kind kind) {
  return kind == Kind::kLaunch || kind == Kind::kCopy || kind == Kind::kSet;
}

bool goes_to_stream(Kind kind) {
  return is_work(kind) || kind == Kind::kGraphLaunch || kind == Kind::kHostFunction ||
         kind == Kind::kStreamMemory;
}

bool moves(Kind kind) {
  return kind == Kind::kCopy || kind == Kind::kSet;
}

}  // namespace

Tally::Tally(BootTime begin, bool is_whole, StubName stub_name)
    : stub_name_(std::move(stub_name)), busy_(begin, is_whole) {}

EntryCount& Tally::count_of(std::string_view function, Kind kind) {
  auto found = entries_.find(function);
  if (found == entries_.end()) {
    const std::string_view name = entries_.size() < kEntriesMax ? function : "other functions";
    found = entries_.try_emplace(std::string(name)).first;
    found->second.kind = kind;
  }
  return found->second;
}

std::optional<Launch> Tally::on_work(const Call& call, EntryCount& entry) {
  const Kind kind = call.entry->kind;
  const bool is_captured = graphs_.on_begin(call, names_);
  if (is_captured) ++entry.captured;
  const bool is_advice = kind == Kind::kAdvise && call.has(Key::kStream);
  if (!goes_to_stream(kind) && !is_advice) {
    if (kind == Kind::kEventRecord && !is_captured)
      busy_.on_event_record(call.number(Key::kEvent), stream_of(call), call.begin);
    return std::nullopt;
  }
  if (moves(kind) && is_captured && capturing_.size() < kCapturingMax) capturing_.insert(call.tid);
  if (moves(kind) && !is_captured) on_moved(call, entry, true);
  const GraphContents* graph = nullptr;
  if (kind == Kind::kGraphLaunch && !is_captured) {
    graph = graphs_.launched(call.number(Key::kExec));
    if (graph == nullptr) ++unknown_graph_launches_;
    if (graph != nullptr)
      for (const auto& [id, count] : graph->kernels)
        kernels_[id].by_graphs += count;
  }
  if (!is_captured)
    busy_.on_work(stream_of(call), call.begin,
                  is_work(kind) || (graph != nullptr && graph->is_work));
  if (kind != Kind::kLaunch) return std::nullopt;
  pairing_.on_launch(call);
  const KernelId id = call.has(Key::kFunction) ? names_.id_of(call.number(Key::kFunction)) : 0;
  ++(is_captured ? kernels_[id].captured : kernels_[id].launches);
  return Launch{id, is_captured};
}

/// Moved bytes count from the begin on; those of a call that fails are taken back.
void Tally::on_moved(const Call& call, EntryCount& entry, bool is_done) {
  const auto bytes = bytes_of(call);
  const std::uint64_t operations = operations_of(call), one = is_done ? 1 : ~std::uint64_t{0};
  entry.without_bytes += bytes ? 0 : one;
  entry.operations += one * operations;
  if (!bytes) return;
  entry.bytes += one * *bytes;
  if (call.entry->kind == Kind::kCopy) copied_[std::string(direction_of(call))] += one * *bytes;
}

std::optional<Launch> Tally::on_begin(std::string_view function, const Call& call) {
  if (call.entry->action == Action::kRuntimeLaunch) {
    pairing_.on_runtime_begin(call);
    return std::nullopt;
  }
  if (call.entry->action == Action::kForgetStubs) {
    stubs_.clear();
    learning_.clear();
  }
  if (call.entry->action == Action::kRegisterStub || call.entry->action == Action::kForgetStubs)
    return std::nullopt;
  EntryCount& entry = count_of(function, call.entry->kind);
  ++entry.begun;
  names_.on_begin(call);
  if (call.entry->action == Action::kStreamEnd) busy_.on_stream_end(stream_of(call));
  return on_work(call, entry);
}

void Tally::on_memory(const Call& call) {
  if (call.entry->is_host_memory) return;
  if (call.entry->kind == Kind::kAlloc) {
    const auto bytes = bytes_of(call);
    if (!bytes || !call.has(Key::kPointer) || allocations_.size() >= kAllocationsMax) {
      ++memory_.unknown_bytes;
      return;
    }
    memory_.allocated += *bytes;
    memory_.live += *bytes;
    memory_.high_water = std::max(memory_.high_water, memory_.live);
    std::uint64_t& place = allocations_[call.number(Key::kPointer)];
    memory_.live -= std::exchange(place, *bytes);  // its free was not seen
  } else if (call.entry->kind == Kind::kFree && call.number(Key::kPointer) != 0) {
    const auto found = allocations_.find(call.number(Key::kPointer));
    if (found == allocations_.end()) {
      ++memory_.unknown_frees;
      return;
    }
    memory_.freed += found->second;
    memory_.live -= found->second;
    allocations_.erase(found);
  }
}

void Tally::on_runtime_end(const Call& call) {
  const auto pair = pairing_.on_runtime_end(call);
  if (!pair) return;
  const KernelId id = names_.id_of(pair->handle);
  if (names_.kernel(id).is_named()) return;
  if (const auto stub = stubs_.find(pair->stub); stub != stubs_.end()) {
    names_.on_paired(pair->handle, stub->second);
    return;
  }
  const bool is_known = std::any_of(learning_.begin(), learning_.end(), [&](const Learning& one) {
    return one.id == id && one.stub == pair->stub;
  });
  if (stub_name_ && !is_known && learning_.size() < kLearningMax)
    learning_.push_back({pair->handle, pair->stub, id, {}});
}

void Tally::settle() {
  std::vector<Learning> rest;
  for (Learning& one : learning_) {
    if (names_.id_of(one.handle) != one.id) continue;  // it is another kernel's by now
    if (!one.name.empty()) {
      names_.on_paired(one.handle, one.name);
    } else if (auto name = stub_name_(one.stub); name && !name->empty()) {
      one.name = *std::move(name);
      rest.push_back(std::move(one));
    }
  }
  learning_ = std::move(rest);
}

void Tally::on_waited(const Call& call, BootTime end) {
  if (call.entry->kind == Kind::kQuery) {
    busy_.on_query(call, end, call.result() == 0);
    return;
  }
  ++waits_.count;
  waits_.time += end - call.begin;
  if (call.result() == 0) busy_.on_wait(call, end);
}

void Tally::on_end(std::string_view function, const Call& call, BootTime end) {
  switch (call.entry->action) {
    case Action::kRuntimeLaunch:
      return on_runtime_end(call);
    case Action::kRegisterStub:
      if (!call.name.empty() && !call.is_name_cut && stubs_.size() < kStubsMax)
        stubs_[call.number(Key::kStub)] = std::string(call.name);
      return;
    case Action::kForgetStubs:
      return;
    default:
      break;
  }
  const Kind kind = call.entry->kind;
  EntryCount& entry = count_of(function, kind);
  ++entry.ended;
  entry.time += end - call.begin;
  if (kind == Kind::kLaunch && launch_costs_.size() < kCostsMax)
    launch_costs_.push_back(end - call.begin);
  const std::int32_t result = call.result().value_or(0);
  const bool was_captured = moves(kind) && capturing_.erase(call.tid) != 0;
  if (kind == Kind::kSync || kind == Kind::kQuery || outside::waits(call)) on_waited(call, end);
  if (result != 0) {
    if (kind == Kind::kQuery && result == kNotReady) {
      ++entry.not_ready;
      return;
    }
    ++entry.failed;
    if (moves(kind) && !was_captured) on_moved(call, entry, false);
    if (errors_.size() < kErrorsMax || errors_.contains({std::string(function), result}))
      ++errors_[{std::string(function), result}];
    return;
  }
  names_.on_end(call);
  graphs_.on_end(call, names_);
  on_memory(call);
}

void Tally::forget() {
  names_.forget();
  graphs_.forget();
  pairing_.forget();
  learning_.clear();
  allocations_.clear();
  stubs_.clear();
  capturing_.clear();
  memory_.live = 0;
}

void Tally::on_loss(bool of_names) {
  busy_.on_loss();
  pairing_.forget();
  learning_.clear();
  if (!of_names) return;
  names_.forget();
  graphs_.forget();
  stubs_.clear();
}

Tally::Named Tally::named() const {
  Named out;
  for (const auto& [id, count] : kernels_) {
    const std::uint64_t launches = count.launches + count.by_graphs;
    out.launches += launches;
    if (!names_.kernel(id).is_named()) out.unnamed += launches;
  }
  return out;
}

}  // namespace kansoku::capture::outside
