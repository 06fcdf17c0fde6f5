// SPDX-License-Identifier: Apache-2.0
#include "cli/watch/nats_options.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <CLI/CLI.hpp>
#include <string_view>

#include "sys/fd.h"

namespace kansoku::cli {
namespace {

constexpr std::size_t kCredentialsBytesMax = 4096;

}  // namespace

void NatsArguments::declare(CLI::App& app) {
  url_ = "nats://127.0.0.1:4222";
  app.add_option("--nats", url_,
                 "NATS server: nats://HOST:PORT or tls://HOST:PORT, or several separated by "
                 "commas; user:password@ or token@ may precede the host")
      ->envname("KANSOKU_NATS")
      ->capture_default_str();
  declare_rights(app, "--nats");
}

void NatsArguments::declare_collector(CLI::App& app) {
  app.add_option("--collector", url_,
                 "send summaries to `kansoku collect` through this NATS server, e.g.\n"
                 "nats://host:4222 or tls://host:4222; separate several by commas")
      ->envname("KANSOKU_COLLECTOR");
  declare_rights(app, "--collector");
}

void NatsArguments::declare_rights(CLI::App& app, std::string_view url_option) {
  app.add_option("--nats-credentials", credentials_file_,
                 fmt::format("file with `user:password` or a token in its first line; every user "
                             "of this host can read the value of {}",
                             url_option));
  app.add_option("--nats-ca", ca_file_, "certificates to trust (PEM); switches TLS on");
  app.add_option("--nats-cert", certificate_file_, "certificate of this client (PEM)");
  app.add_option("--nats-key", key_file_, "key of this client (PEM)");
}

Result<fleet::NatsOptions> NatsArguments::options() const {
  fleet::NatsOptions options;
  options.url = url_;
  options.ca_file = ca_file_;
  options.certificate_file = certificate_file_;
  options.key_file = key_file_;
  if (credentials_file_.empty()) return options;
  TRY(const auto text, sys::read_file(credentials_file_, kCredentialsBytesMax));
  const std::string line = text.substr(0, text.find_first_of("\r\n"));
  if (line.empty())
    return Error{Code::kCorrupt, fmt::format("read {}: its first line is empty", credentials_file_),
                 "write `user:password` or a token into the first line"};
  const std::size_t colon = line.find(':');
  if (colon == std::string::npos) {
    options.token = line;
  } else {
    options.user = line.substr(0, colon);
    options.password = line.substr(colon + 1);
  }
  return options;
}

std::string NatsArguments::place() const {
  const auto servers = fleet::parse_nats_url(url_);
  return servers ? fmt::format("{}", fmt::join(servers->servers, ", ")) : "?";
}

}  // namespace kansoku::cli
