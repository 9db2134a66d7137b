#include "hybrid_trainer/core/processor.h"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <functional>
#include <thread>

#include "hybrid_trainer/core/error.h"

namespace hybrid_trainer {
namespace {

/// What `answer` returns in a child process that never asked for the instruction set before, with
/// the variable set; null: not set.
int in_child(const char* max_isa, const std::function<int()>& answer) {
  const pid_t child = fork();
  if (child == 0) {
    unsetenv("ONEDNN_MAX_CPU_ISA");
    if (max_isa == nullptr) {
      unsetenv("HYBRID_MAX_ISA");
    } else {
      setenv("HYBRID_MAX_ISA", max_isa, 1);
    }
    _exit(answer());
  }
  int status = 0;
  waitpid(child, &status, 0);
  return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

int set_number() { return static_cast<int>(instruction_set()); }

TEST(InstructionSet, IsHeldDownByTheEnvironment) {
  const int best = in_child("avx512", set_number);
  EXPECT_EQ(in_child("baseline", set_number), static_cast<int>(InstructionSet::kBaseline));
  EXPECT_EQ(in_child("avx2", set_number), std::min(best, static_cast<int>(InstructionSet::kAvx2)));
}

TEST(InstructionSet, HoldsTheProductLibraryDownToo) {
  const auto has = [](const std::string& wanted) {
    return [wanted] {
      instruction_set();
      const char* set = std::getenv("ONEDNN_MAX_CPU_ISA");
      return (set == nullptr ? wanted.empty() : wanted == set) ? 0 : 1;
    };
  };
  EXPECT_EQ(in_child("avx2", has("AVX2")), 0);
  EXPECT_EQ(in_child("baseline", has("SSE41")), 0);
  EXPECT_EQ(in_child("avx512", has("AVX512_CORE_BF16")), 0);
}

TEST(InstructionSet, MultipliesNoBFloat16WhereHeldDown) {
  EXPECT_EQ(in_child("avx2", [] { return multiplies_bfloat16() ? 1 : 0; }), 0);
}

TEST(InstructionSet, MultipliesNoTilesWhereHeldDown) {
  for (const char* set : {"avx512", "avx2"})
    EXPECT_EQ(in_child(set, [] { return multiplies_tiles() ? 1 : 0; }), 0) << set;
}

TEST(InstructionSet, RefusesAnUnknownName) {
  const auto throws_usage_error = [] {
    try {
      instruction_set();
    } catch (const UsageError& error) {
      return std::string(error.what()).find("avx9") == std::string::npos ? 2 : 0;
    }
    return 1;
  };
  EXPECT_EQ(in_child("avx9", throws_usage_error), 0);
}

TEST(ProcessorUse, IsWhatAllHaveInCommon) {
  const ProcessorUse tiles{InstructionSet::kAvx512, true, true},
      vectors{InstructionSet::kAvx512, true, false}, plain{InstructionSet::kAvx512, false, false},
      old{InstructionSet::kAvx2, false, false};
  EXPECT_EQ(common_processor_use({tiles, tiles}), tiles);
  EXPECT_EQ(common_processor_use({vectors, vectors, vectors}), vectors);
  EXPECT_EQ(common_processor_use({vectors, plain}), plain);
  EXPECT_EQ(common_processor_use({tiles, vectors}), plain) << "vectors are slow beside tiles";
  EXPECT_EQ(common_processor_use({vectors, tiles, tiles}), plain);
  EXPECT_EQ(common_processor_use({tiles, old}), old);
}

TEST(ProcessorUse, IsHeldToLessAndSoIsTheProductLibrary) {
  const auto holds = [] {
    if (processor_use().set < InstructionSet::kAvx2) return 0;
    hold_processor_to({InstructionSet::kAvx2, false, false});
    const char* const onednn = std::getenv("ONEDNN_MAX_CPU_ISA");
    return instruction_set() == InstructionSet::kAvx2 && !multiplies_bfloat16() &&
                   !multiplies_tiles() && onednn != nullptr && std::string(onednn) == "AVX2"
               ? 0
               : 1;
  };
  for (const char* const set : {"avx512", static_cast<const char*>(nullptr)})
    EXPECT_EQ(in_child(set, holds), 0);
  const auto takes_more = [] {
    try {
      hold_processor_to({InstructionSet::kAvx512, true, true});
    } catch (const Error&) {
      return 0;
    }
    return 1;
  };
  EXPECT_EQ(in_child("avx2", takes_more), 0);
}

TEST(ProcessorInfo, SaysWhatTheProcessMayUse) {
  const ProcessorInfo info = processor_info();
  EXPECT_FALSE(info.name.empty());
  EXPECT_GE(info.cores, 1);
  EXPECT_LE(info.cores, static_cast<int>(std::thread::hardware_concurrency()));
}

TEST(SetThreads, TakesOneToAllCores) {
  const int before = threads();
  set_threads(1);
  EXPECT_EQ(threads(), 1);
  EXPECT_THROW(set_threads(0), ConfigError);
  EXPECT_THROW(set_threads(processor_info().cores + 1), ConfigError);
  set_threads(std::min(before, processor_info().cores));
}

}  // namespace
}  // namespace hybrid_trainer
