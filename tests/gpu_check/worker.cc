// SPDX-License-Identifier: Apache-2.0
#include "worker.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>

#include <charconv>
#include <csignal>
#include <cstdio>
#include <cstring>

namespace gpu_check {

namespace {

// Lines of a worker come through this descriptor: words between tabs.
constexpr int kReports = 3;
// No check takes a tenth of it, also on a software device that shares two cores.
constexpr int kPatienceMs = 180000;

long now_ms() {
  timeval now{};
  gettimeofday(&now, nullptr);
  return now.tv_sec * 1000L + now.tv_usec / 1000;
}

std::string folder_of_program() {
  char path[4096];
  const ssize_t length = readlink("/proc/self/exe", path, sizeof path);
  const std::string text(path, length > 0 ? static_cast<std::size_t>(length) : 0);
  return text.substr(0, text.rfind('/'));
}

// A program, its words and its reports.
class Child {
 public:
  Child(const std::vector<std::string>& words, const std::string& log) {
    int ends[2];
    if (pipe2(ends, O_CLOEXEC) != 0) return;
    std::vector<char*> argv;
    for (const std::string& word : words)
      argv.push_back(const_cast<char*>(word.c_str()));
    argv.push_back(nullptr);
    pid_ = fork();
    if (pid_ == 0) {
      const int output = open(log.c_str(), O_WRONLY | O_CREAT | O_APPEND, 0644);
      dup2(output, 1);
      dup2(output, 2);
      if (ends[1] == kReports)
        fcntl(kReports, F_SETFD, 0);
      else
        dup2(ends[1], kReports);
      execv(argv[0], argv.data());
      _exit(127);
    }
    close(ends[1]);
    reports_ = ends[0];
  }
  Child(const Child&) = delete;
  Child& operator=(const Child&) = delete;
  ~Child() {
    if (reports_ >= 0) close(reports_);
    finish();
  }

  /// The words of the next line; none: the end of the reports, or the end of patience.
  std::vector<std::string> next() {
    while (rest_.find('\n') == std::string::npos) {
      pollfd waits{reports_, POLLIN, 0};
      if (poll(&waits, 1, kPatienceMs) == 0) {
        kill(pid_, SIGKILL);
        is_late_ = true;
        return {};
      }
      char bytes[4096];
      const ssize_t count = read(reports_, bytes, sizeof bytes);
      if (count <= 0) return {};
      rest_.append(bytes, static_cast<std::size_t>(count));
    }
    std::vector<std::string> words(1);
    std::size_t at = 0;
    for (; rest_[at] != '\n'; ++at) {
      if (rest_[at] == '\t')
        words.emplace_back();
      else
        words.back() += rest_[at];
    }
    rest_.erase(0, at + 1);
    return words;
  }
  /// How it ended: "exit status 1", "signal 6".
  std::string finish() {
    if (pid_ > 0) {
      waitpid(pid_, &status_, 0);
      pid_ = 0;
    }
    if (is_late_) return "no answer within " + std::to_string(kPatienceMs / 1000) + " s";
    if (WIFSIGNALED(status_)) return "signal " + std::to_string(WTERMSIG(status_));
    return "exit status " + std::to_string(WEXITSTATUS(status_));
  }

