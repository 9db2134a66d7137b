#include "src/tools/generate/writing.h"

#include <algorithm>
#include <iostream>

#include "hybrid_trainer/core/error.h"
#include "src/core/messages.h"
#include "src/data/chat/chat_template.h"
#include "src/files/json.h"
#include "src/model_files/hugging_face/generation_config.h"
#include "src/tools/options.h"

namespace hybrid_trainer {

namespace {

namespace fs = std::filesystem;
namespace json = boost::json;

const Tokenizer& tokenizer_of(const TrainedRun& opened, const ModelFolder& folder) {
  if (opened.tokenizer) return *opened.tokenizer;
  throw DataError(missing_tokenizer_message(folder.path()));
}

}  // namespace

std::vector<std::int32_t> end_tokens_in(const ModelFolder& folder, const Tokenizer& tokenizer) {
  std::vector<std::int32_t> tokens = end_token_ids_in(folder);
  const auto end = tokenizer.encode(folder.special_token("eos_token"), ControlText::kAsTokens);
  if (end.size() == 1) tokens.push_back(end.front());
  return tokens;
}

Conversation::Conversation(const TrainedRun& opened, const ModelFolder& folder,
                           const GenerationSettings& settings, DType dtype, DraftModel* draft,
                           const Stream& stream)
    : tokenizer_(tokenizer_of(opened, folder)),
      folder_(folder),
      takes_parts_(requires_content_parts(chat_, std::time(nullptr))),
      settings_(settings),
      decoder_(opened.model(), dtype, stream),
      draft_(draft) {
  if (!chat_.chat_template)
    throw DataError(concat(folder.string(),
                           ": has no chat template (chat_template.jinja, or chat_template in "
                           "tokenizer_config.json); continue a text instead: hybrid sample ",
                           shell_path(folder.path()), " --prompt TEXT"));
  check(settings_);
}

json::object Conversation::message(const char* role, const std::string& text) const {
  json::value content(text);
  if (takes_parts_) content = json::array{json::object{{"type", "text"}, {"text", text}}};
  return {{"role", role}, {"content", std::move(content)}};
}

void Conversation::add(const char* role, const std::string& text) {
  messages_.push_back(message(role, text));
}

void Conversation::add_system(const std::string& text) {
  add("system", text);
  const json::object requested = message("user", "Hello");
  try {
    const std::string with = rendered({messages_.back(), requested});
    if (with.find(text) == with.npos && with == rendered({requested}))
      std::cerr << "warning: the chat template ignores --system" << std::endl;
  } catch (const DataError&) {  // the first answer reports the reason
  }
}

std::string Conversation::rendered(const json::array& messages) const {
  json::object variables;
  for (const auto& [name, token] : chat_.special_tokens) variables[name] = token;
  variables["tools"] = nullptr;
  variables["documents"] = nullptr;
  variables["messages"] = messages;
  variables["add_generation_prompt"] = true;
  return chat_.chat_template->render(variables, std::time(nullptr)).text;
}

std::vector<std::int32_t> Conversation::tokens_of(const json::array& messages) const {
  return tokenizer_.encode(rendered(messages), ControlText::kAsTokens);
}

/// Returns the number of system messages at the beginning of the conversation.
std::size_t Conversation::messages_of_system() const {
  std::size_t count = 0;
  while (count < messages_.size() && messages_[count].at("role") == json::value("system")) ++count;
  return count;
}

/// Returns the number of messages of the oldest turn, which ends before the second user message; 0
/// if there is no such message.
std::size_t Conversation::oldest_turn() const {
  const std::size_t first = messages_of_system();
  for (std::size_t next = first + 1; next < messages_.size(); ++next)
    if (messages_[next].at("role") == json::value("user")) return next - first;
  return 0;
}

/// Returns the number of tokens up to the end of the system message, which stay in the context.
/// Measures them as the common prefix with a conversation that continues with an empty user
/// message. If the template refuses this message, returns the length of the tokenizer's own prefix.
std::int64_t Conversation::pinned_tokens(const std::vector<std::int32_t>& tokens) const {
  const auto end = messages_.begin() + static_cast<std::ptrdiff_t>(messages_of_system());
  json::array other(messages_.begin(), end);
  other.push_back(message("user", ""));
  try {
    return std::ranges::mismatch(tokens, tokens_of(other)).in1 - tokens.begin();
  } catch (const DataError&) {
    return std::ssize(tokenizer_.template_start());
  }
}

void Conversation::leave_out_turns(std::vector<std::int32_t>& tokens) {
  const std::int64_t context = decoder_.context(), all = std::ssize(tokens);
  if (all + std::min(settings_.tokens, context / 2) <= context) return;
  std::size_t left_out = 0;
  while (std::ssize(tokens) > context / 2 && oldest_turn() > 0) {
    const auto first = messages_.begin() + static_cast<std::ptrdiff_t>(messages_of_system());
    const std::size_t turn = oldest_turn();
    messages_.erase(first, first + static_cast<std::ptrdiff_t>(turn));
    left_out += turn;
    tokens = tokens_of(messages_);
  }
  if (left_out > 0)
    std::cerr << "warning: the conversation has " << all << " tokens and the model's context is "
              << context << ": dropped its " << left_out << " oldest messages, "
              << all - std::ssize(tokens) << " tokens"
              << (messages_of_system() > 0 ? "; the system message is kept" : "") << std::endl;
}

GenerationResult Conversation::answer(const std::function<void(std::string_view)>& write) {
  std::string said;
  const auto write_and_keep = [&](std::string_view piece) {
    said += piece;
    write(piece);
  };
  std::vector<std::int32_t> tokens = tokens_of(messages_);
  if (tokens.empty())
    throw DataError("the chat template produces no text for this message; use --prompt instead");
  if (settings_.overflow == ContextOverflow::kTruncate) leave_out_turns(tokens);
  settings_.pinned = pinned_tokens(tokens);
  const ContextWindow window(decoder_.context(), settings_.pinned);
  FittedPrompt prompt = fit_prompt(std::move(tokens), window, settings_.tokens, settings_.overflow);
  if (prompt.left_out > 0)
    std::cerr << "warning: " << truncated_prompt_warning(prompt, window) << std::endl;
  const GenerationResult result = continue_text(
      decoder_, draft_, tokenizer_, std::move(prompt.tokens), settings_, write_and_keep);
  if (result.dropped_tokens > 0)
    std::cerr << "\nwarning: " << dropped_tokens_warning(result.dropped_tokens, window)
              << std::endl;
  add("assistant", said);
  ++settings_.sampling.seed;  // new random numbers for the next answer
  return result;
}

}  // namespace hybrid_trainer
