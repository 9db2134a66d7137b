#include "src/data/examples/row_tokens.h"

#include <boost/algorithm/string/predicate.hpp>
#include <iterator>

#include "hybrid_trainer/core/error.h"
#include "src/data/examples/shaped_row.h"

namespace hybrid_trainer {

EnclosedText enclosed_text(std::string_view text, const Tokenizer& tokenizer, ControlText control,
                           std::int64_t longest) {
  EnclosedText made{.tokens = tokenizer.encode_document(text, control)};
  std::vector<std::int32_t> end = tokenizer.template_end();
  if (const auto of_text = tokenizer.end_of_text(); end.empty() && of_text) end = {*of_text};
  if (!boost::algorithm::ends_with(made.tokens, end))
    made.tokens.insert(made.tokens.end(), end.begin(), end.end());
  made.left_out = std::max<std::int64_t>(0, std::ssize(made.tokens) - longest);
  if (made.left_out == 0) return made;
  made.tokens.resize(static_cast<std::size_t>(longest));
  std::copy_backward(end.begin() + std::max<std::int64_t>(0, std::ssize(end) - longest), end.end(),
                     made.tokens.end());
  return made;
}

void check_vocabulary(std::span<const std::int32_t> tokens, const Tokenizer& tokenizer,
                      std::int64_t vocabulary) {
  if (tokens.empty() || vocabulary == 0) return;
  const std::int32_t largest = std::ranges::max(tokens);
  if (largest >= vocabulary)
    throw DataError(concat("it contains the token ", tokenizer.token_bytes(largest),
                           ", which is outside the model's vocabulary of ", vocabulary));
}

namespace {

using Tokens = std::vector<std::int32_t>;

bool is_space(char c) { return c == ' ' || (c >= '\t' && c <= '\r'); }

class RowTokens {
 public:
  explicit RowTokens(const ExampleFormat& format) : format_(format) {}

  /// Encodes a text that continues `before`. Its tokens up to the end of the document are targets.
  void learn_text(const std::string& before, const std::string& text) {
    const std::string end = end_of_text();
    if (format_.control == ControlText::kAsTokens) {
      row_.tokens = encoded_document(before + text + (text.ends_with(end) ? "" : end));
    } else {  // a spelled end token does not end the text
      row_.tokens = encoded_document(before + text);
      std::ranges::copy(encoded(end), std::back_inserter(row_.tokens));
    }
    const Tokens prompt = before.empty() ? Tokens() : encoded_document(before);
    if (!boost::algorithm::starts_with(row_.tokens, prompt))
      throw DataError(concat(
          "the tokens of the whole row do not begin with the prompt's tokens; begin the "
          "completion with a space, and end the prompt without one",
          format_.chat.chat_template
              ? ", or convert the rows to chats: --columns instruction=prompt,output=completion"
              : ""));
    row_.is_target.assign(row_.tokens.size(), false);
    learn(prompt.size(), row_.tokens.size());
    row_.end_token = end_token_in(prompt.size(), row_.tokens.size());
  }

  bool begins_document(const std::string& start, const std::string& text) const {
    return boost::algorithm::starts_with(encoded_document(text), encoded_document(start));
  }

  void learn_source(const std::string& source, const std::string& text) {
    const auto enclosed = [&](const std::string& one, std::int64_t longest) {
      return enclosed_text(one, format_.tokenizer, format_.control, longest);
    };
    EnclosedText read = enclosed(source, format_.source->longest);
    row_.source = std::move(read.tokens);
    row_.source_left_out = read.left_out;
    row_.tokens = enclosed(text, INT64_MAX).tokens;
    row_.tokens.insert(row_.tokens.begin(), format_.source->start);
    row_.is_target.assign(row_.tokens.size(), true);
    row_.end_token = end_token_in(1, row_.tokens.size());
  }

  bool contains_special_tokens(std::string_view text) const {
    return std::ranges::any_of(
        encoded(text), [&](std::int32_t id) { return is_special_token(format_.tokenizer, id); });
  }

