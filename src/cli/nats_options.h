// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "common/result.h"
#include "fleet/nats_bus.h"

namespace CLI {
class App;
}

namespace kansoku::cli {

/// The options of every command that talks to a NATS server.
class NatsArguments {
 public:
  void declare(CLI::App& app);
  /// What was asked for, the credentials read from their file. Secrets are in it: never print it.
  [[nodiscard]] Result<fleet::NatsOptions> options() const;
  /// Where to, for people: without credentials.
  [[nodiscard]] std::string place() const;

 private:
  std::string url_{"nats://127.0.0.1:4222"}, credentials_file_;
  std::string ca_file_, certificate_file_, key_file_;
};

}  // namespace kansoku::cli
