#include "src/fine_tuning/shaped_row.h"

#include <algorithm>

#include "hybrid_trainer/core/error.h"
#include "hybrid_trainer/files/python_json.h"
#include "src/fine_tuning/normal_message.h"
#include "src/fine_tuning/preference_row.h"

namespace hybrid_trainer {

namespace json = boost::json;

namespace {

constexpr std::size_t kLongestList = std::size_t{64} << 20;

/// Keys of a row that mean something elsewhere.
constexpr const char* kUnusedOfRows[] = {"images", "image",         "videos",       "audio",
                                         "weight", "train",         "label",        "loss_mask",
                                         "labels", "train_on_turn", "chat_template"};

const json::value* first_held(const json::object& row, const char* one, const char* other) {
  const json::value* const value = held(row, one);
  return value != nullptr ? value : held(row, other);
}

/// Keys that a shape is made of. All other keys of examples may stand beside any shape.
struct ShapeKey {
  std::string_view key;
  std::vector<RowShape> shapes;
};

const std::vector<ShapeKey>& shape_keys() {
  using enum RowShape;
  static const std::vector<ShapeKey> keys{{"text", {kText}},
                                          {"prompt", {kPair, kPreference}},
                                          {"completion", {kPair, kAlpaca}},
                                          {"messages", {kMessages, kPair, kPreference}},
                                          {"conversations", {kShareGpt, kPair, kPreference}},
                                          {"instruction", {kAlpaca, kPreference}},
                                          {"input", {kAlpaca, kPreference}},
                                          {"context", {kAlpaca, kPreference}},
                                          {"history", {kAlpaca, kPreference}},
                                          {"output", {kAlpaca}},
                                          {"response", {kAlpaca}},
                                          {"chosen", {kPreference}},
                                          {"rejected", {kPreference}}};
  return keys;
}

bool is_of_some_shape(std::string_view key) {
  return std::ranges::find(shape_keys(), key, &ShapeKey::key) != shape_keys().end();
}

/// Whether a message is what the assistant says.
bool is_answer(const json::value& message) {
  const json::object* const object = message.if_object();
  if (object == nullptr) return false;
  for (const char* key : {"role", "from"})
    for (const char* speaker : {"assistant", "gpt", "model", "chatgpt", "bot", "function_call"})
      if (const json::value* said = object->if_contains(key))
        if (*said == json::value(speaker)) return true;
  return false;
}

bool is_empty_text(const json::value& value) {
  return value.is_string() && value.get_string().empty();
}

std::string text_of(const json::value& value, const char* key) {
  if (!value.is_string()) throw DataError(concat("\"", key, "\" is no text"));
  return std::string(value.get_string());
}

/// A table's cell has a list of messages as JSON text.
void read_lists(json::object& row) {
  for (const char* key : {"messages", "conversations", "history"}) {
    json::value* const value = row.if_contains(key);
    if (value == nullptr || !value->is_string()) continue;
    if (value->get_string().empty()) {
      *value = nullptr;
      continue;
    }
    WideIntegers wide;
    try {
      *value = parse_python_json(value->get_string(), concat("\"", key, "\""), kLongestList, wide);
    } catch (const DataError&) {
      throw DataError(concat("\"", key, "\" is a text, and no list or JSON text of one"));
    }
    check_integers(*value, wide);
  }
}

class ShapeReader {
 public:
  ShapeReader(json::object example, bool has_template, std::set<std::string>& unused)
      : row_(std::move(example)), has_template_(has_template), unused_(unused) {
    read_lists(row_);
  }

  ShapedRow run() {
    for (const char* key : kUnusedOfRows)
      if (held(row_, key) != nullptr) unused_.insert(key);
    const RowShape shape = only_shape();
    const bool has_history = shape == RowShape::kAlpaca || held(row_, "instruction") != nullptr;
    if (!has_history && held(row_, "history") != nullptr) unused_.insert("history");
    if (shape == RowShape::kPreference) {
      const bool asks = held(row_, "instruction") != nullptr && held(row_, "prompt") == nullptr;
      return preference_row(row_, asks ? std::optional(asked()) : std::nullopt);
    }
    if (shape == RowShape::kAlpaca) return {shape, answered()};
    if (const char* const list = prompt_list()) {
      row_["prompt"] = json::value(row_.at(list));
      row_.erase(list);
    }
    if (shape == RowShape::kShareGpt) rename_conversations();
    return {shape, std::move(row_)};
  }

