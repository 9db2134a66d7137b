#include "src/data/examples/choice_questions.h"

#include <boost/json.hpp>
#include <cctype>

#include "hybrid_trainer/core/error.h"
#include "src/data/examples/row_tokens.h"
#include "src/data/tables/row_reader.h"

namespace hybrid_trainer {

namespace {

constexpr const char* kWantedQuestion =
    "want {\"prompt\": …, \"choices\": [\"…\", \"…\"], \"answer\": 0}";

const json::value& member(const json::object& object, const char* key) {
  const json::value* found = object.if_contains(key);
  if (found == nullptr) throw DataError(concat("it has no \"", key, "\"; ", kWantedQuestion));
  return *found;
}

std::vector<std::string> choices_of(const json::object& object) {
  const json::value& value = member(object, "choices");
  std::vector<std::string> choices;
  if (!value.is_array()) throw DataError(concat("\"choices\" is not a list; ", kWantedQuestion));
  for (const json::value& one : value.get_array()) {
    const std::size_t number = choices.size() + 1;
    if (!one.is_string()) throw DataError(concat("choice ", number, " is not a string"));
    choices.emplace_back(one.get_string());
    if (choices.back().empty()) throw DataError(concat("choice ", number, " is empty"));
    const auto same = std::find(choices.begin(), choices.end() - 1, choices.back());
    if (same != choices.end() - 1)
      throw DataError(
          concat("choices ", same - choices.begin() + 1, " and ", number, " have the same text"));
  }
  if (choices.size() < 2)
    throw DataError(concat("it has ", choices.size(), " choices; want at least 2"));
  return choices;
}

std::size_t index_of_number(const json::value& answer, std::size_t count) {
  const json::value whole = answer.is_uint64() ? json::value(-1) : answer;
  if (whole.is_int64() && whole.get_int64() >= 0 &&
      whole.get_int64() < static_cast<std::int64_t>(count))
    return static_cast<std::size_t>(whole.get_int64());
  throw DataError(concat("\"answer\" is ", json::serialize(answer), "; want an index from 0 to ",
                         count - 1, ", or the letter or the text of a choice"));
}

/// Returns the right choice's index. "answer" is the index, the letter or the text of the choice.
std::size_t answer_of(const json::object& object, const std::vector<std::string>& choices) {
  const json::value& answer = member(object, "answer");
  if (!answer.is_string()) return index_of_number(answer, choices.size());
  const std::string text(answer.get_string());
  const auto as_text = static_cast<std::size_t>(std::ranges::find(choices, text) - choices.begin());
  std::size_t as_letter = choices.size();
  if (text.size() == 1 && std::isalpha(static_cast<unsigned char>(text[0])) != 0)
    as_letter = static_cast<std::size_t>(std::toupper(static_cast<unsigned char>(text[0])) - 'A');
  const bool is_text = as_text < choices.size(), is_letter = as_letter < choices.size();
  if (is_text && is_letter && as_text != as_letter)
    throw DataError(concat("\"answer\" is ", json::serialize(answer),
                           ", which is both the text of choice ", as_text + 1,
                           " and the letter of choice ", as_letter + 1,
                           "; give its index, counted from 0"));
  if (is_text) return as_text;
  if (is_letter) return as_letter;
  return index_of_number(answer, choices.size());
}

class QuestionReader {
 public:
  explicit QuestionReader(const ChoiceFormat& format) : format_(format) {}

  ChoiceQuestion read(const json::object& object) {
    const std::vector<std::string> choices = choices_of(object);
    ChoiceQuestion question{.answer = answer_of(object, choices)};
    const bool is_chat = member(object, "prompt").is_array();
    const std::string prompt = prompt_of(object);
    const Tokens alone = encoded(prompt, is_chat);
    std::vector<Tokens> wholes;
    std::size_t common = alone.size();
    for (const std::string& choice : choices) {
      wholes.push_back(encoded(prompt + choice, is_chat));
      const Tokens& whole = wholes.back();
      const auto alike = std::ranges::mismatch(alone, whole).in1 - alone.begin();
      common = std::min({common, static_cast<std::size_t>(alike), whole.size() - 1});
    }
    if (common == 0) common = add_common_prefix(wholes);
    for (std::size_t i = 0; i < wholes.size(); ++i) {
      check_fits(wholes[i], i);
      const auto end = wholes[i].begin() + static_cast<std::ptrdiff_t>(common);
      question.choices.push_back({Tokens(end, wholes[i].end()), choices[i].size()});
      if (i == 0) question.prompt.assign(wholes[i].begin(), end);
    }
    if (!is_chat && joins_words(prompt, choices)) ++joined_words_;
    return question;
  }
  std::int64_t joined_words() const { return joined_words_; }

