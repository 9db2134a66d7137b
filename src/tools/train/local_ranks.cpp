#include "src/tools/train/local_ranks.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>
#include <boost/asio.hpp>
#include <filesystem>
#include <optional>
#include <random>

#include "hybrid_trainer/core/error.h"
#include "hybrid_trainer/core/interruption.h"
#include "src/core/clock.h"
#include "src/distributed/launched_rank.h"

namespace hybrid_trainer {

namespace {

constexpr auto kUntilKilled = std::chrono::seconds(5);
/// Signals within this time count as one request, as in Interruption.
constexpr auto kOneRequest = std::chrono::seconds(1);
constexpr timespec kPause{.tv_sec = 0, .tv_nsec = 50'000'000};

volatile sig_atomic_t signal_to_pass_on = 0;

extern "C" void record_signal(int signal) { signal_to_pass_on = signal; }

class SignalRecorder {
 public:
  SignalRecorder() {
    signal_to_pass_on = 0;
    struct sigaction action {};
    action.sa_handler = record_signal;
    for (std::size_t i = 0; i < std::size(kStopSignals); ++i) {
      sigaction(kStopSignals[i], nullptr, &before_[i]);
      const bool is_nohup = kStopSignals[i] == SIGHUP && before_[i].sa_handler == SIG_IGN;
      if (!is_nohup) sigaction(kStopSignals[i], &action, nullptr);
    }
  }
  ~SignalRecorder() {
    for (std::size_t i = 0; i < std::size(kStopSignals); ++i)
      sigaction(kStopSignals[i], &before_[i], nullptr);
  }
  SignalRecorder(const SignalRecorder&) = delete;
  /// Returns a signal since the last call, if any. Ignores signals within kOneRequest of the last.
  std::optional<int> next() {
    const int signal = std::exchange(signal_to_pass_on, 0);
    if (signal == 0 || (last_ && Clock::now() - *last_ < kOneRequest)) return {};
    last_ = Clock::now();
    return signal;
  }

 private:
  struct sigaction before_[std::size(kStopSignals)]{};
  std::optional<Clock::time_point> last_;
};

/// Returns a free port for rank 0 to open.
int free_port() {
  boost::asio::io_context context;
  const boost::asio::ip::tcp::acceptor any(context, {boost::asio::ip::address_v4::loopback(), 0});
  return any.local_endpoint().port();
}

std::vector<char*> pointers_to(std::vector<std::string>& texts) {
  std::vector<char*> pointers;
  for (std::string& text : texts) pointers.push_back(text.data());
  pointers.push_back(nullptr);
  return pointers;
}

class LocalRanks {
 public:
  LocalRanks(std::vector<std::string> command, int ranks) : command_(std::move(command)) {
    const std::string job = std::to_string(std::random_device{}());
    const std::string secret = random_secret();
    const int port = free_port();
    for (int rank = 0; rank < ranks; ++rank) {
      start({{kLocalRanksVariable, job},
             {kSecretVariable, secret},
             {"RANK", std::to_string(rank)},
             {"WORLD_SIZE", std::to_string(ranks)},
             {"LOCAL_RANK", std::to_string(rank)},
             {"LOCAL_WORLD_SIZE", std::to_string(ranks)},
             {"MASTER_ADDR", "127.0.0.1"},
             {"MASTER_PORT", std::to_string(port)}});
    }
  }
  LocalRanks(const LocalRanks&) = delete;

  int wait() {
    while (!running_.empty()) {
      nanosleep(&kPause, nullptr);
      if (const auto signal = signals_.next()) {
        if (stop_requested_ && !is_sent_repeatedly(*signal)) schedule_kill();
        stop_requested_ = true;
        signal_all(*signal);
      }
      for (const pid_t process : std::vector(running_)) record_exit(process);
      if (kills_at_ && Clock::now() > *kills_at_) signal_all(SIGKILL);
    }
    return exit_code_;
  }

 private:
  using Variables = std::vector<std::pair<std::string, std::string>>;

  /// Starts a rank in a separate process group, so that Ctrl-C reaches the rank only through this
  /// process. The rank ends when this process ends.
  void start(const Variables& variables) {
    std::vector<std::string> environment;
    for (const auto& [name, value] : variables) environment.push_back(concat(name, "=", value));
    for (char** one = environ; *one != nullptr; ++one) environment.emplace_back(*one);
    const std::vector<char*> arguments = pointers_to(command_), values = pointers_to(environment);
    const pid_t parent = getpid(), process = fork();
    if (process < 0) {
      signal_all(SIGKILL);
      throw DeviceError(
          "--ranks: the system does not allow more processes; raise the limit of the user (ulimit "
          "-u) or of the container (pids.max), or use fewer ranks");
    }
    if (process > 0) return running_.push_back(process);
    setpgid(0, 0);
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != parent) _exit(1);
    if (const int nothing = open("/dev/null", O_RDONLY); nothing >= 0) dup2(nothing, STDIN_FILENO);
    execve(arguments.front(), arguments.data(), values.data());
    _exit(127);
  }

  void signal_all(int signal) const {
    for (const pid_t process : running_) kill(process, signal);
  }

  void record_exit(pid_t process) {
    int status = 0;
    if (waitpid(process, &status, WNOHANG) != process) return;
    std::erase(running_, process);
    const int code =
        WIFEXITED(status) ? WEXITSTATUS(status) : static_cast<int>(RankLost::kExitCode);
    if (code != 0 && exit_code_ == 0) exit_code_ = code;
    if (code != 0 && code != static_cast<int>(ExitCode::kInterrupted) && !kills_at_) {
      signal_all(SIGTERM);
      schedule_kill();
    }
  }

  void schedule_kill() {
    if (!kills_at_) kills_at_ = Clock::now() + kUntilKilled;
  }

  std::vector<std::string> command_;
  SignalRecorder signals_;
  std::vector<pid_t> running_;
  std::optional<Clock::time_point> kills_at_;
  bool stop_requested_ = false;  // the ranks were asked to stop
  int exit_code_ = 0;
};

}  // namespace

std::vector<std::string> command_of_rank(const std::string& command,
                                         const std::vector<std::string>& arguments) {
  std::vector<std::string> all{std::filesystem::read_symlink("/proc/self/exe").string(), command};
  all.insert(all.end(), arguments.begin(), arguments.end());
  return all;
}

int run_local_ranks(const std::vector<std::string>& command, int ranks) {
  return LocalRanks(command, ranks).wait();
}

}  // namespace hybrid_trainer