 private:
  RowShape only_shape() const {
    const auto has = [&](const char* key) { return held(row_, key) != nullptr; };
    struct Found {
      RowShape shape;
      std::string keys;
    };
    std::vector<Found> found;
    const bool is_preference = has("chosen") && has("rejected");
    const char* const list = prompt_list();
    const auto is_prompt = [&](std::string_view key) { return list != nullptr && key == list; };
    if (is_preference) found.push_back({RowShape::kPreference, "chosen with rejected"});
    if (has("prompt") && has("completion"))
      found.push_back({RowShape::kPair, "prompt with completion"});
    if (list != nullptr) found.push_back({RowShape::kPair, concat(list, " with completion")});
    if (has("messages") && !is_prompt("messages") &&
        !(is_preference && is_prompt_of_preference("messages")))
      found.push_back({RowShape::kMessages, "messages"});
    if (has("conversations") && !is_prompt("conversations") &&
        !(is_preference && is_prompt_of_preference("conversations")))
      found.push_back({RowShape::kShareGpt, "conversations"});
    if (const char* const answer = answer_key(); has("instruction") && answer != nullptr)
      found.push_back({RowShape::kAlpaca, concat("instruction with ", answer)});
    const bool has_text = has("text") && !(!found.empty() && is_empty_text(row_.at("text")));
    if (has_text) found.push_back({RowShape::kText, "text"});
    if (found.empty()) refuse();
    if (found.size() > 1) {
      const std::string left_out = found.back().keys.substr(0, found.back().keys.find(' '));
      throw DataError(concat("it has two shapes, ", found[0].keys, " and ", found[1].keys,
                             "; leave one out, for example with --columns ", left_out, "="));
    }
    return found.front().shape;
  }

  /// Whether the chosen answer goes on from the list, and does not repeat it.
  bool is_prompt_of_preference(const char* key) const {
    const json::value* const list = held(row_, key);
    const json::value& chosen = row_.at("chosen");
    const bool repeats = list->is_array() && chosen.is_array() && !chosen.get_array().empty() &&
                         chosen.get_array().front() == list->get_array().front();
    return !repeats;
  }

  /// The list of messages that the completion beside it goes on from; null where there is none.
  const char* prompt_list() const {
    const json::value* const completion = held(row_, "completion");
    if (completion == nullptr || is_empty_text(*completion) || held(row_, "prompt") != nullptr)
      return nullptr;
    for (const char* key : {"messages", "conversations"}) {
      const json::value* const list = held(row_, key);
      if (list != nullptr && list->is_array() && !is_answer(list->get_array().back())) return key;
    }
    return nullptr;
  }

  /// What answers an instruction; null where nothing does.
  const char* answer_key() const {
    for (const char* key : {"output", "response"})
      if (held(row_, key) != nullptr) return key;
    const bool is_pair = held(row_, "prompt") != nullptr;
    return !is_pair && held(row_, "completion") != nullptr ? "completion" : nullptr;
  }

  /// What a row lacks whose keys are those of a shape; "" where they are not.
  std::string missing_part() const {
    const auto has = [&](const char* key) { return held(row_, key) != nullptr; };
    if (has("chosen") != has("rejected"))
      return concat("\"", has("chosen") ? "rejected" : "chosen", "\" is missing or empty beside \"",
                    has("chosen") ? "chosen" : "rejected",
                    "\"; want both, the better and the worse answer");
    std::string empty;
    bool holds_something = false;
    for (const auto& [key, value] : row_) {
      const bool is_nothing = held(row_, std::string(key).c_str()) == nullptr;
      holds_something = holds_something || !(is_nothing || is_empty_text(value));
      if (is_nothing && is_of_some_shape(key))
        empty += concat(empty.empty() ? "" : ", ", '"', std::string_view(key), '"');
    }
    const std::string lacks = empty.empty() ? "" : "it has nothing under " + empty;
    if (row_.empty() || holds_something) return lacks;
    return lacks.empty() ? "it is empty" : "it is empty: " + lacks;
  }

  [[noreturn]] void refuse() const {
    if (const std::string problem = missing_part(); !problem.empty()) throw DataError(problem);
    std::string keys;
    for (const auto& [key, value] : row_) {
      if (keys.size() > 200) break;
      const bool is_nothing = value.is_null() || (value.is_array() && value.get_array().empty());
      keys += concat(keys.empty() ? "" : ", ", '"', std::string_view(key), '"',
                     is_nothing ? " (empty)" : "");
    }
    throw DataError(
        concat("want \"text\", or \"prompt\" with \"completion\", or \"messages\", a list of "
               "messages, or another shape of docs/FINETUNING_DATA.md; got ",
               keys.empty() ? "no keys" : keys,
               keys.empty() ? "" : "; --columns prompt=KEY,completion=KEY renames them"));
  }

