#pragma once

#include <algorithm>
#include <cstdint>

namespace hybrid_trainer {

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

}  // namespace hybrid_trainer
