// SPDX-License-Identifier: Apache-2.0
#include "sys/process.h"

#include <fcntl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <sys/utsname.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <climits>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <map>

#include "sys/procfs.h"

namespace kansoku::sys {
namespace {

// Runs in the child, between fork and exec: only calls that are safe there.
[[noreturn]] void run_child(int gate, char* const* argv, char* const* environment, int output) {
  char byte = 0;
  while (::read(gate, &byte, 1) < 0 && errno == EINTR) {
  }
  if (output >= 0) {
    ::dup2(output, STDOUT_FILENO);
    ::dup2(output, STDERR_FILENO);
  }
  ::execvpe(argv[0], argv, environment);
  const int error = errno;
  const char* const why = error == ENOENT   ? ": not found: the command was not started\n"
                          : error == EACCES ? ": no permission: the command was not started\n"
                                            : ": cannot be executed: the command was not started\n";
  // One call: the parent writes to the same stream meanwhile, and its line must not stand inside
  // this one.
  const std::array<iovec, 2> line{iovec{argv[0], ::strlen(argv[0])},
                                  iovec{const_cast<char*>(why), ::strlen(why)}};
  static_cast<void>(!::writev(STDERR_FILENO, line.data(), static_cast<int>(line.size())));
  ::_exit(error == ENOENT ? 127 : 126);
}

std::vector<char*> pointers(std::vector<std::string>& texts) {
  std::vector<char*> out;
  out.reserve(texts.size() + 1);
  for (std::string& text : texts)
    out.push_back(text.data());
  out.push_back(nullptr);
  return out;
}

std::vector<std::string> merged_environment(const std::vector<std::string>& extra) {
  std::vector<std::string> out = extra;
  for (char** entry = environ; *entry != nullptr; ++entry) {
    const std::string text = *entry;
    const std::string name = text.substr(0, text.find('=') + 1);
    bool replaced = false;
    for (const std::string& mine : extra)
      replaced = replaced || mine.compare(0, name.size(), name) == 0;
    if (!replaced) out.push_back(text);
  }
  return out;
}

}  // namespace

Result<Child> Child::start(const std::vector<std::string>& argv, const Options& options) {
  std::array<int, 2> ends{};
  if (::pipe2(ends.data(), O_CLOEXEC) != 0) return errno_error(errno, "create", "pipe");
  const Fd read_end = Fd::adopt(ends[0]);
  Fd write_end = Fd::adopt(ends[1]);
  Fd output;
  if (!options.output_path.empty()) {
    const int raw =
        ::open(options.output_path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    if (raw < 0) return errno_error(errno, "create", options.output_path);
    output = Fd::adopt(raw);
  }
  std::vector<std::string> words = argv;
  std::vector<std::string> variables = merged_environment(options.extra_environment);
  const std::vector<char*> argv_pointers = pointers(words);
  const std::vector<char*> environment_pointers = pointers(variables);
  const pid_t pid = ::fork();
  if (pid < 0) return errno_error(errno, "fork for", argv.front());
  if (pid == 0) {
    ::close(ends[1]);  // our own copy would keep the gate shut
    run_child(ends[0], argv_pointers.data(), environment_pointers.data(), output.raw());
  }
  return Child(pid, std::move(write_end));
}

std::optional<int> Child::reap(int flags) {
  if (status_) return status_;
  int raw = 0;
  pid_t got = 0;
  do {
    got = ::waitpid(pid_, &raw, flags);
  } while (got < 0 && errno == EINTR);
  if (got == pid_) status_ = WIFEXITED(raw) ? WEXITSTATUS(raw) : 128 + WTERMSIG(raw);
  if (got < 0) status_ = 1;  // not our child any more: somebody else reaped it
  return status_;
}

std::optional<int> Child::poll() {
  return reap(WNOHANG);
}
int Child::wait() {
  return reap(0).value_or(1);
}

void Child::send(int signal) const {
  if (!status_) ::kill(pid_, signal);
}

void Child::send_to_all(int signal) const {
  if (status_) return;
  const Procfs procfs;
  std::multimap<std::int32_t, std::int32_t> children;  // by parent
  for (const std::int32_t pid : procfs.pids()) {
    if (const auto stat = procfs.stat(pid)) children.emplace(stat->parent_pid, pid);
  }
  std::vector<std::int32_t> family{pid_};
  for (std::size_t i = 0; i < family.size(); ++i) {
    const auto [begin, end] = children.equal_range(family[i]);
    for (auto at = begin; at != end; ++at)
      family.push_back(at->second);
  }
  // The youngest first: a parent that lives sees how its children ended.
  for (auto pid = family.rbegin(); pid != family.rend(); ++pid)
    ::kill(*pid, signal);
}

std::optional<std::string> find_program(const std::string& name) {
  const auto may_run = [](const std::string& path) {
    struct stat facts {};
    return ::stat(path.c_str(), &facts) == 0 && S_ISREG(facts.st_mode) &&
           ::access(path.c_str(), X_OK) == 0;
  };
  if (name.empty()) return std::nullopt;
  if (name.find('/') != std::string::npos)
    return may_run(name) ? std::optional(name) : std::nullopt;
  const char* folders = std::getenv("PATH");  // allowed: as execvp, to look at what that starts
  std::string_view rest = folders == nullptr ? "/bin:/usr/bin" : folders;
  while (true) {
    const std::size_t end = rest.find(':');
    const std::string folder(rest.substr(0, end));
    const std::string path = (folder.empty() ? "." : folder) + "/" + name;
    if (may_run(path)) return path;
    if (end == std::string_view::npos) return std::nullopt;
    rest.remove_prefix(end + 1);
  }
}

Result<std::string> own_path() {
  std::array<char, PATH_MAX> buffer{};
  const ssize_t bytes = ::readlink("/proc/self/exe", buffer.data(), buffer.size());
  if (bytes < 0) return errno_error(errno, "read link", "/proc/self/exe");
  return std::string(buffer.data(), static_cast<std::size_t>(bytes));
}

void raise_descriptor_limit() {
  rlimit limit{};
  if (::getrlimit(RLIMIT_NOFILE, &limit) != 0) return;
  limit.rlim_cur = limit.rlim_max;
  static_cast<void>(::setrlimit(RLIMIT_NOFILE, &limit));
}

std::string host_name() {
  utsname name{};
  return ::uname(&name) == 0 ? std::string(name.nodename) : std::string{};
}

}  // namespace kansoku::sys
