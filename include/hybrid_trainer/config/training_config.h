#pragma once

#include "hybrid_trainer/core/fields.h"
#include "hybrid_trainer/core/phase.h"

namespace hybrid_trainer {

/// Length, seed and resources of a run. JSON group `training`.
struct TrainingConfig {
  std::int64_t steps = 1000;
  std::int64_t seed = 0;
  std::int64_t evaluate_every_steps = 0;
  std::int64_t patience = 0;
  double min_improvement = 0;
  std::int64_t threads = 0;
  bool cuda_graphs = false;
  double average_weights = 0;
  double label_smoothing = 0;

  template <class Self, class Visitor>
  static void visit_fields(Self& self, Visitor&& visit) {
    visit(Field{"steps", self.steps, "Total number of steps of all phases.", Range::at_least(1)}
              .on_resume(OnResume::kMayChange)
              .essential(Question::kLength));
    visit(Field{"seed", self.seed,
                "Seed of the initial weights, the order of the data and dropout.",
                Range::at_least(0)}
              .essential(Question::kData));
    visit(Field{"evaluate_every_steps", self.evaluate_every_steps,
                "Steps between evaluations on the validation split; 0 evaluates only at the end.",
                Range::at_least(0)}
              .on_resume(OnResume::kMayChange)
              .essential(Question::kLength));
    visit(Field{"patience", self.patience,
                "Number of evaluations in a row without improvement after which the run ends; 0 "
                "trains to training.steps.",
                Range::at_least(0)}
              .on_resume(OnResume::kMayChange));
    visit(Field{"min_improvement", self.min_improvement,
                "Minimum decrease of the validation loss that counts as an improvement for "
                "training.patience.",
                Range::at_least(0)}
              .on_resume(OnResume::kMayChange)
              .unless("training.patience", {"0"}));
    visit(Field{"threads", self.threads,
                "Threads for all kernels; 0 uses the available cores, limited by OMP_NUM_THREADS "
                "and the container's CPU quota.",
                Range::between(0, 4096)}
              .on_resume(OnResume::kMayChange)
              .essential(Question::kSpeed));
    visit(Field{
        "cuda_graphs", self.cuda_graphs,
        "Record forward and backward passes on CUDA once per phase and replay them (CUDA graphs). "
        "Use it if steps are so small that launching kernels takes longer than running them."}
              .on_resume(OnResume::kMayChange)
              .unless("device", {"cpu"}, "this run uses the CPU"));
    visit(Field{"average_weights", self.average_weights,
                "Half-life, in updates, of an exponential moving average of the weights; 0 "
                "disables it. The average is stored on the host and evaluated in addition to the "
                "weights. eval, sample and export use it with --average.",
                Range::at_least(0)});
    visit(Field{
        "label_smoothing", self.label_smoothing,
        "Label smoothing: share of a target's probability that is spread evenly over all tokens or "
        "classes, to make the model less overconfident (PyTorch's label_smoothing). Training "
        "losses include it; evaluation reports the plain loss.",
        Range{0, 1, false, true}}
              .unless("model.family", {"series"},
                      "it applies to tokens and classes, but a series predicts numbers"));
  }
};

/// Micro-batches per optimizer step. JSON group `gradient_accumulation`.
struct GradientAccumulationConfig {
  std::int64_t micro_batches = 1;

  template <class Self, class Visitor>
  static void visit_fields(Self& self, Visitor&& visit) {
    visit(Field{"micro_batches", self.micro_batches,
                "Micro-batches of data.batch_size sequences per step. The step applies their mean "
                "gradient.",
                Range::between(1, 65536)}
              .essential(Question::kMemory));
  }

  static GradientAccumulationConfig conservative() { return {1}; }
  static GradientAccumulationConfig balanced() { return {2}; }
  static GradientAccumulationConfig aggressive() { return {4}; }
};

/// Format of the model written by `hybrid export`.
struct ExportConfig {
  std::string dtype = "auto";

