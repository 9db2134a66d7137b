#include <algorithm>
#include <cstdio>

#include "src/core/messages.h"
#include "src/core/narrow.h"
#include "src/data/text/bpe_tokenizer.h"
#include "src/data/text/piece_tokenizer.h"
#include "src/data/text/token_texts.h"
#include "src/data/text/tokenizer_files.h"
#include "src/data/text/tokenizer_steps.h"
#include "src/files/foreign_files.h"
#include "src/files/text.h"

namespace hybrid_trainer {

namespace {

constexpr std::int32_t kUnassigned = BpeVocabulary::kNoId;

constexpr std::int64_t kMaxIds = 1 << 19;  // for a vocabulary with fewer tokens

class PipelineReader {
 public:
  PipelineReader(const JsonPlace& root, const TokenizerSettings& settings)
      : root_(root), settings_(settings) {}

  std::unique_ptr<Tokenizer> read(TokenizerFiles files) {
    // The caller decides on truncation and padding.
    root_.know({"version", "truncation", "padding", "added_tokens", "normalizer", "pre_tokenizer",
                "post_processor", "decoder", "model"});
    root_.expect("version", "1.0");
    PreTokenizer pre = read_pre_tokenizer(root_.find("pre_tokenizer"), settings_.adds_prefix_space);
    pipeline_.adds_prefix_space = pre.adds_prefix_space;
    pipeline_.text = TextPipeline(read_normalizer(root_.find("normalizer")), std::move(pre.steps));
    pipeline_.decoder = read_decoder(root_.find("decoder"), pre.by_bytes);
    const JsonPlace model = root_.at("model");
    const std::string type = type_of(model);
    if (pre.by_bytes && type != "BPE")
      root_.at("pre_tokenizer").fail("has ByteLevel, which is not supported with ", type);
    if (type == "WordPiece") return finish(read_word_piece(model), std::move(files));
    if (type == "Unigram") return finish(read_unigram(model), std::move(files));
    return finish(read_bpe(model, pre.by_bytes), std::move(files));
  }

 private:
  /// Returns the model's type. Old files do not name it; tokenizers infers it from the members.
  static std::string type_of(const JsonPlace& model) {
    const auto named = model.find("type");
    const std::string type = named                                     ? named->text()
                             : model.find("merges")                    ? "BPE"
                             : model.at("vocab").value().is_array()    ? "Unigram"
                             : model.find("continuing_subword_prefix") ? "WordPiece"
                                                                       : "BPE";
    if (type != "BPE" && type != "WordPiece" && type != "Unigram")
      model.at("type").fail("is ", type,
                            ", which is not supported; want BPE, Unigram or WordPiece");
    return type;
  }

  template <class Model>
  std::unique_ptr<Tokenizer> finish(Model model, TokenizerFiles files) {
    pipeline_.min_table_rows = spelling().size();
    read_added_tokens();
    if (const auto post = root_.find("post_processor")) {
      if (auto templates = read_post_processor(*post, spelling().size())) {
        pipeline_.single = std::move(templates->single);
        pipeline_.pair = std::move(templates->pair);
      }
    }
    if constexpr (std::is_same_v<Model, BpeVocabulary>) {
      return std::make_unique<BpeTokenizer>(std::move(pipeline_), std::move(model), end_of_text(),
                                            std::move(files));
    } else {
      return std::make_unique<PieceTokenizer<Model>>(std::move(pipeline_), std::move(model),
                                                     end_of_text(), std::move(files));
    }
  }

  void read_vocabulary(const JsonPlace& vocab) {
    const auto size = static_cast<std::int64_t>(vocab.object().size());
    const std::int64_t most = std::max(2 * size, kMaxIds);
    std::vector<bool> taken;
    for (const auto& [key, value] : vocab.object()) {
      const std::string token(key);
      const std::int64_t id = value.is_int64() ? value.get_int64() : -1;
      const auto place = static_cast<std::size_t>(id);
      if (id < 0 || id >= most)
        vocab.fail("token \"", token, "\" has the id ", shortened(value), "; want one from 0 to ",
                   most - 1);
      if (place >= taken.size()) taken.resize(place + 1), spelling().resize(place + 1);
      if (taken[place])
        vocab.fail("token \"", token, "\" has the id ", id, ", which another token also has");
      taken[place] = true;
      spelling()[place] = token;
      model_ids_[token] = narrow<std::int32_t>(id, "a token's id");
    }
    model_size_ = model_ids_.size();
  }

