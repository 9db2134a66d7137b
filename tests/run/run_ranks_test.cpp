#include "src/run/run_ranks.h"

#include <gtest/gtest.h>

#include <chrono>
#include <numeric>
#include <thread>

#include "hybrid_trainer/core/error.h"
#include "hybrid_trainer/data/token_dataset.h"
#include "hybrid_trainer/models/model_family.h"
#include "src/core/machine.h"
#include "src/distributed/host_ranks.h"
#include "src/trainer/sharding/rank_links.h"
#include "tests/support/test_files.h"
#include "tests/support/tiny_run.h"

namespace hybrid_trainer {
namespace {

/// The error after an element of a weight of `rank` has changed.
std::string told_of_change(int rank, int ranks) {
  try {
    run_thread_ranks(ranks, [&](Communicator& communicator) {
      const Stream stream{MemoryPool::create("device")};
      ModelConfig tiny = tiny_config().model;
      tiny.vocabulary = 17;
      const auto model = make_model(tiny, 1, stream);
      const RunRanks here(&communicator);
      check_same_weights(here, 4, *model, stream);
      model->visit_parameters([&](Parameter& parameter) {
        if (communicator.rank() == rank && parameter.name() == "wpe.weight")
          parameter.master_in_place().data<float>()[3] += 1e-6f;
      });
      check_same_weights(here, 5, *model, stream);
    });
  } catch (const RankLost& error) {
    return error.what();
  }
  return "";
}

/// Counts its forward passes and limits the examples. The loss depends on the first target.
class FirstTarget final : public LossModel {
 public:
  Tensor forward(const Batch& batch, float, ActivationTape&, const Stream& stream) override {
    if (batch.size() > max_examples) throw OutOfMemory("full", 1, 0);
    ++passes;
    const Tensor loss = Tensor::empty({1}, DType::kF64, MemoryKind::kWorkspace, stream);
    *loss.data<double>() = 1.0 / (3 + batch.at("targets").data<std::int32_t>()[0]);
    return loss;
  }
  void backward(const Batch&, ActivationTape&, const Stream&) override {}
  void visit_parameters(const ParameterVisitor&) override {}
  int passes = 0;
  std::int64_t max_examples = 100;
};

/// Seven batches: five of two windows, one of one window, and the short window.
class Windows {
 public:
  Windows() {
    std::vector<std::int32_t> tokens(11 * 4 + 2 + 1);  // 11 windows of four targets and one of two
    std::iota(tokens.begin(), tokens.end(), 0);
    ShardWriter writer({.folder = folder_.path(), .split = "val", .vocabulary_size = 64});
    writer.append(tokens);
    writer.finish();
  }
  TokenDataset tokens() const { return {folder_.path(), Split::kValidation, 64}; }

