// Order of search results: Sphinx's scores, except that pages for users come before pages for developers,
// benchmarks and the changelog, and guides before the reference. search_words.toml has the words that readers type.
const LAST =
  /benchmarks$|^measurements$|^project\/|^how-it-works$|^promises$|^robustness|-gpu$|^compiled-core$|^dlpack$/;

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
