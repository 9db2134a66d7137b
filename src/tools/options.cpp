#include "src/tools/options.h"

#include "hybrid_trainer/core/error.h"
#include "hybrid_trainer/core/fields.h"
#include "src/core/messages.h"
#include "src/model_files/gguf/gguf_model.h"

namespace hybrid_trainer {

std::string model_path(const std::string& given) {
  constexpr std::string_view kOllama = "ollama:";
  if (!given.starts_with(kOllama)) return given;
  return ollama_model(ollama_folder(), given.substr(kOllama.size())).string();
}

boost::program_options::typed_value<std::string>* model_value(std::string& path,
                                                              const char* value_name) {
  return boost::program_options::value<std::string>()
      ->notifier([&path](const std::string& given) { path = model_path(given); })
      ->value_name(value_name);
}

void add_device_option(po::options_description& options, std::string& name) {
  options.add_options()("device", po::value(&name)->value_name("cpu|cuda|cuda:N|auto"),
                        "Device to compute on; auto (default) uses CUDA if a device is available.");
}

const std::string& checked_device_name(const std::string& name) {
  if (!is_device_name(name)) {
    throw UsageError(concat("--device ", name, ": want cpu, cuda, cuda:N or auto",
                            name_hint(name, {"cpu", "cuda", "cuda:0", "auto"})));
  }
  return name;
}

Device device_of_option(const std::string& name) { return find_device(checked_device_name(name)); }

void add_columns_option(po::options_description& options, std::string& columns) {
  options.add_options()("columns", po::value(&columns)->value_name("NAME=COLUMN,..."),
                        "Column names of the examples, such as "
                        "prompt=question,completion=answer; NAME= leaves NAME out (data.columns).");
}

void add_control_tokens_option(po::options_description& options, std::string& name) {
  options.add_options()("control-tokens", po::value(&name)->value_name("tokens|text"),
                        "How to encode text that spells a special token, such as <|im_end|>: as "
                        "the token or as plain text (default: data.control_tokens, which is "
                        "tokens). Chats are always read with their tokens.");
}

namespace {

std::string pinned_text(const ContextWindow& window) {
  return window.pinned() > 0 ? concat("its first ", window.pinned(), " tokens and ") : "";
}

}  // namespace

void add_overflow_option(po::options_description& options, ContextOverflow& overflow) {
  const auto take = [&overflow](const std::string& name) {
    if (name != "error" && name != "truncate")
      throw UsageError(choice_problem("--context-overflow", name, {"error", "truncate"}));
    overflow = name == "error" ? ContextOverflow::kError : ContextOverflow::kTruncate;
  };
  options.add_options()("context-overflow",
                        po::value<std::string>()->notifier(take)->value_name("error|truncate"),
                        "Action if a text is longer than the model's context. error: refuse the "
                        "text. truncate (default): drop the oldest part after the "
                        "beginning-of-text token or system message, with a warning.");
}

std::string truncated_prompt_warning(const FittedPrompt& prompt, const ContextWindow& window) {
  const std::int64_t kept = std::ssize(prompt.tokens);
  return concat("the prompt has ", kept + prompt.left_out, " tokens and the model's context is ",
                window.context(), ": the model reads ", pinned_text(window), "its last ",
                kept - window.pinned(), "; ", prompt.left_out, " are dropped");
}

std::string dropped_tokens_warning(std::int64_t dropped_tokens, const ContextWindow& window) {
  return concat("the text became longer than the model's context of ", window.context(),
                " tokens: at the end, the model no longer read the oldest ", dropped_tokens,
                " tokens", window.pinned() > 0 ? concat(" after the first ", window.pinned()) : "");
}

}  // namespace hybrid_trainer
