#include "src/data/chat/ollama_template.h"

#include <algorithm>
#include <boost/json.hpp>

#include "hybrid_trainer/core/error.h"
#include "src/data/chat/value.h"
#include "src/files/text.h"

namespace hybrid_trainer {

namespace {

using Place = GoTemplate::Place;
using SegmentKind = GoTemplate::Segment::Kind;
using Segments = GoTemplate::Segments;
using Messages = std::vector<GoMessage>;

const char* condition_of(Place place) {
  switch (place) {
    case Place::kFirst: return "eq $i 0";
    case Place::kAfterSystem: return "and (eq $i 1) $.System";
    case Place::kLast: return "$last";
    case Place::kLastWithSystem: return "and $last $.System";
    case Place::kAny: break;
  }
  return "true";
}

/// Returns the Go source of a text between actions. Escapes "{{", which would begin an action.
std::string literal(std::string_view plain) {
  std::string text = jinja::replaced(plain, "{{", R"({{ "{{" }})", -1);
  if (text.ends_with('{')) text.replace(text.size() - 1, 1, R"({{ "{" }})");  // before an action
  return text;
}

std::string text_of(const GoTemplate::Segments& segments) {
  std::string text;
  for (const GoTemplate::Segment& segment : segments) {
    if (segment.kind == SegmentKind::kText) text += literal(segment.text);
    if (segment.kind == SegmentKind::kContent) text += "{{ .Content }}";
    if (segment.kind == SegmentKind::kSystem) text += "{{ $.System }}";
  }
  return text;
}

std::string text_of(const GoTemplate::Turn& turn) {
  std::string text;
  bool first = true, needs_end = false;
  for (const auto& [place, segments] : turn.forms) {
    if (place == Place::kAny && first) return text_of(segments);
    if (place == Place::kAny) {
      text += "{{ else }}" + text_of(segments);
    } else {
      text += std::string(first ? "{{ if " : "{{ else if ") + condition_of(place) + " }}" +
              text_of(segments);
    }
    first = false;
    needs_end = true;
    if (place == Place::kAny) break;
  }
  return needs_end ? text + "{{ end }}" : text;
}

std::string system_in(const std::vector<GoMessage>& messages) {
  std::string system;
  for (const GoMessage& message : messages)
    if (message.role == "system") system += (system.empty() ? "" : "\n\n") + message.content;
  return system;
}

struct Seen {
  std::size_t index;
  bool is_last;
  const std::string& system;
};

bool holds(Place place, const Seen& seen) {
  const bool has_system = !seen.system.empty();
  switch (place) {
    case Place::kFirst: return seen.index == 0;
    case Place::kAfterSystem: return seen.index == 1 && has_system;
    case Place::kLast: return seen.is_last;
    case Place::kLastWithSystem: return seen.is_last && has_system;
    case Place::kAny: break;
  }
  return true;
}

std::string render(const GoTemplate::Turn& turn, const GoMessage& message, const Seen& seen) {
  const auto form =
      std::ranges::find_if(turn.forms, [&](const auto& one) { return holds(one.first, seen); });
  std::string text;
  if (form == turn.forms.end()) return text;
  for (const GoTemplate::Segment& segment : form->second) {
    if (segment.kind == SegmentKind::kText) text += segment.text;
    if (segment.kind == SegmentKind::kContent) text += message.content;
    if (segment.kind == SegmentKind::kSystem) text += seen.system;
  }
  return text;
}

// Two days whose dates differ in every part.
constexpr std::time_t kSomeDay = 86400 * 400, kOtherDay = 86400 * 12000;

/// Words that templates do not test for. No word is a part of another word.
constexpr const char *kSystem = "Qsystemq", *kUser = "Quserq", *kAnswer = "Qanswerq",
                     *kNext = "Qnextq", *kLater = "Qlaterq";

std::string common_start(const std::string& a, const std::string& b) {
  return {a.begin(), std::ranges::mismatch(a, b).in1};
}

std::optional<std::string> without_end(const std::string& text, const std::string& end) {
  if (!text.ends_with(end)) return {};
  return text.substr(0, text.size() - end.size());
}

std::string roles_of(const Messages& messages) {
  std::vector<std::string> roles;
  for (const GoMessage& message : messages) roles.push_back(message.role);
  return join(roles);
}

class FolderTemplate {
 public:
  FolderTemplate(const ChatFiles& chat, std::string runner_bos)
      : chat_(chat), runner_bos_(std::move(runner_bos)) {
    if (!chat.chat_template) throw DataError("the folder has no chat template");
    takes_parts_ = requires_content_parts(chat, kSomeDay);
  }

  /// Returns the messages without the runner's BOS text. Throws DataError if they are rejected.
  std::string write(const Messages& messages, bool asks, std::time_t now = kSomeDay,
                    const json::value& tools = nullptr) const {
    json::object variables{{"tools", tools}, {"documents", nullptr}};
    for (const auto& [name, token] : chat_.special_tokens) variables[name] = token;
    json::array list;
    for (const GoMessage& message : messages)
      list.push_back(json::object{{"role", message.role}, {"content", content_of(message)}});
    variables["messages"] = std::move(list);
    variables["add_generation_prompt"] = asks;
    std::string text = chat_.template_for(!tools.is_null()).render(variables, now).text;
    if (writes_bos(text)) text.erase(0, runner_bos_.size());
    return text;
  }
  bool takes(const Messages& messages) const {
    try {
      write(messages, false);
      return true;
    } catch (const DataError&) {
      return false;
    }
  }
  /// Returns the prompt that a runner would continue. A final assistant message is left unfinished.
  std::string prompt(const Messages& messages) const {
    const bool continues = messages.back().role == "assistant";
    std::string text = write(messages, !continues, kOtherDay);
    const std::string& last = messages.back().content;
    const std::size_t at = text.rfind(last);
    if (continues && at != std::string::npos) text.resize(at + last.size());
    return text;
  }
  bool writes_bos(const std::string& text) const {
    return !runner_bos_.empty() && text.starts_with(runner_bos_);
  }
  bool reads_date() const { return chat_.chat_template->reads_date(); }

 private:
  json::value content_of(const GoMessage& message) const {
    if (!takes_parts_) return json::value(message.content);
    return json::array{json::object{{"type", "text"}, {"text", message.content}}};
  }
  const ChatFiles& chat_;
  std::string runner_bos_;
  bool takes_parts_ = false;
};

/// Returns the texts around the contents. Throws DataError unless each content occurs once, in
/// order.
std::vector<std::string> around(const std::string& text, const Messages& messages) {
  std::vector<std::string> pieces;
  std::size_t from = 0;
  for (const GoMessage& message : messages) {
    const std::size_t at = text.find(message.content, from);
    const bool is_present = at != std::string::npos;
    if (!is_present || text.find(message.content, at + message.content.size()) != std::string::npos)
      throw DataError(
          concat("it does not write each message once and in order: ", roles_of(messages)));
    pieces.push_back(text.substr(from, at - from));
    from = at + message.content.size();
  }
  pieces.push_back(text.substr(from));
  return pieces;
}

Segments content_between(const std::string& before, const std::string& after) {
  using Kind = GoTemplate::Segment::Kind;
  return {{Kind::kText, before}, {Kind::kContent}, {Kind::kText, after}};
}

class Derivation {
 public:
  explicit Derivation(const FolderTemplate& folder) : folder_(folder) {
    find_turns_of_user_and_assistant();
    find_turn_of_system();
    result_.turns = {user_, assistant_};
    if (!system_.forms.empty()) result_.turns.insert(result_.turns.begin(), system_);
    result_.generation_prompt = generation_prompt_;
  }
  const GoTemplate& result() const { return result_; }
  bool accepts_system() const { return accepts_system_; }
  /// Returns the end of an assistant's turn or, if empty, the start of the user's next turn.
  std::string stop() const {
    const std::string_view end = trimmed(after_assistant_);
    return std::string(end.empty() ? trimmed(before_user_) : end);
  }

 private:
  const GoMessage u_{"user", kUser}, a_{"assistant", kAnswer}, v_{"user", kNext},
      s_{"system", kSystem};

  std::vector<std::string> pieces(const Messages& messages, bool asks) const {
    return around(folder_.write(messages, asks), messages);
  }

  void find_turns_of_user_and_assistant() {
    const auto told = pieces({u_}, false), requested = pieces({u_}, true),
               answered = pieces({u_, a_}, false), all = pieces({u_, a_, v_}, true);
    after_user_ = told[1];
    if (!all[1].starts_with(after_user_) || !requested[1].starts_with(after_user_) ||
        !answered[1].starts_with(after_user_))
      after_user_ = common_start(common_start(all[1], requested[1]), answered[1]);
    generation_prompt_ = requested[1].substr(after_user_.size());
    after_assistant_ = answered[2];
    if (!all[2].starts_with(after_assistant_)) after_assistant_ = common_start(all[2], answered[2]);
    before_user_ = all[2].substr(after_assistant_.size());
    const std::string before_last = answered[1].substr(after_user_.size()),
                      before_other = all[1].substr(after_user_.size());
    user_.forms = {{Place::kFirst, content_between(all[0], after_user_)},
                   {Place::kAny, content_between(before_user_, after_user_)}};
    if (all[0] == before_user_) user_.forms.erase(user_.forms.begin());
    assistant_.forms = {{Place::kLast, content_between(before_last, "")},
                        {Place::kAny, content_between(before_other, after_assistant_)}};
  }

  void find_turn_of_system() {
    accepts_system_ = folder_.takes({s_, u_, a_, v_}) &&
                      folder_.write({s_, u_, a_, v_}, true).find(kSystem) != std::string::npos;
    if (!accepts_system_) return;
    const std::string text = folder_.write({s_, u_, a_, v_}, true);
    if (text.find(kSystem) < text.find(kUser)) {
      find_first_system();
    } else {
      find_system_in_last_turn(text);
    }
  }

  void find_first_system() {
    const auto first = pieces({s_, u_, a_, v_}, true);
    const auto after = without_end(first[1], before_user_);
    system_.forms = {{Place::kAny, content_between(first[0], after.value_or(first[1]))}};
    if (!after)  // inside the user's turn
      user_.forms.insert(user_.forms.begin(),
                         {Place::kAfterSystem, content_between("", after_user_)});
    const Messages later{u_, a_, {"system", kLater}, v_};
    if (!folder_.takes(later)) return;
    const std::string text = folder_.write(later, true);
    if (text.find(kLater) == std::string::npos) {
      system_.forms = {{Place::kFirst, system_.forms.front().second}};
      return;
    }
    const auto second = around(text, later);
    const auto after_second = without_end(second[3], before_user_);
    if (!second[2].starts_with(after_assistant_) || !after_second) return;
    const std::string before = second[2].substr(after_assistant_.size());
    if (before == first[0] && after_second == after) return;
    system_.forms.front().first = Place::kFirst;
    system_.forms.push_back({Place::kAny, content_between(before, *after_second)});
  }

  /// Handles templates that write the system message inside the user's last turn.
  void find_system_in_last_turn(const std::string& text) {
    using Kind = GoTemplate::Segment::Kind;
    const Messages order{u_, a_, s_, v_};
    const auto last = around(text, order);
    if (!last[2].starts_with(after_assistant_)) return;
    const Segments with_system{{Kind::kText, last[2].substr(after_assistant_.size())},
                               {Kind::kSystem},
                               {Kind::kText, last[3]},
                               {Kind::kContent},
                               {Kind::kText, after_user_}};
    user_.forms.insert(user_.forms.begin(), {Place::kLastWithSystem, with_system});
    // In this case, the first user turn begins the text although it is not the first message.
    if (last[0] != before_user_)
      user_.forms.insert(user_.forms.begin() + 1,
                         {Place::kAfterSystem, content_between(last[0], after_user_)});
  }

  const FolderTemplate& folder_;
  GoTemplate::Turn user_{"user"}, assistant_{"assistant"}, system_{"system"};
  std::string after_user_, before_user_, after_assistant_, generation_prompt_;
  bool accepts_system_ = false;
  GoTemplate result_{};
};

/// Returns test conversations of ordinary texts without surrounding white space.
std::vector<Messages> conversations() {
  const GoMessage s{"system", "You are brief.\n\nAnswer in French, as \"Zoé\" would."},
      code{"user", "What does this do?\n```c\nint f(int x) { return {{x}}; }\n```"},
      answer{"assistant", "Il renvoie x — sans l'élever au carré : x² ≠ x."},
      short_one{"user", "5"}, tags{"user", "<b>Is 1 < 2 & 3 > 2?</b> [yes] {% no %} $x 'y' \\n"},
      list{"assistant", "1. Oui\n2. Non\n\n- peut-être"}, empty_end{"user", "日本語で？"},
      begun{"assistant", "Voici"};
  return {{short_one},
          {s, code},
          {code, answer, short_one},
          {s, tags, list, empty_end},
          {tags, answer, code, list, short_one},
          {s, short_one, answer, empty_end, list, code},
          {empty_end, begun},
          {s, code, list, tags, begun},
          {code, answer, s, short_one}};
}

Messages without_system(Messages messages) {
  std::erase_if(messages, [](const GoMessage& message) { return message.role == "system"; });
  return messages;
}

std::string excerpt(const std::string& text, std::size_t at) {
  const std::size_t from = at < 20 ? 0 : at - 20;
  return json::serialize(json::value(text.substr(from, 60)));
}

std::size_t compare(const FolderTemplate& folder, const Derivation& derived) {
  std::size_t compared = 0;
  for (const Messages& given : conversations()) {
    const Messages messages = derived.accepts_system() ? given : without_system(given);
    const bool begins_plain = given.size() < 3 || given[2].role != "system";
    if (!begins_plain && !folder.takes(messages)) continue;  // the system message is not first
    const std::string wanted = folder.prompt(messages), got = render(derived.result(), messages);
    if (wanted == got) {
      ++compared;
      continue;
    }
    if (folder.reads_date()) throw DataError("it writes the current date");
    const auto at =
        static_cast<std::size_t>(std::ranges::mismatch(wanted, got).in1 - wanted.begin());
    throw DataError(concat(
        "its output does not depend only on the role and the position of a message: for ",
        roles_of(messages), " it writes ", excerpt(wanted, at), " instead of ", excerpt(got, at)));
  }
  return compared;
}

bool supports_tools(const ChatFiles& chat, const FolderTemplate& folder) {
  if (chat.tool_template || !chat.tool_template_problem.empty()) return true;
  const json::value tools = json::array{json::object{
      {"type", "function"},
      {"function", json::object{{"name", "weather"},
                                {"description", "The weather."},
                                {"parameters", json::object{{"type", "object"},
                                                            {"properties", json::object()}}}}}}};
  const Messages ask{{"user", kUser}};
  try {
    return folder.write(ask, true, kSomeDay, tools) != folder.write(ask, true);
  } catch (const DataError&) {
    return true;
  }
}

}  // namespace

std::string text_of(const GoTemplate& source) {
  std::string text =
      "{{ range $i, $_ := .Messages }}{{ $last := eq (len (slice $.Messages $i)) 1 }}";
  const char* begin = "{{ if eq .Role \"";
  for (const GoTemplate::Turn& turn : source.turns) {
    text += begin + turn.role + "\" }}" + text_of(turn);
    begin = "{{ else if eq .Role \"";
  }
  if (!source.turns.empty()) text += "{{ end }}";
  if (!source.generation_prompt.empty())
    text += "{{ if and $last (ne .Role \"assistant\") }}" + literal(source.generation_prompt) +
            "{{ end }}";
  return text + "{{ end }}";
}

std::string render(const GoTemplate& source, const std::vector<GoMessage>& messages) {
  const std::string system = system_in(messages);
  std::string text;
  for (std::size_t i = 0; i < messages.size(); ++i) {
    const Seen seen{i, i + 1 == messages.size(), system};
    for (const GoTemplate::Turn& turn : source.turns)
      if (turn.role == messages[i].role) text += render(turn, messages[i], seen);
    if (seen.is_last && messages[i].role != "assistant") text += source.generation_prompt;
  }
  return text;
}

OllamaTemplate derive_ollama_template(const ChatFiles& chat, const std::string& runner_bos) {
  const FolderTemplate folder(chat, runner_bos);
  const Derivation derived(folder);
  OllamaTemplate made;
  made.text = text_of(derived.result());
  made.stop = derived.stop();
  if (made.text.find("\"\"\"") != std::string::npos)
    throw DataError("it writes \"\"\", which ends a string in a Modelfile");
  made.compared = compare(folder, derived);
  if (!derived.accepts_system())
    made.remarks.push_back("leaves out system messages, which the chat template does not write");
  if (supports_tools(chat, folder)) made.remarks.push_back("leaves out tools");
  const std::string plain = FolderTemplate(chat, "").write({{"user", kUser}}, true);
  if (!runner_bos.empty() && !folder.writes_bos(plain))
    made.remarks.push_back(concat("cannot prevent the runner from starting with ", runner_bos,
                                  ", which the chat template does not write"));
  return made;
}

}  // namespace hybrid_trainer
