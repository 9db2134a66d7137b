#include "hybrid_trainer/core/error.h"
#include "src/core/narrow.h"
#include "src/data/chat/chat_template.h"
#include "src/data/examples/row_tokens.h"
#include "src/files/text.h"

namespace hybrid_trainer {

namespace {

constexpr std::size_t kMaxRoles = 16;

json::array asked(json::value content) {
  return {json::object{{"role", "user"}, {"content", std::move(content)}}};
}

struct MessagePlace {
  /// Output for this message, without what inner loops write for other messages. In ascending
  /// order; no span is empty.
  std::vector<RenderedChat::Span> spans;
  bool has_other_messages = false;  // an inner loop wrote other messages
};

using Span = RenderedChat::Span;
using FoundPlace = std::optional<MessagePlace>;

bool holds(const Span& outer, const Span& inner) {
  return outer.begin <= inner.begin && inner.end <= outer.end;
}

/// Returns the location of each message; nullopt unless it is written exactly once.
std::vector<FoundPlace> message_places(const RenderedChat& chat, std::size_t count) {
  std::vector<std::optional<Span>> wholes(count);
  std::vector<bool> has_several(count, false);
  std::vector<std::int32_t> owners(chat.text.size(), -1);
  for (auto part = chat.parts.rbegin(); part != chat.parts.rend(); ++part) {  // outer parts first
    const auto& [message, span] = *part;
    std::fill(owners.begin() + static_cast<std::ptrdiff_t>(span.begin),
              owners.begin() + static_cast<std::ptrdiff_t>(span.end),
              narrow<std::int32_t>(message));
    std::optional<Span>& whole = wholes[message];
    has_several[message] = has_several[message] || (whole && !holds(*whole, span));
    if (!whole) whole = span;
  }
  std::vector<FoundPlace> places(count);
  for (std::size_t i = 0; i < count; ++i) {
    if (!wholes[i] || has_several[i]) continue;
    MessagePlace place;
    for (std::size_t at = wholes[i]->begin; at < wholes[i]->end; ++at) {
      if (owners[at] != narrow<std::int32_t>(i)) {
        place.has_other_messages = true;
        continue;
      }
      if (place.spans.empty() || place.spans.back().end != at) place.spans.push_back({at, at});
      place.spans.back().end = at + 1;
    }
    if (!place.spans.empty()) places[i] = std::move(place);
  }
  return places;
}

/// Maximum number of messages in a chat whose answers are located by rendering its prefixes.
constexpr std::size_t kMaxPrefixes = 100;

/// Mark that replaces a text, to test whether the template writes this text.
constexpr const char* kProbeMark = "Xq7Zk2Jv9W";

/// Removes white space, which templates may change.
std::string without_blanks(std::string_view text) {
  std::string rest(text);
  std::erase_if(rest, [](char c) { return c == ' ' || c == '\t' || c == '\r' || c == '\n'; });
  return rest;
}

std::size_t common_length(std::string_view a, std::string_view b) {
  return static_cast<std::size_t>(std::ranges::mismatch(a, b).in1 - a.begin());
}

class AnswerFinder {
 public:
  AnswerFinder(const ExampleFormat& format, const NormalRow& row, RenderedChat chat)
      : format_(format),
        row_(row),
        chat_(std::move(chat)),
        places_(message_places(chat_, row.messages.size())),
        prompts_(format, row) {}

  /// Returns whether each answer's text names the tools that it calls.
  bool writes_calls() const {
    for (std::size_t i = 0; i < count(); ++i)
      if (!writes_calls_of(i)) return false;
    return true;
  }

  RenderedRow run() && {
    if (row_.prompt_messages > 0) {
      find_completion();
    } else if (template_of(format_, row_.variables).marks_generation()) {
      take_generation_blocks();
    } else {
      for (std::size_t i = 0; i < count(); ++i)
        if (is_trained_answer(i)) find_answer(i);
    }
    record_ending();
    for (const auto& [i, key, text] : row_.optional_texts)
      if ((places_[i] || !is_trained_answer(i)) && !writes(i, text)) result_.omitted.push_back(key);
    result_.text = std::move(chat_.text);
    return std::move(result_);
  }

