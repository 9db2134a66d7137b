#pragma once

#include "hybrid_trainer/config/hybrid_trainer_config.h"
#include "hybrid_trainer/data/tokenizer.h"
#include "hybrid_trainer/files/run_directory.h"
#include "hybrid_trainer/memory/memory_places.h"
#include "hybrid_trainer/models/model_family.h"
#include "src/files/checkpoint.h"
#include "src/model_files/hugging_face/generation_config.h"
#include "src/model_files/model_folder.h"

namespace hybrid_trainer {

/// What tells a Hugging Face folder from another one: a checksum of config.json, of what its tensors
/// are, and of samples of their bytes.
std::string identity_of_base(const ModelFolder& folder);
/// Identifies a PEFT adapter in the same way.
std::string identity_of_adapter(const std::filesystem::path& folder);
/// Remembers the one that holds the frozen weights of a run, and its identity. Throws IoError.
void write_run_base(const RunPaths& paths, const ModelFolder& folder);

/// The folder of the run's frozen weights, which may lie at `given` now; none where the run has
/// none. Throws MissingInput where it is gone, DataError where another model is there.
std::optional<ModelFolder> base_of_run(const RunPaths& paths,
                                       const std::optional<ModelFolder>& given = {});

/// "0.1.0".
std::string project_version();

/// Where a run's training data is, and how long it is.
struct RunData {
  std::filesystem::path folder{};  // or a file of examples
  std::int64_t train_tokens = 0;
  std::string checksum{};              // of the content
  ModelFolder tokenizer{};             // where its files are; empty: in the folder
  std::filesystem::path validation{};  // another file of examples, to be measured on
  ModelFolder base{};                  // the Hugging Face folder that the run began from, if any
  std::filesystem::path adapter{};     // the folder of PEFT that the run began from, if any
  std::int64_t now = 0;                // what a chat template took for the time, seconds
  std::string token_ids{};             // of the base, with those that the data teach to end with
  std::vector<std::int32_t> end_tokens{};  // that the data teach to end with, and the base has not
  std::string command{};                   // that began the run; empty: not known
};

/// Writes what makes a run's folder self-contained: a copy of the data's tokenizer in tokenizer/,
/// whose generation_config.json names each token that ends a text by the base or by the data,
/// data.json and, last, config.json. Throws IoError.
void write_run_files(const RunPaths& paths, const HybridTrainerConfig& config, const RunData& data);
/// Writes config.json alone, of a run that begins or goes on: it has no summary then. Throws IoError.
void write_run_config(const RunPaths& paths, const HybridTrainerConfig& config);

/// Reads the configuration that write_run_files wrote. Throw MissingInput where there is none,
/// ConfigError, DataError.
HybridTrainerConfig config_of_run(const RunPaths& paths);
RunData data_of_run(const RunPaths& paths);
/// Null where the data had no tokenizer.
std::unique_ptr<Tokenizer> tokenizer_of_run(const RunPaths& paths);
/// Throws DataError where both are there and differ: ids of `data` would mean other text.
void check_same_tokenizer(const Tokenizer* of_run, const Tokenizer* of_data,
                          const std::filesystem::path& data);

/// Why a run cannot go on with `here` in place of its own data, which may be the same file, changed; and
/// what to do. `tokens`: how many there are and were, or "".
std::string told_of_other_data(const std::filesystem::path& here, const std::filesystem::path& own,
                               const std::string& tokens);

/// How the run ended, as its summary.json says: "finished", "interrupted", "diverged" or "failed";
/// empty where there is none. Throws DataError.
std::string end_of_run(const RunPaths& paths);

/// A trained model as `eval`, `sample` and `export` use it.
struct TrainedRun {
  std::filesystem::path folder{};  // of the run, or of the model that is no run's
  HybridTrainerConfig config;
  std::int64_t step = 0;                       // of the checkpoint that the weights are from
  std::filesystem::path data;                  // where the run's data was
  std::shared_ptr<const Tokenizer> tokenizer;  // null where the data had none
  ModelFolder tokenizer_folder;                // where it lies, with chat template and end tokens
  std::shared_ptr<MemoryPlaces> places;        // where weights lie that are not on the device
  std::unique_ptr<Network> network;
  std::string token_ids;  // of special tokens, see src/model_files/hugging_face/generation_config.h
  std::vector<std::int32_t> end_tokens;  // of an adapter, which its base lacks
  ModelFolder base;                   // of the weights that adapters are trained beside, or empty
  ModelFolder origin;                 // the Hugging Face folder that all began with, or empty
  std::filesystem::path base_config;  // the config.json that all began with, or empty
  std::vector<std::string> warnings;  // damaged checkpoints that were skipped
  /// The network as the language model that it is. Throws UsageError where it is none; see
  /// as_language_model for `what`.
  LanguageModel& model(const std::string& what = "the command") const {
    return as_language_model(*network, config.model.family, what);
  }
};

/// The folder of tokenizer and chat template for an adapter: its own, if it has a tokenizer, else its
/// base's.
ModelFolder tokenizer_beside(const ModelFolder& adapter, const ModelFolder& base);

/// How the model's folder says that it writes: the run's or adapter's own file, else that of its base.
/// Throws DataError.
GenerationKeys generation_keys_of(const TrainedRun& run);

/// Which weights of a run are read.
struct RunWeights {
  /// The weights themselves, or their mean over the last updates (training.average_weights).
  enum Kind { kLast, kAverage };
  /// Which checkpoint: the newest, the one with the lowest validation loss (checkpoint.keep_best), or
  /// that of `step`.
  enum class Checkpoint { kNewest, kBest, kStep };
  RunWeights(Kind of_kind = kLast) : kind(of_kind) {}  // NOLINT: a kind alone is of the newest
  Kind kind;
  Checkpoint checkpoint = Checkpoint::kNewest;
  std::int64_t step = 0;
  bool is_average() const { return kind == kAverage; }
};

/// The weights of the newest intact checkpoint, or the one asked for; if it was taken in Predict, the
/// accepted ones from before the prediction. `stream` must outlive the model. `frozen_form` is instead
/// of the run's lora.base, and a run without adapters holds its weights by it, too. Throws
/// MissingInput if there is no run or no such checkpoint, or it holds no average, ConfigError,
/// DataError.
TrainedRun load_trained_run(const std::filesystem::path& run, const Stream& stream,
                            const ModelRegistry& registry = model_families(),
                            const RunWeights& weights = {},
                            const std::optional<std::string>& frozen_form = {});

/// A Hugging Face folder's model and tokenizer, its weights held in the form that lora.base names; the
/// matrices at `home`, one of placement_names(). Throws MissingInput, DataError, CannotCreate.
TrainedRun load_hugging_face_folder(const ModelFolder& folder, const std::string& form,
                                    const Stream& stream,
                                    const ModelRegistry& registry = model_families(),
                                    const std::string& home = "device");

/// A folder of PEFT over the Hugging Face folder `base`, or else the one that it names; that one's
/// tokenizer, unless the adapter has its own; weights as for load_hugging_face_folder. Throws
/// MissingInput, DataError.
TrainedRun load_adapter_folder(const std::filesystem::path& folder, const std::string& form,
                               const Stream& stream,
                               const ModelRegistry& registry = model_families(),
                               const ModelFolder& base = {});

/// Precision that the model is rounded to on export: what export.dtype says, and where that is
/// auto, bf16 of a base in bf16 and else f32. Throws MissingInput, DataError.
DType export_dtype(const TrainedRun& run);

}  // namespace hybrid_trainer
