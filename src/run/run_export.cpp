#include "src/run/run_export.h"

#include <algorithm>
#include <cmath>
#include <set>

#include "hybrid_trainer/core/batch.h"
#include "hybrid_trainer/core/error.h"
#include "hybrid_trainer/core/random.h"
#include "hybrid_trainer/files/input_file.h"
#include "src/core/messages.h"
#include "src/core/narrow.h"
#include "src/files/output_file.h"
#include "src/gguf/gguf_file.h"
#include "src/model_files/adapters/adapter_files.h"
#include "src/model_files/gguf/gguf_export.h"
#include "src/model_files/gguf/gguf_model.h"
#include "src/model_files/hugging_face/generation_config.h"
#include "src/model_files/hugging_face/hugging_face.h"
#include "src/model_files/hugging_face/module_weights.h"
#include "src/model_files/hugging_face/sentence_folder.h"
#include "src/run/model_card.h"
#include "src/run/text_data.h"
#include "src/run/text_outputs.h"

namespace hybrid_trainer {

namespace {

constexpr std::int64_t kProbeTokens = 64;
constexpr std::size_t kMaxGenerationBytes = 1 << 20;

void require_adapters(const TrainedRun& run) {
  if (!run.config.freezes())
    throw ConfigError({"lora.rank: the run has 0, so there are no adapters to export"});
}

/// Returns the settings of a run's adapters. Throws ConfigError if the run trained other weights,
/// because a PEFT folder cannot store them; a classification head is allowed.
LoraConfig exported_adapters(const TrainedRun& run) {
  require_adapters(run);
  run.network->visit_linears([&](Linear& linear) {
    if (linear.adapter() != nullptr && is_of_module(linear.weight()))
      throw ConfigError({concat("parts: ", linear.weight().name(),
                                " has an adapter, which sentence-transformers cannot load; merge "
                                "the adapters into the model: hybrid export RUN --merge --output "
                                "MERGED")});
  });
  LoraConfig config = run.config.lora;
  if (config.is_on()) return config;
  const std::string& classifier = find_family(run.config.model.family).hugging_face.classifier;
  bool is_held = !classifier.empty();
  run.network->visit_parameters([&](Parameter& parameter) {
    if (!parameter.trainable() || belongs_to_adapter(parameter)) return;
    is_held = is_held && parameter.in_files().front().name.starts_with(classifier);
  });
  std::set<std::int64_t> ranks;
  run.network->visit_linears([&](Linear& linear) {
    if (linear.adapter() != nullptr) ranks.insert(linear.adapter()->spec().rank);
  });
  if (!is_held || ranks.size() != 1)
    throw ConfigError(
        {"parts: the run trained weights without adapters, or adapters with different ranks, which "
         "an adapter folder cannot contain; merge the adapters into the model: hybrid export RUN "
         "--merge --output MERGED"});
  config.rank = *ranks.begin();
  return config;
}

void require_plain_base(const ModelFolder& base) {
  const std::string form = base.empty() ? "" : quantization_of_hugging_face(base);
  if (form.empty() || form == "mxfp4") return;  // mxfp4 models have no unquantized form
  throw DataError(concat(base.string(), ": its weights are quantized (", form, "), so adapters ",
                         "cannot be merged into them; export them with --adapter"));
}

std::vector<std::int32_t> random_tokens(std::int64_t length, std::int64_t vocabulary) {
  std::vector<std::int32_t> tokens;
  for (std::int64_t i = 0; i < length; ++i)
    tokens.push_back(narrow<std::int32_t>(
        random_below({}, static_cast<std::uint64_t>(i), static_cast<std::uint64_t>(vocabulary))));
  return tokens;
}

/// Computes the outputs of a text-level model for one text of random tokens.
std::vector<float> probe_outputs(const TrainedRun& run, const Stream& stream) {
  PackedTexts::Settings packing = text_packing(run.config, *run.tokenizer);
  packing.has_classes = false;
  packing.labels = 0;
  const ModelConfig& model = run.config.model;
  TextRow row;
  row.tokens = random_tokens(std::min({kProbeTokens, packing.sequence_length, model.context}),
                             model.vocabulary);
  row.types.assign(row.tokens.size(), 0);
  row.ends = {std::ssize(row.tokens)};
  const TextOutputs outputs =
      text_outputs(run.model("a GGUF file"), PackedTexts({row}, packing), 1, DType::kF32, stream);
  const std::span<const float> values = outputs.of(0);
  return {values.begin(), values.end()};
}

/// Computes logits of random tokens and padding. Throws DataError naming `what` if they are not
/// finite.
std::vector<float> probe_logits(LanguageModel& model, const std::string& what,
                                const Stream& stream) {
  const std::int64_t length = std::min(kProbeTokens, model.config().context);
  const Tensor tokens = Tensor::empty({1, length}, DType::kI32, MemoryKind::kData, stream);
  std::ranges::copy(random_tokens(length, model.config().vocabulary), tokens.data<std::int32_t>());
  const Pass pass{.training = false};
  model.encode(model.with_sources(token_batch(tokens, tokens), stream), pass, stream);  // silence
  const Tensor logits = model.logits(tokens, pass, stream);
  std::vector<float> values(logits.data<float>(), logits.data<float>() + logits.elements());
  if (std::ranges::all_of(values, [](float value) { return std::isfinite(value); })) return values;
  throw DataError(concat(what,
                         " computes logits that are not finite: its weights are damaged, or its "
                         "training diverged; export an earlier checkpoint (--checkpoint STEP)"));
}

std::vector<float> probe_logits(const TrainedRun& run, const std::string& what,
                                const Stream& stream) {
  auto* const model = dynamic_cast<LanguageModel*>(run.network.get());
  if (model == nullptr || run.config.pools()) return {};
  return probe_logits(*model, what, stream);
}

LogitChange compare_outputs(const std::vector<float>& before, const std::vector<float>& after) {
  LogitChange change;
  for (std::size_t i = 0; i < before.size(); ++i) {
    change.largest_logit = std::max(change.largest_logit, double{std::abs(before[i])});
    change.largest_change = std::max(change.largest_change, double{std::abs(after[i] - before[i])});
  }
  return change;
}

LogitChange compare_logits(const std::vector<float>& before, const std::vector<float>& after,
                           const ModelConfig& model) {
  LogitChange change = compare_outputs(before, after);
  if (before.empty()) return change;
  change.places = std::min(kProbeTokens, model.context);
  const std::ptrdiff_t row = std::ssize(before) / change.places;
  const auto choice = [&](const std::vector<float>& logits, std::int64_t place) {
    const auto begin = logits.begin() + place * row;
    return std::max_element(begin, begin + row) - begin;
  };
  for (std::int64_t place = 0; place < change.places; ++place)
    if (choice(before, place) == choice(after, place)) ++change.same_choices;
  return change;
}

/// Merges the adapters of `run` into its base, which must be in f32, and writes the model to
/// `output`. Compares the written model's logits with `before`, the logits as trained.
MergedExport write_merged(const TrainedRun& run, const std::vector<float>& before,
                          const std::filesystem::path& output, std::optional<DType> dtype,
                          const Stream& stream) {
  require_plain_base(run.base);
  MergedExport result{.step = run.step, .warnings = run.warnings};
  merge_adapters(*run.network, stream);
  result.dtype = export_model(run, output, dtype, stream);
  read_hugging_face_weights(
      output, *run.network, run.config.model,
      [&](Parameter& parameter, const FolderWeight& weight) {
        parameter.set_storage(std::make_unique<ResidentWeight>(weight.values()));
      });
  result.change =
      compare_logits(before, probe_logits(run, output.string(), stream), run.config.model);
  return result;
}

std::string text_of_words(const Tokenizer& tokenizer) {
  constexpr std::int64_t kWords = 2048;
  const std::int64_t step = std::max<std::int64_t>(1, tokenizer.vocabulary_size() / kWords);
  std::string text = "A text";
  for (std::int64_t id = 0; id < tokenizer.vocabulary_size(); id += step)
    text += concat(" ", tokenizer.token_bytes(narrow<std::int32_t>(id)));
  return text;
}

/// Returns the number of tokens of a test text, or 0 with a warning if the tokenizers differ.
std::int64_t compare_tokens(const Tokenizer& tokenizer, const ModelFolder& file) {
  const std::string text = text_of_words(tokenizer);
  const std::vector<std::int32_t> wanted = tokenizer.encode(text),
                                  got = file.tokenizer()->encode(text);
  if (wanted != got)
    warn(file.string(), concat("the file's tokenizer encodes a test text of ", wanted.size(),
                               " tokens differently, from token ",
                               std::ranges::mismatch(wanted, got).in1 - wanted.begin(), " on"));
  return wanted == got ? std::ssize(wanted) : 0;
}

/// Returns the steps that make an embedding: the steps of the initial model or, if it has none, the
/// run's pooling (mean by default) and normalization.
SentencePipeline pipeline_of(const TrainedRun& run) {
  const ModelFolder& folder = run.sentence_folder;
  const bool is_known = !folder.empty() && has_sentence_pipeline(folder);
  SentencePipeline pipeline =
      is_known ? read_sentence_pipeline(folder) : SentencePipeline{.normalizes = true};
  pipeline.transformer.clear();
  pipeline.width = run.config.model.width;
  pipeline.pooling = run.config.model.pooling;
  pipeline.dense = run.config.model.dense_layers();
  pipeline.max_length = text_limit(run.config);
  return pipeline;
}

std::string score_activation(const HybridTrainerConfig& config) {
  if (config.objective != "rank") return "";
  return config.texts.labels == "several" ? "sigmoid" : "identity";
}

std::vector<std::pair<std::string, std::string>> license_keys(const ModelFolder& base) {
  std::vector<std::pair<std::string, std::string>> keys;
  for (auto& [key, text] : base.empty() ? LicenseTexts() : license_of(base)) {
    const std::string name = key == "license" ? key : concat("license.", key.substr(8));
    keys.emplace_back("general." + name, std::move(text));
  }
  return keys;
}

std::vector<std::pair<std::string, double>> sampling_values(const GenerationKeys& keys) {
  std::vector<std::pair<std::string, double>> values;
  const auto add = [&](const char* name, std::optional<double> value) {
    if (value) values.emplace_back(concat("general.sampling.", name), *value);
  };
  add("temp", keys.temperature);
  if (keys.top_k) add("top_k", static_cast<double>(*keys.top_k));
  add("top_p", keys.top_p);
  add("min_p", keys.min_p);
  if (keys.rules.repetition_penalty != 1) add("penalty_repeat", keys.rules.repetition_penalty);
  return values;
}

}  // namespace

std::string LogitChange::text() const {
  if (places == 0 && largest_logit == 0) return "";
  if (places == 0)
    return concat("; outputs of a test text changed by at most ", brief(largest_change),
                  "; the largest output is ", brief(largest_logit));
  const std::string found = concat("; logits changed by at most ", brief(largest_change),
                                   "; the largest logit is ", brief(largest_logit));
  if (same_choices == places)
    return concat(found, "; the most likely token stayed the same at all ", places,
                  " tested positions");
  return concat(found, "; the most likely token changed at ", places - same_choices, " of ", places,
                " positions of random text; compare both with `hybrid eval`");
}

DType export_model(const TrainedRun& run, const std::filesystem::path& output,
                   std::optional<DType> dtype, const Stream& stream) {
  const DType rounded = dtype.value_or(export_dtype(run));
  const auto finish = [&](const std::filesystem::path& folder) {
    if (!run.end_tokens.empty()) {
      const std::filesystem::path file = folder / "generation_config.json";
      replace_file(file, with_end_tokens(read_file(file, kMaxGenerationBytes), run.end_tokens));
    }
    if (run.config.objective == "embed") write_sentence_pipeline(pipeline_of(run), folder);
    if (run.config.pools()) write_cross_encoder(score_activation(run.config), folder);
  };
  export_hugging_face(*run.network, run.config.model, run.tokenizer.get(), output, stream,
                      model_families(), rounded, run.token_ids, run.origin, run.base_config,
                      finish);
  return rounded;
}

/// Warns that an adapter file has no key for the position settings of its training.
static void warn_of_positions(const TrainedRun& run, const std::filesystem::path& output) {
  const auto positions = [](const ModelConfig& model) {
    std::string all;
    for (const auto& [key, text] : texts_of_keys(model))
      if (key == "context" || key.starts_with("rope_scaling.")) all += text + " ";
    return all;
  };
  if (positions(run.config.model) == positions(read_hugging_face_model_config(run.base, 0))) return;
  warn(output.string(), concat("the run changed model.context or model.rope_scaling, which an "
                               "adapter folder cannot contain; ",
                               "for other programs, merge the adapters (--merge)"));
}

void export_adapter(const TrainedRun& run, const std::filesystem::path& output,
                    const Stream& stream) {
  const LoraConfig adapters = exported_adapters(run);
  warn_of_positions(run, output);
  const auto finish = [&](const std::filesystem::path& folder) {
    // sentence-transformers reads the tokenizer in this folder, not the base's.
    if (run.config.pools() && run.tokenizer != nullptr && is_hugging_face(run.tokenizer->kind()))
      run.tokenizer->save(folder);
    if (run.config.objective == "embed") write_sentence_pipeline(pipeline_of(run), folder);
    if (const std::string activation = score_activation(run.config); !activation.empty())
      write_cross_encoder_adapter(activation, folder);
    if (run.tokenizer == nullptr) return;
    const auto file = run.tokenizer->files().find("generation_config.json");
    const auto ends = end_token_ids_in(run.tokenizer_folder), of_base = end_token_ids_in(run.base);
    if (file != run.tokenizer->files().end() && !std::ranges::includes(of_base, ends))
      replace_file((folder / file->first).string(), file->second);
  };
  write_adapter(*run.network, run.config.model, adapters, run.base.string(), output, stream,
                model_families(), finish);
}

MergedExport export_merged(const std::filesystem::path& folder, const std::filesystem::path& output,
                           const RunWeights& weights, std::optional<DType> dtype) {
  const ModelRegistry& registry = model_families();
  const Stream stream(MemoryPool::create("device"));
  std::vector<float> before;
  {
    const TrainedRun run = load_trained_run(folder, stream, registry, weights);
    require_adapters(run);
    before = probe_logits(run, folder.string(), stream);
  }
  const TrainedRun run = load_trained_run(folder, stream, registry, weights, "fp32");
  return write_merged(run, before, output, dtype, stream);
}

MergedExport export_merged_adapter(const std::filesystem::path& folder,
                                   const std::filesystem::path& base,
                                   const std::filesystem::path& output,
                                   std::optional<DType> dtype) {
  const Stream stream(MemoryPool::create("device"));
  const TrainedRun run = load_adapter_folder(folder, "fp32", stream, model_families(), base);
  return write_merged(run, probe_logits(run, folder.string(), stream), output, dtype, stream);
}

static void check_gguf_task(const TrainedRun& run) {
  const bool encodes = run.config.model.bidirectional,
             classifies = !run.config.model.labels.empty();
  if (encodes && !run.config.pools())
    throw DataError(
        "export: GGUF files of encoders contain models that embed or classify texts, but this one "
        "has no pooling; train it with hybrid finetune --task embed, or export a Hugging Face "
        "folder: leave out --format gguf");
  if (!encodes && classifies)
    throw DataError(
        "export: GGUF files of decoders that classify texts are not supported, only those of "
        "encoders; export a Hugging Face folder: leave out --format gguf");
}

void export_gguf_adapter_file(const TrainedRun& run, const std::filesystem::path& output,
                              const Stream& stream) {
  check_gguf_task(run);
  if (!run.config.model.labels.empty())
    throw DataError(
        "export: adapter files of llama.cpp cannot store a class head; merge the adapters into the "
        "model (--merge), or export them for PEFT: leave out --format gguf");
  if (!run.config.model.dense.empty())
    throw DataError(
        "export: adapter files of llama.cpp cannot store the linear layers after pooling; merge "
        "the adapters into the model (--merge), or export them for PEFT: leave out --format gguf");
  const LoraConfig adapters = exported_adapters(run);
  warn_of_positions(run, output);
  OutputFolder passing(output.string() + ".peft", OutputFolder::Existing::kRefuse);
  const std::filesystem::path folder = passing.create() / "adapter";
  write_adapter(*run.network, run.config.model, adapters, "", folder, stream);
  export_gguf_adapter(folder, resolved_model_config(run.config.model), output);
}

/// Warns of a prompt that begins all texts. Runs train without it.
static void warn_of_prompt(const TrainedRun& run, const std::filesystem::path& output) {
  if (run.step > 0 || run.config.objective != "embed") return;
  const SentencePipeline pipeline = pipeline_of(run);
  const auto prompt = pipeline.prompts.find(pipeline.default_prompt);
  if (prompt == pipeline.prompts.end() || prompt->second.empty()) return;
  warn(output.string(), concat("GGUF cannot store this model's prompt \"", prompt->second,
                               "\"; begin each text with it yourself"));
}

GgufExport export_gguf_file(const TrainedRun& run, const std::string& type,
                            const std::filesystem::path& output, const Stream& stream) {
  LanguageModel& model = run.model("a GGUF file");
  check_gguf_task(run);
  if (!run.tokenizer)
    throw DataError(
        "a GGUF file needs a tokenizer, but the model has none; export a Hugging Face folder "
        "instead");
  if (run.config.freezes()) {
    require_plain_base(run.base);
    merge_adapters(model, stream);
  }
  GgufExport result{.type = type};
  if (type.empty()) result.type = export_dtype(run) == DType::kBF16 ? "bf16" : "f16";
  const bool pools = run.config.pools();
  warn_of_prompt(run, output);
  const auto probe = [&] {
    return pools ? probe_outputs(run, stream) : probe_logits(model, output.string(), stream);
  };
  const std::vector<float> before = probe();
  const GgufTexts texts{*run.tokenizer, run.token_ids, license_keys(run.origin),
                        sampling_values(generation_keys_of(run))};
  result.types = export_gguf(model, texts, result.type, output, stream);
  result.bytes = std::filesystem::file_size(output);
  const ModelFolder written(output);
  result.tokens = compare_tokens(*run.tokenizer, written);
  visit_gguf_weights(written.gguf(), model, model.config(),
                     [](Parameter& parameter, const FolderWeight& weight) {
                       parameter.set_storage(std::make_unique<ResidentWeight>(weight.values()));
                     });
  result.change =
      pools ? compare_outputs(before, probe()) : compare_logits(before, probe(), run.config.model);
  return result;
}

}  // namespace hybrid_trainer
