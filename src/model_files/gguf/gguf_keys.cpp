#include "src/model_files/gguf/gguf_keys.h"

#include <charconv>
#include <type_traits>

#include "src/files/foreign_files.h"
#include "src/models/hugging_face/config_reader.h"

namespace hybrid_trainer {

namespace {

json::value json_of_value(const GgufValue& value) {
  return std::visit(
      [&](const auto& held) {
        if constexpr (std::is_arithmetic_v<std::decay_t<decltype(held)>>) {
          return json::value(held);
        } else if constexpr (std::is_same_v<std::decay_t<decltype(held)>, std::string>) {
          return json::value(held);
        } else {
          json::array list;
          for (std::size_t i = 0; i < held.size(); ++i) list.emplace_back(held[i]);
          return json::value(std::move(list));
        }
      },
      value.content);
}

}  // namespace

double as_written(double value) {
  char text[32];
  const auto end = std::to_chars(text, text + sizeof(text), static_cast<float>(value));
  double meant = value;
  std::from_chars(text, end.ptr, meant);
  return static_cast<float>(meant) == static_cast<float>(value) ? meant : value;
}

std::string GgufKeys::key(const char* name) const {
  read_.insert(name);
  return concat(architecture_, ".", name);
}

void GgufKeys::refuse(const std::string& what) const {
  throw DataError(
      concat(file_.path().string(), ": ", what, "; use the model's Hugging Face folder instead"));
}

void GgufKeys::refuse_missing(const char* name) const {
  throw DataError(concat(file_.path().string(), ": ", key(name), " is missing; copy the file ",
                         "again, or convert the model again"));
}

std::int64_t GgufKeys::count(const char* name) const {
  const auto found = file_.count(key(name));
  if (!found) refuse_missing(name);
  return *found;
}

double GgufKeys::number(const char* name) const {
  const auto found = file_.number(key(name));
  if (!found) refuse_missing(name);
  return as_written(*found);
}

std::int64_t GgufKeys::count(const char* name, std::int64_t missing) const {
  return file_.count(key(name)).value_or(missing);
}

double GgufKeys::number(const char* name, double missing) const {
  return as_written(file_.number(key(name)).value_or(missing));
}

std::int64_t GgufKeys::layers() const {
  const std::int64_t layers = count("block_count");
  if (layers < 1 || layers > kMaxLayers)
    refuse(concat(key("block_count"), " is ", layers, ", want 1 to ", kMaxLayers));
  return layers;
}

std::vector<std::int64_t> GgufKeys::counts_of_layers(const char* name) const {
  const auto wanted = static_cast<std::size_t>(layers());
  const GgufValue* value = file_.find(key(name));
  if (value == nullptr || !value->is_array()) return std::vector(wanted, count(name));
  std::vector<std::int64_t> counts = file_.counts(key(name));
  if (counts.size() != wanted)
    refuse(concat(key(name), " has ", counts.size(), " elements for ", wanted, " layers"));
  return counts;
}

std::vector<bool> GgufKeys::windows(std::int64_t layers, std::int64_t usual,
                                    bool full_is_last) const {
  const std::string name = key("attention.sliding_window_pattern");
  const GgufValue* value = file_.find(name);
  if (value != nullptr && value->is_array()) {
    std::vector<bool> found =
        value->kind == GgufKind::kBool ? file_.flags(name) : std::vector<bool>();
    if (value->kind != GgufKind::kBool)
      for (const std::int64_t one : file_.counts(name)) found.push_back(one != 0);
    if (static_cast<std::int64_t>(found.size()) < layers)
      refuse(concat(name, " has ", found.size(), " elements for ", layers, " layers"));
    found.resize(static_cast<std::size_t>(layers));
    return found;
  }
  const std::int64_t period = count("attention.sliding_window_pattern", usual);
  if (period < 1) refuse(concat(name, " is ", period));
  std::vector<bool> found;
  for (std::int64_t i = 0; i < layers; ++i)
    found.push_back(full_is_last ? i % period < period - 1 : i % period > 0);
  return found;
}

void GgufKeys::check_unread() const {
  const std::string prefix = concat(architecture_, ".");
  json::object values;
  for (const auto& [name, value] : file_.values())
    if (name.starts_with(prefix)) values[name.substr(prefix.size())] = json_of_value(value);
  const UnreadKeys unread = sort_unread_keys(values, ForeignFile::kGguf, read_);
  if (!unread.problems.empty())
    refuse(concat(prefix, join(unread.problems, ("; " + prefix).c_str())));
  std::vector<std::string> unknown;
  for (const std::string& name : unread.unknown) unknown.push_back(prefix + name);
  warn_of_unknown_keys(file_.path().string(), unknown);
}

json::array layer_types_of(const std::vector<bool>& has_window) {
  json::array types;
  for (const bool one : has_window)
    types.emplace_back(one ? "sliding_attention" : "full_attention");
  return types;
}

}  // namespace hybrid_trainer