  void learn_chat(const RenderedRow& chat) {
    row_.tokens = encoded(chat.text);
    row_.is_target.assign(row_.tokens.size(), false);
    row_.answers_left_out = chat.left_out;
    TokenOffsets places(chat.text, row_.tokens, format_.tokenizer);
    for (const auto& [begin, end] : chat.targets) {
      if (begin == end) continue;  // an empty generation block
      const auto tokens = places.within(begin, end);
      if (tokens && tokens->first < tokens->second) {
        learn(tokens->first, tokens->second);
      } else {
        ++row_.answers_left_out;
      }
    }
    if (!chat.last_answer) return;
    const auto last = places.within(chat.last_answer->begin, chat.last_answer->end);
    if (last) row_.end_token = end_token_in(last->first, last->second);
  }

  ExampleRow run() && {
    cut();
    Tokens all = row_.tokens;
    all.insert(all.end(), row_.source.begin(), row_.source.end());
    check_vocabulary(all, format_.tokenizer, format_.vocabulary);
    return std::move(row_);
  }

 private:
  Tokens encoded(std::string_view text) const {
    return format_.tokenizer.encode(text, ControlText::kAsTokens);
  }

  std::string end_of_text() const {
    const std::string end = format_.chat.special_token("eos_token");
    const auto id = format_.tokenizer.end_of_text();
    return end.empty() && id ? std::string(format_.tokenizer.token_bytes(*id)) : end;
  }

  Tokens encoded_document(std::string_view text) const {
    return format_.tokenizer.encode_document(text, format_.control);
  }

  void learn(std::size_t first, std::size_t last) {
    std::fill(row_.is_target.begin() + static_cast<std::ptrdiff_t>(first),
              row_.is_target.begin() + static_cast<std::ptrdiff_t>(last), true);
  }

  /// Returns the first of the special tokens that end an answer; white space may separate them.
  std::optional<std::int32_t> end_token_in(std::size_t first, std::size_t last) const {
    std::optional<std::int32_t> end;
    for (std::size_t i = last; i-- > first;) {
      const std::int32_t id = row_.tokens[i];
      if (is_special_token(format_.tokenizer, id)) {
        end = id;
      } else if (!is_blank_token(format_.tokenizer, id)) {
        break;
      }
    }
    return end;
  }

  void cut() {
    if (!row_.is_target.empty()) row_.is_target.front() = false;
    const auto found = std::find(row_.is_target.begin(), row_.is_target.end(), true);
    if (found == row_.is_target.end() && row_.answers_left_out > 0)
      throw DataError(
          "it has no target tokens: the chat template does not write its answers, or writes them "
          "so that they cannot be located");
    if (found == row_.is_target.end()) throw DataError("it has no target tokens");
    const std::int64_t first = found - row_.is_target.begin();
    if (first >= format_.longest)
      throw DataError(concat("its first target token is at position ", first + 1,
                             ", beyond the maximum length of ", format_.longest, " tokens"));
    row_.left_out = std::max<std::int64_t>(0, std::ssize(row_.tokens) - format_.longest);
    row_.tokens.resize(row_.tokens.size() - static_cast<std::size_t>(row_.left_out));
    row_.is_target.resize(row_.tokens.size());
  }

