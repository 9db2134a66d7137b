#include "src/compare/comparison_spec.h"

#include <boost/json/object.hpp>
#include <boost/json/serialize.hpp>
#include <boost/json/value.hpp>
#include <set>

#include "hybrid_trainer/core/error.h"
#include "src/config/config_checks.h"
#include "src/core/messages.h"
#include "src/files/config_fields.h"
#include "src/files/json.h"
#include "src/files/text.h"
#include "src/run/fine_tuning_method.h"
#include "src/tasks/task_kind.h"

namespace hybrid_trainer {

namespace fs = std::filesystem;

namespace {

std::string in_brief(const json::value& value) {
  const std::string text = json_line(value);
  return text.size() <= 60 ? text : text.substr(0, 57) + "...";
}

/// Collects the problems of a spec with their locations, to throw them together.
class SpecProblems {
 public:
  /// `lines` are the line numbers of keys outside of lists.
  SpecProblems(std::string file, std::map<std::string, std::size_t> lines)
      : file_(std::move(file)), lines_(std::move(lines)) {}
  void note(const std::string& path, const std::string& problem) {
    const auto line = lines_.find(path);
    problems_.push_back(line == lines_.end()
                            ? concat(file_, ": ", path, ": ", problem)
                            : concat(file_, ":", line->second, ": ", path, ": ", problem));
  }
  std::vector<std::string>& all() { return problems_; }

  // Read the value of a key and record its problems.
  void check_keys(const json::object& object, const std::string& path,
                  const std::vector<std::string>& known) {
    for (const auto& [key, value] : object) {
      if (std::find(known.begin(), known.end(), key) == known.end())
        note(path + std::string(key), "unknown key" + name_hint(std::string(key), known));
    }
  }
  std::string text(const boost::json::object& object, const char* key, const std::string& path) {
    const json::value* value = object.if_contains(key);
    if (value != nullptr && value->is_string() && !value->get_string().empty())
      return std::string(value->get_string());
    note(path + key,
         value == nullptr ? "is missing" : concat("got ", in_brief(*value), ", want a string"));
    return "";
  }
  std::vector<std::int64_t> whole_numbers(const boost::json::object& object, const char* key,
                                          const std::string& path, std::int64_t lowest) {
    std::vector<std::int64_t> numbers;
    const json::value* list = object.if_contains(key);
    if (list == nullptr || !list->is_array() || list->get_array().empty()) {
      note(path + key, list == nullptr ? "is missing" : "want a list of at least one whole number");
      return numbers;
    }
    for (const json::value& value : list->get_array()) {
      if (!value.is_int64() || value.get_int64() < lowest) {
        note(path + key,
             concat("got ", in_brief(value), ", want whole numbers, at least ", lowest));
        return {};
      }
      numbers.push_back(value.get_int64());
    }
    return numbers;
  }

