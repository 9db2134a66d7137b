#include "src/data/examples/text_rows.h"

#include <boost/algorithm/string/predicate.hpp>
#include <boost/json.hpp>

#include "hybrid_trainer/core/batch.h"
#include "src/data/examples/row_tokens.h"
#include "src/files/text.h"

namespace hybrid_trainer {

namespace {

constexpr int kMaxNegatives = 32;  // columns negative_1, negative_2, …

struct TextShape {
  TextTask task;
  std::string_view first;
  std::string_view second{};  // empty: the row has one text
};
constexpr std::array kShapes{TextShape{TextTask::kClassify, "text", "text_pair"},
                             TextShape{TextTask::kClassify, "sentence1", "sentence2"},
                             TextShape{TextTask::kClassify, "premise", "hypothesis"},
                             TextShape{TextTask::kClassify, "text"},
                             TextShape{TextTask::kClassify, "sentence"},
                             TextShape{TextTask::kEmbed, "anchor", "positive"},
                             TextShape{TextTask::kEmbed, "query", "positive"},
                             TextShape{TextTask::kEmbed, "question", "answer"},
                             TextShape{TextTask::kEmbed, "sentence1", "sentence2"},
                             TextShape{TextTask::kEmbed, "a", "b"},
                             TextShape{TextTask::kRank, "query", "passage"},
                             TextShape{TextTask::kRank, "query", "passages"},
                             TextShape{TextTask::kRank, "sentence1", "sentence2"},
                             TextShape{TextTask::kRank, "text", "text_pair"},
                             TextShape{TextTask::kReward, "chosen", "rejected"}};
constexpr std::array kLabelKeys{"label", "labels", "score", "scores"};
/// Shapes of one text for predictions by an embedding model.
constexpr std::array kTextsToEmbed{
    TextShape{TextTask::kEmbed, "text"}, TextShape{TextTask::kEmbed, "sentence"},
    TextShape{TextTask::kEmbed, "anchor"}, TextShape{TextTask::kEmbed, "query"}};

const char* wanted_by(TextTask task) {
  static constexpr const char* kWanted[] = {
      R"(want {"text": "…", "label": "a class"}, and "text_pair" for pairs of texts)",
      R"(want {"anchor": "…", "positive": "…"}, and "negative" if there are any, or )"
      R"({"sentence1": "…", "sentence2": "…", "score": 0.8})",
      R"(want {"query": "…", "passage": "…", "label": 1}, or lists "passages" and "labels")",
      R"(want {"prompt": …, "chosen": …, "rejected": …}, of strings or lists of messages)"};
  return kWanted[static_cast<std::size_t>(task)];
}

const char* renaming_of(TextTask task) {
  static constexpr const char* kRenaming[] = {
      "text=COLUMN,label=COLUMN", "anchor=COLUMN,positive=COLUMN",
      "query=COLUMN,passage=COLUMN,label=COLUMN", "prompt=COLUMN,chosen=COLUMN,rejected=COLUMN"};
  return kRenaming[static_cast<std::size_t>(task)];
}

std::vector<std::string> keys_of(const TextFormat& format) {
  if (format.task == TextTask::kReward) return keys_of_examples();
  std::vector<std::string> keys(kLabelKeys.begin(), kLabelKeys.end());
  for (const TextShape& shape : kShapes) {
    if (shape.task != format.task) continue;
    keys.emplace_back(shape.first);
    if (!shape.second.empty()) keys.emplace_back(shape.second);
  }
  if (format.task != TextTask::kEmbed) return keys;
  keys.insert(keys.end(), {"negative", "negatives"});
  for (int i = 1; i <= kMaxNegatives; ++i) keys.push_back(concat("negative_", i));
  if (format.needs_labels) return keys;
  for (const TextShape& shape : kTextsToEmbed) keys.emplace_back(shape.first);
  return keys;
}

bool has_keys(const json::object& row, const TextShape& shape) {
  return value_in_row(row, shape.first) != nullptr &&
         (shape.second.empty() || value_in_row(row, shape.second) != nullptr);
}

const char* label_key(const json::object& row) {
  const char* found = nullptr;
  for (const char* key : kLabelKeys) {
    if (value_in_row(row, key) == nullptr) continue;
    if (found != nullptr)
      throw DataError(concat("it has two labels, \"", found, "\" and \"", key,
                             "\"; leave one out, for example with --columns ", key, "="));
    found = key;
  }
  return found;
}

/// Throws DataError for a row whose shape does not suit the task. Names a task that it suits.
[[noreturn]] void refuse_shape(const json::object& row, TextTask task) {
  const auto has = [&](const char* key) { return value_in_row(row, key) != nullptr; };
  std::string keys, fits;
  for (const auto& [key, value] : row)
    if (keys.size() < 200)
      keys += concat(keys.empty() ? "\"" : ", \"", std::string_view(key),
                     value.is_null() ? "\" (null)" : "\"");
  for (const TextShape& shape : kShapes)
    if (fits.empty() && (!shape.second.empty() || has("label")) && has_keys(row, shape))
      fits = concat("--task ", name_of(shape.task));
  if (fits.empty() && (has("messages") || has("conversations") || has("completion")))
    fits = "a language model, without --task";
  throw DataError(concat("it has the keys ", keys.empty() ? "none" : keys,
                         fits.empty() ? "" : concat(", which fit ", fits), "; ", wanted_by(task)));
}

/// The label of a row, with its key; null if there is none.
struct GivenLabel {
  std::string_view key{};
  json::value value{};
};

std::string_view text_in(const json::value& value, std::string_view key) {
  if (!value.is_string())
    throw DataError(concat('"', key, "\" is ", json_line(value).substr(0, 60), "; want a string"));
  const std::string_view text = value.get_string();
  if (trimmed(text).empty()) throw DataError(concat('"', key, "\" is empty; want a text"));
  return text;
}

const json::array& list_in(const json::value& value, std::string_view key) {
  if (value.is_array() && !value.get_array().empty()) return value.get_array();
  throw DataError(
      concat('"', key, "\" is ", json_line(value).substr(0, 60), "; want a list, not empty"));
}

class TextRowsReader {
 public:
  explicit TextRowsReader(const TextFormat& format)
      : format_(format),
        longest_(std::min(format.longest, format.sequence_length)),
        end_(format.tokenizer.template_end()),
        rendering_{.tokenizer = format.tokenizer,
                   .chat = format.chat == nullptr ? no_chat_ : *format.chat,
                   .longest = longest_ - std::ssize(end_),
                   .now = format.now,
                   .vocabulary = format.vocabulary,
                   .control = format.control,
                   .pairs = format.needs_labels},
        maker_(rendering_) {}

