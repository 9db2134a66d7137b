#include "src/tools/network_rows.h"

#include <algorithm>
#include <boost/json.hpp>
#include <iostream>

#include "hybrid_trainer/core/error.h"
#include "hybrid_trainer/files/pretty_json.h"
#include "hybrid_trainer/hugging_face/hugging_face.h"
#include "hybrid_trainer/run_folder/run_files.h"
#include "hybrid_trainer/tasks/network_data.h"

namespace hybrid_trainer {
namespace {

bool is_run(const std::filesystem::path& folder) {
  return !folder.empty() && RunPaths{folder.string()}.hold_a_run();
}

/// Of a folder with config.json, or a run; none of a folder with a tokenizer alone.
HybridTrainerConfig config_of(const NetworkRows& asked) {
  HybridTrainerConfig config;
  if (is_run(asked.model)) {
    config = config_of_run(RunPaths{asked.model.string()});
  } else if (std::filesystem::exists(asked.model / "config.json")) {
    config.model = read_hugging_face_model_config(asked.model, 0);
  }
  const bool is_set = asked.source.names_a_source() || !asked.source.settings.empty();
  if (is_set) config = build_config(asked.source, config);
  if (!asked.columns.empty()) config.data.columns = asked.columns;
  return config;
}

void print(const DataFacts& facts) {
  std::size_t widest = 0;
  for (const auto& [name, value] : facts) widest = std::max(widest, name.size());
  for (const auto& [name, value] : facts)
    std::cout << name << std::string(widest + 2 - name.size(), ' ') << value << "\n";
}

boost::json::object as_json(const DataFacts& facts) {
  boost::json::object object;
  for (const auto& [name, value] : facts) object[name] = value;
  return object;
}

}  // namespace

bool are_of_network(const NetworkRows& asked) {
  return !find_family(config_of(asked).model.family).is_of_language;
}

void show_network_rows(const NetworkRows& asked) {
  HybridTrainerConfig config = config_of(asked);
  const auto data = opened_data({.config = config,
                                 .data = asked.data,
                                 .model = asked.model,
                                 .is_trained = is_run(asked.model)});
  config = data->completed(config);
  const DataFacts facts =
      asked.shown ? data->example(*asked.shown, config) : data->contents(config);
  if (asked.json) {
    boost::json::object line = as_json(facts);
    if (!asked.shown) {
      line = {{"data", data->description()},
              {"contents", std::move(line)},
              {"notes", boost::json::value_from(data->notes())}};
    }
    std::cout << json_line(line) << "\n";
    return;
  }
  if (!asked.shown) {
    std::cout << data->description() << "\n";
    for (const std::string& note : data->notes()) std::cerr << note << "\n";
  }
  print(facts);
}

}  // namespace hybrid_trainer
