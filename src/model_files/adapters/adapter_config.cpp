#include "src/model_files/adapters/adapter_config.h"

#include <algorithm>
#include <cmath>

#include "hybrid_trainer/models/lora.h"
#include "src/files/json.h"
#include "src/models/hugging_face/config_reader.h"

// Maximum number of states of one match, for iterators without random access.
#define BOOST_REGEX_MAX_STATE_COUNT 200000
#include <boost/regex.hpp>
#include <charconv>
#include <limits>
#include <list>

namespace hybrid_trainer {

namespace {

constexpr std::size_t kLongestPattern = 1 << 16;

std::string in_perl(std::string pattern) {
  for (std::size_t at = 0; (at = pattern.find("(?P<", at)) != pattern.npos;)
    pattern.erase(at + 2, 1);
  return pattern;
}

/// Calls visit(end) for a name and its suffixes after each dot, longest first.
template <class Visit>
void visit_ends(const std::string& name, const Visit& visit) {
  visit(name);
  for (std::size_t dot = name.find('.'); dot != name.npos; dot = name.find('.', dot + 1))
    visit(name.substr(dot + 1));
}

/// Initializations that do not change the base.
constexpr const char* kPlainStarts[] = {"gaussian", "eva", "orthogonal"};

constexpr const char* kTasks[] = {"CAUSAL_LM", "SEQ_2_SEQ_LM", kEmbeddingTask, kClassTask};

bool is_empty_or_false(const json::value& value) {
  return value.is_null() || value == json::value(false) || value == json::value("") ||
         (value.is_object() && value.get_object().empty()) ||
         (value.is_array() && value.get_array().empty());
}

/// Reader of an adapter_config.json that collects all problems. Null means absent.
class AdapterConfigReader {
 public:
  AdapterConfigReader(const json::object& object, std::string name)
      : reader_(object), name_(std::move(name)) {}

  AdapterConfig read() {
    AdapterConfig config;
    want("peft_type", value("peft_type") == json::value("LORA"), "\"LORA\"");
    const json::value task = value("task_type");
    want("task_type", is_empty_or_false(task) || std::ranges::count(kTasks, task) > 0,
         "null, \"CAUSAL_LM\", \"SEQ_2_SEQ_LM\", \"FEATURE_EXTRACTION\" or \"SEQ_CLS\": others add "
         "a head");
    if (task.is_string()) config.task = task.get_string().c_str();
    want("bias", is_empty_or_false(value("bias")) || value("bias") == "none", "\"none\"");
    read_sizes(config);
    read_variant(config);
    read_targets(config);
    read_layers(config);
    if (const json::value names = value("modules_to_save"); !is_empty_or_false(names)) {
      for (const std::string& module : texts("modules_to_save", names))
        add_pattern(config.whole, "modules_to_save", concat("(.*\\.)?(?:", module, ")(\\..*)?"));
    }
    config.ties_whole = flag("ensure_weight_tying");
    const json::value start = value("init_lora_weights");
    want("init_lora_weights",
         start.is_null() || start.is_bool() || std::ranges::count(kPlainStarts, start) > 0,
         "true, false, \"gaussian\", \"eva\" or \"orthogonal\": others change the base weights");
    const json::value base = value("base_model_name_or_path");
    if (base.is_string()) config.base = base.get_string().c_str();
    flag("fan_in_fan_out");
    reader_.sort_unread(ForeignFile::kAdapterConfig);
    config.unknown = reader_.unknown();
    if (!reader_.problems().empty())
      throw DataError(concat(name_, ": unsupported adapter:", reader_.problems()));
    return config;
  }

