#pragma once

#include <boost/json.hpp>
#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace hybrid_trainer {

/// A Python regular expression over the names of modules, as in PEFT's configurations.
class ModulePattern {
 public:
  explicit ModulePattern(const std::string& pattern);
  /// Returns whether the pattern matches the whole name. Throws DataError if this takes too long.
  bool matches(const std::string& name) const { return first_group(name).has_value(); }
  /// Returns the first group's match, "" without a group, or nullopt if the name does not match.
  std::optional<std::string> first_group(const std::string& name) const;

 private:
  struct Compiled;
  std::string text_;
  std::shared_ptr<const Compiled> compiled_;
};

/// Returns the number at the beginning of a text, limited to 32 bits, or 0 if there is none.
std::int64_t leading_number(std::string_view text);

inline constexpr std::size_t kMaxPatterns = 100;

/// Selects modules by a pattern or by names. A name matches a module's whole name, or its end after
/// a dot.
struct ModuleNames {
  std::set<std::string> names{};
  std::optional<ModulePattern> pattern{};
  bool are_none() const { return names.empty() && !pattern; }
  bool include(const std::string& module) const;
  /// Returns the shortest name that matches a module, or "" if no name matches.
  std::string name_of(const std::string& module) const;
};

/// Assigns numbers, such as ranks, to modules by patterns of the name or of its end after a dot.
class ModuleNumbers {
 public:
  /// Adds a pattern. If several patterns match a module, the first one is used. Throws DataError.
  void add(const std::string& pattern, double number);
  double of(const std::string& module, double otherwise) const;

 private:
  struct Numbered {
    std::size_t place;
    double number;
  };
  std::map<std::string, Numbered> plain_;  // patterns without special characters; dots are allowed
  std::vector<std::pair<ModulePattern, Numbered>> patterns_;
};

/// Values of task_type for class heads and for embeddings.
inline constexpr const char *kClassTask = "SEQ_CLS", *kEmbeddingTask = "FEATURE_EXTRACTION";

/// Contents of PEFT's adapter_config.json. Uses the module names of the base's folder.
struct AdapterConfig {
  std::string base{}, task{};  // task_type; may be empty
  std::int64_t rank = 8;
  double alpha = 8, dropout = 0;
  std::string variant = "lora";
  bool all_linear = false;  // whether all linear layers are targets, instead of `targets`
  ModuleNames targets{}, excluded{};
  std::vector<std::string> parameters{};     // target_parameters: experts and routers
  std::set<std::int64_t> layers{};           // if not empty, only these layers have adapters
  std::vector<ModulePattern> layer_names{};  // patterns whose first group is the index of a layer
  ModuleNumbers ranks{}, alphas{};
  /// modules_to_save: fully trained modules that replace the base's modules.
  std::vector<ModulePattern> whole{};
  bool ties_whole = false;             // whether head and token table stay tied
  std::vector<std::string> unknown{};  // unknown keys
  /// True if the base was a model of texts and images, whose modules have longer names.
  bool uses_outer_names = false;
  bool uses_vit_5_names = false;  // whether the base was a ViT of transformers 5, see vit_name_of_5

  /// Converts a module name of the text model to the module's name in the base.
  std::string name_there(const std::string& module) const;
  /// The following functions take names in the text model.
  bool is_target(const std::string& module) const;
  bool is_whole(const std::string& module) const;
  /// Returns whether `parameters` names this weight, "….gate.weight", or a suffix of its name.
  bool is_parameter(const std::string& weight) const;
  std::int64_t rank_of(const std::string& module) const;
  double scale_of(const std::string& module) const;
};

/// Prefixes of a text model's modules: inside a model of texts and images, and alone.
inline constexpr std::string_view kInsideOuter = "model.language_model.", kAlone = "model.";

/// Converts a module name of a ViT folder from transformers 4,
/// "vit.encoder.layer.0.attention.attention.query", to version 5 as PEFT uses it,
/// "vit.layers.0.attention.q_proj". vit_name_of_folder converts it back. Other names stay.
std::string vit_name_of_5(const std::string& name);
std::string vit_name_of_folder(const std::string& name);

/// Reads an adapter_config.json. Throws MissingInput, or DataError naming every unsupported key.
AdapterConfig read_adapter_config_file(const std::filesystem::path& file);

}  // namespace hybrid_trainer
