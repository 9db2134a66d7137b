#include "src/trainer/run_model.h"

#include <functional>

#include "hybrid_trainer/core/error.h"
#include "hybrid_trainer/core/warning.h"
#include "hybrid_trainer/hugging_face/hugging_face.h"
#include "hybrid_trainer/memory/device_map.h"
#include "hybrid_trainer/models/lora.h"
#include "src/trainer/frozen_weights.h"
#include "src/trainer/part_weights.h"

namespace hybrid_trainer {
namespace {

using HomeOf = std::function<const Stream&(const Parameter& parameter)>;

/// A trained weight of a model whose others are frozen, with `values` (f32 on the host, or simulated).
void hold_trained(Parameter& parameter, const Tensor& values, const Stream& home) {
  const MemoryLabel label(parameter.name());
  const Tensor master =
      Tensor::empty(parameter.shape(), DType::kF32, MemoryKind::kParameters, home);
  if (!home.device().simulated) wait_for_copy(master, values, home);
  parameter.set_storage(std::make_unique<ResidentWeight>(master));
}

/// The forms that lora.base and parts say must be ones that a folder's weights can be held in.
void check_forms(const std::filesystem::path& folder, const PartWeights& weights) {
  for (const std::string& form : weights.forms())
    if (is_quantized_base(form)) form_held(folder, form);  // or throws
}

/// All weights held in the forms that lora.base and parts say; those that are trained at `home`.
std::unique_ptr<Network> make_frozen(const HybridTrainerConfig& config,
                                     const std::optional<std::filesystem::path>& folder,
                                     const Stream& home, const HomeOf& home_of,
                                     const ModelRegistry& registry) {
  const auto seed = static_cast<std::uint64_t>(config.training.seed);
  const PartWeights weights(config);
  const bool has_values = !folder && !home.device().simulated;
  const Stream first(has_values ? MemoryPool::create("host")
                                : MemoryPool::create("nowhere", {}, simulated_memory({})));
  auto model = make_network(config.model, seed, first, registry);
  if (!folder && config.lora.base == kFileBase) {
    require(!has_values && !config.lora.file.empty(), "lora.base: file wants the file");
    return make_frozen(config, config.lora.file, home, home_of, registry);
  }
  weights.check(*model);
  if (folder) {
    check_forms(*folder, weights);
    const std::string in_folder = quantization_of_hugging_face(*folder);
    const auto take = [&](Parameter& parameter, const FolderWeight& weight) {
      const auto form = weights.form_of(parameter.name());
      if (!form) return hold_trained(parameter, weight.values(), home);
      hold_frozen(parameter, weight, *form, in_folder, home_of(parameter));
    };
    const bool replaces = config.lora.replaces_tables;
    read_hugging_face_weights(*folder, *model, config.model, take, registry,
                              replaces ? TokenTables::kReplaced : TokenTables::kRead);
  } else {
    model->visit_parameters([&](Parameter& parameter) {
      const auto form = weights.form_of(parameter.name());
      if (!form) return hold_trained(parameter, parameter.home_master(), home);
      hold_frozen(parameter, parameter.home_master(), *form, home_of(parameter));
    });
  }
  return model;
}

/// Of settings that no weight of the model follows.
void warn_of_unused(const HybridTrainerConfig& config, const DeviceMap& map, Network& model) {
  std::vector<std::string> names;
  model.visit_parameters([&](Parameter& parameter) { names.push_back(parameter.name()); });
  for (const std::string& pattern : map.unmatched(names))
    warn("memory.device_map", concat(pattern, " matches no weight; they are called, for example, ",
                                     names[names.size() / 2]));
  if (!config.has_adapters() || config.lora.expert_rank == 0) return;
  bool has_experts = false;
  model.visit_linears([&](Linear& linear) {
    const bool is_expert = linear.weight().role() == Role::kExpert;
    has_experts = has_experts || (is_expert && linear.adapter() != nullptr);
  });
  if (!has_experts)
    warn("lora.expert_rank", "it changes nothing: lora.targets names no maps of experts");
}

/// Says what loss of pairs of answers the model has, if it is trained on them.
void set_preference(const HybridTrainerConfig& config, Network& model) {
  if (!config.prefers()) return;
  if (model.preference() == nullptr)
    throw ConfigError({concat("objective: got ", config.objective, ", but a model of ",
                              config.model.family, " has no loss of pairs of answers")});
  using Kind = kernels::PreferenceForm::Kind;
  model.preference()->set_form({config.objective == "dpo" ? Kind::kDpo : Kind::kOrpo,
                                static_cast<float>(config.preference_beta)});
}

/// Weights that are trained, and adapters, are made at `home`.
std::unique_ptr<Network> make_with_homes(const HybridTrainerConfig& config,
                                         const std::optional<std::filesystem::path>& folder,
                                         const Stream& home, const HomeOf& home_of,
                                         const ModelRegistry& registry) {
  const auto seed = static_cast<std::uint64_t>(config.training.seed);
  std::unique_ptr<Network> model;
  const PartWeights weights(config);
  if (config.freezes()) {
    model = make_frozen(config, folder, home, home_of, registry);
  } else {
    model = make_network(config.model, seed, home, registry);
    if (folder) read_hugging_face_weights(*folder, *model, config.model, home, registry);
    weights.check(*model);
  }
  if (config.has_adapters())
    add_adapters(*model, config.model, config.lora, seed, home, registry,
                 [&](const std::string& weight) { return weights.rank_of(weight); });
  set_parts(*model, config.parts);
  set_preference(config, *model);
  return model;
}

}  // namespace

BatchForm batch_form(const HybridTrainerConfig& config, std::int64_t examples) {
  return {.examples = examples,
          .sequence_length = config.data.sequence_length,
          .is_rows = config.data.is_rows() || config.prefers(),
          .has_pairs = config.prefers()};
}

std::unique_ptr<Network> make_frozen_model(const ModelConfig& model,
                                           const std::filesystem::path& folder,
                                           const LoraConfig& lora, const Stream& stream,
                                           const Stream& home, const ModelRegistry& registry) {
  HybridTrainerConfig config;
  config.model = model;
  config.lora = lora;
  config.lora.rank = 1;  // which freezes all
  const auto by_role = [&](const Parameter& parameter) -> const Stream& {
    return parameter.role() == Role::kVector ? stream : home;
  };
  return make_frozen(config, folder, stream, by_role, registry);
}

std::unique_ptr<Network> make_run_model(const HybridTrainerConfig& config,
                                        const std::optional<std::filesystem::path>& folder,
                                        const Stream& home, const ModelRegistry& registry) {
  const auto same = [&](const Parameter&) -> const Stream& { return home; };
  return make_with_homes(config, folder, home, same, registry);
}

std::unique_ptr<Network> make_run_model(const HybridTrainerConfig& config,
                                        const std::optional<std::filesystem::path>& folder,
                                        MemoryPlaces& places, const ModelRegistry& registry) {
  const DeviceMap map(config.memory);
  const auto by_map = [&](const Parameter& parameter) -> const Stream& {
    return parameter.role() == Role::kVector ? places.device()
                                             : places.at(map.place_of(parameter.name()));
  };
  auto model = make_with_homes(config, folder, places.at(map.farthest()), by_map, registry);
  warn_of_unused(config, map, *model);
  return model;
}

}  // namespace hybrid_trainer
