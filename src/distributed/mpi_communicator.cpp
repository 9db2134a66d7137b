#include <poll.h>
#include <signal.h>
#include <sys/syscall.h>
#include <unistd.h>
#include <climits>
#include <cstdio>
#include <fstream>

#include "src/core/libraries.h"
#include "src/core/process.h"
#include "src/core/threads.h"
#include "src/distributed/host_communicator.h"
#include "src/distributed/host_ranks.h"
#include "src/distributed/mpi/mpi_engine.h"

namespace hybrid_trainer {

namespace {

using namespace std::chrono_literals;

std::string name_of_process(pid_t process) {
  std::string name;
  std::getline(std::ifstream(concat("/proc/", process, "/comm")) >> std::ws, name);
  return name;
}

/// Kills the launcher unless it ends within `milliseconds`. Makes only system calls, because it
/// runs in a forked child of a process with threads. Closes descriptors, because the launcher waits
/// for its pipes.
[[noreturn]] void wait_and_kill(int launcher, int milliseconds) {
  ::setsid();
  if (launcher > 0) ::close_range(0, static_cast<unsigned>(launcher) - 1, 0);
  ::close_range(static_cast<unsigned>(launcher) + 1, UINT_MAX, 0);
  pollfd end{.fd = launcher, .events = POLLIN, .revents = 0};
  if (::poll(&end, 1, milliseconds) == 0)
    ::syscall(SYS_pidfd_send_signal, launcher, SIGKILL, nullptr, 0);
  ::_exit(0);
}

/// The thread that makes all MPI calls. Other threads hand it messages and sleep meanwhile.
class MpiThread {
 public:
  MpiThread();
  /// If `finishes_` is set, ends MPI, which waits for all ranks.
  ~MpiThread() {
    const std::lock_guard lock(mutex_);
    ends_ = true;
    changed_.notify_all();
  }
  MpiThread(const MpiThread&) = delete;
  MpiThread& operator=(const MpiThread&) = delete;

  int rank() const { return rank_; }
  int size() const { return size_; }
  const std::string& host() const { return host_; }
  void wait_for_transfer(std::span<const OutgoingBytes> sent,
                         std::span<const IncomingBytes> received) {
    const Messages messages{sent, received};
    std::unique_lock lock(mutex_);
    messages_ = &messages;
    changed_.notify_all();
    changed_.wait(lock, [&] { return messages_ == nullptr; });
    if (failure_) std::rethrow_exception(failure_);
  }
  void leave_without_finish() { finishes_ = false; }
  /// Makes pending and later messages throw RankLost.
  void interrupt() { is_interrupted_ = true; }
  [[noreturn]] void abort_and_exit(int exit_code);

 private:
  struct Messages {
    std::span<const OutgoingBytes> sent;
    std::span<const IncomingBytes> received;
  };
  void run();
  void start() {
    check(engine_->start(&rank_, &size_), "MPI_Init_thread");
    char name[256] = {};
    check(engine_->host_name(name, sizeof name), "MPI_Get_processor_name");
    host_ = name;
  }
  void transfer(const Messages& messages) {
    requests_.clear();
    begin(messages);
    wait_until_done();
  }
  void begin(const Messages& messages);
  void wait_until_done();
  void check(int error, const char* call) const {
    if (error == 0) return;
    char text[256] = {};
    engine_->error_text(error, text, sizeof text);
    throw DeviceError(concat("rank ", rank_, " by Open MPI: ", call, ": ", text));
  }
  void abort_if_asked() const {
    if (abort_code_ != 0) engine_->abort(abort_code_);
  }

  SharedLibrary library_;
  const MpiEngine* engine_ = nullptr;
  int rank_ = 0, size_ = 1;
  std::string host_;
  std::vector<void*> requests_;  // used only by the thread

  std::mutex mutex_;
  std::condition_variable changed_;
  const Messages* messages_ = nullptr;  // messages to send and receive
  bool started_ = false, ends_ = false;
  std::exception_ptr failure_;  // error of the last messages, or of the start
  std::atomic<int> abort_code_ = 0;
  std::atomic<bool> finishes_ = true, is_interrupted_ = false;
  std::jthread thread_;
};

/// Maximum size of a message part: MPI counts bytes in an int, and each part counts as progress.
constexpr std::size_t kMaxBytes = std::size_t{1} << 26;
/// Interval of checks for pending messages. Yielding instead would wait for compute threads on the
/// same CPU to use up their time slices, some ms each.
constexpr auto kSleep = 50us;
/// mpirun gives ranks 5 s to end by themselves.
constexpr auto kLauncherPatience = 15s;

WantedLibrary wanted_mpi_plug_in() {
  std::error_code unknown;
  const auto program = std::filesystem::read_symlink("/proc/self/exe", unknown);
  return {.title = "ranks by Open MPI",
          .files = {"libhybrid_trainer_mpi.so"},
          .folders = {(program.parent_path().parent_path() / HT_LIBRARY_FOLDER).string()},
          .hint = "install libopenmpi-dev and openmpi-bin, and build again"};
}

MpiThread::MpiThread() : library_(SharedLibrary::open(wanted_mpi_plug_in())) {
  engine_ = library_.function<MpiEngineFunction>(kMpiEngineFunction)();
  if (engine_->version != MpiEngine::kVersion)
    throw DeviceError(concat("ranks by Open MPI: ", library_.path(), " is version ",
                             engine_->version, ", want ", MpiEngine::kVersion,
                             "; use the one that was built with this program"));
  thread_ = start_thread([this] { return std::jthread([this] { run(); }); });
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] { return started_; });
  if (failure_) std::rethrow_exception(failure_);
}

