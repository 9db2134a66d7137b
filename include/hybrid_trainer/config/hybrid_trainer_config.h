#pragma once

#include "hybrid_trainer/config/training_config.h"
#include "hybrid_trainer/data/data_config.h"
#include "hybrid_trainer/distributed/distributed_config.h"
#include "hybrid_trainer/files/checkpoint_config.h"
#include "hybrid_trainer/memory/memory_config.h"
#include "hybrid_trainer/models/lora.h"
#include "hybrid_trainer/models/model_family.h"
#include "hybrid_trainer/observability/observability_config.h"
#include "hybrid_trainer/optim/learning_rate_schedule.h"
#include "hybrid_trainer/optim/optimizer_config.h"
#include "hybrid_trainer/phases/divergence_config.h"
#include "hybrid_trainer/phases/phase_config.h"

namespace hybrid_trainer {

/// Accepted precisions of a part.
const std::vector<std::string>& part_precision_names();
/// Accepted formats of a part's frozen weights.
const std::vector<std::string>& part_base_names();

/// Settings of the parts of a model whose names match `pattern`. JSON object `parts`, keyed by
/// pattern.
struct PartConfig {
  std::string pattern{};
  std::optional<double> recompute{};
  std::optional<std::string> precision{};
  std::optional<std::int64_t> lora{};
  std::optional<std::string> base{};
  std::optional<std::string> place{};
  std::optional<std::string> optimizer{};
  std::optional<double> learning_rate{};
  std::optional<double> weight_decay{};
  std::optional<std::int64_t> state_bits{};

  static constexpr auto kName = &PartConfig::pattern;
  bool is_adapted() const { return lora.value_or(0) > 0; }
  /// Returns whether the part's own weights are frozen.
  bool freezes() const { return is_adapted() || base.has_value(); }
  bool has_optimizer() const { return optimizer || learning_rate || weight_decay || state_bits; }
  /// Returns whether the part overrides recompute or precision (see PartSettings).
  bool computes() const { return recompute || precision; }

  template <class Self, class Visitor>
  static void visit_fields(Self& self, Visitor&& visit) {
    visit(Field{
        "recompute", self.recompute,
        "Share of the part's activations that backward recomputes, in place of memory.recompute.",
        Range::between(0, 1)});
    visit(Field{"precision", self.precision,
                "Precision of the part's activations and products, in all phases.", Range{},
                part_precision_names()});
    visit(Field{"lora", self.lora,
                "Rank of the adapters on the part's linear maps; it freezes the part's weights. 0 "
                "disables adapters of the part if lora.rank is set. Weights outside all parts with "
                "adapters are trained directly, unless lora.rank is set.",
                Range::between(0, 4096)});
    visit(Field{"base", self.base,
                "Storage of the part's frozen weights, in place of lora.base. Without adapters it "
                "freezes the part.",
                Range{}, part_base_names()});
    visit(Field{"place", self.place,
                "Location of the part's matrices, in place of memory.weights. It takes precedence "
                "over memory.device_map.",
                Range{}, placement_names()});
    visit(Field{"optimizer", self.optimizer,
                "See optimizer.name; adds an entry to optimizer.groups.", Range{},
                optimizer_names()});
    visit(Field{"learning_rate", self.learning_rate, "See optimizer.groups.", Range::at_least(0)});
    visit(Field{"weight_decay", self.weight_decay, "See optimizer.groups.", Range::at_least(0)});
    visit(Field{"state_bits", self.state_bits, "See optimizer.groups.", Range::between(8, 32)});
  }
};

class HybridTrainerConfigBuilder;

/// Losses of text-level tasks. JSON group `texts`.
struct TextTaskConfig {
  std::string labels = "auto";
  std::string loss = "auto";
  double scale = 20;
  bool symmetric = false;
  std::string dimensions{};
  std::int64_t max_length = 0;

  /// Parses the list `dimensions`. An entry that is not a number becomes 0.
  std::vector<std::int64_t> dimension_list() const;
  /// Returns whether each example has exactly one class.
  bool has_class(const std::string& objective) const {
    return objective == "classify" && labels == "single";
  }
  /// Returns the number of label values per example. It is 0 for examples with one class or no
  /// label, except that the loss "balanced" has 1, the weight of the class.
  std::int64_t numbers(const std::string& objective, const ModelConfig& model) const {
    if (objective == "embed") return loss == "contrastive" ? 0 : 1;
    if (has_class(objective)) return loss == "balanced" ? 1 : 0;
    return objective == "reward" ? 0 : std::ssize(model.labels);
  }

