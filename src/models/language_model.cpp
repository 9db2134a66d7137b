#include "hybrid_trainer/models/language_model.h"

#include "hybrid_trainer/core/token_batch.h"

namespace hybrid_trainer {

Batch LanguageModel::empty_batch(const BatchForm& form, const Stream& stream) const {
  const Shape places{form.examples, form.sequence_length};
  return with_sources(form.is_rows ? empty_row_batch(places, form.has_pairs, stream)
                                   : empty_token_batch(places, false, stream),
                      stream);
}

}  // namespace hybrid_trainer
