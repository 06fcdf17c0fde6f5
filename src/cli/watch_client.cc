// SPDX-License-Identifier: Apache-2.0
#include "cli/watch_client.h"

#include <fmt/chrono.h>
#include <fmt/format.h>

#include <ctime>

#include "sys/unix_socket.h"

namespace kansoku::cli {

Result<Json> ask_agent(const std::string& state_folder, const Json& request) {
  auto text =
      sys::unix_request(state_folder + "/control.sock", request.dump(), std::chrono::seconds{5});
  if (!text) {
    Error error = std::move(text).error();
    if (error.code == Code::kNotFound || error.code == Code::kUnavailable)
      error.hint = "start one: kansoku watch; --state names the folder of one that runs";
    return error;
  }
  TRY(Json answer, Json::parse(*text));
  if (answer.at("ok").as_bool()) return answer;
  return Error{Code::kUnsupported, answer.at("error").as_string("the agent refused"),
               answer.at("hint").as_string()};
}

std::string wall_text(std::int64_t wall_ns) {
  const std::time_t seconds = wall_ns / 1'000'000'000;
  std::tm parts{};
  ::gmtime_r(&seconds, &parts);
  return fmt::format("{:%Y-%m-%d %H:%M:%S}", parts);
}

}  // namespace kansoku::cli
