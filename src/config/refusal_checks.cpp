#include "src/config/refusal_checks.h"

#include <algorithm>
#include <cstdlib>

#include "hybrid_trainer/core/error.h"

namespace hybrid_trainer {
namespace {

using Kind = KeyTest::Kind;

struct KeyValue {
  std::string path, text;
};

class KeyValues {
 public:
  KeyValues(const HybridTrainerConfig& config, const std::map<std::string, std::string>& known)
      : tree_(field_tree(config)), known_(known) {}

  /// Of "list[].field", each element's that is not left out.
  std::vector<KeyValue> at(const std::string& key) const {
    if (const auto found = known_.find(key); found != known_.end()) return {{key, found->second}};
    const std::size_t index = key.find("[].");
    const FieldNode* const field = field_at(tree_, key.substr(0, index));
    if (field == nullptr) return {};
    if (index == std::string::npos) return {{key, field_text(*field)}};
    std::vector<KeyValue> values;
    const std::string name = key.substr(index + 3);
    for (std::size_t i = 0; i < field->elements.size(); ++i) {
      const FieldNode& element = *field_at(field->elements[i], name);
      if (!element.left_out)
        values.push_back({concat(key.substr(0, index), "[", i, "].", name), field_text(element)});
    }
    return values;
  }

  /// A value that is a key's name stands for the key's.
  double number(const std::string& value) const {
    const std::vector<KeyValue> of_key = at(value);
    return std::strtod((of_key.empty() ? value : of_key.front().text).c_str(), nullptr);
  }

  bool passes(const std::string& text, Kind kind, const std::vector<std::string>& values) const {
    const bool is_listed = std::ranges::count(values, text) > 0;
    if (kind == Kind::kIsOneOf) return is_listed;
    if (kind == Kind::kIsNoneOf) return !is_listed;
    const double got = number(text), other = number(values.front());
    return kind == Kind::kIsMoreThan   ? got > other
           : kind == Kind::kIsLessThan ? got < other
                                       : got <= other;
  }

  bool holds(const KeyTest& test) const {
    const std::vector<KeyValue> of_key = at(test.key);
    return !of_key.empty() && passes(of_key.front().text, test.kind, test.values);
  }

  std::string wanted(const Refusal& row) const {
    if (!row.wanted.empty()) return row.wanted;
    if (row.kind == Kind::kIsOneOf) {
      std::string text = row.values.front().empty() ? "none" : row.values.front();
      for (std::size_t i = 1; i < row.values.size(); ++i)
        text += (i + 1 < row.values.size() ? ", " : " or ") + row.values[i];
      return text;
    }
    const char* const words = row.kind == Kind::kIsMoreThan   ? "more than "
                              : row.kind == Kind::kIsLessThan ? "less than "
                                                              : "at most ";
    return concat(words, row.values.front(), " ", number(row.values.front()));
  }

 private:
  const FieldNode tree_;
  const std::map<std::string, std::string>& known_;
};

}  // namespace

void collect_refusals(const std::vector<Refusal>& rows, const HybridTrainerConfig& config,
                      const std::string& context, std::vector<std::string>& found,
                      const std::map<std::string, std::string>& known) {
  const KeyValues values(config, known);
  for (const Refusal& row : rows) {
    if (!std::ranges::all_of(row.when, [&](const KeyTest& test) { return values.holds(test); }))
      continue;
    for (const std::string& key : row.keys) {
      for (const KeyValue& value : values.at(key)) {
        if (values.passes(value.text, row.kind, row.values)) continue;
        found.push_back(concat(value.path, ": got ", value.text, ", but ", row.why, " (with ",
                               context, "); want ", values.wanted(row)));
      }
    }
  }
}

}  // namespace hybrid_trainer
