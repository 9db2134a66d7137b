#pragma once

#include <functional>
#include <optional>
#include <string_view>
#include <utility>

#include "hybrid_trainer/models/language_model.h"

namespace hybrid_trainer {

class ConfigKeys;

/// A named initial configuration: `hybrid train --preset NAME`.
struct ModelPreset {
  std::string name;
  ModelConfig model;
  std::int64_t batch_size;
  std::int64_t sequence_length;
  std::string optimizer;
  double learning_rate;
  std::int64_t vocabulary = 4096;  // for benchmarks, which have no data
};

/// A tensor in files that must equal another one: `of`, or the token table if `of` is empty.
struct CopyInFiles {
  std::string name, of;
};

/// Format of a family's folders, as Hugging Face transformers writes them.
struct HuggingFaceLayout {
  std::string model_type;    // "gpt2"
  std::string architecture;  // "GPT2LMHeadModel"
  /// Prefix of tensor names (see Parameter::in_files); files without it can be read too.
  std::string prefix;
  /// Reads or writes the family's keys of config.json.
  std::function<void(ConfigKeys& keys, ModelConfig& model)> keys{};
  /// The tensor that a "lm_head.weight" in the files must equal; empty if the head is untied.
  std::string tied_head;
  /// Other names in files of the tensor that `tied_head` names; these tensors must equal it too.
  std::vector<std::string> copies_of_table{};
  /// Suffixes of tensors in files that the model computes itself (masks) and ignores.
  std::vector<std::string> ignored{};
  bool has_window_key = false;  // config.json has a key for ModelConfig::window
  bool has_mixers = false;      // folders in bf16 may store the mixers' vectors in f32
  /// PEFT 0.21 with transformers 5 supports this family's experts only through target_parameters.
  bool experts_are_parameters = false;
  /// Describes the values in the written config.json that other programs misread; "" or null: none.
  std::string (*misread)(const ModelConfig& config) = nullptr;
  /// A model that contains this one as its text_config; empty if there is none.
  struct Outer {
    std::string model_type{}, prefix{};
  } outer{};
  /// Modules of linear maps that PEFT cannot adapt in such folders.
  std::vector<std::string> unadaptable{};
  /// Prefixes of unsupported tensors, which export copies from the original folder. One module's
  /// name may precede them.
  std::vector<std::string> carried{};
  /// Prefix of an image classifier's head tensors. If a folder has other classes or no head,
  /// the head starts with zeros. The config.json has image_size, patch_size and labels, no tokens.
  std::string classifier{};
  /// Beginnings of the names of an encoder's language head, which have no prefix. A folder without
  /// such tensors has no head (ModelConfig::language_head).
  std::vector<std::string> head{};
  std::vector<CopyInFiles> head_copies{};

