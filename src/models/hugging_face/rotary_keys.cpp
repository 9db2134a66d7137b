#include <cmath>

#include "hybrid_trainer/models/decoder.h"
#include "src/core/narrow.h"
#include "src/models/hugging_face/config_reader.h"
#include "src/models/hugging_face/layer_keys.h"

namespace hybrid_trainer {

namespace {

constexpr const char* kFull = "full_attention";
constexpr const char* kSliding = "sliding_attention";
constexpr const char* kPositionType = "position_embedding_type";
constexpr const char* kOriginal = "original_max_position_embeddings";

/// Reads partial_rotary_factor, and accepts keys for image positions, which do not affect texts.
void read_share(ConfigReader& reader, double* share, double missing) {
  if (share == nullptr) return reader.expect("partial_rotary_factor", {1.0, 1});
  reader.read(*share, "partial_rotary_factor", missing);
  for (const char* key : {"mrope_section", "mrope_interleaved"}) reader.know(key);
}

/// Returns longrope's factor as transformers derives it if the file has none.
double longrope_factor(const ModelConfig& model, const RotaryScaling& scaling) {
  return std::max(1.0,
                  static_cast<double>(model.context) /
                      static_cast<double>(std::max<std::int64_t>(scaling.original_context, 1)));
}

void read_factors(ConfigReader& reader, const char* key, std::int64_t pairs,
                  std::vector<double>& factors) {
  const json::value* const value = reader.find(key);
  const json::array* const list = value == nullptr ? nullptr : value->if_array();
  factors.clear();
  if (list != nullptr && std::ssize(*list) == pairs)
    for (const json::value& one : *list)
      if (one.is_number() && one.to_number<double>() > 0)
        factors.push_back(one.to_number<double>());
  if (std::ssize(factors) != pairs)
    reader.refuse(key, value == nullptr ? json::value() : *value,
                  concat("a list of ", pairs, " numbers above 0"));
}

/// Reads longrope's keys. `original`: the original context if it is not among them, else 0.
void read_longrope(ConfigReader& reader, RotaryScaling& scaling, const ModelConfig& model,
                   std::int64_t original) {
  const auto context = static_cast<double>(model.context);
  reader.read(scaling.original_context, kOriginal, context);
  if (original > 0) scaling.original_context = original;
  reader.read(scaling.factor, "factor", longrope_factor(model, scaling));
  reader.read(scaling.attention_factor, "attention_factor", 0);
  const std::int64_t heads = std::max<std::int64_t>(model.heads, 1);
  const std::int64_t head_size = model.head_size > 0 ? model.head_size : model.width / heads;
  const auto turned =
      static_cast<std::int64_t>(model.rotary_share * static_cast<double>(head_size));
  read_factors(reader, "short_factor", turned / 2, scaling.short_factors);
  read_factors(reader, "long_factor", turned / 2, scaling.long_factors);
}

/// Reads one table's rope_scaling or rope_parameters. `original`: see read_longrope.
void read_rope(ConfigReader& reader, const json::object& object, const std::string& name,
               double& theta, RotaryScaling& scaling, const ModelConfig& model,
               std::int64_t original, double* share = nullptr, bool scales_queries = false) {
  ConfigReader inner(object, name + ".");
  inner.read(theta, "rope_theta", theta);
  read_share(inner, share, share == nullptr ? 1 : *share);
  const json::value* type = inner.find("rope_type|type");
  const json::value wanted = type == nullptr ? json::value(scaling.type) : *type;
  scaling.type = wanted.is_string() ? std::string(wanted.get_string()) : "";
  const auto is = [&](const char* kind) { return scaling.type == kind; };
  const std::optional<double> none;
  if (is("su")) scaling.type = "longrope";  // an early name
  if (is("longrope")) {
    read_longrope(inner, scaling, model, original);
  } else if (is("yarn") && inner.find("factor") == nullptr) {
    inner.read(scaling.original_context, kOriginal, none);
    scaling.factor =
        static_cast<double>(model.context) / static_cast<double>(scaling.original_context);
  } else if (is("linear") || is("dynamic") || is("llama3") || is("yarn")) {
    inner.read(scaling.factor, "factor", none);
  } else if (!is("default")) {
    inner.refuse("rope_type", wanted, "default, linear, dynamic, llama3, yarn or longrope");
  }
  if (is("llama3") || is("yarn") || scales_queries) {
    inner.read(scaling.original_context, kOriginal, static_cast<double>(model.context));
  } else {
    inner.know(kOriginal);
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
  if (scales_queries) {
    inner.read(scaling.query_growth, "llama_4_scaling_beta", 0);
    inner.know("max_position_embeddings");
  }
  inner.sort_unread();
  reader.add(inner);
}

void read_rotary_keys(ConfigReader& reader, ModelConfig& model, const RotaryKeys& keys) {
  if (keys.wants_scaling && reader.find_object("rope_scaling") == nullptr &&
      reader.find_object("rope_parameters") == nullptr)
    reader.problem(
        "rope_scaling: is missing, which transformers reads as YaRN; set it, "
        "to {\"rope_type\": \"default\"} for no scaling");
  reader.read(model.rope_theta, keys.theta_key, keys.theta);
  RotaryScaling none;
  double* const of_windows = keys.windows_have_own ? &model.window_rope_theta : nullptr;
  if (of_windows != nullptr) *of_windows = keys.theta;
  if (of_windows != nullptr && keys.window_theta_key != nullptr)
    reader.read(*of_windows, keys.window_theta_key, 1e4);
  std::int64_t original = 0;
  if (keys.original_context > 0)
    reader.read(original, kOriginal, static_cast<double>(keys.original_context));
  const json::object* parameters = reader.find_object("rope_parameters");
  const auto part = [&](const char* name) {
    const json::value* value = parameters == nullptr ? nullptr : parameters->if_contains(name);
    return value == nullptr ? nullptr : value->if_object();
  };
  const json::object *full = part(kFull), *sliding = part(kSliding);
  if (of_windows != nullptr && (full != nullptr || sliding != nullptr)) {
    if (sliding != nullptr)
      read_rope(reader, *sliding, concat("rope_parameters.", kSliding), *of_windows, none, model,
                0);
    if (none.type != "default")
      reader.problem("rope_parameters.sliding_attention.rope_type: want \"default\"");
    parameters = full;
  } else if (of_windows != nullptr && keys.window_theta_key == nullptr &&
             (parameters != nullptr || model.rope_theta != keys.theta)) {
    reader.problem(concat("rope_theta: got ", model.rope_theta, ", want ", keys.theta,
                          " or rope_parameters with full_attention and sliding_attention: "
                          "transformers 4 uses another rope_theta in all layers, and 5 only in "
                          "those without a window"));
  }
  const json::object* scaling = reader.find_object("rope_scaling");
  if (scaling != nullptr && scaling->empty()) scaling = nullptr;
  double* const share = keys.share ? &model.rotary_share : nullptr;
  if (share != nullptr && !keys.share_is_in_parameters) read_share(reader, share, *keys.share);
  if (keys.share_is_in_parameters) {
    model.rotary_share = *keys.share;
    reader.know("partial_rotary_factor");
  }
  // Next to rope_scaling, transformers reads rope_parameters only if these have full_attention.
  if (parameters != nullptr && (scaling == nullptr || of_windows != nullptr))
    read_rope(reader, *parameters, "rope_parameters", model.rope_theta, model.rope_scaling, model,
              original, share, keys.scales_queries);
  if (scaling != nullptr)
    read_rope(reader, *scaling, "rope_scaling", model.rope_theta, model.rope_scaling, model,
              original, share, keys.scales_queries);
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

json::object json_of_longrope(const ModelConfig& model, const RotaryKeys& keys) {
  const RotaryScaling& scaling = model.rope_scaling;
  const auto list = [](const std::vector<double>& factors) {
    return json::array(factors.begin(), factors.end());
  };
  // Version 4 of Phi-3 wants exactly these three keys if it can derive the others.
  json::object object{{"type", scaling.type},
                      {"short_factor", list(scaling.short_factors)},
                      {"long_factor", list(scaling.long_factors)}};
  if (scaling.attention_factor > 0) object["attention_factor"] = scaling.attention_factor;
  if (scaling.factor != longrope_factor(model, scaling)) object["factor"] = scaling.factor;
  if (keys.original_context == 0) object[kOriginal] = scaling.original_context;
  return object;
}

json::object json_of_scaling(const ModelConfig& model, const RotaryKeys& keys) {
  const RotaryScaling& scaling = model.rope_scaling;
  if (scaling.type == "longrope") return json_of_longrope(model, keys);
  json::object object{{"rope_type", scaling.type}};
  if (scaling.type == "default") return object;
  object["factor"] = scaling.factor;
  if (scaling.type == "llama3" || scaling.type == "yarn")
    object[kOriginal] = scaling.original_context;
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
  json::object scaling = json_of_scaling(model, keys);
  if (keys.scales_queries) {
    const std::int64_t original = model.rope_scaling.original_context;
    scaling["original_max_position_embeddings"] = original > 0 ? original : model.context;
    scaling["llama_4_scaling_beta"] = model.rope_scaling.query_growth;
  }
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

/// Writes the base of sliding-window layers, in version 5's form if version 4 has no key for it.
void write_window_theta(json::object& config, const ModelConfig& model, const RotaryKeys& keys) {
  if (keys.window_theta_key != nullptr) {
    config[keys.window_theta_key] = model.window_rope_theta;
    return;
  }
  if (model.rope_theta == keys.theta && model.window_rope_theta == keys.theta) return;
  json::object full = json_of_scaling(model, keys);
  full["rope_theta"] = model.rope_theta;
  config["rope_parameters"] =
      json::object{{kFull, full},
                   {kSliding, {{"rope_type", "default"}, {"rope_theta", model.window_rope_theta}}}};
}

void write_rotary_keys(json::object& config, const ModelConfig& model, const RotaryKeys& keys) {
  config[keys.theta_key] = model.rope_theta;
  write_scaling(config, model, keys);
  if (model.rope_scaling.type == "dynamic")
    config["max_position_embeddings"] = model.rope_scaling.original_context;
  if (keys.original_context > 0)
    config[kOriginal] =
        model.rope_scaling.type == "longrope" ? model.rope_scaling.original_context : model.context;
  if (keys.windows_have_own) write_window_theta(config, model, keys);
  if (keys.share && !keys.share_is_in_parameters)
    config["partial_rotary_factor"] = model.rotary_share;
}

void read_window_keys(ConfigReader& reader, ModelConfig& model, WindowKeys keys,
                      const std::string& pattern, double missing) {
  const json::value* window = reader.find("sliding_window");
  if (window == nullptr || *window != json::value(0))  // 0 means none, as null does
    reader.read_nullable(model.window, "sliding_window", static_cast<double>(missing));
  if (has_window_switch(keys)) {
    bool used = false;
    reader.read(used, "use_sliding_window", 0);
    if (!used) model.window = 0;
  }
  if (keys == WindowKeys::kAllIfEnabled) reader.know("max_window_layers");
  if (covers_all_layers(keys)) return;
  std::string letters = repeated(pattern, model.layers);
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
  const bool differ = model.window_rope_theta > 0;
  if (letters.find('w') == std::string::npos && !differ) model.window = 0;
  if (model.window > 0 || differ) model.window_layers = period_of(letters);
}

void require_windows_in_all_layers(const ModelConfig& model) {
  for (std::int64_t i = 0; i < model.layers && model.window > 0; ++i)
    if (!model.window_layers.empty() && kind_of_layer(model.window_layers, i) != 'w')
      throw DataError(
          concat("a folder of a ", model.family,
                 " model cannot store model.window_layers=", model.window_layers,
                 ": all layers in such a folder have the window; leave out window_layers"));
}

void write_window_keys(json::object& config, const ModelConfig& model, WindowKeys keys) {
  // With a type for each layer, transformers requires a number even if no layer has a window.
  const bool differ = model.window_rope_theta > 0,
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
                 const std::string& pattern, double missing) {
  if (ConfigReader* const reader = keys.reader())
    return read_window_keys(*reader, model, windows, pattern, missing);
  write_window_keys(keys.written(), model, windows);
}

}  // namespace hybrid_trainer
