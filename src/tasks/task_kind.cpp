#include "src/tasks/task_kind.h"

#include <boost/json.hpp>

#include "hybrid_trainer/core/error.h"
#include "hybrid_trainer/core/fields.h"
#include "hybrid_trainer/core/memory_pool.h"
#include "hybrid_trainer/data/token_dataset.h"
#include "src/core/messages.h"
#include "src/generation/evaluation.h"
#include "src/run/language_task.h"
#include "src/run/speech/clips.h"
#include "src/run/speech/transcription.h"
#include "src/run/text_data.h"
#include "src/run/text_score.h"
#include "src/tasks/network_task.h"
#include "src/trainer/run_model.h"

namespace hybrid_trainer {

namespace {

/// Extends the sequence length to the longest row, keeping the number of tokens in a batch.
void fit_longest(DataConfig& config, const std::vector<ExampleRow>& rows) {
  std::int64_t longest = 0;
  for (const ExampleRow& row : rows) longest = std::max(longest, row.places());
  if (longest <= config.sequence_length) return;
  config.batch_size =
      std::max<std::int64_t>(1, config.batch_size * config.sequence_length / longest);
  config.sequence_length = longest;
}

/// Data of an evaluation, with the clips of audio data.
struct MeasuredRows {
  OrderedBatches batches;
  std::vector<ExampleRow> clips{};
};

/// Returns all rows of an example file, not truncated if the context allows. If the file is the
/// run's data, returns only the rows that the run held back, at the run's length.
MeasuredRows rows_of(const TrainedRun& run, const std::filesystem::path& file, const Measuring& on,
                     const Stream& host, const Stream& stream) {
  const std::string& folder = on.folder;
  if (!run.tokenizer)
    throw DataError(concat(folder, " has no tokenizer to encode ", file.string()));
  const bool is_own = file == run.data, whole = !is_own && on.length == 0;
  const RunData own = is_own ? data_of_run(RunPaths{folder}) : RunData{.now = std::time(nullptr)};
  DataConfig config = run.config.data;
  if (on.length > 0) config.sequence_length = on.length;
  if (!on.control_tokens.empty()) config.control_tokens = on.control_tokens;
  if (!is_own) config.validation_fraction = 0;
  ModelConfig model = run.config.model;
  if (whole) model.encoder.source_length = 0;
  ExampleFiles files{.examples = file,
                     .validation = own.validation,
                     .tokenizer = run.tokenizer_folder,
                     .now = own.now,
                     .vocabulary = run.config.model.vocabulary,
                     .context = run.config.model.context,
                     .called = on.called,
                     .pairs = run.config.prefers(),
                     .measured = !is_own};
  files.set_encoder(model, {run.tokenizer_folder, run.base, run.origin});
  DataConfig longest = config;
  if (whole) longest.sequence_length = run.config.model.context;
  ExampleData data = read_example_data(files, longest);
  if (is_own && data.checksum != own.checksum)
    throw DataError(
        concat(file.string(), " has changed since the run was trained on it; restore it"));
  for (const std::string& line : refused_row_notes(data, files)) on.report(line);
  if (!is_own)
    for (const std::string& note : data.notes) on.report(note);
  if (is_own && !on.data.empty())
    on.report(concat(file.string(), " is the run's training data: measuring only the ",
                     data.validation.size(), data.validation.size() == 1 ? " row" : " rows",
                     " held back from training"));
  for (const std::string& cut : cut_row_notes({&data.validation}, files, longest.sequence_length,
                                              "--sequence-length N keeps more of them"))
    on.report("warning: " + cut);
  if (whole) fit_longest(config, data.validation);
  std::int64_t source_length = 0;
  for (const ExampleRow& row : data.validation)
    source_length = std::max(source_length, std::ssize(row.source));
  PackedRows::Settings packing = packing_of(
      config, *run.tokenizer, files.source && !whole ? files.source->longest : source_length);
  if (files.pairs && run.config.objective == "dpo")
    packing.references =
        is_own ? validation_references(RunPaths{folder}, data)
               : references_of_base(RunPaths{folder}, PackedRows(data.validation, packing),
                                    config.batch_size, stream);
  const bool are_clips = files.max_clip_seconds > 0;
  return {OrderedBatches(dataset_of_rows(data.validation, packing, run.config), config.batch_size,
                         host),
          are_clips ? std::move(data.validation) : std::vector<ExampleRow>()};
}

/// Returns the batches to evaluate. `host` is the stream for batches, `stream` the model's stream.
/// `shards` receives the token shards of the batches, if they are not from examples.
MeasuredRows batches_of(const TrainedRun& run, const Measuring& on, const Stream& host,
                        const Stream& stream, std::optional<TokenDataset>& shards) {
  const std::string& folder = on.folder;
  const std::filesystem::path &given = on.data, data = given.empty() ? run.data : given;
  if (given.empty() && !std::filesystem::exists(data))
    throw MissingInput(concat(data.string(),
                              ": does not exist; it contained the run's data; restore it, or give "
                              "its new location or other data: hybrid eval ",
                              shell_path(folder), " --data DATA"));
  if (run.config.masks() && may_be_examples(data))
    throw DataError(concat(data.string(), " contains examples, but ", folder,
                           " predicts masked tokens in windows of text (objective ",
                           run.config.objective,
                           "); give a "
                           "folder made by hybrid prepare"));
  if (may_be_examples(data)) return rows_of(run, data, on, host, stream);
  if (!given.empty() && read_data_info(data))
    check_same_tokenizer(run.tokenizer.get(), load_tokenizer(data).get(), data);
  shards.emplace(data, Split::kValidation, run.config.data_vocabulary());
  const auto windows = TokenWindows::for_evaluation(
      *shards, on.length == 0 ? run.config.data.sequence_length : on.length,
      run.config.masking(shards->vocabulary_size(), run.tokenizer.get()));
  return {OrderedBatches(windows, run.config.data.batch_size, host)};
}

/// Formats a number with six significant digits.
std::string text_of(double value) {
  std::ostringstream out;
  out << value;
  return out.str();
}

Findings pairs_score(const EvaluationResult& result, const std::string& objective) {
  const EvaluationResult::Preference& found = *result.preference;
  return {concat("loss ", text_of(result.loss), " over ", result.tokens,
                 " pairs; the chosen answer has the larger reward in ",
                 units::fixed(100 * found.accuracy, 1), " %, mean margin ", brief(found.margin())),
          {{"loss", result.loss},
           {"pairs", result.tokens},
           {"preference_accuracy", found.accuracy},
           {"reward_margin", found.margin()},
           {"reward_chosen", found.reward_chosen},
           {"reward_rejected", found.reward_rejected},
           {"objective", objective}}};
}

Findings words_score(const EvaluationResult& result, const WordErrors& words) {
  return {concat("loss ", text_of(result.loss), " over ", result.tokens,
                 " tokens; word error rate ", units::fixed(100 * words.rate(), 1), " % of ",
                 words.words, " words (", words.text(), ")"),
          {{"loss", result.loss},
           {"tokens", result.tokens},
           {"words", words.words},
           {"word_error_rate", words.rate()},
           {"substitutions", words.substitutions},
           {"deletions", words.deletions},
           {"insertions", words.insertions}}};
}

Findings text_score(const EvaluationResult& result, const HybridTrainerConfig& config) {
  return {concat("loss ", text_of(result.loss), ", perplexity ", text_of(result.perplexity),
                 " over ", result.tokens, config.masks() ? " masked tokens" : " tokens"),
          {{"loss", result.loss},
           {"perplexity", result.perplexity},
           {"tokens", result.tokens},
           {"objective", config.objective}}};
}

/// If the rows have scores, sets a loss of embeddings that reads them.
void take_loss_of_scores(HybridTrainerConfig& config, const std::vector<TextRow>& rows) {
  const bool has_scores = !rows.empty() && !rows.front().labels.empty();
  std::string& loss = config.texts.loss;
  if (loss == "auto" || has_scores == (loss == "contrastive"))
    loss = has_scores ? "cosent" : "contrastive";
}

Findings texts_score(const TrainedRun& run, const std::filesystem::path& data, const Measuring& on,
                     DType dtype, const Stream& stream) {
  HybridTrainerConfig config = run.config;
  const bool is_own = data == run.data;
  const RunData own =
      is_own ? data_of_run(RunPaths{on.folder}) : RunData{.now = std::time(nullptr)};
  if (!is_own) config.data.validation_fraction = 0;
  if (on.length > 0 || !is_own)
    config.data.sequence_length = on.length > 0 ? on.length : config.model.context;
  if (config.texts.loss == "balanced" && !is_own) config.texts.loss = "auto";
  const TextData read = read_text_data({.examples = data,
                                        .validation = own.validation,
                                        .tokenizer = run.tokenizer_folder,
                                        .now = own.now,
                                        .vocabulary = config.model.vocabulary,
                                        .context = config.model.context,
                                        .called = on.called,
                                        .measured = !is_own},
                                       config);
  for (const std::string& line : first_lines(read.refused)) on.report(line);
  if (!is_own)
    for (const std::string& note : read.notes) on.report(note);
  if (!is_own && config.objective == "embed") take_loss_of_scores(config, read.validation);
  set_text_loss(config, *run.network);
  if (on.length == 0 && !is_own)
    config.data.sequence_length = fitted_length(read.validation, run.config.data.sequence_length);
  const auto texts =
      std::make_shared<PackedTexts>(read.validation, text_packing(config, *run.tokenizer));
  const Stream host(make_host_pool(stream.device()));
  const EvaluationResult result =
      evaluate(run.model(), OrderedBatches(texts, config.evaluation_batch(), host), dtype, stream,
               {}, 0, config.evaluation_batch() / config.data.batch_size);
  const TextScore score =
      text_score(text_outputs(run.model(), *texts, config.data.batch_size, dtype, stream),
                 texts->rows(), config);
  boost::json::object json = score.json();
  json["loss"] = result.loss;
  json["objective"] = config.objective;
  return {concat("loss ", text_of(result.loss), ", ", score.text()), std::move(json)};
}

Findings language_score(const TrainedRun& run, const Measuring& on, DType dtype,
                        const Stream& stream) {
  if (on.data.empty() && run.data.empty())
    throw UsageError(concat(
        "hybrid eval: --data is missing: ", on.folder,
        std::filesystem::is_directory(on.folder) ? " is a Hugging Face folder" : " is a GGUF file",
        ", which does not name data"));
  if (on.length < 0 || on.length > run.config.model.context)
    throw UsageError(concat("hybrid eval: --sequence-length: got ", on.length, ", want 1 … ",
                            run.config.model.context, ", the model's context"));
  if (run.config.pools())
    return texts_score(run, on.data.empty() ? run.data : on.data, on, dtype, stream);
  std::optional<TokenDataset> shards;
  const MeasuredRows rows =
      batches_of(run, on, Stream(make_host_pool(stream.device())), stream, shards);
  const GenerationKeys keys = rows.clips.empty() ? GenerationKeys() : generation_keys_of(run);
  keys.require_honored();
  const EvaluationResult result =
      evaluate(run.model(), rows.batches, dtype, stream, {}, run.config.memory.segment_length);
  if (result.preference) return pairs_score(result, run.config.objective);
  if (rows.clips.empty()) return text_score(result, run.config);
  const SpeechTokens tokens = read_speech_tokens(*run.tokenizer, keys);
  return words_score(
      result, transcription_errors(run.model(), *run.tokenizer, tokens, rows.clips, dtype, stream));
}

Findings network_score(const TrainedRun& run, const Measuring& on, DType dtype,
                       const Stream& stream) {
  if (on.length != 0 || !on.control_tokens.empty())
    throw UsageError(
        concat("hybrid eval: ", on.length != 0 ? "--sequence-length" : "--control-tokens",
               " applies only to text, but models of family ", run.config.model.family,
               " do not read text; leave it out"));
  const NetworkScore found = score(run, on.data, dtype, stream);
  return {found.text("\n  "), found.json()};
}

Findings network_rows(const RowsRequest& requested, const HybridTrainerConfig& given) {
  if (requested.longest != RowsRequest::kDefaultLength || requested.objective != "next_token" ||
      requested.control_tokens != "tokens")
    throw UsageError(
        "hybrid rows: --length, --objective and --control-tokens apply only to text, but this "
        "model does not read text; leave them out");
  const auto data = opened_data({.config = given,
                                 .data = requested.data,
                                 .model = requested.model.path(),
                                 .is_trained = requested.is_of_run()});
  const HybridTrainerConfig config = data->completed(given);
  const DataFacts facts =
      requested.shown ? data->example(*requested.shown, config) : data->contents(config);
  Findings found;
  std::size_t widest = 0;
  for (const auto& [name, value] : facts) widest = std::max(widest, name.size());
  for (const auto& [name, value] : facts) {
    found.text += concat(found.text.empty() ? "" : "\n", name,
                         std::string(widest + 2 - name.size(), ' '), value);
    found.json[name] = value;
  }
  if (requested.shown) return found;
  for (const std::string& note : data->notes()) requested.report(note);
  return {concat(data->description(), facts.empty() ? "" : "\n", found.text),
          {{"data", data->description()},
           {"contents", std::move(found.json)},
           {"notes", boost::json::value_from(data->notes())}}};
}

}  // namespace

const TaskKind& task_kind(const ModelConfig& model, const ModelRegistry& registry) {
  static constexpr TaskKind language{.unit = "tokens",
                                     .in_sequences = true,
                                     .has_parts = false,
                                     .task = language_task,
                                     .score = language_score,
                                     .predict = predict_texts,
                                     .rows = language_rows};
  static constexpr TaskKind network{
      .unit = "examples",
      .in_sequences = false,
      .has_parts = true,
      .task = [](const auto& settings,
                 const auto& read) { return network_task(settings, network_data_kinds(), read); },
      .score = network_score,
      .predict = predict_examples,
      .rows = network_rows};
  return find_family(model.family, registry).is_language_model ? language : network;
}

}  // namespace hybrid_trainer
