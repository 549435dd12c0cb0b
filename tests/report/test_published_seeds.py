"""What the pages of published systems say of a recipe's seeds: their figures and their times."""

import json

from glassformer.report.published import read_recipe_results, seed_rows


def test_a_translators_seeds_say_each_search(tmp_path):
    greedy, beam = (
        {"bleu": 30.0, "bleu_tokenised": 31.04},
        {"bleu": 31.26, "bleu_tokenised": 32.0, "width": 7},
    )
    run = {"seed": 0, "judged": "test", "scores": {"test": {"greedy": greedy, "beam": beam}}}
    (tmp_path / "recipe-mine.json").write_text(json.dumps({"runs": [run]}), encoding="utf-8")
    found = read_recipe_results("mine", tmp_path, tmp_path)
    assert found is not None
    (line,) = seed_rows(found)
    assert (line["Score"], line["Greedy"]) == ("31.3 BLEU", "30.0 BLEU, tokenized 31.0")
    assert line["Beam of 7"] == "31.3 BLEU, tokenized 32.0"


def test_times_of_a_shared_gpu_are_left_out_where_others_are_known_and_told_else(tmp_path):
    def written(*runs):
        records = [
            {"seed": i, "seconds": {"train": s}, "test": {"accuracy": 0.5}} | ({"beside": n} if n else {})
            for i, (s, n) in enumerate(runs)
        ]
        (tmp_path / "recipe-mine.json").write_text(json.dumps({"runs": records}), encoding="utf-8")
        found = read_recipe_results("mine", tmp_path, tmp_path)
        assert found is not None
        return found.time.replace("\u2009", " ").replace("\u202f", " ")

    assert written((600, 0), (60, 20), (60, 3)) == "10 min (1 of 3 seeds)"
    assert written((60, 20), (60, 3)) == "60 s, with up to 20 other trainings on the GPU"
    assert written((600, 0), (600, 0)) == "10 min"
