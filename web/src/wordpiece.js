// The tokenizer of BERT: text to lower case without accents, words and punctuation, then the longest known pieces.

const SPACE = /[\s\p{Zs}]/u, DROPPED = /[\p{C}\ufffd]/u, ACCENTS = /\p{Mn}/gu;
const PUNCTUATION = /[!-/:-@[-`{-~\p{P}]/u;
const IDEOGRAPH = /[\u4e00-\u9fff\u3400-\u4dbf\uf900-\ufaff\u{20000}-\u{2a6df}\u{2a700}-\u{2ceaf}\u{2f800}-\u{2fa1f}]/u;
const LONGEST_WORD = 100;

function words(text) {
  let spaced = "";
  for (const c of text) {
    if (SPACE.test(c)) spaced += " ";
    else if (!DROPPED.test(c)) spaced += IDEOGRAPH.test(c) ? ` ${c} ` : c;
  }
  const found = [];
  let word = "";
  const finish = () => {
    if (word !== "") found.push(word);
    word = "";
  };
  for (const c of spaced.normalize("NFD").replace(ACCENTS, "").toLowerCase()) {
    if (c === " " || PUNCTUATION.test(c)) {
      finish();
      if (c !== " ") found.push(c);
    } else {
      word += c;
    }
  }
  finish();
  return found;
}

export class WordPiece {
  constructor(vocabulary, { maxTokens = 256 } = {}) {
    this.vocabulary = new Map(Object.entries(vocabulary));
    this.maxTokens = maxTokens;
    for (const name of ["[UNK]", "[CLS]", "[SEP]"]) {
      if (!this.vocabulary.has(name)) throw new TypeError(`the vocabulary has no token ${name}`);
    }
  }

  #pieces(word) {
    const letters = [...word], found = [], unknown = [this.vocabulary.get("[UNK]")];
    if (letters.length > LONGEST_WORD) return unknown;
    for (let start = 0; start < letters.length;) {
      let end = letters.length, id;
      for (; end > start; --end) {
        id = this.vocabulary.get((start > 0 ? "##" : "") + letters.slice(start, end).join(""));
        if (id !== undefined) break;
      }
      if (end === start) return unknown;
      found.push(id);
      start = end;
    }
    return found;
  }

  /** The numbers of a text's tokens, with those for its beginning and end. */
  encode(text) {
    const pieces = words(text).flatMap((word) => this.#pieces(word)).slice(0, this.maxTokens - 2);
    return [this.vocabulary.get("[CLS]"), ...pieces, this.vocabulary.get("[SEP]")];
  }
}
