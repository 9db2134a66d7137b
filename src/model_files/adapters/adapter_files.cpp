#include "src/model_files/adapters/adapter_files.h"

#include <cmath>

#include "hybrid_trainer/files/input_file.h"
#include "src/core/messages.h"
#include "src/files/json.h"
#include "src/files/output_file.h"
#include "src/files/safetensors.h"
#include "src/model_files/adapters/adapter_config.h"
#include "src/model_files/adapters/adapter_contents.h"
#include "src/model_files/hugging_face/config_files.h"
#include "src/model_files/hugging_face/file_layout.h"
#include "src/model_files/hugging_face/module_weights.h"

namespace hybrid_trainer {

namespace {

/// Removes ".layer" from the name of Granite's router: in PEFT's base, the router is one module.
std::string router_over_peft(std::string name) {
  constexpr std::string_view kHere = ".router.layer";
  if (const std::size_t at = name.find(kHere); at != std::string::npos)
    name.replace(at, kHere.size(), ".router");
  return name;
}

/// Converts a tensor's name to the name that PEFT uses over transformers 5.
std::string name_over_peft(const std::string& name) {
  const std::string in_base = name.substr(std::string_view(kAdapterPrefix).size());
  return router_over_peft(kAdapterPrefix + vit_name_of_5(in_base));
}

/// Removes base_layer from a stacked gate and up map's name. PEFT omits it if the down map has no
/// adapter.
std::string name_alone(std::string name) {
  constexpr std::string_view kBoth = ".experts.base_layer.";
  const std::size_t at = name.find(kBoth);
  return at == std::string::npos ? name : name.replace(at, kBoth.size(), ".experts.");
}

std::string last_part(const std::string& module) { return module.substr(module.rfind('.') + 1); }

struct AdaptedModules {
  std::set<std::string> modules{}, parameters{};
  std::set<std::string> of_experts{};  // last parts of names, for experts with separate modules
  std::set<std::string> of_layers{};   // last parts of names, for modules outside of experts
  std::int64_t rank_of_experts = 0;
  bool names_experts = false;  // `parameters` names the experts, although each expert has modules

