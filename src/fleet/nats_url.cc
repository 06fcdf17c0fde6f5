// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <string_view>

#include "common/parse.h"
#include "common/text.h"
#include "fleet/nats_bus.h"

namespace kansoku::fleet {
namespace {

constexpr std::size_t kUrlBytesMax = 4096;
constexpr std::size_t kServersMax = 64;

Error bad_url(std::string_view why) {
  return Error{
      Code::kUnsupported, fmt::format("read NATS url: {}", why),
      "write it like nats://host:4222, tls://user:password@host:4222 or nats://token@host"};
}

bool is_host_char(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '-' ||
         c == '.' || c == '_';
}

/// "host", "host:port" or "[::1]:port" with a port.
Result<std::string> address_of(std::string_view text) {
  while (text.ends_with('/'))
    text.remove_suffix(1);
  std::size_t host_end = text.find(':');
  if (text.starts_with('[')) {
    const std::size_t end = text.find(']');
    if (end == std::string_view::npos) return bad_url("an address without a closing ]");
    const std::string_view inside = text.substr(1, end - 1);
    if (inside.empty() || !std::all_of(inside.begin(), inside.end(),
                                       [](char c) { return c == ':' || is_host_char(c); }))
      return bad_url("malformed address");
    host_end = end + 1;
  } else {
    const std::string_view host = text.substr(0, host_end);
    if (host.empty()) return bad_url("no host");
    if (!std::all_of(host.begin(), host.end(), is_host_char)) return bad_url("malformed host");
  }
  if (host_end >= text.size()) return fmt::format("{}:4222", text);
  const auto port = parse_int<std::uint16_t>(text.substr(host_end + 1));
  if (text[host_end] != ':' || !port || *port == 0) return bad_url("malformed port");
  return std::string(text);
}

Result<void> read_credentials(std::string_view text, NatsServers& servers) {
  NatsServers own;
  const std::size_t colon = text.find(':');
  const auto first = percent_decoded(text.substr(0, colon));
  if (!first || first->empty()) return bad_url("malformed credentials");
  if (colon == std::string_view::npos) {
    own.token = *first;
  } else {
    const auto password = percent_decoded(text.substr(colon + 1));
    if (!password) return bad_url("malformed credentials");
    own.user = *first;
    own.password = *password;
  }
  const bool is_first = servers.user.empty() && servers.token.empty();
  if (!is_first &&
      (own.user != servers.user || own.password != servers.password || own.token != servers.token))
    return bad_url("servers with different credentials");
  servers.user = own.user;
  servers.password = own.password;
  servers.token = own.token;
  return {};
}

Result<void> read_server(std::string_view text, NatsServers& servers) {
  if (const std::size_t scheme = text.find("://"); scheme != std::string_view::npos) {
    const std::string_view name = text.substr(0, scheme);
    if (name != "nats" && name != "tls") return bad_url("neither nats:// nor tls://");
    servers.uses_tls = servers.uses_tls || name == "tls";
    text.remove_prefix(scheme + 3);
  }
  if (const std::size_t at = text.rfind('@'); at != std::string_view::npos) {
    TRY_VOID(read_credentials(text.substr(0, at), servers));
    text.remove_prefix(at + 1);
  }
  TRY(const auto address, address_of(text));
  servers.servers.push_back("nats://" + address);
  return {};
}

}  // namespace

Result<NatsServers> parse_nats_url(std::string_view untrusted) {
  if (untrusted.size() > kUrlBytesMax) return bad_url("too long");
  NatsServers servers;
  while (true) {
    const std::size_t comma = untrusted.find(',');
    TRY_VOID(read_server(untrusted.substr(0, comma), servers));
    if (servers.servers.size() > kServersMax) return bad_url("too many servers");
    if (comma == std::string_view::npos) return servers;
    untrusted.remove_prefix(comma + 1);
  }
}

}  // namespace kansoku::fleet
