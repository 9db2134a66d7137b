#include "hybrid_trainer/trainer/memory_simulation.h"
#include "hybrid_trainer/config/hybrid_trainer_config.h"

#include <gtest/gtest.h>

#include "hybrid_trainer/core/batch.h"
#include "hybrid_trainer/core/memory_pool.h"
#include "hybrid_trainer/data/token_dataset.h"
#include "hybrid_trainer/observability/run_summary.h"
#include "hybrid_trainer/trainer/hybrid_trainer.h"
#include "src/core/masked_batch.h"
#include "src/trainer/run_model.h"
#include "tests/support/resident_memory.h"
#include "tests/support/tiny_run.h"

namespace hybrid_trainer {
namespace {

HybridTrainerConfig three_layers() {
  HybridTrainerConfig config;
  config.model = {.layers = 3, .heads = 2, .width = 64, .context = 64, .vocabulary = 300};
  config.data = {.batch_size = 4, .sequence_length = 64};
  config.optimizer.name = "adamw";
  config.training.steps = 20;
  config.phases.warmup_steps = 2;
  config.phases.full_steps = 4;
  config.phases.max_predict_steps = 3;
  config.phases.skip_backward.trial_steps = 3;
  config.phases.skip_backward.trial_share = 1;
  auto& precision = config.mixed_precision;
  precision.warmup = precision.full = precision.predict = precision.correct = "fp32";
  return config;
}

/// Measured peak of each phase of a real run.
std::array<std::size_t, kPhases> measured_peaks(const HybridTrainerConfig& config) {
  const Stream stream(make_device_pool());
  const auto batch_of = [&](std::int64_t size) {
    const Shape shape{size, config.data.sequence_length};
    if (config.masks()) {
      const Batch masked =
          empty_masked_batch(shape, masked_tokens(config.mask_share, shape[1]), stream);
      for (const NamedTensor& part : masked.tensors()) fill_zero(part.tensor, stream);
      const Tensor ends = masked.at("ends");
      for (std::int64_t i = 0; i < ends.elements(); ++i)
        ends.data<std::int32_t>()[i] = static_cast<std::int32_t>(i % ends.size(1) + 1);
      return masked;
    }
    const auto zeros = [&] { return Tensor::zeros(shape, DType::kI32, MemoryKind::kData, stream); };
    return token_batch(zeros(), zeros(), config.data.is_rows() ? zeros() : Tensor());
  };
  const std::int64_t size = config.data.batch_size * config.gradient_accumulation.micro_batches;
  const Batch batch = batch_of(size), prefetched = batch_of(size),
              windows = batch_of(config.data.batch_size);
  const auto model = make_run_model(config, {}, stream, model_families());
  HybridTrainer trainer(*model, config, stream);
  RunSummary summary;
  for (std::int64_t i = 0; i < config.training.steps; ++i) summary.add(trainer.step(batch));
  std::array<std::size_t, kPhases> peaks{};
  for (const Phase phase : kAllPhases)
    peaks[static_cast<std::size_t>(phase)] = summary.phase(phase).peak_bytes;
  return peaks;
}

void expect_as_measured(const HybridTrainerConfig& config) {
  const MemoryNeed need = simulate_memory(config, {});
  const auto measured = measured_peaks(config);
  for (const Phase phase : kAllPhases) {
    const auto taken = static_cast<double>(measured[static_cast<std::size_t>(phase)]);
    const bool follows = phase == Phase::kPredict || phase == Phase::kCorrect;
    if (follows && config.phases.max_predict_steps == 0) continue;
    ASSERT_GT(taken, 0) << name_of(phase);
    const double ratio = static_cast<double>(need.phase(phase).peak_bytes) / taken;
    // The simulation includes reverting a prediction, which needs Full's precision in Correct. This
    // run may not need it.
    const double most = phase == Phase::kCorrect ? 1.25 : 1.01;
    EXPECT_GT(ratio, 0.99) << name_of(phase);
    EXPECT_LT(ratio, most) << name_of(phase);
    EXPECT_GE(need.device_bytes, need.phase(phase).peak_bytes);
  }
}

TEST(MemorySimulation, IncludesPositionsOfPackedRows) {
  HybridTrainerConfig config = three_layers();
  config.data.layout = "packed";
  expect_as_measured(config);
  EXPECT_GT(simulate_memory(config, {}).device_bytes,
            simulate_memory(three_layers(), {}).device_bytes);
}

TEST(MemorySimulation, MatchesMeasuredPeakOfEachPhase) { expect_as_measured(three_layers()); }

TEST(MemorySimulation, MatchesEachPrecision) {
  HybridTrainerConfig config = three_layers();
  config.mixed_precision.full = config.mixed_precision.warmup = "bf16";
  expect_as_measured(config);
  config.mixed_precision.predict = config.mixed_precision.correct = "bf16";
  expect_as_measured(config);
}

TEST(MemorySimulation, IncludesRoundedOperandCopies) {
  HybridTrainerConfig config = three_layers();
  config.model.vocabulary = 20;  // otherwise the logits are the peak
  const std::size_t plain = simulate_memory(config, {}).device_bytes;
  for (const char* const precision : {"fp16", "fp8"}) {
    config.mixed_precision = MixedPrecisionConfig::all(precision);
    expect_as_measured(config);
    EXPECT_GT(simulate_memory(config, {}).device_bytes, plain) << precision;
  }
}

/// One layer for each letter of model.mixers. Their tables by position may be offloaded.
TEST(MemorySimulation, MatchesEachMixer) {
  for (const bool bidirectional : {false, true}) {
    HybridTrainerConfig config = three_layers();
    config.model.family = "semiseparable";
    config.model.bidirectional = bidirectional;
    if (bidirectional) config.objective = "masked";
    config.model.mixers = bidirectional ? "ahtpb" : "acmdtp";
    config.model.layers = std::ssize(config.model.mixers);
    config.model.width = 32;
    config.model.state_space = {.heads = 2, .head_size = 16, .state_size = 8};
    expect_as_measured(config);
    config.memory.recompute = 0.5;
    config.memory.device_map = "h.*.mix.factors.weight=file";
    expect_as_measured(config);
  }
}

TEST(MemorySimulation, MatchesEachOptimizer) {
  for (const char* name : {"muon", "sgd", "lion", "adam_mini", "adafactor"}) {
    HybridTrainerConfig config = three_layers();
    config.optimizer.name = name;
    config.optimizer.orthogonalization_period = 2;
    if (config.optimizer.name == "adafactor") {  // has no momentum to predict from
      config.phases.skip_backward.predictor = "two_timescale";
      config.phases.skip_backward.slow_steps = 2;
    }
    expect_as_measured(config);
  }
  HybridTrainerConfig config = three_layers();
  config.optimizer.state_bits = 8;
  expect_as_measured(config);
}

TEST(MemorySimulation, MatchesEachOption) {
  const auto with = [](const char* option, const auto& change) {
    SCOPED_TRACE(option);
    HybridTrainerConfig config = three_layers();
    change(config);
    expect_as_measured(config);
  };
  with("micro-batches", [](auto& config) { config.gradient_accumulation.micro_batches = 2; });
  with("recompute", [](auto& config) { config.memory.recompute = 1; });
  with("recompute in part", [](auto& config) { config.memory.recompute = 0.5; });
  with("activations on the host", [](auto& config) { config.memory.activations = "host"; });
  with("activations in a file", [](auto& config) { config.memory.activations = "file"; });
  with("state on the host", [](auto& config) { config.memory.optimizer_state = "host"; });
  with("state in a file", [](auto& config) { config.memory.optimizer_state = "file"; });
  with("weights on the host", [](auto& config) { config.memory.weights = "host"; });
  with("weights in a file", [](auto& config) { config.memory.weights = "file"; });
  with("weights everywhere",
       [](auto& config) { config.memory.device_map = "h.0.*=device,h.1.*=host,*=file"; });
  with("consumed gradients", [](auto& config) { config.memory.gradients = "consume"; });
  with("activations in 8 bits", [](auto& config) { config.memory.activation_bits = 8; });
  with("activations in 16 bits", [](auto& config) { config.memory.activation_bits = 16; });
  with("slow momentum", [](auto& config) { config.optimizer.slow_momentum = 0.3; });
  with("slow momentum on the host", [](auto& config) {
    config.optimizer.slow_momentum = 0.3;
    config.memory.optimizer_state = "host";
  });
  with("mean weights", [](auto& config) { config.training.average_weights = 4; });
  with("arms", [](auto& config) {
    config.phases.skip_backward.variants = {{"zero", 3}, {"merged", 3}, {"linear", 2}};
    config.phases.skip_backward.slow_steps = 2;
  });
  with("dropout", [](auto& config) { config.model.dropout = 0.1; });
  for (const char* predictor : {"linear", "two_timescale", "merged"}) {
    with(predictor, [&](auto& config) {
      config.phases.skip_backward.predictor = predictor;
      config.phases.skip_backward.slow_steps = 2;
    });
  }
  for (const std::string& strategy : offload_strategy_names()) {
    with(strategy.c_str(),
         [&](auto& config) { config.predict_aware_memory.offload_strategy = strategy; });
  }
}

TEST(MemorySimulation, MatchesRecurrentLayers) {
  for (const std::string& family : state_families()) {
    SCOPED_TRACE(family);
    HybridTrainerConfig config = three_layers();
    config.model = tiny_model(family);
    config.model.context = 64;
    config.model.vocabulary = 300;
    expect_as_measured(config);
    config.memory.recompute = 0.5;
    config.memory.activations = "host";
    expect_as_measured(config);
    if (family == "qwen3_5") config.model.window = 20;
    if (family == "granitemoehybrid") continue;
    config.memory.segment_length = 64;
    config.data.sequence_length = config.model.context = 160;
    expect_as_measured(config);
  }
}

TEST(MemorySimulation, MatchesMixtureOfExperts) {
  HybridTrainerConfig config = three_layers();
  config.model.family = "qwen2_moe";
  config.model.experts = {.count = 5,
                          .chosen = 2,
                          .intermediate_size = 48,
                          .layers = "efe",
                          .shared_width = 32,
                          .balance_loss = 0.01};
  expect_as_measured(config);
  config.memory.recompute = 0.5;
  config.memory.device_map = "h.*.mlp.experts.*=host";
  expect_as_measured(config);
  config.memory.device_map = "";
  config.lora.rank = 4;
  config.lora.base = "nf4";
  expect_as_measured(config);
  for (const char* const precision : {"fp16", "fp8"}) {
    config.mixed_precision = MixedPrecisionConfig::all(precision);
    expect_as_measured(config);
    config.lora = {};
    expect_as_measured(config);
  }
}

TEST(MemorySimulation, MatchesShortConvolutionsWithExperts) {
  HybridTrainerConfig config = three_layers();
  config.model.family = "lfm2_moe";
  config.model.mixers = "ssa";
  config.model.experts = {.count = 5,
                          .chosen = 2,
                          .intermediate_size = 48,
                          .layers = "fee",
                          .scale = 1.5,
                          .selection_bias = true};
  expect_as_measured(config);
  config.memory.recompute = 0.5;
  config.memory.activations = "host";
  expect_as_measured(config);
}

TEST(MemorySimulation, MatchesAdaptersWithFrozenWeights) {
  const auto parameters = [](const HybridTrainerConfig& config) {
    return simulate_memory(config, {})
        .phase(Phase::kFull)
        .by_kind[static_cast<std::size_t>(MemoryKind::kParameters)];
  };
  HybridTrainerConfig config = three_layers();
  const std::size_t whole = simulate_memory(config, {}).device_bytes;
  config.lora.rank = 4;
  expect_as_measured(config);
  EXPECT_LT(simulate_memory(config, {}).device_bytes, whole * 3 / 4)
      << "frozen weights have no state and no gradients";
  const std::size_t in_f32 = parameters(config);
  config.lora.base = "bf16";
  expect_as_measured(config);
  EXPECT_LT(parameters(config), in_f32 * 3 / 5);
  config.mixed_precision.full = config.mixed_precision.warmup = "bf16";
  expect_as_measured(config);
  EXPECT_LT(parameters(config), in_f32 * 3 / 5) << "no second copy is kept";
  config.lora.base = "int8";
  expect_as_measured(config);
  EXPECT_LT(parameters(config), in_f32 * 4 / 10);
  for (const char* four_bits : {"nf4", "fp4"}) {
    config.lora.base = four_bits;
    expect_as_measured(config);
    EXPECT_LT(parameters(config), in_f32 * 3 / 10);
  }
}

TEST(MemorySimulation, MatchesUpdatesWithinBackward) {
  HybridTrainerConfig config = three_layers();
  config.phases.max_predict_steps = 0;
  config.optimizer.clip_norm = 0;
  config.divergence.max_skipped_updates = 0;
  const auto full_bytes = [](const HybridTrainerConfig& of) {
    return simulate_memory(of, {}).phase(Phase::kFull).peak_bytes;
  };
  const std::size_t kept = full_bytes(config);
  config.memory.gradients = "consume";
  ASSERT_TRUE(config.updates_at_once());
  expect_as_measured(config);
  EXPECT_LT(full_bytes(config), kept);
  for (const char* place : {"host", "file"}) {
    config.memory.weights = config.memory.optimizer_state = place;
    config.mixed_precision.full = "bf16";
    expect_as_measured(config);
  }
}

/// Measured peak of host memory in a real run.
std::size_t measured_host_bytes(const HybridTrainerConfig& config) {
  const Stream stream(make_device_pool());
  const auto host = make_host_pool(stream.device());
  const std::int64_t size = config.data.batch_size * config.gradient_accumulation.micro_batches;
  const Shape shape{size, config.data.sequence_length};
  const Batch batch = token_batch(Tensor::zeros(shape, DType::kI32, MemoryKind::kData, stream),
                                  Tensor::zeros(shape, DType::kI32, MemoryKind::kData, stream));
  const auto model = make_run_model(config, {}, stream, model_families());
  HybridTrainer trainer(*model, config, stream, host);
  std::int64_t predicted = 0;
  for (std::int64_t i = 0; i < config.training.steps; ++i) {
    trainer.step(batch);
    predicted = std::max(predicted, trainer.machine().undecided_steps());
  }
  EXPECT_EQ(predicted, config.phases.max_predict_steps);
  return host->use().max_taken;
}

TEST(MemorySimulation, IncludesBatchesKeptByLongPrediction) {
  for (const std::int64_t micro_batches : {1, 16}) {
    for (const std::int64_t predicted : {3, 64, 100, 129}) {
      HybridTrainerConfig config = three_layers();
      config.model.layers = 1;
      config.model.width = 16;
      config.data.batch_size = 1;
      config.gradient_accumulation.micro_batches = micro_batches;
      config.phases.max_predict_steps = config.phases.skip_backward.trial_steps = predicted;
      config.training.steps = predicted + 20;
      const auto measured = measured_host_bytes(config);
      EXPECT_EQ(simulate_memory(config, {}).host_bytes, measured)
          << micro_batches << " micro-batches, " << predicted << " predicted steps";
      if (micro_batches * predicted > 100) {
        EXPECT_GT(measured, micro_batches * predicted * 64u * 2 * sizeof(std::int32_t));
      }
    }
  }
}

TEST(MemorySimulation, UsesLittleHostMemory) {
  HybridTrainerConfig config = preset_config("gpt2-1558m");
  config.model.vocabulary = 50257;
  const std::size_t before = testing::most_resident_bytes();
  const MemoryNeed need = simulate_memory(config, {});
  EXPECT_GT(need.device_bytes, std::size_t{20} << 30);
  EXPECT_LT(testing::most_resident_bytes(), before + (std::size_t{100} << 20));
}

}  // namespace
}  // namespace hybrid_trainer
