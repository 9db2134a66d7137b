#pragma once

#include <cstddef>
#include <string>
#include <vector>

namespace hybrid_trainer {

/// Vector instructions that the project's own kernels are compiled for; picked once at run time.
enum class InstructionSet { kBaseline, kAvx2, kAvx512 };
const char* name_of(InstructionSet set);

/// The best set that this processor has, limited by the environment variable HYBRID_MAX_ISA
/// (baseline, avx2, avx512: without matrix tiles). The same variable limits oneDNN if
/// ONEDNN_MAX_CPU_ISA is not set.
InstructionSet instruction_set();

/// True if the processor multiplies BF16 faster than FP32 and instruction_set() is kAvx512: on
/// matrix tiles (AMX), or with AVX-512 BF16 on a processor without tiles.
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
/// ONEDNN_MAX_CPU_ISA as this program was started with it; "" where it was not set.
const std::string& onednn_limit_of_user();
/// "avx512, bf16 products, tiles".
std::string text_of(const ProcessorUse& use);

struct ProcessorInfo {
  std::string name;  // as the processor reports it
  int cores = 1;     // usable by this process
};
ProcessorInfo processor_info();

/// This machine's name, as others know it.
std::string host_name();

/// Number of threads for the kernels and matrix products that the calling thread starts; in another
/// thread it is the number of cores until set there. Throws ConfigError if above that number.
void set_threads(int count);
int threads();

}  // namespace hybrid_trainer
