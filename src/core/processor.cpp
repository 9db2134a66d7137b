#include "hybrid_trainer/core/processor.h"

#include <omp.h>
#include <sched.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cpuid.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <fstream>

#include "hybrid_trainer/core/error.h"

namespace hybrid_trainer {
namespace {

InstructionSet best_of_processor() {
  __builtin_cpu_init();
  if (__builtin_cpu_supports("x86-64-v4")) return InstructionSet::kAvx512;
  if (__builtin_cpu_supports("x86-64-v3")) return InstructionSet::kAvx2;
  return InstructionSet::kBaseline;
}

InstructionSet held_down() {
  const InstructionSet best = best_of_processor();
  const char* wish = std::getenv("HYBRID_MAX_ISA");
  if (wish == nullptr) return best;
  for (auto set : {InstructionSet::kBaseline, InstructionSet::kAvx2, InstructionSet::kAvx512}) {
    if (std::strcmp(wish, name_of(set)) == 0) {
      const char* const onednn = set == InstructionSet::kAvx512 ? "AVX512_CORE_BF16"
                                 : set == InstructionSet::kAvx2 ? "AVX2"
                                                                : "SSE41";
      setenv("ONEDNN_MAX_CPU_ISA", onednn, 0);
      return std::min(best, set);
    }
  }
  throw UsageError(concat("HYBRID_MAX_ISA is ", wish, "; want baseline, avx2 or avx512"));
}

bool has_bfloat16_vectors() {
  unsigned a = 0, b = 0, c = 0, d = 0;
  return __get_cpuid_count(7, 1, &a, &b, &c, &d) != 0 && (a & (1u << 5)) != 0;
}

bool has_tile_instructions() {
  unsigned a = 0, b = 0, c = 0, d = 0;
  constexpr unsigned kTiles = 1u << 24, kBFloat16 = 1u << 22;
  return __get_cpuid_count(7, 0, &a, &b, &c, &d) != 0 && (d & kTiles) != 0 && (d & kBFloat16) != 0;
}

/// Linux lets a process use the tiles' large state only if it asks.
bool may_use_tiles() {
  constexpr int kRequestPermission = 0x1023, kTileData = 18;
  return syscall(SYS_arch_prctl, kRequestPermission, kTileData) == 0;
}

}  // namespace

std::string host_name() {
  char name[256] = {};
  return gethostname(name, sizeof name - 1) == 0 ? name : "a host without a name";
}

const char* name_of(InstructionSet set) {
  switch (set) {
    case InstructionSet::kBaseline:
      return "baseline";
    case InstructionSet::kAvx2:
      return "avx2";
    case InstructionSet::kAvx512:
      return "avx512";
  }
  return "?";
}

InstructionSet instruction_set() {
  static const InstructionSet set = held_down();
  return set;
}

bool multiplies_bfloat16() {
  // Asked once: in a virtual machine the processor answers after tens of microseconds. With tiles,
  // BF16 vector products run at half of FP32's rate.
  static const bool faster =
      instruction_set() == InstructionSet::kAvx512 &&
      (has_tile_instructions() ? multiplies_tiles() : has_bfloat16_vectors());
  return faster;
}

bool multiplies_tiles() {
  static const bool taken = instruction_set() == InstructionSet::kAvx512 &&
                            std::getenv("HYBRID_MAX_ISA") == nullptr && has_tile_instructions() &&
                            may_use_tiles();
  return taken;
}

ProcessorInfo processor_info() {
  ProcessorInfo info;
  std::ifstream cpuinfo("/proc/cpuinfo");
  for (std::string line; std::getline(cpuinfo, line);) {
    if (line.starts_with("model name")) {
      info.name = line.substr(std::min(line.size(), line.find(':') + 2));
      break;
    }
  }
  cpu_set_t usable;
  CPU_ZERO(&usable);
  if (sched_getaffinity(0, sizeof usable, &usable) == 0)
    info.cores = std::max(1, CPU_COUNT(&usable));
  info.memory_bytes = static_cast<std::size_t>(sysconf(_SC_PHYS_PAGES)) *
                      static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
  return info;
}

void set_threads(int count) {
  const int cores = processor_info().cores;
  if (count < 1 || count > cores) {
    throw ConfigError({concat("training.threads: got ", count, ", want 1 to ", cores,
                              " (this process may use ", cores, " cores); 0 takes all")});
  }
  omp_set_dynamic(0);
  omp_set_num_threads(count);
}

int threads() { return omp_get_max_threads(); }

std::size_t available_memory_bytes() {
  std::ifstream in("/proc/meminfo");
  std::size_t kilobytes = 0;
  for (std::string key; in >> key;) {
    if (key == "MemAvailable:" && in >> kilobytes) break;
    in.ignore(1 << 10, '\n');
  }
  return kilobytes * 1024;
}

}  // namespace hybrid_trainer
