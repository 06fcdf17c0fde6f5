// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <string_view>

#include "common/result.h"
#include "fleet/nats_bus.h"

namespace CLI {
class App;
}

namespace kansoku::cli {

/// The options of every command that talks to a NATS server.
class NatsArguments {
 public:
  /// --nats, with a server on this host if nothing is said.
  void declare(CLI::App& app);
  /// --collector: none if nothing is said.
  void declare_collector(CLI::App& app);
  [[nodiscard]] bool is_asked_for() const { return !url_.empty(); }
  /// The options that were asked for, the credentials read from their file. Secrets are in it:
  /// never print it.
  [[nodiscard]] Result<fleet::NatsOptions> options() const;
  /// The server, for people: without credentials.
  [[nodiscard]] std::string place() const;

 private:
  void declare_rights(CLI::App& app, std::string_view url_option);

  std::string url_, credentials_file_;
  std::string ca_file_, certificate_file_, key_file_;
};

}  // namespace kansoku::cli