 private:
  pid_t pid_{-1};
  int reports_{-1}, status_{0};
  bool is_late_{false};
  std::string rest_;
};

void report(const std::vector<std::string>& words) {
  std::string line;
  for (const std::string& word : words) {
    if (!line.empty()) line += '\t';
    for (const char letter : word)
      line += letter == '\n' || letter == '\t' ? ' ' : letter;
  }
  line += '\n';
  for (std::size_t at = 0; at < line.size();) {
    const ssize_t count = write(kReports, line.data() + at, line.size() - at);
    if (count <= 0) _exit(3);
    at += static_cast<std::size_t>(count);
  }
}

// A sample is a program that says "NAME: PASSED" and ends with 0. Perturbed, it would have to fail.
Result run_sample(const Row& row, bool perturbs, const std::string& log) {
  const std::string name = std::strchr(row.name, '.') + 1;
  const std::string command = "'" + folder_of_program() + "/" + name + "' 2>> '" + log + "'";
  const long begin = now_ms();
  std::FILE* const output = popen(command.c_str(), "re");
  if (output == nullptr) return {"failed", "cannot run " + command, 0};
  std::string text;
  char bytes[1024];
  while (std::fgets(bytes, sizeof bytes, output) != nullptr)
    text += bytes;
  const int status = pclose(output);
  const bool is_right = perturbs ? status != 0 && text == name + ": FAILED\n"
                                 : status == 0 && text == name + ": PASSED\n";
  while (!text.empty() && text.back() == '\n')
    text.pop_back();
  if (status != 0) text += " (status " + std::to_string(status) + ")";
  return {is_right ? "passed" : "failed", text, now_ms() - begin};
}

void run_check(const Row& row, bool perturbs) {
  Check c(perturbs);
  const long begin = now_ms();
  try {
    row.body(c);
  } catch (const Stop&) {
    // The verdict is in `c`.
  }
  Result result{c.verdict(), c.text(), 0};
  // A check that leaves an error behind spoils those after it, unless breaking is its purpose.
  const std::string error = row.where == Where::kAlone ? "" : context_error();
  if (!error.empty()) result = {"failed", "leaves " + error + " behind; " + result.text, 0};
  result.milliseconds = now_ms() - begin;
  report({"end", row.name, result.verdict, result.text, std::to_string(result.milliseconds)});
  // The error stays in the context: whoever started this process goes on in another.
  if (!error.empty()) _exit(0);
}

void report_facts() {
  const Facts facts = collect_facts();
  for (const auto& [key, value] : facts.values)
    report({"fact", key, value});
  if (!facts.error.empty()) report({"error", facts.error});
  report({"software", facts.is_software ? "1" : "0"});
}

// Runs rows from `begin` on in one worker; returns how many have a result.
std::size_t run_worker(const std::vector<const Row*>& rows, std::size_t begin, std::size_t end,
                       bool perturbs, const std::string& log,
                       const std::function<void(const Row&, const Result&)>& tell) {
  std::vector<std::string> words{"/proc/self/exe", "--worker", perturbs ? "perturbed" : "plain"};
  for (std::size_t i = begin; i < end; ++i)
    words.emplace_back(rows[i]->name);
  Child child(words, log);
  std::size_t done = begin;
  for (std::vector<std::string> line = child.next(); line.size() == 5; line = child.next()) {
    if (done == end || line[1] != rows[done]->name) break;
    Result result{line[2], line[3], 0};
    std::from_chars(line[4].data(), line[4].data() + line[4].size(), result.milliseconds);
    tell(*rows[done++], result);
  }
  const std::string ending = child.finish();
  // The process ended on the next check, or never began.
  if (done == begin || (done < end && ending != "exit status 0"))
    tell(*rows[done++], {"failed", "its process ended: " + ending, 0});
  return done - begin;
}

}  // namespace

const std::vector<Row>& all_rows() {
  static const std::vector<Row> rows = {
#define GPU_CHECK(group, name, where, claim) \
  {#group "." #name, Where::k##where, claim, check_##group##_##name},
#define GPU_SELFTEST(name, claim) \
  {"selftest." #name, Where::kSelftest, claim, check_selftest_##name},
#define GPU_SAMPLE(name, claim) {"sample." #name, Where::kSample, claim, nullptr},
#include "checks.inc"
#undef GPU_CHECK
#undef GPU_SELFTEST
#undef GPU_SAMPLE
  };
  return rows;
}

Facts ask_for_facts(const std::string& log) {
  Child child({"/proc/self/exe", "--worker", "facts"}, log);
  Facts facts;
  bool is_whole = false;
  for (std::vector<std::string> line = child.next(); !line.empty(); line = child.next()) {
    if (line[0] == "fact" && line.size() == 3) facts.values.emplace_back(line[1], line[2]);
    if (line[0] == "error" && line.size() == 2) facts.error = line[1];
    if (line[0] == "software" && line.size() == 2) {
      facts.is_software = line[1] == "1";
      is_whole = true;
    }
  }
  if (!is_whole) facts.error = "the process that asks for the device ended: " + child.finish();
  return facts;
}

void run_rows(const std::vector<const Row*>& rows, bool perturbs, const std::string& log,
              const std::function<void(const Row&, const Result&)>& tell) {
  for (std::size_t begin = 0; begin < rows.size();) {
    std::size_t end = begin + 1;
    if (rows[begin]->where == Where::kSample) {
      tell(*rows[begin], run_sample(*rows[begin], perturbs, log));
      begin = end;
      continue;
    }
    if (rows[begin]->where != Where::kAlone) {
      while (end < rows.size() && rows[end]->where == rows[begin]->where)
        ++end;
    }
    begin += run_worker(rows, begin, end, perturbs, log, tell);
  }
}

int work(int argc, char** argv) {
  if (argc < 3) return 2;
  if (std::strcmp(argv[2], "facts") == 0) {
    report_facts();
    return 0;
  }
  for (int i = 3; i < argc; ++i) {
    for (const Row& row : all_rows()) {
      if (std::strcmp(row.name, argv[i]) == 0)
        run_check(row, std::strcmp(argv[2], "perturbed") == 0);
    }
  }
  // Without the ends of libraries: after a broken context they may hang.
  std::fflush(nullptr);
  _exit(0);
}

}  // namespace gpu_check
