#include "src/compare/spec_reading.h"

#include <algorithm>
#include <boost/json/serialize.hpp>
#include <set>

#include "hybrid_trainer/core/error.h"
#include "hybrid_trainer/core/nearest_name.h"
#include "hybrid_trainer/files/pretty_json.h"
#include "hybrid_trainer/io/json_fields.h"
#include "hybrid_trainer/trainer/rank_checks.h"

namespace hybrid_trainer {
namespace json = boost::json;
namespace {

constexpr const char* kLearningRate = "optimizer.learning_rate";
constexpr std::size_t kLongestName = 64;

bool is_folder_name(const std::string& name) {
  const auto may_be_in = [](unsigned char c) {
    return (c < 128 && std::isalnum(c) != 0) || c == '_' || c == '-' || c == '.' || c == '+';
  };
  return !name.empty() && name.size() <= kLongestName && name[0] != '.' && name[0] != '-' &&
         std::all_of(name.begin(), name.end(), may_be_in);
}

/// What each run has its own of.
bool is_of_a_run(const std::string& key) {
  return key == "training.seed" || key == "training.steps";
}

std::string in_brief(const json::value& value) {
  const std::string text = json::serialize(value);
  return text.size() <= 60 ? text : text.substr(0, 57) + "...";
}

}  // namespace

void SpecReading::note(const std::string& path, const std::string& problem) {
  const auto line = lines_.find(path);
  problems_.push_back(line == lines_.end()
                          ? concat(file_, ": ", path, ": ", problem)
                          : concat(file_, ":", line->second, ": ", path, ": ", problem));
}

void SpecReading::check_keys(const Object& object, const std::string& path,
                             const std::vector<std::string>& known) {
  for (const auto& [key, value] : object) {
    if (std::find(known.begin(), known.end(), key) == known.end())
      note(path + std::string(key), "unknown key" + name_hint(std::string(key), known));
  }
}

std::string SpecReading::text(const Object& object, const char* key, const std::string& path) {
  const Value* value = object.if_contains(key);
  if (value != nullptr && value->is_string() && !value->get_string().empty())
    return std::string(value->get_string());
  note(path + key,
       value == nullptr ? "is missing" : concat("got ", in_brief(*value), ", want a text"));
  return "";
}

std::vector<std::int64_t> SpecReading::whole_numbers(const Object& object, const char* key,
                                                     const std::string& path, std::int64_t lowest) {
  std::vector<std::int64_t> numbers;
  const Value* list = object.if_contains(key);
  if (list == nullptr || !list->is_array() || list->get_array().empty()) {
    note(path + key, list == nullptr ? "is missing" : "want a list of at least one whole number");
    return numbers;
  }
  for (const Value& value : list->get_array()) {
    if (!value.is_int64() || value.get_int64() < lowest) {
      note(path + key,
           concat("got ", in_brief(value), ", want whole numbers from ", lowest, " on"));
      return {};
    }
    numbers.push_back(value.get_int64());
  }
  return numbers;
}

std::vector<std::int64_t> SpecReading::budgets(const Object& object, const std::string& path) {
  const std::vector<std::int64_t> budgets = whole_numbers(object, "budgets", path, 1);
  for (std::size_t i = 1; i < budgets.size(); ++i) {
    if (budgets[i] <= budgets[i - 1])
      note(path + "budgets", concat("got ", budgets[i], " after ", budgets[i - 1],
                                    ", want increasing numbers of steps"));
  }
  return budgets;
}

void SpecReading::read_preset(const std::string& name) {
  if (name.empty()) return;
  try {
    base_ = preset_config(name);
  } catch (const ConfigError&) {
    note("preset", concat("there is no preset \"", name, "\"", name_hint(name, preset_names())));
  }
}

void SpecReading::read_base(const Value& base) {
  if (!base.is_object()) {
    note("base", concat("got ", in_brief(base), ", want {\"model\": {\"layers\": 4}, …}"));
    return;
  }
  try {
    read_config_text(base_, json::serialize(base), "");
  } catch (const ConfigError& error) {
    for (const std::string& problem : error.problems()) {
      // ":1: training.stps: unknown key": the line is of a text that nobody wrote.
      const std::string rest = problem.substr(problem.find(": ") + 2);
      const std::size_t end = rest.find(": ");
      note("base." + rest.substr(0, end), rest.substr(end + 2));
    }
  }
}

std::vector<double> SpecReading::read_sweep(const Value& sweep, const std::string& path,
                                            std::string& key) {
  if (!sweep.is_object() || sweep.get_object().size() != 1) {
    note(path,
         "want one key with the values to try, {\"optimizer.learning_rate\": [1e-3, 2e-3, 4e-3]}; "
         "a comparison sweeps one key");
    return {};
  }
  const auto& [name, list] = *sweep.get_object().begin();
  key = std::string(name);
  if (is_of_a_run(key)) {
    note(path, key + " is set by the comparison: give budgets and seeds");
    return {};
  }
  if (!list.is_array() || list.get_array().empty()) {
    note(path, concat(key, ": want a list of at least one number"));
    return {};
  }
  std::set<double> values;
  for (const Value& value : list.get_array()) {
    if (!value.is_number()) {
      note(path, concat(key, ": got ", in_brief(value), ", want numbers"));
      return {};
    }
    if (!values.insert(value.to_number<double>()).second)
      note(path, concat(key, ": ", in_brief(value), " stands there twice"));
  }
  return {values.begin(), values.end()};
}

void SpecReading::read_settings(const Value& settings, const std::string& path,
                                ComparisonArm& arm) {
  if (!settings.is_object()) {
    note(path, concat("got ", in_brief(settings), ", want {\"optimizer.name\": \"muon\"}"));
    return;
  }
  for (const auto& [name, value] : settings.get_object()) {
    const std::string key(name);
    if (is_of_a_run(key) || key == spec_.sweep_key) {
      note(path, concat(key, is_of_a_run(key)
                                 ? " is set by the comparison: give budgets and seeds"
                                 : " is swept: give the arm a \"sweep\" of its own instead"));
      continue;
    }
    try {
      set_field(arm.config, key,
                value.is_string() ? std::string(value.get_string()) : json::serialize(value));
    } catch (const ConfigError& error) {
      for (const std::string& problem : error.problems()) note(path, problem);
    }
  }
}

void SpecReading::read_command(const Value& command, const std::string& path, ComparisonArm& arm) {
  bool is_good = command.is_array() && !command.get_array().empty();
  for (const Value& part : is_good ? command.get_array() : json::array()) {
    is_good = is_good && part.is_string();
    if (is_good) arm.command.emplace_back(part.get_string());
  }
  // The zero character would end an argument.
  const bool is_whole = std::all_of(arm.command.begin(), arm.command.end(), [](const auto& part) {
    return part.find('\0') == std::string::npos;
  });
  if (is_good && is_whole && !arm.command[0].empty()) return;
  note(path,
       "want a program and its arguments, [\"python3\", \"train.py\", \"{data}\", \"{seed}\"]");
  arm.command = {"?"};
}

void SpecReading::read_arm(const Object& object, const std::string& path) {
  check_keys(object, path + ".", {"name", "set", "command", "sweep", "budgets"});
  ComparisonArm arm;
  arm.config = base_;
  arm.name = text(object, "name", path + ".");
  if (!arm.name.empty() && !is_folder_name(arm.name))
    note(path + ".name",
         concat("got ", in_brief(json::string(arm.name)), ", which names a folder: ",
                "want at most 64 of A-Z a-z 0-9 _ - + . , beginning with none of - ."));
  const Value *settings = object.if_contains("set"), *command = object.if_contains("command");
  if ((settings == nullptr) == (command == nullptr))
    note(path, concat("has ", settings == nullptr ? "neither" : "both", " of \"set\" and ",
                      "\"command\"; want one: settings of this program ({} for none), or another"));
  arm.budgets = object.contains("budgets") ? budgets(object, path + ".") : spec_.budgets;
  arm.sweep = sweep_;
  if (const Value* own = object.if_contains("sweep")) {
    std::string key;
    arm.sweep = read_sweep(*own, path + ".sweep", key);
    if (spec_.sweep_key.empty() && spec_.arms.empty()) spec_.sweep_key = key;
    if (!key.empty() && key != spec_.sweep_key)
      note(path + ".sweep", spec_.sweep_key.empty()
                                ? "the first arm has none: every arm gets as many trials"
                                : concat("got ", key, ", the others sweep ", spec_.sweep_key));
  }
  if (settings != nullptr) read_settings(*settings, path + ".set", arm);
  if (command != nullptr) read_command(*command, path + ".command", arm);
  spec_.arms.push_back(std::move(arm));
}

void SpecReading::read_arms(const Object& root) {
  const Value* arms = root.if_contains("arms");
  if (arms == nullptr || !arms->is_array() || arms->get_array().empty()) {
    note("arms", arms == nullptr ? "is missing"
                                 : "want a list of at least one {\"name\": …, \"set\": {…}}");
    return;
  }
  std::size_t index = 0;
  for (const Value& arm : arms->get_array()) {
    const std::string path = concat("arms[", index++, "]");
    if (arm.is_object()) {
      read_arm(arm.get_object(), path);
    } else {
      note(path, concat("got ", in_brief(arm), ", want {\"name\": …, \"set\": {…}}"));
    }
  }
}

/// What does not go with the spec's ranks.
std::vector<std::string> SpecReading::problems_over_ranks(const ComparisonArm& arm,
                                                          const HybridTrainerConfig& config) const {
  if (arm.is_program() || (spec_.ranks == 1 && !config.phases.lacks_other_ranks())) return {};
  try {
    check_ranks(config, spec_.ranks);
    return {};
  } catch (const ConfigError& error) {
    return error.problems();
  }
}

/// Each run's configuration, for each swept value once.
void SpecReading::check_configs(const ComparisonArm& arm, const std::string& at) {
  std::set<std::string> told;
  const auto values = arm.sweep.empty()
                          ? std::vector<std::optional<double>>{std::nullopt}
                          : std::vector<std::optional<double>>{arm.sweep.begin(), arm.sweep.end()};
  for (const auto& value : values) {
    try {
      for (const std::int64_t steps : {arm.budgets.front(), spec_.pace ? spec_.pace->steps : 0}) {
        if (steps == 0) continue;
        const RunPoint point{steps, spec_.seeds.front(), value};
        const HybridTrainerConfig config = spec_.config_of(arm, point);
        for (const std::string& problem : config.problems()) told.insert(problem);
        for (const std::string& problem : problems_over_ranks(arm, config)) told.insert(problem);
      }
    } catch (const ConfigError& error) {
      for (const std::string& problem : error.problems()) told.insert("sweep: " + problem);
    }
  }
  for (const std::string& problem : told) note(at, problem);
}

void SpecReading::check_arms() {
  std::set<std::string> names;
  for (std::size_t i = 0; i < spec_.arms.size(); ++i) {
    const ComparisonArm& arm = spec_.arms[i];
    const std::string at = concat("arms[", i, "]");
    if (!arm.name.empty() && !names.insert(arm.name).second)
      note(at + ".name", concat("\"", arm.name, "\" is another arm's name, too"));
    const std::size_t trials = spec_.arms.front().sweep.size();
    if (!spec_.sweep_key.empty() && arm.sweep.size() != trials)
      note(at + ".sweep", concat("got ", arm.sweep.size(), " values, want ", trials,
                                 " as in the first arm: every arm gets as many trials"));
    if (arm.is_program() && !spec_.sweep_key.empty() && spec_.sweep_key != kLearningRate)
      note(at, concat("is a program, which is swept by ", kLearningRate, " alone"));
    if (!arm.budgets.empty() && !spec_.seeds.empty()) check_configs(arm, at);
  }
}

void SpecReading::read_pace(const Value& pace) {
  if (!pace.is_object()) {
    note("pace", concat("got ", in_brief(pace), ", want {\"steps\": 24, \"rounds\": 5}"));
    return;
  }
  const Object& object = pace.get_object();
  check_keys(object, "pace.", {"steps", "rounds"});
  const auto number = [&](const char* key) -> std::int64_t {
    const Value* value = object.if_contains(key);
    if (value != nullptr && value->is_int64() && value->get_int64() > 0) return value->get_int64();
    note(concat("pace.", key),
         value == nullptr ? "is missing"
                          : concat("got ", in_brief(*value), ", want a whole number from 1 on"));
    return 1;
  };
  spec_.pace = ComparisonPace{number("steps"), number("rounds")};
}

void SpecReading::read_ranks(const Value& ranks) {
  constexpr std::int64_t kMost = 64;
  if (ranks.is_int64() && ranks.get_int64() >= 1 && ranks.get_int64() <= kMost) {
    spec_.ranks = static_cast<int>(ranks.get_int64());
  } else {
    note("ranks", concat("got ", in_brief(ranks), ", want a whole number from 1 to ", kMost));
  }
}

void SpecReading::read_target(const Value& target) {
  if (target.is_null()) return;
  if (target.is_number() && target.to_number<double>() > 0) {
    spec_.target_loss = target.to_number<double>();
  } else {
    note("target_validation_loss", concat("got ", in_brief(target), ", want a loss above 0"));
  }
}

ComparisonSpec SpecReading::read(const Object& root) {
  check_keys(root, "",
             {"data", "preset", "base", "budgets", "arms", "seeds", "sweep",
              "target_validation_loss", "pace", "ranks"});
  spec_.data = text(root, "data", "");
  if (root.contains("preset")) read_preset(text(root, "preset", ""));
  if (const Value* base = root.if_contains("base")) read_base(*base);
  spec_.seeds = whole_numbers(root, "seeds", "", 0);
  if (std::set<std::int64_t>(spec_.seeds.begin(), spec_.seeds.end()).size() != spec_.seeds.size())
    note("seeds", "a seed stands there twice: its run would count twice");
  spec_.budgets = root.contains("budgets") ? budgets(root, "")
                                           : std::vector<std::int64_t>{base_.training.steps};
  if (const Value* sweep = root.if_contains("sweep"))
    sweep_ = read_sweep(*sweep, "sweep", spec_.sweep_key);
  if (const Value* target = root.if_contains("target_validation_loss")) read_target(*target);
  if (const Value* pace = root.if_contains("pace")) read_pace(*pace);
  if (const Value* ranks = root.if_contains("ranks")) read_ranks(*ranks);
  read_arms(root);
  check_arms();
  return spec_;
}

}  // namespace hybrid_trainer