  template <class Self, class Visitor>
  static void visit_fields(Self& self, Visitor&& visit) {
    visit(Field{"labels",
                self.labels,
                "Kind of labels in objective classify: one class (single), any number of classes "
                "(several), or a number (regression). auto uses the kind in the data.",
                Range{},
                {"auto", "single", "several", "regression"}}
              .needs("objective", {"classify"}));
    visit(Field{
        "loss",
        self.loss,
        "Loss of objective embed. contrastive: each positive text among all other texts of "
        "the step, over all micro-batches and ranks (sentence-transformers' "
        "MultipleNegativesRankingLoss). cosent: the order of the cosines of the step's scored "
        "pairs. cosine: squared error of these cosines. auto: cosent for pairs with scores, "
        "else contrastive. In objective classify with one class per text, balanced weights "
        "the cross entropy of each class by the inverse number of its training examples.",
        Range{},
        {"auto", "contrastive", "cosent", "cosine", "balanced"}}
              .needs("objective", {"embed", "classify"}));
    visit(constant("scale", self.scale, Range{0, 300, true, false}));
    visit(Field{"symmetric", self.symmetric,
                "Average the contrastive loss with the loss of finding each positive text's anchor "
                "among all anchors."}
              .needs("texts.loss", {"auto", "contrastive"}));
    visit(Field{
        "dimensions", self.dimensions,
        "Numbers of leading channels, such as 384,128,64. Each has a separate loss, so that "
        "embeddings can be truncated to these sizes (Matryoshka). Empty: one loss of all channels."}
              .needs("objective", {"embed"}));
    visit(Field{"max_length", self.max_length,
                "Maximum number of tokens of a text; longer texts are truncated. 0 uses the limit "
                "of the model's context and data.sequence_length.",
                Range::between(0, 1 << 20)});
  }
};

/// Returns the default objective of a model: masked for an encoder, else next_token.
inline const char* usual_objective(const ModelConfig& model) {
  return model.bidirectional ? "masked" : "next_token";
}

/// Complete configuration of a run, with the same groups and keys in C++, in JSON and for `--set`.
struct HybridTrainerConfig {
  ModelConfig model;
  LoraConfig lora;
  DataConfig data;
  TrainingConfig training;
  OptimizerConfig optimizer;
  ScheduleConfig schedule;
  LearningRateFinderConfig learning_rate_finder;
  PhaseConfig phases;
  MixedPrecisionConfig mixed_precision;
  GradientAccumulationConfig gradient_accumulation;
  DistributedConfig distributed;
  MemoryConfig memory;
  PredictAwareMemoryConfig predict_aware_memory;
  DivergenceConfig divergence;
  CheckpointConfig checkpoint;
  ExportConfig exported;
  ObservabilityConfig observability;
  std::vector<StageConfig> stages;
  std::vector<PartConfig> parts{};
  std::string device = "auto";
  std::string objective = "next_token";
  double mask_share = 0.15;
  std::int64_t mask_token = -1;
  double preference_beta = 0.1;
  TextTaskConfig texts{};

