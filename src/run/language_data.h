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

/// How a model with an encoder of tokens writes: at most as many tokens as its decoder's context.
/// Throws DataError if the keys name no start token.
SourceWriting source_writing_of(const ModelConfig& model, const GenerationKeys& keys);

/// Where a run's examples come from.
struct ExampleFiles {
  std::filesystem::path examples;      // a file, or a folder of files
  std::filesystem::path validation{};  // to be measured on; empty: some of `examples` are
  ModelFolder tokenizer;               // of tokenizer and chat template
  std::time_t now = 0;                 // what the template takes for the time
  std::int64_t vocabulary = 0;         // of the model, where it is known
  std::int64_t context = 0;            // likewise
  std::string called{};   // the name of `examples` in messages, if that is not its path
  bool pairs = false;     // they hold pairs of answers
  bool measured = false;  // a model is measured on them: of a folder with splits on those of a test
  /// Seconds of a clip that the model hears at once: the examples are clips. 0: it reads text alone.
  double heard_seconds = 0;
  /// The model has an encoder that reads tokens.
  std::optional<SourceFormat> source{};
  GenerationKeys generation{};  // of a model with an encoder

  /// Sets the members that depend on the model's encoder, if it has one. `folders`: see
  /// read_generation_keys, whose errors it throws.
  void set_encoder(const ModelConfig& model, const std::vector<ModelFolder>& folders);
};

/// Examples as a run takes them.
struct ExampleData {
  std::vector<ExampleRow> train, validation;
  bool validates_on_training_rows = false;  // both are the same
  std::int64_t rows = 0;                    // of all files
  std::vector<std::string> refused;         // "line 3 of FILE is refused: why"
  std::vector<std::string> notes;           // data that training does not use
  std::string form;                         // of `examples`, see ExampleRows::form
  std::string checksum;                     // of the files
};

/// Examples with the files that they were read from.
struct ReadExamples {
  ExampleFiles files;
  ExampleData data;
};

/// Reads the examples of a run whose model is `model`, with the tokenizer of the run, the adapter or the
/// model. Collective. Throws UsageError without a tokenizer, and as read_example_data.
ReadExamples read_examples(const TrainingRunSettings& settings,
                           const std::optional<ModelFolder>& model);

class NetworkData;

/// Inputs of a run that a command has read, for the run's task, which does not read them again.
struct ReadInputs {
  ModelFolder model{};                             // that the run begins with, or none
  std::shared_ptr<const ReadExamples> examples{};  // null: not read
  std::shared_ptr<const NetworkData> network{};    // likewise
};

/// Whether a path is a file, or a folder that has files of rows: examples, as opposed to the tokens
/// that `hybrid prepare` makes.
bool may_be_examples(const std::filesystem::path& path);

/// Reads the examples for sequences of config.sequence_length. Without a file for validation it takes the
/// validation files of a folder of examples (row_files); without these it holds back
/// validation_fraction of the rows, at least one, by a draw that depends on their number alone; a
/// single row, or a fraction of 0, leaves all rows in both. Throws as read_example_rows, and
/// DataError where every line of a file is refused, or some are pairs of a preference.
ExampleData read_example_data(const ExampleFiles& files, const DataConfig& config);

/// What the reference model of a run with objective dpo gives for its validation rows, from the run's
/// folder. Throws DataError where it has none for these rows.
std::shared_ptr<const PairReferences> validation_references(const RunPaths& run,
                                                            const ExampleData& data);

/// What the model that a run with objective dpo began with gives for other pairs, of which a pass
/// computes at most `at_once` sequences. Throws MissingInput, DataError if that model is gone or another
/// one.
std::shared_ptr<const PairReferences> references_of_base(const RunPaths& run,
                                                         const PackedRows& rows,
                                                         std::int64_t at_once,
                                                         const Stream& stream);

/// The first refused lines, and which command names the others.
std::vector<std::string> told_of_refused(const ExampleData& data, const ExampleFiles& files);

/// Rows and sources that lose tokens, if there are some. `length`: of a sequence; `way_out`: what makes
/// it longer, as far as the model's context.
std::vector<std::string> told_of_cut_rows(
    std::initializer_list<const std::vector<ExampleRow>*> rows, const ExampleFiles& files,
    std::int64_t length, const std::string& way_out);

/// How rows are laid into sequences. `source_length`: of rows with sources.
PackedRows::Settings packing_of(const DataConfig& config, const Tokenizer& tokenizer,
                                std::int64_t source_length = 0);

}  // namespace hybrid_trainer
