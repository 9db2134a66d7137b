#include "src/run/run_settings.h"

#include <algorithm>

#include "hybrid_trainer/core/error.h"
#include "hybrid_trainer/models/model_family.h"
#include "hybrid_trainer/nn/network.h"
#include "src/config/placement.h"
#include "src/core/machine.h"
#include "src/distributed/communicator.h"
#include "src/files/config_fields.h"
#include "src/run/run_files.h"
#include "src/run/run_memory.h"

namespace hybrid_trainer {

namespace {

using Config = HybridTrainerConfig;

/// The keys that change nothing where it holds, because of `why`. A key that ends with a dot is a
/// group.
struct InertKeys {
  std::vector<const char*> keys;
  bool holds;
  const char* why;
};

bool uses_optimizer(const Config& config, const std::vector<std::string>& names) {
  const auto is_named = [&](const std::string& name) {
    return std::ranges::count(names, name) > 0;
  };
  return is_named(config.optimizer.name) ||
         std::ranges::any_of(config.optimizer.groups, [&](const OptimizerGroupConfig& group) {
           return group.name && is_named(*group.name);
         });
}

/// Why a key of optimizers that the run does not use changes nothing; empty of any other.
std::string inert_by_optimizer(const Config& config, const std::string& key) {
  constexpr std::string_view kGroup = "optimizer.";
  if (!key.starts_with(kGroup)) return "";
  const OptimizerReaders readers = optimizers_that_read(key.substr(kGroup.size()));
  const bool is_read = readers.names.empty() || uses_optimizer(config, readers.names);
  return is_read ? "" : "it is for " + readers.text;
}

bool uses_predictor(const Config& config, std::initializer_list<const char*> names) {
  const auto is_named = [&](const std::string& name) {
    return std::ranges::count(names, name) > 0;
  };
  const std::vector<PredictionArm>& arms = config.phases.skip_backward.arms;
  if (arms.empty()) return is_named(config.phases.skip_backward.predictor);
  return std::ranges::any_of(arms, is_named, &PredictionArm::predictor);
}

bool acts(const DivergenceConfig& divergence, std::initializer_list<Recovery> kinds) {
  return std::ranges::any_of(kinds, [&](Recovery kind) {
    return divergence.on_caution == kind || divergence.on_warning == kind ||
           divergence.on_critical == kind;
  });
}

bool uses_files(const Config& config) {
  return config.memory.plan == "auto" || config.memory.device_map == "auto" ||
         uses_place(config, "file") ||
         config.predict_aware_memory.offload_strategy == "nvme_offload";
}

/// The groups of methods, by the methods' names.
bool is_of_another_method(const Config& config, const std::string& key) {
  return std::ranges::any_of(method_names(), [&](const std::string& method) {
    return method != config.phases.method && key.starts_with(concat("phases.", method, "."));
  });
}

/// Whether layers are told by letters, and none of them has one of these.
bool lacks_mixers(const Config& config, const char* letters) {
  const std::string& mixers = config.model.mixers;
  return !mixers.empty() && mixers.find_first_of(letters) == std::string::npos;
}

/// Whether sequences may go in segments; of long ones the model decides.
bool has_segments(const Config& config) {
  const std::int64_t length = config.data.sequence_length, wanted = config.memory.segment_length;
  return wanted > 0 ? length > wanted : length > LossModel::kWholeUpTo;
}

/// The first row that holds for a key gives the reason.
std::vector<InertKeys> table(const Config& config, const RunSurroundings& run) {
  const SkipBackwardConfig& predictions = config.phases.skip_backward;
  const std::string& strategy = config.predict_aware_memory.offload_strategy;
  return {
      {{"phases.full_steps", "phases.correct_steps", "phases.skip_backward.",
        "phases.asynchronous_optimizer.delay", "phases.asynchronous_optimizer.device_side",
        "phases.asynchronous_optimizer.prediction_error_limit", "phases.asynchronous_gradients.",
        "phases.local_sgd.", "predict_aware_memory.", "mixed_precision.predict",
        "mixed_precision.correct"},
       config.phases.max_predict_steps == 0,
       "phases.max_predict_steps is 0, which is plain training"},
      {{"mixed_precision.loss_scale", "mixed_precision.loss_scale_growth_steps"},
       !config.computes_in("fp16"),
       "no phase computes in fp16"},
      {{"predict_aware_memory."},
       !config.phases.skips_backward(),
       "it is for phases.method skip_backward, whose Predict skips the backward pass"},
      {{"phases.skip_backward.predictor"},
       !predictions.arms.empty(),
       "phases.skip_backward.arms names the predictors"},
      {{"phases.skip_backward.residual_store", "phases.skip_backward.dream_cost"},
       predictions.horizon != "dreamt",
       "it is for phases.skip_backward.horizon dreamt"},
      {{"phases.skip_backward.slow_share"},
       !uses_predictor(config, {"two_timescale"}),
       "it is for the predictor two_timescale"},
      {{"phases.skip_backward.slow_steps"},
       !uses_predictor(config, {"two_timescale", "merged"}),
       "it is for the predictors two_timescale and merged"},
      {{"phases.skip_backward.history_interval"},
       !uses_predictor(config, {"linear", "two_timescale", "merged"}),
       "it is for the predictors linear, two_timescale and merged"},
      {{"predict_aware_memory.async_restore", "predict_aware_memory.async_restore_lookahead"},
       strategy == "none" || strategy == "drop_and_reinitialize",
       "predict_aware_memory.offload_strategy brings nothing back"},
      {{"predict_aware_memory.async_restore_lookahead"},
       !config.predict_aware_memory.async_restore,
       "predict_aware_memory.async_restore is false"},
      {{"model.attention_pattern.block", "model.attention_pattern.seed"},
       !config.model.attention_pattern.is_on(),
       "model.attention_pattern.local_blocks is 0, which is no pattern"},
      {{"model.attention_pattern.seed"},
       config.model.attention_pattern.random_blocks == 0,
       "model.attention_pattern.random_blocks is 0"},
      {{"model.state_space."},
       lacks_mixers(config, "mdhc"),
       "model.mixers has no layer that it is about: m, d, h or c"},
      {{"model.window", "model.attention_pattern.", "model.key_heads", "model.rope_theta",
        "model.rope_scaling.", "model.rotary_share"},
       lacks_mixers(config, "ac"),
       "model.mixers has no attention: a or c"},
      {{"model.semiseparable.rank"},
       lacks_mixers(config, "tp"),
       "model.mixers has no layer T + U·Vᵀ: t or p"},
      {{"model.semiseparable.potentials", "model.semiseparable.imaginary",
        "model.semiseparable.limit"},
       lacks_mixers(config, "b"),
       "model.mixers has no BK core: b"},
      {{"memory.segment_length"},
       config.memory.segment_length >= config.data.sequence_length,
       "data.sequence_length is not longer (hybrid eval heeds it where its own is)"},
      {{"memory.kept_segments"},
       !has_segments(config),
       "sequences go whole: memory.segment_length says when they go in segments"},
      {{"memory.profile"},
       !config.device_budget(),
       "it is about shares of memory.device_budget, which is not set"},
      {{"memory.allow_lossy"},
       config.memory.plan != "auto",
       "it is for plans: `hybrid plan`, or memory.plan auto"},
      {{"memory.folder"},
       !uses_files(config),
       "nothing of this run goes to a file; memory.weights, optimizer_state or activations can"},
      {{"data.shuffle"},
       config.data.carry_state,
       "data.carry_state goes through the text in order"},
      {{"training.cuda_graphs"},
       run.device.type == DeviceType::kCpu,
       "this run is on the processor"},
      {{"schedule.final_fraction"},
       config.schedule.name == "constant",
       "schedule.name is constant, which does not decay"},
      {{"schedule.decay_share"}, config.schedule.name != "wsd", "it is for schedule.name wsd"},
      {{"schedule.batch_rule"},
       config.stretches.empty(),
       "without stretches all steps have as many tokens"},
      {{"optimizer.orthogonalization_blocks"},
       config.optimizer.orthogonalization_period == 1 &&
           std::ranges::none_of(config.stretches,
                                [](const StretchConfig& stretch) {
                                  return stretch.orthogonalization_period.value_or(1) > 1;
                                }),
       "optimizer.orthogonalization_period is 1: whole matrices in each step"},
      {{"optimizer.slow_momentum_steps"},
       config.optimizer.slow_momentum == 0,
       "optimizer.slow_momentum is 0"},
      {{"learning_rate_finder.interval", "learning_rate_finder.largest_factor",
        "learning_rate_finder.batch_share", "learning_rate_finder.refusals"},
       !config.learning_rate_finder.is_on(),
       "learning_rate_finder.mode is off"},
      {{"lora.expert_rank", "lora.alpha", "lora.dropout", "lora.targets", "lora.variant"},
       !config.has_adapters(),
       "lora.rank is 0, which trains the weights themselves"},
      {{"lora.base"}, !config.freezes(), "lora.rank is 0, which trains the weights themselves"},
      {{"training.label_smoothing"},
       config.model.family == "series",
       "it is for tokens and classes, and a series has numbers"},
      {{"mask_share"}, !config.masks(), "it is for objective masked"},
      {{"preference_beta"}, !config.prefers(), "it is for objective dpo or orpo"},
      {{"data.validation_fraction"},
       !config.data.is_rows() && config.model.vision.labels.empty() &&
           config.model.family != "series" && config.model.family != "trident",
       "it is for examples (`hybrid finetune`), pictures, arrays and tables of series"},
      {{"data.columns"},
       !config.data.is_rows() && config.model.vision.labels.empty() &&
           config.model.family != "series",
       "it is for examples (`hybrid finetune`), pictures and tables of series"},
      {{"checkpoint.every_epochs"},
       !config.data.is_rows() && config.model.vision.labels.empty(),
       "it is for examples (`hybrid finetune`)"},
      {{"observability.answers"}, !config.data.is_rows(), "it is for examples (`hybrid finetune`)"},
      {{"data.mirror_pictures"},
       config.model.vision.labels.empty(),
       "it is for pictures, of which this model sees none"},
      {{"data.mask_frames"},
       config.model.encoder.features == 0,
       "it is for clips of speech, of which this model hears none"},
      {{"checkpoint.every_minutes"},
       config.checkpoint.every_minutes > 0 && !config.saves_by_time(),
       "the bits of this run depend on which steps are saved (a divergence action is roll_back, or "
       "phases.method is asynchronous_gradients or local_sgd), and none may depend on the clock"},
      {{"checkpoint.keep_best"},
       config.training.evaluate_every_steps == 0,
       "the run is evaluated only at its end, whose checkpoint stays anyway; set "
       "training.evaluate_every_steps"},
      {{"training.min_improvement"}, config.training.patience == 0, "training.patience is 0"},
      {{"distributed."}, run.ranks == 1, "this run has one rank; --ranks N has more"},
      {{"distributed.imitated_latency_microseconds"},
       imitated_link_text(config.distributed).empty(),
       "distributed.imitated_link is not set"},
      {{"divergence.horizon_factor"},
       !acts(config.divergence, {Recovery::kReduceHorizon}),
       "no divergence action is reduce_horizon"},
      {{"divergence.threshold_raise"},
       !acts(config.divergence, {Recovery::kRaiseThreshold}),
       "no divergence action is raise_threshold"},
      {{"divergence.recovery_steps"},
       !acts(config.divergence, {Recovery::kReduceHorizon, Recovery::kRaiseThreshold,
                                 Recovery::kResetPredictor, Recovery::kForceFull}),
       "no divergence action is one that lasts, such as reduce_horizon or force_full"},
      {{"divergence.roll_back_rate", "divergence.max_roll_backs"},
       !config.divergence.rolls_back(),
       "no divergence action is roll_back"},
  };
}

bool names(const InertKeys& row, const std::string& key) {
  return std::ranges::any_of(row.keys, [&](const std::string& listed) {
    return listed.ends_with('.') ? key.starts_with(listed) : key == listed;
  });
}

/// Why a key changes nothing, or "".
std::string reason(const std::string& key, const Config& config,
                   const std::vector<InertKeys>& rows) {
  if (is_of_another_method(config, key)) return "phases.method is " + config.phases.method;
  if (std::string why = inert_by_optimizer(config, key); !why.empty()) return why;
  const auto row = std::ranges::find_if(
      rows, [&](const InertKeys& one) { return one.holds && names(one, key); });
  return row == rows.end() ? "" : row->why;
}

}  // namespace

std::vector<std::string> inert_settings(const HybridTrainerConfig& config,
                                        const std::vector<std::string>& names,
                                        const RunSurroundings& run) {
  if (names.empty()) return {};
  const std::vector<InertKeys> rows = table(config, run);
  struct Line {
    std::string why;
    std::vector<std::string> names;
  };
  std::vector<Line> lines;
  for (const std::string& name : names) {
    const std::string why = reason(name, config, rows);
    if (why.empty()) continue;
    auto line = std::ranges::find(lines, why, &Line::why);
    if (line == lines.end()) line = lines.insert(line, Line{why, {}});
    if (std::ranges::count(line->names, name) == 0) line->names.push_back(name);
  }
  std::vector<std::string> told;
  for (const Line& line : lines) {
    told.push_back(concat(join(line.names),
                          line.names.size() == 1 ? " is set, but has" : " are set, but have",
                          " no effect here: ", line.why));
  }
  return told;
}

TrainingRunSettings with_base(TrainingRunSettings settings) {
  const RunPaths paths{settings.run.string()};
  if (!settings.resume || !paths.hold_a_run()) return settings;
  if (has_checkpoint(paths)) {
    if (!settings.config.freezes()) settings.init_from.reset();
    settings.adapter.reset();  // its values are in the checkpoint
    return settings;
  }
  const RunData data = data_of_run(paths);
  if (!settings.init_from && !data.base.empty()) settings.init_from = data.base.path();
  if (!settings.adapter && !data.adapter.empty()) settings.adapter = data.adapter;
  return settings;
}

std::optional<ModelFolder> opened_model(const TrainingRunSettings& settings,
                                        const ModelFolder& opened) {
  if (!settings.init_from || opened.path() != *settings.init_from) return settings.init_from;
  return opened;
}

HybridTrainerConfig resolved_config(const TrainingRunSettings& settings, Task& task,
                                    std::vector<std::string>& told) {
  told = settings.notes;
  HybridTrainerConfig config = task.completed(settings.config.with_parts());
  if (config.phases.delays_updates())
    check_threads("phases.asynchronous_optimizer.worker_threads",
                  config.phases.asynchronous_optimizer.worker_threads);
  const RankCount ranks{settings.ranks == nullptr ? 1 : settings.ranks->size(),
                        settings.local_ranks};
  const RunSurroundings run{find_device(config.device, settings.local_rank), ranks.all};
  for (std::string& text : inert_settings(config, settings.explicit_keys, run))
    told.push_back("warning: " + std::move(text));
  if (config.phases.max_predict_steps > 0 && config.phases.warmup_steps >= config.training.steps) {
    told.push_back(concat("all ", config.training.steps, " steps are Warmup, since ",
                          "phases.warmup_steps is ", config.phases.warmup_steps,
                          ": nothing will be predicted"));
  }
  const ModelRegistry* const families = task.simulated_by();
  if (families == nullptr) return config;
  const std::string warning =
      config.freezes()
          ? ""
          : untrained_router_warning(resolved_model_config(config.model, *families).experts);
  if (!warning.empty()) told.push_back("warning: " + warning);
  return with_memory(config, {settings.run.string()}, settings.resume, ranks, *families, told);
}

}  // namespace hybrid_trainer