 private:
  void read_sizes(AdapterConfig& config) {
    if (const json::value rank = value("r"); !rank.is_null()) config.rank = whole("r", rank);
    if (const json::value alpha = value("lora_alpha"); !alpha.is_null())
      config.alpha = positive("lora_alpha", alpha);
    if (const json::value dropout = value("lora_dropout"); !dropout.is_null()) {
      const bool fits = dropout.is_number() && dropout.to_number<double>() >= 0 &&
                        dropout.to_number<double>() < 1;
      want("lora_dropout", fits, "a number from 0 to less than 1");
      if (fits) config.dropout = dropout.to_number<double>();
    }
    read_numbers("rank_pattern", config.ranks, [&](const json::value& number) {
      return static_cast<double>(whole("rank_pattern", number));
    });
    read_numbers("alpha_pattern", config.alphas,
                 [&](const json::value& number) { return positive("alpha_pattern", number); });
  }

  void read_variant(AdapterConfig& config) {
    const bool is_rooted = flag("use_rslora"), is_decomposed = flag("use_dora");
    config.variant = is_decomposed ? is_rooted ? "rsdora" : "dora" : is_rooted ? "rslora" : "lora";
  }

  void read_targets(AdapterConfig& config) {
    const json::value targets = value("target_modules"), excluded = value("exclude_modules");
    config.all_linear = targets == kAllLinear;
    if (!config.all_linear) config.targets = modules("target_modules", targets);
    const json::value parameters = value("target_parameters");  // of all experts in a layer
    if (!is_empty_or_false(parameters)) config.parameters = texts("target_parameters", parameters);
    want("target_modules", !is_empty_or_false(targets) || !is_empty_or_false(parameters),
         "names, a pattern, or \"all-linear\"");
    if (!is_empty_or_false(excluded)) config.excluded = modules("exclude_modules", excluded);
  }

  ModuleNames modules(const char* key, const json::value& found) {
    ModuleNames modules;
    if (found.is_string()) {
      modules.pattern = pattern(key, std::string(found.get_string()));
    } else if (!found.is_null()) {
      const std::vector<std::string> names = texts(key, found);
      modules.names = {names.begin(), names.end()};
    }
    return modules;
  }

  void read_layers(AdapterConfig& config) {
    const json::value layers = value("layers_to_transform"), names = value("layers_pattern");
    const auto number = [&](const json::value& layer) {
      const bool fits = layer.is_int64() && layer.get_int64() >= 0;
      want("layers_to_transform", fits, "whole numbers of at least 0");
      if (fits) config.layers.insert(layer.get_int64());
    };
    if (const json::array* const list = layers.if_array()) {
      for (const json::value& layer : *list) number(layer);
    } else if (!layers.is_null()) {
      number(layers);
    }
    if (is_empty_or_false(names)) {
      add_pattern(config.layer_names, "layers_pattern", "(?:.*?\\.[^.]*\\.)(\\d+)\\..*");
      return;
    }
    const bool is_one = names.is_string();
    for (const std::string& name :
         is_one ? std::vector{std::string(names.get_string())} : texts("layers_pattern", names))
      add_pattern(config.layer_names, "layers_pattern",
                  concat("(?:.*?\\.)?(?:", name, ")\\.(\\d+)\\..*"));
  }