 private:
  std::size_t count() const { return row_.messages.size(); }
  const json::object& message(std::size_t i) const { return row_.messages[i].get_object(); }
  bool is_answer(std::size_t i) const { return message(i).at("role") == json::value("assistant"); }
  bool is_trained_answer(std::size_t i) const { return is_answer(i) && row_.trains[i]; }

  std::string written_of(std::size_t i) const {
    std::string text;
    for (const Span& span : places_[i]->spans)
      text.append(chat_.text, span.begin, span.end - span.begin);
    return text;
  }

  /// Returns whether the rendering contains a text of the message, verbatim or within JSON,
  /// ignoring white space. Returns true if this cannot be determined in time.
  bool writes(std::size_t i, std::string_view text) const {
    const std::string_view said = trimmed(text);
    const auto is_in = [&](std::string_view whole) {
      if (whole.find(said) != whole.npos) return true;
      const std::string written = without_blanks(whole);
      const std::string quoted = without_blanks(json_text(json::value(said)));
      return written.find(without_blanks(said)) != written.npos ||
             written.find(std::string_view(quoted).substr(1, quoted.size() - 2)) != written.npos;
    };
    if (places_[i] && is_in(written_of(i))) return true;
    if (i > 0 && places_[i]) return false;
    if (i > 0 && count() > kMaxPrefixes) return true;
    constexpr std::size_t kTelling = 32;  // a text of this length does not occur by chance
    return is_in(chat_.text) && (said.size() >= kTelling || writes_mark_for(i, text));
  }

  /// Returns whether the template writes a mark in place of the text, or rejects it.
  bool writes_mark_for(std::size_t i, std::string_view text) const {
    json::array messages = row_.messages;
    const auto replace = [&](auto&& self, json::value& value) -> void {
      if (value == json::value(text)) value = kProbeMark;
      if (json::object* const object = value.if_object())
        for (auto& member : *object) self(self, member.value());
      if (json::array* const list = value.if_array())
        for (json::value& item : *list) self(self, item);
    };
    replace(replace, messages[i]);
    try {
      const RenderedChat chat = rendered(format_, row_.variables, std::move(messages), false);
      return chat.text.find(kProbeMark) != std::string::npos;
    } catch (const DataError&) {  // the template refuses such a text
      return true;
    }
  }

  /// Records the text after the content of the last answer.
  void record_ending() {
    if (!result_.last_answer) return;
    const json::value& content = message(count() - 1).at("content");
    const json::value& text = content.is_array() ? content.at(0).at("text") : content;
    if (!text.is_string()) return;
    const auto [begin, end] = *result_.last_answer;
    const auto answer = std::string_view(chat_.text).substr(begin, end - begin);
    std::string_view said = text.get_string();
    if (answer.find(said) == answer.npos) said = trimmed(said);
    const std::size_t at = answer.rfind(said);
    if (!said.empty() && at != answer.npos) result_.ending = answer.substr(at + said.size());
  }

  /// Returns whether the template writes the name of each tool that the message calls.
  bool writes_calls_of(std::size_t i) const {
    if (!message(i).contains("tool_calls")) return true;
    if (!places_[i]) return false;
    if (!drops_calls_) drops_calls_ = dropped_calls();
    return !(*drops_calls_)[i];
  }