  /// Limits the time that a search for tokens takes at each character of a text.
  void check_lengths(const JsonPlace& vocab) {
    constexpr std::size_t kLongest = 512;
    for (std::size_t id = 0; id < spelling().size(); ++id)
      if (spelling()[id].size() > kLongest)
        vocab.fail("has a token of ", spelling()[id].size(), " bytes, id ", id, "; want at most ",
                   kLongest);
  }

  WordPieceModel read_word_piece(const JsonPlace& model) {
    model.know(
        {"type", "unk_token", "continuing_subword_prefix", "max_input_chars_per_word", "vocab"});
    read_vocabulary(model.at("vocab"));
    check_lengths(model.at("vocab"));
    const JsonPlace unknown = model.at("unk_token");
    const auto id = model_id(unknown.text());
    if (!id) unknown.fail("is \"", unknown.text(), "\", which is not in model.vocab");
    return {.tokens = TokenTrie(spelling()),
            .unknown = *id,
            .prefix = model.at("continuing_subword_prefix").text(),
            .max_characters =
                static_cast<std::size_t>(model.at("max_input_chars_per_word").count(INT64_MAX))};
  }

  UnigramModel read_unigram(const JsonPlace& model) {
    model.know({"type", "unk_id", "byte_fallback", "vocab"});
    const JsonPlace vocab = model.at("vocab");
    UnigramModel unigram;
    double lowest = std::numeric_limits<double>::infinity();
    for (const JsonPlace& item : vocab.items()) {
      if (item.array().size() != 2) item.fail("is not a pair of a token and its score");
      const std::string token = item.item(0).text();
      model_ids_[token] = narrow<std::int32_t>(spelling().size(), "a token's id");
      spelling().push_back(token);
      unigram.scores.push_back(item.item(1).number());
      lowest = std::min(lowest, unigram.scores.back());
    }
    model_size_ = spelling().size();
    check_lengths(vocab);
    constexpr double kPenalty = 10;
    unigram.unknown_score = lowest - kPenalty;
    unigram.tokens = TokenTrie(spelling());
    if (const auto unknown = model.find("unk_id")) {
      unigram.unknown = narrow<std::int32_t>(unknown->count());
      if (std::cmp_greater_equal(unigram.unknown, spelling().size()))
        unknown->fail("is ", unigram.unknown, ", but model.vocab has ", spelling().size(),
                      " tokens");
    }
    unigram.byte_ids = byte_token_ids(model.flag("byte_fallback"));
    return unigram;
  }

  /// Adds the tokens of this file, then the tokens of tokenizer_config.json, whose flags take
  /// precedence, then new tokens that other files name.
  void read_added_tokens() {
    if (const auto tokens = root_.find("added_tokens")) {
      for (const JsonPlace& place : tokens->items()) {
        ListedToken listed = listed_token(place);
        listed.id = place.at("id").count();
        add_listed_token(std::move(listed));
      }
    }
    for (const ListedToken& listed : settings_.added_tokens) add_listed_token(listed);
    for (const ListedToken& listed : settings_.named_tokens) {
      const std::string& content = listed.token.content;
      const bool is_undefined_end =
          content == settings_.end_of_text && !listed.id && !model_ids_.contains(content);
      if (!added_.contains(content) && !is_undefined_end) add_listed_token(listed);
    }
    for (const ListedToken& listed : listed_) add_to_finder(listed);
    if (renumbered_ > 0)
      warn("tokenizer.json",
           concat("added tokens get the ids that Hugging Face's tokenizers gives them, not the ids "
                  "in the file: ",
                  first_renumbered_,
                  renumbered_ == 1 ? "" : concat(", and ", renumbered_ - 1, " more")));
  }

