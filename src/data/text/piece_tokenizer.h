#pragma once

#include "src/data/text/pipeline_tokenizer.h"

namespace hybrid_trainer {

/// A trie of tokens by their bytes. The children of a node are adjacent, in the order of bytes.
class TokenTrie {
 public:
  static constexpr std::int32_t kNone = -1;
  struct Node {
    std::uint32_t first_child = 0;
    std::int32_t id = kNone;  // id of the token that ends at this node
    std::uint16_t children = 0;
    unsigned char byte = 0;
  };

  TokenTrie() = default;
  /// `tokens` are indexed by id. The trie finds the last of equal tokens and never an empty token.
  explicit TokenTrie(const std::vector<std::string>& tokens);
  const Node& root() const { return nodes_.front(); }
  const Node* next(const Node& node, char byte) const;
  const Node* find(std::string_view text) const;
  std::int32_t id_of(std::string_view token) const;

 private:
  std::vector<Node> nodes_{Node{}};
};

/// Splits a word from its start into the longest tokens. All tokens except the first begin with a
/// prefix. A word that cannot be split in this way, or is too long, becomes the unknown token.
/// Source: Wu et al. 2016, "Google's neural machine translation system", and BERT.
struct WordPieceModel {
  static constexpr TokenizerKind kKind = TokenizerKind::kWordPiece;
  TokenTrie tokens;
  std::int32_t unknown = TokenTrie::kNone;
  std::string prefix;              // "##"
  std::size_t max_characters = 0;  // maximum characters of a word
  void append(std::string_view word, std::vector<std::int32_t>& ids) const;
};

/// Splits a word into the tokens with the greatest sum of scores. A character without a token costs
/// 10 more than the worst token. A run of unknown characters becomes the tokens of its bytes if
/// byte_ids are set and all its bytes have a token. Otherwise it becomes one unknown token. Source:
/// Kudo 2018, "Subword regularization".
struct UnigramModel {
  static constexpr TokenizerKind kKind = TokenizerKind::kUnigram;
  TokenTrie tokens;
  std::vector<double> scores;
  double unknown_score = 0;
  /// Id of the unknown token; if it is kNone, text that needs it is rejected.
  std::int32_t unknown = TokenTrie::kNone;
  std::array<std::int32_t, 256> byte_ids;  // kNone if byte_fallback is off
  void append(std::string_view word, std::vector<std::int32_t>& ids) const;

 private:
  void append_run(std::string_view run, std::vector<std::int32_t>& ids) const;
};

template <class Model>
class PieceTokenizer : public PipelineTokenizer {
 public:
  PieceTokenizer(TokenizerPipeline pipeline, Model model, std::optional<std::int32_t> end_of_text,
                 TokenizerFiles files)
      : PipelineTokenizer(std::move(pipeline), end_of_text, std::move(files)),
        model_(std::move(model)) {}
  TokenizerKind kind() const override { return Model::kKind; }
  void append_tokens(std::string_view text, std::vector<std::int32_t>& ids, TextStart start,
                     ControlText control) const override;
  std::size_t last_split_point(std::string_view, std::size_t) const override { return 0; }
  const Model& model() const { return model_; }

 private:
  Model model_;
};

}  // namespace hybrid_trainer
