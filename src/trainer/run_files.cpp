#include "hybrid_trainer/trainer/run_files.h"

#include <boost/json.hpp>

#include "hybrid_trainer/core/error.h"
#include "hybrid_trainer/io/checkpoint.h"
#include "hybrid_trainer/io/json_fields.h"
#include "src/io/strict_json.h"

namespace hybrid_trainer {
namespace {

namespace fs = std::filesystem;

std::string data_file(const RunPaths& paths) { return paths.root + "/data.json"; }
std::string tokenizer_folder(const RunPaths& paths) { return paths.root + "/tokenizer"; }

fs::path data_of_run(const RunPaths& paths) {
  const boost::json::value value =
      parse_json_text(read_file(data_file(paths), 1 << 16), data_file(paths));
  const auto* folder = value.is_object() ? value.get_object().if_contains("folder") : nullptr;
  if (folder == nullptr || !folder->is_string())
    throw DataError(data_file(paths) + ": want {\"folder\": \"...\"}");
  return fs::path(std::string(folder->get_string()));
}

}  // namespace

std::string project_version() { return HT_VERSION; }

void write_run_files(const RunPaths& paths, const HybridTrainerConfig& config,
                     const fs::path& data) {
  write_file_atomically(paths.config(), config_json(config));
  const boost::json::object source{{"folder", fs::absolute(data).lexically_normal().string()}};
  write_file_atomically(data_file(paths), boost::json::serialize(source) + "\n");
  for (const char* name : {"tokenizer.json", "vocab.json", "merges.txt"}) {
    const fs::path from = data / name;
    if (!fs::exists(from)) continue;
    fs::create_directories(tokenizer_folder(paths));
    write_file_atomically(tokenizer_folder(paths) + "/" + name,
                          read_file(from.string(), std::size_t{1} << 28));
  }
}

void check_same_model(const RunPaths& paths, const HybridTrainerConfig& config) {
  HybridTrainerConfig before;
  read_config(before, paths.config());
  const FieldNode then = field_tree(std::as_const(before.model)), now = field_tree(config.model);
  std::vector<std::string> problems;
  for (std::size_t i = 0; i < now.fields.size(); ++i) {
    if (then.fields[i].value == now.fields[i].value) continue;
    const auto text = [](const FieldNode& node) {
      if (const auto* integer = std::get_if<std::int64_t>(&node.value)) return concat(*integer);
      return concat(std::get<double>(node.value));
    };
    problems.push_back(concat("model.", now.fields[i].name, ": the run in ", paths.root, " has ",
                              text(then.fields[i]), ", got ", text(now.fields[i]),
                              "; a run keeps its model, another one needs another --run"));
  }
  if (!problems.empty()) throw ConfigError(std::move(problems));
}

TrainedRun load_trained_run(const fs::path& root, const Stream& stream) {
  const RunPaths paths = existing_run(root.string());
  TrainedRun run;
  read_config(run.config, paths.config());
  run.config.validate();
  const FoundCheckpoint found = find_newest_checkpoint(paths.checkpoints());
  run.warnings = found.warnings;
  if (!found.checkpoint) {
    throw MissingInput(concat(root.string(),
                              " holds no checkpoint yet; train it first (hybrid train --run ",
                              root.string(), ")"));
  }
  run.step = found.checkpoint->step;
  run.data = data_of_run(paths);
  if (fs::exists(tokenizer_folder(paths))) run.tokenizer = load_tokenizer(tokenizer_folder(paths));
  run.model = std::make_unique<Gpt2>(run.config.model, 0, stream);
  const Stream host(MemoryPool::create("host"));
  const bool in_place = stream.device().type == DeviceType::kCpu;
  const State state =
      load_checkpoint(*found.checkpoint, in_place ? stream : host, CheckpointPart::kModel);
  run.model->visit_parameters([&](Parameter& parameter) {
    const Tensor& saved = state.tensor("model." + parameter.name);
    if (saved.shape() != parameter.value.shape()) {
      throw DataError(concat(found.checkpoint->path, ": ", parameter.name, " is ",
                             saved.shape().text(), ", the run's config wants ",
                             parameter.value.shape().text()));
    }
    if (in_place) {
      parameter.value = saved;
    } else {
      wait_for_copy(parameter.value, saved, stream);
    }
  });
  return run;
}

}  // namespace hybrid_trainer
