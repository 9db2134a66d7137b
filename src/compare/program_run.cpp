#include "src/compare/program_run.h"

#include <fcntl.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <boost/json/value.hpp>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstring>
#include <regex>
#include <sstream>
#include <thread>

#include "hybrid_trainer/core/clock.h"
#include "hybrid_trainer/core/error.h"
#include "hybrid_trainer/core/interruption.h"
#include "hybrid_trainer/files/file_descriptor.h"
#include "hybrid_trainer/files/strict_json.h"

namespace hybrid_trainer {
namespace {

constexpr auto kBetweenLooks = std::chrono::milliseconds(20);
constexpr double kSecondsToEnd = 5;
constexpr std::size_t kLongestLineShown = 80;

FileDescriptor created(const std::filesystem::path& path) {
  FileDescriptor file(::open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644));
  if (file.number() < 0) throw IoError(system_problem(path, "cannot create"));
  return file;
}

/// What posix_spawn is told; freed with the object.
class SpawnSettings {
 public:
  SpawnSettings(const std::filesystem::path& folder, int output, int errors) {
    ::posix_spawn_file_actions_init(&actions);
    ::posix_spawn_file_actions_addchdir_np(&actions, folder.c_str());
    ::posix_spawn_file_actions_addopen(&actions, 0, "/dev/null", O_RDONLY, 0);
    ::posix_spawn_file_actions_adddup2(&actions, output, 1);
    ::posix_spawn_file_actions_adddup2(&actions, errors, 2);
    ::posix_spawnattr_init(&attributes);
    sigset_t none, usual;
    sigemptyset(&none);
    sigemptyset(&usual);
    for (const int signal : {SIGINT, SIGTERM, SIGUSR1, SIGUSR2, SIGXCPU, SIGXFSZ})
      sigaddset(&usual, signal);
    ::posix_spawnattr_setsigmask(&attributes, &none);  // a thread that computes blocks some
    ::posix_spawnattr_setsigdefault(&attributes, &usual);
    ::posix_spawnattr_setflags(
        &attributes, POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF | POSIX_SPAWN_SETPGROUP);
  }
  ~SpawnSettings() {
    ::posix_spawn_file_actions_destroy(&actions);
    ::posix_spawnattr_destroy(&attributes);
  }
  SpawnSettings(const SpawnSettings&) = delete;
  SpawnSettings& operator=(const SpawnSettings&) = delete;
  posix_spawn_file_actions_t actions;
  posix_spawnattr_t attributes;
};

/// The wait status; signals the process's group once a stop is asked for.
int wait_for(pid_t process, const Interruption& interruption) {
  std::optional<Clock::time_point> asked;
  for (int status = 0;;) {
    const pid_t ended = ::waitpid(process, &status, WNOHANG);
    if (ended == process) return status;
    if (ended < 0 && errno != EINTR) throw IoError("cannot wait for a program");
    if (interruption.requested() && !asked) {
      asked = Clock::now();
      ::kill(-process, SIGTERM);
    }
    if (asked && seconds_since(*asked) > kSecondsToEnd) ::kill(-process, SIGKILL);
    std::this_thread::sleep_for(kBetweenLooks);
  }
}

std::optional<double> number_at(const boost::json::object& object, const char* key) {
  const boost::json::value* value = object.if_contains(key);
  if (value == nullptr || !value->is_number()) return {};
  return value->to_number<double>();
}

std::optional<ProgramLine> line_of(const std::string& text) {
  try {
    const boost::json::value value = parse_json_text(text, "line");
    if (!value.is_object()) return {};
    const auto& object = value.get_object();
    const auto step = number_at(object, "step"), tokens = number_at(object, "tokens"),
               seconds = number_at(object, "seconds"), loss = number_at(object, "validation_loss");
    constexpr double kMost = 9e18;  // of what an integer holds
    const auto counts = [](double number) { return number >= 0 && number < kMost; };
    if (!step || !tokens || !seconds || !loss || !counts(*step) || !counts(*tokens) || *seconds < 0)
      return {};
    return ProgramLine{static_cast<std::int64_t>(*step), static_cast<std::int64_t>(*tokens),
                       *seconds, *loss, number_at(object, "flops")};
  } catch (const DataError&) {
    return {};
  }
}

}  // namespace

std::string run_program(const ProgramCall& call, const Interruption& interruption) {
  const FileDescriptor output = created(call.output), errors = created(call.errors);
  const SpawnSettings settings(call.folder, output.number(), errors.number());
  std::vector<char*> arguments;
  for (const std::string& argument : call.command)
    arguments.push_back(const_cast<char*>(argument.c_str()));  // as execve(2) wants it
  arguments.push_back(nullptr);
  pid_t process = 0;
  const int problem = ::posix_spawnp(&process, arguments[0], &settings.actions,
                                     &settings.attributes, arguments.data(), environ);
  if (problem != 0) return concat(call.command[0], " cannot be started: ", std::strerror(problem));
  const int status = wait_for(process, interruption);
  if (WIFSIGNALED(status))
    return concat("killed by signal ", WTERMSIG(status), " (", ::strsignal(WTERMSIG(status)), ")");
  return WEXITSTATUS(status) == 0 ? "" : concat("ended with exit status ", WEXITSTATUS(status));
}

ProgramOutput parse_program_output(const std::string& text) {
  // As Python, C and JavaScript write them.
  static const std::regex not_finite(R"(:\s*[-+]?(nan|inf|infinity)\b)", std::regex::icase);
  ProgramOutput found;
  std::istringstream in(text);
  for (std::string line; std::getline(in, line);) {
    if (line.empty()) continue;
    const std::string shown = line.substr(0, kLongestLineShown);
    if (const auto parsed = line_of(line)) {
      found.lines.push_back(*parsed);
    } else if (line[0] == '{' && line.size() < 1000 &&
               line.find("\"validation_loss\"") != std::string::npos &&
               std::regex_search(line, not_finite)) {
      if (found.problem.empty()) found.problem = "a number is not finite: " + shown;
    } else if (found.junk_lines++ == 0) {
      found.first_junk = shown;
    }
  }
  return found;
}

}  // namespace hybrid_trainer
