#pragma once

#include <cstdint>
#include <string>

#include "hybrid_trainer/core/fields.h"

namespace hybrid_trainer {

/// Length, seed and resources of a run. JSON group `training`.
struct TrainingConfig {
  std::int64_t steps = 1000;
  std::int64_t seed = 0;
  std::int64_t evaluate_every_steps = 0;
  std::int64_t threads = 0;
  bool cuda_graphs = false;
  double average_weights = 0;

  template <class Self, class Visitor>
  static void visit_fields(Self& self, Visitor&& visit) {
    visit(Field{"steps", self.steps, "Steps of all phases together.", Range::at_least(1)});
    visit(Field{"seed", self.seed,
                "Seed of the first weights, of the order of the data and of dropout.",
                Range::at_least(0)});
    visit(
        Field{"evaluate_every_steps", self.evaluate_every_steps,
              "Steps between two evaluations on the validation split; 0 evaluates only at the end.",
              Range::at_least(0)});
    visit(Field{"threads", self.threads, "Threads for all kernels; 0 uses every core.",
                Range::between(0, 4096)});
    visit(
        Field{"cuda_graphs", self.cuda_graphs,
              "On CUDA, record forward and backward passes once in each phase and replay them. Use "
              "it for steps so small that launching kernels takes longer than running them."});
    visit(Field{"average_weights", self.average_weights,
                "Half-life, in updates, of a running mean of the weights; 0 keeps none. The mean "
                "is kept on the host and evaluated beside the weights; eval, sample and export "
                "read it with --average.",
                Range::at_least(0)});
  }
};

/// How many micro-batches one optimizer step averages over. JSON group `gradient_accumulation`.
struct GradientAccumulationConfig {
  std::int64_t micro_batches = 1;

  template <class Self, class Visitor>
  static void visit_fields(Self& self, Visitor&& visit) {
    visit(Field{"micro_batches", self.micro_batches,
                "Micro-batches of data.batch_size sequences in one step. The step applies their "
                "mean gradient.",
                Range::between(1, 65536)});
  }

  static GradientAccumulationConfig conservative() { return {1}; }
  static GradientAccumulationConfig balanced() { return {2}; }
  static GradientAccumulationConfig aggressive() { return {4}; }
};

/// How `hybrid export` writes the run's model.
struct ExportConfig {
  std::string dtype = "auto";

  template <class Self, class Visitor>
  static void visit_fields(Self& self, Visitor&& visit) {
    visit(Field{"dtype",
                self.dtype,
                "Precision of exported weights: fp32, bf16 or auto. auto is bf16 if all weights of "
                "the Hugging Face folder that the run began from are, else fp32, also for a folder "
                "in f16. A new run writes into its configuration what auto means.",
                Range{},
                {"auto", "fp32", "bf16"}});
  }
  bool operator==(const ExportConfig&) const = default;
};

}  // namespace hybrid_trainer
