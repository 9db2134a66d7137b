#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <vector>

namespace hybrid_trainer {

/// Calls `visit` with the folder and the version (1 or 2) of the control group of this process for
/// `controller` ("cpu", "memory", "pids"), and then of its parents. In a container, the folders of
/// these groups may be hidden; the mount point is then the container's group.
void visit_control_groups(const std::filesystem::path& root, const std::string& controller,
                          const std::function<void(const std::filesystem::path&, int)>& visit);

/// Memory available to this process, including limits of control groups (containers, batch jobs).
struct MachineMemory {
  std::size_t total_bytes = 0;
  std::size_t available_bytes = 0;  // now, without swapping
};

/// Reads /proc and /sys/fs/cgroup (versions 1 and 2) below `root`. A member is 0 if it is unknown.
MachineMemory machine_memory(const std::filesystem::path& root = "/");

/// Instruction sets of the project's kernels; selected once at run time.
enum class InstructionSet { kBaseline, kAvx2, kAvx512 };
const char* name_of(InstructionSet set);

/// Returns the CPU's best instruction set, limited by the environment variable HYBRID_MAX_ISA:
/// baseline, avx2 or avx512 (without AMX). It also limits oneDNN unless ONEDNN_MAX_CPU_ISA is set.
InstructionSet instruction_set();

/// Returns whether BF16 products are faster than FP32. Requires that instruction_set() is kAvx512,
/// that oneDNN's limits permit BF16, and usable AMX or, on a CPU without AMX, AVX-512 BF16.
bool multiplies_bfloat16();

/// Returns whether the CPU has AMX for BF16 and the system and HYBRID_MAX_ISA permit it.
bool multiplies_tiles();

struct ProcessorUse {
  InstructionSet set = InstructionSet::kBaseline;
  bool bfloat16 = false, tiles = false;
  bool operator==(const ProcessorUse&) const = default;
};
ProcessorUse processor_use();
/// Returns the features that all machines have in common: the smallest instruction set, AMX if all
/// machines have it, and BF16 if all machines multiply BF16 in the same way.
ProcessorUse common_processor_use(const std::vector<ProcessorUse>& all);
/// Limits the results of the functions above to `use`. Limits oneDNN too, if it is not initialized
/// yet and ONEDNN_MAX_CPU_ISA is not set. Must not run concurrently with kernels.
void limit_instruction_set(const ProcessorUse& use);
/// Returns the value of ONEDNN_MAX_CPU_ISA or DNNL_MAX_CPU_ISA, or "" if neither is set.
const std::string& onednn_limit_of_user();
/// Returns whether `limit`, a case-insensitive value of ONEDNN_MAX_CPU_ISA, permits BF16 products.
bool onednn_limit_allows_bfloat16(const std::string& limit);
/// Returns the features as text: "avx512, bf16 products, tiles".
std::string text_of(const ProcessorUse& use);

struct ProcessorInfo {
  std::string name;  // reported by the CPU
  int cores = 1;     // number of cores that this process may use
};
ProcessorInfo processor_info();

/// Returns the CPU quota of the process's control groups in cores (cpu.max, cpu.cfs_quota_us; for
/// example `docker run --cpus 1.5`), or nullopt. Reads /proc and /sys/fs/cgroup below `root`.
std::optional<double> processor_quota(const std::filesystem::path& root = "/");

std::string host_name();

/// Sets the number of threads of kernels and matrix products that the calling thread starts. Equal
/// numbers give bit-identical results. 0 means default_threads(processes). Throws ConfigError
/// unless the number is between 1 and usable_threads().
void set_threads(std::int64_t count, int processes = 1);
/// Sets the number of threads to default_threads(), or fewer if OpenMP provides fewer.
void set_default_threads();
/// Returns the number of threads of the calling thread, by default as in set_default_threads().
int threads();
/// Returns the threads per process if `processes` share the machine: the usable cores, limited to
/// the quota (rounded up), divided by `processes`, and at most OMP_NUM_THREADS.
int default_threads(int processes = 1);
/// Returns how many of `wanted` threads OpenMP provides (OMP_THREAD_LIMIT, OMP_MAX_ACTIVE_LEVELS).
int threads_of_openmp(int wanted);
/// Returns the highest number of threads: the usable cores, or OpenMP's limit if lower.
int usable_threads();

}  // namespace hybrid_trainer
