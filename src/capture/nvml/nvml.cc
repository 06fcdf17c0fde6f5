// SPDX-License-Identifier: Apache-2.0
// A call into the driver may hang for ever, so the library is only called in threads that may be
// left behind. A thread that is left behind keeps the state alive and the device it asks marked as
// busy; a new thread goes on with the other devices. So there are never more threads than devices
// and one.
#include <fmt/format.h>
#include <pthread.h>

#include <algorithm>
#include <condition_variable>
#include <cstdint>
#include <mutex>
#include <system_error>
#include <thread>
#include <utility>

#include "capture/nvml/counters.h"
#include "capture/nvml/internal/api.h"
#include "capture/nvml/internal/reader.h"
#include "sys/clock.h"

namespace kansoku::capture::nvml {
namespace {

constexpr unsigned kDevicesMax = 64;
constexpr int kEventsMax = 64;  // of one round

void add(DeviceCounterStats& to, const DeviceCounterStats& more) {
  to.failed_calls += more.failed_calls;
  to.hung_calls += more.hung_calls;
  to.lost += more.lost;
  to.odd_values += more.odd_values;
  to.processes_cut += more.processes_cut;
}

/// Item that one thread at a time may work on: a device, or the events of all.
struct Item {
  bool is_busy{false};  // a call is under way
  BootTime busy_since{};
  bool is_given_up{false};  // that call: another thread does the others
  bool is_lost{false};
  BootTime next_try{};  // when lost
  Nanos pause{0};
};

struct Device : Item {
  explicit Device(DeviceReader made) : reader(std::move(made)) {}
  DeviceReader reader;  // belongs to the thread that made is_busy true
  api::Handle event_set{
      nullptr};  // one each: a device that is lost makes every wait for its set fail
  DeviceSample sample;
};

/// Shared by the object and its threads. Members below `mutex` are guarded by it.
struct State {
  State(const api::Api& functions, NvmlOptions chosen)
      : api(functions), options(std::move(chosen)) {}
  const api::Api api;
  const NvmlOptions options;