  template <class Self, class Visitor>
  static void visit_fields(Self& self, Visitor&& visit) {
    visit(Field{"model", self.model, "The model: its family and shape."});
    visit(Field{"lora", self.lora, "Adapters that are trained on top of frozen weights."});
    visit(Field{"data", self.data, "How examples are cut from the data."});
    visit(Field{"training", self.training, "Length, seed and resources of the run."});
    visit(Field{"optimizer", self.optimizer, "The optimizer and its settings."});
    visit(Field{"schedule", self.schedule, "How the learning rate changes over the run."}.on_resume(
        OnResume::kMayChange));
    visit(Field{"learning_rate_finder", self.learning_rate_finder,
                "Detects a learning rate that is far too low, in Warmup, and raises it."});
    visit(Field{"phases", self.phases,
                "The phases Warmup, Full, Predict and Correct, and the method of Predict."});
    visit(Field{"mixed_precision", self.mixed_precision, "Precision of each phase."}.on_resume(
        OnResume::kStays));
    visit(Field{"gradient_accumulation", self.gradient_accumulation, "Micro-batches of one step."});
    visit(Field{"distributed", self.distributed, "How ranks share a step."}
              .on_resume(OnResume::kMayChange)
              .needs_any({{{"ranks", KeyTest::Kind::kIsMoreThan, {"1"}}},
                          "this run has one rank; --ranks N starts more"}));
    visit(
        Field{"memory", self.memory, "Memory budgets of a run, and options that reduce its memory."}
            .on_resume(OnResume::kMayChange));
    visit(Field{"predict_aware_memory", self.predict_aware_memory,
                "Location of the optimizer state during Predict."}
              .on_resume(OnResume::kMayChange)
              .needs("phases.method", {"skip_backward"})
              .unless("phases.max_predict_steps", {"0"}));
    visit(
        Field{"divergence", self.divergence, "Detection of a diverging run, and the actions taken."}
            .on_resume(OnResume::kMayChange));
    visit(Field{"checkpoint", self.checkpoint, "When checkpoints are saved, and which are kept."}
              .on_resume(OnResume::kMayChange));
    visit(Field{"export", self.exported, "How the model is exported."}.on_resume(
        OnResume::kMayChange));
    visit(Field{"observability", self.observability, "Additional output of the run."}.on_resume(
        OnResume::kMayChange));
    visit(Field{"stages", self.stages,
                "Schedule stages: short sequences or small batches at the start of a run."});
    visit(Field{"parts", self.parts,
                "Settings for the parts of a model whose names match a pattern, such as "
                "{\"video.*\": {\"recompute\": 1}}. Each weight may match at most one pattern. On "
                "the command line: --set parts.video.*.recompute=1."});
    visit(Field{"device", self.device,
                "Training device: cpu, cuda (the first CUDA device), cuda:N, or auto. auto uses "
                "CUDA if a device is available, otherwise the CPU."}
              .on_resume(OnResume::kMayChange)
              .essential(Question::kSpeed));
    visit(Field{"objective",
                self.objective,
                "Training objective. next_token: predict each token from the tokens before it. "
                "masked: predict masked tokens from the tokens on both sides; requires an encoder "
                "(model.bidirectional) and a mask token. masked_words: masked, but all tokens of a "
                "word are masked together. dpo and orpo: prefer the better of two answers "
                "(`hybrid finetune`); dpo compares the model with its initial weights, orpo needs "
                "no reference. classify, embed, rank and reward: text-level tasks "
                "(`hybrid finetune --task`).",
                Range{},
                {"next_token", "masked", "masked_words", "dpo", "orpo", "classify", "embed", "rank",
                 "reward"}});
    visit(Field{
        "mask_share", self.mask_share,
        "Share of the tokens of each sequence that objective masked predicts, at least one token. "
        "80 % of these become the mask token, 10 % a random token, and 10 % stay unchanged.",
        Range{0, 1, true, true}}
              .needs("objective", {"masked", "masked_words"}));
    visit(constant("mask_token", self.mask_token, Range::between(-1, 1 << 24)));
    visit(Field{"preference_beta", self.preference_beta,
                "Strength of the preference term of the objectives dpo and orpo. In dpo, a larger "
                "value keeps the model closer to its initial weights.",
                Range::above(0)}
              .needs("objective", {"dpo", "orpo"}));
    visit(Field{"texts", self.texts, "Losses of the objectives classify, embed, rank and reward."}
              .needs("objective", {"classify", "embed", "rank", "reward"}));
  }

  static HybridTrainerConfigBuilder builder();
  /// Return presets of the phases, from cautious to aggressive. Other groups have default values.
  static HybridTrainerConfig conservative();
  static HybridTrainerConfig balanced();
  static HybridTrainerConfig aggressive();

  /// Returns the number of examples per optimizer step, over all micro-batches.
  std::int64_t effective_batch() const {
    return data.batch_size * gradient_accumulation.micro_batches;
  }
  /// Returns whether adapters are trained, in the whole model or in parts.
  bool has_adapters() const;
  bool freezes() const;
  /// Returns the config with the placements and optimizer settings of `parts` merged into
  /// memory.device_map and optimizer.groups. Idempotent.
  HybridTrainerConfig with_parts() const;
  /// Returns whether the loss covers masked tokens instead of next tokens.
  bool masks() const { return objective == "masked" || objective == "masked_words"; }
  /// Returns whether the loss compares pairs of answers.
  bool prefers() const { return objective == "dpo" || objective == "orpo"; }
  /// Returns whether the model pools each text: objectives classify, embed, rank and reward.
  bool pools() const { return !model.pooling.empty(); }
  /// Returns whether the loss of an example depends on the other examples of its step.
  bool compares_examples() const { return objective == "embed" && texts.loss != "cosine"; }
  /// Returns the batch size of evaluations: the micro-batch size, or the batch size of a step if
  /// the loss compares examples, because their number affects that loss.
  std::int64_t evaluation_batch() const {
    return compares_examples() ? effective_batch() : data.batch_size;
  }
  /// Returns whether the mask token is added to the data's vocabulary, as the model's last token.
  bool adds_mask() const { return masks() && mask_token < 0; }
  /// Returns the number of token ids that data may contain: all except an added mask token.
  std::int64_t data_vocabulary() const { return model.vocabulary - (adds_mask() ? 1 : 0); }
  /// Returns the mask settings of the objectives `masked` and `masked_words`, else none. `words` is
  /// the data's vocabulary size, if known. Random replacements are below both this size and the
  /// model's vocabulary size. The data's tokenizer, or null, has the tokens that are never masked.
  /// Throws ConfigError if `masked_words` has no tokenizer whose tokens mark the beginning of words.
  std::optional<MaskSettings> masking(std::optional<std::int64_t> words,
                                      const Tokenizer* tokenizer = nullptr) const;
  std::optional<std::size_t> device_budget() const { return memory.device_budget.limit(); }
  /// Returns the optimizer state's placement between updates, considering optimizer.paged.
  std::string optimizer_state_home() const;
  /// Returns whether a phase of the run, or a stage, uses this precision.
  bool computes_in(const std::string& precision) const;
  /// Returns whether backward updates each weight as soon as its gradient is complete. This
  /// requires memory.gradients=consume, and a run that never clips gradients, skips updates (as
  /// fp16 does) or predicts.
  bool updates_at_once() const;
  /// Returns whether checkpoint.every_minutes applies. Returns false if results depend on which
  /// steps are saved.
  bool saves_by_time() const;

