#pragma once

#include <algorithm>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <exception>
#include <functional>
#include <mutex>
#include <system_error>
#include <thread>

namespace hybrid_trainer {

/// Throws Error(ExitCode::kMemory) naming the thread limits of this process.
[[noreturn]] void throw_thread_refused();

/// Calls `start`, which starts a thread, and returns its result. Throws like throw_thread_refused
/// if the system refuses the thread. All threads are started through this function.
template <class Start>
auto start_thread(const Start& start) {
  try {
    return start();
  } catch (const std::system_error&) {
    throw_thread_refused();
  }
}

/// Throws like throw_thread_refused if `count` more threads cannot start, before a library would
/// abort the process.
void require_more_threads(int count);

/// Requests time slices of 0.1 ms, so that the calling thread preempts compute threads when it has
/// work. Returns false if the system refuses. Has an effect since Linux 6.12 (EEVDF).
bool use_short_time_slices() noexcept;

/// Runs task(worker, i) for each i in [0, count) and returns when all tasks are done. Uses
/// threads() threads, including the caller, with dynamic scheduling. `worker` < threads()
/// identifies scratch space. Nested calls, and calls while another thread uses the team, run all
/// tasks on the caller. Rethrows the exception of the failed task with the smallest i; later tasks
/// may be skipped. OpenMP uses one thread within tasks.
template <class Task>
void run_tasks(std::int64_t count, const Task& task);

/// Runs body(i) for each i in [0, count). A task has `at_once` consecutive indices.
template <class Body>
void run_each(std::int64_t count, std::int64_t at_once, const Body& body);

using TaskFunction = void (*)(const void* context, std::int64_t worker, std::int64_t i);
void run_task_function(std::int64_t count, TaskFunction task, const void* context);

/// Makes idle threads of the team sleep, so that a library can use OpenMP. No effect in a task.
class LibraryComputeScope {
 public:
  LibraryComputeScope();
  ~LibraryComputeScope();
  LibraryComputeScope(const LibraryComputeScope&) = delete;
  LibraryComputeScope& operator=(const LibraryComputeScope&) = delete;
};

/// Lets the calling thread compute concurrently with the team from now on. The thread blocks
/// signals and does not use the team; library products run on `threads` separate threads.
void detach_from_team(int threads);

template <class Task>
void run_tasks(std::int64_t count, const Task& task) {
  run_task_function(
      count,
      [](const void* context, std::int64_t worker, std::int64_t i) {
        (*static_cast<const Task*>(context))(worker, i);
      },
      &task);
}

template <class Body>
void run_each(std::int64_t count, std::int64_t at_once, const Body& body) {
  run_tasks((count + at_once - 1) / at_once, [&](std::int64_t, std::int64_t task) {
    const std::int64_t end = std::min(count, (task + 1) * at_once);
    for (std::int64_t i = task * at_once; i < end; ++i) body(i);
  });
}

/// A thread that runs jobs in FIFO order, on the CUDA device of the first submitting thread.
class BackgroundWorker {
 public:
  /// `threads`: number of threads for matrix products in jobs. Without `background`, jobs run in
  /// the caller's thread.
  BackgroundWorker(int threads, bool background) : threads_(threads), background_(background) {}
  ~BackgroundWorker() { stop(); }
  BackgroundWorker(const BackgroundWorker&) = delete;
  BackgroundWorker& operator=(const BackgroundWorker&) = delete;

  void submit(std::function<void()> job);
  std::int64_t submitted() const;
  /// Blocks until `jobs` jobs are done and returns the seconds waited. If a job failed, drops all
  /// later jobs, and rethrows the job's exception in this call and in every later call.
  double wait_until_done(std::int64_t jobs);
  double wait_until_idle() { return wait_until_done(submitted()); }
  void stop();
  double seconds() const;  // total of finished jobs

 private:
  void run(const std::stop_token& stop);
  void do_next(std::unique_lock<std::mutex>& lock);

  const int threads_;
  const bool background_;
  mutable std::mutex mutex_;
  std::condition_variable_any changed_;
  std::deque<std::function<void()>> jobs_;
  std::int64_t submitted_ = 0, done_ = 0;
  double seconds_ = 0;
  std::exception_ptr failure_;
  std::jthread thread_;  // started by the first job
};

}  // namespace hybrid_trainer
