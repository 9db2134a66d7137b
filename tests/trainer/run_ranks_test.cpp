#include "src/trainer/run_ranks.h"

#include <gtest/gtest.h>

#include "hybrid_trainer/distributed/thread_communicator.h"
#include "hybrid_trainer/models/model_family.h"
#include "tests/trainer/tiny_run.h"

namespace hybrid_trainer {
namespace {

/// What `rank` of `ranks` tells when an element of one of its weights has changed.
std::string told_of_change(int rank, int ranks) {
  try {
    run_thread_ranks(ranks, [&](Communicator& communicator) {
      const Stream stream{MemoryPool::create("device")};
      ModelConfig tiny = tiny_config().model;
      tiny.vocabulary = 17;
      const auto model = make_model(tiny, 1, stream);
      const RunRanks here(&communicator);
      here.check_same_weights(4, *model, stream);
      model->visit_parameters([&](Parameter& parameter) {
        if (communicator.rank() == rank && parameter.name() == "wpe.weight")
          parameter.home_master().data<float>()[3] += 1e-6f;
      });
      here.check_same_weights(5, *model, stream);
    });
  } catch (const RankLost& error) {
    return error.what();
  }
  return "";
}

bool has(const std::string& text, const std::string& part) { return text.find(part) != text.npos; }

TEST(RunRanks, NameTheOneWhoseWeightsAreNotThoseOfMost) {
  for (const int changed : {0, 1, 2}) {
    const std::string told = told_of_change(changed, 3);
    EXPECT_TRUE(told.starts_with(concat("after step 5 rank ", changed, " ("))) << told;
    EXPECT_TRUE(has(told, concat("differs from rank ", changed == 0 ? 1 : 0, " ("))) << told;
    EXPECT_TRUE(has(told, "in the weight wpe.weight: ")) << told;
    EXPECT_TRUE(has(told, "(2 of 3 ranks agree)")) << told;
  }
}

TEST(RunRanks, OfTwoSayOnlyThatTheyDiffer) {
  const std::string told = told_of_change(0, 2);
  EXPECT_TRUE(has(told, "in the weight wpe.weight: ")) << told;
  EXPECT_FALSE(has(told, "agree")) << told;
}

/// Each rank is a thread, which makes its model itself.
thread_local LanguageModel* model_of_rank = nullptr;

ModelRegistry families_that_tell_their_model() {
  ModelRegistry families{find_family("gpt2")};
  families.front().make = [](const ModelConfig& config, std::uint64_t seed, const Stream& stream) {
    auto model = find_family("gpt2").make(config, seed, stream);
    model_of_rank = model.get();
    return model;
  };
  return families;
}

/// What a run of three ranks tells where a weight of rank 1 changes after step 4; the steps done.
std::pair<std::string, std::size_t> run_with_a_change(std::int64_t check_weights_every) {
  const TemporaryFolder scratch;
  prepare_tiny_data(scratch / "data");
  const ModelRegistry families = families_that_tell_their_model();
  HybridTrainerConfig config = tiny_config();
  config.data.batch_size = 1;
  config.gradient_accumulation.micro_batches = 3;
  config.training.steps = 12;
  config.checkpoint.every_steps = 10;
  config.distributed.check_weights_every = check_weights_every;
  const Interruption interruption;
  std::string told;
  try {
    run_thread_ranks(3, [&](Communicator& ranks) {
      TrainingRunSettings settings{.config = config,
                                   .data = scratch / "data",
                                   .run = scratch / "run",
                                   .init_from = {},
                                   .command = "test",
                                   .registry = &families,
                                   .interruption = &interruption,
                                   .ranks = &ranks};
      settings.on_step = [&](const StepRecord& record) {
        if (record.step != 4 || ranks.rank() != 1) return;
        model_of_rank->visit_parameters([&](Parameter& parameter) {
          if (parameter.name() == "wte.weight") parameter.home_master().data<float>()[0] += 1e-6f;
        });
      };
      std::ostringstream console;
      run_training(settings, console);
    });
  } catch (const RankLost& error) {
    told = error.what();
  }
  return {told, records_of(scratch / "run").size()};
}

TEST(RunRanks, CompareWeightsEverySoManySteps) {
  const auto [told_late, steps_late] = run_with_a_change(0);
  EXPECT_TRUE(told_late.starts_with("after step 10 rank 1 (")) << told_late;
  EXPECT_EQ(steps_late, 10u);
  const auto [told, steps] = run_with_a_change(3);
  EXPECT_TRUE(told.starts_with("after step 6 rank 1 (")) << told;
  EXPECT_TRUE(has(told, "(2 of 3 ranks agree)")) << told;
  EXPECT_EQ(steps, 6u);
}

}  // namespace
}  // namespace hybrid_trainer
