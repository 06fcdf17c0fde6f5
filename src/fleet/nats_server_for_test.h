// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "sys/port_for_test.h"
#include "sys/process.h"

namespace kansoku::fleet {

/// A nats-server of our own on a port of the loopback device that is its alone, also while it is
/// away; ended with the object.
class NatsServerForTest {
 public:
  /// Null if there is no nats-server on this machine. `extra`: more arguments.
  [[nodiscard]] static std::unique_ptr<NatsServerForTest> start(
      std::vector<std::string> extra = {});
  ~NatsServerForTest();

  [[nodiscard]] std::string url(const std::string& credentials = "") const {
    return "nats://" + credentials + "127.0.0.1:" + std::to_string(port_.number());
  }
  /// Ends the server as a crash does, and starts it again on the same port.
  void kill();
  [[nodiscard]] bool restart();

 private:
  explicit NatsServerForTest(std::vector<std::string> extra) : extra_(std::move(extra)) {}
  [[nodiscard]] bool run(const std::string& program);

  const std::vector<std::string> extra_;
  const sys::PortForTest port_;
  std::optional<sys::Child> child_;
};

}  // namespace kansoku::fleet
