#pragma once

#include <functional>
#include <optional>
#include <string_view>
#include <utility>

#include "hybrid_trainer/models/language_model.h"

namespace hybrid_trainer {

class ConfigKeys;

/// A configuration to start from: `hybrid train --preset NAME`.
struct ModelPreset {
  std::string name;
  ModelConfig model;
  std::int64_t batch_size;
  std::int64_t sequence_length;
  std::string optimizer;
  double learning_rate;
  std::int64_t vocabulary = 4096;  // of benchmarks, which have no data
};

/// A family's folders as Hugging Face transformers writes them.
struct HuggingFaceLayout {
  std::string model_type;    // "gpt2"
  std::string architecture;  // "GPT2LMHeadModel"
  /// Of the names of tensors (see Parameter::in_files), or not: files without it are read too.
  std::string prefix;
  /// Reads or writes the family's keys of config.json.
  std::function<void(ConfigKeys& keys, ModelConfig& model)> keys{};
  /// The tensor that a "lm_head.weight" in the files must equal; empty where the head is a weight
  /// of its own.
  std::string tied_head;
  /// More names by which files may hold it, and which then must equal it too.
  std::vector<std::string> copies_of_table{};
  /// Endings of tensors that files may hold and the model makes itself (masks).
  std::vector<std::string> ignored{};
  bool tells_windows = false;  // config.json has a key for ModelConfig::window
  bool has_mixers = false;     // whose vectors folders in bf16 may hold in f32
  /// PEFT 0.21 over transformers 5 knows this family's experts by target_parameters alone.
  bool experts_are_parameters = false;
  /// What programs misread in the config.json that is written; "": nothing. Empty: nothing ever.
  std::string (*misread)(const ModelConfig& config) = nullptr;
  /// A model that has this one as its text_config; empty where there is none.
  struct Outer {
    std::string model_type{}, prefix{};
  } outer{};
  /// Modules of linear maps over which PEFT opens no adapters in such folders.
  std::vector<std::string> not_adapted{};
  /// What names of tensors begin with that the model does not have and export takes over from the
  /// folder that the model began with.
  std::vector<std::string> carried{};
  /// Of a model that tells pictures apart: what names of its head's tensors begin with. Where a folder
  /// tells other classes apart than ours, or has no head, the head is new, of zeros. Its config.json tells
  /// of image_size, patch_size and labels, and of no tokens.
  std::string classifier{};

  std::string full_name(const FileTensor& tensor) const {
    return tensor.prefixed ? prefix + tensor.name : tensor.name;
  }
};

/// A family's models in the files of llama.cpp.
struct GgufLayout {
  std::string architecture{};    // "llama"; empty: llama.cpp has none that computes the same
  bool pairs_rows = false;       // rows j and j + D/2 of a head's queries and keys are neighbors
  bool may_have_biases = false;  // in attention, beside those that the class always has
  /// Gains of norms have 1 added. Files leave out what follows from the number of layers.
  struct Gemma {
    std::int64_t layers_of_27b = 0;  // whose scores have another scale
    std::int64_t window_period = 0;  // layers of which the last one sees all tokens
    bool always_caps = false;
  };
  std::optional<Gemma> gemma{};
};

/// All that the rest of the project knows of a kind of network.
struct ModelFamily {
  std::string name;   // of model.family
  std::string title;  // for people: "GPT-2"
  /// Keys of the `model` group that it has, besides family, layers, width, context and vocabulary.
  std::vector<std::string> keys;
  /// Problems that the keys' ranges cannot express, with JSON paths under "model".
  std::function<void(const ModelConfig& config, std::vector<std::string>& problems)>
      collect_problems;
  /// The config with the values that its zeros stand for; empty where none stands for another.
  std::function<ModelConfig(const ModelConfig& config)> resolved{};
  /// A model with weights drawn from the seed. Throws OutOfMemory.
  std::function<std::unique_ptr<Network>(const ModelConfig& config, std::uint64_t seed,
                                         const Stream& stream)>
      make;
  std::vector<ModelPreset> presets;
  HuggingFaceLayout hugging_face{};
  GgufLayout gguf{};
  /// Whether `make` makes LanguageModels. A family of other networks needs no model.vocabulary.
  bool is_of_language = true;
  /// What its models do: the Hub's pipeline_tag, a title for people, and PEFT's task_type, which is
  /// empty if they read other inputs than tokens: PEFT would pass them input_ids.
  struct Purpose {
    std::string tag = "text-generation", title = "A language model", task = "CAUSAL_LM";
  } purpose{};
  /// What `hybrid train` learns from, in a word; empty: the network draws its own examples.
  std::string data = "DATA";
  /// What `hybrid finetune` begins with.
  struct FineTuning {
    std::string layout = "packed";  // data.layout of rows of text; empty: it reads none
    std::int64_t batch_size = 4;
    double learning_rate = 2e-5;  // of all weights
  } fine_tuning{};
  /// Patterns of the weights that adapters go on where only a method (lora, qlora) is named; none: all
  /// linear maps.
  std::vector<std::string> adapted_parts{};
  /// Of those that are then frozen without adapters.
  std::vector<std::string> frozen_parts{};
  /// The network with stacks of so many blocks: by two depths a plan tells the speed of blocks from that
  /// of all else. Empty in families of language models.
  std::function<ModelConfig(const ModelConfig& config, std::int64_t depth)> with_depth{};
  /// The network with shorter inputs, whose parts work as fast; empty: they are short.
  std::function<ModelConfig(const ModelConfig& config)> shortened{};

  /// Whether it has a key of the `model` group, such as "rope_scaling".
  bool has(std::string_view key) const;
};

/// Families by name. Everything that looks one up takes a registry, so that a program can bring its
/// own.
using ModelRegistry = std::vector<ModelFamily>;

/// The families of this build.
const ModelRegistry& model_families();

/// Throws ConfigError with the nearest names.
const ModelFamily& find_family(const std::string& name,
                               const ModelRegistry& registry = model_families());

/// The config as its family resolves it. Throws ConfigError where there is no such family.
ModelConfig resolved_model_config(const ModelConfig& config,
                                  const ModelRegistry& registry = model_families());

/// Of the config's family, as it resolves the config. Throws ConfigError, OutOfMemory.
std::unique_ptr<Network> make_network(const ModelConfig& config, std::uint64_t seed,
                                      const Stream& stream,
                                      const ModelRegistry& registry = model_families());
/// The same of a family of language models. Throws ConfigError of another one.
std::unique_ptr<LanguageModel> make_model(const ModelConfig& config, std::uint64_t seed,
                                          const Stream& stream,
                                          const ModelRegistry& registry = model_families());

/// Throws UsageError where the network, of this family, is no language model: `what` wants one, such as
/// "writing text".
LanguageModel& as_language_model(Network& network, const std::string& family,
                                 const std::string& what);

/// Each key of a config with its value as messages show it; those of groups as "rope_scaling.type".
std::vector<std::pair<std::string, std::string>> texts_of_keys(const ModelConfig& config);

/// Problems of the `model` group: an unknown family, a key that the family does not have, and what
/// the family finds. None with an empty registry: the model is somebody else's matter.
void collect_model_problems(const ModelConfig& config, std::vector<std::string>& problems,
                            const ModelRegistry& registry = model_families());

}  // namespace hybrid_trainer
