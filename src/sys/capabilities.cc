// SPDX-License-Identifier: Apache-2.0
#include "sys/capabilities.h"

#include <linux/capability.h>
#include <linux/securebits.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <array>
#include <cerrno>

namespace kansoku::sys {
namespace {

constexpr int kNumbersMax = 64;  // of capabilities, in two words of 32

constexpr std::array<CapabilityInfo, 7> kKnown{{
    {Capability::kBpf, "CAP_BPF", "loading the programs of all probes"},
    {Capability::kPerfmon, "CAP_PERFMON", "attaching probes to functions and tracepoints"},
    {Capability::kSysPtrace, "CAP_SYS_PTRACE",
     "Python stacks, sockets and storage figures of other users' processes"},
    {Capability::kDacReadSearch, "CAP_DAC_READ_SEARCH",
     "programs and libraries that only their owner may read"},
    {Capability::kNetAdmin, "CAP_NET_ADMIN", "figures of TCP connections of other users"},
    {Capability::kCheckpointRestore, "CAP_CHECKPOINT_RESTORE",
     "libraries that were replaced under a running process"},
    {Capability::kSysAdmin, "CAP_SYS_ADMIN", "network namespaces of containers"},
}};

constexpr std::uint64_t bit(Capability capability) {
  return std::uint64_t{1} << static_cast<unsigned>(capability);
}

struct Sets {
  std::uint64_t effective{0}, permitted{0}, inheritable{0};
};

// The C library has no wrappers for these two; libcap would be one more library for it.
Result<Sets> read_sets() {
  __user_cap_header_struct header{_LINUX_CAPABILITY_VERSION_3, 0};
  std::array<__user_cap_data_struct, 2> words{};
  if (::syscall(SYS_capget, &header, words.data()) != 0)
    return errno_error(errno, "read", "capabilities");
  const auto wide = [&](auto member) {
    return std::uint64_t{words[1].*member} << 32 | words[0].*member;
  };
  return Sets{wide(&__user_cap_data_struct::effective), wide(&__user_cap_data_struct::permitted),
              wide(&__user_cap_data_struct::inheritable)};
}

Result<void> write_sets(const Sets& sets) {
  __user_cap_header_struct header{_LINUX_CAPABILITY_VERSION_3, 0};
  std::array<__user_cap_data_struct, 2> words{};
  for (unsigned i = 0; i < words.size(); ++i) {
    words[i].effective = static_cast<__u32>(sets.effective >> (32 * i));
    words[i].permitted = static_cast<__u32>(sets.permitted >> (32 * i));
    words[i].inheritable = static_cast<__u32>(sets.inheritable >> (32 * i));
  }
  if (::syscall(SYS_capset, &header, words.data()) != 0)
    return errno_error(errno, "give up", "capabilities");
  return {};
}

Result<void> control(int option, unsigned long first, unsigned long second,
                     std::string_view object) {
  if (::prctl(option, first, second, 0UL, 0UL) == 0) return {};
  return errno_error(errno, "give up", object);
}

/// Takes all but `kept` out of the bounding set.
Result<void> drop_bounding(std::uint64_t kept) {
  for (int number = 0; number < kNumbersMax; ++number) {
    const auto raw = static_cast<unsigned long>(number);
    const int state = ::prctl(PR_CAPBSET_READ, raw, 0UL, 0UL, 0UL);
    if (state < 0) break;  // the kernel knows no more
    if (state == 0 || (kept >> number & 1) != 0) continue;
    TRY_VOID(control(PR_CAPBSET_DROP, raw, 0, "capabilities of the bounding set"));
  }
  return {};
}

}  // namespace

std::span<const CapabilityInfo> known_capabilities() {
  return kKnown;
}

Result<std::uint64_t> effective_capabilities() {
  TRY(const Sets sets, read_sets());
  std::uint64_t known = 0;
  for (const CapabilityInfo& info : kKnown)
    known |= bit(info.capability);
  return sets.effective & known;
}

bool has_capability(std::uint64_t set, Capability capability) {
  const bool is_included = capability == Capability::kBpf || capability == Capability::kPerfmon ||
                           capability == Capability::kCheckpointRestore;
  return (set & bit(capability)) != 0 || (is_included && (set & bit(Capability::kSysAdmin)) != 0);
}

std::vector<CapabilityInfo> missing_capabilities(std::uint64_t set) {
  std::vector<CapabilityInfo> missing;
  for (const CapabilityInfo& info : kKnown) {
    if (info.capability != Capability::kSysAdmin && !has_capability(set, info.capability))
      missing.push_back(info);
  }
  return missing;
}

Result<void> keep_only(std::span<const Capability> kept) {
  std::uint64_t mask = 0;
  for (const Capability capability : kept)
    mask |= bit(capability);
  TRY(const Sets before, read_sets());
  // 1. New rights are refused: programs with rights of their own do not give them to us.
  TRY_VOID(control(PR_SET_NO_NEW_PRIVS, 1, 0, "new rights"));
  // 2. The bounding set, and what user 0 gets by being that; locked. Both take CAP_SETPCAP.
  constexpr unsigned long kNoRoot = SECBIT_NOROOT | SECBIT_NOROOT_LOCKED | SECBIT_NO_SETUID_FIXUP |
                                    SECBIT_NO_SETUID_FIXUP_LOCKED | SECBIT_KEEP_CAPS_LOCKED |
                                    SECBIT_NO_CAP_AMBIENT_RAISE |
                                    SECBIT_NO_CAP_AMBIENT_RAISE_LOCKED;
  constexpr std::uint64_t kSetpcap = std::uint64_t{1} << CAP_SETPCAP;
  if ((before.effective & kSetpcap) != 0) {
    TRY_VOID(drop_bounding(mask));
    TRY_VOID(control(PR_SET_SECUREBITS, kNoRoot, 0, "secure bits"));
  }
  // 3. The set that started programs inherit.
  TRY_VOID(control(PR_CAP_AMBIENT, PR_CAP_AMBIENT_CLEAR_ALL, 0, "ambient capabilities"));
  // 4. Our own.
  return write_sets({before.permitted & mask, before.permitted & mask, 0});
}

}  // namespace kansoku::sys
