#include "src/run/language_task.h"

#include <algorithm>
#include <cmath>

#include "hybrid_trainer/core/error.h"
#include "hybrid_trainer/generation/text_generation.h"
#include "hybrid_trainer/models/lora.h"
#include "hybrid_trainer/models/model_family.h"
#include "memory/quantized_weight.h"
#include "src/config/stages.h"
#include "src/core/messages.h"
#include "src/files/checksum.h"
#include "src/model_files/adapters/adapter_files.h"
#include "src/model_files/gguf/gguf_model.h"
#include "src/model_files/hugging_face/generation_config.h"
#include "src/model_files/hugging_face/hugging_face.h"
#include "src/run/model_card.h"
#include "src/run/run_export.h"
#include "src/trainer/run_model.h"

namespace hybrid_trainer {

namespace {

constexpr std::int64_t kSampleTokens = 120;

std::string model_line(const ModelFamily& family, const ModelConfig& model,
                       std::int64_t parameters) {
  return concat(family.title, ", ", units::millions(parameters), " parameters: ", model.layers,
                " layers, ", family.has("heads") ? concat(model.heads, " heads, ") : "", "width ",
                model.width, ", context ", model.context, ", vocabulary ", model.vocabulary,
                model.dropout > 0 ? concat(", dropout ", model.dropout) : "");
}

/// Describes how much of the frozen matrices is stored in the file's own blocks.
std::string blocks_text(LossModel& model) {
  double all = 0, in_blocks = 0;
  model.visit_parameters([&](Parameter& parameter) {
    if (parameter.trainable() || parameter.role() == Role::kVector) return;
    const auto elements = static_cast<double>(parameter.elements());
    all += elements;
    in_blocks += dynamic_cast<QuantizedWeight*>(&parameter.storage()) != nullptr ? elements : 0;
  });
  if (in_blocks == all) return "the file's own blocks";
  return concat("the file's own blocks, ", std::llround(100 * (1 - in_blocks / all)),
                " % of the weights in f32, because the file has no blocks for them");
}

/// Returns "lora of rank 8, …: 0.30 M trained weights, frozen weights in nf4".
std::string adapters_line(const LoraConfig& lora, bool has_parts, LossModel& model) {
  if (!lora.is_on()) return has_parts ? "per part, see below" : "none";
  std::int64_t trained = 0;
  for (const Parameter* parameter : trainable_parameters(model)) trained += parameter->elements();
  return concat(lora.variant, " of rank ", lora.rank, ", alpha ", lora.alpha, ", on ", lora.targets,
                ": ", units::millions(trained), " trained weights, frozen weights in ",
                lora.base == kFileBase ? blocks_text(model) : lora.base);
}

std::string batch_line(const HybridTrainerConfig& config) {
  const std::int64_t parts = config.gradient_accumulation.micro_batches;
  std::string before;
  const std::vector<Stage> stages = Stages(config).all();
  for (std::size_t i = 0; i + 1 < stages.size(); ++i)
    before += concat(text_of(stages[i]), " until step ", stages[i + 1].first_step, ", then ");
  return concat(
      before, config.effective_batch(), " sequences of ", config.data.sequence_length,
      " tokens per step",
      parts > 1 ? concat(" (", parts, " micro-batches of ", config.data.batch_size, ")") : "");
}

/// Describes the objective: "masked: loss over 10 of the 64 tokens of a sequence, …".
std::string objective_line(const HybridTrainerConfig& config) {
  if (config.prefers())
    return concat(config.objective, ": loss over pairs of answers, beta ",
                  brief(config.preference_beta));
  const std::int64_t length = config.data.sequence_length;
  return concat(config.objective, ": loss over ",
                config.objective == "masked_words" ? "whole words, at most " : "",
                masked_tokens(config.mask_share, length), " of the ", length,
                " tokens of a sequence, predicted from both sides");
}

LanguageModel& as_language_model(LossModel& model) { return static_cast<LanguageModel&>(model); }

/// Returns the GGUF file with the frozen weights. Throws ConfigError if the model is not a GGUF
/// file.
std::string file_of_base(const RunPaths& run, const std::optional<ModelFolder>& model) {
  const auto base = base_of_run(run, model);
  if (base && base->is_gguf()) return base->string();
  throw ConfigError(
      {concat("lora.base: got file, which requires a GGUF file, but ",
              base ? base->string() + " is not a GGUF file" : "the run has no initial model",
              "; want nf4, or a GGUF file as the model")});
}

/// Returns the dtype for export.dtype=auto. A resumed run keeps its first choice.
std::string dtype_of_export(const TrainingRunSettings& settings,
                            const std::optional<ModelFolder>& base) {
  if (resumes(settings)) return config_of_run(RunPaths{settings.run.string()}).exported.dtype;
  const bool is_short = base && dtype_of_hugging_face_weights(*base) == DType::kBF16;
  return is_short ? "bf16" : "fp32";
}

/// Sets the special token ids of the data. These are the ids of the base, and the end tokens of the
/// data that the base does not have.
void add_token_ids(RunData& data) {
  const std::string ids = token_ids_in(data.base);
  if (ids.empty()) return;
  const auto known = generation_end_tokens_in(data.base);
  std::erase_if(data.end_tokens,
                [&](std::int32_t id) { return std::ranges::find(known, id) != known.end(); });
  data.token_ids = with_end_tokens(ids, data.end_tokens);
}

void check_same_data(const RunData& before, const RunData& here) {
  if (before.train_tokens == 0) return;
  const bool same_length = before.train_tokens == here.train_tokens;
  const bool same_content = before.checksum.empty() || before.checksum == here.checksum;
  if (same_length && same_content) return;
  const std::string tokens =
      concat(here.train_tokens, " training tokens, but the run was trained on ",
             before.train_tokens, same_length ? " others" : "");
  const bool is_validation = same_length && !here.validation.empty() &&
                             std::filesystem::is_regular_file(here.folder) &&
                             before.checksum.starts_with(checksum_of_file(here.folder));
  if (is_validation)
    throw DataError(concat(here.validation.string(),
                           " has other validation rows than the run, so losses before and after "
                           "would not be comparable; use --validation ",
                           shell_path(before.validation.string()), ", unchanged"));
  throw DataError(other_data_message(here.folder, before.folder, tokens));
}

}  // namespace

std::shared_ptr<const Tokenizer> tokenizer_of_data(const ModelFolder& data,
                                                   std::int64_t vocabulary) {
  std::shared_ptr<const Tokenizer> tokenizer = data.tokenizer();
  if (tokenizer->min_table_rows() <= vocabulary) return tokenizer;
  throw DataError(concat("the tokenizer of ", data.string(), " has ", tokenizer->vocabulary_size(),
                         " tokens, want at most model.vocabulary, ", vocabulary,
                         "; prepare the data again with hybrid prepare"));
}

/// Returns whether the folder of --init-from has a readable tokenizer that differs from the data's.
static bool changes_tokenizer(const std::optional<ModelFolder>& init_from,
                              const Tokenizer* of_data) {
  if (!init_from || of_data == nullptr) return false;
  try {
    return !init_from->tokenizer()->has_same_tokens(*of_data);
  } catch (const Error&) {
    return false;
  }
}

/// Generates text without a prompt. Returns "" for an encoder or a text-level model, if there
/// is no tokenizer, or if there is not enough memory.
static std::string sample_text(LanguageModel& model, const Tokenizer* tokenizer,
                               const Stream& stream, DType dtype) {
  const ModelConfig& config = model.config();
  if (tokenizer == nullptr || config.bidirectional || !config.pooling.empty()) return "";
  std::string text;
  GenerationSettings generation{.tokens = kSampleTokens};
  generation.sampling.temperature = 0.8f;
  try {
    if (dtype == DType::kBF16) {
      model.visit_parameters([&](Parameter& weight) { weight.compute_in(dtype, stream); });
    }
    generate_text(
        model, *tokenizer, "", generation, [&](std::string_view piece) { text += piece; }, stream,
        dtype);
  } catch (const OutOfMemory&) {  // no memory for the decoder's caches; the run itself is complete
    return "";
  }
  return text;
}

/// Returns the keys of position settings in which a resumed run may differ from its base.
static std::vector<std::string> keys_of_positions(const ModelConfig& model) {
  const bool rotates = find_family(model.family).has("rope_scaling");
  return rotates ? std::vector<std::string>{"model.context", "model.rope_scaling"}
                 : std::vector<std::string>();
}

HybridTrainerConfig LanguageTask::completed(HybridTrainerConfig config) {
  const ModelRegistry& registry = *settings_.registry;
  if (model_)
    config.model = with_training_of(
        read_hugging_face_model_config(*model_, 0, registry), config.model,
        resumes(settings_) ? keys_of_positions(config.model) : settings_.explicit_keys);
  set_data(config);
  if (config.exported.dtype == "auto") config.exported.dtype = dtype_of_export(settings_, model_);
  const std::int64_t known = vocabulary_size().value_or(0);
  if (config.adds_mask() && known > 0)
    if (const auto tokenizer = tokenizer_for(known))
      config.mask_token = special_token_ids_of(*tokenizer).mask.value_or(-1);
  const std::int64_t wanted = known + (config.adds_mask() ? 1 : 0);
  if (config.model.vocabulary == 0 && known > 0) config.model.vocabulary = wanted;
  if (config.model.vocabulary == 0) {
    throw ConfigError(
        {"model.vocabulary: the data folder does not contain the vocabulary size; set it with "
         "--set model.vocabulary=N"});
  }
  if (config.model.vocabulary < wanted) {
    throw ConfigError({concat(
        "model.vocabulary: got ", config.model.vocabulary, ", but the data's tokenizer has ", known,
        " tokens", config.adds_mask() ? ", and the mask needs one more" : "", "; ",
        model_ ? concat("prepare the data with the model's own tokenizer: --tokenizer ",
                        shell_path(model_->path()))
               : concat("want at least ", wanted, ", or 0 for this number"))});
  }
  config.validate(registry);
  if (config.freezes() && config.lora.base == kFileBase)
    config.lora.file = file_of_base(RunPaths{settings_.run.string()}, model_);
  if (!settings_.export_to.empty() && !config.lora.is_on())
    check_hugging_face_export(config.model, registry);
  check_data(config);
  if (!config.optimizer.groups.empty() || !config.parts.empty() || config.freezes())
    check_model(config, registry);
  tokenizer_ = tokenizer_for(config.data_vocabulary());
  return config;
}

std::unique_ptr<LossModel> LanguageTask::make_model(const HybridTrainerConfig& config,
                                                    MemoryPlaces& places) {
  base_ = base_of_run(RunPaths{settings_.run.string()}, model_);
  return make_run_model(config, base_, places, *settings_.registry);
}

void LanguageTask::prepare(const RunStart& start) {
  LanguageModel& model = as_language_model(start.model);
  if (settings_.adapter)
    read_adapter_weights(*settings_.adapter, model, model.config(), start.stream);
  prepare_data(start);
  answer_before(start);
}

void LanguageTask::write_export(const RunPaths& run, const std::filesystem::path& output) const {
  const Stream stream(MemoryPool::create("device"));
  const HybridTrainerConfig config = config_of_run(run);
  const bool merges = config.freezes() && !config.lora.is_on();  // frozen by the settings of parts
  const TrainedRun trained =
      load_trained_run(run.root, stream, *settings_.registry, {},
                       merges ? std::optional<std::string>("fp32") : std::nullopt);
  if (merges) merge_adapters(*trained.network, stream);
  if (trained.config.lora.is_on()) {
    export_adapter(trained, output, stream);
    write_model_card(run.root, output, CardKind::kAdapter);
  } else {
    export_model(trained, output, {}, stream);
    write_model_card(run.root, output, CardKind::kModel);
  }
}

std::vector<NamedText> LanguageTask::facts() const {
  const RunPaths run{settings_.run.string()};
  const auto base = settings_.resume ? base_of_run(run, model_) : model_;
  const RunData data = described();
  return {{"the initial model", base ? identity_of_base(*base) : ""},
          {"tokens of the data", concat(data.train_tokens)},
          {"the data's checksum", data.checksum}};
}

void LanguageTask::check_same(const RunPaths& run) const {
  const RunData data = data_of_run(run);
  check_same_tokenizer(tokenizer_of_run(run).get(), tokenizer_.get(), settings_.data);
  check_same_data(data, described());
}

/// Describes the run's data for its folder, including its initial model and end tokens.
RunData LanguageTask::run_data(const RunPaths& run, bool resumes) const {
  RunData data = described();
  data.command = resumes ? data_of_run(run).command : settings_.command;
  data.adapter = settings_.adapter.value_or(resumes ? data_of_run(run).adapter : "");
  if (model_) {
    data.base = *model_;
    if (!changes_tokenizer(model_, tokenizer_.get())) add_token_ids(data);
  } else if (resumes) {
    const RunData before = data_of_run(run);
    data.base = before.base;
    data.token_ids = before.token_ids;
  }
  return data;
}

void LanguageTask::write_files(const RunPaths& own, const RunPaths& run,
                               const HybridTrainerConfig& config, bool resumes) const {
  if (config.freezes() && base_) write_run_base(own, *base_);
  write_run_files(own, config, run_data(run, resumes));
}

std::vector<NamedText> LanguageTask::settings(const HybridTrainerConfig& config,
                                              LossModel& model) const {
  const ModelFamily& family = find_family(config.model.family, *settings_.registry);
  std::vector<NamedText> settings{
      {"model", model_line(family, config.model, model.parameter_count())},
      {"adapters", adapters_line(config.lora, config.has_adapters(), model)},
      {"data", concat(settings_.data.string(), ", ", units::millions(described().train_tokens),
                      " training tokens")},
      {"batch", batch_line(config)}};
  if (config.masks() || config.prefers())
    settings.emplace_back("objective", objective_line(config));
  if (config.pools())
    settings.emplace_back("pooling", config.model.pooling == "mean"  ? "mean of all tokens"
                                     : config.model.pooling == "cls" ? "first token (cls)"
                                                                     : "last token");
  return settings;
}

std::vector<std::string> LanguageTask::notes(bool begins) const {
  std::vector<std::string> notes = notes_of_data();
  if (begins && changes_tokenizer(model_, tokenizer_.get())) {
    notes.push_back(concat("warning: the tokenizer of ", model_->string(),
                           " differs from the tokenizer of the data, so the model reads other text "
                           "than the data contain; prepare the text again with --tokenizer ",
                           shell_path(model_->path())));
  }
  return notes;
}

DType LanguageTask::dtype_of_text() const {
  const LoraConfig& lora = settings_.config.lora;
  return lora.is_on() && lora.base == "bf16" ? DType::kBF16 : DType::kF32;
}

std::string LanguageTask::sample(LossModel& model, const Stream& stream) const {
  if (as_language_model(model).reads_sources()) return "";  // generates only from a source
  return sample_text(as_language_model(model), tokenizer_.get(), stream, dtype_of_text());
}

}  // namespace hybrid_trainer
