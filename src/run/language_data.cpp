#include "src/run/language_data.h"

#include "hybrid_trainer/core/error.h"
#include "src/core/messages.h"
#include "src/data/tables/row_files.h"
#include "src/files/checksum.h"
#include "src/run/speech/clips.h"

namespace hybrid_trainer {

namespace {

/// Throws DataError if a start token is missing or a token is not in the model's vocabulary.
void check_keys(const ModelConfig& model, const GenerationKeys& keys) {
  const std::string file = keys.file.empty() ? "the model's folder" : keys.file.string();
  if (!keys.start)
    throw DataError(concat(file, ": generation_config.json and config.json do not contain ",
                           "decoder_start_token_id, the decoder's first token; add the model's "
                           "value, for example 2 for facebook/bart-base"));
  for (const auto& id : {keys.start, keys.rules.first, keys.rules.last})
    if (id && *id >= model.vocabulary)
      throw DataError(concat(file, ": the configuration names the token ", *id,
                             ", but the model's vocabulary has ", model.vocabulary));
}

constexpr std::uint64_t kHoldoutKey = 0x76616c6964;
void refuse_preferences(const ExampleRows& read, bool measured) {
  if (read.pairs.empty()) return;
  const ExampleRow& first = read.pairs.front().chosen;
  const std::string& columns = read.pairs.front().chosen_columns;
  throw DataError(concat(read.place(first.file, first.line, true),
                         " is a preference pair (\"chosen\" and \"rejected\"), as are ",
                         read.pairs.size(), " of ", read.pairs.size() + read.rows.size(), " rows; ",
                         measured ? "evaluate a run with objective dpo or orpo on them"
                                  : "train on them with --objective dpo",
                         columns.empty() ? ""
                         : measured      ? ", or evaluate only the chosen answers with "
                                         : ", or train on only the chosen answers with ",
                         columns.empty() ? "" : "--columns " + columns));
}

/// Returns the rows in `read` and adds its other contents to `data`. `name` is the name of the file
/// in messages.
std::vector<ExampleRow> taken_rows(ExampleRows read, const std::string& name, bool measured,
                                   ExampleData& data) {
  refuse_preferences(read, measured);
  for (const auto& [line, reason, file] : read.refused)
    data.refused.push_back(concat(read.place(file, line, true), " is refused: ", reason));
  for (const std::string& note : read.notes()) data.notes.push_back(concat(name, ": ", note));
  if (const std::string problem = read.mostly_rejected_warning(); !problem.empty())
    throw DataError(concat(name, ": ", problem));
  data.rows += std::ssize(read.rows);
  if (data.form.empty()) data.form = read.form();
  for (const RowFile& file : read.files) data.checksum += checksum_of_file(file.path);
  return std::move(read.rows);
}

}  // namespace

/// Returns the settings with which rows become encoder sources and decoder targets. Returns nullopt
/// for a model without an encoder of tokens. Throws DataError if the keys name no start token.
static std::optional<SourceFormat> source_format_of(const ModelConfig& model,
                                                    const GenerationKeys& keys) {
  if (!model.encoder.reads_tokens()) return {};
  check_keys(model, keys);
  return SourceFormat{.start = *keys.start, .longest = model.encoder.source_places()};
}

Seq2SeqSettings seq2seq_settings_of(const ModelConfig& model, const GenerationKeys& keys) {
  check_keys(model, keys);
  Seq2SeqSettings writing{.start = *keys.start,
                          .beams = keys.beams,
                          .search = BeamSettings{.end_tokens = keys.end_tokens,
                                                 .length_penalty = keys.length_penalty,
                                                 .end = keys.search_end},
                          .rules = keys.rules};
  writing.rules.end_tokens = keys.end_tokens;
  writing.set_longest(keys.longest(1, model.context));
  return writing;
}

void ExampleFiles::set_encoder(const ModelConfig& model, const std::vector<ModelFolder>& folders) {
  max_clip_seconds = hybrid_trainer::max_clip_seconds(model);
  if (max_clip_seconds == 0 && !model.encoder.reads_tokens()) return;
  generation = read_generation_keys(folders);
  source = source_format_of(model, generation);
}

RowSplit first_split(const std::filesystem::path& path, std::initializer_list<RowSplit> splits) {
  for (const RowSplit split : splits)
    if (!row_files(path, split).empty()) return split;
  return RowSplit::kTrain;
}

bool may_be_examples(const std::filesystem::path& path) {
  return std::filesystem::is_regular_file(path) || is_folder_of_rows(path);
}

ExampleData read_example_data(const ExampleFiles& files, const DataConfig& config) {
  const Tokenizer& tokenizer = *files.tokenizer.tokenizer();
  if (files.vocabulary > 0 && tokenizer.min_table_rows() > files.vocabulary) {
    throw DataError(concat(files.tokenizer.string(), ": the tokenizer has ",
                           tokenizer.vocabulary_size(),
                           " tokens, but the model's embedding table has ", files.vocabulary,
                           "; give the tokenizer that the model was trained with"));
  }
  ExampleFormat format{.tokenizer = tokenizer,
                       .chat = files.tokenizer.chat(),
                       .longest = config.sequence_length + 1,
                       .now = files.now,
                       .vocabulary = files.vocabulary,
                       .context = files.context,
                       .control = control_text_of(config.control_tokens),
                       .columns = ColumnNames(config.columns),
                       .called = files.called,
                       .pairs = files.pairs,
                       .source = files.source};
  ExampleData data;
  const auto read = [&](const std::filesystem::path& path, RowSplit split) {
    const std::string name = files.called.empty() ? path.string() : files.called;
    format.split = split;
    if (files.max_clip_seconds == 0)
      return taken_rows(read_example_rows(path, format), name, files.measured, data);
    const SpeechTokens tokens = read_speech_tokens(tokenizer, files.generation);
    return taken_rows(read_clip_examples(path, format, files.max_clip_seconds, tokens), name,
                      files.measured, data);
  };
  const RowSplit split = files.measured
                             ? first_split(files.examples, {RowSplit::kTest, RowSplit::kValidation})
                             : RowSplit::kTrain;
  std::vector<ExampleRow> rows = read(files.examples, split);
  const bool has_validation = !files.measured && files.validation.empty() &&
                              !row_files(files.examples, RowSplit::kValidation).empty();
  const std::string others = has_validation
                                 ? unread_files_note(files.examples, {split, RowSplit::kValidation})
                                 : unread_files_note(files.examples, {split});
  if (!others.empty()) data.notes.push_back(concat(files.examples.string(), ": ", others));
  if (!files.validation.empty() || has_validation) {
    data.validation =
        has_validation
            ? read(files.examples, RowSplit::kValidation)
            : read(files.validation,
                   first_split(files.validation, {RowSplit::kValidation, RowSplit::kTest}));
    data.train = std::move(rows);
    return data;
  }
  auto parts = divided(std::move(rows), config.validation_fraction, kHoldoutKey);
  data.train = std::move(parts.train);
  data.validation = std::move(parts.validation);
  data.validates_on_training_rows = parts.are_same;
  return data;
}

std::vector<std::string> first_lines(std::vector<std::string> lines) {
  constexpr std::size_t kShown = 5;
  if (lines.size() > kShown) lines.resize(kShown);
  return lines;
}

std::vector<std::string> refused_row_notes(const ExampleData& data, const ExampleFiles& files) {
  std::vector<std::string> lines = first_lines(data.refused);
  if (lines.size() == data.refused.size()) return lines;
  lines.push_back(concat(
      data.refused.size() - lines.size(), " more rows are refused; list all with: hybrid rows ",
      shell_path(files.examples), " --json --model ", shell_path(files.tokenizer.path()),
      files.pairs ? " --objective dpo" : ""));
  return lines;
}

std::vector<std::string> cut_row_notes(std::initializer_list<const std::vector<ExampleRow>*> rows,
                                       const ExampleFiles& files, std::int64_t length,
                                       const std::string& hint) {
  std::vector<std::string> notes{
      cut_rows_note(rows, length, length < files.context ? hint : kContextIsFull),
      files.source ? cut_sources_note(rows, files.source->longest) : ""};
  std::erase(notes, "");
  return notes;
}

PackedRows::Settings packing_of(const DataConfig& config, const Tokenizer& tokenizer,
                                std::int64_t source_length) {
  return {.sequence_length = config.sequence_length,
          .packs = config.layout != "apart" && source_length == 0,
          .padding = tokenizer.end_of_text().value_or(0),
          .source_length = source_length};
}

}  // namespace hybrid_trainer
