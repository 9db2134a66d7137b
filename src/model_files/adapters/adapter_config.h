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

/// A pattern of Python's re over the names of modules, as PEFT's configurations have them.
class ModulePattern {
 public:
  /// Throws DataError where it is none.
  explicit ModulePattern(const std::string& pattern);
  /// Whether it matches the whole name (re.fullmatch). Throws DataError where it would take too long.
  bool matches(const std::string& name) const { return first_group(name).has_value(); }
  /// What the first group matched in a name that the pattern matches; empty where there is none.
  std::optional<std::string> first_group(const std::string& name) const;

 private:
  struct Compiled;
  std::string text_;
  std::shared_ptr<const Compiled> compiled_;
};

/// The number that a text begins with, such as a layer's, within 32 bits; 0 if it has none.
std::int64_t leading_number(std::string_view text);

/// Patterns that one key may give at most.
inline constexpr std::size_t kMostPatterns = 100;

/// Names of modules, each for itself and for what ends in it after a dot, or a pattern in their place.
struct ModuleNames {
  std::set<std::string> names{};
  std::optional<ModulePattern> pattern{};
  bool are_none() const { return names.empty() && !pattern; }
  bool include(const std::string& module) const;
  /// The shortest of the names that includes a module; empty where none does.
  std::string name_of(const std::string& module) const;
};

/// Numbers for some modules, by patterns, which may be the end of a name after a dot.
class ModuleNumbers {
 public:
  /// Of several that match, the one that was added first counts. Throws DataError.
  void add(const std::string& pattern, double number);
  double of(const std::string& module, double otherwise) const;

 private:
  struct Numbered {
    std::size_t place;
    double number;
  };
  std::map<std::string, Numbered> plain_;  // without any sign of a pattern but the dot
  std::vector<std::pair<ModulePattern, Numbered>> patterns_;
};

/// What an adapter_config.json of PEFT says. Modules have the names of the base's folder.
struct AdapterConfig {
  std::string base{};
  std::int64_t rank = 8;
  double alpha = 8, dropout = 0;
  std::string variant = "lora";
  bool all_linear = false;  // else `targets`
  ModuleNames targets{}, excluded{};
  std::vector<std::string> parameters{};     // target_parameters: of experts and routers
  std::set<std::int64_t> layers{};           // if there are any, only those
  std::vector<ModulePattern> layer_names{};  // with the layer's number as their first group
  ModuleNumbers ranks{}, alphas{};
  std::vector<ModulePattern> whole{};  // modules_to_save: trained whole, in place of the base's
  bool ties_whole = false;             // head and token table stay one weight then
  std::vector<std::string> unknown{};  // keys that nobody here knows
  /// Its base was a model of texts and images, in which modules have longer names than here.
  bool is_of_outer = false;
  bool is_of_vit_5 = false;  // its base was a ViT of transformers 5, see vit_name_of_5

  /// The module of a folder's model as such a base has it.
  std::string name_there(const std::string& module) const;
  /// All of these take names of a text model by itself.
  bool is_target(const std::string& module) const;
  bool is_whole(const std::string& module) const;
  /// Whether one of `parameters` is that weight, "….gate.weight", or the end of its name.
  bool is_parameter(const std::string& weight) const;
  std::int64_t rank_of(const std::string& module) const;
  /// On B·A.
  double scale_of(const std::string& module) const;
};

/// What names of modules of a text model begin with, inside a model of texts and images and alone.
inline constexpr std::string_view kInsideOuter = "model.language_model.", kAlone = "model.";

/// A ViT's folder calls its modules as transformers 4 did, "vit.encoder.layer.0.attention.attention.query",
/// and PEFT as version 5 does in memory, "vit.layers.0.attention.q_proj". Other names stay as they are.
std::string vit_name_of_5(const std::string& name);
std::string vit_name_of_folder(const std::string& name);

/// Reads a file. Throws MissingInput, and DataError that names every key that asks for something
/// else than a lora.variant.
AdapterConfig read_adapter_config_file(const std::filesystem::path& file);

}  // namespace hybrid_trainer
