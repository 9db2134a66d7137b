#include "src/data/examples/held_out_prompts.h"

#include <boost/algorithm/string/case_conv.hpp>
#include <iterator>

#include "src/data/text/unicode.h"

namespace hybrid_trainer {

namespace {

bool is_name_of_role(const std::string& text) {
  static const std::set<std::string> roles{
      "system",    "user", "assistant", "human",   "model",       "gpt",        "bot",
      "developer", "tool", "function",  "ipython", "environment", "observation"};
  return roles.contains(boost::algorithm::to_lower_copy(text));
}

/// Returns the last text between special tokens that is not just a role's name.
std::string last_turn(const Tokenizer& tokenizer, std::span<const std::int32_t> tokens) {
  std::size_t end = tokens.size();
  while (end > 0) {
    std::size_t begin = end;
    while (begin > 0 && !is_special_token(tokenizer, tokens[begin - 1])) --begin;
    std::string turn = readable_text(tokenizer, tokens.subspan(begin, end - begin));
    if (!turn.empty() && !is_name_of_role(turn)) return turn;
    end = begin == 0 ? 0 : begin - 1;
  }
  return readable_text(tokenizer, tokens);
}

HeldOutPrompt prompt_of(const ExampleRow& row, const Tokenizer& tokenizer) {
  const auto first = std::ranges::find(row.is_target, true);
  const auto end = std::find(first, row.is_target.end(), false);
  const std::int64_t length = row.rejected_at > 0 ? row.rejected_at : std::ssize(row.tokens);
  const std::int64_t begin = first - row.is_target.begin();
  const std::int64_t last = std::min<std::int64_t>(length, end - row.is_target.begin());
  const std::span<const std::int32_t> all = row.tokens;
  HeldOutPrompt prompt{.tokens = {row.tokens.begin(), row.tokens.begin() + begin}};
  if (!row.source.empty()) prompt.tokens = row.source;
  prompt.text = row.source.empty() ? last_turn(tokenizer, prompt.tokens)
                                   : readable_text(tokenizer, prompt.tokens);
  if (begin < last) {
    prompt.wanted = readable_text(tokenizer, all.subspan(static_cast<std::size_t>(begin),
                                                         static_cast<std::size_t>(last - begin)));
  }
  return prompt;
}

}  // namespace

std::string readable_text(const Tokenizer& tokenizer, std::span<const std::int32_t> tokens) {
  std::vector<std::int32_t> kept;
  std::ranges::copy_if(tokens, std::back_inserter(kept),
                       [&](std::int32_t id) { return !is_special_token(tokenizer, id); });
  const std::string bytes = tokenizer.decode(kept);
  std::string text;
  for_each_character(bytes, [&](CodePoint character, std::size_t begin, std::size_t end) {
    if (character.bytes > 0) text.append(bytes, begin, end - begin);
  });
  return std::string(trimmed(text));
}

std::vector<HeldOutPrompt> held_out_prompts(const std::vector<ExampleRow>& rows,
                                            const Tokenizer& tokenizer, std::int64_t most,
                                            std::int64_t longest) {
  std::vector<HeldOutPrompt> prompts;
  for (const ExampleRow& row : rows) {
    if (std::ssize(prompts) >= most) break;
    HeldOutPrompt prompt = prompt_of(row, tokenizer);
    const bool is_new = std::ranges::none_of(
        prompts, [&](const HeldOutPrompt& other) { return other.tokens == prompt.tokens; });
    if (is_new && !prompt.text.empty() && std::ssize(prompt.tokens) <= longest)
      prompts.push_back(std::move(prompt));
  }
  return prompts;
}

}  // namespace hybrid_trainer
