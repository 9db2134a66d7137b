#include "hybrid_trainer/hugging_face/adapter_files.h"

#include <algorithm>
#include <boost/json.hpp>
#include <map>
#include <set>

#include "hybrid_trainer/core/error.h"
#include "hybrid_trainer/core/warning.h"
#include "hybrid_trainer/files/output_file.h"
#include "hybrid_trainer/files/output_folder.h"
#include "hybrid_trainer/files/pretty_json.h"
#include "hybrid_trainer/io/safetensors.h"
#include "src/hugging_face/adapter_tensors.h"
#include "src/hugging_face/file_layout.h"
#include "src/hugging_face/fused_adapters.h"

namespace hybrid_trainer {
namespace fs = std::filesystem;
namespace json = boost::json;
namespace {

/// What adapters of the model are of, as PEFT wants it told.
struct AdaptedModules {
  std::set<std::string> modules{}, parameters{};
  std::int64_t rank_of_experts = 0;

  explicit AdaptedModules(LanguageModel& model) {
    for (const AdapterTensor& tensor : tensors_of_adapters(model)) {
      if (tensor.experts > 1) rank_of_experts = tensor.rank;
      if (tensor.is_fused) {
        parameters.insert(tensor.is_last ? "experts.down_proj" : "experts.gate_up_proj");
      } else {
        modules.insert(tensor.module.substr(tensor.module.rfind('.') + 1));
      }
    }
  }
};

json::array array_of(const std::set<std::string>& names) {
  json::array array;
  for (const std::string& name : names) array.emplace_back(name);
  return array;
}

/// The last parts of all names where all linear maps are meant.
json::array target_modules(const AdaptedModules& adapted, const LoraConfig& config) {
  if (config.targets == kAllLinear) return array_of(adapted.modules);
  std::set<std::string> names;
  for (const std::string& target : config.target_names())
    if (target != kExpertTargets) names.insert(target);
  if (config.targets.find(kExpertTargets) != std::string::npos)
    names.insert(adapted.modules.begin(), adapted.modules.end());
  return array_of(names);
}

/// Names of modules and of PEFT's parameters for all experts together, in which gate and up are one of
/// twice the rank.
constexpr const char *kEachExpert = ".*\\.experts\\.\\d+\\..*",
                     *kGateAndUp = ".*\\.experts\\.gate_up_proj",
                     *kDown = ".*\\.experts\\.down_proj";

bool has_rank_of_experts(const AdaptedModules& adapted, const LoraConfig& config) {
  return adapted.rank_of_experts != 0 && adapted.rank_of_experts != config.rank;
}

/// Of experts, where it is another one.
json::object rank_pattern(const AdaptedModules& adapted, const LoraConfig& config) {
  const std::int64_t rank = adapted.rank_of_experts;
  if (!has_rank_of_experts(adapted, config)) return {};
  if (!adapted.parameters.empty()) return {{kGateAndUp, rank}, {kDown, rank}};
  return {{kEachExpert, rank}, {kGateAndUp, 2 * rank}, {kDown, rank}};
}

json::object alpha_pattern(const AdaptedModules& adapted, const LoraConfig& config) {
  if (!has_rank_of_experts(adapted, config) || !adapted.parameters.empty()) return {};
  return {{kGateAndUp, 2 * config.alpha}};
}

/// Of modules, whose adapters PEFT turns as they lie; those of parameters it does not.
bool lies_transposed(LanguageModel& model) {
  bool transposed = false;
  model.visit_linears([&](Linear& linear) {
    if (linear.adapter() == nullptr) return;
    const AdapterPart& part = linear.adapter()->parts().front();
    if (part.experts == 1) transposed = part.transposed;
  });
  return transposed;
}

/// Of adapters that have the names of experts', which PEFT looks for among experts alone.
void warn_of_dense_layers(LanguageModel& model, const fs::path& folder) {
  std::set<std::string> of_experts, of_layers;
  for (const AdapterTensor& tensor : tensors_of_adapters(model))
    (tensor.experts > 1 ? of_experts : of_layers)
        .insert(tensor.module.substr(tensor.module.rfind('.') + 1));
  std::vector<std::string> both;
  std::ranges::set_intersection(of_experts, of_layers, std::back_inserter(both));
  if (both.empty()) return;
  warn(folder.string(),
       concat("PEFT 0.21 over transformers 5 leaves out adapters of ", join(both),
              " in layers without experts; merge them for other programs (--merge)"));
}

void warn_of_modules(LanguageModel& model, const HuggingFaceLayout& layout,
                     const fs::path& folder) {
  const json::array targets = array_of(AdaptedModules(model).modules);
  warn_of_dense_layers(model, folder);
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
  const AdaptedModules adapted(model);
  return pretty_json(json::object{
      {"peft_type", "LORA"},
      {"task_type", "CAUSAL_LM"},
      {"base_model_name_or_path", base},
      {"revision", nullptr},
      {"inference_mode", true},
      {"r", config.rank},
      {"lora_alpha", config.alpha},
      {"lora_dropout", config.dropout},
      {"target_modules", target_modules(adapted, config)},
      {"target_parameters",
       adapted.parameters.empty() ? json::value() : json::value(array_of(adapted.parameters))},
      {"bias", "none"},
      {"fan_in_fan_out", lies_transposed(model)},
      {"use_rslora", has_root_scale(config.variant)},
      {"use_dora", is_decomposed(config.variant)},
      {"init_lora_weights", true},
      {"modules_to_save", nullptr},
      {"rank_pattern", rank_pattern(adapted, config)},
      {"alpha_pattern", alpha_pattern(adapted, config)},
      {"layers_to_transform", nullptr},
      {"layers_pattern", nullptr}});
}

/// The tensors of the file: of experts that are one module there all together.
std::vector<NamedTensor> tensors_of_file(LanguageModel& model, const Stream& stream) {
  const Stream host(MemoryPool::create("host"));
  std::vector<NamedTensor> tensors;
  std::map<std::string, Tensor> of_all;
  for (const AdapterTensor& tensor : tensors_of_adapters(model)) {
    const Tensor values = wait_for_host(tensor.parameter->acquire_master(stream), stream);
    const Tensor rows = reordered(values.rows(tensor.first_row, tensor.first_row + tensor.rows),
                                  tensor.order, RowsTo::kFile);
    if (!tensor.is_fused) {
      tensors.push_back({tensor.name, rows});
      continue;
    }
    Tensor& whole = of_all[tensor.name];
    if (!whole)
      whole = Tensor::zeros(whole_shape(tensor), DType::kF32, MemoryKind::kWorkspace, host);
    write_expert(whole, tensor, rows);
  }
  for (const auto& [name, tensor] : of_all) tensors.push_back({name, tensor});
  return tensors;
}

}  // namespace

void write_adapter(LanguageModel& model, const LoraConfig& config, const std::string& base,
                   const fs::path& folder, const Stream& stream, const ModelRegistry& registry) {
  warn_of_modules(model, find_family(model.config().family, registry).hugging_face, folder);
  std::vector<NamedTensor> tensors = tensors_of_file(model, stream);
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