 private:
  std::string file_;
  std::map<std::string, std::size_t> lines_;
  std::vector<std::string> problems_;
};

constexpr const char* kLearningRate = "optimizer.learning_rate";

std::vector<std::string> problems_over_ranks(const ComparisonSpec& spec,
                                             const ComparisonVariant& variant,
                                             const HybridTrainerConfig& config) {
  if (variant.is_program() || (spec.ranks == 1 && !config.phases.traits().runs_ahead_of_ranks))
    return {};
  try {
    check_ranks(config, spec.ranks);
    return {};
  } catch (const ConfigError& error) {
    return error.problems();
  }
}

void check_configs(const ComparisonSpec& spec, const ComparisonVariant& variant,
                   const std::string& at, SpecProblems& problems) {
  std::set<std::string> messages;
  const auto values = variant.sweep.empty() ? std::vector<std::optional<double>>{std::nullopt}
                                            : std::vector<std::optional<double>>{
                                                  variant.sweep.begin(), variant.sweep.end()};
  for (const auto& value : values) {
    try {
      for (const std::int64_t steps : {variant.budgets.front(), spec.pace ? spec.pace->steps : 0}) {
        if (steps == 0) continue;
        const RunPoint point{steps, spec.seeds.front(), value};
        const HybridTrainerConfig config = spec.config_of(variant, point);
        for (const std::string& problem : config.problems()) messages.insert(problem);
        for (const std::string& problem : problems_over_ranks(spec, variant, config))
          messages.insert(problem);
      }
    } catch (const ConfigError& error) {
      for (const std::string& problem : error.problems()) messages.insert("sweep: " + problem);
    }
  }
  for (const std::string& problem : messages) problems.note(at, problem);
}

/// Requires equal objectives and mask shares; otherwise losses cannot be compared.
void check_objective(const ComparisonVariant& first, const ComparisonVariant& variant,
                     const std::string& at, SpecProblems& problems) {
  const HybridTrainerConfig &one = first.config, &other = variant.config;
  if (other.objective != one.objective) {
    problems.note(at, concat("objective: got ", other.objective, ", but ", first.name, " has ",
                             one.objective, ": their losses cannot be compared; want one of them"));
  } else if (other.masks() && other.mask_share != one.mask_share) {
    problems.note(
        at, concat("mask_share: got ", brief(other.mask_share), ", but ", first.name, " has ",
                   brief(one.mask_share), ": their losses cannot be compared; want one share"));
  }
}

void check_variants(const ComparisonSpec& spec, SpecProblems& problems) {
  std::set<std::string> names;
  for (std::size_t i = 0; i < spec.variants.size(); ++i) {
    const ComparisonVariant& variant = spec.variants[i];
    const std::string at = concat("variants[", i, "]");
    if (!variant.name.empty() && !names.insert(variant.name).second)
      problems.note(at + ".name",
                    concat("\"", variant.name, "\" is also the name of another variant"));
    const std::size_t trials = spec.variants.front().sweep.size();
    if (!spec.sweep_key.empty() && variant.sweep.size() != trials)
      problems.note(
          at + ".sweep",
          concat("got ", variant.sweep.size(), " values, want ", trials,
                 " as in the first variant: every variant gets the same number of trials"));
    if (variant.is_program() && !spec.sweep_key.empty() && spec.sweep_key != kLearningRate)
      problems.note(at, concat("is a program, which can sweep only ", kLearningRate));
    const auto ours = std::ranges::find_if_not(spec.variants, &ComparisonVariant::is_program);
    if (!variant.is_program()) check_objective(*ours, variant, at, problems);
    if (!variant.budgets.empty() && !spec.seeds.empty()) check_configs(spec, variant, at, problems);
  }
}

constexpr std::size_t kLongestName = 64;
constexpr std::size_t kMostVariants = 1000;  // each has a complete configuration
constexpr std::size_t kMaxProblems = 100;    // looking for the nearest names takes time

bool is_folder_name(const std::string& name) {
  const auto may_be_in = [](unsigned char c) {
    return (c < 128 && std::isalnum(c) != 0) || c == '_' || c == '-' || c == '.' || c == '+';
  };
  return !name.empty() && name.size() <= kLongestName && name[0] != '.' && name[0] != '-' &&
         std::all_of(name.begin(), name.end(), may_be_in);
}

constexpr const char* kOfTheFolder = "is determined by the folder \"model\"; leave it out";
constexpr const char* kSetByComparison =
    " is set by the comparison; use \"budgets\" and \"seeds\" instead";

bool is_run_key(const std::string& key) {
  return key == "training.seed" || key == "training.steps";
}

class SpecReader {
 public:
  SpecReader(SpecProblems& problems, fs::path folder) : problems_(problems) {
    spec_.folder = std::move(folder);
  }
  ComparisonSpec read(const boost::json::object& root) {
    problems_.check_keys(root, "",
                         {"data", "model", "preset", "base", "budgets", "variants", "seeds",
                          "sweep", "target_validation_loss", "pace", "ranks"});
    if (root.contains("model")) read_model(root);
    if (root.contains("preset")) read_preset(problems_.text(root, "preset", ""));
    if (const Value* base = root.if_contains("base")) read_base(*base);
    const ModelRegistry& families = model_families();
    const auto family = std::ranges::find(families, base_.model.family, &ModelFamily::name);
    const bool draws_examples = family != families.end() && family->data.empty();
    if (root.contains("data") || !draws_examples) spec_.data = problems_.text(root, "data", "");
    spec_.seeds = problems_.whole_numbers(root, "seeds", "", 0);
    if (std::set<std::int64_t>(spec_.seeds.begin(), spec_.seeds.end()).size() != spec_.seeds.size())
      problems_.note("seeds", "a seed is given twice: its run would count twice");
    spec_.budgets = root.contains("budgets") ? budgets(root, "")
                                             : std::vector<std::int64_t>{base_.training.steps};
    if (const Value* sweep = root.if_contains("sweep"))
      sweep_ = read_sweep(*sweep, "sweep", spec_.sweep_key);
    if (const Value* target = root.if_contains("target_validation_loss")) read_target(*target);
    if (const Value* pace = root.if_contains("pace")) read_timing(*pace);
    if (const Value* ranks = root.if_contains("ranks")) read_ranks(*ranks);
    read_variants(root);
    check_variants(spec_, problems_);
    return spec_;
  }

