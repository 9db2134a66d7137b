#include "hybrid_trainer/compare/comparison_spec.h"

#include <algorithm>
#include <boost/json/serialize.hpp>

#include "hybrid_trainer/core/error.h"
#include "hybrid_trainer/files/pretty_json.h"
#include "hybrid_trainer/files/strict_json.h"
#include "hybrid_trainer/files/text_file.h"
#include "hybrid_trainer/io/json_fields.h"
#include "src/compare/spec_reading.h"

namespace hybrid_trainer {
namespace json = boost::json;
namespace fs = std::filesystem;
namespace {

json::object parsed_spec(const std::string& text, const std::string& name, JsonKeys& keys) {
  try {
    const json::value value = parse_json_text(text, name, keys);
    if (value.is_object()) return value.get_object();
  } catch (const DataError& error) {
    throw ConfigError({error.what()});
  }
  throw ConfigError({name + ": want an object {\"data\": …, \"arms\": […], \"seeds\": […]}"});
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

/// What a key holds; null where it is absent.
const json::value& value_at(const json::object& object, std::string_view key) {
  static const json::value absent;
  const json::value* value = object.if_contains(key);
  return value == nullptr ? absent : *value;
}

/// Elements of the list `key` that `now` lacks.
std::vector<std::string> gone(const json::object& before, const json::object& now,
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

std::int64_t ComparisonSpec::sweep_seed() const {
  std::int64_t seed = 0;
  while (std::find(seeds.begin(), seeds.end(), seed) != seeds.end()) ++seed;
  return seed;
}

HybridTrainerConfig ComparisonSpec::config_of(const ComparisonArm& arm,
                                              const RunPoint& point) const {
  HybridTrainerConfig config = arm.config;
  config.training.steps = point.steps;
  config.training.seed = point.seed;
  if (point.value) set_field(config, sweep_key, shortest(*point.value));
  return config;
}

std::vector<std::string> ComparisonSpec::command_of(const ComparisonArm& arm, const RunPoint& point,
                                                    const fs::path& output) const {
  const std::pair<const char*, std::string> places[] = {
      {"{seed}", std::to_string(point.seed)},
      {"{steps}", std::to_string(point.steps)},
      {"{learning_rate}", shortest(config_of(arm, point).optimizer.learning_rate)},
      {"{data}", data.string()},
      {"{output}", output.string()}};
  std::vector<std::string> command = arm.command;
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
    problems.note(duplicate.path, concat("the key stands there twice (line ", duplicate.line, ")"));
  ComparisonSpec spec = SpecReading(problems).read(root);
  if (!problems.all().empty()) throw ConfigError(std::move(problems.all()));
  spec.folder = fs::absolute(file).lexically_normal().parent_path();
  spec.data = (spec.folder / spec.data).lexically_normal();
  if (!fs::exists(spec.data)) {
    throw MissingInput(concat(file.string(), ": data: there is no ", spec.data.string(),
                              "; make it with hybrid prepare (a relative path is against the "
                              "spec's folder)"));
  }
  root["data"] = spec.data.string();
  spec.text = pretty_json(root) + "\n";
  return spec;
}

void check_same_comparison(const std::string& before_text, const std::string& now_text) {
  JsonKeys keys;
  const json::object before = parsed_spec(before_text, "spec.json", keys),
                     now = parsed_spec(now_text, "spec", keys);
  std::vector<std::string> problems;
  for (const char* key : {"data", "preset", "base", "sweep", "target_validation_loss"}) {
    if (value_at(before, key) == value_at(now, key)) continue;
    problems.push_back(concat(key, ": was ", json_line(value_at(before, key)), ", is now ",
                              json_line(value_at(now, key))));
  }
  const auto ranks = [](const json::object& spec) {
    return spec.contains("ranks") ? json::serialize(spec.at("ranks")) : std::string("1");
  };
  if (ranks(before) != ranks(now))
    problems.push_back(concat("ranks: was ", ranks(before), ", is now ", ranks(now)));
  for (const char* key : {"seeds", "budgets", "arms"}) {
    for (const std::string& element : gone(before, now, key))
      problems.push_back(concat(key, ": ", element, " was changed or taken out"));
  }
  if (before.contains("budgets") != now.contains("budgets"))
    problems.emplace_back("budgets: were given in one of the two specs alone");
  if (problems.empty()) return;
  problems.emplace_back(
      "what was run answers another question: --resume allows more variants, seeds and budgets; "
      "give "
      "another --output for this spec");
  throw ConfigError(std::move(problems));
}

}  // namespace hybrid_trainer
