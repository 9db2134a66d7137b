#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "hybrid_trainer/core/fields.h"
#include "hybrid_trainer/data/tokenizer.h"

namespace hybrid_trainer {

/// Names that DataConfig::layout may hold.
inline const std::vector<std::string>& data_layout_names() {
  static const std::vector<std::string> names{"windows", "packed", "apart"};
  return names;
}

/// How training examples are cut from a data folder; the config's group `data`.
struct DataConfig {
  std::int64_t batch_size = 8;
  std::int64_t sequence_length = 256;
  bool shuffle = true;
  std::int64_t prefetch_depth = 1;
  std::string layout = "windows";
  double validation_fraction = 0.1;
  std::string control_tokens = "tokens";

  /// Whether sequences are rows of examples.
  bool is_rows() const { return layout != "windows"; }

  template <class Self, class Visitor>
  static void visit_fields(Self& self, Visitor&& visit) {
    visit(Field{"batch_size", self.batch_size,
                "Sequences that go through the model at once: one micro-batch.",
                Range::between(1, 1 << 20)});
    visit(Field{"sequence_length", self.sequence_length, "Tokens in one sequence.",
                Range::between(1, 1 << 20)});
    visit(Field{"shuffle", self.shuffle,
                "Visit the sequences of an epoch in a seeded random order instead of one after the "
                "other."});
    visit(Field{"prefetch_depth", self.prefetch_depth,
                "Steps whose batches a thread reads ahead, each held in memory; with 0 a step "
                "waits for its own.",
                Range::between(0, 1024)});
    visit(
        Field{"layout", self.layout,
              "What a sequence is: windows are cut from the tokens of a data folder; of a file of "
              "examples (`hybrid finetune`) packed lays several rows into one, none of which "
              "sees another, and apart gives each row one of its own.",
              Range{}, data_layout_names()});
    visit(
        Field{"validation_fraction", self.validation_fraction,
              "Of a file of examples the share of rows, at least one, that is held back to "
              "measure on, unless there is a file for that; 0 measures on those that are learnt. A "
              "data folder has its own split.",
              Range::fraction()});
    visit(Field{"control_tokens", self.control_tokens,
                "What text of a file of examples that spells a special token, such as <|im_end|>, "
                "becomes: the token, or plain text. Chats are always read with their tokens.",
                Range{}, control_text_names()});
  }
};

}  // namespace hybrid_trainer
