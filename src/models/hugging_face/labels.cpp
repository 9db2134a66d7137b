#include "src/models/hugging_face/labels.h"

#include <algorithm>
#include <charconv>

namespace hybrid_trainer {

namespace {

constexpr std::int64_t kMissingClasses = 2, kMaxClasses = 1 << 20;

/// Parses the whole text as a number, else returns nullopt.
std::optional<std::int64_t> whole_number(std::string_view text) {
  std::int64_t number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc{} || end != text.data() + text.size()) return {};
  return number;
}

}  // namespace

std::vector<ClassLabel> read_labels(ConfigReader& reader) {
  const json::object* names = reader.find_object("id2label");
  reader.know("label2id");
  std::vector<ClassLabel> labels;
  if (names == nullptr || names->empty()) {
    std::int64_t count = kMissingClasses;
    reader.read(count, "num_labels", kMissingClasses);
    for (std::int64_t i = 0; i < std::min(count, kMaxClasses); ++i)
      labels.push_back({concat("LABEL_", i)});
    return labels;
  }
  reader.know("num_labels");
  labels.resize(names->size());
  std::vector<bool> are_present(names->size());
  for (const auto& [key, value] : *names) {
    const auto number = whole_number(key);
    const bool fits = number && *number >= 0 && *number < std::ssize(labels) && value.is_string();
    if (!fits || are_present[static_cast<std::size_t>(*number)]) {
      reader.problem(concat("id2label: got ", std::string_view(key).substr(0, 60), ": ",
                            json_line(value).substr(0, 60),
                            ", want a name for each index from 0 to ", labels.size() - 1));
      return labels;
    }
    are_present[static_cast<std::size_t>(*number)] = true;
    labels[static_cast<std::size_t>(*number)].name = value.get_string();
  }
  return labels;
}

void write_labels(json::object& config, const std::vector<ClassLabel>& labels) {
  json::object names, numbers;
  for (std::size_t i = 0; i < labels.size(); ++i) {
    names[std::to_string(i)] = labels[i].name;
    numbers[labels[i].name] = i;
  }
  config["id2label"] = std::move(names);
  config["label2id"] = std::move(numbers);
}

}  // namespace hybrid_trainer