  TextRows run(const std::filesystem::path& path) {
    const bool is_reward = format_.task == TextTask::kReward;
    const RowSchema schema{.rows = "examples",
                           .keys = keys_of(format_),
                           .is_closed = !is_reward,
                           .renaming = renaming_of(format_.task),
                           .use = [&](const GivenRow& row) { read(row); }};
    read_rows({path, format_.columns, format_.called, format_.split}, schema, read_);
    if (format_.task == TextTask::kClassify)
      classify(format_.called.empty() ? path.string() : format_.called);
    else if (format_.needs_labels)
      check_scores();
    std::ranges::stable_sort(read_.refused, {}, [](const ReadRows::Refusal& refusal) {
      return std::pair(refusal.file, refusal.line);
    });
    add_notes();
    return std::move(read_);
  }

 private:
  void read(const GivenRow& row) {
    if (format_.task == TextTask::kReward) {
      read_preference(row);
      return;
    }
    const TextShape& shape = shape_of(row.object);
    GivenLabel label;
    if (const char* const key = label_key(row.object)) label = {key, row.object.at(key)};
    if (label.value.is_null() && format_.needs_labels && format_.task != TextTask::kEmbed)
      throw DataError(concat("it has no \"label\"; ", wanted_by(format_.task)));
    if (format_.task == TextTask::kEmbed) {
      read_roles(row, shape, label);
    } else if (shape.second == "passages") {
      read_passages(row, label);
    } else {
      TextRow made = begun(row);
      const std::string_view first = text_in(row.object.at(shape.first), shape.first);
      std::optional<std::string_view> second;
      if (!shape.second.empty()) second = text_in(row.object.at(shape.second), shape.second);
      add_text(made, first, second);
      add(std::move(made), label);
    }
  }