  std::mutex mutex;
  std::condition_variable wake, done;
  bool is_over{false};
  std::uint64_t generation{0};  // of the thread in charge
  int threads{0};
  std::uint64_t asked{0}, finished{0};  // rounds
  BootTime now{};                       // of the latest round asked for
  std::optional<Result<void>> opened;
  std::vector<DeviceInfo> infos;
  std::vector<std::unique_ptr<Device>> devices;
  Item events;  // of all devices
  DeviceCounterStats stats;
};

using Shared = std::shared_ptr<State>;
using Lock = std::unique_lock<std::mutex>;

void make_event_sets(const api::Api& api, const std::vector<std::unique_ptr<Device>>& devices,
                     DeviceCounterStats& stats) {
  if (api.event_set == nullptr || api.register_events == nullptr || api.wait == nullptr) return;
  for (const auto& device : devices) {
    api::Handle set = nullptr;
    if (api.event_set(&set) != api::kSuccess || set == nullptr) {
      ++stats.failed_calls;
      continue;
    }
    const api::Handle handle = device->reader.device();
    unsigned long long types = api::kEventXid;
    int status = api::kSuccess;
    if (api.event_types != nullptr) status = api.event_types(handle, &types);
    if (status == api::kSuccess && (types & api::kEventXid) == 0) status = api::kNotSupported;
    if (status == api::kSuccess) status = api.register_events(handle, api::kEventXid, set);
    if (status == api::kSuccess) {
      device->event_set = set;
      continue;
    }
    // After a failure a set is not to be used.
    if (api.free_event_set != nullptr) api.free_event_set(set);
    if (status != api::kNotSupported) ++stats.failed_calls;
  }
}

/// The library keeps sets beyond its shutdown. Only where no other thread is left that may wait.
void free_event_sets(State& state) {
  if (state.api.free_event_set == nullptr) return;
  for (const auto& device : state.devices)
    if (device->event_set != nullptr)
      state.api.free_event_set(std::exchange(device->event_set, nullptr));
}

/// Starts the library and finds the devices; without the lock, before there is anything to share.
Result<void> start(State& state, std::vector<std::unique_ptr<Device>>& devices,
                   std::vector<DeviceInfo>& infos, DeviceCounterStats& stats) {
  const int status = state.api.init();
  if (status != api::kSuccess) return api::start_error(status);
  unsigned count = 0;
  if (const int counted = state.api.count(&count); counted != api::kSuccess) {
    state.api.shutdown();
    return api::start_error(counted);
  }
  if (count > kDevicesMax) ++stats.odd_values;
  for (unsigned i = 0; i < std::min(count, kDevicesMax); ++i) {
    api::Handle handle = nullptr;
    if (state.api.by_index(i, &handle) != api::kSuccess || handle == nullptr) {
      ++stats.failed_calls;  // a device that fell off the bus has an index and no handle
      continue;
    }
    auto device = std::make_unique<Device>(DeviceReader(state.api, handle, i));
    device->sample.index = i;
    infos.push_back(device->reader.info());
    add(stats, device->reader.take_stats());
    devices.push_back(std::move(device));
  }
  if (devices.empty()) {
    state.api.shutdown();
    return Error{Code::kNotFound, fmt::format("NVML {}: no device", state.options.library),
                 "check with nvidia-smi, which should show none either; in a container, pass the "
                 "devices in"};
  }
  // Two devices a round take 80 ms where the driver measures PCIe itself.
  for (const auto& device : devices)
    device->reader.measure_pcie_in_turns((devices.size() + 1) / 2);
  make_event_sets(state.api, devices, stats);
  return {};
}

bool is_due(const Item& item, BootTime now) {
  return !item.is_busy && (!item.is_lost || now >= item.next_try);
}

void lose(State& state, Item& item) {
  item.pause =
      item.is_lost ? std::min(item.pause * 2, state.options.retry_max) : state.options.retry_first;
  item.is_lost = true;
  item.next_try = state.now + item.pause;
}

/// Reads XIDs until there are none. Gives the lock up meanwhile.
void take_events(State& state, Lock& lock) {
  for (const auto& device : state.devices) {
    for (int i = 0; i < kEventsMax && device->event_set != nullptr; ++i) {
      api::Event event{};
      lock.unlock();
      const int status = state.api.wait(device->event_set, &event, 0);
      lock.lock();
      if (!state.events.is_given_up) state.events.is_lost = false;
      if (status != api::kSuccess) {
        if (status != api::kWaitTimeout && status != api::kGpuIsLost) ++state.stats.failed_calls;
        break;
      }
      if (event.type != api::kEventXid) continue;
      ++device->sample.xid_count;
      device->sample.last_xid = event.data;
    }
  }
}

void read_device(State& state, Device& device, Lock& lock) {
  const BootTime now = state.now;
  DeviceFigures figures;
  lock.unlock();
  const bool is_there = device.reader.read(now, figures);
  const DeviceCounterStats stats = device.reader.take_stats();
  lock.lock();
  add(state.stats, stats);
  if (device.is_given_up) {  // it has answered at last, but of a time long past
    device.reader.forget_window();
    return;
  }
  if (!is_there) {
    if (!device.is_lost) ++state.stats.lost;
    lose(state, device);
    return;
  }
  device.is_lost = false;
  device.sample.figures = std::move(figures);
  device.sample.read_at = now;
}

/// The rates of PCIe, when some time has passed since the devices were read.
void read_pcie_rates(State& state, Device& device, Lock& lock) {
  if (!device.reader.wants_second_look() || device.is_lost) return;
  DeviceFigures figures;
  lock.unlock();
  device.reader.second_look(figures);
  const DeviceCounterStats stats = device.reader.take_stats();
  lock.lock();
  add(state.stats, stats);
  if (device.is_given_up) return;
  device.sample.figures.pcie_sent_per_s = figures.pcie_sent_per_s;
  device.sample.figures.pcie_received_per_s = figures.pcie_received_per_s;
}

/// Work on one item with the flags around it. False: this thread was given up meanwhile.
template <class Work>
bool work_on(State& state, Item& item, std::uint64_t generation, Work work) {
  if (!is_due(item, state.now)) return true;
  item.is_busy = true;
  item.busy_since = state.now;
  work();
  item.is_busy = item.is_given_up = false;
  return state.generation == generation;
}

/// Until the device's counters of PCIe may be looked at again. False: this thread is of no use any
/// more.
bool await_second_look(State& state, const Device& device, std::uint64_t generation, Lock& lock) {
  const auto is_over = [&] { return state.is_over || state.generation != generation; };
  if (!device.is_busy && device.reader.wants_second_look()) {
    const sys::RealClock clock;  // whatever time the rounds are of
    const Nanos left = device.reader.second_look_at() - clock.now();
    state.wake.wait_for(lock, std::max(left, Nanos{}), is_over);
  }
  return !is_over();
}

void serve(State& state, std::uint64_t generation, Lock& lock) {
  while (true) {
    state.wake.wait(lock, [&] {
      return state.is_over || state.generation != generation || state.asked != state.finished;
    });
    if (state.is_over || state.generation != generation) return;
    const std::uint64_t round = state.asked;
    if (!work_on(state, state.events, generation, [&] { take_events(state, lock); })) return;
    for (const auto& device : state.devices)
      if (!work_on(state, *device, generation, [&] { read_device(state, *device, lock); })) return;
    for (const auto& device : state.devices) {
      if (!await_second_look(state, *device, generation, lock) ||
          !work_on(state, *device, generation, [&] { read_pcie_rates(state, *device, lock); }))
        return;
    }
    state.finished = round;
    state.done.notify_all();
  }
}

void run(const Shared& state, std::uint64_t generation) {
  pthread_setname_np(pthread_self(), "kansoku-nvml");
  Lock lock(state->mutex);
  if (!state->opened) {
    std::vector<std::unique_ptr<Device>> devices;
    std::vector<DeviceInfo> infos;
    DeviceCounterStats stats;
    lock.unlock();
    Result<void> opened = start(*state, devices, infos, stats);
    lock.lock();
    state->devices = std::move(devices);
    state->infos = std::move(infos);
    add(state->stats, stats);
    state->opened = std::move(opened);
    state->done.notify_all();
  }
  if (state->opened->has_value()) serve(*state, generation, lock);
  const bool is_last = state->threads == 1 && state->is_over && state->opened->has_value();
  if (is_last) {
    lock.unlock();
    free_event_sets(*state);
    state->api.shutdown();
    lock.lock();
  }
  --state->threads;
  state->done.notify_all();
}

/// Starts the thread of the present generation; with the lock held.
Result<void> start_thread(const Shared& state) {
  try {
    std::thread([state, generation = state->generation] { run(state, generation); }).detach();
  } catch (const std::system_error& error) {
    return Error{Code::kLimit, fmt::format("start a thread for NVML: {}", error.what()),
                 "raise the limit of tasks of this service"};
  }
  ++state->threads;
  return {};
}

class Nvml final : public DeviceCounters {
 public:
  Nvml(Shared state, std::vector<DeviceInfo> infos)
      : state_(std::move(state)), infos_(std::move(infos)) {}
  ~Nvml() override {
    Lock lock(state_->mutex);
    state_->is_over = true;
    state_->wake.notify_all();
    state_->done.wait_for(lock, state_->options.deadline, [this] { return state_->threads == 0; });
  }

