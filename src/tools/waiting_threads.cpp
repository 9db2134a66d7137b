#include "src/tools/waiting_threads.h"

#include <omp.h>
#include <sched.h>
#include <sys/auxv.h>
#include <unistd.h>
#include <cstdlib>
#include <filesystem>
#include <vector>

namespace hybrid_trainer {

namespace {

constexpr const char* kSpinCount = "GOMP_SPINCOUNT";
constexpr const char* kWaitPolicy = "OMP_WAIT_POLICY";
constexpr const char* kSpins = "1000";  // docs/results/RESULTS-2026-11.md, "Beside other programs"

/// Undoes OMP_PROC_BIND, by which OpenMP bound this and all later threads to the first place.
/// Allows all places and disables binding for the restarted program. Returns false if not bound.
bool unbind() {
  cpu_set_t all;
  CPU_ZERO(&all);
  for (int place = 0; place < omp_get_num_places(); ++place) {
    std::vector<int> processors(static_cast<std::size_t>(omp_get_place_num_procs(place)));
    omp_get_place_proc_ids(place, processors.data());
    for (const int processor : processors) CPU_SET(static_cast<std::size_t>(processor), &all);
  }
  if (CPU_COUNT(&all) == 0) return false;
  sched_setaffinity(0, sizeof all, &all);
  for (const char* name : {"OMP_PROC_BIND", "OMP_PLACES", "GOMP_CPU_AFFINITY"}) unsetenv(name);
  return true;
}

}  // namespace

void set_idle_thread_policy(char** arguments) {
  const bool has_user_setting =
      std::getenv(kSpinCount) != nullptr || std::getenv(kWaitPolicy) != nullptr;
  // If the program was started through the dynamic loader, /proc/self/exe is the loader.
  if (getauxval(AT_BASE) == 0) return;
  std::error_code unknown;
  const auto program = std::filesystem::read_symlink("/proc/self/exe", unknown);
  if (unknown || (!unbind() && has_user_setting)) return;
  if (!has_user_setting) setenv(kSpinCount, kSpins, 0);
  execv(program.c_str(), arguments);
  if (!has_user_setting) unsetenv(kSpinCount);
}

std::string waiting_of_threads() {
  for (const char* name : {kSpinCount, kWaitPolicy}) {
    const char* const value = std::getenv(name);
    if (value != nullptr) return std::string(name) + "=" + value;
  }
  return "as configured by OpenMP";
}

}  // namespace hybrid_trainer
