// SPDX-License-Identifier: Apache-2.0
#include "cuda/device.h"

namespace kansoku::cuda {

Result<OwnedMemory> make_memory(Device& device, std::size_t bytes) {
  TRY(const auto pointer, device.allocate(bytes));
  return OwnedMemory(device, pointer);
}

Result<OwnedModule> make_module(Device& device, std::string_view image) {
  TRY(const auto module, device.load_module(image));
  return OwnedModule(device, module);
}

Result<OwnedStream> make_stream(Device& device, const StreamOptions& options) {
  TRY(const auto stream, device.create_stream(options));
  return OwnedStream(device, stream);
}

Result<OwnedEvent> make_event(Device& device) {
  TRY(const auto event, device.create_event());
  return OwnedEvent(device, event);
}

EventPool::~EventPool() {
  for (const EventId event : free_)
    static_cast<void>(device_.destroy_event(event));
}

Result<EventId> EventPool::take() {
  if (free_.empty()) {
    TRY(const auto event, device_.create_event());
    ++made_;
    return event;
  }
  const EventId event = free_.back();
  free_.pop_back();
  return event;
}

Result<void> upload(Device& device, DevicePointer to, ByteSpan from) {
  TRY_VOID(device.copy_to_device(to, from, StreamId{}));
  return device.synchronize(StreamId{});
}

Result<void> download(Device& device, std::span<std::byte> to, DevicePointer from) {
  TRY_VOID(device.copy_to_host(to, from, StreamId{}));
  return device.synchronize(StreamId{});
}

}  // namespace kansoku::cuda
