#include "src/compare/spec_reading.h"

#include <algorithm>
#include <boost/json/serialize.hpp>
#include <set>

#include "hybrid_trainer/config/presets.h"
#include "hybrid_trainer/core/error.h"
#include "hybrid_trainer/core/nearest_name.h"
#include "hybrid_trainer/files/pretty_json.h"
#include "hybrid_trainer/io/json_fields.h"
#include "src/compare/spec_checks.h"

namespace hybrid_trainer {
namespace json = boost::json;
namespace {

constexpr std::size_t kLongestName = 64;
constexpr std::size_t kMostArms = 1000;     // each is a whole configuration
constexpr std::size_t kMostProblems = 100;  // looking for the nearest names takes time

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

}  // namespace

std::vector<std::int64_t> SpecReading::budgets(const Object& object, const std::string& path) {
  const std::vector<std::int64_t> budgets = problems_.whole_numbers(object, "budgets", path, 1);
  for (std::size_t i = 1; i < budgets.size(); ++i) {
    if (budgets[i] <= budgets[i - 1])
      problems_.note(path + "budgets", concat("got ", budgets[i], " after ", budgets[i - 1],
                                              ", want increasing numbers of steps"));
  }
  return budgets;
}

void SpecReading::read_preset(const std::string& name) {
  if (name.empty()) return;
  try {
    base_ = preset_config(name);
  } catch (const ConfigError&) {
    problems_.note("preset",
                   concat("there is no preset \"", name, "\"", name_hint(name, preset_names())));
  }
}

void SpecReading::read_base(const Value& base) {
  if (!base.is_object()) {
    problems_.note("base",
                   concat("got ", in_brief(base), ", want {\"model\": {\"layers\": 4}, …}"));
    return;
  }
  try {
    read_config_text(base_, json::serialize(base), "");
  } catch (const ConfigError& error) {
    for (const std::string& problem : error.problems()) {
      // ":1: training.stps: unknown key": the line is of a text that nobody wrote.
      const std::string rest = problem.substr(problem.find(": ") + 2);
      const std::size_t end = rest.find(": ");
      problems_.note("base." + rest.substr(0, end), rest.substr(end + 2));
    }
  }
}

std::vector<double> SpecReading::read_sweep(const Value& sweep, const std::string& path,
                                            std::string& key) {
  if (!sweep.is_object() || sweep.get_object().size() != 1) {
    problems_.note(
        path,
        "want one key with the values to try, {\"optimizer.learning_rate\": [1e-3, 2e-3, 4e-3]}; "
        "a comparison sweeps one key");
    return {};
  }
  const auto& [name, list] = *sweep.get_object().begin();
  key = std::string(name);
  if (is_of_a_run(key)) {
    problems_.note(path, key + " is set by the comparison: give budgets and seeds");
    return {};
  }
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
      problems_.note(path, concat(key, ": ", in_brief(value), " stands there twice"));
  }
  return {values.begin(), values.end()};
}

