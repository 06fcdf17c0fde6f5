// SPDX-License-Identifier: Apache-2.0
#include "agent/job_key.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <string_view>

#include "common/rng.h"
#include "common/text.h"
#include "sys/fd.h"

namespace kansoku::agent {
namespace {

constexpr std::size_t kKeyCharsMax = 256;

bool is_option(std::string_view word) {
  return word.size() > 1 && word.front() == '-' && (word[1] < '0' || word[1] > '9');
}

/// Options whose values say when or where a job runs, not its kind.
bool is_run_option(std::string_view option) {
  static constexpr std::array<std::string_view, 22> kParts{
      "port",  "seed",   "rank",       "node", "addr", "host", "id",   "step",
      "epoch", "iter",   "out",        "log",  "dir",  "path", "file", "save",
      "load",  "resume", "checkpoint", "url",  "time", "init"};
  return std::any_of(kParts.begin(), kParts.end(),
                     [&](std::string_view part) { return option.find(part) != option.npos; });
}

/// Names of values that nobody else may see.
bool is_secret_option(std::string_view option) {
  static constexpr std::array<std::string_view, 12> kParts{
      "key",  "token",  "secret",  "pass",   "pwd",   "auth",
      "cred", "cookie", "session", "signat", "login", "private"};
  std::string lower(option);
  std::transform(lower.begin(), lower.end(), lower.begin(),
                 [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  return std::any_of(kParts.begin(), kParts.end(),
                     [&](std::string_view part) { return lower.find(part) != std::string::npos; });
}

bool is_place(std::string_view value) {
  return value.find('/') != value.npos || value.find(':') != value.npos;
}

/// Letters and digits mixed in one long run, or many digits in a long word: keys and tokens are so,
/// names of scripts and models are not.
bool may_be_secret(std::string_view word) {
  constexpr std::size_t kRunChars = 12, kLongChars = 24, kManyDigits = 10;
  std::size_t digits = 0, run_letters = 0, run_digits = 0;
  for (const char c : word) {
    const auto byte = static_cast<unsigned char>(c);
    if (std::isalnum(byte) == 0) {
      run_letters = run_digits = 0;
      continue;
    }
    const bool is_digit = std::isdigit(byte) != 0;
    digits += is_digit ? 1 : 0;
    ++(is_digit ? run_digits : run_letters);
    if (run_letters > 0 && run_digits > 0 && run_letters + run_digits >= kRunChars) return true;
  }
  return word.size() >= kLongChars && digits >= kManyDigits;
}

/// A word as the key may have it: for a possible secret its hash, or only the note that it was
/// there: a short password is easily found by its hash.
std::string veiled(std::string_view word) {
  if (word.find('@') != word.npos) return "~";  // name:password@host
  if (const auto scheme = word.find("://"); scheme != word.npos)
    return veiled(word.substr(0, scheme)) + "://";
  return may_be_secret(word) ? fmt::format("~{:08x}", hash_of(word) & 0xffffffffU)
                             : std::string(word);
}

bool is_address(std::string_view word) {
  return word.find('@') != word.npos || word.find("://") != word.npos;
}

/// "name=value" without a value that is a run's or nobody's business.
std::string setting(std::string_view name, std::string_view value) {
  std::string shown = is_option(name) && !is_address(name) ? std::string(name) : veiled(name);
  if (is_run_option(name) || is_secret_option(name) || is_address(name) || is_place(value))
    return shown;
  return fmt::format("{}={}", shown, veiled(value));
}

/// True for the options of Python itself that no value follows ("-u", as torchrun says it).
bool is_python_flag(std::string_view word) {
  return is_option(word) && word.size() <= 3 && word.find_first_of("-WXcm", 1) == word.npos;
}

/// The words of a key, one after the other.
class KeyWriter {
 public:
  void add(std::string_view word) {
    const auto equal = word.find('=');
    if (takes_value(word)) {
      // A password may begin with a dash. If the word was an option after all, the next word may be
      // a secret of its own.
      option_ = is_secret_option(option_) && is_option(word) ? word : std::string_view{};
    } else if (equal != word.npos) {
      put(setting(word.substr(0, equal), word.substr(equal + 1)));
      option_ = {};
    } else if (is_option(word)) {
      put(is_address(word) ? veiled(word) : word);
      option_ = word;
    } else {
      put(veiled(option_.empty() && !is_address(word) ? base_name(word) : word));
      option_ = {};
    }
  }
  void put(std::string_view text) {
    if (!key_.empty()) key_ += ' ';
    key_ += text;
  }
  [[nodiscard]] const std::string& key() const { return key_; }

 private:
  /// The word is the value of the option before it and no part of the key.
  [[nodiscard]] bool takes_value(std::string_view word) const {
    if (option_.empty()) return false;
    if (is_secret_option(option_)) return !word.starts_with("--");
    return !is_option(word) && (is_run_option(option_) || is_place(word));
  }

  std::string key_;
  std::string_view option_;  // the word before, if it is one
};

}  // namespace

std::string command_key(std::span<const std::string> untrusted_arguments) {
  KeyWriter writer;
  // The script behind Python's own flags is no option's value.
  bool is_before_script = false;
  for (std::size_t i = 0; i < untrusted_arguments.size(); ++i) {
    const std::string& word = untrusted_arguments[i];
    if (i == 0) {
      is_before_script = base_name(word).starts_with("python");
    } else if (is_before_script && is_python_flag(word)) {
      writer.put(word);
      continue;
    } else {
      is_before_script = false;
    }
    if (word == "-c") {  // the next word is code
      std::string code;
      for (const std::string& part : untrusted_arguments.subspan(i + 1))
        code += " " + part;
      writer.put(fmt::format("-c {:016x}", hash_of(code)));
      break;
    }
    if (!word.empty()) writer.add(word);
  }
  std::string key = writer.key();
  if (key.size() > kKeyCharsMax) {
    const std::string rest = fmt::format("~{:016x}", hash_of(key));
    key.resize(kKeyCharsMax - rest.size());
    key += rest;
  }
  return key;
}

detect::JobModel::Key job_key(const capture::JobProcess& process, std::int32_t world_size,
                              const std::string& hardware) {
  detect::JobModel::Key key;
  key.command = process.started_by.empty() ? command_key(process.arguments)
                                           : command_key(process.started_by) + " (spawned)";
  key.world_size = std::max(1, world_size);
  key.hardware = hardware;
  return key;
}

std::string hardware_text(const std::vector<std::string>& device_names) {
  std::string processor = "unknown processor";
  if (const auto text = sys::read_file("/proc/cpuinfo", 4U << 20)) {
    const auto at = text->find("model name");
    const auto colon = at == std::string::npos ? at : text->find(": ", at);
    if (colon != std::string::npos)
      processor = text->substr(colon + 2, text->find('\n', colon) - colon - 2);
  }
  std::string out = fmt::format("{} x {}", ::sysconf(_SC_NPROCESSORS_ONLN), processor);
  if (device_names.empty()) return out + "; no GPU";
  std::size_t same = 1;
  for (std::size_t i = 0; i < device_names.size(); i += same) {
    same = 1;
    while (i + same < device_names.size() && device_names[i + same] == device_names[i])
      ++same;
    out += fmt::format("; {} x {}", same, device_names[i]);
  }
  return out;
}

}  // namespace kansoku::agent
