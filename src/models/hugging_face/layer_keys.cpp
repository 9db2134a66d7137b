#include "src/models/hugging_face/layer_keys.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "hybrid_trainer/models/decoder.h"
#include "src/files/json.h"
#include "src/models/hugging_face/config_reader.h"

namespace hybrid_trainer {

namespace {

constexpr const char* kStepLimits = "time_step_limit";
constexpr const char* kIndices = "attn_layer_indices";
constexpr const char* kInterval = "full_attention_interval";

std::string letters_of_types(ConfigReader& reader, const json::value& types, std::int64_t layers,
                             char mixer) {
  LayerWords words{{"linear_attention", mixer}, {"full_attention", 'a'}};
  if (mixer == 'm') words.insert(words.end(), {{"mamba", 'm'}, {"attention", 'a'}});
  return letters_of_layers(reader, types, layers, words);
}

std::string letters_of_indices(ConfigReader& reader, std::int64_t layers, char mixer) {
  std::string letters(static_cast<std::size_t>(layers), mixer);
  if (const json::value* indices = reader.find(kIndices))
    set_letters(reader, kIndices, *indices, 'a', letters);
  return letters;
}

std::string letters_of_interval(ConfigReader& reader, std::int64_t layers, char mixer) {
  std::int64_t interval = 4;
  reader.read(interval, kInterval, 4);
  std::string letters(static_cast<std::size_t>(layers), mixer);
  for (std::int64_t i = interval - 1; i < layers; i += interval)
    letters[static_cast<std::size_t>(i)] = 'a';
  return letters;
}

/// Reads the head size. Adds a problem if heads · head size is not the inner width, expand · width.
void read_head_size(ConfigReader& reader, ModelConfig& model, const MambaKeys& keys) {
  std::int64_t expand = 2;
  reader.read(expand, keys.expand, 2);
  StateSpaceConfig& sizes = model.state_space;
  const std::int64_t channels = expand * model.width,
                     heads = std::max<std::int64_t>(sizes.heads, 1);
  const json::value* value = reader.find(keys.head_size);
  const bool is_missing = value == nullptr;
  if ((is_missing && !keys.missing_head_size) || (value != nullptr && *value == "auto")) {
    sizes.head_size = channels / heads;
  } else {
    reader.read(sizes.head_size, keys.head_size, keys.missing_head_size);
  }
  if (model.mixers.find('m') == std::string::npos && !model.mixers.empty()) return;
  if (channels == heads * sizes.head_size) return;
  reader.problem(concat(keys.expand, ": got ", expand, ", which gives ", channels,
                        " channels for the width ", model.width, ", but ", heads, " heads of ",
                        sizes.head_size, " have ", heads * sizes.head_size,
                        "; want the same number"));
}

void read_step_limits(ConfigReader& reader, StateSpaceConfig& sizes) {
  const json::value* value = reader.find(kStepLimits);
  if (value == nullptr) return;
  const json::array* list = value->if_array();
  const auto number = [&](std::size_t i) {
    return list != nullptr && list->size() == 2 ? number_of((*list)[i]) : std::nullopt;
  };
  const std::optional<double> least = number(0), most = number(1);
  if (!least || !most || !(*least >= 0) || !(*most > *least) || std::isinf(*least))
    return reader.refuse(kStepLimits, *value,
                         "two numbers of at least 0, the larger one last; it may be Infinity");
  sizes.least_step = *least;
  sizes.most_step = std::isinf(*most) ? 0 : *most;
}

json::array types_of(const ModelConfig& model, MixerKeys keys) {
  const bool uses_old_names = keys == MixerKeys::kLayerTypes;  // both versions know these words
  json::array types;
  for (std::int64_t i = 0; i < model.layers; ++i) {
    const bool attends = kind_of_layer(model.mixers, i) == 'a';
    types.emplace_back(attends ? (uses_old_names ? "attention" : "full_attention")
                               : (uses_old_names ? "mamba" : "linear_attention"));
  }
  return types;
}

void read_mixer_keys(ConfigReader& reader, ModelConfig& model, MixerKeys keys, char mixer) {
  const std::int64_t layers = model.layers;
  std::string letters;
  if (keys == MixerKeys::kAttentionLayers) {
    letters = letters_of_indices(reader, layers, mixer);
  } else {
    letters = std::string(static_cast<std::size_t>(layers), mixer);
    if (keys == MixerKeys::kAttentionInterval) letters = letters_of_interval(reader, layers, mixer);
    const json::value* types = reader.find("layer_types|layers_block_type");
    if (types != nullptr) letters = letters_of_types(reader, *types, layers, mixer);
  }
  model.mixers = repeating_pattern(letters);
}

void write_mixer_keys(json::object& config, const ModelConfig& model, MixerKeys keys) {
  if (keys != MixerKeys::kAttentionLayers) {
    config["layer_types"] = types_of(model, keys);
    return;
  }
  json::array indices;
  for (std::int64_t i = 0; i < model.layers; ++i)
    if (kind_of_layer(model.mixers, i) == 'a') indices.emplace_back(i);
  config[kIndices] = indices;
}

void write_mamba_keys(json::object& config, const ModelConfig& model, const MambaKeys& keys) {
  const StateSpaceConfig& sizes = model.state_space;
  const std::int64_t channels = sizes.heads * sizes.head_size;
  const bool is_divisible = channels % model.width == 0;
  if (!is_divisible && model.mixers.find('m') != std::string::npos)
    throw DataError(concat("a folder of a ", model.family, " model cannot store ", sizes.heads,
                           " heads of ", sizes.head_size, ": their ", channels,
                           " channels must be a whole multiple of the width, ", model.width,
                           " (model.state_space.heads, head_size)"));
  config[keys.head_size] = sizes.head_size;
  if (is_divisible) config[keys.expand] = channels / model.width;
  if (sizes.least_step == 0 && sizes.most_step == 0) return;  // same as a missing key
  const double most =
      sizes.most_step > 0 ? sizes.most_step : std::numeric_limits<double>::infinity();
  config[kStepLimits] = json::array{sizes.least_step, named_float(most)};
}

constexpr const char* kChosen = "num_experts_per_tok";
constexpr const char* kBalance = "router_aux_loss_coef";
constexpr const char* kWantsBalance = "output_router_logits";
constexpr const char* kPlainLayers = "mlp_only_layers";
constexpr const char* kSparseStep = "decoder_sparse_step";
constexpr double kSharpness = 1.702;  // sharpness of kernels::ClampedGate
constexpr const char* kNoise = "router_jitter_noise";

bool is_zero(const json::value& value) {
  return value.is_number() && value.to_number<double>() == 0;
}

/// Returns the letters of the layers, which mark layers with experts.
std::string letters_of_experts(ConfigReader& reader, std::int64_t layers) {
  std::int64_t step = 1;
  reader.read(step, kSparseStep, 1);
  std::string letters(static_cast<std::size_t>(layers), 'f');
  for (std::int64_t i = step - 1; i < layers; i += step) letters[static_cast<std::size_t>(i)] = 'e';
  if (const json::value* plain = reader.find(kPlainLayers))
    set_letters(reader, kPlainLayers, *plain, 'f', letters);
  return letters;
}

/// Checks that a number has the same value under several names.
void check_names_agree(ConfigReader& reader, const std::string& keys) {
  const std::size_t bar = keys.find('|');
  if (bar == std::string::npos) return;
  const json::value *one = reader.find(keys.substr(0, bar)),
                    *other = reader.find(keys.substr(bar + 1));
  if (one != nullptr && other != nullptr && *one != *other)
    reader.refuse(
        keys.substr(bar + 1), *other,
        concat("the same value as ", keys.substr(0, bar), ", ", json_line(*one).substr(0, 60)));
}

void rule_key(ConfigKeys& keys, ModelConfig& model, const ExpertKeys& names) {
  std::string& rule = model.experts.rule;
  bool sums_to_one = keys.reader() != nullptr || rule == names.rule_of_sum;
  if (keys.reader() == nullptr && !sums_to_one &&
      (names.sums_to_one.empty() || rule != names.plain_rule))
    throw DataError(concat("a folder of a ", model.family,
                           " model cannot store model.experts.rule=", rule,
                           ": readers would weight the experts differently"));
  if (!names.sums_to_one.empty())
    keys.member(names.sums_to_one, sums_to_one, names.missing_sums_to_one);
  if (keys.reader() != nullptr) rule = sums_to_one ? names.rule_of_sum : names.plain_rule;
}

void read_layers(ConfigReader& reader, ModelConfig& model) {
  model.experts.layers = repeating_pattern(letters_of_experts(reader, model.layers));
  if (model.experts.layers == "e") model.experts.layers.clear();
}

/// Reads the balance loss, which transformers adds only if it returns the router's logits.
void read_balance(ConfigReader& reader, ExpertConfig& experts, const ExpertKeys& keys) {
  double factor = 0;
  bool is_wanted = false;
  reader.read(factor, kBalance, keys.missing_balance);
  reader.read(is_wanted, kWantsBalance, 0);
  if (factor < 0) reader.problem(concat(kBalance, ": got ", factor, ", want 0 or more"));
  experts.balance_loss = is_wanted ? factor : 0;
}

void read_limits(ConfigReader& reader, ExpertConfig& experts, const ExpertKeys& names) {
  if (names.gate_limit.empty()) return;
  reader.read(experts.gate_limit, names.gate_limit, 7);
  reader.expect("swiglu_alpha", {kSharpness});
  check_names_agree(reader, concat(kChosen, "|experts_per_token"));
  for (const char* key : {"experts_per_token", "initial_context_length"}) reader.know(key);
}

void write_layers(json::object& config, const ModelConfig& model) {
  json::array plain;
  for (std::int64_t i = 0; i < model.layers; ++i)
    if (!has_experts(model.experts, i)) plain.emplace_back(i);
  config[kPlainLayers] = plain;
  config[kSparseStep] = 1;
}

}  // namespace

void mixer_keys(ConfigKeys& keys, ModelConfig& model, MixerKeys mixers, char mixer) {
  if (ConfigReader* const reader = keys.reader())
    return read_mixer_keys(*reader, model, mixers, mixer);
  write_mixer_keys(keys.written(), model, mixers);
}

void mamba_keys(ConfigKeys& keys, ModelConfig& model, const MambaKeys& mamba) {
  ConfigReader* const reader = keys.reader();
  if (reader == nullptr) return write_mamba_keys(keys.written(), model, mamba);
  read_head_size(*reader, model, mamba);
  read_step_limits(*reader, model.state_space);
}

void expert_keys(ConfigKeys& keys, ModelConfig& model, const ExpertKeys& names) {
  ExpertConfig& experts = model.experts;
  ConfigReader* const reader = keys.reader();
  const auto is_zero_in_file = [&](const std::string& key) {
    const json::value* value = reader == nullptr ? nullptr : reader->find(key);
    return value != nullptr && is_zero(*value);
  };
  if (names.zero_means_dense && is_zero_in_file(names.count))
    return keys.inert({names.intermediate_size, names.shared_width, names.sums_to_one, kChosen,
                       kBalance, kWantsBalance, kPlainLayers, kSparseStep});
  keys.member(names.count, experts.count, names.missing_count);
  if (reader == nullptr && experts.count == 0) return;
  if (reader != nullptr) check_names_agree(*reader, names.count);
  keys.member(kChosen, experts.chosen, names.missing_chosen);
  if (reader != nullptr && experts.chosen > experts.count)
    reader->problem(concat(kChosen, ": got ", experts.chosen, ", want at most ",
                           first_key(names.count), ", ", experts.count));
  keys.member(names.intermediate_size, experts.intermediate_size, names.missing_intermediate_size);
  if (!names.shared_width.empty() && !is_zero_in_file(names.shared_width))
    keys.member(names.shared_width, experts.shared_width, names.missing_shared_width);
  rule_key(keys, model, names);
  if (reader != nullptr) {
    read_limits(*reader, experts, names);
    if (names.has_dense_layers) read_layers(*reader, model);
    read_balance(*reader, experts, names);
    const json::value* noise = reader->find(kNoise);
    if (noise != nullptr && !is_zero(*noise))
      reader->refuse(kNoise, *noise, "0: noise on router inputs is not supported");
    return;
  }
  json::object& config = keys.written();
  if (!names.gate_limit.empty()) config[names.gate_limit] = experts.gate_limit;
  if (names.has_dense_layers) write_layers(config, model);
  config[kBalance] = experts.balance_loss > 0 ? experts.balance_loss : names.missing_balance;
  config[kWantsBalance] = experts.balance_loss > 0;
}

void scale_keys(ConfigKeys& keys, ModelConfig& model) {
  keys.member("embedding_multiplier", model.embedding_scale, 1);
  keys.member("residual_multiplier", model.residual_scale, 1);
  keys.reciprocal("logits_scaling", model.logit_scale);
  keys.reciprocal_root("attention_multiplier", model.query_scalar);
}

void written_of_attention(ConfigKeys& keys, const ModelConfig& model) {
  keys.write_only("initializer_range", model.initializer_range.value_or(0.02));
  keys.write_only("attention_dropout", 0.0);
}

void silu_key(ConfigKeys& keys) { keys.fixed("hidden_act", {"silu", "swish"}); }

}  // namespace hybrid_trainer
