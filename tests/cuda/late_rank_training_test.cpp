// Predict with delayed exchanges between ranks, on devices.
#include "hybrid_trainer/core/error.h"
#include "tests/cuda/nccl_rank_peaks.h"
#include "tests/cuda/orders.h"
#include "tests/trainer/late_ranks.h"

namespace hybrid_trainer {
namespace {

/// How Predict delays the exchange between ranks.
struct LateForm {
  std::int64_t zero = 0, lag = 1, local_steps = 0, fragments = 1, bits = 32;
};

const std::vector<LateForm> kForms{
    {.lag = 2}, {.zero = 1}, {.local_steps = 5, .fragments = 5, .bits = 4}};

std::string name_of(const LateForm& form) {
  return concat("zero ", form.zero, ", lag ", form.lag, ", local steps ", form.local_steps, ", ",
                form.fragments, " fragments, ", form.bits, " bits");
}

/// A config with one fixed precision, because "auto" differs between CPU and CUDA.
HybridTrainerConfig config_of(const LateForm& form, const std::string& optimizer = "adamw") {
  HybridTrainerConfig config = late_config(optimizer, form.zero);
  config.mixed_precision = MixedPrecisionConfig::conservative();
  set_local_steps(config.phases, form.local_steps);
  config.phases.asynchronous_gradients.delay = config.phases.local_sgd.delay = form.lag;
  config.phases.local_sgd.fragments = form.fragments;
  config.phases.local_sgd.exchange_bits = form.bits;
  return config;
}

/// Expects the same weights on each rank.
RankOutcome train_late_over_devices(const HybridTrainerConfig& config, int ranks) {
  std::vector<RankOutcome> all(static_cast<std::size_t>(ranks));
  run_nccl_ranks(ranks, [&](Communicator& rank, Device device) {
    all[static_cast<std::size_t>(rank.rank())] = train_rank(config, rank, device);
  });
  for (const RankOutcome& one : all) EXPECT_TRUE(one.weights == all[0].weights);
  EXPECT_TRUE(std::count(all[0].phases.begin(), all[0].phases.end(), Phase::kPredict) > 0);
  return all[0];
}

/// Decisions equal those of CPU ranks. Losses differ only by the order of sums within products.
TEST(LateRanksOnDevices, OverlapDoesNotChangeBits) {
  if (most_nccl_ranks() < 2) GTEST_SKIP() << kTooFewDevices;
  for (const LateForm& form : kForms) {
    SCOPED_TRACE(name_of(form));
    HybridTrainerConfig config = config_of(form, form.zero == 1 ? "muon" : "adamw");
    const RankOutcome wanted = train_ranks(config, 2).front(),
                      overlapped = train_late_over_devices(config, 2);
    config.distributed.overlap = false;
    expect_same(overlapped, train_late_over_devices(config, 2), "at once");
    EXPECT_EQ(overlapped.phases, wanted.phases);
    ASSERT_EQ(overlapped.losses.size(), wanted.losses.size());
    for (std::size_t i = 0; i < wanted.losses.size(); ++i)
      EXPECT_NEAR(overlapped.losses[i], wanted.losses[i], 10 * loss_tolerance() * wanted.losses[i])
          << i;
  }
}

TEST(LateRanksOnDevices, OverlapDoesNotIncreasePeakMemory) {
  if (most_nccl_ranks() < 2) GTEST_SKIP() << kTooFewDevices;
  for (const LateForm& form : kForms) {
    SCOPED_TRACE(name_of(form));
    HybridTrainerConfig config = config_of(form);
    config.training.steps = 12;
    EXPECT_GT(peaks_beside_as_at_once(config)[static_cast<std::size_t>(Phase::kPredict)], 0u);
  }
}

TEST(LateRanksOnDevices, ResumeFromCheckpointInPredict) {
  if (most_nccl_ranks() < 2) GTEST_SKIP() << kTooFewDevices;
  for (const LateForm& form : {kForms[1], kForms[2]}) {
    SCOPED_TRACE(name_of(form));
    const HybridTrainerConfig config = config_of(form);
    const TemporaryFolder folder;
    const auto train = [&](bool resumes) {
      std::vector<std::vector<float>> weights(2);
      run_nccl_ranks(2, [&](Communicator& others, Device device) {
        weights[static_cast<std::size_t>(others.rank())] =
            train_through(config, resumes, 13, folder, others, device);
      });
      return weights;
    };
    const auto wanted = train(false);
    EXPECT_EQ(train(true), wanted);
    EXPECT_EQ(wanted[0], wanted[1]);
  }
}

}  // namespace
}  // namespace hybrid_trainer