  /// Adds a token with the id that Hugging Face's tokenizers assign, regardless of its id in the
  /// file: the id of model.vocab, or else the next id after the size of model.vocab and all added
  /// tokens.
  void add_listed_token(ListedToken listed) {
    const std::string& content = listed.token.content;
    if (content.empty()) return;
    if (const auto known = added_.find(content); known != added_.end()) {
      ListedToken& before = listed_[known->second];
      listed.token.id = before.token.id;
      before = std::move(listed);
      return;
    }
    const auto found = model_ids_.find(content);
    const auto size = narrow<std::int32_t>(model_size_, "the number of tokens");
    const std::int32_t id =
        found != model_ids_.end() ? found->second : std::max(size, last_added_ + 1);
    if (listed.id && *listed.id != id && ++renumbered_ == 1)
      first_renumbered_ =
          concat("\"", content, "\" is ", id, " and not ", *listed.id, " (", listed.place, ")");
    last_added_ = std::max(last_added_, id);
    listed.token.id = id;
    added_[content] = listed_.size();
    const auto place = static_cast<std::size_t>(id);
    if (place >= spelling().size()) spelling().resize(place + 1);
    spelling()[place] = content;
    if (!listed.token.special)
      pipeline_.min_table_rows = std::max(pipeline_.min_table_rows, place + 1);
    listed_.push_back(std::move(listed));
  }

  void add_to_finder(ListedToken listed) {
    if (!listed.normalized) return pipeline_.added.add(std::move(listed.token));
    std::string& content = listed.token.content;
    try {
      PiecePlace place;
      content = pipeline_.text.normalized(content, place);
    } catch (const DataError& error) {
      root_.at("normalizer").fail("cannot be applied to \"", content, "\": ", error.what());
    }
    if (content.empty()) root_.fail("has an added token that is empty after the normalizer");
    spelling()[static_cast<std::size_t>(listed.token.id)] = content;
    pipeline_.added_normalized.add(std::move(listed.token));
  }

  BpeVocabulary read_bpe(const JsonPlace& model, bool by_bytes) {
    read_vocabulary(model.at("vocab"));
    model.know({"type", "dropout", "unk_token", "continuing_subword_prefix", "end_of_word_suffix",
                "fuse_unk", "byte_fallback", "ignore_merges", "vocab", "merges"});
    model.expect("continuing_subword_prefix", "");
    model.expect("end_of_word_suffix", "");
    if (const auto dropout = model.find("dropout"))
      if (dropout->value() != boost::json::value(0)) model.expect("dropout", 0.0);
    BpeVocabulary vocabulary;
    vocabulary.by_bytes = by_bytes;
    vocabulary.fuses_unknown = model.flag("fuse_unk");
    vocabulary.ignores_merges = model.flag("ignore_merges");
    if (const auto unknown = model.find("unk_token")) {
      vocabulary.unknown = model_id(unknown->text());
      if (!vocabulary.unknown) vocabulary.missing_unknown = unknown->text();
    }
    vocabulary.tokens = spelling();
    const bool falls_back = model.flag("byte_fallback");
    by_bytes ? set_byte_symbols(model, falls_back, vocabulary)
             : set_characters(falls_back, vocabulary);
    read_merges(model.at("merges"), vocabulary.merges);
    return vocabulary;
  }

  /// Decodes the vocabulary from GPT-2's byte symbols. Tokens with other characters spell nothing.
  void set_byte_symbols(const JsonPlace& model, bool falls_back, BpeVocabulary& vocabulary) const {
    const ByteSymbolCoder coder;
    for (std::size_t byte = 0; byte < 256; ++byte) {
      const auto id = model_id(coder.to_symbols(std::string(1, static_cast<char>(byte))));
      if (!id && falls_back)
        model.at("byte_fallback")
            .fail("is true with ByteLevel and no token for byte ", byte,
                  ", which is not supported");
      vocabulary.byte_ids[byte] = id.value_or(kUnassigned);
    }
    for (std::string& token : vocabulary.tokens) token = coder.to_bytes(token).value_or("");
  }

