#include "src/tools/conversation.h"

#include <ctime>

#include "hybrid_trainer/core/error.h"
#include "hybrid_trainer/hugging_face/token_ids.h"

namespace hybrid_trainer {
namespace {

namespace fs = std::filesystem;
namespace json = boost::json;

const Tokenizer& tokenizer_of(const TrainedRun& opened, const fs::path& folder) {
  if (opened.tokenizer) return *opened.tokenizer;
  throw DataError(absent_tokenizer(folder));
}

}  // namespace

std::vector<std::int32_t> end_tokens_in(const fs::path& folder, const Tokenizer& tokenizer) {
  std::vector<std::int32_t> tokens = end_token_ids_in(folder);
  ChatFiles files;
  files.special_tokens = read_special_tokens(folder);
  const auto end = tokenizer.encode(files.special_token("eos_token"), ControlText::kAsTokens);
  if (end.size() == 1) tokens.push_back(end.front());
  return tokens;
}

Conversation::Conversation(const TrainedRun& opened, const fs::path& folder,
                           const GenerationSettings& settings, DType dtype, DraftModel* draft,
                           const Stream& stream)
    : tokenizer_(tokenizer_of(opened, folder)),
      chat_(read_chat_files(folder)),
      settings_(settings),
      decoder_(*opened.model, dtype, stream),
      draft_(draft) {
  if (!chat_.chat_template)
    throw DataError(concat(folder.string(),
                           ": holds no chat template (chat_template.jinja, or chat_template in "
                           "tokenizer_config.json); give --prompt instead of --chat"));
  check(settings_);
}

void Conversation::add(const char* role, const std::string& text) {
  messages_.push_back(json::object{{"role", role}, {"content", text}});
}

std::string Conversation::rendered() const {
  json::object variables;
  for (const auto& [name, token] : chat_.special_tokens) variables[name] = token;
  variables["tools"] = nullptr;
  variables["documents"] = nullptr;
  variables["messages"] = messages_;
  variables["add_generation_prompt"] = true;
  return chat_.chat_template->render(variables, std::time(nullptr)).text;
}

GenerationResult Conversation::answer(const std::function<void(std::string_view)>& write) {
  std::string said;
  const auto write_and_keep = [&](std::string_view piece) {
    said += piece;
    write(piece);
  };
  const GenerationResult result = continue_text(
      decoder_, draft_, tokenizer_, tokenizer_.encode(rendered(), ControlText::kAsTokens),
      settings_, write_and_keep);
  add("assistant", said);
  ++settings_.sampling.seed;  // other random numbers for the next answer
  return result;
}

}  // namespace hybrid_trainer