  const TextShape& shape_of(const json::object& row) const {
    const TextShape* found = nullptr;
    for (const TextShape& shape : kShapes) {
      if (shape.task != format_.task || !has_keys(row, shape)) continue;
      const std::string_view key =
          found != nullptr && shape.first == found->first ? shape.second : shape.first;
      if (found != nullptr && !key.empty())
        throw DataError(concat("it has two shapes, with \"", found->first, "\" and with \"", key,
                               "\"; leave one out, for example with --columns ", key, "="));
      if (found == nullptr) found = &shape;
    }
    if (found == nullptr && format_.task == TextTask::kEmbed && !format_.needs_labels)
      for (const TextShape& shape : kTextsToEmbed)
        if (found == nullptr && has_keys(row, shape)) found = &shape;
    if (found == nullptr) refuse_shape(row, format_.task);
    return *found;
  }

  /// Reads a row for TextTask::kEmbed as one example with a text for each role.
  void read_roles(const GivenRow& row, const TextShape& shape, const GivenLabel& label) {
    TextRow made = begun(row);
    const auto add_role = [&](const json::value& value, std::string_view key) {
      std::string text(text_in(value, key));
      const std::vector<std::string>& prompts = format_.prompts;
      if (!prompts.empty()) text = prompts[std::min(made.ends.size(), prompts.size() - 1)] + text;
      add_text(made, text, {});
    };
    add_role(row.object.at(shape.first), shape.first);
    if (!shape.second.empty()) add_role(row.object.at(shape.second), shape.second);
    const auto add_negative = [&](const std::string& key) {
      if (const json::value* value = value_in_row(row.object, key)) add_role(*value, key);
    };
    add_negative("negative");
    for (int i = 1; i <= kMaxNegatives; ++i) add_negative(concat("negative_", i));
    if (const json::value* negatives = value_in_row(row.object, "negatives"))
      for (const json::value& text : list_in(*negatives, "negatives")) add_role(text, "negatives");
    if (!label.value.is_null() && made.ends.size() != 2)
      throw DataError(concat("it has a score and ", made.ends.size(),
                             " texts; want two texts with a score, or texts without one"));
    add(std::move(made), label);
  }

  /// Reads a row for TextTask::kRank as one example for each passage.
  void read_passages(const GivenRow& row, const GivenLabel& label) {
    const std::string_view query = text_in(row.object.at("query"), "query");
    const json::array& passages = list_in(row.object.at("passages"), "passages");
    json::array labels(passages.size());
    if (!label.value.is_null()) labels = list_in(label.value, label.key);
    if (labels.size() != passages.size())
      throw DataError(concat("it has ", passages.size(), " passages and ", labels.size(),
                             " labels; want a label for each passage"));
    std::vector<TextRow> made;  // added only if all are valid
    for (std::size_t i = 0; i < passages.size(); ++i) {
      made.push_back(begun(row));
      add_text(made.back(), query, text_in(passages[i], "passages"));
      set_score(made.back(), {label.key, labels[i]});
    }
    for (TextRow& text : made) add(std::move(text), {});
  }

  /// Reads a row for TextTask::kReward as one example with two texts, one for each answer.
  void read_preference(const GivenRow& row) {
    const auto has = [&](const char* key) { return value_in_row(row.object, key) != nullptr; };
    if (format_.needs_labels && !has("chosen") && !has("rejected"))
      refuse_shape(row.object, format_.task);
    ConvertedRow pair = maker_.make(row.object, row.wide);
    if (pair.rejected && pair.row.tokens == pair.rejected->tokens)
      throw DataError(concat("\"chosen\" and \"rejected\" have the same tokens",
                             pair.row.left_out > 0 ? concat(" up to ", longest_) : "",
                             ", so there is no preference"));
    TextRow made = begun(row);
    add_rendered(made, std::move(pair.row));
    if (pair.rejected) add_rendered(made, *std::move(pair.rejected));
    add(std::move(made), {});
  }

