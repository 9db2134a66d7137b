#include "src/core/threads.h"

#include <omp.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>
#include <atomic>
#include <cstdlib>
#include <fstream>
#include <latch>
#include <tuple>

#include "src/core/clock.h"
#include "src/core/cuda_runtime.h"
#include "src/core/machine.h"

namespace hybrid_trainer {

namespace {

/// Formats each thread limit: "ulimit -u: 100".
std::vector<std::string> thread_limits() {
  std::vector<std::string> limits;
  for (const auto& [resource, name, unit] :
       {std::tuple{RLIMIT_NPROC, "ulimit -u", rlim_t{1}}, {RLIMIT_AS, "ulimit -v", rlim_t{1024}}}) {
    rlimit limit{};
    if (::getrlimit(resource, &limit) == 0 && limit.rlim_cur != RLIM_INFINITY)
      limits.push_back(concat(name, ": ", limit.rlim_cur / unit));
  }
  visit_control_groups("/", "pids", [&](const std::filesystem::path& group, int) {
    std::size_t most = 0;
    if (std::ifstream(group / "pids.max") >> most) limits.push_back(concat("pids.max: ", most));
  });
  return limits;
}

/// Argument of the system call sched_setattr. Source: sched_setattr(2).
struct SchedulingAttributes {
  std::uint32_t size = sizeof(SchedulingAttributes), policy = SCHED_OTHER;
  std::uint64_t flags = 0;
  std::int32_t nice = 0;
  std::uint32_t priority = 0;
  std::uint64_t runtime = 100'000;  // ns, the minimum of the system
  std::uint64_t deadline = 0, period = 0;
};

/// Set while a library computes on OpenMP threads, which need the cores.
std::atomic<bool> library_computes = false;

/// Whether this thread runs a task or belongs to the team.
thread_local bool is_in_task = false;

class TaskScope {
 public:
  TaskScope() {
    if (was_in_task_) return;
    is_in_task = true;
    omp_set_num_threads(1);
  }
  ~TaskScope() {
    if (was_in_task_) return;
    is_in_task = false;
    omp_set_num_threads(threads_);
  }
  TaskScope(const TaskScope&) = delete;
  TaskScope& operator=(const TaskScope&) = delete;
  bool was_in_task() const { return was_in_task_; }

 private:
  const bool was_in_task_ = is_in_task;
  const int threads_ = threads();
};

/// Iterations of spinning, then yielding (about 1 ms), before a thread sleeps: waking it is slow.
struct SpinPolicy {
  int spins = 1000;
  int yields = 2000;
};
SpinPolicy spin_policy() {
  const char* const policy = std::getenv("OMP_WAIT_POLICY");
  return policy != nullptr && (*policy == 'p' || *policy == 'P') ? SpinPolicy{0, 0} : SpinPolicy{};
}

/// Blocks signals except the thread's own faults, for the reason in interruption.cpp.
void block_signals() {
  sigset_t set;
  sigfillset(&set);
  for (const int fault : {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGABRT, SIGTRAP})
    sigdelset(&set, fault);
  pthread_sigmask(SIG_SETMASK, &set, nullptr);
}

class ThreadTeam {
 public:
  /// Returns the team, which is never destroyed, and neither are its threads.
  static ThreadTeam& instance() {
    static ThreadTeam& team = *new ThreadTeam;
    return team;
  }
  void run(std::int64_t count, TaskFunction task, const void* context);

 private:
  struct Job {
    TaskFunction task = nullptr;
    const void* context = nullptr;
    std::int64_t count = 0;
    int helpers = 0;
  };

  ThreadTeam() {
    pthread_atfork(nullptr, nullptr, [] {  // a forked child has no team threads
      instance().started_ = 0;
      instance().active_ = 0;
    });
  }
  void start(int helpers) {
    try {
      for (; started_ < helpers; ++started_)
        std::thread(&ThreadTeam::help, this, started_ + 1).detach();
    } catch (const std::system_error&) {
      // Fewer threads run the same tasks.
    }
  }
  void help(int worker);
  /// Runs tasks until none are left. Takes them in order, so the first failing one always runs.
  void take_tasks(int worker) {
    std::int64_t i = next_++;
    try {
      for (; i < job_.count; i = next_++) job_.task(job_.context, worker, i);
    } catch (...) {
      const std::lock_guard lock(failing_);
      if (!failure_ || i < failed_) failure_ = std::current_exception(), failed_ = i;
      next_ = job_.count;
    }
  }
  template <class Value>
  void wait_while(const std::atomic<Value>& value, Value unchanged) const;

