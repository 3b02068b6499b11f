"""TVM's second vocabulary: names of modules that the documents use and that are other modules here."""

MODULES = {"nd": "weft.runtime", "tirx": "weft.tir"}
