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

/// Throws Error(ExitCode::kMemory), which names the limits on the number of threads of this process.
[[noreturn]] void throw_thread_refused();

/// Calls `start`, which starts a thread, and returns its result. Throws as throw_thread_refused if the system
/// refuses one. Every thread is started through it.
template <class Start>
auto start_thread(const Start& start) {
  try {
    return start();
  } catch (const std::system_error&) {
    throw_thread_refused();
  }
}

/// Throws as throw_thread_refused if `count` more threads cannot run at once: for libraries that end
/// the process then.
void require_more_threads(int count);

/// For a thread that mostly waits, beside others that compute: from now on the system gives its turns
/// a tenth of a millisecond, so that it interrupts one with longer turns on its core where it has
/// something to do, and need not wait for that one's turn to end. Linux since 6.12 (EEVDF, which
/// prefers short slices); elsewhere nothing changes. False where the system does not let it.
bool take_short_turns() noexcept;

/// task(worker, i) for each i of [0, count), the next one to whichever of threads() threads is
/// free, the caller among them. Returns when all are done. `worker` is below threads() and names
/// scratch space. Waits only for threads that took a task: one whose processor runs another program
/// delays nobody. Inside a task, and while another thread uses the team, all run on the caller.
/// What the failed task of the smallest i threw is thrown on; others may be left out. OpenMP
/// within tasks has one thread.
template <class Task>
void run_tasks(std::int64_t count, const Task& task);

/// body(i) for each i of [0, count), `at_once` neighbors in a task.
template <class Body>
void run_each(std::int64_t count, std::int64_t at_once, const Body& body);

/// A task as a function with its context.
using TaskFunction = void (*)(const void* context, std::int64_t worker, std::int64_t i);
void run_task_function(std::int64_t count, TaskFunction task, const void* context);

/// While one lives, the team's waiting threads sleep at once: for calls of a library that computes
/// on OpenMP's threads. Within a task, where a library has one thread, it does nothing.
class LibraryComputes {
 public:
  LibraryComputes();
  ~LibraryComputes();
  LibraryComputes(const LibraryComputes&) = delete;
  LibraryComputes& operator=(const LibraryComputes&) = delete;
};

/// The calling thread, which is to compute beside the team for as long as it lives, takes no signals
/// and none of the team, which goes on as without it; products of a library run on `threads` threads
/// of its own.
void compute_beside_the_team(int threads);

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

/// A thread that does one job after another, in the order in which they were given, on the CUDA
/// device of the thread that gave the first.
class BackgroundWorker {
 public:
  /// `threads`: for the products of its jobs. Not `beside`: jobs are done where they are given.
  BackgroundWorker(int threads, bool beside) : threads_(threads), beside_(beside) {}
  ~BackgroundWorker() { stop(); }
  BackgroundWorker(const BackgroundWorker&) = delete;
  BackgroundWorker& operator=(const BackgroundWorker&) = delete;

  void submit(std::function<void()> job);
  std::int64_t submitted() const;
  /// Blocks until so many jobs are done; returns the seconds that it took, 0 where nothing was left
  /// to do. Throws what a job threw, from then on each time; later jobs, which would build on it,
  /// are given up.
  double wait_until_done(std::int64_t jobs);
  double wait_until_idle() { return wait_until_done(submitted()); }
  /// After the jobs that there are; then no more may be given.
  void stop();
  double seconds() const;  // of all jobs done

 private:
  void run(const std::stop_token& stop);
  void do_next(std::unique_lock<std::mutex>& lock);

  const int threads_;
  const bool beside_;
  mutable std::mutex mutex_;
  std::condition_variable_any changed_;
  std::deque<std::function<void()>> jobs_;
  std::int64_t submitted_ = 0, done_ = 0;
  double seconds_ = 0;
  std::exception_ptr failure_;
  std::jthread thread_;  // from the first job on
};

}  // namespace hybrid_trainer
