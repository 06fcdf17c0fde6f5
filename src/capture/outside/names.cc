// SPDX-License-Identifier: Apache-2.0
#include "capture/outside/names.h"

#include <fmt/format.h>

#include "sys/elf.h"
#include "sys/kernel_name.h"

namespace kansoku::capture::outside {
namespace {

constexpr std::size_t kDemangledMax = std::size_t{1} << 20;
constexpr std::size_t kModulesMax = 65'536, kDevicesMax = 256, kThreadsMax = 65'536;

}  // namespace

Names::Names() {
  kernels_.push_back({.full = "other kernels", .shown = "other kernels"});
}

KernelId Names::add(std::uint64_t handle, std::string_view name) {
  if (kernels_.size() >= kKernelsMax) {
    ++counters_.over_limit;
    return 0;
  }
  Kernel made{.handle = handle, .name = std::string(name)};
  if (name.empty()) {
    made.full = made.shown = fmt::format("function@{:#x}", handle);
  } else {
    made.full = sys::demangle(made.name, kDemangledMax);
    made.shown = sys::short_kernel_name(made.name);
  }
  kernels_.push_back(std::move(made));
  return static_cast<KernelId>(kernels_.size() - 1);
}

KernelId Names::id_of(std::uint64_t handle) {
  const auto known = handles_.find(handle);
  if (known != handles_.end()) return known->second.id;
  if (handles_.size() >= kHandlesMax) {
    ++counters_.over_limit;
    return 0;
  }
  const KernelId id = add(handle, {});
  // Its owner was never seen: it ends when anything ends.
  handles_.emplace(handle, Known{.id = id, .of_context = true});
  return id;
}

void Names::set(std::uint64_t handle, std::string_view name, Known owner) {
  if (handle == 0) return;
  const auto known = handles_.find(handle);
  if (known == handles_.end() && handles_.size() >= kHandlesMax) {
    ++counters_.over_limit;
    return;
  }
  // Asked for once more, it is the same kernel.
  const bool is_same =
      known != handles_.end() && !name.empty() && kernels_[known->second.id].name == name &&
      known->second.module == owner.module && known->second.library == owner.library;
  if (is_same) return;
  owner.id = add(handle, name);
  handles_[handle] = owner;
}

template <class Ends>
void Names::drop_if(const Ends& ends) {
  for (auto known = handles_.begin(); known != handles_.end();) {
    if (!ends(known->second)) {
      ++known;
      continue;
    }
    if (kernels_[known->second.id].is_named()) ++counters_.forgotten;
    known = handles_.erase(known);
  }
}

void Names::end_context(const Call& call) {
  if (call.has(Key::kDevice)) {
    std::int64_t& count = retained_[call.number(Key::kDevice)];
    // The primary context lives as long as somebody holds it.
    const bool is_release = call.entry->name == "cuDevicePrimaryCtxRelease";
    if (is_release && --count > 0) return;
    if (count < 0) count = 0;
    if (retained_.size() > kDevicesMax) retained_.clear();
  }
  drop_if([](const Known& known) { return known.of_context; });
}

void Names::on_begin(const Call& call) {
  switch (call.entry->action) {
    case Action::kModuleUnload: {
      const std::uint64_t module = call.number(Key::kModule);
      drop_if([&](const Known& known) {
        return known.module == module || (known.module == 0 && known.library == 0);
      });
      library_of_.erase(module);
      return;
    }
    case Action::kLibraryUnload: {
      const std::uint64_t library = call.number(Key::kLibrary);
      drop_if([&](const Known& known) {
        return known.library == library || (known.module == 0 && known.library == 0);
      });
      std::erase_if(library_of_, [&](const auto& one) { return one.second == library; });
      return;
    }
    case Action::kContextEnd:
      end_context(call);
      return;
    default:
      return;
  }
}

void Names::on_function(const Call& call) {
  if (!call.has(Key::kFunction)) return;  // given out, and nobody knows which
  const std::uint64_t handle = call.number(Key::kFunction);
  Known owner;
  std::string_view name = call.name;
  std::string of_kernel;
  if (call.entry->action == Action::kGetFunction) {
    owner.module = call.number(Key::kModule);
    owner.of_context = true;
    if (const auto library = library_of_.find(owner.module); library != library_of_.end())
      owner.library = library->second;
  } else if (call.entry->action == Action::kGetKernel) {
    owner.library = call.number(Key::kLibrary);
  } else {
    const auto kernel = handles_.find(call.number(Key::kKernel));
    if (kernel != handles_.end()) {
      owner = kernel->second;
      of_kernel = kernels_[owner.id].name;
      name = of_kernel;
    }
    owner.of_context = true;
    owner.is_doubtful = false;
  }
  if (call.is_name_cut) {
    ++counters_.cut;
    name = {};
  } else if (name.empty()) {
    ++counters_.unread;
  } else {
    ++counters_.lookups;
  }
  set(handle, name, owner);
}

void Names::on_end(const Call& call) {
  switch (call.entry->action) {
    case Action::kGetFunction:
    case Action::kGetKernel:
    case Action::kKernelGetFunction:
      on_function(call);
      return;
    case Action::kTellName:
      if (!call.name.empty() && !call.is_name_cut && call.has(Key::kFunction))
        on_paired(call.number(Key::kFunction), call.name);
      return;
    case Action::kLibraryGetModule:
      if (library_of_.size() < kModulesMax && call.has(Key::kModule))
        library_of_[call.number(Key::kModule)] = call.number(Key::kLibrary);
      return;
    case Action::kModuleLoad: {
      // The earlier owner of this handle was unloaded unseen.
      const std::uint64_t module = call.number(Key::kModule);
      if (call.has(Key::kModule))
        drop_if([&](const Known& known) { return known.module == module; });
      library_of_.erase(module);
      return;
    }
    case Action::kLibraryLoad: {
      const std::uint64_t library = call.number(Key::kLibrary);
      if (call.has(Key::kLibrary))
        drop_if([&](const Known& known) { return known.library == library; });
      return;
    }
    case Action::kContextRetain:
      ++retained_[call.number(Key::kDevice)];
      return;
    default:
      return;
  }
}

void Names::on_paired(std::uint64_t handle, std::string_view name) {
  if (name.empty() || handle == 0) return;
  static_cast<void>(id_of(handle));
  const auto known = handles_.find(handle);
  if (known == handles_.end() || known->second.is_doubtful || known->second.id == 0) return;
  Kernel& kernel = kernels_[known->second.id];
  if (!kernel.is_named()) {
    kernel.name = std::string(name);
    kernel.full = sys::demangle(kernel.name, kDemangledMax);
    kernel.shown = sys::short_kernel_name(kernel.name);
    ++counters_.paired;
    return;
  }
  // A stub tells the name as the host has it, which may differ from the module's in how it is
  // mangled: the kernel is the same if people see the same.
  if (kernel.name == name || kernel.shown == sys::short_kernel_name(std::string(name))) return;
  ++counters_.conflicts;
  known->second.id = add(handle, {});
  known->second.is_doubtful = true;
}

void Names::forget() {
  drop_if([](const Known&) { return true; });
  library_of_.clear();
  retained_.clear();
}

Pairing::Shape Pairing::shape_of(const Call& call) {
  if (!call.has(Key::kGridXY))
    return {call.number(Key::kGridX),  call.number(Key::kGridY),  call.number(Key::kGridZ),
            call.number(Key::kBlockX), call.number(Key::kBlockY), call.number(Key::kBlockZ)};
  constexpr std::uint64_t kLow = 0xffffffff;
  const std::uint64_t grid = call.number(Key::kGridXY), block = call.number(Key::kBlockXY);
  return {grid & kLow,  grid >> 32,  call.number(Key::kGridZ),
          block & kLow, block >> 32, call.number(Key::kBlockZ)};
}

void Pairing::on_runtime_begin(const Call& call) {
  if (const auto open = open_.find(call.tid); open != open_.end()) {
    open->second.is_nested = true;
    return;
  }
  if (open_.size() >= kThreadsMax || !call.has(Key::kStub)) return;
  open_[call.tid] = {.stub = call.number(Key::kStub), .shape = shape_of(call)};
}

void Pairing::on_launch(const Call& call) {
  const auto open = open_.find(call.tid);
  if (open == open_.end()) return;
  ++open->second.launches;
  open->second.handle = call.number(Key::kFunction);
  open->second.is_alike = call.has(Key::kBlockZ) && shape_of(call) == open->second.shape;
}

std::optional<Pairing::Pair> Pairing::on_runtime_end(const Call& call) {
  const auto found = open_.find(call.tid);
  if (found == open_.end()) return std::nullopt;
  const Open open = found->second;
  open_.erase(found);
  if (call.result() != 0 || open.launches == 0) return std::nullopt;
  if (open.is_nested || open.launches != 1 || !open.is_alike || open.handle == 0) {
    ++refused_;
    return std::nullopt;
  }
  return Pair{open.handle, open.stub};
}

}  // namespace kansoku::capture::outside
