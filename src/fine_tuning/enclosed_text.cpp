#include "hybrid_trainer/fine_tuning/enclosed_text.h"

#include <algorithm>
#include <iterator>

namespace hybrid_trainer {

EnclosedText enclosed_text(std::string_view text, const Tokenizer& tokenizer, ControlText control,
                           std::int64_t longest) {
  EnclosedText made{.tokens = tokenizer.encode_document(text, control)};
  std::vector<std::int32_t> end = tokenizer.template_end();
  if (const auto of_text = tokenizer.end_of_text(); end.empty() && of_text) end = {*of_text};
  const bool is_spelt = made.tokens.size() >= end.size() &&
                        std::equal(end.rbegin(), end.rend(), made.tokens.rbegin());
  if (!is_spelt) made.tokens.insert(made.tokens.end(), end.begin(), end.end());
  made.left_out = std::max<std::int64_t>(0, std::ssize(made.tokens) - longest);
  if (made.left_out == 0) return made;
  made.tokens.resize(static_cast<std::size_t>(longest));
  std::copy_backward(end.begin() + std::max<std::int64_t>(0, std::ssize(end) - longest), end.end(),
                     made.tokens.end());
  return made;
}

}  // namespace hybrid_trainer