  template <class Self, class Visitor>
  static void visit_fields(Self& self, Visitor&& visit) {
    visit(Field{
        "dtype",
        self.dtype,
        "Precision of exported weights: fp32, bf16 or auto. auto uses bf16 if the run started from "
        "a Hugging Face folder in which all weights are bf16, else fp32 (also for a folder in "
        "f16). A new run writes the resolved value of auto into its configuration.",
        Range{},
        {"auto", "fp32", "bf16"}});
  }
  bool operator==(const ExportConfig&) const = default;
};

/// Returns the condition that a phase or stage computes in fp16.
inline KeyNeed any_phase_in_fp16() {
  return KeyNeed::of({"mixed_precision.warmup", "mixed_precision.full", "mixed_precision.predict",
                      "mixed_precision.correct", "stages[].precision"},
                     {"fp16"}, "no phase computes in fp16");
}

const std::vector<std::string>& precision_names();  // "fp32", "bf16", "fp16", "fp8", "auto"

/// Precision of activations and products in each phase. Master weights and sums are always fp32.
/// "auto" is bf16 if that is faster, else fp32 (automatic_precision). JSON group `mixed_precision`.
struct MixedPrecisionConfig {
  std::string warmup = "auto";
  std::string full = "auto";
  std::string predict = "auto";
  std::string correct = "fp32";
  std::int64_t loss_scale = 65536;
  std::int64_t loss_scale_growth_steps = 2000;

  template <class Self, class Visitor>
  static void visit_fields(Self& self, Visitor&& visit) {
    visit(Field{
        "warmup", self.warmup,
        "Precision in Warmup: fp32, bf16, fp16, fp8 or auto. fp16 uses loss scaling; fp8 uses E4M3 "
        "in forward and E5M2 for gradients; auto is bf16 if it is faster, else fp32.",
        Range{}, precision_names()});
    visit(Field{"full", self.full, "Precision in Full.", Range{}, precision_names()});
    visit(
        Field{"predict", self.predict, "Precision in Predict.", Range{}, precision_names()}.unless(
            "phases.max_predict_steps", {"0"}));
    visit(
        Field{"correct", self.correct, "Precision in Correct.", Range{}, precision_names()}.unless(
            "phases.max_predict_steps", {"0"}));
    visit(
        Field{"loss_scale", self.loss_scale,
              "Initial loss scale in fp16, a power of two. The scale keeps small gradients from "
              "becoming 0. If the gradient overflows, the step is skipped and the scale is halved.",
              Range::between(1, 1 << 24)}
            .needs_any(any_phase_in_fp16()));
    visit(
        Field{"loss_scale_growth_steps", self.loss_scale_growth_steps,
              "Number of fp16 steps in a row without overflow after which the loss scale doubles.",
              Range::between(1, 1 << 24)}
            .needs_any(any_phase_in_fp16()));
  }

  static MixedPrecisionConfig all(const std::string& name) { return {name, name, name, name}; }
  static MixedPrecisionConfig conservative() { return all("fp32"); }
  static MixedPrecisionConfig balanced() { return {}; }
  static MixedPrecisionConfig aggressive() { return all("auto"); }
  const std::string& of(Phase phase) const;
};

const std::vector<std::string>& stage_precision_names();  // "fp32", "bf16", "fp16", "fp8"

/// Stage at the start of a run, for example with shorter sequences. Missing fields are inherited.
/// The batch size of the configuration is the maximum and applies after the last stage. JSON list
/// `stages`.
struct StageConfig {
  double until = 0.5;
  std::optional<std::int64_t> sequence_length{};
  std::optional<std::int64_t> effective_batch{};
  std::optional<std::string> precision{};
  std::optional<std::int64_t> orthogonalization_period{};

  template <class Self, class Visitor>
  static void visit_fields(Self& self, Visitor&& visit) {
    visit(Field{"until", self.until,
                "Share of training.steps after which the stage ends. It may end a few steps later, "
                "so that the stage uses each token once.",
                Range{0, 1, true, false}});
    visit(Field{"sequence_length", self.sequence_length,
                "Tokens per sequence; must divide data.sequence_length.",
                Range::between(1, 1 << 20)});
    visit(
        Field{"effective_batch", self.effective_batch,
              "Sequences per step, divided into as few micro-batches as possible without exceeding "
              "their configured size. If left out, a step has the configured number of tokens.",
              Range::between(1, std::int64_t{1} << 36)});
    visit(Field{"precision", self.precision,
                "Precision in Warmup and Full, in place of mixed_precision.", Range{},
                stage_precision_names()});
    visit(Field{"orthogonalization_period", self.orthogonalization_period,
                "See optimizer.orthogonalization_period.", Range::between(1, 1 << 20)});
  }
};

}  // namespace hybrid_trainer
