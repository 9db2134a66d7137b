#include "src/core/narrow.h"
#include "src/data/text/tokenizer_steps.h"

namespace hybrid_trainer {

namespace {

constexpr std::size_t kMaxTemplateTokens = 64;  // maximum of tokens added to a text

class PostProcessorReader {
 public:
  explicit PostProcessorReader(std::size_t ids) : ids_(ids) {}

  void read(const JsonPlace& place) {
    const std::string type = place.at("type").text();
    if (type == "ByteLevel") {  // only changes offsets
      place.know({"type", "add_prefix_space", "trim_offsets", "use_regex"});
    } else if (type == "Sequence") {
      place.know({"type", "processors"});
      for (const JsonPlace& part : place.at("processors").items()) read(part);
    } else if (type == "TemplateProcessing") {
      place.know({"type", "single", "pair", "special_tokens"});
      add(place, {read_template(place, "single", 1), read_template(place, "pair", 2)});
    } else if (type == "BertProcessing" || type == "RobertaProcessing") {
      place.know({"type", "sep", "cls", "trim_offsets", "add_prefix_space"});
      add_fixed(place, type == "RobertaProcessing");
    } else {
      place.fail("is ", type, ", which is not supported; want BertProcessing, ByteLevel, ",
                 "RobertaProcessing, Sequence or TemplateProcessing");
    }
  }
  std::optional<InputTemplates> take() && { return std::move(templates_); }

 private:
  void add(const JsonPlace& place, InputTemplates templates) {
    if (templates_)
      place.fail("is a second processor that adds tokens, which is not supported; want one");
    templates_ = std::move(templates);
  }

  /// Adds BERT's template, or RoBERTa's, which has two separators and no types.
  void add_fixed(const JsonPlace& place, bool is_roberta) {
    const std::int32_t cls = id_of_pair(place.at("cls")), sep = id_of_pair(place.at("sep"));
    const std::int32_t second = is_roberta ? 0 : 1;
    InputTemplates templates{.single = {{cls, 0}, {TemplatePiece::kFirstText, 0}, {sep, 0}}};
    templates.pair = templates.single;
    if (is_roberta) templates.pair.push_back({sep, 0});
    templates.pair.push_back({TemplatePiece::kSecondText, second});
    templates.pair.push_back({sep, second});
    add(place, std::move(templates));
  }

  std::int32_t id_of_pair(const JsonPlace& pair) const {
    if (pair.array().size() != 2) pair.fail("is not a pair of a token and its id");
    return id_of(pair.item(1));
  }

  std::int32_t id_of(const JsonPlace& place) const {
    const auto id = narrow<std::int32_t>(place.count());
    if (std::cmp_greater_equal(id, ids_))
      place.fail("is ", id, ", but the vocabulary has ", ids_, " tokens");
    return id;
  }

  /// Reads the template of one text or two. A template for two may be absent or empty.
  std::vector<TemplatePiece> read_template(const JsonPlace& place, const char* key,
                                           std::size_t texts) const {
    std::vector<TemplatePiece> pieces;
    const auto found = place.find(key);
    if (texts == 2 && (!found || found->array().empty())) return pieces;
    std::array<std::size_t, 2> counts{};  // occurrences of each text
    for (const JsonPlace& piece : place.at(key).items()) {
      piece.know({"SpecialToken", "Sequence"});
      if (const auto sequence = piece.find("Sequence")) {
        const std::string name = sequence->at("id").text();
        if (name != "A" && (name != "B" || texts == 1))
          sequence->at("id").fail("is ", name, "; want ", texts == 1 ? "A" : "A or B");
        const bool is_first = name == "A";
        if (++counts[is_first ? 0 : 1] > 1) piece.fail("is a second Sequence ", name);
        pieces.push_back({is_first ? TemplatePiece::kFirstText : TemplatePiece::kSecondText,
                          type_of(*sequence)});
        continue;
      }
      const JsonPlace token = piece.at("SpecialToken");
      const JsonPlace ids = place.at("special_tokens").at(token.at("id").text()).at("ids");
      for (const JsonPlace& id : ids.items()) {
        pieces.push_back({id_of(id), type_of(token)});
        if (pieces.size() > kMaxTemplateTokens + counts[0] + counts[1])
          piece.fail("adds more than ", kMaxTemplateTokens, " tokens to a text");
      }
    }
    if (counts[0] == 0) place.at(key).fail("has no Sequence A");
    if (texts == 2 && counts[1] == 0) place.at(key).fail("has no Sequence B");
    return pieces;
  }

  static std::int32_t type_of(const JsonPlace& piece) {
    const auto type = piece.find("type_id");
    return type ? narrow<std::int32_t>(type->count()) : 0;
  }

  std::size_t ids_;
  std::optional<InputTemplates> templates_;
};

}  // namespace

std::optional<InputTemplates> read_post_processor(const JsonPlace& place, std::size_t ids) {
  PostProcessorReader reader(ids);
  reader.read(place);
  return std::move(reader).take();
}

}  // namespace hybrid_trainer
