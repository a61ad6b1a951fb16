// Order of search results. Sphinx shows only pages that have all words of a query, in no order of relevance. Here a
// page counts for each word it has, and more for a rare word, a title, and a phrase of search_words.toml, which are
// the words that readers type. Pages for users come before those for developers, and guides before the reference.
const LAST =
  /benchmarks$|^measurements$|^project\/|^how-it-works$|^promises$|^robustness|^layouts-gpu$|^compiled-core$|^dlpack$/;

// The least share of a query, by the weight of its words, that a page must have, relative to the best page. Words that
// no page has do not count: without this, one such word would leave a query without results.
const LEAST = 0.6;

var Scorer = {
  score: ([docname, title, anchor, descr, score, filename, kind]) => {
    if (LAST.test(docname)) return score - 40;
    if (docname.startsWith("notebooks/")) return score - 2;
    if (docname.startsWith("api/")) return kind === "object" && title.split(".").length === 2 ? score : score - 8;
    return score;
  },
  objNameMatch: 11,
  objPartialMatch: 6,
  objPrio: { 0: 15, 1: 5, 2: -5 },
  objPrioDefault: 0,
  title: 15,
  partialTitle: 7,
  term: 5,
  partialTerm: 2,
};

// Returns the pages of a word of the query, each with the best place of the word: 1 for a title.
function pagesOf(word, { terms, titleterms }) {
  const pages = new Map();
  const add = (index, key, place) => {
    for (const page of [index[key]].flat()) pages.set(page, Math.max(place, pages.get(page) ?? 0));
  };
  if (Object.hasOwn(terms, word)) add(terms, word, 0.5);
  if (Object.hasOwn(titleterms, word)) add(titleterms, word, 1);
  if (pages.size === 0 && word.length > 2)
    for (const key of Object.keys(terms)) if (key.startsWith(word)) add(terms, key, 0.3);
  return pages;
}

function searchTerms(words, excluded) {
  const index = Search._index;
  const found = new Map([...words].map((word) => [word, pagesOf(word, index)]));
  const weights = new Map(
    [...found].map(([word, pages]) => [
      word, pages.size ? Math.log((index.docnames.length + 1) / (pages.size + 0.5)) : 0,
    ]),
  );
  const total = [...weights.values()].reduce((sum, weight) => sum + weight, 0);
  const scores = new Map(), shares = new Map();
  const add = (map, page, value) => map.set(page, (map.get(page) ?? 0) + value);
  for (const [word, pages] of found)
    for (const [page, place] of pages) {
      add(scores, page, (15 * place * weights.get(word)) / total);
      add(shares, page, weights.get(word) / total);
    }
  const stemmer = new Stemmer();
  const phrases = new Map();
  for (const [entry, places] of Object.entries(index.indexentries)) {
    const parts = splitQuery(entry).filter((word) => !stopwords.has(word)).map((word) => stemmer.stemWord(word));
    if (!parts.length || !parts.every((word) => words.has(word))) continue;
    const share = [...new Set(parts)].reduce((sum, word) => sum + weights.get(word), 0) / total;
    for (const [page] of places) phrases.set(page, Math.max(share, phrases.get(page) ?? 0));
  }
  for (const [page, share] of phrases) {
    add(scores, page, 40 * share);
    shares.set(page, Math.max(share, shares.get(page) ?? 0));
  }
  for (const word of excluded) for (const page of pagesOf(word, index).keys()) scores.delete(page);
  const best = Math.max(...shares.values());
  return [...scores]
    .filter(([page]) => shares.get(page) >= LEAST * best)
    .map(([page, score]) => [
      index.docnames[page], index.titles[page], "", null, score, index.filenames[page], SearchResultKind.text,
    ]);
}

// The theme loads this file after Sphinx's search.
Search.performTermsSearch = searchTerms;
