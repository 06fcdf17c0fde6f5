// SPDX-License-Identifier: Apache-2.0
// Names of control groups that container runtimes choose (second-hand: their sources):
//   /docker/ID                                            docker with the driver cgroupfs
//   /system.slice/docker-ID.scope                         docker with systemd
//   /kubepods/burstable/podUID/ID                         Kubernetes with cgroupfs
//   /kubepods.slice/kubepods-podU_I_D.slice/cri-containerd-ID.scope   and crio-, docker-
//   /kubepods-podU_I_D.slice:cri-containerd:ID            containerd told otherwise than kubelet
//   /machine.slice/libpod-ID.scope                        podman
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <utility>

#include "sys/cgroup.h"
#include "sys/fd.h"
#include "sys/internal/kept_file.h"

namespace kansoku::sys {
namespace {

constexpr std::size_t kContainerBytesMax = 64 << 10;
constexpr std::size_t kIdDigits = 64, kUidLetters = 36;

bool is_hex(char c) {
  return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f');
}

/// The uid behind "pod" in a name, with dashes.
std::optional<std::string> pod_uid_of(std::string_view name) {
  const std::size_t at = name.rfind("pod");
  if (at == std::string_view::npos || name.size() - at < 3 + kUidLetters) return std::nullopt;
  std::string uid(name.substr(at + 3, kUidLetters));
  for (std::size_t i = 0; i < uid.size(); ++i) {
    const bool is_dash = i == 8 || i == 13 || i == 18 || i == 23;
    if (is_dash ? uid[i] != '-' && uid[i] != '_' : !is_hex(uid[i])) return std::nullopt;
    if (is_dash) uid[i] = '-';
  }
  return uid;
}

/// A name that ends in an id, and what stands before it.
std::optional<Container> named_container(std::string_view name, std::string_view parent) {
  constexpr std::string_view kScope = ".scope";
  if (name.ends_with(kScope)) name.remove_suffix(kScope.size());
  if (name.size() < kIdDigits) return std::nullopt;
  const std::string_view id = name.substr(name.size() - kIdDigits);
  std::string_view prefix = name.substr(0, name.size() - kIdDigits);
  if (!std::all_of(id.begin(), id.end(), is_hex)) return std::nullopt;
  if (!prefix.empty() && !prefix.ends_with('-') && !prefix.ends_with(':')) return std::nullopt;
  // Programs that look after a container, outside of it.
  if (prefix.ends_with("conmon-")) return std::nullopt;
  constexpr std::array<std::pair<std::string_view, std::string_view>, 6> kRuntimes{{
      {"docker-", "docker"},
      {"cri-containerd-", "containerd"},
      {"cri-containerd:", "containerd"},
      {"crio-", "cri-o"},
      {"crio:", "cri-o"},
      {"libpod-", "podman"},
  }};
  Container out{.runtime = {}, .id = std::string(id), .pod_uid = {}};
  for (const auto& [ending, runtime] : kRuntimes) {
    if (prefix.ends_with(ending)) out.runtime = runtime;
  }
  if (prefix.empty() && parent == "docker") out.runtime = "docker";
  return out;
}

}  // namespace

std::optional<Container> parse_container(std::string_view untrusted) {
  std::optional<Container> found;
  while (!untrusted.empty() && !found) {
    std::string_view path = cut_line(untrusted);
    const std::size_t begin = path.find('/');
    if (begin == std::string_view::npos) continue;
    path.remove_prefix(begin);
    std::string_view parent;
    std::string pod_uid;
    while (!path.empty()) {
      const std::size_t end = std::min(path.find('/', 1), path.size());
      const std::string_view name = path.substr(1, end - 1);
      path.remove_prefix(end);
      if (auto uid = pod_uid_of(name)) pod_uid = std::move(*uid);
      if (auto container = named_container(name, parent)) found = std::move(container);
      parent = name;
    }
    if (found) found->pod_uid = pod_uid;
  }
  return found;
}

std::optional<Container> container_of(std::int32_t pid, const std::string& proc_root) {
  const auto text = read_file(fmt::format("{}/{}/cgroup", proc_root, pid), kContainerBytesMax);
  return text ? parse_container(*text) : std::nullopt;
}

}  // namespace kansoku::sys
