#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <vector>

namespace hybrid_trainer {

/// Visits the control group of this process for `controller` ("cpu", "memory", "pids") and each
/// group around it, innermost first, with its folder and version (1 or 2). In a container the named
/// groups may be hidden, but the container's own is visible: at the mount.
void visit_control_groups(const std::filesystem::path& root, const std::string& controller,
                          const std::function<void(const std::filesystem::path&, int)>& visit);

/// Memory that this process may take: the machine's, or less where a control group (a container, a
/// batch job) limits it.
struct MachineMemory {
  std::size_t total_bytes = 0;
  std::size_t available_bytes = 0;  // now, without swapping
};

/// 0 is unknown. `root` is where /proc and /sys/fs/cgroup are, in versions 1 and 2.
MachineMemory machine_memory(const std::filesystem::path& root = "/");

/// Vector instructions that the project's own kernels are compiled for; picked once at run time.
enum class InstructionSet { kBaseline, kAvx2, kAvx512 };
const char* name_of(InstructionSet set);

/// The best set that this processor has, limited by the environment variable HYBRID_MAX_ISA
/// (baseline, avx2, avx512: without matrix tiles). The same variable limits oneDNN if
/// ONEDNN_MAX_CPU_ISA is not set.
InstructionSet instruction_set();

/// True if the processor multiplies BF16 faster than FP32, instruction_set() is kAvx512, and the
/// user lets oneDNN multiply it: on matrix tiles (AMX), or with AVX-512 BF16 on a processor without
/// tiles.
bool multiplies_bfloat16();

/// True if the processor has matrix tiles for BF16 (AMX), the system lets this process use them,
/// and HYBRID_MAX_ISA does not limit it to avx512 or less.
bool multiplies_tiles();

/// The answers of the three functions above.
struct ProcessorUse {
  InstructionSet set = InstructionSet::kBaseline;
  bool bfloat16 = false, tiles = false;
  bool operator==(const ProcessorUse&) const = default;
};
ProcessorUse processor_use();
/// The common part of several: the least set, tiles where all have them, and BF16 where all
/// multiply it in the same way.
ProcessorUse common_processor_use(const std::vector<ProcessorUse>& all);
/// From now on they answer this, which must not be more than they did. oneDNN is held down to it
/// where it has not begun yet, and ONEDNN_MAX_CPU_ISA is not set. Not beside kernels.
void hold_processor_to(const ProcessorUse& use);
/// The limit that the user set in ONEDNN_MAX_CPU_ISA or DNNL_MAX_CPU_ISA; "" without one.
const std::string& onednn_limit_of_user();
/// False if `limit`, a value of ONEDNN_MAX_CPU_ISA in either case, forbids BF16 products.
bool onednn_limit_allows_bfloat16(const std::string& limit);
/// "avx512, bf16 products, tiles".
std::string text_of(const ProcessorUse& use);

struct ProcessorInfo {
  std::string name;  // as the processor reports it
  int cores = 1;     // usable by this process
};
ProcessorInfo processor_info();

/// Cores' worth of time that the control groups of this process allow (cpu.max, cpu.cfs_quota_us),
/// such as `docker run --cpus 1.5`; none without a limit. `root` holds /proc and /sys/fs/cgroup.
std::optional<double> processor_quota(const std::filesystem::path& root = "/");

/// This machine's name, as others know it.
std::string host_name();

/// Sets the number of threads for the kernels and matrix products that the calling thread starts;
/// results have the bits of that many. 0 means default_threads(processes). Throws ConfigError unless
/// the number is between 1 and usable_threads().
void set_threads(std::int64_t count, int processes = 1);
/// Sets default_threads(), or fewer if OpenMP gives fewer.
void set_default_threads();
/// Returns the number of threads of the calling thread, by default that of set_default_threads().
int threads();
/// Threads of one of `processes` processes that share this machine: the usable cores, at most the
/// quota rounded up, divided by `processes`; no more than OMP_NUM_THREADS.
int default_threads(int processes = 1);
/// Threads of the team that OpenMP gives to one who asks for `wanted` of them: no more than
/// OMP_THREAD_LIMIT and OMP_MAX_ACTIVE_LEVELS allow.
int threads_of_openmp(int wanted);
/// The most threads that may be set: the usable cores, or less if OpenMP gives less.
int usable_threads();

}  // namespace hybrid_trainer