  [[nodiscard]] const std::vector<DeviceInfo>& devices() const override { return infos_; }

  [[nodiscard]] std::vector<DeviceSample> sample(BootTime now) override {
    Lock lock(state_->mutex);
    state_->now = std::max(state_->now, now);
    give_up_hung();
    const std::uint64_t round = ++state_->asked;
    state_->wake.notify_all();
    state_->done.wait_for(lock, state_->options.deadline,
                          [&] { return state_->finished >= round; });
    std::vector<DeviceSample> out;
    out.reserve(state_->devices.size());
    for (const auto& device : state_->devices) {
      out.push_back(device->sample);
      out.back().is_lost = device->is_lost;
    }
    return out;
  }

  [[nodiscard]] DeviceCounterStats stats() const override {
    const Lock lock(state_->mutex);
    return state_->stats;
  }

 private:
  /// A call that takes too long loses its device; a new thread does the others. With the lock held.
  void give_up_hung() {
    State& state = *state_;
    bool is_stuck = false;
    const auto give_up_if_hung = [&](Item& item) {
      if (!item.is_busy || item.is_given_up) return;
      if (state.now - item.busy_since < state.options.hang_after) return;
      ++state.stats.hung_calls;
      if (!item.is_lost) ++state.stats.lost;
      lose(state, item);
      item.is_given_up = is_stuck = true;
    };
    give_up_if_hung(state.events);
    for (const auto& device : state.devices)
      give_up_if_hung(*device);
    if (!is_stuck) return;
    ++state.generation;
    // Without a new thread nothing is read any more and the ages of all samples show it.
    if (!start_thread(state_)) ++state.stats.failed_calls;
  }

  Shared state_;
  std::vector<DeviceInfo> infos_;
};

}  // namespace

Result<std::unique_ptr<DeviceCounters>> open_nvml(const NvmlOptions& options) {
  TRY(const api::Api functions, api::load(options.library));
  const auto state = std::make_shared<State>(functions, options);
  Lock lock(state->mutex);
  TRY_VOID(start_thread(state));
  if (!state->done.wait_for(lock, options.open_deadline,
                            [&] { return state->opened.has_value(); })) {
    state->is_over = true;
    return Error{
        Code::kTimeout,
        fmt::format(
            "start NVML {}: no answer within {} ms", options.library,
            std::chrono::duration_cast<std::chrono::milliseconds>(options.open_deadline).count()),
        "the driver may hang; check `dmesg`"};
  }
  TRY_VOID(*state->opened);
  return std::unique_ptr<DeviceCounters>(std::make_unique<Nvml>(state, state->infos));
}

}  // namespace kansoku::capture::nvml
