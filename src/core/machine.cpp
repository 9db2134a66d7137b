#include "src/core/machine.h"

#include <cpuid.h>
#include <omp.h>
#include <sched.h>
#include <sys/syscall.h>
#include <unistd.h>
#include <algorithm>
#include <cctype>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <fstream>

#include "hybrid_trainer/core/error.h"

namespace hybrid_trainer {

namespace fs = std::filesystem;

void visit_control_groups(const fs::path& root, const std::string& controller,
                          const std::function<void(const fs::path&, int)>& visit) {
  const auto visit_up = [&](const fs::path& mount, fs::path path, int version) {
    for (path = path.relative_path();; path = path.parent_path()) {
      visit(mount / path, version);
      if (path.empty()) return;
    }
  };
  const fs::path groups = root / "sys/fs/cgroup";
  std::ifstream own(root / "proc/self/cgroup");
  for (std::string line; std::getline(own, line);) {  // such as "4:cpu,cpuacct:/a/b", "0::/a/b"
    const std::size_t first = line.find(':'), second = line.find(':', first + 1);
    if (second == std::string::npos) continue;
    const std::string controllers = line.substr(first + 1, second - first - 1);
    const fs::path path = line.substr(second + 1);
    if (controllers.empty()) {
      for (const char* const mount : {"", "unified"}) visit_up(groups / mount, path, 2);
    } else if ((',' + controllers + ',').find(',' + controller + ',') != std::string::npos) {
      std::error_code absent;
      const bool is_alone = fs::exists(groups / controller, absent);
      visit_up(groups / (is_alone ? controller : controllers), path, 1);
    }
  }
}

namespace {

/// Returns the number in a file, or nullopt for other contents such as "max".
std::optional<std::size_t> number_in(const fs::path& path) {
  std::ifstream in(path);
  std::size_t number = 0;
  return in >> number ? std::optional(number) : std::nullopt;
}

/// Returns the number after `key` in a file of keys and numbers, or 0.
std::size_t number_after(const fs::path& path, const std::string& key) {
  std::ifstream in(path);
  std::size_t number = 0;
  for (std::string word; in >> word;)
    if (word == key && in >> number) return number;
  return 0;
}

struct GroupFiles {
  const char *limit, *use, *reclaimable;
};
constexpr GroupFiles kVersion1{"memory.limit_in_bytes", "memory.usage_in_bytes",
                               "total_inactive_file"};
constexpr GroupFiles kVersion2{"memory.max", "memory.current", "inactive_file"};

InstructionSet best_instruction_set() {
  __builtin_cpu_init();
  // x86-64-v3 and v4, by features: clang 16 does not have the names of these levels.
  if (!__builtin_cpu_supports("avx2") || !__builtin_cpu_supports("fma") ||
      !__builtin_cpu_supports("bmi") || !__builtin_cpu_supports("bmi2"))
    return InstructionSet::kBaseline;
  const bool has_v4 = __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
                      __builtin_cpu_supports("avx512cd") && __builtin_cpu_supports("avx512dq") &&
                      __builtin_cpu_supports("avx512vl");
  return has_v4 ? InstructionSet::kAvx512 : InstructionSet::kAvx2;
}

/// Limits oneDNN's instruction sets unless the user has. Has no effect once oneDNN is initialized.
void limit_onednn(InstructionSet set) {
  if (!onednn_limit_of_user().empty()) return;
  const char* const name = set == InstructionSet::kAvx512 ? "AVX512_CORE_BF16"
                           : set == InstructionSet::kAvx2 ? "AVX2"
                                                          : "SSE41";
  setenv("ONEDNN_MAX_CPU_ISA", name, 1);
}

InstructionSet limited_instruction_set() {
  const InstructionSet best = best_instruction_set();
  const char* wish = std::getenv("HYBRID_MAX_ISA");
  if (wish == nullptr) return best;
  for (auto set : {InstructionSet::kBaseline, InstructionSet::kAvx2, InstructionSet::kAvx512}) {
    if (std::strcmp(wish, name_of(set)) == 0) {
      limit_onednn(set);
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

/// Requests permission for AMX state, which Linux requires.
bool may_use_tiles() {
  constexpr int kRequestPermission = 0x1023, kTileData = 18;
  return syscall(SYS_arch_prctl, kRequestPermission, kTileData) == 0;
}

/// Queries the processor. Callers keep the result, because CPUID takes tens of microseconds in a
/// virtual machine. On CPUs with AMX, BF16 vector products run at half the rate of FP32.
ProcessorUse use_of_processor() {
  ProcessorUse use{.set = limited_instruction_set()};
  if (use.set != InstructionSet::kAvx512) return use;
  if (!onednn_limit_allows_bfloat16(onednn_limit_of_user())) return use;
  use.tiles =
      std::getenv("HYBRID_MAX_ISA") == nullptr && has_tile_instructions() && may_use_tiles();
  use.bfloat16 = has_tile_instructions() ? use.tiles : has_bfloat16_vectors();
  return use;
}

ProcessorUse& use_here() {
  static ProcessorUse use = use_of_processor();
  return use;
}

/// Returns the environment variables that limit a team, as " (OMP_THREAD_LIMIT=1)".
std::string limits_of_openmp() {
  std::vector<std::string> set;
  for (const char* const name : {"OMP_THREAD_LIMIT", "OMP_MAX_ACTIVE_LEVELS"})
    if (const char* const value = std::getenv(name)) set.push_back(concat(name, "=", value));
  return set.empty() ? "" : concat(" (", join(set), ")");
}

/// True if the number of threads was set for the calling thread.
thread_local bool has_number = false;

}  // namespace

MachineMemory machine_memory(const fs::path& root) {
  const fs::path info = root / "proc/meminfo";
  MachineMemory memory{number_after(info, "MemTotal:") * 1024,
                       number_after(info, "MemAvailable:") * 1024};
  visit_control_groups(root, "memory", [&](const fs::path& group, int version) {
    const GroupFiles& files = version == 1 ? kVersion1 : kVersion2;
    const auto limit = number_in(group / files.limit);
    if (!limit) return;
    const std::size_t use = number_in(group / files.use).value_or(0);
    const std::size_t kept =
        use - std::min(use, number_after(group / "memory.stat", files.reclaimable));
    memory.total_bytes = std::min(memory.total_bytes, *limit);
    memory.available_bytes = std::min(memory.available_bytes, *limit - std::min(*limit, kept));
  });
  return memory;
}

std::string host_name() {
  char name[256] = {};
  return gethostname(name, sizeof name - 1) == 0 ? name : "an unknown host";
}

const char* name_of(InstructionSet set) {
  switch (set) {
    case InstructionSet::kBaseline: return "baseline";
    case InstructionSet::kAvx2: return "avx2";
    case InstructionSet::kAvx512: return "avx512";
  }
  return "?";
}

InstructionSet instruction_set() { return use_here().set; }
bool multiplies_bfloat16() { return use_here().bfloat16; }
bool multiplies_tiles() { return use_here().tiles; }
ProcessorUse processor_use() { return use_here(); }

ProcessorUse common_processor_use(const std::vector<ProcessorUse>& all) {
  ProcessorUse common = all.at(0);
  for (const ProcessorUse& one : all) {
    common.set = std::min(common.set, one.set);
    common.bfloat16 &= one.bfloat16 && one.tiles == all[0].tiles;
    common.tiles &= one.tiles;
  }
  return common;
}

void limit_instruction_set(const ProcessorUse& use) {
  ProcessorUse& here = use_here();
  const bool is_less =
      use.set <= here.set && use.bfloat16 <= here.bfloat16 && use.tiles <= here.tiles;
  require(is_less, "the limit of an instruction set must be one that the processor supports");
  limit_onednn(use.set);
  here = use;
}

/// The value is cached on the first call, before limit_onednn sets the variable.
const std::string& onednn_limit_of_user() {
  static const std::string limit = [] {
    for (const char* const name : {"ONEDNN_MAX_CPU_ISA", "DNNL_MAX_CPU_ISA"})
      if (const char* const set = std::getenv(name)) return std::string(set);
    return std::string();
  }();
  return limit;
}

/// For every other name, even an unknown one, oneDNN permits BF16.
bool onednn_limit_allows_bfloat16(const std::string& limit) {
  std::string name = limit;
  std::ranges::transform(name, name.begin(), [](unsigned char c) { return std::tolower(c); });
  constexpr const char* kBelow[] = {
      "sse41",       "avx",           "avx2",       "avx2_vnni",       "avx2_vnni_2",
      "avx512_core", "avx512_common", "avx512_mic", "avx512_mic_4ops", "avx512_core_vnni"};
  return std::ranges::find(kBelow, name) == std::end(kBelow);
}

std::string text_of(const ProcessorUse& use) {
  return concat(name_of(use.set), use.bfloat16 ? ", bf16 products" : "",
                use.tiles ? ", tiles" : "");
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
  return info;
}

std::optional<double> processor_quota(const std::filesystem::path& root) {
  std::optional<double> least;
  visit_control_groups(root, "cpu", [&](const std::filesystem::path& group, int version) {
    double quota = 0, period = 0;
    std::ifstream in(group / (version == 1 ? "cpu.cfs_quota_us" : "cpu.max"));
    in >> quota;  // fails at "max"
    if (version == 1) in = std::ifstream(group / "cpu.cfs_period_us");
    if (!(in >> period) || quota <= 0 || period <= 0) return;
    least = std::min(least.value_or(quota / period), quota / period);
  });
  return least;
}

int default_threads(int processes) {
  static const int openmp = omp_get_max_threads();  // OMP_NUM_THREADS, before any number is set
  const int cores = processor_info().cores;
  const double quota = std::ceil(processor_quota().value_or(cores));
  const int share = static_cast<int>(std::min<double>(cores, quota)) / std::max(processes, 1);
  return std::max(1, std::min(share, openmp));
}

int threads_of_openmp(int wanted) {
  return omp_get_max_active_levels() < 1 ? 1 : std::min(wanted, omp_get_thread_limit());
}

int usable_threads() { return threads_of_openmp(processor_info().cores); }

static void check_threads(const std::string& key, std::int64_t count) {
  const int cores = processor_info().cores, most = usable_threads();
  if (count >= 1 && count <= most) return;
  const std::string reason = most < cores ? "OpenMP does not allow more" + limits_of_openmp()
                                          : concat("this process may use ", cores, " cores");
  throw ConfigError({concat(key, ": got ", count, ", want 1 to ", most, ": ", reason)});
}

static void set_number(int count) {
  omp_set_dynamic(0);
  omp_set_num_threads(count);
  has_number = true;
}

void set_threads(std::int64_t count, int processes) {
  const std::int64_t number = count == 0 ? default_threads(processes) : count;
  check_threads(count == 0 ? "training.threads=0" : "training.threads", number);
  set_number(static_cast<int>(number));
}

void set_default_threads() {
  const int count = default_threads();
  set_number(std::min(count, usable_threads()));
}

int threads() {
  if (omp_in_parallel() != 0) {
    omp_set_num_threads(1);  // libraries query OpenMP directly
  } else if (!has_number) {
    set_default_threads();
  }
  return omp_get_max_threads();
}

}  // namespace hybrid_trainer