void SpecReading::read_settings(const Value& settings, const std::string& path,
                                ComparisonArm& arm) {
  if (!settings.is_object()) {
    problems_.note(path,
                   concat("got ", in_brief(settings), ", want {\"optimizer.name\": \"muon\"}"));
    return;
  }
  for (const auto& [name, value] : settings.get_object()) {
    if (problems_.all().size() >= kMostProblems) return;
    const std::string key(name);
    if (is_of_a_run(key) || key == spec_.sweep_key) {
      problems_.note(
          path,
          concat(key, is_of_a_run(key) ? " is set by the comparison: give budgets and seeds"
                                       : " is swept: give the arm a \"sweep\" of its own instead"));
      continue;
    }
    try {
      set_field(arm.config, key,
                value.is_string() ? std::string(value.get_string()) : json::serialize(value));
    } catch (const ConfigError& error) {
      for (const std::string& problem : error.problems()) problems_.note(path, problem);
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
  problems_.note(
      path,
      "want a program and its arguments, [\"python3\", \"train.py\", \"{data}\", \"{seed}\"]");
  arm.command = {"?"};
}

void SpecReading::read_arm(const Object& object, const std::string& path) {
  problems_.check_keys(object, path + ".", {"name", "set", "command", "sweep", "budgets"});
  ComparisonArm arm;
  arm.config = base_;
  arm.name = problems_.text(object, "name", path + ".");
  if (!arm.name.empty() && !is_folder_name(arm.name))
    problems_.note(path + ".name",
                   concat("got ", in_brief(json::string(arm.name)), ", which names a folder: ",
                          "want at most 64 of A-Z a-z 0-9 _ - + . , beginning with none of - ."));
  const Value *settings = object.if_contains("set"), *command = object.if_contains("command");
  if ((settings == nullptr) == (command == nullptr))
    problems_.note(
        path, concat("has ", settings == nullptr ? "neither" : "both", " of \"set\" and ",
                     "\"command\"; want one: settings of this program ({} for none), or another"));
  arm.budgets = object.contains("budgets") ? budgets(object, path + ".") : spec_.budgets;
  arm.sweep = sweep_;
  if (const Value* own = object.if_contains("sweep")) {
    std::string key;
    arm.sweep = read_sweep(*own, path + ".sweep", key);
    if (spec_.sweep_key.empty() && spec_.arms.empty()) spec_.sweep_key = key;
    if (!key.empty() && key != spec_.sweep_key)
      problems_.note(path + ".sweep",
                     spec_.sweep_key.empty()
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
    problems_.note("arms", arms == nullptr
                               ? "is missing"
                               : "want a list of at least one {\"name\": …, \"set\": {…}}");
    return;
  }
  const std::size_t count = arms->get_array().size();
  if (count > kMostArms)
    return problems_.note("arms", concat("got ", count, " of them, want at most ", kMostArms));
  std::size_t index = 0;
  for (const Value& arm : arms->get_array()) {
    const std::string path = concat("arms[", index++, "]");
    if (arm.is_object()) {
      read_arm(arm.get_object(), path);
    } else {
      problems_.note(path, concat("got ", in_brief(arm), ", want {\"name\": …, \"set\": {…}}"));
    }
  }
}

void SpecReading::read_pace(const Value& pace) {
  if (!pace.is_object()) {
    problems_.note("pace", concat("got ", in_brief(pace), ", want {\"steps\": 24, \"rounds\": 5}"));
    return;
  }
  const Object& object = pace.get_object();
  problems_.check_keys(object, "pace.", {"steps", "rounds"});
  const auto number = [&](const char* key) -> std::int64_t {
    const Value* value = object.if_contains(key);
    if (value != nullptr && value->is_int64() && value->get_int64() > 0) return value->get_int64();
    problems_.note(concat("pace.", key),
                   value == nullptr
                       ? "is missing"
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
    problems_.note("ranks",
                   concat("got ", in_brief(ranks), ", want a whole number from 1 to ", kMost));
  }
}

void SpecReading::read_target(const Value& target) {
  if (target.is_null()) return;
  if (target.is_number() && target.to_number<double>() > 0) {
    spec_.target_loss = target.to_number<double>();
  } else {
    problems_.note("target_validation_loss",
                   concat("got ", in_brief(target), ", want a loss above 0"));
  }
}

ComparisonSpec SpecReading::read(const Object& root) {
  problems_.check_keys(root, "",
                       {"data", "preset", "base", "budgets", "arms", "seeds", "sweep",
                        "target_validation_loss", "pace", "ranks"});
  spec_.data = problems_.text(root, "data", "");
  if (root.contains("preset")) read_preset(problems_.text(root, "preset", ""));
  if (const Value* base = root.if_contains("base")) read_base(*base);
  spec_.seeds = problems_.whole_numbers(root, "seeds", "", 0);
  if (std::set<std::int64_t>(spec_.seeds.begin(), spec_.seeds.end()).size() != spec_.seeds.size())
    problems_.note("seeds", "a seed stands there twice: its run would count twice");
  spec_.budgets = root.contains("budgets") ? budgets(root, "")
                                           : std::vector<std::int64_t>{base_.training.steps};
  if (const Value* sweep = root.if_contains("sweep"))
    sweep_ = read_sweep(*sweep, "sweep", spec_.sweep_key);
  if (const Value* target = root.if_contains("target_validation_loss")) read_target(*target);
  if (const Value* pace = root.if_contains("pace")) read_pace(*pace);
  if (const Value* ranks = root.if_contains("ranks")) read_ranks(*ranks);
  read_arms(root);
  check_arms(spec_, problems_);
  return spec_;
}

}  // namespace hybrid_trainer
