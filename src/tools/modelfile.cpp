#include "src/tools/modelfile.h"

#include <iostream>

#include "hybrid_trainer/chat/ollama_template.h"
#include "hybrid_trainer/core/error.h"
#include "hybrid_trainer/files/output_file.h"

namespace hybrid_trainer {
namespace {

/// Where a text has quotes or several lines, three quotes enclose it.
std::string quoted(const std::string& text) {
  const bool is_plain = text.find_first_of("\"\n") == std::string::npos;
  const char* quotes = is_plain ? "\"" : "\"\"\"";
  return quotes + text + quotes;
}

/// What llama.cpp puts before each prompt by itself, for export_gguf says so of such a tokenizer.
std::string start_of_runner(const TrainedRun& run, const ChatFiles& chat) {
  const bool adds = run.tokenizer && !run.tokenizer->template_start().empty();
  return adds ? chat.special_token("bos_token") : "";
}

bool is_taken(const std::filesystem::path& path) {
  return std::filesystem::exists(std::filesystem::symlink_status(path));
}

}  // namespace

Modelfile::Modelfile(const std::filesystem::path& gguf)
    : gguf_(gguf), path_(gguf.parent_path() / "Modelfile") {
  if (!is_taken(path_)) return;
  const std::filesystem::path first = path_;
  path_ = std::filesystem::path(gguf).replace_extension("Modelfile");
  if (is_taken(path_))
    throw CannotCreate(concat(first.string(), " and ", path_.string(),
                              ": both exist already; remove one, or give --output another name"));
}

void Modelfile::write(const TrainedRun& run) const {
  std::string text = "FROM ./" + gguf_.filename().string() + "\n";
  std::string said;
  try {
    const ChatFiles chat = read_chat_files(run.tokenizer_folder);
    if (!chat.chat_template) throw MissingInput("the model has no chat template");
    const OllamaTemplate made = derive_ollama_template(chat, start_of_runner(run, chat));
    text += "TEMPLATE \"\"\"" + made.text + "\"\"\"\n";
    if (!made.stop.empty()) text += "PARAMETER stop " + quoted(made.stop) + "\n";
    said = concat(": TEMPLATE writes ", made.compared,
                  " conversations as the model's chat template does");
    for (const std::string& remark : made.remarks) said += "; it " + remark;
  } catch (const MissingInput& error) {
    said = concat(" without TEMPLATE: ", error.what());
  } catch (const DataError& error) {
    said =
        concat(" without TEMPLATE, since Ollama cannot express the chat template: ", error.what());
  }
  create_file(path_, [&](OutputFile& file) { file.write(text); });
  std::cerr << "wrote " << path_.string() << said << "\n";
}

}  // namespace hybrid_trainer
