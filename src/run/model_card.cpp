#include "src/run/model_card.h"

#include <algorithm>
#include <boost/json.hpp>
#include <cctype>

#include "hybrid_trainer/core/error.h"
#include "hybrid_trainer/models/model_family.h"
#include "src/core/machine.h"
#include "src/core/messages.h"
#include "src/files/json.h"
#include "src/files/json_lookup.h"
#include "src/files/output_file.h"
#include "src/files/text.h"
#include "src/model_files/adapters/adapter_files.h"
#include "src/run/run_files.h"

namespace hybrid_trainer {

namespace {

namespace fs = std::filesystem;
namespace json = boost::json;

constexpr std::size_t kMaxCardBytes = 1 << 20;

constexpr const char* kPlain = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_.";

bool is_hub_name(const std::string& name) {
  const std::size_t slash = name.find('/');
  return slash != std::string::npos && slash > 0 && slash + 1 < name.size() && name[0] != '.' &&
         name.find_first_not_of(kPlain) == slash &&
         name.find_first_not_of(kPlain, slash + 1) == std::string::npos;
}

/// License keys of model cards and the corresponding keys of GGUF files.
constexpr std::pair<const char*, const char*> kLicenseKeys[] = {
    {"license", "general.license"},
    {"license_name", "general.license.name"},
    {"license_link", "general.license.link"}};

std::string line_of(const std::string& text) {
  std::string line = well_formed_utf8(text);
  for (char& c : line)
    if (std::iscntrl(static_cast<unsigned char>(c)) != 0) c = ' ';
  return line;
}

std::string markdown_of(const std::string& text) {
  std::string out;
  for (const char c : line_of(text)) {
    if (std::string_view("\\`*[]<>|&").find(c) != std::string_view::npos) out += '\\';
    out += c;
  }
  return out;
}

/// Returns the text as a YAML value: plain if it is an identifier, otherwise quoted as in JSON.
std::string yaml_of(const std::string& text) {
  const bool is_plain = text.find_first_not_of(kPlain) == std::string::npos;
  return is_plain && std::isalpha(static_cast<unsigned char>(text[0])) ? text
                                                                       : json_string(line_of(text));
}

/// Returns a command with absolute paths reduced to their last component.
std::string published(const std::string& command) {
  std::string out;
  for (std::size_t i = 0; i < command.size(); ++i) {
    const char before = i == 0 ? ' ' : command[i - 1];
    if (command[i] == '/' && std::string_view(" '=").find(before) != std::string_view::npos) {
      const std::size_t end =
          std::min(command.find(before == '\'' ? '\'' : ' ', i), command.size());
      const std::size_t last = command.rfind('/', std::max(end, i + 2) - 2);  // "/a/b/" is "b/"
      i = std::max(i, last) + 1;
      if (i == command.size()) break;
    }
    out += command[i];
  }
  return line_of(out);
}

/// Returns a fenced code block, with a fence longer than any in `text`.
std::string code_block(const std::string& text) {
  std::string fence = "```";
  while (text.find(fence) != std::string::npos) fence += '`';
  return concat("\n", fence, "\n", text, "\n", fence, "\n");
}

json::value read_if_present(const fs::path& file) {
  return fs::exists(file) ? read_json(file) : json::value();
}

/// Returns the Hub name of a model according to its files, or "" if they do not contain it.
std::string hub_name_of(const fs::path& model) {
  if (!fs::is_directory(model)) return "";
  const char* const file = holds_adapter(model) ? "adapter_config.json" : "config.json";
  const char* const key = holds_adapter(model) ? "/base_model_name_or_path" : "/_name_or_path";
  const std::string name = text_at(read_if_present(model / file), key);
  return is_hub_name(name) && !fs::exists(name) ? name : "";
}

/// Returns the purpose of a run's task or model family, or the purpose of a language model without
/// a run.
ModelFamily::Purpose purpose_of(const RunPaths& run) {
  const json::value config = run.contains_run() ? read_if_present(run.config()) : json::value();
  const std::string objective = text_at(config, "/objective");
  if (objective == "classify") return {"text-classification", "A classifier of texts"};
  if (objective == "embed") return {"sentence-similarity", "An embedding model"};
  if (objective == "rank") return {"text-ranking", "A cross-encoder"};
  if (objective == "reward") return {"text-classification", "A reward model"};
  const std::string name = text_at(config, "/model/family");
  const auto family = std::ranges::find(model_families(), name, &ModelFamily::name);
  return family == model_families().end() ? ModelFamily::Purpose{} : family->purpose;
}

/// Returns whether models with this pipeline_tag open in sentence-transformers.
bool is_of_sentence_transformers(const std::string& tag) {
  return tag == "sentence-similarity" || tag == "text-ranking";
}

std::string front_matter(const fs::path& base, CardKind kind, const std::string& tag) {
  const bool is_adapter = kind == CardKind::kAdapter;
  const char* const library = is_adapter                         ? "peft"
                              : is_of_sentence_transformers(tag) ? "sentence-transformers"
                                                                 : "transformers";
  std::string text = concat("---\nlibrary_name: ", library, "\npipeline_tag: ", tag, "\n");
  if (const std::string name = base.empty() ? "" : hub_name_of(base); !name.empty())
    text += concat("base_model: ", name,
                   "\nbase_model_relation: ", is_adapter ? "adapter" : "finetune", "\n");
  for (const auto& [key, value] : base.empty() ? LicenseTexts() : license_of(base))
    text += concat(key, ": ", yaml_of(value), "\n");
  return text + "---\n";
}

std::string row(const char* what, const std::string& value) {
  return value.empty() ? "" : concat("| ", what, " | ", markdown_of(value), " |\n");
}

std::string count_text(const json::value& summary, const char* pointer) {
  return number_at(summary, pointer) ? units::grouped(count_at(summary, pointer)) : "";
}

std::string loss_text(const json::value& summary, const char* pointer) {
  const std::optional<double> loss = number_at(summary, pointer);
  return loss ? brief(*loss) : "";
}

std::string training_of(const RunPaths& run, const RunData& data) {
  const json::value summary = read_if_present(run.summary());
  std::string text =
      concat("\n## Training\n\nTrained with HybridTrainer ", project_version(), ".\n");
  const std::string first = text_at(summary, "/first_command"), last = text_at(summary, "/command");
  if (const std::string& command = first.empty() ? last : first; !command.empty())
    text += code_block(published(command));
  text += "\n| | |\n| --- | --- |\n";
  text +=
      row("steps", count_text(summary, "/steps")) + row("tokens", count_text(summary, "/tokens"));
  if (const auto seconds = number_at(summary, "/seconds"))
    text += row("time", units::duration(*seconds));
  text += row("training loss at the end", loss_text(summary, "/final_train_loss")) +
          row("validation loss at the end", loss_text(summary, "/final_validation_loss")) +
          row("checksum of the data", data.checksum) + row("CPU", processor_info().name);
  return text;
}

}  // namespace

/// Returns the first scalar of a YAML value, without quotes, comments and list brackets.
static std::string scalar_of(std::string_view text) {
  text = trimmed(text);
  const bool is_list = text.starts_with('[');
  if (is_list) text = trimmed(text.substr(1));
  if (text.starts_with('"') || text.starts_with('\''))
    return std::string(text.substr(1, text.substr(1).find(text[0])));
  text = text.substr(0, text.find(" #"));
  if (is_list) text = text.substr(0, text.find_first_of(",]"));
  if (text.starts_with('#')) return "";
  return std::string(trimmed(text));
}

LicenseTexts license_of(const ModelFolder& model) {
  LicenseTexts found;
  if (model.is_gguf()) {
    for (const auto& [key, name] : kLicenseKeys)
      if (const auto text = model.gguf().text(name); text && !text->empty())
        found.emplace_back(key, *text);
    return found;
  }
  if (!fs::is_regular_file(model.path() / "README.md")) return found;
  std::istringstream lines(model.files().text("README.md", kMaxCardBytes));
  std::string line, open;  // the key whose value follows as a list
  bool is_inside = false;
  while (std::getline(lines, line)) {
    const std::string_view text = trimmed(line);
    if (!is_inside && text.empty()) continue;
    if ((text == "---") == is_inside) break;
    if (!std::exchange(is_inside, true) || text.empty() || text.starts_with('#')) continue;
    if (!open.empty() && text.starts_with("- "))
      found.emplace_back(open, scalar_of(text.substr(2)));
    open.clear();
    const bool is_nested = line.starts_with(' ') || line.starts_with('\t');
    const std::size_t colon = text.find(':');
    if (is_nested || colon == text.npos) continue;
    const std::string key(trimmed(text.substr(0, colon)));
    const auto is_it = [&](const auto& one) { return key == one.first; };
    if (std::ranges::none_of(kLicenseKeys, is_it)) continue;
    const std::string value = scalar_of(text.substr(colon + 1));
    if (value.empty()) open = key;
    if (!value.empty()) found.emplace_back(key, value);
  }
  return found;
}

std::string model_card(const fs::path& source, CardKind kind) {
  const RunPaths run{source.string()};
  const bool is_run = run.contains_run();
  const RunData data = is_run ? data_of_run(run) : RunData{};
  const fs::path base = is_run ? data.base.path() : source;
  const std::string name =
      (source.has_filename() ? source.filename() : source.parent_path().filename()).string();
  const ModelFamily::Purpose purpose = purpose_of(run);
  std::string text =
      front_matter(base, kind, purpose.tag) + concat("\n# ", markdown_of(name), "\n\n");
  switch (kind) {
    case CardKind::kModel:
      text += concat(
          purpose.title, " as a folder for Hugging Face transformers",
          is_of_sentence_transformers(purpose.tag) ? " and sentence-transformers.\n" : ".\n");
      break;
    case CardKind::kMergedModel:
      text += concat(purpose.title, " with adapters merged into its weights.\n");
      break;
    case CardKind::kAdapter:
      text += "Adapters (LoRA) in PEFT's format, without their base model.\n";
      if (purpose.tag == "image-classification")
        text += "Its modules have the names of transformers 5, which differ from transformers 4.\n";
      break;
  }
  return is_run ? text + training_of(run, data) : text;
}

void write_model_card(const fs::path& source, const fs::path& folder, CardKind kind) {
  replace_file((folder / "README.md").string(), model_card(source, kind));
}

}  // namespace hybrid_trainer