  const SpinPolicy spin_policy_ = spin_policy();
  std::mutex caller_;
  int started_ = 0;
  Job job_;  // written while is_open_ is false; read only after is_open_ is true
  std::mutex failing_;
  std::exception_ptr failure_;  // thrown by task `failed_`
  std::int64_t failed_ = 0;
  std::atomic<std::int64_t> next_ = 0;
  std::atomic<bool> is_open_ = false;  // tasks may be taken
  std::atomic<int> active_ = 0;        // helpers that may run a task
  std::atomic<std::uint32_t> jobs_ = 0;
};

template <class Value>
void ThreadTeam::wait_while(const std::atomic<Value>& value, Value unchanged) const {
  const auto changes = [&](int times, auto pause) {
    for (int i = 0; i < times && !library_computes.load(std::memory_order_relaxed); ++i) {
      if (value.load(std::memory_order_acquire) != unchanged) return true;
      pause();
    }
    return false;
  };
  if (changes(spin_policy_.spins, [] { __builtin_ia32_pause(); })) return;
  if (changes(spin_policy_.yields, [] { std::this_thread::yield(); })) return;
  value.wait(unchanged, std::memory_order_acquire);
}

/// Runs tasks of every job. Either this thread sees that the job is closed, or the caller sees that
/// it is active. A job that opens after `seen` is read ends the next wait immediately.
void ThreadTeam::help(int worker) {
  block_signals();
  is_in_task = true;
  set_threads(1);
  for (std::uint32_t seen = 0;;) {
    wait_while(jobs_, seen);
    seen = jobs_.load();
    ++active_;
    if (is_open_ && worker <= job_.helpers) take_tasks(worker);
    if (--active_ == 0) active_.notify_all();
  }
}

void ThreadTeam::run(std::int64_t count, TaskFunction task, const void* context) {
  const int helpers = count > 1 ? threads() - 1 : 0;
  std::unique_lock<std::mutex> turn(caller_, std::defer_lock);
  const TaskScope task_scope;
  if (task_scope.was_in_task() || helpers <= 0 || !turn.try_lock()) {
    for (std::int64_t i = 0; i < count; ++i) task(context, 0, i);
    return;
  }
  start(helpers);
  job_ = {task, context, count, helpers};
  next_ = 0;
  is_open_ = true;
  ++jobs_;
  jobs_.notify_all();

  take_tasks(0);

  is_open_ = false;
  for (int active = active_; active != 0; active = active_) wait_while(active_, active);
  if (failure_) std::rethrow_exception(std::exchange(failure_, nullptr));
}

}  // namespace

void throw_thread_refused() {
  const std::vector<std::string> limits = thread_limits();
  throw Error(ExitCode::kMemory,
              concat("the system does not allow more threads",
                     limits.empty() ? "" : concat(" (", join(limits), ")"),
                     "; raise the limit of the user (ulimit -u) or of the container (pids.max, "
                     "docker run --pids-limit), or lower training.threads"));
}

void require_more_threads(int count) {
  std::latch end(1);
  std::vector<std::jthread> started;
  try {
    for (int i = 0; i < count; ++i) started.emplace_back([&] { end.wait(); });
  } catch (const std::system_error&) {
    end.count_down();
    started.clear();
    throw_thread_refused();
  }
  end.count_down();
}

bool use_short_time_slices() noexcept {
  if (sched_getscheduler(0) != SCHED_OTHER) return false;  // respect an explicit policy
  SchedulingAttributes attributes;
  attributes.nice = getpriority(PRIO_PROCESS, static_cast<id_t>(syscall(SYS_gettid)));
  return syscall(SYS_sched_setattr, 0, &attributes, 0) == 0;
}

LibraryComputeScope::LibraryComputeScope() {
  thread_local int able = 1;  // OpenMP aborts if it cannot start a thread
  if (threads() > able) require_more_threads(threads() - 1);
  able = std::max(able, threads());
  if (!is_in_task) library_computes.store(true, std::memory_order_relaxed);
}
LibraryComputeScope::~LibraryComputeScope() {
  if (!is_in_task) library_computes.store(false, std::memory_order_relaxed);
}

void detach_from_team(int threads) {
  block_signals();
  is_in_task = true;
  set_threads(1);
  omp_set_num_threads(threads_of_openmp(threads));
}

void run_task_function(std::int64_t count, TaskFunction task, const void* context) {
  ThreadTeam::instance().run(count, task, context);
}

void BackgroundWorker::stop() {
  thread_.request_stop();
  if (thread_.joinable()) thread_.join();
}

void BackgroundWorker::submit(std::function<void()> job) {
  std::unique_lock lock(mutex_);
  ++submitted_;
  jobs_.push_back(std::move(job));
  if (!background_) return do_next(lock);
  if (!thread_.joinable()) {
    thread_ = start_thread([this] {
      return std::jthread([this, device = CallerDevice()](std::stop_token stop) {
        device.use();
        run(stop);
      });
    });
  }
  changed_.notify_all();
}

void BackgroundWorker::run(const std::stop_token& stop) {
  detach_from_team(threads_);
  std::unique_lock lock(mutex_);
  while (changed_.wait(lock, stop, [&] { return !jobs_.empty(); })) do_next(lock);
}

void BackgroundWorker::do_next(std::unique_lock<std::mutex>& lock) {
  const std::function<void()> job = std::move(jobs_.front());
  jobs_.pop_front();
  std::exception_ptr failure = failure_;
  const auto begin = Clock::now();
  lock.unlock();
  try {
    if (!failure) job();
  } catch (...) {
    failure = std::current_exception();
  }
  lock.lock();
  seconds_ += seconds_since(begin);
  failure_ = failure;
  ++done_;
  changed_.notify_all();
}

std::int64_t BackgroundWorker::submitted() const {
  const std::lock_guard lock(mutex_);
  return submitted_;
}

double BackgroundWorker::wait_until_done(std::int64_t jobs) {
  std::unique_lock lock(mutex_);
  double waited = 0;
  if (done_ < jobs) {
    const auto begin = Clock::now();
    changed_.wait(lock, [&] { return done_ >= jobs; });
    waited = seconds_since(begin);
  }
  if (failure_) {
    changed_.wait(lock, [&] { return done_ == submitted_; });
    std::rethrow_exception(failure_);
  }
  return waited;
}

double BackgroundWorker::seconds() const {
  const std::lock_guard lock(mutex_);
  return seconds_;
}

}  // namespace hybrid_trainer
