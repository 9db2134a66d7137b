#include "src/data/chat/chat_template.h"

#include <boost/json.hpp>

#include "tests/fuzz/fuzz_target.h"

void hybrid_trainer::read_input(std::string_view input) {
  static const boost::json::object variables = boost::json::parse(R"({
    "messages": [
      {"role": "system", "content": "Be brief."},
      {"role": "user", "content": [{"type": "text", "text": " Hi <é> "}]},
      {"role": "assistant", "content": null, "reasoning_content": "why", "tool_calls":
        [{"type": "function", "id": "a1", "function": {"name": "f", "arguments": {"x": 1.5, "y": [true, null]}}}]},
      {"role": "tool", "name": "f", "tool_call_id": "a1", "content": "2"},
      {"role": "assistant", "content": "<think>\nno\n</think>\n\nTwo."}],
    "tools": [{"type": "function", "function": {"name": "f", "description": "d", "parameters":
      {"type": "object", "properties": {"x": {"type": "number", "enum": [1, 2]}}, "required": ["x"]}}}],
    "documents": [], "bos_token": "<s>", "eos_token": "</s>", "enable_thinking": false,
    "add_generation_prompt": true})")
                                                   .as_object();
  const ChatTemplate chat_template(std::string(input), "chat_template.jinja");
  chat_template.marks_generation();
  chat_template.reads_date();
  chat_template.render(variables, 1'700'000'000);
}