  void set_characters(bool falls_back, BpeVocabulary& vocabulary) const {
    for (const auto& [token, id] : model_ids_) {
      const CodePoint found = decode_utf8(token, 0);
      if (found.bytes > 0 && found.bytes == token.size())
        vocabulary.character_ids[found.value] = id;
    }
    vocabulary.byte_ids = byte_token_ids(falls_back);
  }

  /// Returns the ids of "<0x00>" … "<0xFF>". If byte_fallback is off, all are unassigned.
  std::array<std::int32_t, 256> byte_token_ids(bool falls_back) const {
    std::array<std::int32_t, 256> ids;
    ids.fill(kUnassigned);
    for (unsigned byte = 0; byte < 256 && falls_back; ++byte) {
      char token[8];
      std::snprintf(token, sizeof(token), "<0x%02X>", byte);
      ids[byte] = model_id(token).value_or(kUnassigned);
    }
    return ids;
  }

  std::optional<std::int32_t> model_id(const std::string& token) const {
    const auto found = model_ids_.find(token);
    return found == model_ids_.end() ? std::nullopt : std::optional(found->second);
  }

  void read_merges(const JsonPlace& place, std::vector<BpeMerge>& merges) const {
    for (std::size_t i = 0; i < place.array().size(); ++i) {
      const auto [left, right] = merge_parts(place, i);
      const auto id = [&](const std::string& token) {
        const auto found = model_id(token);
        if (!found)
          place.item(i).fail("needs the token \"", token, "\", which is not in model.vocab");
        return *found;
      };
      merges.push_back({id(left), id(right), id(left + right)});
    }
  }

  std::optional<std::int32_t> end_of_text() const {
    const std::string token = settings_.end_of_text.value_or(std::string(kEndOfText));
    if (const auto found = added_.find(token); found != added_.end())
      return listed_[found->second].token.id;
    if (const auto id = model_id(token)) return id;
    if (!settings_.end_of_text) return {};
    root_.fail("has no token \"", *settings_.end_of_text, "\", which ", settings_.end_of_text_file,
               " names as eos_token; want one of the tokenizer's tokens");
  }

  std::vector<std::string>& spelling() { return pipeline_.spelling; }

  const JsonPlace& root_;
  const TokenizerSettings& settings_;
  TokenizerPipeline pipeline_;
  std::unordered_map<std::string, std::int32_t> model_ids_;
  std::size_t model_size_ = 0;                          // tokens of model.vocab
  std::vector<ListedToken> listed_;                     // the added tokens
  std::unordered_map<std::string, std::size_t> added_;  // their indices in listed_
  std::int32_t last_added_ = -1;                        // the highest of their ids
  std::int64_t renumbered_ = 0;                         // tokens with another id in this file
  std::string first_renumbered_;
};

}  // namespace

std::pair<std::string, std::string> merge_parts(const JsonPlace& merges, std::size_t i) {
  const boost::json::value& merge = merges.array()[i];
  if (merge.is_string()) {
    const std::string line(merge.get_string());
    const std::size_t space = line.find(' ');
    if (space != std::string::npos && line.find(' ', space + 1) == std::string::npos)
      return {line.substr(0, space), line.substr(space + 1)};
  }
  const bool are_two = merge.is_array() && merge.get_array().size() == 2 &&
                       merge.at(0).is_string() && merge.at(1).is_string();
  if (!are_two) merges.item(i).fail("is ", shortened(merge), ", not two tokens");
  return {std::string(merge.at(0).get_string()), std::string(merge.at(1).get_string())};
}

std::unique_ptr<Tokenizer> tokenizer_of_json(const boost::json::value& root,
                                             const std::string& file,
                                             const TokenizerSettings& settings,
                                             TokenizerFiles files) {
  const JsonPlace place(root, file);
  auto tokenizer = PipelineReader(place, settings).read(std::move(files));
  warn_of_unknown_keys(file, place.unknown());
  return tokenizer;
}

}  // namespace hybrid_trainer
