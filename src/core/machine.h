#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <vector>

namespace hybrid_trainer {

/// Visits the control group of this process for `controller` ("cpu", "memory", "pids") and its parents,
/// innermost first, with folder and version (1 or 2). Inside a container the named groups may be
/// hidden; the group of the container is then the mount point.
void visit_control_groups(const std::filesystem::path& root, const std::string& controller,
                          const std::function<void(const std::filesystem::path&, int)>& visit);

/// Memory available to this process, including limits of control groups (containers, batch jobs).
struct MachineMemory {
  std::size_t total_bytes = 0;
  std::size_t available_bytes = 0;  // now, without swapping
};

/// Reads /proc and /sys/fs/cgroup (versions 1 and 2) below `root`. 0 means unknown.
MachineMemory machine_memory(const std::filesystem::path& root = "/");

/// Instruction sets of the project's kernels; selected once at run time.
enum class InstructionSet { kBaseline, kAvx2, kAvx512 };
const char* name_of(InstructionSet set);

/// Returns the best instruction set of the CPU, limited by the environment variable HYBRID_MAX_ISA
/// (baseline, avx2, avx512: without AMX). The variable also limits oneDNN unless ONEDNN_MAX_CPU_ISA is
/// set.
InstructionSet instruction_set();

/// Returns whether BF16 products are faster than FP32: instruction_set() is kAvx512, the CPU has AMX, or
/// AVX-512 BF16 without AMX, and the user's limits let oneDNN use it.
bool multiplies_bfloat16();

/// Returns whether the CPU has AMX for BF16, the system permits it and HYBRID_MAX_ISA does not exclude it.
bool multiplies_tiles();

/// Results of the three functions above.
struct ProcessorUse {
  InstructionSet set = InstructionSet::kBaseline;
  bool bfloat16 = false, tiles = false;
  bool operator==(const ProcessorUse&) const = default;
};
ProcessorUse processor_use();
/// Returns the features common to all: the smallest instruction set, AMX if all have it, and BF16 if
/// all multiply it in the same way.
ProcessorUse common_processor_use(const std::vector<ProcessorUse>& all);
/// Lowers the results of the functions above to `limit`. Limits oneDNN too, if it is not initialized
/// yet and ONEDNN_MAX_CPU_ISA is not set. Must not run concurrently with kernels.
void limit_instruction_set(const ProcessorUse& use);
/// Returns the value of ONEDNN_MAX_CPU_ISA or DNNL_MAX_CPU_ISA; "" if unset.
const std::string& onednn_limit_of_user();
/// Returns whether `limit`, a case-insensitive value of ONEDNN_MAX_CPU_ISA, permits BF16 products.
bool onednn_limit_allows_bfloat16(const std::string& limit);
/// "avx512, bf16 products, tiles".
std::string text_of(const ProcessorUse& use);

struct ProcessorInfo {
  std::string name;  // reported by the CPU
  int cores = 1;     // usable by this process
};
ProcessorInfo processor_info();

/// Returns the CPU quota of the process's control groups in cores (cpu.max, cpu.cfs_quota_us; for
/// example `docker run --cpus 1.5`), or nullopt. Reads /proc and /sys/fs/cgroup below `root`.
std::optional<double> processor_quota(const std::filesystem::path& root = "/");

/// Returns the host name.
std::string host_name();

/// Sets the number of threads of kernels and matrix products started by the calling thread. Results are
/// bit-identical for equal numbers of threads. 0 means default_threads(processes). Throws ConfigError
/// unless the number is between 1 and usable_threads().
void set_threads(std::int64_t count, int processes = 1);
/// Sets default_threads(), or fewer if OpenMP gives fewer.
void set_default_threads();
/// Returns the number of threads of the calling thread, by default the number of set_default_threads().
int threads();
/// Returns the threads per process if `processes` share the machine: the usable cores, at most the
/// quota rounded up, divided by `processes`, and at most OMP_NUM_THREADS.
int default_threads(int processes = 1);
/// Returns the size of an OpenMP team if `wanted` threads are requested, limited by OMP_THREAD_LIMIT
/// and OMP_MAX_ACTIVE_LEVELS.
int threads_of_openmp(int wanted);
/// Returns the highest number of threads: the usable cores, or OpenMP's limit if lower.
int usable_threads();

}  // namespace hybrid_trainer
