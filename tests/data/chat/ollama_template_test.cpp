#include "src/data/chat/ollama_template.h"

#include <gtest/gtest.h>

#include "hybrid_trainer/core/error.h"

namespace hybrid_trainer {
namespace {

ChatFiles files_of(const std::string& source, const std::string& bos = "<s>") {
  ChatFiles chat;
  chat.special_tokens = {{"bos_token", bos}, {"eos_token", "</s>"}};
  chat.chat_template.emplace(source, "t");
  return chat;
}

OllamaTemplate derived(const std::string& source, const std::string& bos = "") {
  return derive_ollama_template(files_of(source, bos.empty() ? "<s>" : bos), bos);
}

std::string refusal_of_ollama(const std::string& source) {
  try {
    derived(source);
  } catch (const DataError& error) {
    return error.what();
  }
  return "";
}

const std::string kBegin =
    "{{ range $i, $_ := .Messages }}{{ $last := eq (len (slice $.Messages $i)) 1 }}";

const std::string kChatMl =
    "{% for m in messages %}{{ '<|im_start|>' + m.role + '\n' + m.content + '<|im_end|>' + '\n' }}"
    "{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}";

TEST(OllamaTemplate, WritesChatMl) {
  const OllamaTemplate made = derived(kChatMl);
  EXPECT_EQ(made.text,
            kBegin +
                "{{ if eq .Role \"system\" }}<|im_start|>system\n{{ .Content }}<|im_end|>\n"
                "{{ else if eq .Role \"user\" }}<|im_start|>user\n{{ .Content }}<|im_end|>\n"
                "{{ else if eq .Role \"assistant\" }}{{ if $last }}<|im_start|>assistant\n"
                "{{ .Content }}{{ else }}<|im_start|>assistant\n{{ .Content }}<|im_end|>\n"
                "{{ end }}{{ end }}{{ if and $last (ne .Role \"assistant\") }}"
                "<|im_start|>assistant\n{{ end }}{{ end }}");
  EXPECT_EQ(made.stop, "<|im_end|>");
  EXPECT_GE(made.compared, 9u);
  EXPECT_TRUE(made.remarks.empty());
}

TEST(OllamaTemplate, WritesDefaultSystemMessage) {
  const OllamaTemplate made = derived(
      "{% for m in messages %}{% if loop.first and m.role != 'system' %}"
      "{{ '<|im_start|>system\nYou help.<|im_end|>\n' }}{% endif %}"
      "{{ '<|im_start|>' + m.role + '\n' + m.content + '<|im_end|>' + '\n' }}{% endfor %}"
      "{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}");
  EXPECT_NE(made.text.find("{{ if eq $i 0 }}<|im_start|>system\nYou help.<|im_end|>\n"
                           "<|im_start|>user\n{{ .Content }}"),
            std::string::npos)
      << made.text;
  EXPECT_EQ(made.stop, "<|im_end|>");
}

/// Llama 3's template, with the text of 3.1 before each system message and the tools.
const std::string kHeaders =
    "{{ bos_token }}{% if messages[0].role == 'system' %}{% set s = messages[0].content | trim %}"
    "{% set messages = messages[1:] %}{% else %}{% set s = '' %}{% endif %}"
    "{{ '<|start_header_id|>system<|end_header_id|>\n\nCutting Knowledge Date: December 2023\n\n' "
    "+ s + '<|eot_id|>' }}{% if tools %}{{ tools | tojson }}{% endif %}"
    "{% for m in messages %}{{ '<|start_header_id|>' + m.role + '<|end_header_id|>\n\n' + "
    "m.content | trim + '<|eot_id|>' }}{% endfor %}{% if add_generation_prompt %}"
    "{{ '<|start_header_id|>assistant<|end_header_id|>\n\n' }}{% endif %}";

TEST(OllamaTemplate, OmitsBosTokenAddedByRunner) {
  const OllamaTemplate made = derived(kHeaders, "<|begin_of_text|>");
  EXPECT_EQ(made.text.find("<|begin_of_text|>"), std::string::npos) << made.text;
  EXPECT_NE(made.text.find("December 2023\n\n{{ .Content }}<|eot_id|>"), std::string::npos);
  EXPECT_EQ(made.stop, "<|eot_id|>");
  ASSERT_EQ(made.remarks.size(), 1u);
  EXPECT_EQ(made.remarks.front(), "leaves out tools");
}

TEST(OllamaTemplate, KeepsBosTokenNotAddedByRunner) {
  EXPECT_NE(derived("{{ bos_token }}" + kChatMl).text.find("{{ if eq $i 0 }}<s><|im_start|>user"),
            std::string::npos);
}

TEST(OllamaTemplate, ReportsBosTokenAddedOnlyByRunner) {
  const OllamaTemplate made = derived(kChatMl, "<bos>");
  ASSERT_EQ(made.remarks.size(), 1u);
  EXPECT_NE(made.remarks.front().find("<bos>"), std::string::npos);
}

/// Gemma 3's template: the system message is inside the first turn.
const std::string kWithinFirstTurn =
    "{{ bos_token }}{% if messages[0].role == 'system' %}{% set first = messages[0].content + "
    "'\n\n' %}{% set chat = messages[1:] %}{% else %}{% set first = '' %}{% set chat = messages %}"
    "{% endif %}{% for m in chat %}{% if (m.role == 'user') != (loop.index0 % 2 == 0) %}"
    "{{ raise_exception('roles must alternate') }}{% endif %}"
    "{% set role = 'model' if m.role == 'assistant' else m.role %}"
    "{{ '<start_of_turn>' + role + '\n' + (first if loop.first else '') }}{{ m.content | trim }}"
    "{{ '<end_of_turn>\n' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<start_of_turn>model\n' }}{% endif %}";

TEST(OllamaTemplate, WritesSystemMessageInFirstTurn) {
  const OllamaTemplate made = derived(kWithinFirstTurn, "<bos>");
  EXPECT_NE(made.text.find("<start_of_turn>user\n{{ .Content }}\n\n{{ else if eq .Role \"user\" }}"
                           "{{ if and (eq $i 1) $.System }}{{ .Content }}<end_of_turn>\n"),
            std::string::npos)
      << made.text;
  EXPECT_EQ(made.stop, "<end_of_turn>");
}

/// Mistral's template: the system message is inside the last turn.
const std::string kWithinLastTurn =
    "{% if messages[0].role == 'system' %}{% set s = messages[0].content %}"
    "{% set chat = messages[1:] %}{% else %}{% set chat = messages %}{% endif %}{{ bos_token }}"
    "{% for m in chat %}{% if (m.role == 'user') != (loop.index0 % 2 == 0) %}"
    "{{ raise_exception('roles must alternate') }}{% endif %}{% if m.role == 'user' %}"
    "{% if loop.last and s is defined %}{{ '[INST] ' + s + '\n\n' + m.content + '[/INST]' }}"
    "{% else %}{{ '[INST] ' + m.content + '[/INST]' }}{% endif %}"
    "{% else %}{{ ' ' + m.content | trim + eos_token }}{% endif %}{% endfor %}";

TEST(OllamaTemplate, WritesSystemMessageInLastTurn) {
  const OllamaTemplate made = derived(kWithinLastTurn, "<s>");
  EXPECT_NE(made.text.find("{{ if and $last $.System }}[INST] {{ $.System }}\n\n{{ .Content }}"
                           "[/INST]{{ else }}[INST] {{ .Content }}[/INST]{{ end }}"),
            std::string::npos)
      << made.text;
  EXPECT_EQ(made.stop, "</s>");
}

TEST(OllamaTemplate, WritesLastAnswerInItsOwnForm) {
  const OllamaTemplate made = derived(
      "{% for m in messages %}{{ '<|im_start|>' + m.role + '\n' }}"
      "{% if m.role == 'assistant' and loop.last %}{{ '<think>\n\n</think>\n\n' }}{% endif %}"
      "{{ m.content + '<|im_end|>' + '\n' }}{% endfor %}"
      "{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}");
  EXPECT_NE(made.text.find("{{ if $last }}<|im_start|>assistant\n<think>\n\n</think>\n\n"),
            std::string::npos);
}

TEST(OllamaTemplate, OmitsSystemMessagesTemplateRejects) {
  const OllamaTemplate made = derived(
      "{% for m in messages %}{% if m.role == 'system' %}{{ raise_exception('no') }}{% endif %}"
      "{{ '[' + m.role + ']' + m.content + '[end]' }}{% endfor %}"
      "{% if add_generation_prompt %}[assistant]{% endif %}");
  EXPECT_EQ(made.text.find("system"), std::string::npos);
  ASSERT_EQ(made.remarks.size(), 1u);
  EXPECT_NE(made.remarks.front().find("leaves out system messages"), std::string::npos);
}

TEST(OllamaTemplate, StopsAtNextTurnWithoutEndToken) {
  const OllamaTemplate made = derived(
      "{% for m in messages %}{{ '### ' + m.role + ':\n' + m.content + '\n\n' }}{% endfor %}"
      "{% if add_generation_prompt %}{{ '### assistant:\n' }}{% endif %}");
  EXPECT_EQ(made.stop, "### user:");
}

TEST(OllamaTemplate, RejectsTemplatesOllamaCannotExpress) {
  EXPECT_NE(
      refusal_of_ollama("{% for m in messages %}{{ loop.index ~ m.role ~ m.content }}{% endfor %}")
          .find("does not depend only on the role and the position of a message: for "),
      std::string::npos);
  EXPECT_NE(refusal_of_ollama("{% for m in messages %}{{ m.role ~ m.content | upper }}{% endfor %}")
                .find("does not write each message once and in order: user"),
            std::string::npos);
  EXPECT_NE(refusal_of_ollama("{% for m in messages %}{{ m.role ~ m.content * 2 }}{% endfor %}")
                .find("does not write each message once"),
            std::string::npos);
  EXPECT_NE(refusal_of_ollama(
                "{{ strftime_now('%d %b %Y') }}{% for m in messages %}{{ m.role ~ m.content }}"
                "{% endfor %}")
                .find("it writes the current date"),
            std::string::npos);
  EXPECT_NE(
      refusal_of_ollama("{{ '\"\"\"' }}{% for m in messages %}{{ m.role ~ m.content }}{% endfor %}")
          .find("in a Modelfile"),
      std::string::npos);
  EXPECT_NE(
      refusal_of_ollama("{% for m in messages %}{{ m.role ~ (m.content | replace('<b>', '')) }}"
                        "{% endfor %}")
          .find("does not depend only on"),
      std::string::npos);
}

TEST(OllamaTemplate, RejectsMissingOrFailingTemplate) {
  EXPECT_THROW(derive_ollama_template(ChatFiles(), ""), DataError);
  EXPECT_NE(refusal_of_ollama("{{ raise_exception('never') }}").find("never"), std::string::npos);
}

TEST(GoTemplate, EscapesBracesForGo) {
  GoTemplate source;
  source.turns = {{"user",
                   {{GoTemplate::Place::kAny,
                     {{GoTemplate::Segment::Kind::kText, "a {{ b { c {"},
                      {GoTemplate::Segment::Kind::kContent}}}}}};
  EXPECT_EQ(text_of(source), kBegin +
                                 "{{ if eq .Role \"user\" }}a {{ \"{{\" }} b { c {{ \"{\" }}"
                                 "{{ .Content }}{{ end }}{{ end }}");
  EXPECT_EQ(render(source, {{"user", "x"}, {"tool", "y"}}), "a {{ b { c {x");
}

}  // namespace
}  // namespace hybrid_trainer
