#include "src/tools/waiting_threads.h"

#include <sys/auxv.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>

namespace hybrid_trainer {
namespace {

constexpr const char* kSpinCount = "GOMP_SPINCOUNT";
constexpr const char* kWaitPolicy = "OMP_WAIT_POLICY";
constexpr const char* kSpins = "1000";  // docs/RESULTS.md, "Beside other programs"

}  // namespace

void let_waiting_threads_sleep(char** arguments) {
  if (std::getenv(kSpinCount) != nullptr || std::getenv(kWaitPolicy) != nullptr) return;
  // Run by the dynamic loader as its argument, this process is the loader's program, not this one.
  if (getauxval(AT_BASE) == 0) return;
  std::error_code unknown;
  const auto program = std::filesystem::read_symlink("/proc/self/exe", unknown);
  if (unknown) return;
  setenv(kSpinCount, kSpins, 0);
  execv(program.c_str(), arguments);
  unsetenv(kSpinCount);
}

std::string waiting_of_threads() {
  for (const char* name : {kSpinCount, kWaitPolicy}) {
    const char* const value = std::getenv(name);
    if (value != nullptr) return std::string(name) + "=" + value;
  }
  return "as OpenMP does by itself";
}

}  // namespace hybrid_trainer
