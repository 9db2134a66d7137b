#pragma once

#include <functional>
#include <map>
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
  std::int64_t vocabulary = 4096;  // used by benchmarks, which have no data
};

/// A tensor in files that must equal the tensor `of`, or the token table if `of` is empty.
struct CopyInFiles {
  std::string name, of;
};

/// Format of a family's folders, as Hugging Face transformers writes them.
struct HuggingFaceLayout {
  std::string model_type;    // "gpt2"
  std::string architecture;  // "GPT2LMHeadModel"
  std::string prefix;        // prefix of tensor names, which files may omit
  std::function<void(ConfigKeys& keys, ModelConfig& model)> keys{};
  /// Tensor that must equal "lm_head.weight" if a folder contains both; empty if the head is
  /// untied.
  std::string tied_head;
  std::vector<std::string> copies_of_table{};  // further copies of `tied_head` in files
  std::vector<std::string> ignored{};          // suffixes of ignored tensors in files
  bool has_window_key = false;                 // config.json has a key for ModelConfig::window
  bool has_mixers = false;                     // a bf16 folder may store the mixers' vectors in f32
  bool experts_are_parameters = false;         // PEFT 0.21 supports only target_parameters
  /// Describes values in the written config.json that other programs misread; "" or null: none.
  std::string (*misread)(const ModelConfig& config) = nullptr;
  /// A larger model type that contains this model as its text_config.
  struct Outer {
    std::string model_type{}, prefix{};
    /// Module of the text model and its head in older folders: "language_model."
    std::string older{};
    std::vector<std::string> inert{};  // keys that do not affect texts
    bool file_tied_head = false;       // tied_head if tie_word_embeddings is missing
  } outer{};
  std::string head_prefix{};  // if not FileTensor::prefixed: Outer::older in older folders
  std::vector<std::string> unadaptable{};  // modules that PEFT cannot adapt
  /// Prefixes of the names of unsupported tensors, which export copies from the original folder. A
  /// module's name, such as "bert.", may precede the prefix.
  std::vector<std::string> carried{};
  /// Returns the prefixes of further carried tensors, which the model does not use. Null: none.
  std::vector<std::string> (*unused)(const ModelConfig& config) = nullptr;
  /// Prefix of an image classifier's head tensors. If a folder has other classes or no head,
  /// the head starts with zeros. The config.json has image_size, patch_size and labels, no tokens.
  std::string classifier{};
  /// Name prefixes of an encoder's language-head tensors, in place of `prefix`. A folder without
  /// such tensors has no language head (ModelConfig::language_head).
  std::vector<std::string> head{};
  std::vector<CopyInFiles> head_copies{};

  std::string full_name(const FileTensor& tensor) const {
    return (tensor.prefixed ? prefix : head_prefix) + tensor.name;
  }
  /// Returns the prefixes of a folder of the model alone, and of one of its outer model.
  std::vector<std::string> prefixes() const { return {prefix, outer.prefix, outer.older + prefix}; }
  /// Returns the layout with the model's unused tensors added to the carried tensors.
  HuggingFaceLayout with_unused(const ModelConfig& config) const;
  /// Returns the layout of a folder whose tensor names have the prefix `found`.
  HuggingFaceLayout with_prefix(const std::string& found) const;
  /// Returns the name, without a module such as "bert.", of a tensor that export copies; else "".
  std::string carried_name(const std::string& name) const;
};

/// Format of a family's models in llama.cpp's files.
struct GgufLayout {
  std::string architecture{};    // "llama"; empty: llama.cpp has no equivalent architecture
  bool pairs_rows = false;       // rows j and j + D/2 of a head's queries and keys are adjacent
  bool may_have_biases = false;  // attention may have biases that its class lacks
  bool has_output_bias = true;   // output bias, if attention has biases
  bool rotates_share = false;    // may rotate a share of each head's channels
  bool refuses_window = false;   // llama.cpp's windows for this architecture are unsupported
  /// GGUF names of a layer's modules, keyed by the names in a folder, if they differ from Llama's.
  std::map<std::string, std::string> names{};
  /// Describes how llama.cpp's computation would differ; "" or null: it would not differ.
  std::string (*difference)(const ModelConfig& config) = nullptr;
  bool scales_queries = false;  // keys for RotaryScaling's query_growth and mscale_all_dim
  /// GGUF stores norm gains plus 1, and omits values that follow from the number of layers.
  struct Gemma {
    /// Number of layers of the 27B model, which has another attention scale.
    std::int64_t layers_of_27b = 0;
    bool always_caps = false;
  };
  std::optional<Gemma> gemma{};
  /// Period of the window pattern in layers if a file does not have the pattern; the last layer of
  /// each period has no window. 0: files have no windows.
  std::int64_t window_period = 0;
  std::int64_t window_depth = 0;   // number of layers of models with windows; 0: any
  bool keeps_yarn_bounds = false;  // its models have rope_scaling.truncate=false
  /// Mixtures of experts: the rule of llama.cpp's architecture, and keys of config.json.
  struct Experts {
    std::string rule = kSoftmaxOfChosenRule;
    /// True if expert_feed_forward_length holds the inner width, false if feed_forward_length does.
    bool has_own_size = false;
    std::string count_key = "num_local_experts", size_key = "intermediate_size";
    std::string rule_key{};            // whether the chosen experts' weights sum to 1; "": none
    std::string shared_size_key{};     // inner width of the shared expert; "": there is none
    std::string dense_layers_key{};    // number of first layers without experts; "": none
    std::int64_t gating_function = 0;  // value of expert_gating_func; 0: no key
  };
  std::optional<Experts> experts{};
  bool has_short_convolutions = false;  // layers without keys have a convolution (LFM2)
  /// Gated DeltaNet layers. GGUF stores norm gains plus 1, except those of the mixers.
  struct DeltaRule {
    /// Whether GGUF sorts value heads by their index within their key head, then by key head.
    bool tiles_heads = false;
  };
  std::optional<DeltaRule> delta_rule{};
};