  /// Returns for each message whether the template omits the name of a tool call; empty if the
  /// template rejects the test names.
  std::vector<bool> dropped_calls() const {
    std::vector<std::pair<std::size_t, std::string>> marks;  // message, mark
    json::array messages = row_.messages;
    for (std::size_t i = 0; i < count(); ++i) {
      json::value* const calls = messages[i].get_object().if_contains("tool_calls");
      if (calls == nullptr) continue;
      for (json::value& call : calls->get_array()) {
        json::value* const name = function_of(call.get_object()).if_contains("name");
        if (name == nullptr || !name->is_string()) continue;
        marks.emplace_back(i, concat(kProbeMark, marks.size(), "n"));
        *name = marks.back().second;
      }
    }
    std::vector<bool> dropped_messages(count(), false);
    try {
      const std::string text = rendered(format_, row_.variables, std::move(messages), false).text;
      std::size_t at = 0;
      for (const auto& [i, mark] : marks) {
        const std::size_t found = text.find(mark, at);
        dropped_messages[i] = dropped_messages[i] || found == text.npos;
        if (found != text.npos) at = found;
      }
    } catch (const DataError&) {
    }
    return dropped_messages;
  }

  void find_answer(std::size_t i) {
    std::vector<Span> spans;
    if (!places_[i]) {
      if (const auto span = span_by_prefixes(i)) spans = {*span};
    } else if (const auto header = header_length(i, places_[i]->spans.front())) {
      spans = places_[i]->spans;
      if (places_[i]->has_other_messages) add_end_before_others(i, spans.front());
      spans.front().begin += *header;
    }
    if (spans.empty() || !writes_calls_of(i)) {
      ++result_.left_out;
      return;
    }
    if (i + 1 == count()) {
      spans.back().end = chat_.text.size();
      result_.last_answer = {spans.front().begin, spans.back().end};
    }
    result_.targets.insert(result_.targets.end(), spans.begin(), spans.end());
  }

  /// Extends an answer that other messages interrupt, such as tool results after a call. Appends
  /// the ending that the answer has without these messages, if the text contains that ending here.
  void add_end_before_others(std::size_t i, Span& span) {
    const auto written = [&](const Span& of, const std::string& text) {
      return std::string_view(text).substr(of.begin, of.end - of.begin);
    };
    if (!end_before_others_) {
      end_before_others_ = "";
      const RenderedChat alone =
          rendered(format_, row_.variables, first_messages(row_, i + 1), false);
      const FoundPlace place = message_places(alone, i + 1)[i];
      const auto whole = place ? written(place->spans.back(), alone.text) : std::string_view();
      const auto here = written(span, chat_.text);
      if (whole.starts_with(here)) end_before_others_ = whole.substr(here.size());
    }
    const bool is_here =
        std::string_view(chat_.text).substr(span.end).starts_with(*end_before_others_);
    if (is_here) span.end += end_before_others_->size();
  }

  /// Returns how many bytes at the start of a message's text belong to the generation prompt: up to
  /// the end of the prompt or, if the text does not contain it, the common leading tokens of both.
  /// Returns none if the prompt is unknown.
  std::optional<std::size_t> header_length(std::size_t i, const Span& span) {
    const auto prompt = prompts_.before(i);
    if (!prompt) return {};
    const std::string_view text =
        std::string_view(chat_.text).substr(span.begin, span.end - span.begin);
    const std::size_t common = common_length(*prompt, text);
    if (common == prompt->size()) return common;
    if (const std::size_t at = text.find(*prompt); at != text.npos && is_first_written(i))
      return at + prompt->size();  // after the beginning of the chat
    const Tokenizer& tokenizer = format_.tokenizer;
    const auto of_prompt = tokenizer.encode(*prompt, ControlText::kAsTokens);
    const auto of_text =
        tokenizer.encode(text.substr(0, 2 * prompt->size()), ControlText::kAsTokens);
    std::size_t bytes = 0;
    const auto end = std::ranges::mismatch(of_prompt, of_text).in1;
    for (auto id = of_prompt.begin(); id != end; ++id) bytes += tokenizer.token_bytes(*id).size();
    return std::min(bytes, common);
  }

  bool is_first_written(std::size_t i) const {
    const auto end = places_.begin() + static_cast<std::ptrdiff_t>(i);
    return std::all_of(places_.begin(), end, [](const FoundPlace& place) { return !place; });
  }