  json::value value(const std::string& key) {
    const json::value* found = reader_.find(key);
    return found == nullptr ? json::value() : *found;
  }
  bool flag(const std::string& key) {
    bool is_set = false;
    reader_.read(is_set, key, 0);
    return is_set;
  }
  std::int64_t whole(const std::string& key, const json::value& found) {
    const bool fits = found.is_int64() && found.get_int64() >= 1 && found.get_int64() <= 4096;
    if (!fits) reader_.refuse(key, found, "a whole number from 1 to 4096");
    return fits ? found.get_int64() : 1;
  }
  double positive(const std::string& key, const json::value& found) {
    const bool fits = found.is_number() && found.to_number<double>() > 0;
    if (!fits) reader_.refuse(key, found, "a number above 0");
    return fits ? found.to_number<double>() : 1;
  }
  std::vector<std::string> texts(const std::string& key, const json::value& found) {
    const json::array* const list = found.if_array();
    std::vector<std::string> all;
    if (list == nullptr ||
        !std::ranges::all_of(*list, [](const auto& x) { return x.is_string(); })) {
      reader_.refuse(key, found, "a list of names");
      return all;
    }
    for (const json::value& text : *list) all.emplace_back(text.get_string());
    return all;
  }
  template <class Read>
  void read_numbers(const char* key, ModuleNumbers& numbers, const Read& read) {
    const json::value found = value(key);
    if (is_empty_or_false(found)) return;
    if (!found.is_object()) return reader_.refuse(key, found, "an object of numbers");
    for (const auto& [name, number] : found.get_object()) {
      try {
        numbers.add(std::string(name), read(number));
      } catch (const DataError& error) {
        reader_.problem(concat(key, ": ", error.what()));
      }
    }
  }
  ModulePattern pattern(const char* key, const std::string& text) {
    try {
      return ModulePattern(text);
    } catch (const DataError& error) {
      reader_.problem(concat(key, ": ", error.what()));
      return ModulePattern("");
    }
  }
  void add_pattern(std::vector<ModulePattern>& to, const char* key, const std::string& text) {
    if (to.size() == kMaxPatterns)
      reader_.problem(concat(key, ": has more than ", kMaxPatterns, " names"));
    if (to.size() < kMaxPatterns) to.push_back(pattern(key, text));
  }
  void want(const std::string& key, bool is_right, const std::string& wanted) {
    if (!is_right) reader_.refuse(key, value(key), wanted);
  }

