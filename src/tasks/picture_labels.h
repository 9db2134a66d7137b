#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "hybrid_trainer/models/vision_config.h"
#include "src/tasks/picture_rows.h"

namespace hybrid_trainer {

/// The number of the class that a row's label means, by its name or number. Throws DataError where it is
/// none of them, or the name of several.
std::int32_t class_of(const PictureLabel& label, const std::vector<ClassLabel>& classes);

/// The number that a label is, or is written as.
std::optional<std::int64_t> number_of(const PictureLabel& label);

/// Whether a class has the label's name, or of a number the one that it has if there are no names, or a
/// name that another class has too.
bool is_named(const PictureLabel& label, const std::vector<ClassLabel>& classes);

/// Of names that differ in blanks, case, leading zeros or Unicode form alone, a line for people; "" if there are none.
std::string told_of_similar(const std::vector<ClassLabel>& classes);

/// The classes of rows that a model does not know: names in their order, or numbers up to the largest,
/// called as transformers calls them. Throws DataError where some are names and others numbers, or all
/// are one.
std::vector<ClassLabel> classes_in(const std::vector<PictureRow>& rows);

}  // namespace hybrid_trainer
