// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "common/json.h"
#include "common/result.h"
#include "common/time.h"
#include "fleet/bus.h"
#include "trace/incident.h"

namespace kansoku::fleet {

/// Requests to an agent. A request is a type with
///   kName            the word on the wire
///   to_json()        its members
///   from_json()      the same of untrusted JSON; the error names the mistake
///   Reply            the answer, with to_json() and from_json() as well
/// and nothing else has to know it: whoever can do it says so to a RequestTable, whoever wants it
/// calls ask(). How the lines travel (a local socket, a bus) is none of its business.

/// For requests and replies that say no more than their name.
struct NoMembers {
  [[nodiscard]] static Json to_json() { return Json::object(); }
};

/// How is the agent doing?
struct StatusRequest : NoMembers {
  static constexpr std::string_view kName = "status";
  [[nodiscard]] static Result<StatusRequest> from_json(const Json&) { return StatusRequest{}; }
  struct Reply {
    Json status;  // kansoku.watch_status/1
    [[nodiscard]] Json to_json() const { return Json::object().set("status", status); }
    [[nodiscard]] static Result<Reply> from_json(const Json& untrusted);
  };
};

/// Which incidents does it keep? Empty members are not asked about.
struct IncidentsRequest {
  static constexpr std::string_view kName = "incidents";
  static constexpr std::uint64_t kCountMax = 10'000;
  std::int64_t since_ns{0};
  std::string job;
  std::optional<trace::IncidentKind> kind;
  bool only_open{false};
  std::uint64_t count{100};  // the latest ones; 1 to kCountMax
  [[nodiscard]] Json to_json() const;
  [[nodiscard]] static Result<IncidentsRequest> from_json(const Json& untrusted);
  struct Reply {
    std::vector<trace::IncidentRecord> incidents;
    [[nodiscard]] Json to_json() const;
    [[nodiscard]] static Result<Reply> from_json(const Json& untrusted);
  };
};

/// The operator's word on an incident.
struct LabelRequest {
  static constexpr std::string_view kName = "label";
  std::string id;
  trace::IncidentLabel label{trace::IncidentLabel::kAcknowledged};
  [[nodiscard]] Json to_json() const;
  [[nodiscard]] static Result<LabelRequest> from_json(const Json& untrusted);
  struct Reply {
    bool is_learnt{false};  // a job that runs learns from it; else the label is kept
    [[nodiscard]] Json to_json() const { return Json::object().set("learnt", is_learnt); }
    [[nodiscard]] static Result<Reply> from_json(const Json& untrusted);
  };
};

/// All probes off, and on again.
struct PauseRequest : NoMembers {
  static constexpr std::string_view kName = "pause";
  [[nodiscard]] static Result<PauseRequest> from_json(const Json&) { return PauseRequest{}; }
  struct Reply : NoMembers {
    [[nodiscard]] static Result<Reply> from_json(const Json&) { return Reply{}; }
  };
};
struct ResumeRequest : NoMembers {
  static constexpr std::string_view kName = "resume";
  [[nodiscard]] static Result<ResumeRequest> from_json(const Json&) { return ResumeRequest{}; }
  using Reply = PauseRequest::Reply;
};

/// Requests that one side answers, by name. Not shared between threads.
class RequestTable {
 public:
  template <class Request>
  void on(std::function<Result<typename Request::Reply>(const Request&)> handler) {
    handlers_[std::string(Request::kName)] =
        [handler = std::move(handler)](const Json& untrusted) -> Result<Json> {
      TRY(const Request request, Request::from_json(untrusted));
      TRY(const typename Request::Reply reply, handler(request));
      return reply.to_json();
    };
  }
  /// Answers {"do": name, members}: {"ok": true, members of the reply}, or {"ok": false, "error",
  /// "hint", "code"}. Never fails.
  [[nodiscard]] std::string answer(std::string_view untrusted_line) const;

 private:
  std::map<std::string, std::function<Result<Json>(const Json&)>, std::less<>> handlers_;
};

/// Takes a line to whoever answers it and gives the answer. May block.
using Transport = std::function<Result<std::string>(const std::string& line)>;

/// The line of a request, and the contents of an answer; for transports that do not wait.
[[nodiscard]] std::string request_line(std::string_view name, const Json& members);
/// The members of the reply, or the error that the other side told.
[[nodiscard]] Result<Json> reply_members(std::string_view untrusted_answer);

/// Asks, and waits for the answer as long as the transport does.
template <class Request>
[[nodiscard]] Result<typename Request::Reply> ask(const Transport& transport,
                                                  const Request& request) {
  TRY(const std::string answer, transport(request_line(Request::kName, request.to_json())));
  TRY(const Json members, reply_members(answer));
  return Request::Reply::from_json(members);
}

/// The socket of an agent on this host. kNotFound or kUnavailable, with the way to start one, if
/// there is none; kTimeout after `limit`.
[[nodiscard]] Transport local_socket(const std::string& state_folder,
                                     Nanos limit = std::chrono::seconds{5});
/// An agent that serves its requests at `subject` of a bus, which is polled meanwhile; both are
/// borrowed.
[[nodiscard]] Transport over_bus(Bus& bus, std::string subject, Nanos deadline);
/// Answers requests to `subject`, in the bus's poll. Table and bus are borrowed.
[[nodiscard]] Result<Bus::SubscriptionId> serve(Bus& bus, std::string_view subject,
                                                const RequestTable& table);

}  // namespace kansoku::fleet