void MpiThread::run() {
  std::unique_lock lock(mutex_);
  try {
    start();
  } catch (...) {
    failure_ = std::current_exception();
    ends_ = true;
    finishes_ = false;
  }
  started_ = true;
  changed_.notify_all();
  use_short_time_slices();
  for (;;) {
    changed_.wait(lock, [&] { return messages_ != nullptr || ends_ || abort_code_ != 0; });
    abort_if_asked();
    if (messages_ == nullptr) break;
    const Messages* const messages = messages_;
    lock.unlock();
    std::exception_ptr failure;
    try {
      transfer(*messages);
    } catch (...) {
      failure = std::current_exception();
    }
    lock.lock();
    failure_ = failure;
    messages_ = nullptr;
    changed_.notify_all();
  }
  if (finishes_) engine_->finish();
}

void MpiThread::begin(const Messages& messages) {
  const auto in_parts = [&](std::size_t bytes, const auto& begin_part) {
    for (std::size_t at = 0; at < bytes; at += kMaxBytes) {
      requests_.push_back(nullptr);
      begin_part(at, static_cast<int>(std::min(kMaxBytes, bytes - at)));
    }
  };
  for (const IncomingBytes& one : messages.received) {
    in_parts(one.bytes, [&](std::size_t at, int bytes) {
      check(engine_->begin_receive(static_cast<char*>(one.data) + at, bytes, one.peer,
                                   &requests_.back()),
            "MPI_Irecv");
    });
  }
  for (const OutgoingBytes& one : messages.sent) {
    in_parts(one.bytes, [&](std::size_t at, int bytes) {
      check(engine_->begin_send(static_cast<const char*>(one.data) + at, bytes, one.peer,
                                &requests_.back()),
            "MPI_Isend");
    });
  }
}

void MpiThread::wait_until_done() {
  const auto is_done = [&](void*& request) {
    int done = 0;
    check(engine_->is_done(&request, &done), "MPI_Test");
    if (done != 0) count_progress();
    return done != 0;
  };
  while (!requests_.empty()) {
    std::erase_if(requests_, is_done);
    abort_if_asked();
    if (requests_.empty()) return;
    if (is_interrupted_)
      throw RankLost(concat("rank ", rank_, " stopped because of its own error"));
    std::this_thread::sleep_for(kSleep);
  }
}

void MpiThread::abort_and_exit(int exit_code) {
  end_launcher_after(kLauncherPatience);
  {
    const std::lock_guard lock(mutex_);
    abort_code_ = exit_code;
    changed_.notify_all();
  }
  std::this_thread::sleep_for(10s);
  end_process(exit_code);
}

class MpiCommunicator final : public HostCommunicator {
 public:
  explicit MpiCommunicator(std::unique_ptr<MpiThread> thread)
      : HostCommunicator(thread->rank(), thread->size()), thread_(std::move(thread)) {}
  ~MpiCommunicator() override {
    if (std::uncaught_exceptions() > exceptions_) thread_->leave_without_finish();
  }
  const char* name() const override { return "mpi"; }

  void abort(const std::string& reason) override {
    if (!reason.empty())
      std::fprintf(stderr, "%s\n",
                   concat("rank ", rank(), " on ", thread_->host(), " gave up: ", reason).c_str());
    thread_->abort_and_exit(static_cast<int>(RankLost::kExitCode));
  }
  void interrupt() override { thread_->interrupt(); }

 protected:
  void wait_for_transfer(std::span<const OutgoingBytes> sent,
                         std::span<const IncomingBytes> received) override {
    if (!sent.empty() || !received.empty()) thread_->wait_for_transfer(sent, received);
  }

 private:
  std::unique_ptr<MpiThread> thread_;
  const int exceptions_ = std::uncaught_exceptions();
};

}  // namespace

bool is_open_mpi_launcher(const std::string& process_name) {
  constexpr const char* kNames[] = {"mpirun", "mpiexec", "orterun", "orted", "prterun", "prted"};
  return std::find(std::begin(kNames), std::end(kNames), process_name) != std::end(kNames);
}

void end_launcher_after(std::chrono::milliseconds patience) {
  const pid_t parent = ::getppid();
  if (!is_open_mpi_launcher(name_of_process(parent))) return;
  const auto launcher = static_cast<int>(::syscall(SYS_pidfd_open, parent, 0));
  if (launcher < 0) return;
  if (::getppid() == parent && ::fork() == 0)
    wait_and_kill(launcher, static_cast<int>(patience.count()));
  ::close(launcher);
}

std::unique_ptr<Communicator> start_mpi_communicator() {
  return std::make_unique<MpiCommunicator>(std::make_unique<MpiThread>());
}

}  // namespace hybrid_trainer