  /// Locates an answer if the template has no loop over messages. The answer is the difference
  /// between two renderings: the chat before the answer with a generation prompt, and the chat
  /// including the answer. Returns none unless the text begins with both.
  std::optional<Span> span_by_prefixes(std::size_t i) const {
    if (count() > kMaxPrefixes) return {};
    try {
      const std::string before =
          rendered(format_, row_.variables, first_messages(row_, i), true).text;
      const std::string through =
          rendered(format_, row_.variables, first_messages(row_, i + 1), false).text;
      const bool holds = chat_.text.starts_with(through) && through.starts_with(before) &&
                         before.size() < through.size();
      if (holds) return Span{before.size(), through.size()};
    } catch (const DataError&) {  // the template refuses such a chat
    }
    return {};
  }

  /// Adds the text from the completion's first message on, except turns that are not trained on.
  void find_completion() {
    const std::size_t i = row_.prompt_messages;
    for (std::size_t j = i; j < count(); ++j) {
      if (!is_trained_answer(j) || writes_calls_of(j)) continue;
      result_.left_out = 1;
      return;
    }
    std::optional<std::size_t> begin;
    if (places_[i]) {
      if (const auto header = header_length(i, places_[i]->spans.front()))
        begin = places_[i]->spans.front().begin + *header;
    } else {
      const std::string before =
          rendered(format_, row_.variables, first_messages(row_, i), true).text;
      if (chat_.text.starts_with(before)) begin = before.size();
    }
    if (!begin)
      throw DataError(
          "cannot find the start of the completion: the rendered row does not begin with the "
          "rendered prompt");
    Span rest{*begin, chat_.text.size()};
    if (is_trained_answer(count() - 1)) result_.last_answer = rest;
    for (std::size_t j = i; j < count(); ++j) {
      if (row_.trains[j]) continue;
      if (!places_[j])
        throw DataError("cannot find, in the rendered chat, a turn that is excluded from training");
      for (const Span& span : places_[j]->spans) {
        if (rest.begin < span.begin) result_.targets.push_back({rest.begin, span.begin});
        rest.begin = span.end;
      }
    }
    if (rest.begin < rest.end) result_.targets.push_back(rest);
  }

  void take_generation_blocks() {
    std::vector<bool> found(count(), false);
    std::optional<std::size_t> last;  // message of the last target, if known
    const bool trains_all = std::ranges::all_of(row_.trains, std::identity());
    for (const Span& block : chat_.generated) {
      const auto owner = message_at(block.begin);
      if (!owner && !trains_all)
        throw DataError(
            "cannot find the turn to which a generation block of the chat template belongs");
      if (owner && (!row_.trains[*owner] || !writes_calls_of(*owner))) continue;
      if (owner) found[*owner] = true;
      last = owner;
      result_.targets.push_back(block);
    }
    if (!result_.targets.empty() && is_trained_answer(count() - 1) &&
        last.value_or(count() - 1) == count() - 1)
      result_.last_answer = result_.targets.back();
    if (is_first_written(count())) return;
    for (std::size_t i = 0; i < count(); ++i)
      result_.left_out += is_trained_answer(i) && !found[i] ? 1 : 0;
  }

  std::optional<std::size_t> message_at(std::size_t byte) const {
    for (std::size_t i = 0; i < count(); ++i) {
      if (!places_[i]) continue;
      for (const Span& span : places_[i]->spans)
        if (span.begin <= byte && byte < span.end) return i;
    }
    return {};
  }

