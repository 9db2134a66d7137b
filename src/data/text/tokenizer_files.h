#pragma once

#include <boost/json/object.hpp>
#include <boost/json/value.hpp>

#include "hybrid_trainer/data/tokenizer.h"
#include "src/data/text/added_tokens.h"
#include "src/data/text/bpe_tokenizer.h"
#include "src/data/text/json_place.h"
#include "src/files/folder_files.h"
#include "src/gguf/gguf_file.h"

namespace hybrid_trainer {

class TextPipeline;

/// An added token as a file lists it, with its id in that file.
struct ListedToken {
  AddedToken token;  // its id is not set
  bool normalized = false;
  std::optional<std::int64_t> id;
  std::string place;  // location in the file, for messages
};

struct TokenizerSettings {
  std::optional<bool> adds_prefix_space;   // overrides a ByteLevel pre-tokenizer that makes words
  std::optional<std::string> end_of_text;  // replaces "<|endoftext|>"; must be a token
  std::string end_of_text_file;            // name of the file that contains end_of_text
  std::vector<ListedToken> added_tokens;   // tokens of added_tokens_decoder, sorted by id
  /// Tokens to add if the tokenizer has no token with the same text: tokens of added_tokens.json by
  /// id, then tokens with roles, tokens with other names such as image_token, and additional ones.
  std::vector<ListedToken> named_tokens;
};

/// Files in which versions of sentence-transformers store the settings of a transformer.
inline constexpr const char* kSentenceFiles[] = {
    "sentence_bert_config.json",       "sentence_roberta_config.json",
    "sentence_distilbert_config.json", "sentence_camembert_config.json",
    "sentence_albert_config.json",     "sentence_xlm-roberta_config.json"};

/// Reads a token {"content": …, "lstrip": …}, of which only content is required.
ListedToken listed_token(const JsonPlace& place);

/// Reads tokenizer_config.json, special_tokens_map.json and added_tokens.json of a folder, if they
/// exist. As in transformers, add_prefix_space overrides the setting in tokenizer.json. If
/// tokenizer_config.json has no added_tokens_decoder, also uses the two older files, and
/// special_tokens_map.json takes precedence. Otherwise uses only the eos_token of
/// special_tokens_map.json, if tokenizer_config.json has none. Warns about unknown keys. Throws
/// DataError.
TokenizerSettings read_tokenizer_settings(const FolderFiles& folder);

/// Makes the tokenizer of a tokenizer.json; `file` is its name. Throws DataError with a JSON path.
std::unique_ptr<Tokenizer> tokenizer_of_json(const boost::json::value& root,
                                             const std::string& file,
                                             const TokenizerSettings& settings,
                                             TokenizerFiles files);

std::pair<std::string, std::string> merge_parts(const JsonPlace& merges, std::size_t i);

boost::json::object byte_level(bool adds_prefix_space, bool splits_words);
/// Returns an element of added_tokens in tokenizer.json that matches the original text.
boost::json::object added_token(std::int64_t id, std::string_view content, bool special);
struct TokenizerJson {
  boost::json::array added_tokens{};
  boost::json::value normalizer{}, pre_tokenizer{}, post_processor{}, decoder{};
  boost::json::object model{};
  boost::json::object root() &&;
};

/// Returns the tokenizer.json that equals BERT's vocab.txt with tokenizer_config.json and
/// special_tokens_map.json, which may be empty. Throws DataError if a special token is missing.
boost::json::object word_piece_json(const std::string& lines, const boost::json::value& config,
                                    const boost::json::value& map,
                                    const std::filesystem::path& folder);

/// Makes the tokenizer of a trained BPE. Its save writes tokenizer.json, vocab.json and merges.txt.
std::unique_ptr<Tokenizer> make_bpe_tokenizer(const BpeModel& model);
/// Makes BERT's lower-case tokenizer of these pieces. Its save writes tokenizer.json and vocab.txt.
std::unique_ptr<Tokenizer> make_word_piece_tokenizer(const std::vector<std::string>& tokens);
/// Returns how this tokenizer normalizes a text and splits it into words.
TextPipeline word_piece_words();

/// Loads the tokenizer of a folder, from its file `name` if given, like load_tokenizer with a path.
std::unique_ptr<Tokenizer> load_tokenizer(const FolderFiles& folder, const std::string& name = "");
/// Reads the files of a folder's tokenizer. If transformers opens the folder as BertTokenizer, the
/// normalizer in tokenizer.json gets the options of tokenizer_config.json. As in
/// sentence-transformers, the normalizer begins with Lowercase if kSentenceFiles set do_lower_case.
/// Throws IoError, DataError.
TokenizerFiles read_tokenizer_files(const FolderFiles& folder);

/// Loads a GGUF file's tokenizer, with the files of a Hugging Face folder. For SentencePiece,
/// derives merges from the scores, or from the order of the tokens if all scores are equal. Throws
/// MissingInput if there is no tokenizer, DataError if it is damaged or unsupported.
std::unique_ptr<Tokenizer> load_tokenizer(const GgufFile& file);

}  // namespace hybrid_trainer
