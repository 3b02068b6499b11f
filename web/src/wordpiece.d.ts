/** The tokenizer of BERT and its relatives, for texts in lower case. */
export class WordPiece {
  /** `vocabulary` has the number of each token, [UNK], [CLS] and [SEP] among them. */
  constructor(vocabulary: Record<string, number>, options?: { maxTokens?: number });
  /** The numbers of a text's tokens, with [CLS] in front and [SEP] behind, at most `maxTokens`. */
  encode(text: string): number[];
}