  const ExampleFormat& format_;
  const NormalRow& row_;
  RenderedChat chat_;
  std::vector<FoundPlace> places_;
  GenerationPrompts prompts_;
  std::optional<std::string> end_before_others_;
  mutable std::optional<std::vector<bool>> drops_calls_;
  RenderedRow result_;
};

}  // namespace

const ChatTemplate& template_of(const ExampleFormat& format, const json::object& variables) {
  const json::value* tools = variables.if_contains("tools");
  return format.chat.template_for(tools != nullptr && !tools->is_null());
}

RenderedChat rendered(const ExampleFormat& format, const json::object& variables,
                      json::array messages, bool add_generation_prompt) {
  const ChatTemplate& source = template_of(format, variables);
  json::object all;
  for (const auto& [name, token] : format.chat.special_tokens) all[name] = token;
  for (const auto& [name, value] : variables) all[name] = value;
  all["messages"] = std::move(messages);
  all["add_generation_prompt"] = add_generation_prompt;
  return source.render(all, format.now);
}

json::array first_messages(const NormalRow& row, std::size_t count) {
  const auto begin = row.messages.begin();
  return json::array(begin, begin + static_cast<std::ptrdiff_t>(count));
}

std::optional<std::string> GenerationPrompts::before(std::size_t i) {
  const std::string before =
      i == 0 ? "" : std::string(row_.messages[i - 1].get_object().at("role").get_string());
  if (prompts_.size() == kMaxRoles && !prompts_.contains(before)) return {};
  const auto [entry, is_new] = prompts_.try_emplace(before);
  if (!is_new) return entry->second;
  if (i > 0) entry->second = prompt_after(first_messages(row_, i));
  if (!entry->second) {
    static constexpr const char* kAny = "Hello";
    const bool as_parts = i + 1 <= row_.messages.size() && has_parts();
    entry->second = prompt_after(
        asked(as_parts ? json::value(json::array{json::object{{"type", "text"}, {"text", kAny}}})
                       : json::value(kAny)));
  }
  return entry->second;
}

bool GenerationPrompts::has_parts() const {
  return std::ranges::any_of(row_.messages, [](const json::value& one) {
    return one.get_object().at("content").is_array();
  });
}

std::optional<std::string> GenerationPrompts::prompt_after(const json::array& messages) const {
  try {
    const RenderedChat with = rendered(format_, row_.variables, messages, true);
    const std::string without = rendered(format_, row_.variables, messages, false).text;
    const bool continues = with.text.starts_with(without);
    std::size_t end = 0;  // end of the output of the loop over messages
    for (const auto& part : with.parts) end = std::max(end, part.span.end);
    if (continues && (end == 0 || without.size() < end)) end = without.size();
    if (continues || end > 0) return with.text.substr(end);
  } catch (const DataError&) {  // the template refuses such a chat
  }
  return {};
}

FoundAnswers find_answers(const ExampleFormat& format, const NormalRow& row, RenderedChat chat) {
  AnswerFinder finder(format, row, std::move(chat));
  const bool writes_calls = finder.writes_calls();
  return {std::move(finder).run(), writes_calls};
}

ChatRows::ChatRows(const ExampleFormat& format) : format_(format) {
  form_.content_as_parts = requires_content_parts(format.chat, format.now);
}

RenderedRow ChatRows::render(const json::object& example, const NormalRow& row) const {
  std::optional<RenderedRow> incomplete;
  std::optional<DataError> refusal;
  for (int variant = 0; variant < 8; ++variant) {
    MessageForm form = form_;
    form.null_content_with_calls = (variant & 1) != 0;
    form.arguments_as_text = (variant & 2) != 0;
    form.wraps_calls = (variant & 4) != 0;
    try {
      std::set<std::string> ignored;
      const bool is_first = variant == 0;
      const NormalRow other = is_first ? NormalRow() : normal_row(example, form, ignored);
      const NormalRow& tried = is_first ? row : other;
      FoundAnswers found =
          find_answers(format_, tried, rendered(format_, tried.variables, tried.messages, false));
      if (found.writes_calls) return std::move(found.row);
      if (!incomplete) incomplete = std::move(found.row);
    } catch (const DataError& error) {
      if (!refusal) refusal = error;
    }
    if (!row.has_calls()) break;
  }
  if (incomplete) return *std::move(incomplete);
  throw DataError(*refusal);
}

}  // namespace hybrid_trainer
