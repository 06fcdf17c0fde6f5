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

Result<OwnedStream> make_stream(Device& device) {
  TRY(const auto stream, device.create_stream());
  return OwnedStream(device, stream);
}

Result<OwnedEvent> make_event(Device& device) {
  TRY(const auto event, device.create_event());
  return OwnedEvent(device, event);
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