  static TextRow begun(const GivenRow& row) { return {.file = row.file, .line = row.line}; }

  void add_rendered(TextRow& made, ExampleRow text) {
    if (!boost::algorithm::ends_with(text.tokens, end_))
      text.tokens.insert(text.tokens.end(), end_.begin(), end_.end());
    add_tokens(made, text.tokens, {}, text.left_out);
  }

  void add_text(TextRow& made, std::string_view first, std::optional<std::string_view> second) {
    const auto encoded = [&](const TokenLimit& limit) {
      return format_.tokenizer.encode_texts(first, second, limit, format_.control);
    };
    const ModelInput input = encoded({.ids = longest_});
    const bool may_be_cut = std::ssize(input.ids) == longest_;
    const std::int64_t left_out = may_be_cut ? std::ssize(encoded({}).ids) - longest_ : 0;
    add_tokens(made, input.ids, input.types, left_out);
  }

  void add_tokens(TextRow& made, const std::vector<std::int32_t>& tokens,
                  const std::vector<std::int32_t>& types, std::int64_t left_out) {
    if (tokens.empty()) throw DataError("a text has no tokens");
    check_vocabulary(tokens, format_.tokenizer, format_.vocabulary);
    made.tokens.insert(made.tokens.end(), tokens.begin(), tokens.end());
    made.types.insert(made.types.end(), types.begin(), types.end());
    made.types.resize(made.tokens.size());
    made.ends.push_back(std::ssize(made.tokens));
    cut_ += left_out > 0 ? 1 : 0;
    lost_ += left_out;
  }

  void set_score(TextRow& made, const GivenLabel& label) const {
    if (!label.value.is_null()) made.labels = {score_in(label.value, label.key, format_.scores)};
  }

  void add(TextRow made, const GivenLabel& label) {
    const std::int64_t length = std::ssize(made.tokens), texts = std::ssize(made.ends);
    if (length > format_.sequence_length)
      throw DataError(concat("its ", texts, " texts have ", length, " tokens, but a sequence has ",
                             format_.sequence_length, "; raise data.sequence_length"));
    if (texts > text_slots(format_.sequence_length))
      throw DataError(concat("it has ", texts, " texts, but a sequence of ",
                             format_.sequence_length, " tokens has room for ",
                             text_slots(format_.sequence_length), "; raise data.sequence_length"));
    if (format_.task == TextTask::kClassify)
      labels_.push_back(parsed_label(label.value));
    else
      set_score(made, label);
    read_.rows.push_back(std::move(made));
  }

  template <class Use>
  void filter(const Use& use) {
    std::vector<TextRow> kept;
    for (std::size_t i = 0; i < read_.rows.size(); ++i) {
      TextRow& row = read_.rows[i];
      try {
        use(row, i);
        kept.push_back(std::move(row));
      } catch (const DataError& error) {
        read_.refused.push_back({row.line, error.what(), row.file});
      }
    }
    read_.rows = std::move(kept);
  }

  /// Replaces class indices by the names in the file's metadata, unless the model has other names.
  void name_classes() {
    for (std::size_t i = 0; i < labels_.size(); ++i) {
      const auto& of_columns = read_.files[read_.rows[i].file].form.class_names;
      for (const char* const key : kLabelKeys) {
        const auto names = of_columns.find(format_.columns.column_of(key));
        if (names == of_columns.end()) continue;
        const bool are_known = std::ranges::all_of(names->second, [&](const std::string& name) {
          return std::ranges::count(format_.class_names, name) > 0;
        });
        if (!are_known && !format_.class_names.empty()) continue;
        if (json::array* const list = labels_[i].if_array()) {
          for (json::value& item : *list) name_class(names->second, item);
        } else {
          name_class(names->second, labels_[i]);
        }
      }
    }
  }
  static void name_class(const std::vector<std::string>& names, json::value& label) {
    const std::int64_t* const number = label.if_int64();
    if (number != nullptr && *number >= 0 && *number < std::ssize(names))
      label = json::string(names[static_cast<std::size_t>(*number)]);
  }