  /// Returns every problem of every field as "path: got X, want Y"; empty if the config is valid.
  std::vector<std::string> problems(const ModelRegistry& registry = model_families()) const;
  /// Throws one ConfigError that lists all problems.
  void validate(const ModelRegistry& registry = model_families()) const;
};

/// Builds a config: one setter per phase field and one per group. build() validates everything.
///   auto config = HybridTrainerConfig::builder().warmup_steps(200).full_steps(20).build();
class HybridTrainerConfigBuilder {
 public:
  using Self = HybridTrainerConfigBuilder;
  Self& warmup_steps(std::int64_t value) { return config_.phases.warmup_steps = value, *this; }
  Self& full_steps(std::int64_t value) { return config_.phases.full_steps = value, *this; }
  Self& max_predict_steps(std::int64_t value) {
    return config_.phases.max_predict_steps = value, *this;
  }
  Self& confidence_threshold(double value) {
    return config_.phases.skip_backward.confidence_threshold = value, *this;
  }
  Self& correction_interval(std::int64_t value) {
    return config_.phases.skip_backward.correction_interval = value, *this;
  }
  Self& predictor(std::string name) {
    return config_.phases.skip_backward.predictor = std::move(name), *this;
  }
  Self& device(std::string name) { return config_.device = std::move(name), *this; }
  Self& objective(std::string name) { return config_.objective = std::move(name), *this; }
  Self& steps(std::int64_t value) { return config_.training.steps = value, *this; }
  Self& seed(std::int64_t value) { return config_.training.seed = value, *this; }
  Self& model_config(ModelConfig value) { return config_.model = value, *this; }
  Self& data_config(DataConfig value) { return config_.data = value, *this; }
  Self& training_config(TrainingConfig value) { return config_.training = value, *this; }
  Self& optimizer_config(OptimizerConfig value) {
    return config_.optimizer = std::move(value), *this;
  }
  Self& schedule_config(ScheduleConfig value) { return config_.schedule = std::move(value), *this; }
  Self& phase_config(PhaseConfig value) { return config_.phases = std::move(value), *this; }
  Self& mixed_precision_config(MixedPrecisionConfig value) {
    return config_.mixed_precision = std::move(value), *this;
  }
  Self& gradient_accumulation_config(GradientAccumulationConfig value) {
    return config_.gradient_accumulation = value, *this;
  }
  Self& distributed_config(DistributedConfig value) { return config_.distributed = value, *this; }
  Self& memory_config(MemoryConfig value) { return config_.memory = std::move(value), *this; }
  Self& predict_aware_memory_config(PredictAwareMemoryConfig value) {
    return config_.predict_aware_memory = std::move(value), *this;
  }
  Self& divergence_config(DivergenceConfig value) { return config_.divergence = value, *this; }
  Self& checkpoint_config(CheckpointConfig value) { return config_.checkpoint = value, *this; }
  Self& stages(std::vector<StageConfig> value) { return config_.stages = std::move(value), *this; }
  Self& parts(std::vector<PartConfig> value) { return config_.parts = std::move(value), *this; }

  /// Throws one ConfigError that lists every invalid field.
  HybridTrainerConfig build(const ModelRegistry& registry = model_families()) const;

 private:
  HybridTrainerConfig config_;
};

/// Returns a preset by name. Throws ConfigError with the nearest names.
HybridTrainerConfig preset_config(const std::string& name,
                                  const ModelRegistry& registry = model_families());
std::vector<std::string> preset_names(const ModelRegistry& registry = model_families());

}  // namespace hybrid_trainer