 private:
  TemporaryFolder folder_;
};

TEST(RunRanks, EvaluationMatchesOneRankBitForBit) {
  const Windows windows;
  const TokenDataset tokens = windows.tokens();
  double wanted = 0;
  for (const int count : {1, 2, 3, 8}) {
    for (const std::int64_t zero : {0, 2, 3}) {
      run_thread_ranks(count, [&](Communicator& ranks) {
        const Stream stream{MemoryPool::create("device")};
        FirstTarget model;
        const OrderedBatches batches(TokenWindows::for_evaluation(tokens, 4), 2, stream);
        HybridTrainerConfig config;
        config.distributed.zero = zero;
        const double loss = RunRanks(&ranks).evaluate(model, batches, config, stream).loss;
        if (count == 1) wanted = loss;
        EXPECT_EQ(loss, wanted) << count;
        const int most = (7 + count - 1) / count, own = (7 - ranks.rank() + count - 1) / count;
        EXPECT_EQ(model.passes, zero == 3 ? most : own) << count;
      });
    }
  }
  EXPECT_GT(wanted, 0);
}

TEST(RunRanks, EvaluationSplitsBatchesExceptWithZero3) {
  const Windows windows;
  const TokenDataset tokens = windows.tokens();
  for (const std::int64_t zero : {2, 3}) {
    const auto evaluate = [&] {
      run_thread_ranks(2, [&](Communicator& ranks) {
        const Stream stream{MemoryPool::create("device")};
        FirstTarget model;
        model.max_examples = 1;
        const OrderedBatches batches(TokenWindows::for_evaluation(tokens, 4), 2, stream);
        HybridTrainerConfig config;
        config.distributed.zero = zero;
        RunRanks(&ranks).evaluate(model, batches, config, stream);
      });
    };
    if (zero == 3) {
      EXPECT_THROW(evaluate(), OutOfMemory);
    } else {
      evaluate();
    }
  }
}

TEST(RunRanks, ReportsSlowestRankAfterExchange) {
  run_thread_ranks(3, [](Communicator& others) {
    HybridTrainerConfig config;
    config.gradient_accumulation.micro_batches = 6;
    RankLinks links(others, config.distributed);
    RunRanks ranks(&links.ranks());
    StepRecord record;
    for (int step = 0; step < 4; ++step) {
      EXPECT_FALSE(ranks.agree({}).stops);
      record = {};
      ranks.begin_step();
      const auto begin = std::chrono::steady_clock::now();
      if (others.rank() == 1) std::this_thread::sleep_for(std::chrono::milliseconds(150));
      links.ranks().barrier();  // the other ranks wait here
      const std::chrono::duration<double> taken = std::chrono::steady_clock::now() - begin;
      record.seconds = taken.count();
      ranks.end_step(config, record);
    }
    ASSERT_TRUE(record.slowest_rank_ratio);
    EXPECT_EQ(record.slowest_rank, concat("1 on ", host_name()));
    EXPECT_GT(*record.slowest_rank_ratio, 1.5);
    StepRecord unheard;  // nothing exchanged since the previous step
    ranks.begin_step();
    ranks.end_step(config, unheard);
    EXPECT_FALSE(unheard.slowest_rank_ratio);
    EXPECT_TRUE(ranks.agree({.stops = others.rank() == 2}).stops);
    const auto summary = ranks.summary(config, "");
    EXPECT_EQ(summary.slowest_rank, record.slowest_rank);
    EXPECT_GT(summary.slowest_rank_ratio.value_or(0), 1.5);
  });
}

/// Rank 1 reports twice the time of rank 0.
void expect_named(bool named, std::int64_t micro_batches, std::int64_t zero) {
  run_thread_ranks(2, [&](Communicator& others) {
    HybridTrainerConfig config;
    config.gradient_accumulation.micro_batches = micro_batches;
    config.distributed.zero = zero;
    RankLinks links(others, config.distributed);
    RunRanks ranks(&links.ranks());
    StepRecord record;
    for (int step = 0; step < 3; ++step) {
      ranks.agree({});
      ranks.begin_step();
      record.seconds = others.rank() == 1 ? 200 : 100;
      ranks.end_step(config, record);
    }
    EXPECT_EQ(record.slowest_rank_ratio.has_value(), named) << micro_batches << ", zero " << zero;
  });
}

TEST(RunRanks, UnequalSharesReportNoSlowestRank) {
  expect_named(true, 4, 0);
  expect_named(false, 3, 0);
  expect_named(false, 3, 1);
  expect_named(true, 3, 2);
}

bool has(const std::string& text, const std::string& part) { return text.find(part) != text.npos; }

TEST(RunRanks, ReportsRankWithDifferentWeights) {
  for (const int changed : {0, 1, 2}) {
    const std::string told = told_of_change(changed, 3);
    EXPECT_TRUE(told.starts_with(concat("after step 5 rank ", changed, " ("))) << told;
    EXPECT_TRUE(has(told, concat("differs from rank ", changed == 0 ? 1 : 0, " ("))) << told;
    EXPECT_TRUE(has(told, "in the weight wpe.weight: ")) << told;
    EXPECT_TRUE(has(told, "(2 of 3 ranks agree)")) << told;
  }
}

TEST(RunRanks, TwoRanksReportDifferenceWithoutMajority) {
  const std::string told = told_of_change(0, 2);
  EXPECT_TRUE(has(told, "in the weight wpe.weight: ")) << told;
  EXPECT_FALSE(has(told, "agree")) << told;
}

/// The model that this thread, which is one rank, has made.
thread_local Network* model_of_rank = nullptr;

ModelRegistry families_that_tell_their_model() {
  ModelRegistry families{find_family("gpt2")};
  families.front().make = [](const ModelConfig& config, std::uint64_t seed, const Stream& stream) {
    auto model = find_family("gpt2").make(config, seed, stream);
    model_of_rank = dynamic_cast<LanguageModel*>(model.get());
    return model;
  };
  return families;
}

/// Error and number of steps of a run of three ranks whose rank 1 changes a weight in step 4.
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
          if (parameter.name() == "wte.weight")
            parameter.master_in_place().data<float>()[0] += 1e-6f;
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

TEST(RunRanks, ComparesWeightsAtConfiguredInterval) {
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
