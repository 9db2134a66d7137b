#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "hybrid_trainer/core/batch.h"
#include "hybrid_trainer/core/random.h"
#include "hybrid_trainer/models/model_family.h"
#include "src/trainer/model_trainable.h"
#include "tests/support/tiny_run.h"

namespace hybrid_trainer {

inline constexpr std::int64_t kVocabulary = 20, kSequence = 16;

inline HybridTrainerConfig config_of(const std::string& optimizer, std::int64_t batch,
                                     std::int64_t parts) {
  HybridTrainerConfig config = tiny_config();
  config.model.vocabulary = kVocabulary;
  config.model.layers = 2;
  config.data.batch_size = batch;
  config.gradient_accumulation.micro_batches = parts;
  config.optimizer.name = optimizer;
  config.schedule.warmup_steps = 0;
  config.mixed_precision.predict = "bf16";
  return config;
}

/// A model with its trainable, and batches that depend only on their index.
struct Subject {
  explicit Subject(const HybridTrainerConfig& config, std::optional<std::size_t> budget = {},
                   std::optional<std::size_t> host_budget = {})
      : stream(MemoryPool::create("device", budget)),
        host(MemoryPool::create("host", host_budget)),
        owner(make_model(config.model, 3, stream)),
        model(*owner),
        trainable(model, config, stream, host,
                  [this](const std::string& text) { told.push_back(text); }),
        size(config.data.batch_size * config.gradient_accumulation.micro_batches) {}

  Batch batch(std::uint64_t number) const {
    const Shape shape{size, kSequence};
    Batch made = token_batch(Tensor::empty(shape, DType::kI32, MemoryKind::kData, stream),
                             Tensor::empty(shape, DType::kI32, MemoryKind::kData, stream));
    for (std::int64_t i = 0; i < shape.elements(); ++i) {
      const auto at = static_cast<std::uint64_t>(i);
      made.at("tokens").data<std::int32_t>()[i] =
          static_cast<std::int32_t>(random_below({1, number}, at, kVocabulary));
      made.at("targets").data<std::int32_t>()[i] =
          static_cast<std::int32_t>(random_below({2, number}, at, kVocabulary));
    }
    return made;
  }

  Stream stream;
  std::shared_ptr<MemoryPool> host;
  std::unique_ptr<LanguageModel> owner;
  LanguageModel& model;
  std::vector<std::string> told;
  double loss(std::int64_t i) {
    const Batch given = batch(i);
    return trainable.wait_for_loss(given, given.size());
  }

  ModelTrainable trainable;
  std::int64_t size;
};

}  // namespace hybrid_trainer
