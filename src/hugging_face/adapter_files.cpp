#include "hybrid_trainer/hugging_face/adapter_files.h"

#include <algorithm>
#include <boost/json.hpp>
#include <set>

#include "hybrid_trainer/core/error.h"
#include "hybrid_trainer/core/warning.h"
#include "hybrid_trainer/files/output_file.h"
#include "hybrid_trainer/files/output_folder.h"
#include "hybrid_trainer/files/pretty_json.h"
#include "hybrid_trainer/io/safetensors.h"
#include "src/hugging_face/adapter_tensors.h"
#include "src/hugging_face/file_layout.h"

namespace hybrid_trainer {
namespace fs = std::filesystem;
namespace json = boost::json;
namespace {

/// The targets as PEFT wants them: the last parts of all names where all linear maps are meant.
json::array target_modules(LanguageModel& model, const LoraConfig& config) {
  std::set<std::string> names;
  if (config.targets == kAllLinear) {
    model.visit_linears([&](Linear& linear) {
      if (linear.adapter() == nullptr) return;
      for (const AdapterPart& part : linear.adapter()->parts())
        names.insert(part.name.substr(part.name.rfind('.') + 1));
    });
  } else {
    for (const std::string& target : config.target_names()) names.insert(target);
  }
  json::array array;
  for (const std::string& name : names) array.emplace_back(name);
  return array;
}

bool lies_transposed(LanguageModel& model) {
  bool transposed = false;
  model.visit_linears([&](Linear& linear) {
    if (linear.adapter() != nullptr) transposed = linear.adapter()->parts().front().transposed;
  });
  return transposed;
}

void warn_of_modules(LanguageModel& model, const HuggingFaceLayout& layout,
                     const fs::path& folder) {
  const json::array targets = target_modules(model, {.targets = kAllLinear});
  std::vector<std::string> modules;
  for (const std::string& module : layout.not_adapted)
    if (std::ranges::find(targets, json::value(module)) != targets.end()) modules.push_back(module);
  if (modules.empty()) return;
  warn(folder.string(),
       concat("PEFT does not open adapters of ", join(modules), " over a ", layout.model_type,
              " model; merge them into it for other programs (--merge), or train with ",
              "lora.targets without them"));
}

std::string config_text(LanguageModel& model, const LoraConfig& config, const std::string& base) {
  return pretty_json(json::object{{"peft_type", "LORA"},
                                  {"task_type", "CAUSAL_LM"},
                                  {"base_model_name_or_path", base},
                                  {"revision", nullptr},
                                  {"inference_mode", true},
                                  {"r", config.rank},
                                  {"lora_alpha", config.alpha},
                                  {"lora_dropout", config.dropout},
                                  {"target_modules", target_modules(model, config)},
                                  {"bias", "none"},
                                  {"fan_in_fan_out", lies_transposed(model)},
                                  {"use_rslora", has_root_scale(config.variant)},
                                  {"use_dora", is_decomposed(config.variant)},
                                  {"init_lora_weights", true},
                                  {"modules_to_save", nullptr},
                                  {"rank_pattern", json::object{}},
                                  {"alpha_pattern", json::object{}},
                                  {"layers_to_transform", nullptr},
                                  {"layers_pattern", nullptr}});
}

}  // namespace

void write_adapter(LanguageModel& model, const LoraConfig& config, const std::string& base,
                   const fs::path& folder, const Stream& stream, const ModelRegistry& registry) {
  warn_of_modules(model, find_family(model.config().family, registry).hugging_face, folder);
  std::vector<NamedTensor> tensors;
  for (const AdapterTensor& tensor : tensors_of_adapters(model)) {
    const Tensor values = wait_for_host(tensor.parameter->acquire_master(stream), stream);
    const Tensor rows = values.rows(tensor.first_row, tensor.first_row + tensor.rows);
    tensors.push_back({tensor.name, reordered(rows, tensor.order, RowsTo::kFile)});
  }
  OutputFolder output((folder / "").parent_path(), OutputFolder::Existing::kRefuse);
  const std::string to = output.create().string();
  replace_file(to + "/" + kAdapterConfig, config_text(model, config, base));
  write_safetensors(to + "/" + kAdapterTensors, std::move(tensors));
  output.commit();
}

bool holds_adapter(const fs::path& folder) {
  std::error_code error;
  return fs::exists(folder / kAdapterConfig, error);
}

}  // namespace hybrid_trainer