 private:
  using Object = boost::json::object;
  using Value = boost::json::value;
  std::vector<std::int64_t> budgets(const Object& object, const std::string& path) {
    const std::vector<std::int64_t> budgets = problems_.whole_numbers(object, "budgets", path, 1);
    for (std::size_t i = 1; i < budgets.size(); ++i) {
      if (budgets[i] <= budgets[i - 1])
        problems_.note(path + "budgets", concat("got ", budgets[i], " after ", budgets[i - 1],
                                                ", want increasing numbers of steps"));
    }
    return budgets;
  }
  void read_preset(const std::string& name) {
    if (name.empty()) return;
    try {
      base_ = preset_config(name);
    } catch (const ConfigError&) {
      problems_.note("preset",
                     concat("there is no preset \"", name, "\"", name_hint(name, preset_names())));
    }
  }
  /// Reads the initial model of each run. Uses the defaults of `hybrid finetune`.
  void read_model(const Object& root) {
    spec_.model = problems_.text(root, "model", "");
    if (spec_.model.empty()) return;
    if (root.contains("preset"))
      problems_.note("preset", "is given together with \"model\"; give one");
    spec_.model = (spec_.folder / spec_.model).lexically_normal();
    base_ = fine_tuning_config(spec_.model, "full");
  }
  bool is_model_key(const std::string& key) const {
    return !spec_.model.empty() && key.starts_with("model.") && key != "model.dropout";
  }
  void read_base(const Value& base) {
    if (!base.is_object()) {
      problems_.note("base",
                     concat("got ", in_brief(base), ", want {\"model\": {\"layers\": 4}, …}"));
      return;
    }
    const Value* const model = base.get_object().if_contains("model");
    for (const auto& [key, value] : model && model->is_object() ? model->get_object() : Object())
      if (is_model_key(concat("model.", std::string(key))))
        problems_.note(concat("base.model.", std::string(key)), kOfTheFolder);
    try {
      read_config_text(base_, json::serialize(base), "");
    } catch (const ConfigError& error) {
      for (const std::string& problem : error.problems()) {
        // In ":1: training.stps: unknown key", the line number refers to a text that the user did not
        // write.
        const std::string rest = problem.substr(problem.find(": ") + 2);
        const std::size_t end = rest.find(": ");
        problems_.note("base." + rest.substr(0, end), rest.substr(end + 2));
      }
    }
  }
  std::vector<double> read_sweep(const Value& sweep, const std::string& path, std::string& key) {
    if (!sweep.is_object() || sweep.get_object().size() != 1) {
      problems_.note(
          path,
          "want one key with the values to try, {\"optimizer.learning_rate\": [1e-3, 2e-3, 4e-3]}; "
          "a comparison sweeps one key");
      return {};
    }
    const auto& [name, list] = *sweep.get_object().begin();
    key = std::string(name);
    if (is_run_key(key)) {
      problems_.note(path, key + kSetByComparison);
      return {};
    }
    if (is_model_key(key)) problems_.note(path, concat(key, " ", kOfTheFolder));
    if (!list.is_array() || list.get_array().empty()) {
      problems_.note(path, concat(key, ": want a list of at least one number"));
      return {};
    }
    std::set<double> values;
    for (const Value& value : list.get_array()) {
      if (!value.is_number()) {
        problems_.note(path, concat(key, ": got ", in_brief(value), ", want numbers"));
        return {};
      }
      if (!values.insert(value.to_number<double>()).second)
        problems_.note(path, concat(key, ": ", in_brief(value), " is given twice"));
    }
    return {values.begin(), values.end()};
  }
  void read_variants(const Object& root) {
    const Value* variants = root.if_contains("variants");
    if (variants == nullptr || !variants->is_array() || variants->get_array().empty()) {
      problems_.note("variants", variants == nullptr
                                     ? "is missing"
                                     : "want a list of at least one {\"name\": …, \"set\": {…}}");
      return;
    }
    const std::size_t count = variants->get_array().size();
    if (count > kMostVariants)
      return problems_.note("variants",
                            concat("got ", count, " variants, want at most ", kMostVariants));
    std::size_t index = 0;
    for (const Value& variant : variants->get_array()) {
      const std::string path = concat("variants[", index++, "]");
      if (variant.is_object()) {
        read_variant(variant.get_object(), path);
      } else {
        problems_.note(path,
                       concat("got ", in_brief(variant), ", want {\"name\": …, \"set\": {…}}"));
      }
    }
  }
  void read_variant(const Object& object, const std::string& path) {
    problems_.check_keys(object, path + ".", {"name", "set", "command", "sweep", "budgets"});
    ComparisonVariant variant;
    variant.config = base_;
    variant.name = problems_.text(object, "name", path + ".");
    if (!variant.name.empty() && !is_folder_name(variant.name))
      problems_.note(path + ".name",
                     concat("got ", in_brief(json::string(variant.name)),
                            "; want a folder name: at most 64 characters of A-Z a-z "
                            "0-9 _ - + . that does not begin with - or ."));
    const Value *settings = object.if_contains("set"), *command = object.if_contains("command");
    if ((settings == nullptr) == (command == nullptr))
      problems_.note(path, concat("has ", settings == nullptr ? "neither" : "both",
                                  " of \"set\" and \"command\"; want one of them: settings of this "
                                  "program ({} for none), or the command of another program"));
    variant.budgets = object.contains("budgets") ? budgets(object, path + ".") : spec_.budgets;
    variant.sweep = sweep_;
    if (const Value* own = object.if_contains("sweep")) {
      std::string key;
      variant.sweep = read_sweep(*own, path + ".sweep", key);
      if (spec_.sweep_key.empty() && spec_.variants.empty()) spec_.sweep_key = key;
      if (!key.empty() && key != spec_.sweep_key)
        problems_.note(
            path + ".sweep",
            spec_.sweep_key.empty()
                ? "the first variant has none: every variant gets the same number of trials"
                : concat("got ", key, ", but the others sweep ", spec_.sweep_key));
    }
    if (settings != nullptr) read_settings(*settings, path + ".set", variant);
    if (command != nullptr) read_command(*command, path + ".command", variant);
    spec_.variants.push_back(std::move(variant));
  }
  void read_settings(const Value& settings, const std::string& path, ComparisonVariant& variant) {
    if (!settings.is_object()) {
      problems_.note(path,
                     concat("got ", in_brief(settings), ", want {\"optimizer.name\": \"muon\"}"));
      return;
    }
    for (const auto& [name, value] : settings.get_object()) {
      if (problems_.all().size() >= kMaxProblems) return;
      const std::string key(name);
      if (is_run_key(key) || key == spec_.sweep_key) {
        problems_.note(
            path,
            concat(key, is_run_key(key) ? kSetByComparison
                                        : " is swept: give the variant its own \"sweep\" instead"));
        continue;
      }
      if (is_model_key(key)) problems_.note(path, concat(key, " ", kOfTheFolder));
      try {
        set_field(variant.config, key,
                  value.is_string() ? std::string(value.get_string()) : json::serialize(value));
      } catch (const ConfigError& error) {
        for (const std::string& problem : error.problems()) problems_.note(path, problem);
      }
    }
  }
  void read_command(const Value& command, const std::string& path, ComparisonVariant& variant) {
    bool is_good = command.is_array() && !command.get_array().empty();
    for (const Value& part : is_good ? command.get_array() : json::array()) {
      is_good = is_good && part.is_string();
      if (is_good) variant.command.emplace_back(part.get_string());
    }
    // A NUL character would end an argument.
    const bool is_whole =
        std::all_of(variant.command.begin(), variant.command.end(),
                    [](const auto& part) { return part.find('\0') == std::string::npos; });
    if (is_good && is_whole && !variant.command[0].empty()) return;
    problems_.note(
        path,
        "want a program and its arguments, [\"python3\", \"train.py\", \"{data}\", \"{seed}\"]");
    variant.command = {"?"};
  }
  void read_target(const Value& target) {
    if (target.is_null()) return;
    if (target.is_number() && target.to_number<double>() > 0) {
      spec_.target_loss = target.to_number<double>();
    } else {
      problems_.note("target_validation_loss",
                     concat("got ", in_brief(target), ", want a loss above 0"));
    }
  }
  void read_timing(const Value& pace) {
    if (!pace.is_object()) {
      problems_.note("pace",
                     concat("got ", in_brief(pace), ", want {\"steps\": 24, \"rounds\": 5}"));
      return;
    }
    const Object& object = pace.get_object();
    problems_.check_keys(object, "pace.", {"steps", "rounds"});
    const auto number = [&](const char* key) -> std::int64_t {
      const Value* value = object.if_contains(key);
      if (value != nullptr && value->is_int64() && value->get_int64() > 0)
        return value->get_int64();
      problems_.note(concat("pace.", key),
                     value == nullptr
                         ? "is missing"
                         : concat("got ", in_brief(*value), ", want a whole number of at least 1"));
      return 1;
    };
    spec_.pace = ComparisonTiming{number("steps"), number("rounds")};
  }
  void read_ranks(const Value& ranks) {
    constexpr std::int64_t kMax = 64;
    if (ranks.is_int64() && ranks.get_int64() >= 1 && ranks.get_int64() <= kMax) {
      spec_.ranks = static_cast<int>(ranks.get_int64());
    } else {
      problems_.note("ranks",
                     concat("got ", in_brief(ranks), ", want a whole number from 1 to ", kMax));
    }
  }