 private:
  using Tokens = std::vector<std::int32_t>;

  std::string prompt_of(const json::object& object) const {
    const json::value& prompt = object.at("prompt");
    if (prompt.is_string()) return std::string(prompt.get_string());
    if (!prompt.is_array())
      throw DataError("\"prompt\" is neither a string nor a list of messages");
    if (!format_.chat.chat_template)
      throw DataError(
          "\"prompt\" is a list of messages, but the model has no chat template; want a string");
    json::object variables;
    for (const auto& [name, token] : format_.chat.special_tokens) variables[name] = token;
    for (const char* absent : {"tools", "documents"}) variables[absent] = nullptr;
    variables["messages"] = prompt;
    variables["add_generation_prompt"] = true;
    std::string text = format_.chat.chat_template->render(variables, format_.now).text;
    if (text.empty())
      throw DataError(
          "the chat template produces no text for \"prompt\"; want a string instead of messages");
    return text;
  }

  Tokens encoded(const std::string& text, bool is_chat) const {
    return is_chat ? format_.tokenizer.encode(text, ControlText::kAsTokens)
                   : format_.tokenizer.encode_document(text, ControlText::kAsTokens);
  }

  /// Inserts the end-of-text token before each text. Needed if the prompt is empty, or its first
  /// token also covers text of a choice. Returns the number of tokens inserted.
  std::size_t add_common_prefix(std::vector<Tokens>& wholes) const {
    const auto end = format_.tokenizer.end_of_text();
    if (!end)
      throw DataError(
          "the prompt has no token before the choices, and the tokenizer has no beginning-of-text "
          "token; give a longer prompt");
    for (Tokens& whole : wholes) whole.insert(whole.begin(), *end);
    return 1;
  }

  void check_fits(const Tokens& whole, std::size_t choice) const {
    if (std::ssize(whole) > format_.context)
      throw DataError(concat("choice ", choice + 1, " with its prompt has ", whole.size(),
                             " tokens, but the model's context is ", format_.context,
                             "; shorten the prompt"));
    check_vocabulary(whole, format_.tokenizer, format_.vocabulary);
  }

  static bool joins_words(const std::string& prompt, const std::vector<std::string>& choices) {
    const auto is_blank = [](char c) { return std::isspace(static_cast<unsigned char>(c)) != 0; };
    return !prompt.empty() && !is_blank(prompt.back()) &&
           std::ranges::none_of(choices, [&](const auto& one) { return is_blank(one.front()); });
  }

  const ChoiceFormat& format_;
  std::int64_t joined_words_ = 0;
};

std::string rejected_lines_error(const ReadRows& read, const std::filesystem::path& path) {
  constexpr std::size_t kShown = 5;
  std::string text;
  for (std::size_t i = 0; i < std::min(kShown, read.refused.size()); ++i)
    text += concat(i == 0 ? "" : "\n", path.string(), ", line ", read.refused[i].line, ": ",
                   read.refused[i].reason);
  if (read.refused.size() > kShown)
    text += concat("\n", read.refused.size() - kShown, " more lines cannot be used");
  return text;
}

}  // namespace

ChoiceQuestions read_choice_questions(const std::filesystem::path& path,
                                      const ChoiceFormat& format) {
  ChoiceQuestions read;
  ReadRows rows;
  QuestionReader reader(format);
  const auto use = [&](const GivenRow& row) {
    read.questions.push_back(reader.read(row.object));
    read.questions.back().line = row.line;
  };
  read_rows({path, ColumnNames()},
            {.rows = "questions", .keys = {"prompt", "choices", "answer"}, .use = use}, rows);
  if (!rows.refused.empty()) throw DataError(rejected_lines_error(rows, path));
  read.joined_words = reader.joined_words();
  return read;
}

}  // namespace hybrid_trainer
