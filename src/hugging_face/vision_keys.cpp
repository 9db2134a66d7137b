#include "src/hugging_face/vision_keys.h"

#include <algorithm>
#include <charconv>
#include <map>

#include "hybrid_trainer/core/error.h"
#include "hybrid_trainer/files/pretty_json.h"

namespace hybrid_trainer {
namespace json = boost::json;
namespace {

constexpr std::int64_t kMissingClasses = 2, kMostClasses = 1 << 20;

void read_side(ConfigReader& reader, std::int64_t& to, const char* key, double missing) {
  const json::value* value = reader.find(key);
  const json::array* sides = value == nullptr ? nullptr : value->if_array();
  if (sides == nullptr) return reader.read(to, key, missing);
  to = 1;
  const bool are_equal = sides->size() == 2 && (*sides)[0] == (*sides)[1] &&
                         (*sides)[0].is_int64() && (*sides)[0].get_int64() > 0;
  if (!are_equal) return reader.refuse(key, *value, "a whole number from 1 on, of both sides");
  to = (*sides)[0].get_int64();
}

/// The number that a text is as a whole; none where it is something else.
std::optional<std::int64_t> whole_number(std::string_view text) {
  std::int64_t number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc{} || end != text.data() + text.size()) return {};
  return number;
}

void read_labels(ConfigReader& reader, ModelConfig& model) {
  const json::object* names = reader.find_object("id2label");
  reader.know("label2id");
  std::vector<ClassLabel>& labels = model.vision.labels;
  if (names == nullptr || names->empty()) {
    std::int64_t count = kMissingClasses;
    reader.read(count, "num_labels", kMissingClasses);
    for (std::int64_t i = 0; i < std::min(count, kMostClasses); ++i)
      labels.push_back({concat("LABEL_", i)});
    return;
  }
  reader.know("num_labels");
  labels.resize(names->size());
  std::vector<bool> are_there(names->size());
  for (const auto& [key, value] : *names) {
    const auto number = whole_number(key);
    const bool fits = number && *number >= 0 && *number < std::ssize(labels) && value.is_string();
    if (!fits || are_there[static_cast<std::size_t>(*number)])
      return reader.problem(concat("id2label: got ", std::string_view(key).substr(0, 60), ": ",
                                   json_line(value).substr(0, 60),
                                   ", want a name for each of 0 to ", labels.size() - 1));
    are_there[static_cast<std::size_t>(*number)] = true;
    labels[static_cast<std::size_t>(*number)].name = value.get_string();
  }
}

}  // namespace

void read_vision_keys(ConfigReader& reader, ModelConfig& model, const HuggingFaceLayout& layout) {
  if (layout.classifier.empty()) return;
  read_side(reader, model.vision.image_size, "image_size", 224);
  read_side(reader, model.vision.patch_size, "patch_size", 16);
  read_labels(reader, model);
  constexpr const char* kOneOfAll = "single_label_classification";
  const json::value* problem = reader.find("problem_type");
  if (problem != nullptr && *problem != json::value(kOneOfAll))
    reader.refuse("problem_type", *problem, concat('"', kOneOfAll, "\" or no such key"));
}

void write_vision_keys(json::object& config, const ModelConfig& model,
                       const HuggingFaceLayout& layout) {
  if (layout.classifier.empty()) return;
  config["image_size"] = model.vision.image_size;
  config["patch_size"] = model.vision.patch_size;
  json::object names, numbers;
  for (std::size_t i = 0; i < model.vision.labels.size(); ++i) {
    names[std::to_string(i)] = model.vision.labels[i].name;
    numbers[model.vision.labels[i].name] = i;
  }
  config["id2label"] = std::move(names);
  config["label2id"] = std::move(numbers);
}

bool has_other_labels(const ModelConfig& theirs, const ModelConfig& ours) {
  return theirs.vision.labels != ours.vision.labels;
}

}  // namespace hybrid_trainer
