#include <algorithm>
#include <cctype>
#include <numeric>

#include "hybrid_trainer/config/phase_precision.h"
#include "hybrid_trainer/core/error.h"
#include "hybrid_trainer/data/token_dataset.h"
#include "src/core/clock.h"
#include "src/core/messages.h"
#include "src/data/examples/example_rows.h"
#include "src/data/examples/held_out_prompts.h"
#include "src/data/tables/row_files.h"
#include "src/files/checksum.h"
#include "src/generation/text_batch.h"
#include "src/model_files/hugging_face/generation_config.h"
#include "src/run/language_data.h"
#include "src/run/language_task.h"
#include "src/run/pair_reference.h"
#include "src/run/run_ranks.h"
#include "src/run/run_settings.h"
#include "src/run/speech/clips.h"
#include "src/run/speech/transcription.h"

namespace hybrid_trainer {

namespace {

/// Returns a checksum of all tokens, or of an evenly spaced sample of 16 million, which suffices
/// because different data differ at nearly every token.
std::string sampled_checksum(const TokenDataset& data) {
  constexpr std::int64_t kPiece = 4096, kMaxPieces = 4096;
  const std::int64_t pieces = (data.tokens() + kPiece - 1) / kPiece;
  const std::int64_t every = std::max<std::int64_t>(1, pieces / kMaxPieces);
  Checksum checksum;
  std::vector<std::int32_t> ids;
  for (std::int64_t at = 0; at < data.tokens(); at += every * kPiece) {
    ids.resize(static_cast<std::size_t>(std::min(kPiece, data.tokens() - at)));
    data.read(at, ids);
    checksum.add(ids.data(), ids.size() * sizeof(std::int32_t));
  }
  return checksum.text();
}

class Pretraining final : public LanguageTask {
 public:
  Pretraining(const TrainingRunSettings& settings, const ModelFolder& model)
      : LanguageTask(settings, model),
        folder_(settings.data),
        train_(folder_, Split::kTrain, known_vocabulary(settings)),
        validation_(folder_, Split::kValidation, known_vocabulary(settings)),
        checksum_(sampled_checksum(train_) + sampled_checksum(validation_)) {}

  DatasetPart training(const HybridTrainerConfig& config) const override {
    return std::make_shared<TokenWindows>(
        train_, TokenWindows::Settings{.sequence_length = config.data.sequence_length,
                                       .shifts = config.data.shuffle && !config.data.carry_state,
                                       .seed = static_cast<std::uint64_t>(config.training.seed),
                                       .masks = masking(config, train_)});
  }
  DatasetPart validation(const HybridTrainerConfig& config) const override {
    return TokenWindows::for_evaluation(validation_, config.data.sequence_length,
                                        masking(config, validation_));
  }

 private:
  std::optional<MaskSettings> masking(const HybridTrainerConfig& config,
                                      const TokenDataset& tokens) const {
    const auto tokenizer = config.masks() ? tokenizer_for(config.data_vocabulary()) : nullptr;
    return config.masking(tokens.vocabulary_size(), tokenizer.get());
  }
  void check_data(const HybridTrainerConfig& config) const override {
    if (resolved_model_config(config.model, *simulated_by()).encoder.layers == 0) return;
    throw ConfigError({concat("model.family: got ", config.model.family,
                              ", which needs a source for each text, but prepared data has no "
                              "sources; train it on pairs of texts with `hybrid finetune`")});
  }
  std::optional<std::int64_t> vocabulary_size() const override { return train_.vocabulary_size(); }
  RunData described() const override {
    return {.folder = folder_, .train_tokens = train_.tokens(), .checksum = checksum_};
  }
  std::shared_ptr<const Tokenizer> tokenizer_for(std::int64_t vocabulary) const override {
    return train_.info() ? tokenizer_of_data(folder_, vocabulary) : nullptr;
  }
  /// Returns the model's vocabulary size for data without metadata. Returns nullopt for data with
  /// metadata, because LanguageTask compares the sizes later.
  static std::optional<std::int64_t> known_vocabulary(const TrainingRunSettings& settings) {
    if (settings.config.model.vocabulary == 0 || read_data_info(settings.data)) return {};
    return settings.config.data_vocabulary();
  }
  std::filesystem::path folder_;
  TokenDataset train_, validation_;
  std::string checksum_;
};

/// Returns the tokenizer's folder: the run's own if it resumes with a copy, otherwise the adapter's
/// or the model's. Throws UsageError if there is no tokenizer.
ModelFolder tokenizer_of_examples(const TrainingRunSettings& settings,
                                  const std::optional<ModelFolder>& model) {
  const std::filesystem::path of_run = settings.run / "tokenizer";
  if (resumes(settings) && contains_tokenizer(of_run)) return of_run;
  if (model && settings.adapter) return adapter_tokenizer(*settings.adapter, *model);
  if (model) return *model;
  throw UsageError(concat(settings.data.string(),
                          " is a file of examples, which `hybrid train` does not support; use "
                          "`hybrid finetune --model HF_DIR`"));
}

constexpr std::int64_t kAnswerTokens = 48;

class FineTuning final : public LanguageTask {
 public:
  FineTuning(const TrainingRunSettings& settings, const ReadInputs& read)
      : LanguageTask(settings, read.model),
        read_(read.examples
                  ? read.examples
                  : std::make_shared<ReadExamples>(read_examples(settings, model_folder()))),
        tokenizer_(files_.tokenizer.tokenizer()),
        adapter_(settings.adapter),
        end_tokens_(end_tokens_of(data_.train, *tokenizer_)),
        sequence_length_(settings.config.data.sequence_length) {}

