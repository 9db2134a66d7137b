#include "src/tools/control_tokens_option.h"

namespace hybrid_trainer {

void add_control_tokens_option(po::options_description& options, std::string& name) {
  options.add_options()(
      "control-tokens", po::value(&name)->value_name("tokens|text"),
      "What text that spells a special token, such as <|im_end|>, becomes: the token, or plain "
      "text. "
      "Chats are always read with their tokens (data.control_tokens, which is tokens).");
}

}  // namespace hybrid_trainer
