#pragma once

#include <ctime>
#include <memory>

#include "hybrid_trainer/config/hybrid_trainer_config.h"
#include "hybrid_trainer/data/data_config.h"
#include "hybrid_trainer/files/run_directory.h"
#include "hybrid_trainer/models/model_config.h"
#include "src/data/examples/example_rows.h"
#include "src/data/examples/packed_rows.h"
#include "src/generation/beam_search.h"
#include "src/model_files/hugging_face/generation_config.h"

namespace hybrid_trainer {

struct TrainingRunSettings;

/// Returns the generation settings of a model with an encoder of tokens, limited to its decoder's
/// context. Throws DataError if the keys name no start token.
Seq2SeqSettings seq2seq_settings_of(const ModelConfig& model, const GenerationKeys& keys);

struct ExampleFiles {
  std::filesystem::path examples;      // file or folder of examples
  std::filesystem::path validation{};  // validation file; if empty, a part of `examples` is used
  ModelFolder tokenizer;               // folder with tokenizer and chat template
  std::time_t now = 0;                 // current time for the template
  std::int64_t vocabulary = 0;         // size of the model's vocabulary, 0 if unknown
  std::int64_t context = 0;            // maximum tokens of a sequence of the model, 0 if unknown
  std::string called{};                // name of `examples` in messages; empty for its path
  bool pairs = false;                  // whether the examples are preference pairs
  bool measured = false;  // for evaluation: whether to use the test split of a folder with splits
  /// Seconds of the longest audio clip that the model processes in one window; 0 for text only.
  double max_clip_seconds = 0;
  std::optional<SourceFormat> source{};
  GenerationKeys generation{};  // for a model with an encoder

  /// Sets the members that depend on the model's encoder, if it has one. `folders`: see
  /// read_generation_keys. Throws as read_generation_keys.
  void set_encoder(const ModelConfig& model, const std::vector<ModelFolder>& folders);
};

struct ExampleData {
  std::vector<ExampleRow> train, validation;
  bool validates_on_training_rows = false;  // whether validation and training rows are the same
  std::int64_t rows = 0;                    // number of rows in all files
  std::vector<std::string> refused;         // "line 3 of FILE is refused: why"
  std::vector<std::string> notes;           // parts of the data that training does not use
  std::string form;                         // format of `examples`, see ExampleRows::form
  std::string checksum;                     // checksum of the files
};

struct ReadExamples {
  ExampleFiles files;
  ExampleData data;
};

/// Reads the examples of example_files. Throws the errors of example_files and read_example_data.
ReadExamples read_examples(const TrainingRunSettings& settings,
                           const std::optional<ModelFolder>& model);

/// Returns the example files of a run. Chats of a resumed run keep the date of its start. Uses the
/// tokenizer of the run or, if it has none, of the adapter or of the model. Throws UsageError if
/// none of them has a tokenizer. Collective.
ExampleFiles example_files(const TrainingRunSettings& settings,
                           const std::optional<ModelFolder>& model);

class NetworkData;
struct TextData;

/// Inputs that a command has already read, so that the task does not read them again.
struct ReadInputs {
  ModelFolder model{};                             // initial model, if there is one
  std::shared_ptr<const ReadExamples> examples{};  // null: not read
  std::shared_ptr<const TextData> texts{};         // null: not read
  std::shared_ptr<const NetworkData> network{};    // null: not read
};

/// Returns the first of `splits` for which the folder has files, or the training split.
RowSplit first_split(const std::filesystem::path& path, std::initializer_list<RowSplit> splits);

/// Returns whether a path is a file or a folder of row files, and not a data folder of `hybrid
/// prepare`.
bool may_be_examples(const std::filesystem::path& path);

/// Reads the examples for sequences of config.sequence_length. Without a validation file, uses the
/// validation files of a folder of examples (row_files). If there are none, holds back
/// validation_fraction of the rows, at least one, in a random choice that depends only on their
/// number. If there is only one row, or the fraction is 0, all rows are both training and
/// validation rows. Throws like read_example_rows. Also throws DataError if every line of a file is
/// rejected or some rows are preference pairs.
ExampleData read_example_data(const ExampleFiles& files, const DataConfig& config);

/// Reads a dpo run's reference for the validation rows. Throws DataError if the run has none.
std::shared_ptr<const PairReferences> validation_references(const RunPaths& run,
                                                            const ExampleData& data);

/// Computes the reference of a dpo run for pairs that are not the run's own, using its initial
/// model. A pass has at most `at_once` sequences. Throws MissingInput if the initial model does not
/// exist, and DataError if it has changed.
std::shared_ptr<const PairReferences> references_of_base(const RunPaths& run,
                                                         const PackedRows& rows,
                                                         std::int64_t at_once,
                                                         const Stream& stream);

std::vector<std::string> first_lines(std::vector<std::string> lines);

/// Returns messages with the first rejected lines, and with the command that lists all of them.
std::vector<std::string> refused_row_notes(const ExampleData& data, const ExampleFiles& files);

/// Returns warnings about truncated rows and sources. `length` is the maximum number of tokens of a
/// sequence. `hint` is the setting that increases it.
std::vector<std::string> cut_row_notes(std::initializer_list<const std::vector<ExampleRow>*> rows,
                                       const ExampleFiles& files, std::int64_t length,
                                       const std::string& hint);

/// Returns the settings for packing rows. `source_length` is the maximum length of a source.
PackedRows::Settings packing_of(const DataConfig& config, const Tokenizer& tokenizer,
                                std::int64_t source_length = 0);

}  // namespace hybrid_trainer