  DatasetPart training(const HybridTrainerConfig& config) const override {
    return examples(config, data_.train, train_references_);
  }
  DatasetPart validation(const HybridTrainerConfig& config) const override {
    return examples(config, data_.validation, validation_references_);
  }

 private:
  std::vector<ComparedAnswer> answers(LossModel& model, const Stream& stream) const override {
    const std::vector<std::string> after = answers_of(model, stream);
    return after.empty() ? std::vector<ComparedAnswer>() : compared(before_, after);
  }
  std::optional<std::int64_t> vocabulary_size() const override {
    return tokenizer_->min_table_rows();
  }
  RunData described() const override {
    const auto add = [](std::int64_t sum, const ExampleRow& row) {
      return sum + std::ssize(row.tokens);
    };
    return {.folder = files_.examples,
            .train_tokens =
                std::accumulate(data_.train.begin(), data_.train.end(), std::int64_t{0}, add),
            .checksum = data_.checksum,
            .tokenizer = files_.tokenizer,
            .validation = files_.validation,
            .now = files_.now,
            .end_tokens = end_tokens_};
  }
  /// Loads dpo's reference log-likelihoods, or computes them with the initial weights.
  void prepare_data(const RunStart& start) override {
    if (start.config.objective != "dpo") return;
    const std::string file = reference_file(start.run);
    const ReferenceKey key = reference_key(data_, identity_of_start(start));
    std::optional<PairReferences> known = read_reference(file, key);
    if (!known && start.resumes)
      throw DataError(
          concat(file,
                 ": does not exist or belongs to other pairs, but the run cannot continue without "
                 "the initial model's results in it; restore the file, or start a new run"));
    if (!known) known = computed_reference(start, file, key);
    const auto middle = known->begin() + std::ssize(data_.train);
    train_references_->assign(known->begin(), middle);
    validation_references_->assign(middle, known->end());
  }
  /// Returns a text that identifies the initial weights and their precision. Returns "" if the run
  /// resumes and its settings do not name the initial weights.
  std::string identity_of_start(const RunStart& start) const {
    if (!model_folder()) return "";
    return concat(hybrid_trainer::identity_of_start(*model_folder(), adapter_.value_or("")), " ",
                  name_of(dtype_of_training(start)));
  }
  /// Computes the answers before training, or reads them from the folder of a resumed run.
  void answer_before(const RunStart& start) override {
    const HybridTrainerConfig& config = start.config;
    prompts_ = is_speech()
                   ? clip_prompts(config.observability.answers)
                   : held_out_prompts(data_.validation, *tokenizer_, config.observability.answers,
                                      config.data.sequence_length);
    if (prompts_.empty()) return;
    if (start.resumes) {
      const std::vector<ComparedAnswer> known = read_answers(start.run.answers());
      for (std::size_t i = 0; i < std::min(known.size(), prompts_.size()); ++i) {
        const bool is_same = known[i].prompt == prompts_[i].text && known[i].before;
        before_.push_back(is_same ? known[i].before : std::nullopt);
      }
      return;
    }
    if (!RunRanks(start.ranks).lead()) return;
    start.report(
        concat("generating answers to ", prompts_.size(), " prompts with the initial model"));
    for (std::string& answer : answers_of(start.model, start.stream))
      before_.emplace_back(std::move(answer));
    write_answers(start.run.answers(), compared(before_, {}));
    start.stream.synchronize();
    start.stream.pool()->trim();
  }
  /// Returns each prompt with its answers before and after training. Either list of answers may be
  /// shorter than the prompts if the run does not know all of them.
  std::vector<ComparedAnswer> compared(const std::vector<std::optional<std::string>>& before,
                                       const std::vector<std::string>& after) const {
    std::vector<ComparedAnswer> answers;
    for (std::size_t i = 0; i < std::max(before.size(), after.size()); ++i) {
      answers.push_back({prompts_[i].text, prompts_[i].wanted,
                         i < before.size() ? before[i] : std::nullopt,
                         i < after.size() ? after[i] : "", !data_.validates_on_training_rows});
    }
    return answers;
  }
  bool is_speech() const { return files_.max_clip_seconds > 0; }
  SpeechTokens speech_tokens() const { return read_speech_tokens(*tokenizer_, files_.generation); }
  /// Returns prompts for at most `most` validation clips, with the clips' names as text.
  std::vector<HeldOutPrompt> clip_prompts(std::int64_t most) const {
    std::vector<HeldOutPrompt> prompts;
    const SpeechTokens tokens = speech_tokens();
    for (const ExampleRow& clip : data_.validation) {
      if (std::ssize(prompts) == most) break;
      prompts.push_back({.tokens = {},
                         .text = clip.clip->name,
                         .wanted = reference_transcript(clip, *tokenizer_, tokens)});
    }
    return prompts;
  }
  std::vector<std::string> answers_of(LossModel& loss_model, const Stream& stream) const {
    auto& model = static_cast<LanguageModel&>(loss_model);
    return generate_in_dtype(model, dtype_of_text(), stream, [&] {
      return is_speech()     ? transcribe_clips(model, stream)
             : files_.source ? generate_from_sources(model, stream)
                             : generate_from_prompts(model, stream);
    });
  }
  std::vector<std::string> transcribe_clips(LanguageModel& model, const Stream& stream) const {
    const std::vector<ExampleRow> clips(data_.validation.begin(),
                                        data_.validation.begin() + std::ssize(prompts_));
    return transcribe_texts(model, *tokenizer_, speech_tokens(), clips, dtype_of_text(), stream, 1);
  }
  std::vector<std::string> generate_from_sources(LanguageModel& model, const Stream& stream) const {
    Seq2SeqSettings writing = seq2seq_settings_of(model.config(), files_.generation);
    writing.beams = 1;
    writing.rules.words = tokenizer_->vocabulary_size();
    writing.set_longest(std::min(writing.search.longest, kAnswerTokens + 1));
    Seq2SeqGenerator writer(model, writing, dtype_of_text(), stream);
    std::vector<std::string> texts;
    for (const HeldOutPrompt& prompt : prompts_)
      texts.push_back(readable_text(*tokenizer_, writer.write(prompt.tokens)));
    return texts;
  }
  std::vector<std::string> generate_from_prompts(LanguageModel& model, const Stream& stream) const {
    GenerationSettings generation{.tokens = kAnswerTokens,
                                  .end_tokens = end_token_ids_in(files_.tokenizer)};
    generation.end_tokens.insert(generation.end_tokens.end(), end_tokens_.begin(),
                                 end_tokens_.end());
    generation.sampling.temperature = 0;
    std::vector<std::string> texts;
    CachedDecoder decoder(model, dtype_of_text(), stream);
    for (const HeldOutPrompt& prompt : prompts_) {
      std::string& text = texts.emplace_back();
      continue_text(decoder, nullptr, *tokenizer_, prompt.tokens, generation,
                    [&](std::string_view piece) { text += piece; });
    }
    return texts;
  }
  /// Returns the precision of training, or f32 if the precisions of Warmup and Full differ.
  /// Evaluations always use f32.
  static DType dtype_of_training(const RunStart& start) {
    const HybridTrainerConfig& config = start.config;
    const PhasePrecision precision(config.mixed_precision, config.model.width,
                                   start.stream.device());
    const DType full = precision.of(Phase::kFull).dtype;
    return precision.of(Phase::kWarmup).dtype == full ? full : DType::kF32;
  }
  PairReferences computed_reference(const RunStart& start, const std::string& file,
                                    const ReferenceKey& key) const {
    const RunRanks ranks(start.ranks);
    const auto began = Clock::now();
    start.report(
        concat("reference: computing the initial model's likelihoods for ", key.pairs, " pairs"));
    PairReferences all;
    for (const auto* rows : {&data_.train, &data_.validation}) {
      const PackedRows packed(*rows, packing(start.config, {}));
      const DType dtype = rows == &data_.train ? dtype_of_training(start) : DType::kF32;
      const PairReferences some = compute_reference(
          start.model, packed, start.config.data.batch_size, dtype, ranks, start.stream);
      all.insert(all.end(), some.begin(), some.end());
    }
    if (ranks.lead()) write_reference(file, key, all);
    start.stream.synchronize();
    start.stream.pool()->trim();  // training uses other block sizes
    start.report(concat("reference: computed in ", units::duration(seconds_since(began)),
                        ", stored in reference.bin; the reference model is no longer in memory"));
    return all;
  }
  void check_data(const HybridTrainerConfig& config) const override {
    std::vector<std::string> problems;
    if (config.training.cuda_graphs)
      problems.emplace_back(
          "training.cuda_graphs: got true, want false: with rows of examples, shapes change from "
          "step to step");
    if (!config.stages.empty())
      problems.emplace_back("stages: not supported with rows of examples; leave them out");
    if (config.prefers() && files_.source)
      problems.push_back(concat("objective: got ", config.objective,
                                ", which does not support models with an encoder such as ",
                                config.model.family, "; want next_token"));
    if (!problems.empty()) throw ConfigError(std::move(problems));
  }
  std::shared_ptr<const Tokenizer> tokenizer_for(std::int64_t vocabulary) const override {
    return tokenizer_of_data(files_.tokenizer, vocabulary);
  }
  std::vector<std::string> notes_of_data() const override {
    std::vector<std::string> notes = refused_row_notes(data_, files_);
    notes.insert(notes.begin(), concat("the data has ", data_.rows, " rows: ", data_.train.size(),
                                       " for training, ", data_.validation.size(),
                                       " for validation (", data_.form, ")",
                                       data_.validates_on_training_rows
                                           ? "; validation uses the training rows, so its loss "
                                             "does not show how well the model generalizes"
                                           : ""));
    notes.insert(notes.end(), data_.notes.begin(), data_.notes.end());
    const auto known = end_token_ids_in(files_.tokenizer);
    for (const std::int32_t id : end_tokens_) {
      if (std::ranges::find(known, id) != known.end()) continue;
      notes.push_back(
          concat("answers end with ", tokenizer_->token_bytes(id),
                 ", but this token is not an eos_token_id in the model's generation_config.json or "
                 "config.json; the run and its exports add it as an end token"));
    }
    for (const std::string& problem : files_.generation.problems)
      notes.push_back(concat("generation ignores unsupported settings in the model's ",
                             files_.generation.file.filename().string(), ": ", problem));
    const std::vector<ExampleRow> none;
    for (std::string& cut :
         cut_row_notes({&data_.train, data_.validates_on_training_rows ? &none : &data_.validation},
                       files_, sequence_length_, "raise data.sequence_length to keep them"))
      notes.push_back(std::move(cut));
    return notes;
  }
  PackedRows::Settings packing(const HybridTrainerConfig& config,
                               std::shared_ptr<const PairReferences> references) const {
    PackedRows::Settings settings =
        packing_of(config.data, *tokenizer_,
                   config.model.encoder.reads_tokens() ? config.model.encoder.source_places() : 0);
    if (config.objective == "dpo") settings.references = std::move(references);
    return settings;
  }
  std::shared_ptr<const Dataset> examples(const HybridTrainerConfig& config,
                                          const std::vector<ExampleRow>& rows,
                                          std::shared_ptr<const PairReferences> references) const {
    return dataset_of_rows(rows, packing(config, std::move(references)), config);
  }
  std::shared_ptr<const ReadExamples> read_;
  const ExampleFiles& files_ = read_->files;
  const ExampleData& data_ = read_->data;
  std::shared_ptr<const Tokenizer> tokenizer_;
  std::optional<std::filesystem::path> adapter_;
  // Reference log-likelihoods of the pairs of answers, filled before the first batch is read.
  const std::shared_ptr<PairReferences> train_references_ = std::make_shared<PairReferences>(),
                                        validation_references_ = std::make_shared<PairReferences>();
  std::vector<HeldOutPrompt> prompts_;
  std::vector<std::optional<std::string>> before_;  // answers before training
  std::vector<std::int32_t> end_tokens_;
  std::int64_t sequence_length_;
};

}  // namespace

/// Returns whether a file begins like JSON or Parquet, or has the name of a row format.
bool may_hold_examples(const std::filesystem::path& path) {
  if (has_name_of_rows(path)) return true;
  std::ifstream in(path, std::ios::binary);
  char first = 0;
  while (in.get(first) && std::isspace(static_cast<unsigned char>(first)) != 0) continue;
  return first == '{' || first == '[';
}

ExampleFiles example_files(const TrainingRunSettings& settings,
                           const std::optional<ModelFolder>& model) {
  ExampleFiles files{.examples = settings.data,
                     .validation = settings.validation,
                     .tokenizer = tokenizer_of_examples(settings, model),
                     .now = RunRanks(settings.ranks).value_of_first(std::time(nullptr)),
                     .vocabulary = settings.config.model.vocabulary,
                     .context = settings.config.model.context,
                     .pairs = settings.config.prefers()};
  files.set_encoder(settings.config.model, {files.tokenizer});
  if (!resumes(settings)) return files;
  const RunData before = data_of_run(RunPaths{settings.run.string()});
  files.now = before.now;
  if (files.validation.empty()) files.validation = before.validation;
  return files;
}

ReadExamples read_examples(const TrainingRunSettings& settings,
                           const std::optional<ModelFolder>& model) {
  ReadExamples read{example_files(settings, model), {}};
  read.data = read_example_data(read.files, settings.config.data);
  return read;
}

std::unique_ptr<Task> language_task(const TrainingRunSettings& settings) {
  return language_task(settings, {});
}

std::unique_ptr<Task> language_task(const TrainingRunSettings& given, const ReadInputs& read) {
  const TrainingRunSettings settings = with_base(given);
  const std::string data = settings.data.string();
  if (data.empty()) throw UsageError("--data is missing: give a folder made by `hybrid prepare`");
  const bool wants_rows = settings.config.data.is_rows();
  const bool is_file = std::filesystem::is_regular_file(settings.data);
  const bool are_rows = may_be_examples(settings.data);
  if (is_file && !wants_rows && !may_hold_examples(settings.data)) {
    const std::string prepared = shell_path(settings.data.stem().string() + "-data");
    throw ConfigError(
        {concat("--data: ", data, " is text, which must be tokenized first: run `hybrid prepare ",
                shell_path(data), " --output ", prepared, "`, then use --data ", prepared)});
  }
  if (wants_rows != are_rows && std::filesystem::exists(settings.data)) {
    throw ConfigError({concat(
        "data.layout: got ", settings.config.data.layout, ", but ", data,
        are_rows ? (is_file ? " is a file of examples" : " is a folder of examples")
                 : " is a folder",
        are_rows ? "; `hybrid finetune --model HF_DIR --data FILE` trains on it"
                 : " without .jsonl, .json, .csv or .parquet files; want windows, or examples")});
  }
  if (are_rows && settings.config.pools()) return text_training(settings, read);
  if (are_rows) return std::make_unique<FineTuning>(settings, read);
  if (wants_rows)
    throw MissingInput(
        concat(data, ": want a file of examples: one JSON object per line, CSV or parquet"));
  return std::make_unique<Pretraining>(settings, read.model);
}

}  // namespace hybrid_trainer