  ConfigReader reader_;
  std::string name_;
};

/// Module names in a ViT folder, and in transformers 5. The first match is used.
constexpr std::pair<std::string_view, std::string_view> kViTModules[] = {
    {".attention.attention.query", ".attention.q_proj"},
    {".attention.attention.key", ".attention.k_proj"},
    {".attention.attention.value", ".attention.v_proj"},
    {".attention.output.dense", ".attention.o_proj"},
    {".intermediate.dense", ".mlp.fc1"},
    {".output.dense", ".mlp.fc2"}};
constexpr std::string_view kViTLayers = "vit.encoder.layer.", kViTLayersOf5 = "vit.layers.";

}  // namespace

struct ModulePattern::Compiled {
  explicit Compiled(const std::string& pattern) : regex(in_perl(pattern), boost::regex::perl) {}
  boost::regex regex;
};

ModulePattern::ModulePattern(const std::string& pattern) : text_(pattern.substr(0, 60)) {
  if (pattern.size() > kLongestPattern)
    throw DataError(concat("the pattern ", text_, "… has ", pattern.size(),
                           " characters; want at most ", kLongestPattern));
  try {
    compiled_ = std::make_shared<const Compiled>(pattern);
  } catch (const std::runtime_error& error) {
    throw DataError(concat("the pattern ", text_, " cannot be read: ", error.what()));
  }
}

std::optional<std::string> ModulePattern::first_group(const std::string& name) const {
  try {
    const std::list<char> letters(name.begin(), name.end());
    boost::match_results<std::list<char>::const_iterator> match;
    if (!boost::regex_match(letters.begin(), letters.end(), match, compiled_->regex)) return {};
    return match.size() > 1 ? match[1].str() : "";
  } catch (const std::runtime_error&) {
    throw DataError(concat("the pattern ", text_,
                           " takes too long to match; write it without "
                           "repetitions within repetitions"));
  }
}

std::int64_t leading_number(std::string_view text) {
  std::int32_t number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  return error == std::errc::result_out_of_range ? INT32_MAX : number;
}

std::string ModuleNames::name_of(const std::string& module) const {
  std::string found;
  visit_ends(module, [&](const std::string& end) {
    if (names.contains(end)) found = end;
  });
  return found;
}

bool ModuleNames::include(const std::string& module) const {
  return pattern ? pattern->matches(module) : !name_of(module).empty();
}

void ModuleNumbers::add(const std::string& pattern, double number) {
  const Numbered numbered{plain_.size() + patterns_.size(), number};
  if (pattern.find_first_not_of(
          "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_.") == pattern.npos) {
    plain_.emplace(pattern, numbered);
    return;
  }
  if (patterns_.size() == kMaxPatterns)
    throw DataError(concat("has more than ", kMaxPatterns, " patterns"));
  patterns_.emplace_back(concat("(.*\\.)?(", pattern, ")"), numbered);
}

double ModuleNumbers::of(const std::string& module, double otherwise) const {
  const Numbered none{std::numeric_limits<std::size_t>::max(), otherwise};
  Numbered first = none;
  const auto take = [&](const Numbered& found) {
    if (found.place < first.place) first = found;
  };
  visit_ends(module, [&](const std::string& end) {
    if (const auto found = plain_.find(end); found != plain_.end()) take(found->second);
  });
  for (const auto& [pattern, numbered] : patterns_) {
    if (numbered.place < first.place && pattern.matches(module)) take(numbered);
  }
  return first.number;
}

std::string vit_name_of_5(const std::string& name) {
  if (!name.starts_with(kViTLayers)) return name;
  std::string renamed = concat(kViTLayersOf5, name.substr(kViTLayers.size()));
  for (const auto& [of_folder, of_5] : kViTModules)
    if (const std::size_t at = renamed.find(of_folder); at != renamed.npos)
      return renamed.replace(at, of_folder.size(), of_5);
  return renamed;
}

std::string vit_name_of_folder(const std::string& name) {
  if (!name.starts_with(kViTLayersOf5)) return name;
  std::string renamed = concat(kViTLayers, name.substr(kViTLayersOf5.size()));
  for (const auto& [of_folder, of_5] : kViTModules)
    if (const std::size_t at = renamed.find(of_5); at != renamed.npos)
      return renamed.replace(at, of_5.size(), of_folder);
  return renamed;
}

std::string AdapterConfig::name_there(const std::string& module) const {
  if (uses_vit_5_names) return vit_name_of_5(module);
  if (!uses_outer_names || !module.starts_with(kAlone)) return module;
  return std::string(kInsideOuter) + module.substr(kAlone.size());
}

bool AdapterConfig::is_whole(const std::string& module) const {
  const std::string there = name_there(module);
  return std::ranges::any_of(whole, [&](const ModulePattern& name) { return name.matches(there); });
}

bool AdapterConfig::is_parameter(const std::string& weight) const {
  const std::string there = name_there(weight);
  return std::ranges::any_of(parameters, [&](const std::string& name) {
    return there == name || there.ends_with("." + name);
  });
}

bool AdapterConfig::is_target(const std::string& module) const {
  const std::string there = name_there(module);
  if (excluded.include(there) || is_whole(module)) return false;
  if (all_linear) return true;
  if (!targets.include(there)) return false;
  if (layers.empty() || targets.pattern || targets.names.contains(there)) return true;
  for (const ModulePattern& name : layer_names) {
    const std::optional<std::string> layer = name.first_group(there);
    if (layer) return layers.contains(leading_number(*layer));
  }
  return false;
}

std::int64_t AdapterConfig::rank_of(const std::string& module) const {
  return static_cast<std::int64_t>(ranks.of(name_there(module), static_cast<double>(rank)));
}

double AdapterConfig::scale_of(const std::string& module) const {
  const auto r = static_cast<double>(rank_of(module));
  return alphas.of(name_there(module), alpha) / (has_root_scale(variant) ? std::sqrt(r) : r);
}

AdapterConfig read_adapter_config_file(const std::filesystem::path& file) {
  const json::value value = read_json(file);
  if (!value.is_object()) throw DataError(concat(file.string(), ": want a JSON object"));
  return AdapterConfigReader(value.get_object(), file.string()).read();
}

}  // namespace hybrid_trainer