  std::string full_name(const FileTensor& tensor) const {
    return tensor.prefixed ? prefix + tensor.name : tensor.name;
  }
  /// Returns the name, without a first module such as "bert.", of a tensor that export copies (see
  /// `carried`); empty for other tensors.
  std::string carried_name(const std::string& name) const;
};

/// Format of a family's models in llama.cpp's files.
struct GgufLayout {
  std::string architecture{};    // "llama"; empty: llama.cpp has no equivalent architecture
  bool pairs_rows = false;       // rows j and j + D/2 of a head's queries and keys are adjacent
  bool may_have_biases = false;  // in attention, in addition to the biases of the class
  /// Norm gains are stored plus 1. Files omit values that follow from the number of layers.
  struct Gemma {
    std::int64_t layers_of_27b = 0;  // the 27B model, whose scores have a different scale
    std::int64_t window_period = 0;  // in layers; the last one of a period attends to all tokens
    bool always_caps = false;
  };
  std::optional<Gemma> gemma{};
};

/// Everything that the rest of the project knows about a model family.
struct ModelFamily {
  std::string name;   // value of model.family
  std::string title;  // display name: "GPT-2"
  /// Supported keys of the `model` group, besides family, layers, width, context and vocabulary.
  std::vector<std::string> keys;
  /// Adds problems that the keys' ranges cannot express, with JSON paths under "model".
  std::function<void(const ModelConfig& config, std::vector<std::string>& problems)>
      collect_problems;
  /// Returns the config with defaults in place of zeros; null if there are none.
  std::function<ModelConfig(const ModelConfig& config)> resolved{};
  /// Makes a model with weights initialized from the seed. Throws OutOfMemory.
  std::function<std::unique_ptr<Network>(const ModelConfig& config, std::uint64_t seed,
                                         const Stream& stream)>
      make;
  std::vector<ModelPreset> presets;
  HuggingFaceLayout hugging_face{};
  GgufLayout gguf{};
  /// True if `make` makes LanguageModels; other networks need no model.vocabulary.
  bool is_language_model = true;
  /// Task of the models: the Hub's pipeline_tag, a display title, and PEFT's task_type, which is
  /// empty for models with inputs other than tokens, since PEFT would pass them input_ids.
  struct Purpose {
    std::string tag = "text-generation", title = "A language model", task = "CAUSAL_LM";
  } purpose{};
  /// Placeholder for the data of `hybrid train`; empty: the network generates its own examples.
  std::string data = "DATA";
  /// Defaults of `hybrid finetune`.
  struct FineTuning {
    std::string layout = "packed";  // data.layout of text rows; empty: the model reads no text
    std::int64_t batch_size = 4;
    double learning_rate = 2e-5;  // for all weights
  } fine_tuning{};
  /// Patterns of the weights that get adapters if only a method is given (lora, qlora); empty: all.
  std::vector<std::string> adapted_parts{};
  /// Patterns of weights that are then frozen without adapters.
  std::vector<std::string> frozen_parts{};
  /// Returns the config with stacks of `depth` blocks. Plans compare two depths to separate the
  /// time of the blocks from the rest. Null for families of language models.
  std::function<ModelConfig(const ModelConfig& config, std::int64_t depth)> with_depth{};
  /// Returns the config with shorter inputs that leave the speed of the parts unchanged; null if
  /// inputs are short anyway.
  std::function<ModelConfig(const ModelConfig& config)> shortened{};

  /// Returns whether the family supports a key of the `model` group, such as "rope_scaling".
  bool has(std::string_view key) const;
};

/// Families by name. All lookups take a registry, so that a program can add families.
using ModelRegistry = std::vector<ModelFamily>;

/// Returns the families of this build.
const ModelRegistry& model_families();

/// Returns the family of this name. Throws ConfigError, with the nearest names, if there is none.
const ModelFamily& find_family(const std::string& name,
                               const ModelRegistry& registry = model_families());

/// Returns the family's layout for the model. Folders of models without a language head have the
/// architecture of a classifier, such as "BertForSequenceClassification", or of the body,
/// "BertModel", whose names have no prefix.
HuggingFaceLayout layout_of(const ModelConfig& model,
                            const ModelRegistry& registry = model_families());

/// Resolves the config with its family. Throws ConfigError if the family is unknown.
ModelConfig resolved_model_config(const ModelConfig& config,
                                  const ModelRegistry& registry = model_families());

/// Makes the network of the resolved config. Throws ConfigError, OutOfMemory.
std::unique_ptr<Network> make_network(const ModelConfig& config, std::uint64_t seed,
                                      const Stream& stream,
                                      const ModelRegistry& registry = model_families());
/// Makes the config's language model (see make_network). Throws ConfigError for other networks.
std::unique_ptr<LanguageModel> make_model(const ModelConfig& config, std::uint64_t seed,
                                          const Stream& stream,
                                          const ModelRegistry& registry = model_families());

/// Throws UsageError if the network, of this family, is not a language model; `what` names the
/// action that needs one, such as "writing text".
LanguageModel& as_language_model(Network& network, const std::string& family,
                                 const std::string& what);

/// Returns each key of a config with its value for messages; groups give "rope_scaling.type".
std::vector<std::pair<std::string, std::string>> texts_of_keys(const ModelConfig& config);

/// Adds problems of the `model` group: an unknown family, unsupported keys, and the family's own
/// checks. Does nothing if the registry is empty, since the caller then provides the model.
void collect_model_problems(const ModelConfig& config, std::vector<std::string>& problems,
                            const ModelRegistry& registry = model_families());

}  // namespace hybrid_trainer
