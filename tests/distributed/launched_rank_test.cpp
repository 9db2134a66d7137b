#include "src/distributed/launched_rank.h"

#include <gtest/gtest.h>

#include <map>

namespace hybrid_trainer {
namespace {

using Variables = std::map<std::string, std::string>;

EnvironmentVariable reader_of(const Variables& set) {
  return [&](const char* name) -> const char* {
    const auto found = set.find(name);
    return found == set.end() ? nullptr : found->second.c_str();
  };
}

std::optional<LaunchedRank> launched(const Variables& set) { return launched_rank(reader_of(set)); }

std::string refusal_of(const Variables& set) {
  try {
    launched(set);
  } catch (const UsageError& error) {
    return error.what();
  }
  return "";
}

const Variables kByMpirun{{"OMPI_COMM_WORLD_RANK", "3"},
                          {"OMPI_COMM_WORLD_SIZE", "4"},
                          {"OMPI_COMM_WORLD_LOCAL_RANK", "1"},
                          {"OMPI_COMM_WORLD_LOCAL_SIZE", "2"}};
const Variables kByTorchrun{{"RANK", "2"},
                            {"WORLD_SIZE", "8"},
                            {"LOCAL_RANK", "2"},
                            {"LOCAL_WORLD_SIZE", "4"},
                            {"TORCHELASTIC_RUN_ID", "none"}};

TEST(LaunchedRank, ReadsVariablesOfEachLauncher) {
  EXPECT_EQ(launched({}), std::nullopt);
  EXPECT_EQ(launched(kByMpirun), (LaunchedRank{"mpirun", 3, 4, 1, 2, true}));
  EXPECT_EQ(launched(kByTorchrun), (LaunchedRank{"torchrun", 2, 8, 2, 4, false}));
  Variables step{{"SLURM_PROCID", "1"}, {"SLURM_NTASKS", "2"}, {"SLURM_LOCALID", "0"}};
  EXPECT_EQ(launched(step), std::nullopt);  // a batch script
  step["SLURM_STEP_ID"] = "0";
  EXPECT_EQ(launched(step), (LaunchedRank{"srun", 1, 2, 0, 1, false}));
  step["PMIX_RANK"] = "1";
  EXPECT_TRUE(launched(step)->supports_pmix);
}

/// Variables set by hand must not start several runs of one rank each.
TEST(LaunchedRank, ReadsRankAndWorldSizeSetByHand) {
  const std::string by_hand = "the launcher that set RANK and WORLD_SIZE";
  EXPECT_EQ(launched({{"RANK", "1"}, {"WORLD_SIZE", "2"}}), (LaunchedRank{by_hand, 1, 2, 0, 1}));
  EXPECT_EQ(launched({{"RANK", "1"}, {"WORLD_SIZE", "4"}, {"LOCAL_RANK", "1"}}),
            (LaunchedRank{by_hand, 1, 4, 1, 2}));
  for (const Variables& none :
       {Variables{{"RANK", "0"}, {"WORLD_SIZE", "1"}}, {{"RANK", "3"}}, {{"WORLD_SIZE", "3"}}})
    EXPECT_EQ(launched(none), std::nullopt);
  Variables both = kByMpirun;
  both.insert({{"RANK", "3"}, {"WORLD_SIZE", "4"}});
  EXPECT_EQ(launched(both)->launcher, "mpirun");
  both["RANK"] = "0";
  EXPECT_EQ(refusal_of(both),
            "two launchers disagree: mpirun says rank 3 of 4, the launcher that set RANK and "
            "WORLD_SIZE says rank 0 of 4; start the ranks with only one of them");
  Variables step{{"SLURM_PROCID", "1"},  {"SLURM_NTASKS", "2"}, {"SLURM_LOCALID", "0"},
                 {"SLURM_STEP_ID", "0"}, {"RANK", "1"},         {"WORLD_SIZE", "2"}};
  EXPECT_EQ(launched(step)->launcher, "srun");
  step["RANK"] = "0";
  EXPECT_NE(refusal_of(step).find("two launchers disagree: srun says rank 1 of 2"),
            std::string::npos);
}

TEST(LaunchedRank, MpirunTakesPrecedenceOverSlurm) {
  Variables both = kByMpirun;
  both.insert({{"SLURM_PROCID", "0"},
               {"SLURM_NTASKS", "1"},
               {"SLURM_LOCALID", "0"},
               {"SLURM_STEP_ID", "0"}});
  EXPECT_EQ(launched(both)->launcher, "mpirun");
}

TEST(LaunchedRank, RejectsContradictoryVariables) {
  Variables both = kByMpirun;
  both.insert(kByTorchrun.begin(), kByTorchrun.end());
  EXPECT_EQ(refusal_of(both),
            "two launchers disagree: mpirun says rank 3 of 4, torchrun says rank 2 of 8; start the "
            "ranks with only one of them");
  Variables missing = kByMpirun;
  missing.erase("OMPI_COMM_WORLD_SIZE");
  EXPECT_EQ(refusal_of(missing),
            "mpirun started this process, but OMPI_COMM_WORLD_SIZE is not set");
  Variables large = kByMpirun;
  large["OMPI_COMM_WORLD_RANK"] = "4";
  EXPECT_NE(refusal_of(large).find("got rank 4 of 4"), std::string::npos);
  large["OMPI_COMM_WORLD_RANK"] = "four";
  EXPECT_NE(refusal_of(large).find("got \"four\""), std::string::npos);
}

TEST(LaunchedRank, RecognizesHybridChildren) {
  Variables set = kByTorchrun;
  set.erase("TORCHELASTIC_RUN_ID");
  EXPECT_EQ(launched(set)->launcher, "the launcher that set RANK and WORLD_SIZE");
  set["HYBRID_RANKS"] = "77";
  EXPECT_EQ(launched(set), (LaunchedRank{"hybrid --ranks", 2, 8, 2, 4, false}));
}

RankRendezvous meeting_in(const Variables& set) {
  return rendezvous_of(*launched(set), [&](const char* name) -> const char* {
    const auto found = set.find(name);
    return found == set.end() ? nullptr : found->second.c_str();
  });
}

TEST(LaunchedRank, UsesRendezvousOfLauncher) {
  Variables set = kByTorchrun;
  set["MASTER_ADDR"] = "node7";
  set["MASTER_PORT"] = "29500";
  const RankRendezvous alone = meeting_in(set);
  EXPECT_EQ(alone.rank, 2);
  EXPECT_EQ(alone.size, 8);
  EXPECT_EQ(alone.address, "node7");
  EXPECT_EQ(alone.port, 29500);
  EXPECT_FALSE(alone.is_one_machine);
  Variables here = set;
  here["LOCAL_RANK"] = here["RANK"];
  here["LOCAL_WORLD_SIZE"] = here["WORLD_SIZE"];
  EXPECT_TRUE(meeting_in(here).is_one_machine);
  set["TORCHELASTIC_USE_AGENT_STORE"] = "True";
  EXPECT_EQ(meeting_in(set).port, 29501);
  set["TORCHELASTIC_RESTART_COUNT"] = "1";
  EXPECT_NE(meeting_in(set).job, alone.job);
  set.erase("MASTER_PORT");
  EXPECT_THROW(meeting_in(set), UsageError);
  Variables step{
      {"SLURM_PROCID", "1"}, {"SLURM_NTASKS", "2"}, {"SLURM_LOCALID", "0"}, {"SLURM_STEP_ID", "0"}};
  try {
    meeting_in(step);
    FAIL() << "no address is set";
  } catch (const UsageError& error) {
    EXPECT_NE(std::string(error.what()).find("set MASTER_ADDR"), std::string::npos);
  }
}

/// PMIX_RANK then belongs to the srun task that started torchrun.
TEST(LaunchedRank, TorchrunIgnoresPmixOfTask) {
  Variables set = kByTorchrun;
  set["PMIX_RANK"] = "0";
  EXPECT_FALSE(launched(set)->supports_pmix);
}

TEST(RestartOfJob, ReadsSlurmAndTorchrunCounts) {
  const auto restart = [](const Variables& set) { return restart_of_job(reader_of(set)); };
  EXPECT_EQ(restart({}), std::nullopt);
  EXPECT_EQ(restart({{"TORCHELASTIC_RESTART_COUNT", "0"}}), std::nullopt);
  EXPECT_EQ(restart({{"TORCHELASTIC_RESTART_COUNT", "3"}}), "TORCHELASTIC_RESTART_COUNT=3");
  EXPECT_EQ(restart({{"SLURM_RESTART_COUNT", "1"}}), "SLURM_RESTART_COUNT=1");
  EXPECT_THROW(restart({{"SLURM_RESTART_COUNT", "often"}}), UsageError);
}

TEST(LaunchedRank, WithoutPmixSuggestsMpirun) {
  try {
    JobSecret secret(0, "a test's", {});
    start_launched_rank(*launched(kByTorchrun), {}, secret);
    FAIL() << "torchrun starts no MPI";
  } catch (const UsageError& error) {
    const std::string message = error.what();
    EXPECT_TRUE(message.starts_with("torchrun started this process without PMIx")) << message;
    EXPECT_NE(message.find("mpirun -np 8"), message.npos) << message;
  }
}

}  // namespace
}  // namespace hybrid_trainer