/// Description of a model family. All other code supports families only through these fields.
struct ModelFamily {
  std::string name;   // value of model.family
  std::string title;  // display name: "GPT-2"
  /// Supported keys of the `model` group, besides family, layers, width, context and vocabulary.
  std::vector<std::string> keys;
  std::function<void(const ModelConfig& config, std::vector<std::string>& problems)>
      collect_problems;
  /// Returns the config with zeros replaced by defaults. Null if the family has no such defaults.
  std::function<ModelConfig(const ModelConfig& config)> resolved{};
  std::function<std::unique_ptr<Network>(const ModelConfig& config, std::uint64_t seed,
                                         const Stream& stream)>
      make;
  std::vector<ModelPreset> presets;
  HuggingFaceLayout hugging_face{};
  GgufLayout gguf{};
  bool is_language_model = true;  // `make` returns LanguageModels
  /// Purpose of the models: the Hub's pipeline_tag, a display title, and PEFT's task_type.
  /// task_type is empty for models that do not read tokens, since PEFT would pass input_ids to
  /// them.
  struct Purpose {
    std::string tag = "text-generation", title = "A language model", task = "CAUSAL_LM";
  } purpose{};
  /// Placeholder for the data argument of `hybrid train`; empty if there is none.
  std::string data = "DATA";
  struct FineTuning {
    std::string layout = "packed";  // data.layout of text rows; empty: the model reads no text
    std::int64_t batch_size = 4;
    double learning_rate = 2e-5;  // used if all weights are trained
  } fine_tuning{};
  /// Patterns of the weights that lora and qlora adapt by default; empty: all.
  std::vector<std::string> adapted_parts{};
  std::vector<std::string> frozen_parts{};
  /// Returns the config with stacks of `depth` blocks. Plans measure two depths to separate the
  /// time of the blocks from other time. Null for families of language models.
  std::function<ModelConfig(const ModelConfig& config, std::int64_t depth)> with_depth{};
  /// Returns the config with shorter inputs, to measure speed faster. Null if inputs are short
  /// already.
  std::function<ModelConfig(const ModelConfig& config)> shortened{};

  /// Returns whether the family supports a key of the `model` group, such as "rope_scaling".
  bool has(std::string_view key) const;
};

using ModelRegistry = std::vector<ModelFamily>;

const ModelRegistry& model_families();

/// Returns the family of this name. Throws ConfigError, with the nearest names, if there is none.
const ModelFamily& find_family(const std::string& name,
                               const ModelRegistry& registry = model_families());

/// Returns the family's layout. Without a language head, the architecture is a classifier
/// ("BertForSequenceClassification") or the body ("BertModel"), whose names have no prefix.
HuggingFaceLayout layout_of(const ModelConfig& model,
                            const ModelRegistry& registry = model_families());

/// Resolves the config with its family. Throws ConfigError if the family is unknown.
ModelConfig resolved_model_config(const ModelConfig& config,
                                  const ModelRegistry& registry = model_families());

/// Resolves the config and makes its network. Throws ConfigError, OutOfMemory.
std::unique_ptr<Network> make_network(const ModelConfig& config, std::uint64_t seed,
                                      const Stream& stream,
                                      const ModelRegistry& registry = model_families());
/// Makes the language model of a config. Throws ConfigError for another network.
std::unique_ptr<LanguageModel> make_model(const ModelConfig& config, std::uint64_t seed,
                                          const Stream& stream,
                                          const ModelRegistry& registry = model_families());

/// Casts the network to a language model. Throws UsageError, naming the family, if it is not one.
/// `what` names the action that requires a language model, such as "writing text".
LanguageModel& as_language_model(Network& network, const std::string& family,
                                 const std::string& what);

/// Returns a config's keys, such as "rope_scaling.type", and values as texts.
std::vector<std::pair<std::string, std::string>> texts_of_keys(const ModelConfig& config);

/// Appends the problems of the `model` group: an unknown family, unsupported keys, and those that
/// the family finds. Does nothing for an empty registry.
void collect_model_problems(const ModelConfig& config, std::vector<std::string>& problems,
                            const ModelRegistry& registry = model_families());

}  // namespace hybrid_trainer