  void classify(const std::string& called) {
    name_classes();
    const ClassLabels classes(labels_, format_.label_kind, format_.class_names);
    const bool is_single = classes.kind() == LabelKind::kSingle;
    const std::size_t count = classes.names().size();
    const bool has_labels =
        !std::ranges::all_of(labels_, [](const auto& one) { return one.is_null(); });
    if (has_labels && classes.kind() != LabelKind::kRegression && format_.class_names.empty() &&
        count < (is_single ? 2 : 1))
      throw DataError(
          concat(called, ": all rows have ",
                 count == 0 ? "no class" : "the class " + json_string(classes.names()[0]),
                 "; want at least 2 classes", refusals()));
    filter([&](TextRow& row, std::size_t i) {
      if (labels_[i].is_null()) return;
      if (is_single)
        row.class_index = classes.class_of(labels_[i]);
      else
        row.labels = classes.numbers_of(labels_[i]);
    });
    read_.label_kind = classes.kind();
    read_.class_names = classes.names();
  }

  /// Returns "; refused 3 rows, the first one is row 2: it has no label", or "" for no refusal.
  std::string refusals() const {
    if (read_.refused.empty()) return "";
    const auto& [line, reason, file] = read_.refused.front();
    return concat("; refused ", read_.refused.size(),
                  read_.refused.size() == 1 ? " row, " : " rows, the first one is ",
                  read_.place(file, line, false), ": ", reason);
  }

  /// Rejects rows without a score if most rows have one, otherwise rows with a score.
  void check_scores() {
    const auto has_score = [](const TextRow& row) { return !row.labels.empty(); };
    const std::int64_t scores = std::ranges::count_if(read_.rows, has_score);
    const bool wants_scores = 2 * scores > std::ssize(read_.rows);
    filter([&](const TextRow& row, std::size_t) {
      if (has_score(row) != wants_scores)
        throw DataError(wants_scores ? "it has no \"score\", but most rows have one"
                                     : "it has a score, but most rows do not");
    });
  }

  void add_notes() {
    if (cut_ > 0)
      read_.notes.push_back(concat(cut_, cut_ == 1 ? " text is" : " texts are", " longer than ",
                                   longest_, " tokens and lost ", lost_,
                                   lost_ == 1 ? " token at " : " tokens at ",
                                   cut_ == 1 ? "its end" : "their ends"));
    ExampleRows rendered;
    const ExampleFindings& found = maker_.findings();
    rendered.findings = {.unused = found.unused,
                         .unused_of_messages = found.unused_of_messages,
                         .omitted = found.omitted};
    for (const std::string& note : rendered.notes()) read_.notes.push_back(note);
  }

  const TextFormat& format_;
  const std::int64_t longest_;
  const std::vector<std::int32_t> end_;  // the tokenizer's template ends texts with it
  const ChatFiles no_chat_{};
  const ExampleFormat rendering_;
  RowMaker maker_;
  TextRows read_;
  std::vector<json::value> labels_;  // for kClassify: label of each of read_.rows, or null
  std::int64_t cut_ = 0, lost_ = 0;
};

}  // namespace

const char* name_of(TextTask task) {
  static constexpr const char* kNames[] = {"classify", "embed", "rank", "reward"};
  return kNames[static_cast<std::size_t>(task)];
}

std::int64_t TextRows::labels() const {
  std::int64_t most = 0;
  for (const TextRow& row : rows) most = std::max(most, std::ssize(row.labels));
  return most;
}

TextRows read_text_rows(const std::filesystem::path& path, const TextFormat& format) {
  require(format.longest > 0 && format.sequence_length > 0, "texts have a positive length");
  return TextRowsReader(format).run(path);
}

}  // namespace hybrid_trainer
