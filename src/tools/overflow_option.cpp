#include "src/tools/overflow_option.h"

#include "hybrid_trainer/core/error.h"
#include "hybrid_trainer/core/fields.h"

namespace hybrid_trainer {
namespace {

std::string and_pinned(const ContextWindow& window) {
  return window.pinned() > 0 ? concat("its first ", window.pinned(), " tokens and ") : "";
}

}  // namespace

void add_overflow_option(po::options_description& options, std::string& name) {
  options.add_options()(
      "context-overflow", po::value(&name)->value_name("error|truncate"),
      "What happens to a text that is longer than the model's context: it is refused, or what lies "
      "behind its beginning-of-text token or system message is left out, the oldest first, and "
      "said so (truncate).");
}

ContextOverflow overflow_of_option(const std::string& name) {
  if (name == "truncate") return ContextOverflow::kTruncate;
  if (name == "error") return ContextOverflow::kError;
  throw UsageError(choice_problem("--context-overflow", name, {"error", "truncate"}));
}

std::string told_of_left_out(const FittedPrompt& prompt, const ContextWindow& window) {
  const std::int64_t kept = std::ssize(prompt.tokens);
  return concat("the prompt has ", kept + prompt.left_out, " tokens and the model's context is ",
                window.context(), ": the model sees ", and_pinned(window), "its last ",
                kept - window.pinned(), "; ", prompt.left_out, " are left out");
}

std::string told_of_forgotten(std::int64_t forgotten, const ContextWindow& window) {
  return concat("the text outgrew the model's context of ", window.context(),
                " tokens: at its end the model no longer saw ", forgotten, " of them",
                window.pinned() > 0 ? concat(" behind the first ", window.pinned()) : "");
}

}  // namespace hybrid_trainer