  /// ShareGPT's list is read as messages.
  void rename_conversations() {
    json::value list = row_.at("conversations");
    row_.erase("conversations");
    row_["messages"] = std::move(list);
  }

  /// Turns before the instruction: pairs of what was asked and answered.
  json::array history() const {
    const json::value* const turns = held(row_, "history");
    if (turns == nullptr) return {};
    const auto is_turn = [](const json::value& turn) {
      const json::array* const texts = turn.if_array();
      return texts != nullptr && texts->size() == 2 && (*texts)[0].is_string() &&
             (*texts)[1].is_string();
    };
    if (!turns->is_array() || !std::ranges::all_of(turns->get_array(), is_turn))
      throw DataError("\"history\" is no list of pairs of texts");
    return turns->get_array();
  }

  std::string instruction(const char* between) const {
    std::string text = text_of(*held(row_, "instruction"), "instruction");
    const json::value* const input = first_held(row_, "input", "context");
    if (input == nullptr || !input->is_string() || is_empty_text(*input)) return text;
    return text + between + std::string(input->get_string());
  }

  std::string system() const {
    const json::value* const system = held(row_, "system");
    return system == nullptr ? "" : text_of(*system, "system");
  }

  /// What the instruction asks: messages, or a text whose last line is complete.
  json::value asked() const {
    if (!has_template_) {
      std::string text = system().empty() ? "" : system() + "\n";
      for (const json::value& turn : history())
        for (const json::value& said : turn.get_array())
          text += std::string(said.get_string()) + "\n";
      return json::value(text + instruction("\n") + "\n");
    }
    json::array messages;
    const auto add = [&](const char* role, const std::string& content) {
      messages.push_back(json::object{{"role", role}, {"content", content}});
    };
    if (!system().empty()) add("system", system());
    for (const json::value& turn : history()) {
      add("user", std::string(turn.at(0).get_string()));
      add("assistant", std::string(turn.at(1).get_string()));
    }
    add("user", instruction("\n\n"));
    return messages;
  }

  json::object answered() const {
    const char* const key = answer_key();
    const std::string answer = text_of(*held(row_, key), key);
    json::object example = row_;
    for (const char* used :
         {"instruction", "input", "context", "output", "response", "system", "history", "text"})
      example.erase(used);
    json::value before = asked();
    if (!has_template_) {
      example["prompt"] = std::move(before);
      example["completion"] = answer;
      return example;
    }
    before.get_array().push_back(json::object{{"role", "assistant"}, {"content", answer}});
    example["messages"] = std::move(before);
    return example;
  }

  json::object row_;
  bool has_template_;
  std::set<std::string>& unused_;
};

}  // namespace

const char* name_of(RowShape shape) {
  static constexpr const char* kNames[] = {
      "text", "prompt and completion", "messages", "sharegpt", "alpaca", "preference", "clips"};
  return kNames[static_cast<std::size_t>(shape)];
}

const std::vector<std::string>& keys_of_examples() {
  static const std::vector<std::string> keys = [] {
    std::vector<std::string> all{
        "text",   "prompt",   "completion", "messages",  "conversations", "instruction",
        "input",  "output",   "context",    "response",  "system",        "history",
        "chosen", "rejected", "tools",      "functions", "documents",     "chat_template_kwargs"};
    all.insert(all.end(), std::begin(kUnusedOfRows), std::end(kUnusedOfRows));
    return all;
  }();
  return keys;
}

bool is_used(RowShape shape, std::string_view key) {
  const auto found = std::ranges::find(shape_keys(), key, &ShapeKey::key);
  return found == shape_keys().end() || std::ranges::count(found->shapes, shape) > 0;
}

const json::value* held(const json::object& row, const char* key) {
  const json::value* value = row.if_contains(key);
  const bool is_nothing =
      value == nullptr || value->is_null() || (value->is_array() && value->get_array().empty());
  return is_nothing ? nullptr : value;
}

ShapedRow shaped_row(json::object example, bool has_template, std::set<std::string>& unused) {
  return ShapeReader(std::move(example), has_template, unused).run();
}

}  // namespace hybrid_trainer
