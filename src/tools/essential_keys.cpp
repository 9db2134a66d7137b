#include "src/tools/essential_keys.h"

#include <algorithm>
#include <array>
#include <vector>

#include "hybrid_trainer/core/error.h"
#include "hybrid_trainer/io/json_fields.h"

namespace hybrid_trainer {
namespace {

struct Question {
  const char* text;
  std::vector<const char*> keys;
};

const std::array<Question, 5>& questions() {
  static const std::array<Question, 5> asked{
      {{"What do I train?",
        {"model.family", "model.layers", "model.heads", "model.width", "model.context", "lora.rank",
         "lora.base"}},
       {"On what?",
        {"data.sequence_length", "data.batch_size", "data.validation_fraction", "training.seed"}},
       {"How long?", {"training.steps", "training.evaluate_every_steps", "checkpoint.every_steps"}},
       {"How fast?",
        {"device", "training.threads", "optimizer.name", "optimizer.learning_rate",
         "schedule.warmup_steps", "phases.max_predict_steps"}},
       {"In how much memory?",
        {"memory.device_budget", "memory.plan", "gradient_accumulation.micro_batches",
         "memory.recompute", "memory.optimizer_state"}}}};
  return asked;
}

struct Row {
  std::string key, value, help;
};

std::string whole_first_sentence(const std::string& help) {
  const std::size_t end = help.find(". ");
  return end == std::string::npos ? help : help.substr(0, end + 1);
}

std::vector<Row> rows_of(const Question& question, const FieldNode& tree) {
  std::vector<Row> rows;
  for (const char* key : question.keys) {
    const FieldNode& field = *field_at(tree, key);
    rows.push_back({key, field_text(field), whole_first_sentence(field.help)});
  }
  return rows;
}

}  // namespace

std::string essential_text(const HybridTrainerConfig& config) {
  const FieldNode tree = field_tree(config);
  std::string text;
  for (const Question& question : questions()) {
    text += concat(text.empty() ? "" : "\n", question.text, "\n");
    for (const Row& row : rows_of(question, tree)) {
      const std::string padded = row.key + std::string(37 - row.key.size(), ' ');
      const std::size_t width = std::max<std::size_t>(8, row.value.size());
      text += concat("  ", padded, row.value, std::string(width - row.value.size() + 1, ' '),
                     row.help, "\n");
    }
  }
  return text +
         "\nChange a key with --set KEY=VALUE; `hybrid config --markdown` explains all keys.\n";
}

std::string essential_markdown(const HybridTrainerConfig& config) {
  const FieldNode tree = field_tree(config);
  std::string text =
      "## The essential keys\n\nMost users need these alone; `hybrid config --essential` prints "
      "them.\n\n";
  for (const Question& question : questions()) {
    text += concat("**", question.text, "**\n\n| key | default | meaning |\n| --- | --- | --- |\n");
    for (const Row& row : rows_of(question, tree))
      text += concat("| `", row.key, "` | `", row.value, "` | ", row.help, " |\n");
    text += "\n";
  }
  return text;
}

}  // namespace hybrid_trainer