  SpecProblems& problems_;
  HybridTrainerConfig base_;
  ComparisonSpec spec_;
  std::vector<double> sweep_;
};

json::object parsed_spec(const std::string& text, const std::string& name, JsonKeys& keys) {
  try {
    const json::value value = parse_json_text(text, name, keys);
    if (value.is_object()) return value.get_object();
  } catch (const DataError& error) {
    throw ConfigError({error.what()});
  }
  throw ConfigError({name + ": want an object {\"data\": …, \"variants\": […], \"seeds\": […]}"});
}

std::string text_of_spec(const fs::path& file) {
  try {
    return read_text(file, JsonLimits{}.max_bytes);
  } catch (const DataError& error) {
    throw ConfigError({concat(error.what(), "; want a spec of at most 1 MiB of JSON")});
  }
}

void replace_all(std::string& text, const std::string& what, const std::string& by) {
  for (std::size_t at = 0; (at = text.find(what, at)) != std::string::npos; at += by.size())
    text.replace(at, what.size(), by);
}

const json::value& value_at(const json::object& object, std::string_view key) {
  static const json::value absent;
  const json::value* value = object.if_contains(key);
  return value == nullptr ? absent : *value;
}

/// Returns the elements of the list `key` in `before` that `now` lacks.
std::vector<std::string> removed_keys(const json::object& before, const json::object& now,
                                      const char* key) {
  std::vector<std::string> texts;
  if (!before.contains(key)) return texts;
  const json::array* left =
      value_at(now, key).is_array() ? &value_at(now, key).get_array() : nullptr;
  const json::array none, *const listed = before.at(key).if_array();
  for (const json::value& value : listed == nullptr ? none : *listed) {
    if (left == nullptr || std::find(left->begin(), left->end(), value) == left->end())
      texts.push_back(json::serialize(value));
  }
  return texts;
}

}  // namespace

std::string RunPoint::name() const {
  std::string name = concat(steps, "-steps-seed-", seed);
  if (value) name += "-at-" + shortest(*value);
  return round > 0 ? concat(name, "-pace-", round) : name;
}

std::string ComparisonSpec::unit() const { return task_kind(variants.front().config.model).unit; }

std::int64_t ComparisonSpec::sweep_seed() const {
  std::int64_t seed = 0;
  while (std::find(seeds.begin(), seeds.end(), seed) != seeds.end()) ++seed;
  return seed;
}

HybridTrainerConfig ComparisonSpec::config_of(const ComparisonVariant& variant,
                                              const RunPoint& point) const {
  HybridTrainerConfig config = variant.config;
  config.training.steps = point.steps;
  config.training.seed = point.seed;
  if (point.value) set_field(config, sweep_key, shortest(*point.value));
  return config;
}

std::vector<std::string> ComparisonSpec::command_of(const ComparisonVariant& variant,
                                                    const RunPoint& point,
                                                    const fs::path& output) const {
  const std::pair<const char*, std::string> places[] = {
      {"{seed}", std::to_string(point.seed)},
      {"{steps}", std::to_string(point.steps)},
      {"{learning_rate}", shortest(config_of(variant, point).optimizer.learning_rate)},
      {"{data}", data.string()},
      {"{output}", output.string()}};
  std::vector<std::string> command = variant.command;
  for (std::string& part : command) {
    for (const auto& [place, value] : places) replace_all(part, place, value);
  }
  return command;
}

ComparisonSpec read_comparison_spec(const fs::path& file) {
  JsonKeys keys;
  json::object root = parsed_spec(text_of_spec(file), file.string(), keys);
  SpecProblems problems(file.string(), keys.lines);
  for (const auto& duplicate : keys.duplicates)
    problems.note(duplicate.path, concat("duplicate key (line ", duplicate.line, ")"));
  ComparisonSpec spec =
      SpecReader(problems, fs::absolute(file).lexically_normal().parent_path()).read(root);
  if (!problems.all().empty()) throw ConfigError(std::move(problems.all()));
  if (!spec.data.empty()) spec.data = (spec.folder / spec.data).lexically_normal();
  if (!spec.data.empty() && !fs::exists(spec.data))
    throw MissingInput(concat(file.string(), ": data: ", spec.data.string(),
                              ": does not exist; create it with hybrid prepare (a relative path is "
                              "relative to the spec's "
                              "folder)"));
  if (!spec.data.empty()) root["data"] = spec.data.string();
  if (!spec.model.empty()) root["model"] = spec.model.string();
  spec.text = pretty_json(root) + "\n";
  return spec;
}

void check_same_comparison(const std::string& before_text, const std::string& now_text) {
  JsonKeys keys;
  const json::object before = parsed_spec(before_text, "spec.json", keys),
                     now = parsed_spec(now_text, "spec", keys);
  std::vector<std::string> problems;
  for (const char* key : {"data", "model", "preset", "base", "sweep", "target_validation_loss"}) {
    if (value_at(before, key) == value_at(now, key)) continue;
    problems.push_back(concat(key, ": was ", json_line(value_at(before, key)), ", is now ",
                              json_line(value_at(now, key))));
  }
  const auto ranks = [](const json::object& spec) {
    return spec.contains("ranks") ? json::serialize(spec.at("ranks")) : std::string("1");
  };
  if (ranks(before) != ranks(now))
    problems.push_back(concat("ranks: was ", ranks(before), ", is now ", ranks(now)));
  for (const char* key : {"seeds", "budgets", "variants"}) {
    for (const std::string& element : removed_keys(before, now, key))
      problems.push_back(concat(key, ": ", element, " was changed or removed"));
  }
  if (before.contains("budgets") != now.contains("budgets"))
    problems.emplace_back("budgets: are given in only one of the two specs");
  if (problems.empty()) return;
  problems.emplace_back(
      "the finished runs belong to another comparison: --resume allows only additional variants, "
      "seeds and budgets; choose another folder for --output");
  throw ConfigError(std::move(problems));
}

}  // namespace hybrid_trainer
