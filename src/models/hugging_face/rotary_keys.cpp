#include <cmath>

#include "hybrid_trainer/core/error.h"
#include "hybrid_trainer/models/decoder.h"
#include "src/core/narrow.h"
#include "src/models/hugging_face/config_reader.h"
#include "src/models/hugging_face/layer_keys.h"

namespace hybrid_trainer {

namespace json = boost::json;
namespace {

constexpr const char* kFull = "full_attention";
constexpr const char* kSliding = "sliding_attention";
constexpr const char* kPositionType = "position_embedding_type";

/// Reads partial_rotary_factor, and accepts keys for image positions, which do not affect texts.
void read_share(ConfigReader& reader, double* share, double missing) {
  if (share == nullptr) return reader.expect("partial_rotary_factor", {1.0, 1});
  reader.read(*share, "partial_rotary_factor", missing);
  for (const char* key : {"mrope_section", "mrope_interleaved"}) reader.know(key);
}

/// Reads rope_scaling or rope_parameters: one table's settings, and the share of rotating channels.
void read_rope(ConfigReader& reader, const json::object& object, const std::string& name,
               double& theta, RotaryScaling& scaling, std::int64_t context,
               double* share = nullptr) {
  ConfigReader inner(object, name + ".");
  inner.read(theta, "rope_theta", theta);
  read_share(inner, share, share == nullptr ? 1 : *share);
  const json::value* type = inner.find("rope_type|type");
  const json::value wanted = type == nullptr ? json::value(scaling.type) : *type;
  scaling.type = wanted.is_string() ? std::string(wanted.get_string()) : "";
  const auto is = [&](const char* kind) { return scaling.type == kind; };
  const std::optional<double> none;
  if (is("yarn") && inner.find("factor") == nullptr) {
    inner.read(scaling.original_context, "original_max_position_embeddings", none);
    scaling.factor = static_cast<double>(context) / static_cast<double>(scaling.original_context);
  } else if (is("linear") || is("dynamic") || is("llama3") || is("yarn")) {
    inner.read(scaling.factor, "factor", none);
  } else if (!is("default")) {
    inner.refuse("rope_type", wanted, "default, linear, dynamic, llama3 or yarn");
  }
  if (is("llama3") || is("yarn")) {
    inner.read(scaling.original_context, "original_max_position_embeddings",
               static_cast<double>(context));
  } else {
    inner.know("original_max_position_embeddings");
  }
  if (is("llama3")) {
    inner.read(scaling.low_frequency, "low_freq_factor", none);
    inner.read(scaling.high_frequency, "high_freq_factor", none);
  }
  if (is("yarn")) {
    inner.read(scaling.beta_fast, "beta_fast", 32);
    inner.read(scaling.beta_slow, "beta_slow", 1);
    inner.read(scaling.attention_factor, "attention_factor", 0);
    inner.read(scaling.mscale, "mscale", 0);
    inner.read(scaling.mscale_all_dim, "mscale_all_dim", 0);
    inner.read(scaling.truncate, "truncate", 1);
  }
  inner.sort_unread();
  reader.add(inner);
}

void read_rotary_keys(ConfigReader& reader, ModelConfig& model, const RotaryKeys& keys) {
  if (keys.wants_scaling && reader.find_object("rope_scaling") == nullptr &&
      reader.find_object("rope_parameters") == nullptr)
    reader.problem(
        "rope_scaling: is missing, which transformers reads as YaRN with a factor of 32; set it, "
        "to {\"rope_type\": \"default\"} for no scaling");
  reader.read(model.rope_theta, keys.theta_key, keys.theta);
  RotaryScaling none;
  double* const of_windows = keys.windows_have_own ? &model.window_rope_theta : nullptr;
  if (of_windows != nullptr) reader.read(*of_windows, keys.window_theta_key, 1e4);
  const json::object* parameters = reader.find_object("rope_parameters");
  const auto part = [&](const char* name) {
    const json::value* value = parameters == nullptr ? nullptr : parameters->if_contains(name);
    return value == nullptr ? nullptr : value->if_object();
  };
  const json::object *full = part(kFull), *sliding = part(kSliding);
  if (of_windows != nullptr && (full != nullptr || sliding != nullptr)) {
    if (sliding != nullptr)
      read_rope(reader, *sliding, concat("rope_parameters.", kSliding), *of_windows, none,
                model.context);
    if (none.type != "default")
      reader.problem("rope_parameters.sliding_attention.rope_type: want \"default\"");
    parameters = full;
  }
  const json::object* scaling = reader.find_object("rope_scaling");
  if (scaling != nullptr && scaling->empty()) scaling = nullptr;
  double* const share = keys.share ? &model.rotary_share : nullptr;
  if (share != nullptr && !keys.share_is_in_parameters) read_share(reader, share, *keys.share);
  if (keys.share_is_in_parameters) {
    model.rotary_share = *keys.share;
    reader.know("partial_rotary_factor");
  }
  // transformers reads rope_scaling instead of rope_parameters, but in addition to
  // rope_parameters.full_attention.
  if (parameters != nullptr && (scaling == nullptr || of_windows != nullptr))
    read_rope(reader, *parameters, "rope_parameters", model.rope_theta, model.rope_scaling,
              model.context, share);
  if (scaling != nullptr)
    read_rope(reader, *scaling, "rope_scaling", model.rope_theta, model.rope_scaling, model.context,
              share);
  if (model.rope_scaling.type != "dynamic") return;
  model.rope_scaling.original_context = model.context;  // the context is scaled below
  const double context =
      std::round(static_cast<double>(model.context) * std::max(model.rope_scaling.factor, 1.0));
  if (!holds_number<std::int64_t>(context))
    return reader.problem(concat("rope_scaling: gives a context of ", context, " tokens"));
  model.context = narrow<std::int64_t>(context);
}

bool covers_all_layers(WindowKeys keys) {
  return keys == WindowKeys::kAll || keys == WindowKeys::kAllIfEnabled;
}

bool has_window_switch(WindowKeys keys) {
  return keys == WindowKeys::kAllIfEnabled || keys == WindowKeys::kFromLayer ||
         keys == WindowKeys::kUntilLayer;
}

json::object json_of_scaling(const RotaryScaling& scaling) {
  json::object object{{"rope_type", scaling.type}};
  if (scaling.type == "default") return object;
  object["factor"] = scaling.factor;
  if (scaling.type == "llama3" || scaling.type == "yarn")
    object["original_max_position_embeddings"] = scaling.original_context;
  if (scaling.type == "llama3") {
    object["low_freq_factor"] = scaling.low_frequency;
    object["high_freq_factor"] = scaling.high_frequency;
  }
  if (scaling.type == "yarn") {
    object["beta_fast"] = scaling.beta_fast;
    object["beta_slow"] = scaling.beta_slow;
    object["truncate"] = scaling.truncate;
    const auto add = [&](const char* key, double value) {
      if (value > 0) object[key] = value;
    };
    add("attention_factor", scaling.attention_factor);
    add("mscale", scaling.mscale);
    add("mscale_all_dim", scaling.mscale_all_dim);
  }
  return object;
}

/// Writes transformers 4's keys, unless only version 5's can express the share.
void write_scaling(json::object& config, const ModelConfig& model, const RotaryKeys& keys) {
  json::object scaling = json_of_scaling(model.rope_scaling);
  if (keys.share_is_in_parameters && model.rotary_share != *keys.share) {
    scaling["rope_theta"] = model.rope_theta;
    scaling["partial_rotary_factor"] = model.rotary_share;
    config["rope_parameters"] = scaling;
  } else if (model.rope_scaling.type == "default" && !keys.wants_scaling) {
    config["rope_scaling"] = nullptr;
  } else {
    config["rope_scaling"] = scaling;
  }
}

void write_rotary_keys(json::object& config, const ModelConfig& model, const RotaryKeys& keys) {
  config[keys.theta_key] = model.rope_theta;
  write_scaling(config, model, keys);
  if (model.rope_scaling.type == "dynamic")
    config["max_position_embeddings"] = model.rope_scaling.original_context;
  if (keys.windows_have_own) config[keys.window_theta_key] = model.window_rope_theta;
  if (keys.share && !keys.share_is_in_parameters)
    config["partial_rotary_factor"] = model.rotary_share;
}

void read_window_keys(ConfigReader& reader, ModelConfig& model, WindowKeys keys,
                      const std::string& pattern) {
  const json::value* window = reader.find("sliding_window");
  if (window == nullptr || *window != json::value(0))  // 0 means none, as null does
    reader.read_nullable(model.window, "sliding_window", 4096);
  if (has_window_switch(keys)) {
    bool used = false;
    reader.read(used, "use_sliding_window", 0);
    if (!used) model.window = 0;
  }
  if (keys == WindowKeys::kAllIfEnabled) reader.know("max_window_layers");
  if (covers_all_layers(keys)) return;
  std::string letters(static_cast<std::size_t>(model.layers), 'w');
  for (std::size_t i = 0; i < letters.size(); ++i)
    letters[i] = kind_of_layer(pattern, static_cast<std::int64_t>(i));
  if (keys == WindowKeys::kFromLayer || keys == WindowKeys::kUntilLayer) {
    const bool until = keys == WindowKeys::kUntilLayer;
    std::int64_t border = 28;
    const json::value* value = reader.find("max_window_layers");  // may be 0
    if (value != nullptr && value->is_int64()) border = value->get_int64();
    for (std::size_t i = 0; i < letters.size(); ++i) {
      const auto layer = static_cast<std::int64_t>(i);
      const bool has_window = until ? layer < border && layer % 2 == 0 : layer >= border;
      letters[i] = has_window ? 'w' : 'a';
    }
  } else if (keys == WindowKeys::kPeriod) {
    std::int64_t period = 6;
    reader.read(period, "sliding_window_pattern|_sliding_window_pattern", 6);
    for (std::size_t i = 0; i < letters.size(); ++i)
      letters[i] = (static_cast<std::int64_t>(i) + 1) % period == 0 ? 'a' : 'w';
  }
  const json::value* types = reader.find("layer_types");
  if (types != nullptr)
    letters = letters_of_layers(reader, *types, model.layers, {{kFull, 'a'}, {kSliding, 'w'}});
  const bool differ = keys == WindowKeys::kPeriod;
  if (letters.find('w') == std::string::npos && !differ) model.window = 0;
  if (model.window > 0 || differ) model.window_layers = period_of(letters);
}

void require_windows_in_all_layers(const ModelConfig& model) {
  for (std::int64_t i = 0; i < model.layers && model.window > 0; ++i)
    if (!model.window_layers.empty() && kind_of_layer(model.window_layers, i) != 'w')
      throw DataError(concat("a folder of a ", model.family,
                             " model cannot store model.window_layers=", model.window_layers,
                             ": there, all layers have the window; leave out window_layers to "
                             "export"));
}

void write_window_keys(json::object& config, const ModelConfig& model, WindowKeys keys) {
  // With a type for each layer, transformers requires a number even if no layer has a window.
  const bool differ = keys == WindowKeys::kPeriod,
             wants_number = differ || keys == WindowKeys::kLayerTypes;
  config["sliding_window"] = model.window > 0 ? json::value(model.window)
                             : wants_number   ? json::value(model.context)
                                              : json::value();
  if (has_window_switch(keys)) config["use_sliding_window"] = model.window > 0;
  if (covers_all_layers(keys)) return require_windows_in_all_layers(model);
  json::array types;
  std::int64_t first = 0;  // layer with a window
  const bool windows = model.window > 0 || differ;
  for (std::int64_t i = 0; i < model.layers; ++i) {
    const bool window = windows && kind_of_layer(model.window_layers, i) == 'w';
    types.emplace_back(window ? kSliding : kFull);
    if (!window && first == i) ++first;
  }
  config["layer_types"] = types;
  if (keys == WindowKeys::kFromLayer) config["max_window_layers"] = first;
  if (keys == WindowKeys::kUntilLayer) config["max_window_layers"] = model.layers;
}

}  // namespace

void rotary_keys(ConfigKeys& keys, ModelConfig& model, const RotaryKeys& rotary) {
  if (ConfigReader* const reader = keys.reader()) return read_rotary_keys(*reader, model, rotary);
  write_rotary_keys(keys.written(), model, rotary);
}

void position_type_keys(ConfigKeys& keys, ModelConfig& model) {
  ConfigReader* const reader = keys.reader();
  if (reader == nullptr) {
    keys.written()[kPositionType] = model.rotary_share > 0 ? "rope" : "nope";
    return;
  }
  const json::value* type = reader->find(kPositionType);
  const bool rotates = type != nullptr && *type == "rope";
  model.rotary_share = rotates ? 1 : 0;
  if (type != nullptr && !rotates && *type != "nope")
    reader->refuse(kPositionType, *type, "\"rope\", \"nope\" or null");
}

void window_keys(ConfigKeys& keys, ModelConfig& model, WindowKeys windows,
                 const std::string& pattern) {
  if (ConfigReader* const reader = keys.reader())
    return read_window_keys(*reader, model, windows, pattern);
  write_window_keys(keys.written(), model, windows);
}

}  // namespace hybrid_trainer