  const ExampleFormat& format_;
  ExampleRow row_;
};

/// Returns whether the text of a chat names one of its tools. Returns true if no tool has a name.
bool names_a_tool(std::string_view text, const json::value& tools) {
  bool has_names = false;
  for (const json::value& tool : tools.get_array()) {
    const json::object* object = tool.if_object();
    const json::value* name =
        object == nullptr ? nullptr : function_of(*object).if_contains("name");
    if (name == nullptr || !name->is_string()) continue;
    has_names = true;
    if (text.find(std::string_view(name->get_string())) != text.npos) return true;
  }
  return !has_names;
}

std::string_view role_in(const json::value& message) {
  return message.get_object().at("role").get_string();
}

bool is_empty_answer(const json::object& message) {
  for (const char* key : {"tool_calls", "reasoning_content", "tool_plan", "refusal"})
    if (message.contains(key)) return false;
  const json::value& content = message.at("content");
  const json::array* const parts = content.if_array();  // see MessageForm
  return content.is_null() || content == json::value("") ||
         (parts != nullptr && parts->size() == 1 && (*parts)[0].is_object() &&
          (*parts)[0].at("text") == json::value(""));
}

/// Throws DataError if a completion begins or ends with a turn that is trained on, but is neither
/// an assistant's nor a tool's.
void check_completion(const NormalRow& row) {
  for (const std::size_t i : {row.prompt_messages, row.messages.size() - 1}) {
    const std::string_view role = role_in(row.messages[i]);
    if (row.prompt_messages == 0 || !row.trains[i] || role == "assistant" || role == "tool" ||
        role == "ipython")
      continue;
    throw DataError(concat(
        "the answer ", i == row.prompt_messages ? "begins" : "ends", " with a turn of the role ",
        json::serialize(json::value(role.substr(0, 40))), ", want \"assistant\""));
  }
}

void check_roles(const NormalRow& row) {
  std::set<std::string> roles;
  bool has_answer = row.prompt_messages > 0;
  for (const json::value& message : row.messages) {
    const std::string role(role_in(message));
    has_answer = has_answer || role == "assistant";
    roles.insert(json::serialize(json::value(role.substr(0, 40))));
  }
  if (has_answer) return;
  throw DataError(concat("it has no target tokens: its roles are ",
                         join({roles.begin(), roles.end()}).substr(0, 300),
                         "; answers need the role \"assistant\", or \"gpt\" in ShareGPT rows"));
}

/// Removes the final line end of an instruction, which an encoder-decoder does not need.
void drop_trailing_newline(json::object& example) {
  json::string& prompt = example.at("prompt").as_string();
  if (prompt.ends_with('\n')) prompt.pop_back();
}

}  // namespace

TokenOffsets::TokenOffsets(std::string_view text, std::span<const std::int32_t> tokens,
                           const Tokenizer& tokenizer)
    : text_(text), tokens_(tokens), tokenizer_(tokenizer) {
  if (!walk()) bytes_.clear();
}

/// Aligns the tokens' bytes with the text, except for a space added before a word and white space
/// that an added token strips. Returns false if a normalizer changed anything else.
bool TokenOffsets::walk() {
  std::size_t at = 0;
  for (const std::int32_t id : tokens_) {
    const std::string_view bytes = tokenizer_.token_bytes(id);
    std::size_t begin = at, length = bytes.size();
    while (!text_.substr(begin).starts_with(bytes)) {
      if (bytes.starts_with(' ') && text_.substr(begin).starts_with(bytes.substr(1))) {
        length = bytes.size() - 1;
        break;
      }
      if (begin == text_.size() || !is_space(text_[begin])) return false;
      ++begin;
    }
    at = begin + length;
    bytes_.emplace_back(begin, at);
  }
  return std::all_of(text_.begin() + static_cast<std::ptrdiff_t>(at), text_.end(), is_space);
}

/// Returns the number of tokens before a byte, or nullopt if the text before it, encoded alone,
/// gives other tokens. If possible, encodes only the text since the previous query.
std::optional<std::size_t> TokenOffsets::tokens_before(std::size_t byte) {
  const auto count_tokens_from = [&](std::size_t from,
                                     std::size_t known) -> std::optional<std::size_t> {
    const auto part = tokenizer_.encode(text_.substr(from, byte - from), ControlText::kAsTokens);
    const auto rest = tokens_.subspan(known);
    if (part.size() > rest.size() || !std::equal(part.begin(), part.end(), rest.begin())) return {};
    return known + part.size();
  };
  auto count = byte < known_byte_ ? std::nullopt : count_tokens_from(known_byte_, known_tokens_);
  if (!count) count = count_tokens_from(0, 0);
  if (count) {
    known_byte_ = byte;
    known_tokens_ = *count;
  }
  return count;
}

std::optional<std::pair<std::size_t, std::size_t>> TokenOffsets::within(std::size_t begin,
                                                                        std::size_t end) {
  if (bytes_.empty()) {
    const auto first = tokens_before(begin), last = tokens_before(end);
    if (!first || !last) return {};
    return std::pair(*first, *last);
  }
  const auto first =
      std::ranges::lower_bound(bytes_, begin, {}, [](const auto& of) { return of.first; });
  auto last = first;
  while (last != bytes_.end() && last->first < end && last->second <= end) ++last;
  return std::pair(static_cast<std::size_t>(first - bytes_.begin()),
                   static_cast<std::size_t>(last - bytes_.begin()));
}

ConvertedRow RowMaker::make(const json::object& example, const WideIntegers& wide) {
  const bool has_template = format_.chat.chat_template.has_value() && !format_.source;
  ShapedRow shaped = shaped_row(example,
                                {.has_template = has_template,
                                 .pairs = format_.pairs,
                                 .is_token_prefix =
                                     [this](const std::string& start, const std::string& text) {
                                       return RowTokens(format_).begins_document(start, text);
                                     }},
                                wide);
  if (format_.source && shaped.shape == RowShape::kAlpaca) drop_trailing_newline(shaped.example);
  ConvertedRow made{
      shaped.shape, make_row(shaped.example, wide, shaped.used), {}, shaped.chosen_columns};
  if (shaped.rejected) made.rejected = make_row(*shaped.rejected, wide, shaped.used);
  record_unused(example, shaped.used);
  return made;
}

ExampleRow RowMaker::make_row(const json::object& example, const WideIntegers& wide, Names& used) {
  const NormalRow row = normal_row(example, chats_.form(), findings_.unused_of_messages);
  if (format_.source) return make_source_row(row);
  for (const json::value& message : row.messages) check_integers(message, wide);
  for (const auto& [key, value] : row.variables) check_integers(value, wide);
  RowTokens tokens(format_);
  if (!row.is_chat) {
    tokens.learn_text(row.prompt, row.completion);
    const bool may_be_chat = format_.chat.chat_template && !row.prompt.empty();
    if (may_be_chat && !tokens.contains_special_tokens(row.prompt)) ++findings_.without_template;
    ExampleRow made = std::move(tokens).run();
    findings_.empty_answers += row.completion.empty() ? 1 : 0;
    return made;
  }
  check_completion(row);
  const RenderedRow chat = chats_.render(example, row);
  if (chat.targets.empty()) check_roles(row);
  tokens.learn_chat(chat);
  ExampleRow made = std::move(tokens).run();
  note(row, chat, used);
  if (chat.last_answer && chat.ending && !made.end_token) record_ending(*chat.ending);
  return made;
}

ExampleRow RowMaker::make_source_row(const NormalRow& row) const {
  if (row.is_chat)
    throw DataError(
        "it is a list of messages, but a model with an encoder needs \"prompt\" and "
        "\"completion\", both strings");
  if (row.prompt.empty())
    throw DataError("it has no prompt for the encoder; want \"prompt\" with \"completion\"");
  RowTokens tokens(format_);
  tokens.learn_source(row.prompt, row.completion);
  return std::move(tokens).run();
}

bool RowMaker::is_named_in_template(const NormalRow& row, const std::string& key) {
  const bool has_tools = row.variables.at("tools").is_array();
  const auto [entry, is_new] = named_in_template_[has_tools ? 1 : 0].try_emplace(key);
  if (is_new) entry->second = template_of(format_, row.variables).mentions(key);
  return entry->second;
}

void RowMaker::record_unused(const json::object& example, const Names& used) {
  for (const auto& [name, value] : example) {
    const std::string key(name);
    const bool has_content = held(example, key.c_str()) != nullptr && value != json::value("");
    if (!has_content) continue;
    if (used.contains(key)) {
      findings_.used.insert(key);
    } else {
      ++findings_.unused[key];
    }
  }
}

void RowMaker::note(const NormalRow& row, const RenderedRow& chat, Names& used) {
  used.insert(row.used.begin(), row.used.end());
  findings_.original_roles.insert(row.original_roles.begin(), row.original_roles.end());
  for (const std::string& key : chat.omitted) ++findings_.omitted[key];
  const json::value& tools = row.variables.at("tools");
  if (tools.is_array() && !names_a_tool(chat.text, tools)) ++findings_.omitted["tools"];
  for (const auto& [key, value] : row.variables)
    if (key != "tools" && !value.is_null() && !is_named_in_template(row, key))
      ++findings_.omitted[key];
  for (std::size_t i = 0; i < row.messages.size(); ++i) {
    const json::object& message = row.messages[i].get_object();
    const std::string role(role_in(row.messages[i]));
    static constexpr std::array kRoles{"system",    "developer", "user",
                                       "assistant", "tool",      "ipython"};
    const bool is_written =
        std::ranges::find(chat.omitted, "content of " + role) == chat.omitted.end();
    if (std::ranges::find(kRoles, role) == kRoles.end() && is_written)
      findings_.other_roles.insert(role);
    const bool is_learned = row.trains[i] && role == "assistant" && i >= row.prompt_messages;
    findings_.empty_answers += is_learned && is_empty_answer(message) ? 1 : 0;
    for (const auto& [key, value] : message)
      if (!is_message_key(key) && !is_read(row, i, key)) findings_.unused_of_messages.insert(key);
    const json::value* const calls = message.if_contains("tool_calls");
    if (calls != nullptr) record_calls(row, calls->get_array());
  }
}

/// Returns whether the template reads a key of message i. Tests each role and key only once.
bool RowMaker::is_read(const NormalRow& row, std::size_t i, const std::string& key) {
  if (!is_named_in_template(row, key)) return false;
  const std::string place = concat(role_in(row.messages[i]), " ", key);
  const bool has_tools = row.variables.at("tools").is_array();
  const auto [entry, is_new] = read_[has_tools ? 1 : 0].try_emplace(place, true);
  if (!is_new) return entry->second;
  json::array others = row.messages;
  others[i].get_object().erase(key);
  try {
    entry->second = rendered(format_, row.variables, row.messages, false).text !=
                    rendered(format_, row.variables, std::move(others), false).text;
  } catch (const DataError&) {  // the template requires the key
  }
  return entry->second;
}

void RowMaker::record_calls(const NormalRow& row, const json::array& calls) {
  static constexpr std::array kKeys{"id", "type", "index", "function", "name", "arguments"};
  for (const json::value& call : calls)
    for (const json::object* part : {&call.get_object(), &function_of(call.get_object())})
      for (const auto& [key, value] : *part)
        if (std::ranges::find(kKeys, key) == kKeys.end() && !is_named_in_template(row, key))
          findings_.unused_of_messages.insert(concat("tool_calls.", std::string_view(key)));
}

/// Records the text after an answer without an end token, unless that text has a special token.
void RowMaker::record_ending(const std::string& ending) {
  constexpr std::size_t kMaxEndings = 8;
  if (const auto known = findings_.untokenized_endings.find(ending);
      known != findings_.untokenized_endings.end()) {
    ++known->second;
    return;
  }
  if (findings_.untokenized_endings.size() == kMaxEndings) return;
  const Tokens tokens = format_.tokenizer.encode(ending, ControlText::kAsTokens);
  const bool has_special = std::ranges::any_of(
      tokens, [&](std::int32_t id) { return is_special_token(format_.tokenizer, id); });
  if (!has_special) findings_.untokenized_endings[ending] = 1;
}

}  // namespace hybrid_trainer
