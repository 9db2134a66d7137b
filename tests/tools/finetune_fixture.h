#pragma once

#include <gtest/gtest.h>

#include "tests/support/tiny_run.h"
#include "tests/tools/hybrid_process.h"

namespace hybrid_trainer {

/// The run of trained_folder() as a Hugging Face folder, "base", and examples beside it.
class Finetune : public ::testing::Test {
 protected:
  Finetune() {
    const std::filesystem::path root = trained_folder();
    if (!std::filesystem::exists(root / "base")) {
      run_hybrid(root, {"export", "run", "--output", "base"});
      std::filesystem::copy(root / "data/tokenizer.json", root / "base");
      write_text(root / "base/chat_template.jinja",
                 "{% for m in messages %}{{ m.content }}\n{% endfor %}");
    }
    write_text(root / "pairs.jsonl",
               "{\"prompt\": \"Line \", \"completion\": \"1\"}\n{\"text\": \"Line\"}\n"
               "{\"messages\": [{\"role\": \"user\", \"content\": \"Li\"}, "
               "{\"role\": \"assistant\", \"content\": \"ne\"}]}\n");
    std::filesystem::remove_all(root / "tuned");
  }
  ProcessResult finetune(std::vector<std::string> more) const {
    more.insert(more.begin(), "finetune");
    return run_hybrid(trained_folder(), more);
  }
  ProcessResult of_pairs(std::vector<std::string> more = {}) const {
    more.insert(more.begin(), {"--model", "base", "--data", "pairs.jsonl", "--run", "tuned"});
    return finetune(more);
  }
};

}  // namespace hybrid_trainer