  AdaptedModules(Network& model, std::int64_t experts, const HuggingFaceLayout& layout) {
    std::set<std::string> adapted;
    for (const AdapterTensor& tensor : tensors_of_adapters(model, experts)) {
      if (tensor.experts > 1) rank_of_experts = tensor.rank;
      if (tensor.is_fused) {
        parameters.insert(tensor.is_last ? "experts.down_proj" : "experts.gate_up_proj");
      } else {
        adapted.insert(vit_name_of_5(tensor.module));
        (tensor.experts > 1 ? of_experts : of_layers).insert(last_part(tensor.module));
      }
    }
    // Last parts of the names of modules without an adapter. Experts have a separate set, because
    // in PEFT these names select all experts and no other modules.
    std::set<std::string> partly, partly_of_experts;
    model.visit_linears([&](Linear& linear) {
      for (const AdapterPart& part : modules_of(linear, layout)) {
        if (part.experts > 1) continue;
        const std::string name = vit_name_of_5(part.name);
        const bool has_adapter = adapted.contains(name);
        if (has_adapter && linear.weight().role() == Role::kRouter) {
          adapted.erase(name);
          parameters.insert(last_part(router_over_peft(name)) + ".weight");
        } else if (!has_adapter) {
          (expert_of(name) >= 0 ? partly_of_experts : partly).insert(last_part(name));
        }
      }
    });
    names_experts = layout.experts_are_parameters && !of_experts.empty();
    if (names_experts) parameters.insert({"experts.down_proj", "experts.gate_up_proj"});
    for (const std::string& module : adapted) {
      const bool is_one =
          (expert_of(module) >= 0 ? partly_of_experts : partly).contains(last_part(module));
      modules.insert(is_one ? module : last_part(module));
    }
  }
};

json::array array_of(const std::set<std::string>& names) {
  json::array array;
  for (const std::string& name : names) array.emplace_back(name);
  return array;
}

/// Patterns of experts' modules, and of PEFT's stacked ones with gate and up at twice the rank.
constexpr const char *kEachExpert = ".*\\.experts\\.\\d+\\..*",
                     *kGateAndUp = ".*\\.experts\\.gate_up_proj",
                     *kDown = ".*\\.experts\\.down_proj";

/// Returns whether to write the ranks of experts. This is necessary if they differ from the other
/// ranks, or if PEFT would not double the rank for gate and up.
bool stores_expert_ranks(const AdaptedModules& adapted, const LoraConfig& config) {
  const std::int64_t rank = adapted.rank_of_experts;
  return rank != 0 && (rank != config.rank || adapted.names_experts);
}

json::object rank_pattern(const AdaptedModules& adapted, const LoraConfig& config) {
  const std::int64_t rank = adapted.rank_of_experts;
  if (!stores_expert_ranks(adapted, config)) return {};
  if (adapted.of_experts.empty()) return {{kGateAndUp, rank}, {kDown, rank}};
  return {{kEachExpert, rank}, {kGateAndUp, 2 * rank}, {kDown, rank}};
}

/// Returns whether to write the scale alpha/√r in plain LoRA's form, alpha·√r/r. PEFT combines the
/// gate and up of experts into one adapter of twice the rank, where alpha/√(2r) would differ.
bool stores_plain_alpha(const AdaptedModules& adapted, const LoraConfig& config) {
  return has_root_scale(config.variant) && !adapted.of_experts.empty();
}

double stored_alpha(const AdaptedModules& adapted, const LoraConfig& config, std::int64_t rank) {
  return stores_plain_alpha(adapted, config) ? config.alpha * std::sqrt(static_cast<double>(rank))
                                             : config.alpha;
}

json::object alpha_pattern(const AdaptedModules& adapted, const LoraConfig& config) {
  if (!stores_expert_ranks(adapted, config) || adapted.of_experts.empty()) return {};
  const double alpha = stored_alpha(adapted, config, adapted.rank_of_experts);
  if (!stores_plain_alpha(adapted, config)) return {{kGateAndUp, 2 * alpha}};
  return {{kEachExpert, alpha}, {kGateAndUp, 2 * alpha}, {kDown, alpha}};
}

/// Returns whether adapted weights are stored transposed. PEFT transposes modules, not parameters.
bool is_stored_transposed(Network& model) {
  bool transposed = false;
  model.visit_linears([&](Linear& linear) {
    if (linear.adapter() == nullptr) return;
    const AdapterPart& part = linear.adapter()->parts().front();
    if (part.experts == 1) transposed = part.transposed;
  });
  return transposed;
}

/// Warns of adapters in dense layers whose modules are named like experts' modules: PEFT looks for
/// these names only in experts.
void warn_of_dense_layers(const AdaptedModules& adapted, const HuggingFaceLayout& layout,
                          const fs::path& folder) {
  if (layout.experts_are_parameters || !layout.unadaptable.empty()) return;
  std::vector<std::string> both;
  std::ranges::set_intersection(adapted.of_experts, adapted.of_layers, std::back_inserter(both));
  if (both.empty()) return;
  warn(folder.string(),
       concat("PEFT 0.21 with transformers 5 ignores adapters of ", join(both),
              " in layers without experts; merge them for other programs (--merge)"));
}

/// Warns that PEFT combines the gate and up of experts into one adapter for all layers.
void warn_of_single_experts(const AdaptedModules& adapted, const fs::path& folder) {
  if (adapted.of_experts.empty()) return;
  const auto has = [&](const char* name) { return adapted.of_experts.contains(name); };
  const bool lacks_one = has("gate_proj") != has("up_proj") || has("w1") != has("w3");
  const bool are_some = std::ranges::none_of(
      adapted.of_experts, [&](auto& name) { return adapted.modules.contains(name); });
  if (lacks_one || are_some)
    warn(folder.string(),
         "PEFT 0.21 with transformers 5 loads adapters of experts only if all experts have them, "
         "for both gate and up (lora.targets=experts); merge them for other programs (--merge)");
}

void warn_of_modules(Network& model, std::int64_t experts, const HuggingFaceLayout& layout,
                     const fs::path& folder) {
  const AdaptedModules adapted(model, experts, layout);
  warn_of_dense_layers(adapted, layout, folder);
  warn_of_single_experts(adapted, folder);
  std::vector<std::string> modules;
  for (const std::string& module : layout.unadaptable)
    if (adapted.of_layers.contains(module)) modules.push_back(module);
  if (modules.empty()) return;
  warn(folder.string(),
       concat("PEFT does not load adapters of ", join(modules), " of a ", layout.model_type,
              " model; merge them into the model for other programs (--merge), or train with "
              "lora.targets without them"));
}

/// Returns all weights of the modules after pooling, because their folders must be complete.
std::vector<NamedTensor> module_tensors(Network& network, const Stream& stream) {
  std::vector<NamedTensor> tensors;
  network.visit_parameters([&](Parameter& parameter) {
    if (is_of_module(parameter))
      tensors.push_back({parameter.in_files().front().name,
                         wait_for_host(parameter.acquire_master(stream), stream)});
  });
  return tensors;
}

std::vector<NamedTensor> fully_trained_tensors(Network& network, const HuggingFaceLayout& layout,
                                               const Stream& stream) {
  std::vector<NamedTensor> tensors;
  network.visit_parameters([&](Parameter& parameter) {
    if (belongs_to_adapter(parameter) || !parameter.trainable() || is_of_module(parameter)) return;
    const Tensor values = wait_for_host(parameter.acquire_master(stream), stream);
    std::int64_t row = 0;
    for (const FileTensor& part : parameter.in_files()) {
      const std::int64_t begin = std::exchange(row, row + part.rows());
      tensors.push_back({layout.full_name(part), in_file_layout(values.rows(begin, row), part)});
    }
  });
  return tensors;
}

/// Returns the modules of these tensors. PEFT wraps a head of several maps, "classifier.dense" and
/// "classifier.out_proj", as one module.
json::value modules_to_save(const std::vector<NamedTensor>& tensors) {
  std::set<std::string> modules;
  constexpr std::string_view kHead = "classifier.";
  for (const NamedTensor& tensor : tensors)
    modules.insert(tensor.name.substr(
        0, tensor.name.starts_with(kHead) ? kHead.size() - 1 : tensor.name.rfind('.')));
  return modules.empty() ? json::value() : json::value(array_of(modules));
}

/// Returns whether the base is a folder of the layout's outer model, which PEFT then adapts.
bool is_outer_model(const std::string& base, const HuggingFaceLayout& layout) {
  constexpr std::size_t kMaxConfigBytes = 1 << 20;
  const fs::path file = fs::path(base) / "config.json";
  std::error_code error;
  if (layout.outer.model_type.empty() || base.empty() || !fs::exists(file, error)) return false;
  const json::object config = parse_python_object(read_file(file, kMaxConfigBytes), file.string());
  const json::value* const type = config.if_contains("model_type");
  return type != nullptr && *type == json::value(layout.outer.model_type);
}

/// Converts the name of a module or tensor to its name in the outer model.
std::string name_in_outer(const std::string& name) {
  const std::string_view prefix = name.starts_with(kAdapterPrefix) ? kAdapterPrefix : "";
  const std::string in_base = name.substr(prefix.size());
  if (!in_base.starts_with(kAlone)) return name;
  return concat(prefix, kInsideOuter, in_base.substr(kAlone.size()));
}

/// Pattern of all modules outside the text model. PEFT would also adapt those whose names end in a
/// target, or refuse them.
constexpr const char* kOutsideText = "(?!model\\.language_model\\.).*";

std::string config_text(Network& model, std::int64_t experts, const LoraConfig& config,
                        const std::string& base, const HuggingFaceLayout& layout, bool is_outer,
                        const json::value& task, const json::value& whole) {
  const AdaptedModules adapted(model, experts, layout);
  std::set<std::string> targets;
  for (const std::string& module : adapted.modules)
    targets.insert(is_outer ? name_in_outer(module) : module);
  const bool has_roots = has_root_scale(config.variant) && !stores_plain_alpha(adapted, config);
  return pretty_json(json::object{
      {"peft_type", "LORA"},
      {"task_type", task},
      {"base_model_name_or_path", base},
      {"revision", nullptr},
      {"inference_mode", true},
      {"r", config.rank},
      {"lora_alpha", stored_alpha(adapted, config, config.rank)},
      {"lora_dropout", config.dropout},
      {"target_modules", array_of(targets)},
      {"exclude_modules", is_outer ? json::value(kOutsideText) : json::value()},
      {"target_parameters",
       adapted.parameters.empty() ? json::value() : json::value(array_of(adapted.parameters))},
      {"bias", "none"},
      {"fan_in_fan_out", is_stored_transposed(model)},
      {"use_rslora", has_roots},
      {"use_dora", is_decomposed(config.variant)},
      {"init_lora_weights", true},
      {"modules_to_save", whole},
      {"rank_pattern", rank_pattern(adapted, config)},
      {"alpha_pattern", alpha_pattern(adapted, config)},
      {"layers_to_transform", nullptr},
      {"layers_pattern", nullptr}});
}

/// Returns the tensors of the file; stacked experts become one tensor.
std::vector<NamedTensor> tensors_of_file(Network& model, std::int64_t experts,
                                         const Stream& stream) {
  std::vector<NamedTensor> tensors;
  std::map<std::string, Tensor> of_all;
  const std::vector<AdapterTensor> adapters = tensors_of_adapters(model, experts);
  const bool has_last = std::ranges::any_of(
      adapters, [](const AdapterTensor& tensor) { return tensor.is_fused && tensor.is_last; });
  for (const AdapterTensor& tensor : adapters) {
    const Tensor values = wait_for_host(tensor.parameter->acquire_master(stream), stream);
    const Tensor rows = reordered(values.rows(tensor.first_row, tensor.first_row + tensor.rows),
                                  tensor.order, TargetOrder::kFile);
    if (!tensor.is_fused) {
      tensors.push_back({name_over_peft(tensor.name), rows});
      continue;
    }
    Tensor& whole = of_all[has_last ? tensor.name : name_alone(tensor.name)];
    if (!whole)
      whole =
          Tensor::zeros(whole_shape(tensor), DType::kF32, MemoryKind::kWorkspace, host_stream());
    write_expert(whole, tensor, rows);
  }
  for (const auto& [name, tensor] : of_all) tensors.push_back({name, tensor});
  return tensors;
}

std::string task_of(const ModelConfig& model, const ModelFamily& family) {
  if (model.pooling.empty()) return family.purpose.task;
  return model.labels.empty() ? kEmbeddingTask : kClassTask;
}

}  // namespace

void write_adapter(Network& network, const ModelConfig& given, const LoraConfig& config,
                   const std::string& base, const fs::path& folder, const Stream& stream,
                   const ModelRegistry& registry,
                   const std::function<void(const fs::path&)>& finish) {
  const ModelFamily& family = find_family(given.family, registry);
  const ModelConfig model = resolved_model_config(given, registry);
  const HuggingFaceLayout layout = layout_of(model, registry);
  const std::int64_t experts = model.experts.count;
  warn_of_modules(network, experts, layout, folder);
  std::vector<NamedTensor> tensors = tensors_of_file(network, experts, stream);
  std::vector<NamedTensor> whole = fully_trained_tensors(network, layout, stream);
  const bool is_outer = is_outer_model(base, layout);
  if (is_outer)
    for (std::vector<NamedTensor>* const all : {&tensors, &whole})
      for (NamedTensor& tensor : *all) tensor.name = name_in_outer(tensor.name);
  for (const auto& [name, tensor] : whole) tensors.push_back({kAdapterPrefix + name, tensor});
  OutputFolder output((folder / "").parent_path(), OutputFolder::Existing::kRefuse);
  const std::string to = output.create().string();
  replace_file(to + "/" + kAdapterConfig,
               config_text(network, experts, config, base, layout, is_outer,
                           json_or_null(task_of(model, family)), modules_to_save(whole)));
  if ((!layout.classifier.empty() || !model.pooling.empty()) && !model.labels.empty() &&
      !whole.empty()) {
    json::object names;
    for (std::size_t i = 0; i < model.labels.size(); ++i)
      names[std::to_string(i)] = model.labels[i].name;
    if (!model.problem_type.empty()) names[kProblemType] = model.problem_type;
    replace_file(to + "/" + kAdapterLabels, pretty_json(names));
  }
  write_safetensors(to + "/" + kAdapterTensors, std::move(tensors));
  write_module_weights(module_tensors(network, stream), to);
  if (finish) finish(to);
  output.commit();
}

bool holds_adapter(const fs::path& folder) {
  std::error_code error;
  return fs::exists(folder / kAdapterConfig, error);
}

std::string adapters_hint(const fs::path& folder) {
  std::vector<std::string> found;
  std::error_code error;
  for (const auto& entry : fs::directory_iterator(folder, error))
    if (holds_adapter(entry.path())) found.push_back(entry.path().string());
  std::ranges::sort(found);
  return found.empty() ? "" : "; these subfolders contain adapters: " + join(found);
}

}  // namespace hybrid_trainer
