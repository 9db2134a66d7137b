"""Scores of random rankings by pytrec_eval, as BEIR's evaluation computes them: retrieval_golden.json.

pip install numpy pytrec-eval-terrier
"""

import json
from pathlib import Path

import numpy
import pytrec_eval

HERE = Path(__file__).parent
DOCUMENTS, QUERIES, WIDTH = 130, 7, 4


def main():
    draw = numpy.random.default_rng(5)
    # Multiples of 1/8, so that products are exact in f32.
    documents = draw.integers(-8, 9, (DOCUMENTS, WIDTH)) / 8
    queries = draw.integers(-8, 9, (QUERIES, WIDTH)) / 8
    judgments = []
    for query in range(QUERIES):
        chosen = draw.choice(DOCUMENTS, 3 + 9 * query, replace=False)
        judgments += [[query, int(document), int(draw.integers(0, 4))] for document in chosen]
    judgments = [[q, d, 0 if q == 2 else score] for q, d, score in judgments]  # nothing is relevant to 2

    relevant, results = {}, {}
    for query, document, score in judgments:
        relevant.setdefault(str(query), {})[f"d{document}"] = score
    for query in range(QUERIES):
        similarity = documents @ queries[query]
        order = numpy.argsort(-similarity, kind="stable")  # ties keep the order of the corpus
        # BEIR leaves out the document with the query's id, here the one with the query's number.
        order = [document for document in order if document != query][:100]
        results[str(query)] = {f"d{document}": float(100 - rank) for rank, document in enumerate(order)}

    measures = {"ndcg_cut.10", "recall.1,10,100"}
    found = pytrec_eval.RelevanceEvaluator(relevant, measures).evaluate(results)
    means = {name: float(numpy.mean([one[name] for one in found.values()])) for name in next(iter(found.values()))}
    reciprocal = 0  # beir.retrieval.custom_metrics.mrr
    for query, hits in results.items():
        for rank, document in enumerate(sorted(hits, key=hits.get, reverse=True)[:10]):
            if relevant[query].get(document, 0) > 0:
                reciprocal += 1 / (rank + 1) / QUERIES
                break
    golden = {
        "documents": documents.tolist(),
        "queries": queries.tolist(),
        "judgments": judgments,
        "ndcg@10": means["ndcg_cut_10"],
        "mrr@10": reciprocal,
        **{f"recall@{k}": means[f"recall_{k}"] for k in (1, 10, 100)},
    }
    (HERE / "retrieval_golden.json").write_text(json.dumps(golden, separators=(",", ":")) + "\n")


main()
