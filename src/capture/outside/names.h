// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "capture/outside/call.h"

namespace kansoku::capture::outside {

/// A kernel of a process, by its number; 0 stands for those over the limit.
using KernelId = std::uint32_t;

/// Names and attributes of a kernel.
struct Kernel {
  std::uint64_t handle{0};
  std::string name{};   // as the module has it; "" = not known
  std::string full{};   // demangled, or "function@0x..."
  std::string shown{};  // for people
  [[nodiscard]] bool is_named() const { return !name.empty(); }
};

/// Which kernel a handle of one process is. A name comes from the call that gave the handle out
/// and goes when the handle may mean something else: its module or library is unloaded, its context
/// is destroyed, records were lost. A handle that comes without a readable name gets none. So no
/// name that is given is wrong; a kernel without one is "function@0x...".
/// Bounded: kHandlesMax handles at a time, kKernelsMax kernels in all. Not shared between threads.
class Names {
 public:
  static constexpr std::size_t kHandlesMax = 65'536;
  static constexpr std::size_t kKernelsMax = 262'144;

  Names();

  /// The begin of a call: handles that it ends are unnamed from now on.
  void on_begin(const Call& call);
  /// The end of one that returned 0.
  void on_end(const Call& call);
  /// `handle` was seen to be the kernel of that (mangled) name. One that was seen to be another
  /// one, too, loses both names until it is given out again.
  void on_paired(std::uint64_t handle, std::string_view name);
  /// After exec, or lost records: nothing known holds any more. Kernels that were numbered stay.
  void forget();

  /// The kernel that a handle is now; one without a name if it was never seen.
  [[nodiscard]] KernelId id_of(std::uint64_t handle);
  [[nodiscard]] const Kernel& kernel(KernelId id) const { return kernels_.at(id); }
  [[nodiscard]] std::size_t kernel_count() const { return kernels_.size(); }

  struct Counters {
    std::uint64_t lookups{0};    // handles given out, with a name
    std::uint64_t paired{0};     // names by pairing
    std::uint64_t cut{0};        // names longer than a record
    std::uint64_t unread{0};     // handles given out whose name could not be read
    std::uint64_t conflicts{0};  // pairings that contradict a name: the handle lost it
    std::uint64_t forgotten{0};  // names that ended with module, library, context or a loss
    std::uint64_t over_limit{0};
  };
  [[nodiscard]] const Counters& counters() const { return counters_; }

 private:
  struct Known {
    KernelId id{0};
    std::uint64_t module{0}, library{0};  // that it ends with; 0: not known
    bool of_context{false};               // it ends with a context
    bool is_doubtful{false};              // pairings contradicted each other
  };
  void set(std::uint64_t handle, std::string_view name, Known owner);
  void on_function(const Call& call);
  template <class Ends>
  void drop_if(const Ends& ends);
  void end_context(const Call& call);
  KernelId add(std::uint64_t handle, std::string_view name);

  std::unordered_map<std::uint64_t, Known> handles_;
  std::unordered_map<std::uint64_t, std::uint64_t> library_of_;  // by module; bounded
  std::map<std::uint64_t, std::int64_t> retained_;               // by device; bounded
  std::vector<Kernel> kernels_;
  Counters counters_;
};

/// A launch of the runtime and the driver's inside it, on one thread, name the driver's handle: if
/// there is exactly one, of the same shape.
class Pairing {
 public:
  struct Pair {
    std::uint64_t handle{0}, stub{0};
  };
  void on_runtime_begin(const Call& call);
  void on_launch(const Call& call);
  /// The pair, if the call succeeded and it is certain.
  [[nodiscard]] std::optional<Pair> on_runtime_end(const Call& call);
  void forget() { open_.clear(); }

  [[nodiscard]] std::uint64_t refused() const { return refused_; }

 private:
  using Shape = std::array<std::uint64_t, 6>;
  struct Open {
    std::uint64_t stub{0};
    Shape shape{};
    std::uint64_t handle{0};
    std::size_t launches{0};  // of the driver, inside
    bool is_nested{false};    // a launch of the runtime inside: whose the driver's are is not known
    bool is_alike{false};
  };
  static Shape shape_of(const Call& call);
  std::unordered_map<std::int32_t, Open> open_;  // by thread; bounded
  std::uint64_t refused_{0};
};

}  // namespace kansoku::capture::outside
