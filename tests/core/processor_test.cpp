#include "src/core/machine.h"

#include <gtest/gtest.h>
#include <omp.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <map>
#include <thread>

#include "hybrid_trainer/core/error.h"
#include "tests/support/test_files.h"

namespace hybrid_trainer {
namespace {

/// Returns `answer()` from a new process, with the variable set to `max_isa` or, if null, unset.
int in_child(const char* max_isa, const std::function<int()>& answer) {
  const pid_t child = fork();
  if (child == 0) {
    unsetenv("ONEDNN_MAX_CPU_ISA");
    unsetenv("DNNL_MAX_CPU_ISA");
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

TEST(InstructionSet, IsLimitedByEnvironment) {
  const int best = in_child("avx512", set_number);
  EXPECT_EQ(in_child("baseline", set_number), static_cast<int>(InstructionSet::kBaseline));
  EXPECT_EQ(in_child("avx2", set_number), std::min(best, static_cast<int>(InstructionSet::kAvx2)));
}

TEST(InstructionSet, LimitAppliesToOneDnn) {
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

TEST(InstructionSet, LimitDisablesBFloat16) {
  EXPECT_EQ(in_child("avx2", [] { return multiplies_bfloat16() ? 1 : 0; }), 0);
}

TEST(InstructionSet, LimitDisablesTiles) {
  for (const char* set : {"avx512", "avx2"})
    EXPECT_EQ(in_child(set, [] { return multiplies_tiles() ? 1 : 0; }), 0) << set;
}

TEST(InstructionSet, RefusesUnknownName) {
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

TEST(ProcessorUse, CommonUseIsSupportedByAll) {
  const ProcessorUse tiles{InstructionSet::kAvx512, true, true},
      vectors{InstructionSet::kAvx512, true, false}, plain{InstructionSet::kAvx512, false, false},
      old{InstructionSet::kAvx2, false, false};
  EXPECT_EQ(common_processor_use({tiles, tiles}), tiles);
  EXPECT_EQ(common_processor_use({vectors, vectors, vectors}), vectors);
  EXPECT_EQ(common_processor_use({vectors, plain}), plain);
  EXPECT_EQ(common_processor_use({tiles, vectors}), plain)
      << "vectors are slow compared with tiles";
  EXPECT_EQ(common_processor_use({vectors, tiles, tiles}), plain);
  EXPECT_EQ(common_processor_use({tiles, old}), old);
}

TEST(ProcessorUse, LimitAppliesToOneDnnAndCannotBeRaised) {
  const auto holds = [] {
    if (processor_use().set < InstructionSet::kAvx2) return 0;
    limit_instruction_set({InstructionSet::kAvx2, false, false});
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
      limit_instruction_set({InstructionSet::kAvx512, true, true});
    } catch (const Error&) {
      return 0;
    }
    return 1;
  };
  EXPECT_EQ(in_child("avx2", takes_more), 0);
}

TEST(ProcessorInfo, ReportsNameAndUsableCores) {
  const ProcessorInfo info = processor_info();
  EXPECT_FALSE(info.name.empty());
  EXPECT_GE(info.cores, 1);
  EXPECT_LE(info.cores, static_cast<int>(std::thread::hardware_concurrency()));
}

TEST(InstructionSet, OneDnnLimitDisablesBFloat16) {
  for (const char* const below : {"AVX2", "sse41", "AVX512_CORE", "avx512_core_vnni", "AVX2_VNNI"})
    EXPECT_FALSE(onednn_limit_allows_bfloat16(below)) << below;
  for (const char* const other : {"", "ALL", "avx512_core_bf16", "AVX512_CORE_AMX", "AVX10_1_512"})
    EXPECT_TRUE(onednn_limit_allows_bfloat16(other)) << other;
  for (const char* const name : {"ONEDNN_MAX_CPU_ISA", "DNNL_MAX_CPU_ISA"}) {
    EXPECT_EQ(in_child(nullptr,
                       [&] {
                         setenv(name, "AVX2", 1);
                         return multiplies_bfloat16() || multiplies_tiles() ? 1 : 0;
                       }),
              0)
        << name;
  }
}

TEST(ProcessorQuota, ReportsTightestCgroupQuota) {
  struct Case {
    std::map<std::string, std::string> files;
    std::optional<double> quota;
  };
  const std::string v2 = "0::/job/step\n", v1 = "4:cpu,cpuacct:/job\n";
  const std::string both = "sys/fs/cgroup/cpu,cpuacct/";
  const std::vector<Case> cases{
      {{}, {}},
      {{{"proc/self/cgroup", v2}, {"sys/fs/cgroup/job/cpu.max", "max 100000\n"}}, {}},
      {{{"proc/self/cgroup", v2}, {"sys/fs/cgroup/job/step/cpu.max", "150000 100000\n"}}, 1.5},
      {{{"proc/self/cgroup", v2},
        {"sys/fs/cgroup/job/step/cpu.max", "400000 100000\n"},
        {"sys/fs/cgroup/job/cpu.max", "50000 100000\n"}},
       0.5},
      {{{"proc/self/cgroup", "0::/docker/hidden\n"}, {"sys/fs/cgroup/cpu.max", "200000 100000\n"}},
       2},
      {{{"proc/self/cgroup", v2}, {"sys/fs/cgroup/unified/job/cpu.max", "100000 100000\n"}}, 1},
      {{{"proc/self/cgroup", v1}, {both + "job/cpu.cfs_quota_us", "-1\n"}}, {}},
      {{{"proc/self/cgroup", v1},
        {both + "job/cpu.cfs_quota_us", "-1\n"},
        {both + "job/cpu.cfs_period_us", "100000\n"},
        {both + "cpu.cfs_quota_us", "250000\n"},
        {both + "cpu.cfs_period_us", "100000\n"}},
       2.5},
      {{{"proc/self/cgroup", "2:cpu:/\n"},
        {"sys/fs/cgroup/cpu/cpu.cfs_quota_us", "100000\n"},
        {"sys/fs/cgroup/cpu/cpu.cfs_period_us", "50000\n"}},
       2},
  };
  for (std::size_t i = 0; i < cases.size(); ++i) {
    const TemporaryFolder root;
    for (const auto& [name, text] : cases[i].files) {
      std::filesystem::create_directories((root / name).parent_path());
      write_text(root / name, text);
    }
    EXPECT_EQ(processor_quota(root.path()), cases[i].quota) << i;
  }
}

TEST(SetThreads, AcceptsOneToAllCores) {
  const int before = threads();
  set_threads(1);
  EXPECT_EQ(threads(), 1);
  set_threads(0);
  EXPECT_EQ(threads(), default_threads());
  EXPECT_THROW(set_threads(-1), ConfigError);
  EXPECT_THROW(set_threads(processor_info().cores + 1), ConfigError);
  set_threads(before);
}

TEST(SetThreads, OpenMpTeamMemberHasOneThread) {
  const int before = threads();
  std::atomic<int> most = 0;
#pragma omp parallel num_threads(2)
  most = std::max({most.load(), threads(), omp_get_max_threads()});
  EXPECT_EQ(most, 1) << "OpenMP gives a nested team one thread";
  EXPECT_EQ(threads(), before);
}

/// Output of the program about its threads when it starts with an environment variable.
TEST(SetThreads, DISABLED_PrintsThreadLimits) {
  std::printf("default %d limit %d", threads(), usable_threads());
  try {
    set_threads(0);
  } catch (const ConfigError& error) {
    std::printf(" refused: %s", error.what());
  }
  std::printf("\n");
}

TEST(SetThreads, HeedsOpenMpLimits) {
  const std::string program = std::filesystem::read_symlink("/proc/self/exe").string();
  const auto told = [&](const std::string& variable) {
    const std::string command = variable + " '" + program +
                                "' --gtest_also_run_disabled_tests "
                                "--gtest_filter=SetThreads.DISABLED_PrintsThreadLimits";
    FILE* const pipe = popen(command.c_str(), "r");
    std::string text(4096, '\0');
    text.resize(fread(text.data(), 1, text.size(), pipe));
    pclose(pipe);
    return text.substr(std::min(text.find("default "), text.size()));
  };
  for (const char* const limit : {"OMP_THREAD_LIMIT=1", "OMP_MAX_ACTIVE_LEVELS=0"}) {
    const std::string text = told(limit);
    EXPECT_TRUE(text.starts_with("default 1 limit 1")) << text;
    if (processor_info().cores > 1) {
      EXPECT_NE(text.find(concat("refused: training.threads=0: got ", default_threads(),
                                 ", want 1 to 1: OpenMP does not allow more (", limit, ")")),
                text.npos)
          << text;
    }
  }
  EXPECT_TRUE(told("OMP_NUM_THREADS=1").starts_with("default 1 limit "))
      << "more threads may be set";
  const std::string all = concat("default ", default_threads(), " limit ", usable_threads(), "\n");
  for (const char* const variable : {"OMP_DYNAMIC=true", "OMP_NUM_THREADS=4096"})
    EXPECT_TRUE(told(variable).starts_with(all)) << variable;
}

}  // namespace
}  // namespace hybrid_trainer
