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

/// Returns a checksum of a folder's config.json, tensor names, types and sizes, and byte samples.
std::string identity_of_base(const ModelFolder& folder);
/// Returns a text that identifies a PEFT adapter by samples of its files.
std::string identity_of_adapter(const std::filesystem::path& folder);
/// Records the folder of a run's frozen weights and its identity. Throws IoError.
void write_run_base(const RunPaths& paths, const ModelFolder& folder);

/// Returns the folder of the run's frozen weights: `given` or, if it is not set, the recorded path.
/// Returns nullopt if the run has no frozen weights. Throws MissingInput if the folder does not
/// exist, and DataError if it contains a different model.
std::optional<ModelFolder> base_of_run(const RunPaths& paths,
                                       const std::optional<ModelFolder>& given = {});

std::string project_version();

/// Source and size of a run's training data.
struct RunData {
  std::filesystem::path folder{};  // data folder, or a file of examples
  std::int64_t train_tokens = 0;
  std::string checksum{};              // checksum of the contents
  ModelFolder tokenizer{};             // folder of the tokenizer; empty if it is `folder`
  std::filesystem::path validation{};  // a separate validation file
  /// Hugging Face folder of the initial model, if there is one.
  ModelFolder base{};
  std::filesystem::path adapter{};         // folder of the initial PEFT adapter, if there is one
  std::int64_t now = 0;                    // time passed to the chat template, in seconds
  std::string token_ids{};                 // special token ids of the base, plus end_tokens
  std::vector<std::int32_t> end_tokens{};  // end tokens of the data that the base does not have
  std::string command{};                   // command that started the run; empty if unknown
};

/// Writes the files that make a run's folder self-contained: tokenizer/, with all end tokens in its
/// generation_config.json, then data.json and, last, config.json. Throws IoError.
void write_run_files(const RunPaths& paths, const HybridTrainerConfig& config, const RunData& data);
/// Writes config.json when a run starts or resumes, and removes the old summary. Throws IoError.
void write_run_config(const RunPaths& paths, const HybridTrainerConfig& config);

/// Read a file that write_run_files wrote. Throw MissingInput if it does not exist; also ConfigError
/// and DataError.
HybridTrainerConfig config_of_run(const RunPaths& paths);
RunData data_of_run(const RunPaths& paths);
std::unique_ptr<Tokenizer> tokenizer_of_run(const RunPaths& paths);
/// Throws DataError if both tokenizers exist and differ.
void check_same_tokenizer(const Tokenizer* of_run, const Tokenizer* of_data,
                          const std::filesystem::path& data);

/// Returns the reason why a run cannot resume with the data `here`, and a remedy. `own` is the path
/// of the run's data; it equals `here` if the contents have changed. `tokens` has the old and the
/// new number of tokens, or is "".
std::string other_data_message(const std::filesystem::path& here, const std::filesystem::path& own,
                               const std::string& tokens);

/// Returns the end of the run according to its summary.json: "finished", "interrupted", "diverged"
/// or "failed". Returns "" if there is no summary.json. Throws DataError.
std::string end_of_run(const RunPaths& paths);

struct TrainedRun {
  std::filesystem::path folder{};  // folder of the run, or of a model without a run
  HybridTrainerConfig config;
  std::int64_t step = 0;                       // step of the loaded checkpoint
  std::filesystem::path data;                  // path of the run's data
  std::shared_ptr<const Tokenizer> tokenizer;  // null if the data had none
  /// Folder with tokenizer, chat template and end tokens.
  ModelFolder tokenizer_folder;
  std::shared_ptr<MemoryPlaces> places;  // storage of weights that are not on the device
  std::unique_ptr<Network> network;
  std::string token_ids;  // special tokens, see src/model_files/hugging_face/generation_config.h
  std::vector<std::int32_t> end_tokens;  // end tokens of an adapter that its base does not have
  ModelFolder base;                      // folder of the frozen weights under adapters, or empty
  ModelFolder origin;                    // Hugging Face folder of the initial model, or empty
  ModelFolder sentence_folder;           // `origin`, or the adapter that has its own modules.json
  std::filesystem::path base_config;     // config.json of the initial model, or empty
  std::vector<std::string> warnings;     // warnings about damaged checkpoints that were skipped
  /// Throws UsageError if the network is not a language model. See as_language_model for `what`.
  LanguageModel& model(const std::string& what = "the command") const {
    return as_language_model(*network, config.model.family, what);
  }
};

/// Returns the folder with tokenizer and chat template: the adapter, or the base if it has none.
ModelFolder adapter_tokenizer(const ModelFolder& adapter, const ModelFolder& base);

/// Returns the folder with the pipeline of embeddings: the adapter, or the base if it has none.
ModelFolder sentence_folder_of(const ModelFolder& adapter, const ModelFolder& base);

/// Returns the generation settings of run or adapter, or else of the base. Throws DataError.
GenerationKeys generation_keys_of(const TrainedRun& run);

struct RunWeights {
  /// The weights themselves, or their average over the last updates (training.average_weights).
  enum Kind { kLast, kAverage };
  /// The newest checkpoint, the best one (checkpoint.keep_best), or the one of `step`.
  enum class Checkpoint { kNewest, kBest, kStep };
  RunWeights(Kind of_kind = kLast) : kind(of_kind) {}  // NOLINT: implicit; newest checkpoint
  Kind kind;
  Checkpoint checkpoint = Checkpoint::kNewest;
  std::int64_t step = 0;
  bool is_average() const { return kind == kAverage; }
};

/// Loads the newest intact checkpoint, or the one that `weights` requests. If it was taken in
/// Predict, loads the accepted weights from before the prediction. `stream` must outlive the model.
/// `frozen_form` replaces the run's lora.base, also without adapters. Throws MissingInput if there
/// is no run, checkpoint or average. Also throws ConfigError and DataError.
TrainedRun load_trained_run(const std::filesystem::path& run, const Stream& stream,
                            const ModelRegistry& registry = model_families(),
                            const RunWeights& weights = {},
                            const std::optional<std::string>& frozen_form = {});

/// Loads a Hugging Face folder. `form` is the storage format of the weights, as in lora.base.
/// `home` is the location of the matrices, one of placement_names(). Throws MissingInput,
/// DataError, CannotCreate.
TrainedRun load_hugging_face_folder(const ModelFolder& folder, const std::string& form,
                                    const Stream& stream,
                                    const ModelRegistry& registry = model_families(),
                                    const std::string& home = "device");

/// Loads a PEFT folder with the Hugging Face folder `base` or, if empty, the base that it names.
/// Uses the base's tokenizer unless the adapter has one. Throws MissingInput, DataError.
TrainedRun load_adapter_folder(const std::filesystem::path& folder, const std::string& form,
                               const Stream& stream,
                               const ModelRegistry& registry = model_families(),
                               const ModelFolder& base = {});

/// Returns the precision of an export: export.dtype. If that is auto, returns bf16 for a base in
/// bf16, else f32. Throws MissingInput, DataError.
DType export_dtype(const TrainedRun& run);

}  // namespace hybrid_trainer
